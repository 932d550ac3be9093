//! Frames in order, write by write: heads, structure, numbers and links, up to where the data ends.
//! What the frames mean is `chain`'s; what they are worth to a trace, the visitor's.

use std::time::Duration;

use ledger_format::{
    ByteOffset, Frame, Link, OutsideCover, Seq, Tail, TailStart, WriteNumbers, classify_tail,
};

use super::files::{FIRST_FRAME, Files, Found, SegmentFile, Window};
use crate::source::SourceError;

/// A write that is under way when it is first met is done by then.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What a walk shows. Every frame of a write is shown after all of the write was linked.
pub(super) enum Shown<'a> {
    /// The next frame of the chain.
    Frame {
        segment: Seq,
        offset: ByteOffset,
        frame: Frame<'a>,
        predecessor: Link,
    },
    /// A segment's data ends here.
    End {
        segment: Seq,
        offset: ByteOffset,
        next: Seq,
        link: Link,
    },
}

/// Who is shown the chain. An error says what does not hold.
pub(super) trait Visitor {
    fn show(&mut self, shown: Shown<'_>) -> Result<(), String>;
    /// Whether a close stands before the end of the data.
    fn is_closed(&self) -> bool;
}

/// Where a walk stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) segment: Seq,
    pub(super) offset: ByteOffset,
    pub(super) next: Seq,
    /// Link of the frame before; None at the first frame of what there is, which names its own predecessor.
    pub(super) link: Option<Link>,
}

/// The next write of a segment.
enum NextWrite {
    Whole(Vec<(ByteOffset, Link)>, Position),
    End,
    Irregular(Seq, String),
}

/// Walks to the end of the chain, or to frame `until` and not into a write that reaches beyond it. Says what stands
/// behind the end, if that is not nothing.
pub(super) fn walk(
    files: &Files,
    from: Position,
    until: Seq,
    visitor: &mut dyn Visitor,
) -> Result<Option<Tail>, SourceError> {
    let mut at = from;
    loop {
        let (end, tail) = segment(files, at, until, visitor)?;
        let shown = Shown::End {
            segment: end.segment,
            offset: end.offset,
            next: end.next,
            link: end.link.unwrap_or(Link::ZERO),
        };
        visitor
            .show(shown)
            .map_err(|what| violation(end.next, what))?;
        if end.next >= until {
            return Ok(None);
        }
        // Listed only now, so that a segment that was opened meanwhile is not missed.
        let next = files.list()?.into_iter().find(|seq| *seq > end.segment);
        match next {
            None => return Ok(tail),
            Some(seq) if seq == end.next && tail.is_none() => {
                at = Position {
                    segment: seq,
                    offset: ByteOffset(0),
                    ..end
                };
            }
            Some(seq) => {
                let what = format!(
                    "the segment that begins there is missing, the next one begins at {seq}"
                );
                return Err(violation(end.next, what));
            }
        }
    }
}

fn violation(seq: Seq, what: String) -> SourceError {
    SourceError::Violation { seq, what }
}

/// Walks one segment to the end of its data.
fn segment(
    files: &Files,
    from: Position,
    until: Seq,
    visitor: &mut dyn Visitor,
) -> Result<(Position, Option<Tail>), SourceError> {
    let mut file = files.frames(from.segment)?;
    let mut at = from;
    if at.offset == ByteOffset(0) {
        if !Window::new(&file).has_magic()? {
            let what = "the file does not begin as a segment of format version 1".to_owned();
            return Err(violation(at.next, what));
        }
        at.offset = FIRST_FRAME;
    }
    let mut looked_again = false;
    'file: loop {
        let mut window = Window::new(&file);
        loop {
            // What stands behind may be half-written: it is not even looked at.
            if at.next >= until {
                return Ok((at, None));
            }
            match next_write(&mut window, at)? {
                NextWrite::Whole(_, end) if end.next > until => return Ok((at, None)),
                NextWrite::Whole(places, end) => {
                    for (offset, predecessor) in places {
                        show(&mut window, at.segment, offset, predecessor, visitor)?;
                    }
                    (at, looked_again) = (end, false);
                }
                NextWrite::End => return Ok((at, None)),
                NextWrite::Irregular(..) if !looked_again => {
                    std::thread::sleep(LOOK_AGAIN_AFTER);
                    file = files.frames(at.segment)?;
                    looked_again = true;
                    continue 'file;
                }
                NextWrite::Irregular(seq, what) => {
                    let is_last = files.list()?.last() == Some(&at.segment);
                    return match tail(&file, at, is_last, visitor.is_closed())? {
                        Tail::Damaged => Err(violation(seq, what)),
                        Tail::Clean => Ok((at, None)),
                        tail => Ok((at, Some(tail))),
                    };
                }
            }
        }
    }
}

