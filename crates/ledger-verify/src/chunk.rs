//! The fast path's work on one chunk of frames: heads, structure, numbers, links, leaf hashes.
//!
//! Only what is in order passes; everything else is [`Irregular`] and goes to `walk`. The bytes
//! before the first frame of a chunk are the link it continues from, so chunks need nothing from
//! each other.

use crate::judge::{Irregular, Signed};
use crate::state::{Clock, RECEIPT_ORIGINS_MAX, Rules, keep};
use ledger_format::{
    Checkpoint, CompactRange, Frame, HeadPrefix, Kind, Link, SegmentOpen, Seq, WriteNumbers,
    decode_checkpoint_body, leaf_hash, link_in_place,
};

/// Bytes that stand before the first frame in a chunk's buffer: the link it continues from.
pub(crate) const LEAD: usize = 32;

/// Keys that the segment claims to be signed with, taken from its segment_open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    pub(crate) log_key: [u8; 32],
    pub(crate) epoch_key: [u8; 32],
}

/// Whole frames of one segment, in a row.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// [`LEAD`] bytes, then the frames.
    pub(crate) buf: Vec<u8>,
    /// Offset in the file of the first frame.
    pub(crate) offset: u64,
    /// The first frame is the first of the file.
    pub(crate) first: bool,
    /// For checking signatures ahead of the judge.
    pub(crate) claimed: Option<Claimed>,
}

/// A piece of a chunk, in order.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Record frames: how many, and their part of the tree.
    Run(u64, CompactRange),
    /// A control frame, copied out.
    Control(Box<ControlPiece>),
}

/// A control frame on its way to the judge.
#[derive(Debug)]
pub(crate) struct ControlPiece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) predecessor: Link,
    pub(crate) signed: Option<Signed>,
}

/// What a chunk without anything irregular gave.
#[derive(Debug)]
pub(crate) struct ChunkReport {
    pub(crate) first: Option<(Seq, WriteNumbers)>,
    pub(crate) last: Option<(Seq, WriteNumbers, Link)>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) clock: Clock,
    pub(crate) promises_kept: [u64; RECEIPT_ORIGINS_MAX],
    pub(crate) promises_broken: Vec<u64>,
}

struct Work<'c> {
    rules: &'c Rules,
    chunk: &'c Chunk,
    report: ChunkReport,
    run: CompactRange,
    run_len: u64,
    /// Next size at which the run must be cut, so that the judge sees the root there.
    next_size: u64,
    next_promise: u64,
}

/// Checks a chunk.
///
/// # Errors
/// [`Irregular`] for anything that is not in order.
pub(crate) fn check(chunk: &Chunk, rules: &Rules) -> Result<ChunkReport, Irregular> {
    let report = ChunkReport {
        first: None,
        last: None,
        pieces: Vec::new(),
        clock: Clock::default(),
        promises_kept: [0; RECEIPT_ORIGINS_MAX],
        promises_broken: Vec::new(),
    };
    let mut work = Work {
        rules,
        chunk,
        report,
        run: CompactRange::starting_at(0),
        run_len: 0,
        next_size: 0,
        next_promise: 0,
    };
    let mut at = LEAD;
    while at < chunk.buf.len() {
        at = work.frame(at)?;
    }
    work.flush(0);
    Ok(work.report)
}

