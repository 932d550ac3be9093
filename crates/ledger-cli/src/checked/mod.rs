//! The chain, read in order and checked before anybody sees a record of it (`ledger-format.md`, section 15).
//!
//! Not the verifier: this stops at the first thing that does not hold and names it; `ledger verify` gives the whole
//! verdict. Memory is bounded: of the records that wait for their checkpoint only places and links are held, and
//! their bytes are read and linked again when it has been checked.

mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::Context;
use ledger_format::{
    ByteOffset, Frame, Kind, Link, OutsideCover, SegmentOpen, Seq, Tail, TailStart, UnixMillis,
    classify_tail,
};

use crate::exit::{Exit, Failure};
use crate::folder::{LedgerFolder, frames_name};
use crate::frames::{FIRST_FRAME, Found, FrameReader};
use crate::terminal::Progress;
pub(crate) use state::Pin;
use state::{Meaning, State};

/// Records that may wait for a checkpoint. An honest writer cuts one every 4,096 frames, and a write that
/// began before may bring 16,384 more.
const HELD_MAX: usize = 32_768;

/// A write that is under way when it is first met is done by then.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// The checkpoint that was checked and covers a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Number of its frame, and of the frames it covers.
    pub(crate) checkpoint: Seq,
    /// When the writer appended it.
    pub(crate) appended_at: UnixMillis,
}

/// A record frame of the chain.
pub(crate) struct ChainRecord<'f> {
    pub(crate) segment: Seq,
    pub(crate) frame: Frame<'f>,
    pub(crate) predecessor: Link,
    /// None behind the last checkpoint.
    pub(crate) cover: Option<Cover>,
}

/// Who is shown the chain.
pub(crate) trait Visitor {
    /// A segment begins. Records of segments before `oldest` will not come any more.
    fn segment(&mut self, first_seq: Seq, open: &SegmentOpen, oldest: Seq);
    /// A control frame whose place in the chain and meaning are good.
    fn control(
        &mut self,
        segment: Seq,
        frame: &Frame<'_>,
        predecessor: &Link,
    ) -> anyhow::Result<()>;
    /// A record of the range that was asked for.
    fn record(&mut self, record: &ChainRecord<'_>) -> anyhow::Result<()>;
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) from: Seq,
    pub(crate) until: Seq,
    /// Show the records behind the last checkpoint too.
    pub(crate) uncovered: bool,
}

/// How reading ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The number that stands behind the last frame read.
    pub(crate) next: Seq,
    /// The newest checkpoint that was checked.
    pub(crate) newest: Option<Cover>,
    /// Whether a checkpoint of the pinned generation, or of one followed from it, covers all that was shown as covered.
    pub(crate) pinned: bool,
    /// Whether a line was pinned whose generation the part that was read does not have.
    pub(crate) pin_absent: bool,
    /// The key that signed the newest checkpoint, as a trust line.
    pub(crate) trust_line: Option<String>,
    /// Records of the range that no checkpoint covers.
    pub(crate) uncovered: u64,
    /// An unfinished write behind the last frame, or zeros in a live copy.
    pub(crate) unfinished: Option<Tail>,
    /// A generation that the pinned one does not cover began here, and reading ended.
    pub(crate) generation_at: Option<Seq>,
    /// Generations that say that damaged evidence was set aside before them.
    pub(crate) set_aside: Vec<Seq>,
}

/// A record that waits for its checkpoint.
struct Held {
    segment: Seq,
    seq: Seq,
    offset: ByteOffset,
    predecessor: Link,
    link: Link,
}

/// One reading of a chain.
pub(crate) struct Walk<'a> {
    folder: &'a mut LedgerFolder,
    range: Range,
    state: State,
    next: Option<Seq>,
    link: Option<Link>,
    held: Vec<Held>,
    replay: Option<FrameReader>,
    newest: Option<Cover>,
    unfinished: Option<Tail>,
    generation_at: Option<Seq>,
    progress: &'a Progress,
}

