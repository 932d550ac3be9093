//! The rules for the frames of one segment, frame by frame (`ledger-format.md`, section 15,
//! steps 3.7 to 3.9).
//!
//! Both paths end here: the fast one hands over runs of record frames already hashed and each
//! control frame, the slow one every frame. Reading, links and numbers are theirs; the bodies of
//! control frames are judged in `bodies`.

use crate::code::Code;
use crate::finding::Finding;
use crate::state::{Carry, Clock, Keys, Outcome, Previous, Rules, keep};
use ledger_format::{
    ByteOffset, CompactRange, Frame, Frontier, GenerationBody, Hash, Kind, Link, SegmentOpen, Seq,
    leaf_hash,
};

/// A frame on its way through the rules.
pub(crate) struct Item<'f> {
    pub(crate) frame: Frame<'f>,
    pub(crate) offset: u64,
    /// It stands at the start of the file.
    pub(crate) first: bool,
    /// What stood before it could not be read, or did not continue into it.
    pub(crate) jump: bool,
    /// The link that stands before it; unknown for some first frames.
    pub(crate) predecessor: Option<Link>,
    /// A result of a worker: both signatures of this checkpoint under these keys.
    pub(crate) signed: Option<Signed>,
    /// Its link checks; a frame that is not sound gives no state.
    pub(crate) sound: bool,
}

/// Both signatures of a checkpoint, checked ahead under the keys that the segment claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) log_key: [u8; 32],
    pub(crate) epoch_key: [u8; 32],
    pub(crate) good: bool,
}

/// How far a segment has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Open,
    /// segment_close has been seen.
    Closed,
    /// The checkpoint behind it too.
    Ended,
}

/// The fast path met something that only the slow one can judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Irregular;

/// The judge of one segment.
pub(crate) struct Judge<'r> {
    pub(crate) rules: &'r Rules,
    pub(crate) segment: Seq,
    pub(crate) start: Carry,
    pub(crate) out: Outcome,
    pub(crate) tree: Option<Frontier>,
    pub(crate) tree_lost: bool,
    pub(crate) keys: Keys,
    pub(crate) stage: Stage,
    pub(crate) before: Option<Kind>,
    last_two: [Option<Kind>; 2],
    /// segment_open, when nothing is wrong with it.
    pub(crate) open: Option<SegmentOpen>,
    /// Its link, when it gave state.
    pub(crate) open_link: Option<Link>,
    /// The file begins with an unplanned open: a generation frame follows in its write.
    pub(crate) generation_due: bool,
    pub(crate) generation_seen: bool,
    /// A generation frame with a finding: what it said is not known.
    generation_lost: bool,
    /// Something could not be read, or did not continue into what follows.
    jumped: bool,
    /// A frame was found altered.
    altered: bool,
    pub(crate) planned: Option<GenerationBody>,
    pub(crate) close_key: Option<[u8; 32]>,
    /// The second frame can be read as an unplanned generation.
    pub(crate) opens_generation: bool,
    frames: u64,
}

/// How the frames of a segment ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) len: u64,
    pub(crate) next: Seq,
    /// A stop of steps 3.2 or 3.3, or of the magic, or a misnamed file: all state is unknown behind.
    pub(crate) stopped: bool,
    /// The file ended in something that could not be read, but could be passed over.
    pub(crate) jump: bool,
    pub(crate) link: Option<Link>,
    pub(crate) computed: Option<Link>,
}

impl<'r> Judge<'r> {
    pub(crate) fn new(rules: &'r Rules, segment: Seq, start: Carry) -> Self {
        let mut judge = Self {
            rules,
            segment,
            out: Outcome::default(),
            tree: if rules.quick {
                None
            } else {
                start.tree.clone()
            },
            tree_lost: rules.quick,
            keys: start.keys.clone(),
            start,
            stage: Stage::Open,
            before: None,
            last_two: [None; 2],
            open: None,
            open_link: None,
            generation_due: false,
            generation_seen: false,
            generation_lost: false,
            jumped: false,
            altered: false,
            frames: 0,
            planned: None,
            close_key: None,
            opens_generation: false,
        };
        judge.note_root();
        judge
    }