/// What stands behind the last whole write: only in the last segment may it be anything.
fn tail(
    file: &SegmentFile,
    at: Position,
    is_last: bool,
    closed: bool,
) -> Result<Tail, SourceError> {
    let (true, Some(link)) = (is_last, at.link) else {
        return Ok(Tail::Damaged);
    };
    let start = TailStart {
        end: at.offset,
        next: at.next,
        link,
        closed,
    };
    classify_tail(file, file.len(), start, OutsideCover::None).map_err(|source| SourceError::Io {
        context: format!("segment {}", at.segment),
        source,
    })
}

fn next_write(window: &mut Window<'_>, from: Position) -> Result<NextWrite, SourceError> {
    let (mut places, mut at, mut count) = (Vec::new(), from, 1);
    while places.len() < count as usize {
        let frame = match window.at(at.offset)? {
            Found::Frame(frame) => frame,
            Found::End if places.is_empty() => return Ok(NextWrite::End),
            Found::End => return Ok(irregular(at, "the file ends inside a write")),
            Found::Zero => return Ok(irregular(at, "zeros stand where a frame should")),
            Found::Bad(what) => return Ok(irregular(at, &what)),
        };
        let numbers: WriteNumbers = frame.prefix.write;
        if places.is_empty() {
            count = numbers.count;
        }
        if frame.prefix.seq != at.next {
            return Ok(irregular(at, &format!("found frame {}", frame.prefix.seq)));
        }
        let alone = numbers.count == 1 || !frame.prefix.kind.stands_alone();
        if numbers.index as usize != places.len() || numbers.count != count || !alone {
            return Ok(irregular(at, "the frame does not continue its write"));
        }
        let predecessor = at.link.unwrap_or_else(|| own_predecessor(&frame));
        if frame.compute_link(&predecessor) != frame.link {
            return Ok(irregular(
                at,
                "the frame or the one before it was altered: its link is another",
            ));
        }
        places.push((at.offset, predecessor));
        at = Position {
            segment: at.segment,
            offset: ByteOffset(at.offset.0.saturating_add(frame.prefix.frame_len.into())),
            next: at.next.next(),
            link: Some(frame.link),
        };
    }
    Ok(NextWrite::Whole(places, at))
}

/// What the first frame of a segment says of the one before it; proved only through a checkpoint that covers both.
pub(super) fn own_predecessor(frame: &Frame<'_>) -> Link {
    let open = frame
        .control()
        .and_then(|c| ledger_format::SegmentOpen::decode(c.body).ok());
    open.map_or(Link::ZERO, |open| open.predecessor)
}

fn irregular(at: Position, what: &str) -> NextWrite {
    NextWrite::Irregular(at.next, what.to_owned())
}

fn show(
    window: &mut Window<'_>,
    segment: Seq,
    offset: ByteOffset,
    predecessor: Link,
    visitor: &mut dyn Visitor,
) -> Result<(), SourceError> {
    let Found::Frame(frame) = window.at(offset)? else {
        let what = format!("segment {segment} changed while it was being read");
        return Err(SourceError::Unusable(what));
    };
    let seq = frame.prefix.seq;
    // Only what was linked is shown: the window may have been filled anew in between.
    if frame.compute_link(&predecessor) != frame.link {
        return Err(violation(
            seq,
            "it changed while it was being read".to_owned(),
        ));
    }
    let shown = Shown::Frame {
        segment,
        offset,
        frame,
        predecessor,
    };
    visitor.show(shown).map_err(|what| violation(seq, what))
}
