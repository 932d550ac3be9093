//! What the frames of a chain mean together: keys, tree, hand-over, generations (`ledger-format.md`, sections 7 to 10).
//!
//! Every frame that comes here has a good head, structure, number and link. Nothing is read.

use ledger_format::{
    Checkpoint, Close, Context, CosignatureBody, Erasure, Frame, Frontier, Generation,
    GenerationBody, Genesis, Hash, Kind, LedgerId, Link, Origin, Recovery, SUITE, SegmentOpen, Seq,
    VerifierKey, WriteNumbers, decode_checkpoint_body, leaf_hash,
};

/// A trust line from outside.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    origin: Origin,
    key: VerifierKey,
}

impl Pin {
    /// Reads a trust line.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let key = VerifierKey::parse(line).map_err(|e| e.to_string())?;
        let origin = Origin::parse(key.name()).map_err(|e| e.to_string())?;
        Ok(Self { origin, key })
    }
}

/// What a frame turned out to be.
pub(crate) enum Meaning {
    Record,
    Control,
    Opened(Box<SegmentOpen>),
    Checkpoint,
    /// A generation that the pinned line does not cover.
    Unfollowed,
}

/// What may stand next in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Begin(Seq),
    AfterGenesis,
    Generation,
    Inside,
    Closed,
    Final,
}

/// The keys in force.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Keys {
    ledger_id: LedgerId,
    generation: Generation,
    log_key: [u8; 32],
    epoch_key: [u8; 32],
}

/// The chain up to a frame. What is None is not known yet: reading began in the middle.
pub(crate) struct State {
    phase: Phase,
    previous_closed: bool,
    name: Option<String>,
    keys: Option<Keys>,
    /// Keys of the coming segment, from a planned generation or a close.
    coming: Option<Keys>,
    planned: Option<GenerationBody>,
    tree: Option<Frontier>,
    /// Frontier before segment_open, for the generation frame behind it.
    at_open: Option<Vec<Hash>>,
    /// The newest checkpoint: its note, and the frontier at its size.
    newest: Option<(Vec<u8>, Vec<Hash>)>,
    trust_line: Option<String>,
    pin: Option<Pin>,
    /// The newest generation that the pinned line covers.
    followed: Option<Generation>,
    pin_reached: bool,
    /// Whether the pinned generation was met at all.
    pin_met: bool,
    set_aside: Vec<Seq>,
}

type Judged<T> = Result<T, String>;