    /// Nothing that was carried here holds.
    pub(crate) fn forget(&mut self) {
        self.start = Carry::unknown(self.start.previous);
        self.keys = Keys::default();
        self.lose_tree();
    }

    /// The tree is unknown to the end of the segment.
    pub(crate) fn lose_tree(&mut self) {
        self.tree = None;
        self.tree_lost = true;
    }

    pub(crate) fn find(&mut self, finding: Finding) {
        self.out.findings.push(finding);
    }

    pub(crate) fn at(&self, code: Code, seq: Seq, offset: u64) -> Finding {
        Finding::new(code, self.segment, seq, ByteOffset(offset))
    }

    pub(crate) fn about(&self, code: Code, item: &Item<'_>) -> Finding {
        let len = u64::from(item.frame.prefix.frame_len);
        self.at(code, item.frame.prefix.seq, item.offset)
            .of_frame(item.offset.saturating_add(len), item.frame.appended_at)
    }

    fn note_root(&mut self) {
        if let Some(tree) = &self.tree
            && self.rules.wants_root(tree.size())
        {
            self.out.roots.push((tree.size(), tree.root()));
        }
    }

    pub(crate) fn grow(&mut self, leaf: Hash) {
        if let Some(tree) = &mut self.tree {
            tree.push(leaf);
            self.note_root();
        }
    }

    /// Whether the frame that is looked at is the second of the file.
    pub(crate) const fn at_second(&self) -> bool {
        self.frames == 1
    }

    fn saw(&mut self, kind: Kind) {
        self.frames = self.frames.saturating_add(1);
        self.last_two = [self.last_two[1], Some(kind)];
        self.before = Some(kind);
    }

    /// A run of record frames whose heads, structure, numbers and links were found good.
    ///
    /// # Errors
    /// [`Irregular`] where a record frame may not stand.
    pub(crate) fn run(&mut self, count: u64, range: &CompactRange) -> Result<(), Irregular> {
        let in_place = self.stage == Stage::Open
            && self.before.is_some_and(|k| k != Kind::Genesis)
            && !(self.before == Some(Kind::SegmentOpen) && self.generation_due);
        if !in_place {
            return Err(Irregular);
        }
        self.out.counts.records = self.out.counts.records.saturating_add(count);
        if let Some(tree) = &mut self.tree {
            if !tree.append(range) {
                return Err(Irregular);
            }
            self.note_root();
        }
        for _ in 0..count.min(2) {
            self.saw(Kind::Record);
        }
        Ok(())
    }

    /// One frame whose place in the chain was settled (steps 3.7 to 3.9).
    pub(crate) fn frame(&mut self, item: &Item<'_>) {
        if self.out.halt {
            return;
        }
        if item.jump {
            self.lose_tree();
            self.jumped = true;
            self.before = None;
        }
        self.altered |= !item.sound && !item.jump;
        let kind = item.frame.prefix.kind;
        let root = match (&self.tree, kind) {
            (Some(tree), Kind::Checkpoint) => Some((tree.root(), tree.hashes())),
            _ => None,
        };
        self.grow(leaf_hash(&item.frame.link));
        self.count(kind);
        self.order(item);
        if item.first && kind == Kind::SegmentOpen {
            self.generation_due = self.segment.0 != 0 && item.frame.prefix.write.count == 2;
        }
        if item.frame.control().is_some() {
            let before = self.out.findings.total();
            self.body(item, root);
            let found = !item.sound || self.out.findings.total() > before;
            self.generation_lost |= kind == Kind::Generation && found;
        }
        self.advance_stage(kind);
        self.saw(kind);
    }

    fn count(&mut self, kind: Kind) {
        let counts = &mut self.out.counts;
        if kind == Kind::Record {
            counts.records = counts.records.saturating_add(1);
        } else {
            counts.control = counts.control.saturating_add(1);
        }
        if kind == Kind::Checkpoint {
            counts.checkpoints = counts.checkpoints.saturating_add(1);
        }
    }

