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
            Kind::Generation => GenerationBody::decode(body).map(|g| self.generation(item, g)),
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
        if !item.sound || !in_place {
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
        if open.suite != u64::from(ledger_format::SUITE) {
            // Only a sound link says that a later program wrote this.
            if !item.sound {
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
        let mismatch = self.mismatches(item, &open);
        if !mismatch.is_empty() {
            let detail = format!("does not continue: {}", mismatch.join(", "));
            let finding = self.about(Code::HandoverBroken, item).saying(detail);
            self.find(finding);
            if self.segment.0 != 0 {
                self.speak_for_itself(&open);
                self.adopt(item, open);
            }
        } else if item.sound {
            self.identify(open.ledger_id, open.generation, open.log_key);
            self.adopt(item, open.clone());
            self.open = Some(open);
        }
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
        let zero = self.segment.0 == 0;
        let expected = if zero { Some(0) } else { generation };
        check(
            "generation",
            expected.is_none_or(|g| g == open.generation.0),
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
        let note = if zero {
            Some(&None)
        } else {
            keys.note.as_ref()
        };
        check("previous", note.is_none_or(|n| *n == open.previous));
        let empty = Vec::new();
        let frontier = if zero {
            Some(&empty)
        } else {
            keys.note_frontier.as_ref()
        };
        check("frontier", frontier.is_none_or(|f| *f == open.frontier));
        wrong
    }

    /// Behind a broken hand-over nothing of the state before holds.
    fn speak_for_itself(&mut self, open: &SegmentOpen) {
        if self.keys.ledger_id.is_some_and(|id| id != open.ledger_id) {
            self.out.name = None;
        }
        self.keys = crate::state::Keys::default();
        self.start.keys = crate::state::Keys::default();
        self.start.tree = None;
        self.tree = None;
    }

    /// Takes over what is unknown, and the keys of an announced generation in any case.
    fn adopt(&mut self, item: &Item<'_>, open: SegmentOpen) {
        let due = self.generation_due;
        let keys = &mut self.keys;
        keys.ledger_id.get_or_insert(open.ledger_id);
        if due || keys.generation.is_none() {
            keys.generation = Some(open.generation);
        }
        if due || keys.log_key.is_none() {
            keys.log_key = Some(open.log_key);
        }
        if due || keys.epoch_key.is_none() {
            keys.epoch_key = Some(open.epoch_key);
        }
        if let (None, Some(note)) = (&self.out.name, &open.previous) {
            let origin = Checkpoint::parse(note).ok().map(|c| c.origin);
            self.out.name = origin
                .filter(|o| o.names(&open.ledger_id))
                .map(|o| o.name().to_owned());
        }
        let link = item.frame.link;
        if self.tree.is_none() && !self.tree_lost {
            self.tree = tree_before(&open, self.segment.0);
            self.grow(leaf_hash(&link));
        }
        self.open_link = Some(link);
        let keys = &mut self.keys;
        if keys.note_frontier.is_none() {
            keys.note_frontier = Some(open.frontier);
        }
        keys.note.get_or_insert(open.previous);
    }

    fn checkpoint(&mut self, item: &Item<'_>, note: &[u8], root: Root) {
        // Until nothing is found wrong with it, the newest note is not known.
        self.keys.note = None;
        self.keys.note_frontier = None;
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
        if let Err(text) = self.signatures(item, &parsed) {
            let finding = self.about(Code::CheckpointSignature, item).saying(text);
            return self.find(finding);
        }
        let mut frontier = root.as_ref().map(|(_, hashes)| hashes.clone());
        if let Some((root, _)) = &root
            && *root != parsed.root
        {
            let finding = self
                .about(Code::CheckpointRoot, item)
                .between(short(root), short(&parsed.root))
                .saying("root of the frames before it");
            if self.out.findings.total() == 0 {
                return self.find(finding);
            }
            self.out.follows.push(finding);
            self.lose_tree();
            frontier = None;
        }
        if item.sound {
            self.keys.note = Some(Some(note.to_vec()));
            self.keys.note_frontier = frontier;
            self.accept(item, note, &parsed);
        }
    }

    /// A checkpoint in which nothing was found wrong.
    fn accept(&mut self, item: &Item<'_>, note: &[u8], parsed: &Checkpoint<'_>) {
        let origin = &parsed.origin;
        let id = self.keys.ledger_id;
        if self.out.name.is_none() && id.is_some_and(|id| origin.names(&id)) {
            self.out.name = Some(origin.name().to_owned());
        }
        // Without keys nobody has signed it.
        if self.keys.log_key.is_none() || self.keys.epoch_key.is_none() {
            return;
        }
        self.out.newest = Some(GoodCheckpoint {
            size: parsed.size,
            time: item.frame.appended_at,
            note: note.to_vec(),
            generation: origin.generation(),
            segment: self.segment,
            offset: ledger_format::ByteOffset(item.offset),
        });
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
        let (Some(id), Some(generation)) = (self.keys.ledger_id, self.keys.generation) else {
            return None;
        };
        let origin = &parsed.origin;
        let name = self.out.name.as_ref();
        let fits = name.is_none_or(|n| n == origin.name())
            && origin.names(&id)
            && origin.generation() == generation;
        (!fits).then(|| about().saying(format!("origin {origin} is not this segment's")))
    }

    /// Each of the two lines whose key is known.
    fn signatures(&self, item: &Item<'_>, parsed: &Checkpoint<'_>) -> Result<(), String> {
        let (log, epoch) = (self.keys.log_key, self.keys.epoch_key);
        if let Some(signed) = &item.signed
            && Some(signed.log_key) == log
            && Some(signed.epoch_key) == epoch
            && signed.good
        {
            return Ok(());
        }
        let keys = [
            log.map(|k| parsed.origin.log_verifier(k)),
            epoch.map(|k| parsed.origin.epoch_verifier(k)),
        ];
        for (line, key) in parsed.note.lines.iter().zip(keys) {
            let Some(key) = key else { continue };
            if line.name != key.name() || line.key_id != key.key_id() {
                return Err(format!("expected a line by key {key}"));
            }
            parsed.note.verify(&key).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn close(&mut self, item: &Item<'_>, close: &Close) {
        let other = self
            .planned
            .as_ref()
            .is_some_and(|p| p.epoch_key != close.epoch_key);
        if other {
            let detail = "the close names another epoch key than the generation before it";
            let finding = self.about(Code::GenerationBroken, item).saying(detail);
            return self.find(finding);
        }
        if self.stage == Stage::Open && item.sound {
            self.close_key = Some(close.epoch_key);
        }
    }

    fn generation(&mut self, item: &Item<'_>, body: GenerationBody) {
        let unplanned = body.frontier.is_some();
        self.opens_generation |= unplanned && self.at_second();
        let wrong = if unplanned {
            self.unplanned_contradiction(&body)
        } else {
            self.planned_contradiction(item, &body)
        };
        self.generation_seen = true;
        if let Some(wrong) = wrong {
            let finding = self.about(Code::GenerationBroken, item).saying(wrong);
            return self.find(finding);
        }
        if item.sound {
            self.out.generations.push(GenerationSeen {
                number: body.generation,
                segment: self.segment,
                seq: item.frame.prefix.seq,
                offset: ledger_format::ByteOffset(item.offset),
                planned: !unplanned,
                reason: body.reason.clone(),
                time: item.frame.appended_at,
                covered: false,
            });
        }
        if let Some(aside) = body.set_aside {
            let detail = format!(
                "{} bytes from segment {} offset {} on were set aside by the operator",
                aside.length, aside.segment, aside.offset
            );
            let finding = self.about(Code::EvidenceSetAside, item).saying(detail);
            self.find(finding);
        }
        if item.sound && unplanned {
            self.give_tree(item, &body);
        } else if item.sound {
            self.planned = Some(body);
        }
    }

    /// Behind an unclosed segment the generation frame carries the tree at the segment's start.
    fn give_tree(&mut self, item: &Item<'_>, body: &GenerationBody) {
        let (Some(open_link), Some(hashes)) = (self.open_link, &body.frontier) else {
            return;
        };
        if self.tree.is_none() && !self.tree_lost {
            self.tree = Frontier::from_hashes(self.segment.0, hashes);
            self.grow(leaf_hash(&open_link));
            self.grow(leaf_hash(&item.frame.link));
        }
    }

    fn planned_contradiction(
        &self,
        item: &Item<'_>,
        body: &GenerationBody,
    ) -> Option<&'static str> {
        if self.keys.log_key.is_some_and(|k| k == body.log_key) {
            return Some("its log key is the old one");
        }
        if self.generation_seen {
            return Some("a second generation in one segment");
        }
        if self.before == Some(Kind::SegmentOpen) && self.generation_due {
            return Some("the segment opens under a new generation, and this carries no frontier");
        }
        if item.frame.prefix.write.count != 1 {
            return Some("a planned generation is a write of its own");
        }
        let next = |g: Generation| g.0.checked_add(1);
        let number = self.keys.generation.map(next);
        let wrong = number.is_some_and(|n| n != Some(body.generation.0));
        wrong.then_some("its number is not the old one plus 1")
    }

    fn unplanned_contradiction(&self, body: &GenerationBody) -> Option<&'static str> {
        if self.start.keys.log_key.is_some_and(|k| k == body.log_key) {
            return Some("its log key is the old one");
        }
        if self.before != Some(Kind::SegmentOpen) || !self.generation_due {
            return Some("it carries a frontier, and no segment opens with it");
        }
        let same = self.open.as_ref().is_none_or(|open| {
            open.generation == body.generation
                && open.log_key == body.log_key
                && open.epoch_key == body.epoch_key
        });
        if !same {
            return Some("its keys or number are not those of segment_open");
        }
        let hashes = body.frontier.as_deref().unwrap_or_default();
        let fits = match &self.start.tree {
            Some(tree) => tree.hashes() == hashes,
            None => hashes.len() as u64 == u64::from(self.segment.0.count_ones()),
        };
        (!fits).then_some("its frontier is not the tree's at the start of the segment")
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
        if self.rules.payloads && item.sound {
            for segment in &body.segments {
                self.out.erased.add(*segment, &body.class);
            }
        }
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