fn require(holds: bool, what: &str) -> Judged<()> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl State {
    pub(crate) fn new(pin: Option<Pin>) -> Self {
        Self {
            phase: Phase::Begin(Seq(0)),
            previous_closed: true,
            name: None,
            keys: None,
            coming: None,
            planned: None,
            tree: None,
            at_open: None,
            newest: None,
            trust_line: None,
            followed: pin.as_ref().map(|pin| pin.origin.generation()),
            pin,
            pin_reached: false,
            pin_met: false,
            set_aside: Vec::new(),
        }
    }

    pub(crate) fn begin_segment(&mut self, first_seq: Seq) {
        self.previous_closed = matches!(self.phase, Phase::Final) || self.keys.is_none();
        self.phase = Phase::Begin(first_seq);
        self.planned = None;
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed | Phase::Final)
    }

    /// Whether the newest checkpoint is one that the pinned line covers.
    pub(crate) const fn pin_reached(&self) -> bool {
        self.pin_reached
    }

    /// Whether a line was pinned and no checkpoint under it was met yet.
    pub(crate) const fn pin_missing(&self) -> bool {
        self.pin.is_some() && !self.pin_reached
    }

    /// The key that signed the newest checkpoint.
    pub(crate) fn trust_line(&self) -> Option<String> {
        self.trust_line.clone()
    }

    /// The generation that was pinned.
    pub(crate) fn pinned_generation(&self) -> Option<Generation> {
        self.pin.as_ref().map(|pin| pin.origin.generation())
    }

    /// Whether a line was pinned and its generation was not met.
    pub(crate) const fn pin_absent(&self) -> bool {
        self.pin.is_some() && !self.pin_met
    }

    /// Generations with the reason `damage`.
    pub(crate) fn set_aside(&self) -> Vec<Seq> {
        self.set_aside.clone()
    }

    /// Takes in the next frame of the chain.
    pub(crate) fn accept(
        &mut self,
        segment: Seq,
        frame: &Frame<'_>,
        predecessor: &Link,
    ) -> Judged<Meaning> {
        self.check_order(frame)?;
        let meaning = match (frame.prefix.kind, frame.control()) {
            (Kind::Genesis, Some(c)) => self.genesis(frame, c.body, predecessor)?,
            (Kind::SegmentOpen, Some(c)) => self.open(segment, frame, c.body, predecessor)?,
            (Kind::SegmentClose, Some(c)) => self.close(c.body)?,
            (Kind::Checkpoint, Some(c)) => self.checkpoint(frame, c.body)?,
            (Kind::Generation, Some(c)) => self.generation(frame, c.body, predecessor)?,
            (Kind::Cosignature, Some(c)) => {
                decoded(CosignatureBody::decode(c.body, frame.prefix.seq))?;
                Meaning::Control
            }
            (Kind::Erasure, Some(c)) => {
                decoded(Erasure::decode(c.body)).map(|_| Meaning::Control)?
            }
            (Kind::Recovery, Some(c)) => {
                decoded(Recovery::decode(c.body)).map(|_| Meaning::Control)?
            }
            (_, _) => Meaning::Record,
        };
        if let Some(tree) = &mut self.tree {
            tree.push(leaf_hash(&frame.link));
        }
        Ok(meaning)
    }

    fn check_order(&mut self, frame: &Frame<'_>) -> Judged<()> {
        use Kind as K;
        let kind = frame.prefix.kind;
        let unplanned = frame.prefix.write.count == 2;
        let next = match (self.phase, kind) {
            (Phase::Begin(Seq(0)), K::Genesis) => Phase::AfterGenesis,
            (Phase::AfterGenesis, K::SegmentOpen) => Phase::Inside,
            (Phase::Begin(first), K::SegmentOpen) if first.0 > 0 => {
                if unplanned {
                    Phase::Generation
                } else {
                    Phase::Inside
                }
            }
            (Phase::Generation, K::Generation) => Phase::Generation,
            (Phase::Inside, K::Genesis | K::SegmentOpen) => return Err(misplaced(kind)),
            (Phase::Inside, K::SegmentClose) => Phase::Closed,
            (Phase::Inside, _) => Phase::Inside,
            (Phase::Closed, K::Checkpoint) => Phase::Final,
            _ => return Err(misplaced(kind)),
        };
        self.phase = next;
        Ok(())
    }

    fn genesis(&mut self, frame: &Frame<'_>, body: &[u8], predecessor: &Link) -> Judged<Meaning> {
        let genesis = decoded(Genesis::decode(body))?;
        let signed = frame.tag_signed_by(Context::GenesisSignature, predecessor, &genesis.log_key);
        require(
            signed,
            "the signature of genesis does not verify under the log key it names",
        )?;
        self.name = Some(genesis.name);
        self.keys = Some(Keys {
            ledger_id: Genesis::ledger_id(body),
            generation: Generation(0),
            log_key: genesis.log_key,
            epoch_key: genesis.epoch_key,
        });
        self.tree = Some(Frontier::empty());
        Ok(Meaning::Control)
    }

    fn open(
        &mut self,
        segment: Seq,
        frame: &Frame<'_>,
        body: &[u8],
        predecessor: &Link,
    ) -> Judged<Meaning> {
        let open = decoded(SegmentOpen::decode(body))?;
        require(
            open.suite == u64::from(SUITE),
            &format!(
                "suite {}: this program knows suite {SUITE}; use a newer one",
                open.suite
            ),
        )?;
        let signed = frame.tag_signed_by(Context::OpenSignature, predecessor, &open.epoch_key);
        require(
            signed,
            "the signature of segment_open does not verify under the epoch key it names",
        )?;
        require(
            open.predecessor == *predecessor,
            "segment_open names another predecessor",
        )?;
        let keys = Keys {
            ledger_id: open.ledger_id,
            generation: open.generation,
            log_key: open.log_key,
            epoch_key: open.epoch_key,
        };
        if segment == Seq(0) {
            let same = self.keys.as_ref() == Some(&keys);
            let empty = open.previous.is_none() && open.frontier.is_empty();
            require(same && empty, "segment_open does not repeat genesis")?;
        } else {
            self.hand_over(segment, &open, &keys)?;
        }
        self.check_pin(&keys)?;
        self.keys = Some(keys);
        self.coming = None;
        Ok(Meaning::Opened(Box::new(open)))
    }

    /// Holds a later segment_open against the segment before, or takes its word where that was not read.
    fn hand_over(&mut self, segment: Seq, open: &SegmentOpen, keys: &Keys) -> Judged<()> {
        let unplanned = self.phase == Phase::Generation;
        let previous = open
            .previous
            .as_deref()
            .ok_or("segment_open names no checkpoint before it")?;
        match &self.keys {
            None => {
                let size = Checkpoint::parse(previous).map_err(|e| e.to_string())?.size;
                if size.checked_add(1) == Some(segment.0) {
                    let mut tree = Frontier::from_hashes(size, &open.frontier).ok_or(
                        "segment_open has another number of tree hashes than its size needs",
                    )?;
                    tree.push(leaf_hash(&open.predecessor));
                    self.tree = Some(tree);
                } else {
                    require(
                        unplanned,
                        "the segment before was not closed, and no generation follows",
                    )?;
                }
            }
            Some(before) => {
                require(
                    before.ledger_id == keys.ledger_id,
                    "segment_open names another ledger",
                )?;
                let newest = self.newest.as_ref();
                let continues = newest
                    .is_some_and(|(note, frontier)| note == previous && *frontier == open.frontier);
                require(
                    continues,
                    "segment_open names another checkpoint or tree before it",
                )?;
                if unplanned {
                    let number = before.generation.0.checked_add(1);
                    require(
                        number == Some(keys.generation.0),
                        "segment_open skips a generation",
                    )?;
                } else {
                    require(
                        self.previous_closed,
                        "the segment before was not closed, and no generation follows",
                    )?;
                    let expected = self.coming.as_ref();
                    require(
                        expected == Some(keys),
                        "segment_open has other keys than the close before it names",
                    )?;
                }
            }
        }
        self.at_open = self.tree.as_ref().map(Frontier::hashes);
        Ok(())
    }

    fn check_pin(&mut self, keys: &Keys) -> Judged<()> {
        let Some(pin) = &self.pin else {
            return Ok(());
        };
        require(
            pin.origin.names(&keys.ledger_id),
            "this is another ledger than the trust line names",
        )?;
        if pin.origin.generation() == keys.generation {
            let same = pin.key.public_key() == &keys.log_key;
            require(same, "the log key is another than the trust line's")?;
            self.pin_met = true;
        }
        Ok(())
    }

    fn generation(
        &mut self,
        frame: &Frame<'_>,
        body: &[u8],
        predecessor: &Link,
    ) -> Judged<Meaning> {
        let generation = decoded(GenerationBody::decode(body))?;
        let keys = self
            .keys
            .as_ref()
            .ok_or("a generation without keys before it")?;
        if generation.reason == "damage" {
            self.set_aside.push(frame.prefix.seq);
        }
        if self.phase != Phase::Generation {
            let next = keys.generation.0.checked_add(1) == Some(generation.generation.0);
            let new_key = generation.log_key != keys.log_key;
            let first = self.planned.is_none();
            let alone = frame.prefix.write == WriteNumbers::ALONE;
            require(
                next && new_key && first && alone && generation.frontier.is_none(),
                "the generation contradicts the segment it stands in",
            )?;
            if let Some(pin) = &self.pin {
                // Its checkpoints stand in the segments that follow, if there are any yet.
                self.pin_met |= pin.origin.generation() == generation.generation
                    && pin.key.public_key() == &generation.log_key;
            }
            self.planned = Some(generation);
            return Ok(Meaning::Control);
        }
        self.phase = Phase::Inside;
        let same = generation.generation == keys.generation
            && generation.log_key == keys.log_key
            && generation.epoch_key == keys.epoch_key;
        require(same, "the generation names other keys than segment_open")?;
        let frontier = generation
            .frontier
            .ok_or("an unplanned generation without a tree")?;
        match &self.at_open {
            Some(ours) => require(
                *ours == frontier,
                "the generation names another tree than the chain's",
            )?,
            None => {
                let size = frame.prefix.seq.0.saturating_sub(1);
                let mut tree = Frontier::from_hashes(size, &frontier).ok_or(
                    "the generation has another number of tree hashes than its size needs",
                )?;
                tree.push(leaf_hash(predecessor));
                self.tree = Some(tree);
            }
        }
        let unfollowed = self
            .followed
            .is_some_and(|followed| keys.generation > followed);
        Ok(if unfollowed {
            Meaning::Unfollowed
        } else {
            Meaning::Control
        })
    }

    fn close(&mut self, body: &[u8]) -> Judged<Meaning> {
        let close = decoded(Close::decode(body))?;
        let keys = self.keys.as_ref().ok_or("a close without keys before it")?;
        let mut coming = Keys {
            epoch_key: close.epoch_key,
            ..keys.clone()
        };
        if let Some(planned) = &self.planned {
            let same = planned.epoch_key == close.epoch_key;
            require(
                same,
                "the close names another epoch key than the generation before it",
            )?;
            coming.generation = planned.generation;
            coming.log_key = planned.log_key;
        }
        self.coming = Some(coming);
        Ok(Meaning::Control)
    }

    fn checkpoint(&mut self, frame: &Frame<'_>, body: &[u8]) -> Judged<Meaning> {
        let note = decoded(decode_checkpoint_body(body))?;
        let checkpoint = Checkpoint::parse(note).map_err(|e| e.to_string())?;
        let keys = self
            .keys
            .as_ref()
            .ok_or("a checkpoint without keys before it")?;
        require(
            checkpoint.size == frame.prefix.seq.0,
            &format!(
                "the checkpoint has size {}, expected its own number",
                checkpoint.size
            ),
        )?;
        let origin = &checkpoint.origin;
        let named = self
            .name
            .as_deref()
            .is_none_or(|name| name == origin.name());
        let pinned_name = self
            .pin
            .as_ref()
            .is_none_or(|pin| pin.origin.name() == origin.name());
        let ours = origin.names(&keys.ledger_id) && origin.generation() == keys.generation;
        require(
            named && pinned_name && ours,
            "the checkpoint has another origin than this ledger",
        )?;
        let (log, epoch) = (
            origin.log_verifier(keys.log_key),
            origin.epoch_verifier(keys.epoch_key),
        );
        checkpoint
            .verify_in_chain(&log, &epoch)
            .map_err(|e| e.to_string())?;
        let tree = self
            .tree
            .as_ref()
            .ok_or("a checkpoint before the tree is known")?;
        require(
            tree.root() == checkpoint.root,
            "the checkpoint's root is not the tree's",
        )?;
        self.name = Some(origin.name().to_owned());
        self.newest = Some((note.to_vec(), tree.hashes()));
        self.trust_line = Some(log.to_string());
        if let (Some(pin), Some(followed)) = (&self.pin, self.followed) {
            self.pin_reached = (pin.origin.generation()..=followed).contains(&keys.generation);
            // A planned generation is covered by the checkpoint of the one before.
            if let Some(planned) = &self.planned
                && keys.generation == followed
            {
                self.followed = Some(planned.generation);
            }
        }
        Ok(Meaning::Checkpoint)
    }
}

fn misplaced(kind: Kind) -> String {
    format!("a frame of kind {kind} may not stand here")
}

fn decoded<T>(result: Result<T, ledger_format::BodyError>) -> Judged<T> {
    result.map_err(|e| e.to_string())
}
