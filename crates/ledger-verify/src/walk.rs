//! The slow path: one segment frame by frame, going on behind damage (`ledger-format.md`,
//! section 15, steps 2 to 5).
//!
//! It judges any bytes. The fast path hands a segment over here as soon as it meets anything
//! that is not in order.

use crate::bodies::short;
use crate::code::Code;
use crate::files::Window;
use crate::judge::{Ended, Item, Judge};
use crate::state::Clock;
use ledger_format::{
    ByteOffset, FRAMES_MAGIC, FRAMES_MAGIC_STEM, Frame, HEAD_PREFIX_LEN_MAX, HeadPrefix, Kind,
    Link, ReadAt, Reader, SegmentOpen, Seq, TailStart, WriteNumbers,
};
use std::io;

/// Where the frames of a file begin.
pub(crate) const FIRST_FRAME: u64 = FRAMES_MAGIC.len() as u64;

/// What the walk of a segment gave beside the judge's outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    pub(crate) ended: Ended,
    /// The last complete write before the first finding of steps 3.2 to 3.6.
    pub(crate) complete: TailStart,
    /// Steps 3.2 to 3.6 found something.
    pub(crate) flawed: bool,
    /// The seq that stands next and the offset, when a write is not complete at the end.
    pub(crate) unfinished: Option<(Seq, u64)>,
}

/// A frame that was read and checked by itself.
struct Read {
    kind: Kind,
    len: u64,
    link: Link,
    computed: Option<Link>,
}

struct Walk<'w, 'j, 'r, S: ?Sized> {
    window: Window<'w, S>,
    judge: &'j mut Judge<'r>,
    last: bool,
    at: u64,
    want: u64,
    jump: bool,
    /// Index and count that stand next; None behind a jump.
    write: Option<WriteNumbers>,
    /// The frame before: its stored link if it was checked, its computed link if altered.
    link: Option<Link>,
    computed: Option<Link>,
    misnamed: bool,
    flawed: bool,
    closed: bool,
    complete: TailStart,
    clock: Clock,
}

/// Walks the first `len` bytes of a segment.
///
/// # Errors
/// Only those of `source`.
pub(crate) fn walk<S: ReadAt + ?Sized>(
    source: &S,
    len: u64,
    last: bool,
    judge: &mut Judge<'_>,
) -> io::Result<Walked> {
    let first = judge.segment;
    let (link, computed) = (judge.start.link, judge.start.computed);
    let complete = TailStart {
        end: ByteOffset(FIRST_FRAME),
        next: first,
        link: link.unwrap_or(Link::ZERO),
        closed: false,
    };
    let mut walk = Walk {
        window: Window::new(source, len),
        judge,
        last,
        at: FIRST_FRAME,
        want: first.0,
        jump: false,
        write: Some(WriteNumbers { index: 0, count: 0 }),
        link,
        computed,
        misnamed: false,
        flawed: false,
        closed: false,
        complete,
        clock: Clock::default(),
    };
    let stopped = !walk.magic()? || walk.frames()? || walk.misnamed;
    let ended = Ended {
        len,
        next: Seq(walk.want),
        stopped,
        jump: walk.jump,
        link: walk.link.filter(|_| !walk.jump),
        computed: walk.computed.filter(|_| !walk.jump),
    };
    // Behind a jump or a stop the place in the write is not known.
    let unfinished = match walk.write {
        Some(w) if w.index != 0 && !stopped && !walk.jump => Some((Seq(walk.want), walk.at)),
        _ => None,
    };
    let walked = Walked {
        ended,
        complete: walk.complete,
        flawed: walk.flawed,
        unfinished,
    };
    let clock = walk.clock;
    walk.judge.observe(&clock, first);
    Ok(walked)
}