/// The next write of a segment.
enum NextWrite {
    /// Its frames: offset and predecessor of each; the offset behind it.
    Whole(Vec<(ByteOffset, Link)>, ByteOffset),
    /// The data ends.
    End,
    /// Something that is no whole write: where, and what.
    Irregular(Seq, ByteOffset, String),
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        folder: &'a mut LedgerFolder,
        range: Range,
        pin: Option<Pin>,
        progress: &'a Progress,
    ) -> Self {
        Self {
            folder,
            range,
            state: State::new(pin),
            next: None,
            link: None,
            held: Vec::new(),
            replay: None,
            newest: None,
            unfinished: None,
            generation_at: None,
            progress,
        }
    }

    /// Reads the chain and shows it.
    pub(crate) fn run(mut self, visitor: &mut impl Visitor) -> anyhow::Result<Outcome> {
        let mut current = self.start()?;
        while let Some(first_seq) = current {
            self.segment(first_seq, visitor)?;
            if self.is_done() {
                break;
            }
            current = self
                .folder
                .segments()
                .iter()
                .find(|seq| **seq > first_seq)
                .copied();
        }
        let uncovered = self.held.len() as u64;
        if self.range.uncovered {
            self.release(None, visitor)?;
        }
        Ok(Outcome {
            next: self.next.unwrap_or_default(),
            newest: self.newest,
            pinned: self.state.pin_reached(),
            pin_absent: self.state.pin_absent(),
            trust_line: self.state.trust_line(),
            uncovered,
            unfinished: self.unfinished,
            generation_at: self.generation_at,
            set_aside: self.state.set_aside(),
        })
    }

    /// The segment to begin with: the one that holds the first frame asked for, or an earlier one, from where the
    /// generations since the pinned one can be followed.
    fn start(&self) -> anyhow::Result<Option<Seq>> {
        let segments = self.folder.segments();
        for first_seq in segments.iter().rev().filter(|seq| **seq <= self.range.from) {
            let Some(pinned) = self.state.pinned_generation() else {
                return Ok(Some(*first_seq));
            };
            let mut reader = self.reader(*first_seq)?;
            let found = reader
                .at(FIRST_FRAME)
                .with_context(|| format!("reading segment {first_seq}"))?;
            let open = match &found {
                Found::Frame(frame) => frame
                    .control()
                    .and_then(|c| SegmentOpen::decode(c.body).ok()),
                _ => None,
            };
            // What is no segment_open is judged when it is read.
            if open.is_none_or(|open| open.generation <= pinned) {
                return Ok(Some(*first_seq));
            }
        }
        Ok(segments.first().copied())
    }

    /// Nothing more is needed: the range is covered, and by the pinned key where one was given.
    fn is_done(&self) -> bool {
        let covered = self
            .newest
            .is_some_and(|cover| cover.checkpoint > self.range.until);
        self.generation_at.is_some()
            || self.unfinished.is_some()
            || (covered && !self.state.pin_missing())
    }

    fn segment(&mut self, first_seq: Seq, visitor: &mut impl Visitor) -> anyhow::Result<()> {
        if let Some(next) = self.next
            && next != first_seq
        {
            let what =
                format!("expected frame {next} to begin this segment, found frame {first_seq}");
            return Err(self.fault(first_seq, first_seq, FIRST_FRAME, &what));
        }
        let mut reader = self.reader(first_seq)?;
        if !reader.has_magic().with_context(|| reading(&reader))? {
            let what = "expected a segment of format version 1, found another file";
            return Err(self.fault(first_seq, first_seq, ByteOffset(0), what));
        }
        self.state.begin_segment(first_seq);
        self.next = Some(first_seq);
        let (mut at, mut looked_again) = (FIRST_FRAME, false);
        loop {
            let is_last = self.folder.segments().last() == Some(&first_seq);
            match self.next_write(&mut reader, at, is_last)? {
                NextWrite::Whole(places, end) => {
                    for (offset, predecessor) in places {
                        self.frame(&mut reader, offset, predecessor, visitor)?;
                        if self.is_done() {
                            return Ok(());
                        }
                    }
                    self.progress.advance(end.0 - at.0);
                    (at, looked_again) = (end, false);
                }
                NextWrite::End => return Ok(()),
                NextWrite::Irregular(..) if is_last && !looked_again => {
                    // The writer may be at work: look again before anything is said.
                    std::thread::sleep(LOOK_AGAIN_AFTER);
                    self.folder.refresh()?;
                    reader = self.reader(first_seq)?;
                    looked_again = true;
                }
                NextWrite::Irregular(seq, offset, what) => {
                    return self.irregular(&reader, at, is_last, (seq, offset, what));
                }
            }
        }
    }

    fn reader(&self, first_seq: Seq) -> anyhow::Result<FrameReader> {
        Ok(FrameReader::new(self.folder.frames(first_seq)?))
    }

    /// Looks at the write that begins at `at`, heads, structure, numbers and links of its frames.
    fn next_write(
        &self,
        reader: &mut FrameReader,
        at: ByteOffset,
        is_last: bool,
    ) -> anyhow::Result<NextWrite> {
        let (mut places, mut offset, mut count) = (Vec::new(), at, 1);
        let mut want = self.next.unwrap_or_default();
        let mut link = match self.link {
            Some(link) => link,
            None => reader
                .predecessor(at)
                .with_context(|| reading(reader))?
                .unwrap_or(Link::ZERO),
        };
        while places.len() < count as usize {
            let path = reader.file().path().to_owned();
            let found = reader
                .at(offset)
                .with_context(|| format!("reading {}", path.display()))?;
            let frame = match found {
                Found::Frame(frame) => frame,
                Found::End if places.is_empty() => return Ok(NextWrite::End),
                Found::Zeros(_) if places.is_empty() && is_last => return Ok(NextWrite::End),
                Found::End => return Ok(irregular(want, offset, "the file ends inside a write")),
                Found::Zeros(count) => {
                    return Ok(irregular(
                        want,
                        offset,
                        &format!("{count} zero bytes stand where a frame should"),
                    ));
                }
                Found::Bad(what) => return Ok(irregular(want, offset, &what)),
            };
            let numbers = frame.prefix.write;
            if places.is_empty() {
                count = numbers.count;
            }
            if frame.prefix.seq != want {
                let what = format!("expected frame {want}, found frame {}", frame.prefix.seq);
                return Ok(irregular(want, offset, &what));
            }
            let alone = numbers.count == 1 || !frame.prefix.kind.stands_alone();
            if numbers.index as usize != places.len() || numbers.count != count || !alone {
                return Ok(irregular(
                    want,
                    offset,
                    "the frame does not continue its write",
                ));
            }
            let computed = frame.compute_link(&link);
            if computed != frame.link {
                let what = format!(
                    "the frame or the one before it was altered: link expected {}, found {}",
                    computed.to_hex(),
                    frame.link.to_hex()
                );
                return Ok(irregular(want, offset, &what));
            }
            places.push((offset, link));
            link = frame.link;
            offset = ByteOffset(offset.0.saturating_add(frame.prefix.frame_len.into()));
            want = want.next();
        }
        Ok(NextWrite::Whole(places, offset))
    }

    /// A frame that continues the chain: what it means, and what it covers.
    fn frame(
        &mut self,
        reader: &mut FrameReader,
        offset: ByteOffset,
        predecessor: Link,
        visitor: &mut impl Visitor,
    ) -> anyhow::Result<()> {
        let segment = reader.file().first_seq();
        let path = reader.file().path().to_owned();
        let found = reader
            .at(offset)
            .with_context(|| format!("reading {}", path.display()))?;
        let Found::Frame(frame) = found else {
            let seq = self.next.unwrap_or_default();
            return Err(self.fault(
                segment,
                seq,
                offset,
                "the file changed while it was being read",
            ));
        };
        let seq = frame.prefix.seq;
        let meaning = match self.state.accept(segment, &frame, &predecessor) {
            Ok(meaning) => meaning,
            Err(what) => return Err(self.fault(segment, seq, offset, &what)),
        };
        self.next = Some(seq.next());
        self.link = Some(frame.link);
        if let Meaning::Opened(open) = &meaning {
            let oldest = self.held.first().map_or(segment, |held| held.segment);
            visitor.segment(segment, open, oldest);
        }
        if frame.prefix.kind != Kind::Record {
            visitor.control(segment, &frame, &predecessor)?;
        }
        match meaning {
            Meaning::Control | Meaning::Opened(_) => Ok(()),
            Meaning::Record => self.hold(Held {
                segment,
                seq,
                offset,
                predecessor,
                link: frame.link,
            }),
            Meaning::Unfollowed => {
                self.generation_at = Some(seq);
                Ok(())
            }
            Meaning::Checkpoint => {
                let cover = Cover {
                    checkpoint: seq,
                    appended_at: frame.appended_at,
                };
                self.newest = Some(cover);
                self.release(Some(cover), visitor)
            }
        }
    }

    /// Lets a record of the range wait for its checkpoint.
    fn hold(&mut self, held: Held) -> anyhow::Result<()> {
        if held.seq < self.range.from || held.seq > self.range.until {
            return Ok(());
        }
        if self.held.len() == HELD_MAX {
            let what = format!(
                "{HELD_MAX} records without a checkpoint over them, more than any writer leaves"
            );
            return Err(self.fault(held.segment, held.seq, held.offset, &what));
        }
        self.held.push(held);
        Ok(())
    }

    /// Shows the records that waited, read and linked again.
    fn release(&mut self, cover: Option<Cover>, visitor: &mut impl Visitor) -> anyhow::Result<()> {
        for held in std::mem::take(&mut self.held) {
            if !self.replay(&held, cover, visitor)? {
                // The reader saw the file before this frame was written: once more with a new one.
                self.replay = Some(self.reader(held.segment)?);
                if !self.replay(&held, cover, visitor)? {
                    let what = "the file changed while it was being read";
                    return Err(self.fault(held.segment, held.seq, held.offset, what));
                }
            }
        }
        Ok(())
    }

    /// Shows a record, if the reader at hand finds there what was linked.
    fn replay(
        &mut self,
        held: &Held,
        cover: Option<Cover>,
        visitor: &mut impl Visitor,
    ) -> anyhow::Result<bool> {
        let Some(reader) = &mut self.replay else {
            return Ok(false);
        };
        if reader.file().first_seq() != held.segment {
            return Ok(false);
        }
        let path = reader.file().path().to_owned();
        let found = reader
            .at(held.offset)
            .with_context(|| format!("reading {}", path.display()))?;
        let Found::Frame(frame) = found else {
            return Ok(false);
        };
        if frame.link != held.link || frame.compute_link(&held.predecessor) != held.link {
            return Ok(false);
        }
        visitor.record(&ChainRecord {
            segment: held.segment,
            frame,
            predecessor: held.predecessor,
            cover,
        })?;
        Ok(true)
    }

    /// A place that is no whole write: torn, if the rule of section 14 says so; else an error.
    fn irregular(
        &mut self,
        reader: &FrameReader,
        end: ByteOffset,
        is_last: bool,
        (seq, offset, what): (Seq, ByteOffset, String),
    ) -> anyhow::Result<()> {
        let first_seq = reader.file().first_seq();
        if is_last && let (Some(next), Some(link)) = (self.next, self.link) {
            let start = TailStart {
                end,
                next,
                link,
                closed: self.state.is_closed(),
            };
            let file = reader.file();
            let tail = classify_tail(file, file.len(), start, OutsideCover::None)
                .with_context(|| reading(reader))?;
            match tail {
                Tail::Clean => return Ok(()),
                Tail::Torn | Tail::CopiedWhileWritten => {
                    self.unfinished = Some(tail);
                    return Ok(());
                }
                Tail::Damaged => {}
            }
        }
        Err(self.fault(first_seq, seq, offset, &what))
    }

    fn fault(&self, segment: Seq, seq: Seq, offset: ByteOffset, what: &str) -> anyhow::Error {
        let place = format!("frame {seq}, {} byte {offset}", frames_name(segment));
        Failure::new(Exit::Refused, format!("{place}: {what}"))
            .hint(format!(
                "keep this copy as it is; `ledger verify {}` gives the whole verdict",
                self.folder.path().display()
            ))
            .into()
    }
}

fn reading(reader: &FrameReader) -> String {
    format!("reading {}", reader.file().path().display())
}

fn irregular(seq: Seq, offset: ByteOffset, what: &str) -> NextWrite {
    NextWrite::Irregular(seq, offset, what.to_owned())
}
