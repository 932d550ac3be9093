//! A ledger that no honest writer makes: its chain is sound, its sections and texts are not what they should be.
//!
//! Not a second writer: one segment, written at once.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use ledger_format::{
    Close, ControlParts, Erasure, FRAMES_MAGIC, FrameBuilder, Frontier, Generation, Genesis, Kind,
    Link, Origin, RecordParts, SUITE, SegmentOpen, Seq, UnixMillis, WriteNumbers, checkpoint_body,
    checkpoint_text, leaf_hash, signed_checkpoint,
};
use ledger_records::{Record, encode_body};
use ledger_vault::{
    AssociatedData, EpochKey, Identities, KeyDir, LogKey, Recipients, SaltSource, SegmentKeys,
    envelope_sealed_len,
};

use crate::bench::{Bench, MEMORY, RUN};

/// Text that clears a screen and turns the reading direction.
pub(crate) const RULE: &str = "\u{1b}[2J\u{202e}gpj.exe\u{9b}31m";

struct Forger {
    bytes: Vec<u8>,
    link: Link,
    next: u64,
    tree: Frontier,
    keys: SegmentKeys,
}

impl Forger {
    fn control(
        &mut self,
        kind: Kind,
        write: WriteNumbers,
        body: &[u8],
        tag: impl FnOnce(&AssociatedData) -> Vec<u8>,
    ) {
        let parts = ControlParts {
            seq: Seq(self.next),
            kind,
            write,
            appended_at: UnixMillis(1_796_000_000_000),
            body,
        };
        let builder = FrameBuilder::control(&mut self.bytes, &parts);
        let mut associated = AssociatedData::new();
        associated.set(&self.link, builder.authenticated_bytes());
        let link = builder.finish(&tag(&associated), &self.link);
        self.push(link);
    }

    fn tagged(&mut self, kind: Kind, body: &[u8]) {
        let key = self.keys.envelope.tag_key();
        self.control(kind, WriteNumbers::ALONE, body, |a| key.tag(a).to_vec());
    }

    /// A record frame with this body and the envelope of that record.
    fn record(&mut self, body: &[u8], enveloped: &Record, spoil: bool) {
        let seq = Seq(self.next);
        let salt = SaltSource::fresh().unwrap().record_salt(seq, body);
        let sealer = self.keys.data.body_sealer(seq, &salt);
        let commitment = sealer.commitment().0;
        let mut sealed = Vec::new();
        sealer.seal(body, &mut sealed).unwrap();
        if spoil {
            sealed[0] ^= 1;
        }
        let canonical = enveloped.to_canonical_cbor();
        let digest = self.keys.envelope.digest_key().record_digest(&canonical).0;
        let envelope = enveloped.to_envelope_cbor(digest);
        let parts = RecordParts {
            seq,
            write: WriteNumbers::ALONE,
            appended_at: UnixMillis(1_796_000_000_001),
            salt: salt.0,
            commitment,
            body: &sealed,
            payload: None,
            envelope_len: envelope_sealed_len(envelope.len()).unwrap(),
        };
        let builder = FrameBuilder::record(&mut self.bytes, &parts);
        let mut associated = AssociatedData::new();
        associated.set(&self.link, builder.authenticated_bytes());
        let mut section = Vec::new();
        self.keys
            .envelope
            .seal_envelope(seq, &salt, &associated, &envelope, &mut section)
            .unwrap();
        let link = builder.finish(&section, &self.link);
        self.push(link);
    }

    fn push(&mut self, link: Link) {
        self.link = link;
        self.next += 1;
        self.tree.push(leaf_hash(&link));
    }
}

