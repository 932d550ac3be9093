//! What the frames of a chain mean together, as far as a trace rests on it: which keys are in force, which tree a
//! checkpoint signs, and how far the key from outside reaches (`ledger-format.md`, sections 7 to 10).
//!
//! Every frame that comes here has a good head, structure, number and link. It is stricter than a proof under the log
//! key alone: epoch keys and hand-overs are held as the chain says. Not the verifier: bodies of other control frames
//! and the order inside a segment are its business.

use ledger_format::{
    Checkpoint, Close, Context, Frame, Frontier, Generation, GenerationBody, Genesis, Kind,
    LedgerId, Link, Origin, SUITE, SegmentOpen, Seq, UnixMillis, VerifierKey,
    decode_checkpoint_body, leaf_hash,
};

use crate::source::SourceError;

/// A trust line from outside: who signs this ledger's checkpoints.
#[derive(Debug, Clone)]
pub struct TrustLine {
    pub(super) origin: Origin,
    pub(super) key: VerifierKey,
}

impl TrustLine {
    /// Reads a trust line.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(line: &str) -> Result<Self, SourceError> {
        let unusable = |what: String| SourceError::Unusable(format!("not a trust line: {what}"));
        let key = VerifierKey::parse(line).map_err(|e| unusable(e.to_string()))?;
        let origin = Origin::parse(key.name()).map_err(|e| unusable(e.to_string()))?;
        Ok(Self { origin, key })
    }
}

/// The keys in force.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InForce {
    ledger_id: LedgerId,
    generation: Generation,
    log_key: [u8; 32],
    epoch_key: [u8; 32],
}

/// The chain up to a frame.
#[derive(Debug)]
pub(super) struct Chain {
    trust: Option<TrustLine>,
    name: Option<String>,
    keys: Option<InForce>,
    coming: Option<InForce>,
    planned: Option<GenerationBody>,
    tree: Option<Frontier>,
    /// Newest generation that the trust line reaches.
    followed: Option<Generation>,
    /// The newest checkpoint: its size, and when it was appended.
    pub(super) newest: Option<(u64, UnixMillis)>,
    /// Size of the newest checkpoint under the trust line.
    pub(super) pinned: Option<u64>,
    pub(super) trust_line: Option<String>,
    pub(super) origin: Option<Origin>,
    closed: bool,
}

/// What a frame turned out to be.
pub(super) enum Meaning {
    Record,
    Opened(Box<SegmentOpen>),
    Control,
}

type Judged<T> = Result<T, String>;