impl Work<'_> {
    /// Checks the frame at `at`; where the next one begins.
    fn frame(&mut self, at: usize) -> Result<usize, Irregular> {
        let rest = self.chunk.buf.get(at..).ok_or(Irregular)?;
        let (prefix, head_len) = HeadPrefix::parse(rest).map_err(|_| Irregular)?;
        let len = prefix.frame_len as usize;
        let end = at.checked_add(len).ok_or(Irregular)?;
        let bytes = rest.get(..len).ok_or(Irregular)?;
        self.continues(&prefix)?;
        let is_record = prefix.kind == Kind::Record;
        if self.rules.quick && is_record && end < self.chunk.buf.len() {
            let link = bytes.last_chunk::<32>().ok_or(Irregular)?;
            self.report.last = Some((prefix.seq, prefix.write, Link(*link)));
            self.run_len = self.run_len.saturating_add(1);
            return Ok(end);
        }
        let frame = Frame::parse_rest(bytes, prefix, head_len).map_err(|_| Irregular)?;
        let start = at.checked_sub(LEAD).ok_or(Irregular)?;
        if self.chunk.first && start == 0 {
            return self.first_frame(&frame).map(|()| end);
        }
        let linked = self.chunk.buf.get(start..end).ok_or(Irregular)?;
        if link_in_place(linked) != frame.link {
            return Err(Irregular);
        }
        if is_record {
            self.record(&frame);
        } else {
            let before = linked.first_chunk::<32>().ok_or(Irregular)?;
            self.control(&frame, start, Link(*before));
        }
        self.after(&frame);
        Ok(end)
    }

    /// Steps 3.4 and 3.5 within the chunk; the judge compares with the chunk before.
    fn continues(&mut self, prefix: &HeadPrefix) -> Result<(), Irregular> {
        let own = prefix.write;
        if prefix.kind.stands_alone() && own != WriteNumbers::ALONE {
            return Err(Irregular);
        }
        let Some((seq, write, _)) = self.report.last else {
            self.report.first = Some((prefix.seq, own));
            self.run = CompactRange::starting_at(prefix.seq.0);
            self.seek(prefix.seq.0);
            return Ok(());
        };
        let continues = if write.is_last() {
            own.index == 0
        } else {
            own.count == write.count && own.index == write.index.saturating_add(1)
        };
        if continues && prefix.seq == seq.next() {
            Ok(())
        } else {
            Err(Irregular)
        }
    }

    /// Looks up what is wanted from `seq` on.
    fn seek(&mut self, seq: u64) {
        let sizes = &self.rules.sizes;
        let at = sizes.partition_point(|s| *s <= seq);
        self.next_size = sizes.get(at).copied().unwrap_or(u64::MAX);
        let promises = &self.rules.promises;
        let at = promises.partition_point(|p| p.seq < seq);
        self.next_promise = promises.get(at).map_or(u64::MAX, |p| p.seq);
    }

    fn first_frame(&mut self, frame: &Frame<'_>) -> Result<(), Irregular> {
        let predecessor = match frame.prefix.kind {
            Kind::Genesis => Link::ZERO,
            Kind::SegmentOpen => {
                let body = frame.control().ok_or(Irregular)?.body;
                SegmentOpen::decode(body)
                    .map_err(|_| Irregular)?
                    .predecessor
            }
            _ => return Err(Irregular),
        };
        if frame.compute_link(&predecessor) != frame.link {
            return Err(Irregular);
        }
        self.control(frame, 0, predecessor);
        self.after(frame);
        Ok(())
    }

    #[inline]
    fn record(&mut self, frame: &Frame<'_>) {
        if self.rules.quick {
            self.run_len = self.run_len.saturating_add(1);
            return;
        }
        if frame.prefix.seq.0 == self.next_size {
            self.flush(frame.prefix.seq.0);
            self.seek(frame.prefix.seq.0);
        }
        self.run.push(leaf_hash(&frame.link));
        self.run_len = self.run_len.saturating_add(1);
    }

    fn flush(&mut self, next: u64) {
        let run = std::mem::replace(&mut self.run, CompactRange::starting_at(next));
        if self.run_len > 0 {
            self.report.pieces.push(Piece::Run(self.run_len, run));
        }
        self.run_len = 0;
    }

    fn control(&mut self, frame: &Frame<'_>, start: usize, predecessor: Link) {
        let seq = frame.prefix.seq;
        self.flush(seq.next().0);
        self.seek(seq.0);
        let signed = (frame.prefix.kind == Kind::Checkpoint)
            .then(|| self.signed(frame))
            .flatten();
        let piece = ControlPiece {
            bytes: frame.bytes().to_vec(),
            offset: self.chunk.offset.saturating_add(start as u64),
            predecessor,
            signed,
        };
        self.report.pieces.push(Piece::Control(Box::new(piece)));
    }

    /// Checks both signatures under the keys that the segment claims; the judge decides whether
    /// those are the right keys.
    fn signed(&self, frame: &Frame<'_>) -> Option<Signed> {
        let claimed = self.chunk.claimed?;
        let note = decode_checkpoint_body(frame.control()?.body).ok()?;
        let checkpoint = Checkpoint::parse(note).ok()?;
        let log = checkpoint.origin.log_verifier(claimed.log_key);
        let epoch = checkpoint.origin.epoch_verifier(claimed.epoch_key);
        Some(Signed {
            log_key: claimed.log_key,
            epoch_key: claimed.epoch_key,
            good: checkpoint.verify_in_chain(&log, &epoch).is_ok(),
        })
    }

    #[inline]
    fn after(&mut self, frame: &Frame<'_>) {
        let prefix = &frame.prefix;
        self.report.last = Some((prefix.seq, prefix.write, frame.link));
        self.report.clock.observe(prefix.seq, frame.appended_at);
        if prefix.seq.0 == self.next_promise {
            self.promises(prefix.seq, &frame.link);
            self.seek_promise(prefix.seq.next().0);
        }
    }

    fn promises(&mut self, seq: Seq, link: &Link) {
        for promise in self.rules.promises_in(seq.0, seq.next().0) {
            if promise.link == *link {
                keep(&mut self.report.promises_kept, promise);
            } else {
                self.report.promises_broken.push(seq.0);
            }
        }
    }

    fn seek_promise(&mut self, seq: u64) {
        let promises = &self.rules.promises;
        let at = promises.partition_point(|p| p.seq < seq);
        self.next_promise = promises.get(at).map_or(u64::MAX, |p| p.seq);
    }
}
