//! What is carried from frame to frame and from segment to segment (`ledger-format.md`, section 15).
//!
//! Only data: the rules that fill and compare it are in `judge`, `bodies` and `chain`.

use crate::finding::{Bounded, Finding, Note};
use ledger_format::{
    ByteOffset, Frontier, Generation, Hash, LedgerId, Link, OutsideCover, Seq, UnixMillis,
};
use std::collections::BTreeSet;

/// Receipts of more ledgers and generations than this in one file are refused.
pub(crate) const RECEIPT_ORIGINS_MAX: usize = 16;

/// A promise from outside: this frame has this link, under this origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Promise {
    pub(crate) seq: u64,
    pub(crate) link: Link,
    /// Which of the origins that the receipts name.
    pub(crate) origin: usize,
}

/// What the walk needs to know of anchors and options before it starts.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Sizes at which the root is wanted, ascending, without repetition.
    pub(crate) sizes: Vec<u64>,
    /// Receipts, ascending by seq.
    pub(crate) promises: Vec<Promise>,
    /// Greatest size or seq + 1 that anything from outside vouches for.
    pub(crate) covered_to: u64,
    /// Only heads, control frames and borders are looked at.
    pub(crate) quick: bool,
    /// Payload files are checked afterwards: erasures are kept.
    pub(crate) payloads: bool,
}

/// More erased files than this are not told apart: bounds memory.
const ERASED_MAX: usize = 1 << 20;

/// Which payload files erasure frames name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Erased {
    files: BTreeSet<(Seq, String)>,
    /// Some were not kept.
    pub(crate) overflow: bool,
}

impl Erased {
    pub(crate) fn add(&mut self, segment: Seq, class: &str) {
        if self.files.len() < ERASED_MAX {
            self.files.insert((segment, class.to_owned()));
        } else {
            self.overflow = true;
        }
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.overflow |= other.overflow;
        for (segment, class) in &other.files {
            self.add(*segment, class);
        }
    }

    pub(crate) fn names(&self, segment: Seq, class: &str) -> bool {
        self.files.contains(&(segment, class.to_owned()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Seq, String)> {
        self.files.iter()
    }
}

/// Counts one promise in its place.
pub(crate) fn keep(kept: &mut [u64; RECEIPT_ORIGINS_MAX], promise: &Promise) {
    if let Some(count) = kept.get_mut(promise.origin) {
        *count = count.saturating_add(1);
    }
}

/// Adds counts up.
pub(crate) fn keep_all(kept: &mut [u64; RECEIPT_ORIGINS_MAX], more: &[u64; RECEIPT_ORIGINS_MAX]) {
    for (count, more) in kept.iter_mut().zip(more) {
        *count = count.saturating_add(*more);
    }
}

impl Rules {
    pub(crate) fn cover(&self, next: Seq) -> OutsideCover {
        if self.covered_to > next.0 {
            OutsideCover::Covered
        } else {
            OutsideCover::None
        }
    }

    /// Promises from `from` up to, not including, `to`.
    pub(crate) fn promises_in(&self, from: u64, to: u64) -> &[Promise] {
        let start = self.promises.partition_point(|p| p.seq < from);
        let end = self.promises.partition_point(|p| p.seq < to);
        self.promises.get(start..end).unwrap_or_default()
    }

    pub(crate) fn wants_root(&self, size: u64) -> bool {
        self.sizes.binary_search(&size).is_ok()
    }
}

/// Identity and keys in force; each may be unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    pub(crate) ledger_id: Option<LedgerId>,
    pub(crate) generation: Option<Generation>,
    pub(crate) log_key: Option<[u8; 32]>,
    pub(crate) epoch_key: Option<[u8; 32]>,
    /// The newest checkpoint's note; `Some(None)`: it is known that there is none yet.
    pub(crate) note: Option<Option<Vec<u8>>>,
    /// The frontier at the size of `note`.
    pub(crate) note_frontier: Option<Vec<Hash>>,
}

/// The segment before the one that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Previous {
    pub(crate) first: Seq,
    pub(crate) len: u64,
    /// Its last two readable frames are segment_close and a checkpoint.
    pub(crate) closed: bool,
}

/// State at a segment border.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carry {
    pub(crate) next: Option<Seq>,
    pub(crate) link: Option<Link>,
    /// The link computed for the last frame, when it was found altered.
    pub(crate) computed: Option<Link>,
    pub(crate) tree: Option<Frontier>,
    pub(crate) keys: Keys,
    pub(crate) previous: Option<Previous>,
}

impl Carry {
    /// Before the first segment of a ledger.
    pub(crate) fn start() -> Self {
        Self {
            next: Some(Seq(0)),
            link: Some(Link::ZERO),
            tree: Some(Frontier::empty()),
            ..Self::default()
        }
    }