fn require(holds: bool, what: &str) -> Judged<()> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl Chain {
    pub(super) fn new(trust: Option<TrustLine>) -> Self {
        Self {
            followed: trust.as_ref().map(|trust| trust.origin.generation()),
            trust,
            name: None,
            keys: None,
            coming: None,
            planned: None,
            tree: None,
            newest: None,
            pinned: None,
            trust_line: None,
            origin: None,
            closed: false,
        }
    }

    /// Whether a close was the last thing but its checkpoint.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes in the next frame.
    pub(super) fn accept(
        &mut self,
        segment: Seq,
        frame: &Frame<'_>,
        predecessor: &Link,
    ) -> Judged<Meaning> {
        let kind = frame.prefix.kind;
        let first =
            frame.prefix.seq == segment || (segment == Seq(0) && frame.prefix.seq == Seq(1));
        let opens = matches!(kind, Kind::Genesis | Kind::SegmentOpen);
        require(
            opens == first,
            "a segment begins with its opening, and with nothing else",
        )?;
        let meaning = match (kind, frame.control().map(|c| c.body)) {
            (Kind::Genesis, Some(body)) => self.genesis(frame, body, predecessor)?,
            (Kind::SegmentOpen, Some(body)) => self.open(segment, frame, body, predecessor)?,
            (Kind::SegmentClose, Some(body)) => self.close(body)?,
            (Kind::Checkpoint, Some(body)) => self.checkpoint(frame, body)?,
            (Kind::Generation, Some(body)) => self.generation(frame, body, predecessor)?,
            (Kind::Record, _) => Meaning::Record,
            _ => Meaning::Control,
        };
        if let Some(tree) = &mut self.tree {
            tree.push(leaf_hash(&frame.link));
        }
        Ok(meaning)
    }

    fn genesis(&mut self, frame: &Frame<'_>, body: &[u8], predecessor: &Link) -> Judged<Meaning> {
        require(frame.prefix.seq == Seq(0), "genesis stands at frame 0 only")?;
        let genesis = Genesis::decode(body).map_err(|e| e.to_string())?;
        let signed = frame.tag_signed_by(Context::GenesisSignature, predecessor, &genesis.log_key);
        require(signed, "genesis is not signed by the log key that it names")?;
        self.coming = Some(InForce {
            ledger_id: Genesis::ledger_id(body),
            generation: Generation(0),
            log_key: genesis.log_key,
            epoch_key: genesis.epoch_key,
        });
        self.name = Some(genesis.name);
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
        let open = SegmentOpen::decode(body).map_err(|e| e.to_string())?;
        require(
            open.suite == u64::from(SUITE),
            "the segment is of a suite that this program does not know",
        )?;
        let signed = frame.tag_signed_by(Context::OpenSignature, predecessor, &open.epoch_key);
        require(
            signed,
            "segment_open is not signed by the epoch key that it names",
        )?;
        require(
            open.predecessor == *predecessor,
            "segment_open names another predecessor",
        )?;
        let keys = InForce {
            ledger_id: open.ledger_id,
            generation: open.generation,
            log_key: open.log_key,
            epoch_key: open.epoch_key,
        };
        let unplanned = segment != Seq(0) && frame.prefix.write.count == 2;
        match (&self.keys, &self.coming) {
            (Some(before), _) if unplanned => {
                let next = before.generation.0.checked_add(1) == Some(keys.generation.0);
                require(
                    next && before.ledger_id == keys.ledger_id,
                    "segment_open does not follow the one before",
                )?;
            }
            (_, Some(coming)) => require(
                *coming == keys,
                "segment_open has other keys than were announced",
            )?,
            (Some(_), None) => return Err("the segment before was not closed".to_owned()),
            (None, None) => self.begin_here(&open, unplanned)?,
        }
        self.check_trust(&keys)?;
        (self.keys, self.coming, self.planned, self.closed) = (Some(keys), None, None, false);
        Ok(Meaning::Opened(Box::new(open)))
    }

    /// Reading begins at a later segment: its own word for the tree stands until a checkpoint's root proves it.
    fn begin_here(&mut self, open: &SegmentOpen, unplanned: bool) -> Judged<()> {
        if unplanned {
            // The tree comes with the generation frame behind it.
            return Ok(());
        }
        let previous = open
            .previous
            .as_deref()
            .ok_or("segment_open names no checkpoint before it")?;
        let size = Checkpoint::parse(previous).map_err(|e| e.to_string())?.size;
        let mut tree = Frontier::from_hashes(size, &open.frontier)
            .ok_or("segment_open has another number of tree hashes than its size needs")?;
        tree.push(leaf_hash(&open.predecessor));
        self.tree = Some(tree);
        Ok(())
    }

    fn check_trust(&self, keys: &InForce) -> Judged<()> {
        let Some(trust) = &self.trust else {
            return Ok(());
        };
        require(
            trust.origin.names(&keys.ledger_id),
            "this is another ledger than the trust line names",
        )?;
        let same =
            trust.origin.generation() != keys.generation || *trust.key.public_key() == keys.log_key;
        require(same, "the log key is another than the trust line's")
    }

    fn close(&mut self, body: &[u8]) -> Judged<Meaning> {
        let close = Close::decode(body).map_err(|e| e.to_string())?;
        let keys = self.keys.as_ref().ok_or("a close without keys before it")?;
        let mut coming = InForce {
            epoch_key: close.epoch_key,
            ..keys.clone()
        };
        if let Some(planned) = &self.planned {
            require(
                planned.epoch_key == close.epoch_key,
                "the close names another epoch key than the generation",
            )?;
            coming.generation = planned.generation;
            coming.log_key = planned.log_key;
        }
        (self.coming, self.closed) = (Some(coming), true);
        Ok(Meaning::Control)
    }

    fn generation(
        &mut self,
        frame: &Frame<'_>,
        body: &[u8],
        predecessor: &Link,
    ) -> Judged<Meaning> {
        let generation = GenerationBody::decode(body).map_err(|e| e.to_string())?;
        let keys = self
            .keys
            .as_ref()
            .ok_or("a generation without keys before it")?;
        if frame.prefix.write.count == 1 {
            let next = keys.generation.0.checked_add(1) == Some(generation.generation.0);
            require(
                next && self.planned.is_none() && generation.frontier.is_none(),
                "the generation is out of place",
            )?;
            self.planned = Some(generation);
            return Ok(Meaning::Control);
        }
        let same = generation.generation == keys.generation
            && generation.log_key == keys.log_key
            && generation.epoch_key == keys.epoch_key;
        require(same, "the generation names other keys than segment_open")?;
        if self.tree.is_none() {
            let frontier = generation
                .frontier
                .ok_or("an unplanned generation without a tree")?;
            let mut tree = Frontier::from_hashes(frame.prefix.seq.0.saturating_sub(1), &frontier)
                .ok_or(
                "the generation has another number of tree hashes than its size needs",
            )?;
            tree.push(leaf_hash(predecessor));
            self.tree = Some(tree);
        }
        Ok(Meaning::Control)
    }

    fn checkpoint(&mut self, frame: &Frame<'_>, body: &[u8]) -> Judged<Meaning> {
        let note = decode_checkpoint_body(body).map_err(|e| e.to_string())?;
        let checkpoint = Checkpoint::parse(note).map_err(|e| e.to_string())?;
        let keys = self
            .keys
            .as_ref()
            .ok_or("a checkpoint without keys before it")?;
        require(
            checkpoint.size == frame.prefix.seq.0,
            "the checkpoint is not over all frames before it",
        )?;
        let origin = &checkpoint.origin;
        let named = self
            .name
            .as_deref()
            .is_none_or(|name| name == origin.name());
        let trusted = self
            .trust
            .as_ref()
            .is_none_or(|trust| trust.origin.name() == origin.name());
        let ours = origin.names(&keys.ledger_id) && origin.generation() == keys.generation;
        require(
            named && trusted && ours,
            "the checkpoint has another origin than this ledger",
        )?;
        let log = origin.log_verifier(keys.log_key);
        checkpoint
            .verify_in_chain(&log, &origin.epoch_verifier(keys.epoch_key))
            .map_err(|e| e.to_string())?;
        let tree = self
            .tree
            .as_ref()
            .ok_or("a checkpoint before the tree is known")?;
        require(
            tree.root() == checkpoint.root,
            "the checkpoint's root is not the tree's",
        )?;
        if let (Some(trust), Some(followed)) = (&self.trust, self.followed)
            && (trust.origin.generation()..=followed).contains(&keys.generation)
        {
            self.pinned = Some(checkpoint.size);
            // The old key's checkpoint covers a planned generation; what that one's key signs is then reached too.
            if let Some(planned) = &self.planned
                && keys.generation == followed
            {
                self.followed = Some(planned.generation);
            }
        }
        self.newest = Some((checkpoint.size, frame.appended_at));
        self.name = Some(origin.name().to_owned());
        self.trust_line = Some(log.to_string());
        self.origin = Some(origin.clone());
        Ok(Meaning::Control)
    }
}