/// `audit` with `vault.key`. Frame 2 is honest; 3 has another record's envelope; the body of 4 is spoilt; 5 is a
/// record whose text is hostile; the rule of erasure 6 is hostile too; the tag of recovery 7 is wrong.
pub(crate) fn ledger(bench: &Bench) {
    let made = bench.run(["vault-key", "new", "vault.key"], "");
    let readers = Recipients::parse(&made.out).unwrap();
    let (log, epoch) = (LogKey::generate().unwrap(), EpochKey::generate().unwrap());
    let mut forger = Forger {
        bytes: FRAMES_MAGIC.to_vec(),
        link: Link::ZERO,
        next: 0,
        tree: Frontier::empty(),
        keys: SegmentKeys::generate([]).unwrap(),
    };
    let genesis = Genesis {
        name: "evil\u{202e}.example.com/audit".to_owned(),
        random: [7; 32],
        log_key: log.public(),
        epoch_key: epoch.public(),
    };
    let id = Genesis::ledger_id(&genesis.encode());
    let two = |index| WriteNumbers { index, count: 2 };
    forger.control(Kind::Genesis, two(0), &genesis.encode(), |a| {
        log.sign_genesis(a).to_vec()
    });
    let commitments = forger.keys.commitments();
    let open = SegmentOpen {
        suite: SUITE.into(),
        log_key: log.public(),
        data_key: commitments.data.0,
        frontier: Vec::new(),
        previous: None,
        epoch_key: epoch.public(),
        ledger_id: id,
        token_key: commitments.token.0,
        generation: Generation(0),
        predecessor: forger.link,
        envelope_key: commitments.envelope.0,
        payload_keys: BTreeMap::new(),
    };
    forger.control(Kind::SegmentOpen, two(1), &open.encode(), |a| {
        epoch.sign_segment_open(a).to_vec()
    });
    records(&mut forger);
    let erasure = Erasure {
        rule: RULE.to_owned(),
        class: "30d".to_owned(),
        segments: vec![Seq(0)],
    };
    forger.tagged(Kind::Erasure, &erasure.encode());
    let recovery = ledger_format::Recovery {
        hash: [1; 32],
        length: 0,
        offset: ledger_format::ByteOffset(17),
        segment: Seq(0),
    };
    forger.control(
        Kind::Recovery,
        WriteNumbers::ALONE,
        &recovery.encode(),
        |_| vec![0; 16],
    );
    let close = Close {
        payloads: BTreeMap::new(),
        epoch_key: [9; 32],
        index_root: None,
    };
    forger.tagged(Kind::SegmentClose, &close.encode());
    let origin = Origin::new(&genesis.name, &id, Generation(0)).unwrap();
    let text = checkpoint_text(&origin, forger.next, &forger.tree.root());
    let signatures = (log.sign(text.as_bytes()), epoch.sign(text.as_bytes()));
    let note = signed_checkpoint(
        &origin,
        &text,
        (&log.public(), &signatures.0),
        (&epoch.public(), &signatures.1),
    );
    forger.tagged(Kind::Checkpoint, &checkpoint_body(note.as_bytes()));
    write(bench, &forger, &readers);
}

fn records(forger: &mut Forger) {
    let run = Record::from_json(RUN.as_bytes()).unwrap();
    let memory = Record::from_json(MEMORY.as_bytes()).unwrap();
    let hostile = RUN.replace("oncall@example.com", "\u{202e}moc.elpmaxe");
    let hostile = Record::from_json(hostile.as_bytes()).unwrap();
    let body = |record: &Record| encode_body(&record.to_canonical_cbor(), None);
    forger.record(&body(&run), &run, false);
    forger.record(&body(&run), &memory, false);
    forger.record(&body(&run), &run, true);
    forger.record(&body(&hostile), &hostile, false);
}

fn write(bench: &Bench, forger: &Forger, readers: &Recipients) {
    let segments = bench.path("audit/segments");
    std::fs::create_dir_all(&segments).unwrap();
    std::fs::write(bench.frames(0), &forger.bytes).unwrap();
    let dir = std::fs::File::open(&segments).unwrap();
    let operational = Identities::generate().newest_recipient().unwrap();
    let files = forger.keys.wrap(readers, &operational).unwrap();
    files
        .write(KeyDir::new(dir.as_fd(), &segments), Seq(0))
        .unwrap();
}