    fn advance_stage(&mut self, kind: Kind) {
        self.stage = match (self.stage, kind) {
            (Stage::Open, Kind::SegmentClose) => Stage::Closed,
            (Stage::Closed, Kind::Checkpoint) => Stage::Ended,
            (stage, _) => stage,
        };
    }

    /// Step 3.8.
    fn order(&mut self, item: &Item<'_>) {
        let prefix = &item.frame.prefix;
        let (kind, zero) = (prefix.kind, self.segment.0 == 0);
        let misplaced = if item.first {
            kind != if zero {
                Kind::Genesis
            } else {
                Kind::SegmentOpen
            }
        } else {
            match kind {
                Kind::Genesis => true,
                // Behind unreadable bytes it can only be judged by its number.
                Kind::SegmentOpen => match self.before {
                    Some(before) => before != Kind::Genesis,
                    None => !(zero && prefix.seq.0 == 1),
                },
                _ => self.before == Some(Kind::Genesis),
            }
        };
        let unannounced = self.before == Some(Kind::SegmentOpen)
            && self.generation_due
            && kind != Kind::Generation;
        let behind_close = match self.stage {
            Stage::Open => false,
            Stage::Closed => kind != Kind::Checkpoint,
            Stage::Ended => true,
        };
        if misplaced || unannounced || behind_close {
            let detail = match self.before {
                Some(before) => format!("a {kind} frame may not stand behind {before}"),
                None => format!("a {kind} frame may not stand here"),
            };
            let finding = self.about(Code::SegmentOrder, item).saying(detail);
            self.find(finding);
        }
    }

    pub(crate) fn observe(&mut self, clock: &Clock, first_seq: Seq) {
        self.out.clock.append(clock, first_seq);
    }

    /// Compares the receipts' links of frames that a fast run did not hand over one by one.
    pub(crate) fn compare_promise(&mut self, seq: Seq, link: &Link) {
        for promise in self.rules.promises_in(seq.0, seq.0.saturating_add(1)) {
            if promise.link == *link {
                keep(&mut self.out.promises_kept, promise);
            } else {
                self.out.promises_broken.push(seq.0);
            }
        }
    }

    /// Whether the last two frames that could be read end a segment.
    pub(crate) fn looks_closed(&self) -> bool {
        self.last_two == [Some(Kind::SegmentClose), Some(Kind::Checkpoint)]
    }

    /// Step 6: what the next segment starts from.
    pub(crate) fn finish(mut self, ended: Ended) -> (Outcome, Carry, bool) {
        let previous = Previous {
            first: self.segment,
            len: ended.len,
            closed: self.looks_closed(),
        };
        let newest_size = self.out.newest.as_ref().map_or(0, |c| c.size);
        for generation in &mut self.out.generations {
            generation.covered = generation.planned && newest_size > generation.seq.0;
        }
        let generation_follows = self.opens_generation;
        if ended.stopped {
            let carry = Carry::unknown(Some(previous));
            return (self.out, carry, generation_follows);
        }
        self.out.next_seq = Some(ended.next);
        let jumped = self.jumped || ended.jump;
        let mut keys = self.keys;
        keys.epoch_key = self.close_key;
        if let Some(planned) = self.planned {
            keys.generation = Some(planned.generation);
            keys.log_key = Some(planned.log_key);
            keys.epoch_key = keys.epoch_key.or(Some(planned.epoch_key));
        } else if jumped || self.generation_lost {
            // What was lost may have been a generation frame.
            keys.generation = None;
            keys.log_key = None;
        }
        if jumped && self.last_two[1] != Some(Kind::Checkpoint) {
            keys.note = None;
        }
        if self.altered || keys.note.is_none() {
            keys.note_frontier = None;
        }
        let carry = Carry {
            next: Some(ended.next),
            link: ended.link,
            computed: ended.computed,
            tree: self.tree.filter(|_| !self.altered && !jumped),
            keys,
            previous: Some(previous),
        };
        (self.out, carry, generation_follows)
    }
}
