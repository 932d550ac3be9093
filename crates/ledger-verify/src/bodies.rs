//! The rules for the bodies of control frames (`ledger-format.md`, section 15, step 3.9; sections
//! 7, 9 and 10). At most one finding a frame comes from here.

use crate::code::Code;
use crate::finding::{Finding, Note};
use crate::judge::{Item, Judge, Stage};
use crate::state::{GenerationSeen, GoodCheckpoint, Identity};
use ledger_format::{
    BodyError, Checkpoint, Close, Context, CosignatureBody, Erasure, Frontier, Generation,
    GenerationBody, Genesis, Hash, Kind, LedgerId, Link, Recovery, SegmentOpen,
    decode_checkpoint_body, leaf_hash,
};

type Root = Option<(Hash, Vec<Hash>)>;

impl Judge<'_> {
    /// Step 3.9.
    pub(crate) fn body(&mut self, item: &Item<'_>, root: Root) {
        let Some(control) = item.frame.control() else {
            return;
        };
        let body = control.body;
        let result = match item.frame.prefix.kind {
            Kind::Record => Ok(()),
            Kind::Genesis => Genesis::decode(body).map(|g| self.genesis(item, &g, body)),
            Kind::SegmentOpen => SegmentOpen::decode(body).map(|o| self.segment_open(item, o)),
            Kind::SegmentClose => Close::decode(body).map(|c| self.close(item, &c)),
            Kind::Checkpoint => {
                decode_checkpoint_body(body).map(|n| self.checkpoint(item, n, root))
            }
            Kind::Cosignature => CosignatureBody::decode(body, item.frame.prefix.seq)
                .map(|c| self.cosignature(item, &c)),
            Kind::Erasure => Erasure::decode(body).map(|e| self.erasure(item, &e)),
            Kind::Recovery => Recovery::decode(body).map(|r| self.recovery(item, &r)),
            Kind::Generation => {
                GenerationBody::decode_shape(body).map(|g| self.generation(item, body, g))
            }
        };
        if let Err(error) = result {
            self.malformed(item, &error);
        }
    }

    fn malformed(&mut self, item: &Item<'_>, error: &BodyError) {
        let detail = format!("body of {}: {error}", item.frame.prefix.kind);
        let finding = self.about(Code::BodyMalformed, item).saying(detail);
        self.find(finding);
    }

    fn genesis(&mut self, item: &Item<'_>, genesis: &Genesis, body: &[u8]) {
        let context = Context::GenesisSignature;
        if !item
            .frame
            .tag_signed_by(context, &Link::ZERO, &genesis.log_key)
        {
            let finding = self.about(Code::GenesisSignature, item);
            return self.find(finding);
        }
        let in_place = item.first && self.segment.0 == 0 && item.frame.prefix.seq.0 == 0;
        if item.altered || !in_place {
            return;
        }
        let ledger_id = Genesis::ledger_id(body);
        self.out.name = Some(genesis.name.clone());
        self.keys.ledger_id = Some(ledger_id);
        self.keys.generation = Some(Generation(0));
        self.keys.log_key = Some(genesis.log_key);
        self.keys.epoch_key = Some(genesis.epoch_key);
        self.keys.note = Some(None);
        self.keys.note_frontier = Some(Vec::new());
        self.identify(ledger_id, Generation(0), genesis.log_key);
    }

    fn identify(&mut self, ledger_id: LedgerId, generation: Generation, log_key: [u8; 32]) {
        self.out.identities.push(Identity {
            ledger_id,
            generation,
            log_key,
        });
    }

    fn segment_open(&mut self, item: &Item<'_>, open: SegmentOpen) {
        let own = item.altered;
        self.generation_due = self.segment.0 != 0 && item.frame.prefix.write.count == 2;
        if open.suite != u64::from(ledger_format::SUITE) {
            // Only a sound link says that a later program wrote this.
            if own {
                return self.malformed(item, &BodyError::Value("suite"));
            }
            let detail = format!("suite {}; this program knows suite 1", open.suite);
            let finding = self.about(Code::UnknownSuite, item).saying(detail);
            self.out.halt = true;
            return self.find(finding);
        }
        if let Some(predecessor) = &item.predecessor {
            let context = Context::OpenSignature;
            if !item
                .frame
                .tag_signed_by(context, predecessor, &open.epoch_key)
            {
                let finding = self.about(Code::OpenSignature, item);
                return self.find(finding);
            }
        }
        // A mismatch behind damage follows from it: the segment then speaks for itself.
        let before = self.out.findings.total() > 0;
        let follows = item.jump || before || self.start.previous.is_some_and(|p| p.flawed);
        let mismatch = self.mismatches(item, &open);
        if !mismatch.is_empty() {
            let detail = format!("does not continue: {}", mismatch.join(", "));
            let finding = self.about(Code::HandoverBroken, item).saying(detail);
            if !follows {
                self.go_on(&open);
                return self.find(finding);
            }
            self.out.follows.push(finding);
        }
        if own {
            return;
        }
        self.adopt(item, open, !mismatch.is_empty());
    }

    /// What a segment_open says otherwise than the state carried to it (section 10).
    fn mismatches(&self, item: &Item<'_>, open: &SegmentOpen) -> Vec<&'static str> {
        let keys = &self.keys;
        let mut wrong = Vec::new();
        let mut check = |name, good: bool| {
            if !good {
                wrong.push(name);
            }
        };
        check(
            "ledger_id",
            keys.ledger_id.is_none_or(|id| id == open.ledger_id),
        );
        let successor = u64::from(self.generation_due);
        let generation = keys.generation.map(|g| g.0.saturating_add(successor));
        check(
            "generation",
            generation.is_none_or(|g| g == open.generation.0),
        );
        if !self.generation_due {
            check("log_key", keys.log_key.is_none_or(|k| k == open.log_key));
            check(
                "epoch_key",
                keys.epoch_key.is_none_or(|k| k == open.epoch_key),
            );
        }
        check(
            "predecessor",
            item.predecessor.is_none_or(|l| l == open.predecessor),
        );
        check(
            "previous",
            keys.note.as_ref().is_none_or(|n| *n == open.previous),
        );
        let frontier = keys.note_frontier.as_ref();
        check("frontier", frontier.is_none_or(|f| *f == open.frontier));
        wrong
    }

    /// Behind a broken hand-over the state before rules on, but for the keys of an announced
    /// generation, which only this segment can name.
    fn go_on(&mut self, open: &SegmentOpen) {
        if self.generation_due {
            let next = |g: Generation| Generation(g.0.saturating_add(1));
            self.keys.generation = self.keys.generation.map(next);
            self.keys.log_key = Some(open.log_key);
            self.keys.epoch_key = Some(open.epoch_key);
        }
    }

    /// Takes over what is unknown; everything, when the state before is not to be relied on.
    fn adopt(&mut self, item: &Item<'_>, open: SegmentOpen, replace: bool) {
        let keys = &mut self.keys;
        let all = replace || self.generation_due;
        if all || keys.ledger_id.is_none() {
            keys.ledger_id = Some(open.ledger_id);
        }
        if all || keys.generation.is_none() {
            keys.generation = Some(open.generation);
        }
        if all || keys.log_key.is_none() {
            keys.log_key = Some(open.log_key);
        }
        if all || keys.epoch_key.is_none() {
            keys.epoch_key = Some(open.epoch_key);
        }
        if replace || keys.note.is_none() {
            keys.note = Some(open.previous.clone());
            keys.note_frontier = Some(open.frontier.clone());
        }
        self.identify(open.ledger_id, open.generation, open.log_key);
        if replace && self.segment.0 != 0 {
            self.tree = None;
        }
        let link = item.frame.link;
        if self.tree.is_none() && !self.tree_lost {
            self.tree = tree_before(&open, self.segment.0);
            self.grow(leaf_hash(&link));
        }
        self.open = Some((open, link));
    }

    fn checkpoint(&mut self, item: &Item<'_>, note: &[u8], root: Root) {
        let seq = item.frame.prefix.seq;
        self.keys.note = Some(Some(note.to_vec()));
        self.keys.note_frontier = root.as_ref().map(|(_, hashes)| hashes.clone());
        let parsed = match Checkpoint::parse(note) {
            Ok(parsed) => parsed,
            Err(error) => {
                let finding = self.about(Code::CheckpointMalformed, item);
                return self.find(finding.saying(error.to_string()));
            }
        };
        if let Some(finding) = self.misdescribed(item, &parsed) {
            return self.find(finding);
        }
        match self.signatures_good(item, &parsed) {
            Some(Ok(())) => {}
            Some(Err(text)) => {
                let finding = self.about(Code::CheckpointSignature, item).saying(text);
                return self.find(finding);
            }
            None => return,
        }
        if let Some((root, _)) = &root
            && *root != parsed.root
        {
            let finding = self
                .about(Code::CheckpointRoot, item)
                .between(short(root), short(&parsed.root))
                .saying("root of the frames before it");
            if self.out.findings.total() > 0 {
                return self.out.follows.push(finding);
            }
            return self.find(finding);
        }
        let judged = root.is_some() || self.rules.quick;
        if judged && !item.altered {
            self.out.newest = Some(GoodCheckpoint {
                size: seq.0,
                time: item.frame.appended_at,
                note: note.to_vec(),
                generation: parsed.origin.generation(),
                segment: self.segment,
                offset: ledger_format::ByteOffset(item.offset),
            });
            if self.out.name.is_none() {
                self.out.name = Some(parsed.origin.name().to_owned());
            }
        }
    }

    fn misdescribed(&self, item: &Item<'_>, parsed: &Checkpoint<'_>) -> Option<Finding> {
        let about = || self.about(Code::CheckpointMalformed, item);
        if parsed.note.lines.len() < 2 {
            return Some(about().saying("fewer than two signature lines"));
        }
        let seq = item.frame.prefix.seq.0;
        if parsed.size != seq {
            return Some(about().between(format!("size {seq}"), format!("size {}", parsed.size)));
        }
        let origin = &parsed.origin;
        let name = self.out.name.as_ref().or(self.rules.name.as_ref());
        let fits = name.is_none_or(|n| n == origin.name())
            && self.keys.ledger_id.is_none_or(|id| origin.names(&id))
            && self
                .keys
                .generation
                .is_none_or(|g| g == origin.generation());
        (!fits).then(|| about().saying(format!("origin {origin} is not this segment's")))
    }

    /// None when the keys of the segment are not known.
    fn signatures_good(
        &self,
        item: &Item<'_>,
        parsed: &Checkpoint<'_>,
    ) -> Option<Result<(), String>> {
        let (log, epoch) = (self.keys.log_key?, self.keys.epoch_key?);
        if let Some(signed) = &item.signed
            && signed.log_key == log
            && signed.epoch_key == epoch
            && signed.good
        {
            return Some(Ok(()));
        }
        let log = parsed.origin.log_verifier(log);
        let epoch = parsed.origin.epoch_verifier(epoch);
        Some(
            parsed
                .verify_in_chain(&log, &epoch)
                .map_err(|e| e.to_string()),
        )
    }

    fn close(&mut self, item: &Item<'_>, close: &Close) {
        if self.stage == Stage::Open && !item.altered {
            self.close_key = Some(close.epoch_key);
        }
        let other = self
            .planned
            .as_ref()
            .is_some_and(|p| p.epoch_key != close.epoch_key);
        if other {
            let detail = "the close names another epoch key than the generation before it";
            let finding = self.about(Code::GenerationBroken, item).saying(detail);
            self.find(finding);
        }
    }

    fn generation(&mut self, item: &Item<'_>, bytes: &[u8], body: GenerationBody) {
        let unplanned = self.before == Some(Kind::SegmentOpen) && self.generation_due;
        self.opens_generation |= unplanned && body.frontier.is_some();
        if unplanned {
            self.give_tree(item, &body);
        }
        let wrong = match GenerationBody::decode(bytes) {
            Err(BodyError::Value("set_aside")) => Some("its reason and set_aside do not fit"),
            Err(error) => return self.malformed(item, &error),
            Ok(_) => self.contradiction(item, &body, unplanned),
        };
        let again = std::mem::replace(&mut self.generation_seen, true);
        if let Some(wrong) = wrong.or(again.then_some("a second generation in one segment")) {
            let finding = self.about(Code::GenerationBroken, item).saying(wrong);
            return self.find(finding);
        }
        // It rests on a segment_open in which something was found already.
        if unplanned && self.open.is_none() {
            let finding = self.about(Code::GenerationBroken, item);
            return self.out.follows.push(finding);
        }
        if !item.altered {
            let number = body.generation;
            self.out.generations.push(GenerationSeen {
                number,
                segment: self.segment,
                seq: item.frame.prefix.seq,
                offset: ledger_format::ByteOffset(item.offset),
                planned: !unplanned,
                reason: body.reason.clone(),
                time: item.frame.appended_at,
                covered: false,
            });
            if let (false, Some(id)) = (unplanned, self.keys.ledger_id) {
                self.identify(id, number, body.log_key);
            }
        }
        if let Some(aside) = body.set_aside {
            let detail = format!(
                "{} bytes from segment {} offset {} on were set aside by the operator",
                aside.length, aside.segment, aside.offset
            );
            let finding = self.about(Code::EvidenceSetAside, item).saying(detail);
            self.find(finding);
        }
        if !unplanned && !item.altered {
            self.planned = Some(body);
        }
    }

    /// Behind an unclosed segment the generation frame carries the tree at the segment's start.
    fn give_tree(&mut self, item: &Item<'_>, body: &GenerationBody) {
        let (Some((_, open_link)), Some(hashes)) = (&self.open, &body.frontier) else {
            return;
        };
        if self.tree.is_some() || self.tree_lost || item.altered {
            return;
        }
        let open_link = *open_link;
        self.tree = Frontier::from_hashes(self.segment.0, hashes);
        self.grow(leaf_hash(&open_link));
        self.grow(leaf_hash(&item.frame.link));
    }

    fn contradiction(
        &self,
        item: &Item<'_>,
        body: &GenerationBody,
        unplanned: bool,
    ) -> Option<&'static str> {
        let old = if unplanned {
            &self.start.keys
        } else {
            &self.keys
        };
        if old
            .generation
            .is_some_and(|g| g.0.checked_add(1) != Some(body.generation.0))
        {
            return Some("its number is not the old one plus 1");
        }
        if old.log_key.is_some_and(|k| k == body.log_key) {
            return Some("its log key is the old one");
        }
        if !unplanned {
            if body.frontier.is_some() {
                return Some("a planned generation carries no frontier");
            }
            return (item.frame.prefix.write.count != 1)
                .then_some("a planned generation is a write of its own");
        }
        let Some(hashes) = &body.frontier else {
            return Some("an unplanned generation carries a frontier");
        };
        let fits = match &self.start.tree {
            Some(tree) => tree.hashes() == *hashes,
            None => hashes.len() as u64 == u64::from(self.segment.0.count_ones()),
        };
        if !fits && !self.start.previous.is_some_and(|p| p.flawed) {
            return Some("its frontier is not the tree's at the start of the segment");
        }
        let (open, _) = self.open.as_ref()?;
        let same = open.generation == body.generation
            && open.log_key == body.log_key
            && open.epoch_key == body.epoch_key;
        (!same).then_some("its keys or number are not those of segment_open")
    }

    fn cosignature(&mut self, item: &Item<'_>, body: &CosignatureBody) {
        let text = format!(
            "{} witness lines for checkpoint {}, not checked",
            body.lines.lines().count(),
            body.checkpoint
        );
        self.note("cosignature", item, text);
    }

    fn erasure(&mut self, item: &Item<'_>, body: &Erasure) {
        let text = format!(
            "payload files of class {} ended in {} segments by rule {:?}; their digests stay",
            body.class,
            body.segments.len(),
            body.rule
        );
        self.note("erasure", item, text);
    }

    fn recovery(&mut self, item: &Item<'_>, body: &Recovery) {
        let text = format!("{} bytes of an unfinished write set aside", body.length);
        self.note("recovery", item, text);
    }

    fn note(&mut self, kind: &'static str, item: &Item<'_>, text: String) {
        self.out.notes.push(Note {
            kind,
            seq: Some(item.frame.prefix.seq.0),
            time: Some(item.frame.appended_at.to_rfc3339()),
            text,
        });
    }
}

/// The tree at `first` from what a segment_open carries; unknown when frames lie between.
fn tree_before(open: &SegmentOpen, first: u64) -> Option<Frontier> {
    let size = Checkpoint::parse(open.previous.as_ref()?).ok()?.size;
    let mut tree = Frontier::from_hashes(size, &open.frontier)?;
    if size.checked_add(1)? != first {
        return None;
    }
    tree.push(leaf_hash(&open.predecessor));
    Some(tree)
}

/// The first six bytes in hex: enough to compare by eye.
pub(crate) fn short(hash: &[u8; 32]) -> String {
    let hex = Link(*hash).to_hex();
    format!("{}...", hex.get(..12).unwrap_or_default())
}