    /// Nothing known but which segment came before.
    pub(crate) fn unknown(previous: Option<Previous>) -> Self {
        Self {
            previous,
            ..Self::default()
        }
    }
}

/// Steps back of the writer's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) first: Option<UnixMillis>,
    pub(crate) last: Option<UnixMillis>,
    pub(crate) steps: u64,
    /// Frame behind the greatest step back, and that step in milliseconds.
    pub(crate) worst: Option<(Seq, u64)>,
}

impl Clock {
    #[inline]
    pub(crate) fn observe(&mut self, seq: Seq, time: UnixMillis) {
        if let Some(last) = self.last
            && time < last
        {
            self.step(seq, last.0.saturating_sub(time.0));
        }
        self.first.get_or_insert(time);
        self.last = Some(time);
    }

    fn step(&mut self, seq: Seq, by: u64) {
        self.steps = self.steps.saturating_add(1);
        if self.worst.is_none_or(|(_, worst)| by > worst) {
            self.worst = Some((seq, by));
        }
    }

    /// Appends what was observed behind; `first_seq` is the first frame of `later`.
    pub(crate) fn append(&mut self, later: &Self, first_seq: Seq) {
        if let (Some(last), Some(first)) = (self.last, later.first)
            && first < last
        {
            self.step(first_seq, last.0.saturating_sub(first.0));
        }
        self.steps = self.steps.saturating_add(later.steps);
        if let Some((seq, by)) = later.worst
            && self.worst.is_none_or(|(_, worst)| by > worst)
        {
            self.worst = Some((seq, by));
        }
        self.first = self.first.or(later.first);
        self.last = later.last.or(self.last);
    }
}

/// A checkpoint of the chain in which nothing was found wrong.
#[derive(Clone, Debug)]
pub(crate) struct GoodCheckpoint {
    pub(crate) size: u64,
    pub(crate) time: UnixMillis,
    pub(crate) note: Vec<u8>,
    pub(crate) generation: Generation,
    pub(crate) segment: Seq,
    pub(crate) offset: ByteOffset,
}

/// A generation frame in which nothing was found wrong.
#[derive(Clone, Debug)]
pub(crate) struct GenerationSeen {
    pub(crate) number: Generation,
    pub(crate) segment: Seq,
    pub(crate) seq: Seq,
    pub(crate) offset: ByteOffset,
    pub(crate) planned: bool,
    pub(crate) reason: String,
    pub(crate) time: UnixMillis,
    /// A good checkpoint of the same segment covers it.
    pub(crate) covered: bool,
}

/// Frames counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    pub(crate) control: u64,
    pub(crate) checkpoints: u64,
}

/// Who a segment says it belongs to, from a frame in which nothing was found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) ledger_id: LedgerId,
    pub(crate) generation: Generation,
    pub(crate) log_key: [u8; 32],
}

/// Everything that judging one segment brought.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) findings: Bounded<Finding>,
    pub(crate) follows: Bounded<Finding>,
    pub(crate) notes: Bounded<Note>,
    pub(crate) counts: Counts,
    pub(crate) clock: Clock,
    pub(crate) newest: Option<GoodCheckpoint>,
    pub(crate) generations: Vec<GenerationSeen>,
    pub(crate) identities: Vec<Identity>,
    pub(crate) name: Option<String>,
    pub(crate) roots: Vec<(u64, Hash)>,
    /// Receipts that agree, by the origin they name.
    pub(crate) promises_kept: [u64; RECEIPT_ORIGINS_MAX],
    pub(crate) promises_broken: Bounded<u64>,
    /// The first and the next seq, where known.
    pub(crate) first_seq: Option<Seq>,
    pub(crate) next_seq: Option<Seq>,
    /// Where the data of the last segment ends, and the frame before it.
    pub(crate) end: Option<(ByteOffset, Seq)>,
    /// An unknown suite: nothing behind is judged.
    pub(crate) halt: bool,
    /// What sound erasure frames name, when payload files are to be checked.
    pub(crate) erased: Erased,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_joined_are_as_clocks_observed() {
        let times = [5_u64, 9, 3, 3, 8, 1, 40, 2];
        let mut whole = Clock::default();
        for (i, t) in times.iter().enumerate() {
            whole.observe(Seq(i as u64), UnixMillis(*t));
        }
        for cut in 0..=times.len() {
            let mut parts = [Clock::default(), Clock::default()];
            for (i, t) in times.iter().enumerate() {
                parts[usize::from(i >= cut)].observe(Seq(i as u64), UnixMillis(*t));
            }
            let [mut joined, later] = parts;
            joined.append(&later, Seq(cut as u64));
            assert_eq!(joined, whole, "cut at {cut}");
        }
        assert_eq!((whole.steps, whole.worst), (3, Some((Seq(7), 38))));
    }
}