impl<S: ReadAt + ?Sized> Walk<'_, '_, '_, S> {
    /// Step 2: false when the file does not begin as a segment of this format.
    fn magic(&mut self) -> io::Result<bool> {
        let start = self
            .window
            .slice(0, FIRST_FRAME.saturating_add(HEAD_PREFIX_LEN_MAX as u64))?;
        if start.starts_with(FRAMES_MAGIC) {
            return Ok(true);
        }
        let other = Reader::new(start)
            .text()
            .is_ok_and(|t| t.as_bytes().starts_with(FRAMES_MAGIC_STEM));
        let code = if other {
            Code::UnknownFormat
        } else {
            Code::BadMagic
        };
        let finding = self.judge.at(code, self.judge.segment, 0);
        self.judge.find(finding);
        Ok(false)
    }

    fn tail_finding(&mut self, code: Code, seq: u64, at: u64, detail: &str) {
        let finding = self.judge.at(code, Seq(seq), at).saying(detail);
        self.judge.find(finding);
        self.flawed = true;
    }

    /// Step 3; true when it stopped at something that cannot be passed.
    fn frames(&mut self) -> io::Result<bool> {
        while self.at < self.window.len() {
            if self.window.slice(self.at, 1)? == [0] && self.window.zero_until_end(self.at)? {
                if !self.last {
                    let finding = self.judge.at(Code::TrailingBytes, Seq(self.want), self.at);
                    let zeros = self.window.len().saturating_sub(self.at);
                    self.judge
                        .find(finding.saying(format!("{zeros} zero bytes")));
                }
                return Ok(false);
            }
            let Some((prefix, head_len)) = self.head(self.at)? else {
                let detail = "no frame begins here: the head does not fit its check";
                self.tail_finding(Code::FrameUnreadable, self.want, self.at, detail);
                match self.candidate()? {
                    None => return Ok(true),
                    Some((at, seq)) => {
                        self.at = at;
                        self.want = seq.0;
                        self.jump = true;
                    }
                }
                continue;
            };
            let end = self.at.saturating_add(prefix.frame_len.into());
            if end > self.window.len() {
                let detail = "the frame is longer than the rest of the file";
                self.tail_finding(Code::FrameCut, self.want, self.at, detail);
                return Ok(true);
            }
            self.step(prefix, head_len)?;
            if self.judge.out.halt {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn head(&mut self, at: u64) -> io::Result<Option<(HeadPrefix, usize)>> {
        let bytes = self.window.slice(at, HEAD_PREFIX_LEN_MAX as u64)?;
        Ok(HeadPrefix::parse(bytes).ok())
    }

    /// A frame with a good head and a bad structure.
    fn pass_over(&mut self, len: u64, detail: &str) {
        self.tail_finding(Code::FrameMalformed, self.want, self.at, detail);
        self.at = self.at.saturating_add(len);
        self.want = self.want.saturating_add(1);
        self.jump = true;
    }

    /// The next intact frame behind `at` with a seq that may stand here (step 3.2).
    fn candidate(&mut self) -> io::Result<Option<(u64, Seq)>> {
        let mut at = self.at.saturating_add(1);
        loop {
            let part = self.window.slice(at, 1 << 20)?;
            if part.is_empty() {
                return Ok(None);
            }
            let Some(step) = memchr::memchr2(0x88, 0x8b, part) else {
                at = at.saturating_add(part.len() as u64);
                continue;
            };
            at = at.saturating_add(step as u64);
            if let Some((prefix, head_len)) = self.head(at)? {
                let bytes = self.window.slice(at, prefix.frame_len.into())?;
                let whole = Frame::parse_rest(bytes, prefix, head_len).is_ok()
                    && bytes.len() as u64 == u64::from(prefix.frame_len);
                if whole && prefix.seq.0 >= self.want {
                    return Ok(Some((at, prefix.seq)));
                }
            }
            at = at.saturating_add(1);
        }
    }

    /// Steps 3.3 to 3.10 for a frame that is wholly in the file.
    fn step(&mut self, prefix: HeadPrefix, head_len: usize) -> io::Result<()> {
        let len = u64::from(prefix.frame_len);
        let bytes = self.window.slice(self.at, len)?;
        let bytes = bytes.to_vec();
        let frame = match Frame::parse_rest(&bytes, prefix, head_len) {
            Ok(frame) => frame,
            Err(error) => {
                self.pass_over(len, &error.to_string());
                return Ok(());
            }
        };
        if !self.sequence(&frame) {
            self.at = self.at.saturating_add(len);
            return Ok(());
        }
        self.numbers(&frame);
        let read = self.link(&frame)?;
        self.complete(&frame, &read);
        self.at = self.at.saturating_add(read.len);
        self.want = self.want.saturating_add(1);
        Ok(())
    }

    /// Step 3.4; false when the frame is passed over.
    fn sequence(&mut self, frame: &Frame<'_>) -> bool {
        let (seq, at) = (frame.prefix.seq.0, self.at);
        if at == FIRST_FRAME && seq != self.judge.segment.0 {
            let detail = format!("the file is named {}, its first frame is {seq}", self.want);
            self.tail_finding(Code::SegmentName, self.want, at, &detail);
            self.misnamed = true;
            // What was carried here is another segment's.
            self.link = None;
            self.computed = None;
            self.judge.forget();
            self.jump = true;
            self.want = seq;
        } else if seq > self.want {
            let detail = format!("frame {seq} stands where {} must", self.want);
            self.tail_finding(Code::FramesMissing, self.want, at, &detail);
            self.jump = true;
            self.want = seq;
        } else if seq < self.want {
            let detail = format!("frame {seq} stands where {} must", self.want);
            self.tail_finding(Code::FrameRepeated, seq, at, &detail);
            self.jump = true;
            return false;
        }
        true
    }

    /// Step 3.5.
    fn numbers(&mut self, frame: &Frame<'_>) {
        let own = frame.prefix.write;
        if let Some(wanted) = self.write.filter(|_| !self.jump) {
            let continues =
                own.index == wanted.index && (wanted.index == 0 || own.count == wanted.count);
            let alone = !frame.prefix.kind.stands_alone() || own == WriteNumbers::ALONE;
            if !continues || !alone {
                let expected = format!("index {}", wanted.index);
                let found = format!("index {} of {}", own.index, own.count);
                let finding = self
                    .judge
                    .at(Code::WriteBroken, frame.prefix.seq, self.at)
                    .between(expected, found);
                self.judge.find(finding);
                self.flawed = true;
            }
        }
        let index = if own.is_last() {
            0
        } else {
            own.index.saturating_add(1)
        };
        self.write = Some(WriteNumbers {
            index,
            count: own.count,
        });
    }

    /// Steps 3.6 to 3.9.
    fn link(&mut self, frame: &Frame<'_>) -> io::Result<Read> {
        let first = self.at == FIRST_FRAME;
        let predecessor = if first {
            self.first_predecessor(frame)
        } else {
            let before = self.window.slice(self.at.saturating_sub(32), 32)?;
            before.try_into().ok().map(Link)
        };
        let good = |p: &Link| frame.compute_link(p) == frame.link;
        let mut effective = predecessor;
        let mut computed = None;
        let mut altered = false;
        if let Some(stored) = predecessor
            && !good(&stored)
        {
            altered = true;
            computed = Some(frame.compute_link(&stored));
            if self.jump {
                let finding = self.judge.at(Code::FrameAltered, frame.prefix.seq, self.at);
                self.judge.out.follows.push(finding);
                computed = None;
            } else if let Some(before) = self.computed.filter(good) {
                effective = Some(before);
                altered = false;
                computed = None;
            } else {
                let end = self.at.saturating_add(frame.prefix.frame_len.into());
                let finding = self
                    .judge
                    .at(Code::FrameAltered, frame.prefix.seq, self.at)
                    .of_frame(end, frame.appended_at)
                    .between(short(&frame.compute_link(&stored).0), short(&frame.link.0));
                self.judge.find(finding);
                self.flawed = true;
            }
        }
        let item = Item {
            frame: *frame,
            offset: self.at,
            first,
            jump: self.jump,
            predecessor: effective,
            signed: None,
            sound: !altered,
        };
        self.clock.observe(frame.prefix.seq, frame.appended_at);
        self.judge.compare_promise(frame.prefix.seq, &frame.link);
        self.judge.frame(&item);
        let unchecked = self.jump && (altered || predecessor.is_none());
        self.link = (!unchecked).then_some(frame.link);
        self.computed = computed;
        self.jump = false;
        Ok(Read {
            kind: frame.prefix.kind,
            len: frame.prefix.frame_len.into(),
            link: frame.link,
            computed,
        })
    }

    fn first_predecessor(&self, frame: &Frame<'_>) -> Option<Link> {
        match frame.prefix.kind {
            Kind::Genesis => Some(self.link.unwrap_or(Link::ZERO)),
            Kind::SegmentOpen => self.link.or_else(|| {
                let body = frame.control()?.body;
                SegmentOpen::decode(body).ok().map(|o| o.predecessor)
            }),
            _ => None,
        }
    }

    /// Moves E behind a write that is whole, as long as nothing was found.
    fn complete(&mut self, frame: &Frame<'_>, read: &Read) {
        self.closed |= read.kind == Kind::SegmentClose;
        let whole = self.write.is_some_and(|w| w.index == 0);
        if whole && !self.flawed && read.computed.is_none() {
            self.complete = TailStart {
                end: ByteOffset(self.at.saturating_add(read.len)),
                next: frame.prefix.seq.next(),
                link: read.link,
                closed: self.closed,
            };
        }
    }
}
