//! A small ledger made with test keys: what tests and the speed example check.
//!
//! It has the shape of a real one (genesis, hand-overs, checkpoints, a final one in each closed
//! segment); its sealed sections are filler, since a keyless reader cannot tell.

use ed25519_dalek::{Signer, SigningKey};
use ledger_format::{
    Checkpoint, Close, Context, ControlParts, FRAMES_MAGIC, FrameBuilder, Frontier, Generation,
    Genesis, Kind, LedgerId, Link, Origin, RecordParts, Recovery, SegmentOpen, Seq, UnixMillis,
    WriteNumbers, checkpoint_body, checkpoint_text, derive_parts, leaf_hash, signed_checkpoint,
};
use std::fs;
use std::path::Path;

/// 2026-11-30T17:00:00Z.
pub const START: u64 = 1_796_058_000_000;

/// What the ledger looks like.
#[derive(Clone, Copy)]
pub struct Shape {
    pub segments: usize,
    pub writes: usize,
    pub records_per_write: usize,
    pub writes_per_checkpoint: usize,
    pub body: usize,
    pub envelope: usize,
    /// Whether the last segment is closed too.
    pub closed: bool,
    /// Uncovered writes at the end of an open last segment.
    pub tail_writes: usize,
}

impl Shape {
    pub const SMALL: Self = Self {
        segments: 3,
        writes: 6,
        records_per_write: 3,
        writes_per_checkpoint: 2,
        body: 300,
        envelope: 272,
        closed: false,
        tail_writes: 0,
    };
}

/// A ledger under construction.
pub struct Maker {
    log: SigningKey,
    epochs: u8,
    origin: Option<Origin>,
    id: LedgerId,
    seq: u64,
    link: Link,
    tree: Frontier,
    previous: Option<(Vec<u8>, Vec<[u8; 32]>)>,
    out: Vec<u8>,
    pub segments: Vec<(u64, Vec<u8>)>,
}

fn epoch(n: u8) -> SigningKey {
    SigningKey::from_bytes(&[n.wrapping_add(100); 32])
}

impl Maker {
    pub fn new(log_seed: u8) -> Self {
        Self {
            log: SigningKey::from_bytes(&[log_seed; 32]),
            epochs: 0,
            origin: None,
            id: LedgerId([0; 32]),
            seq: 0,
            link: Link::ZERO,
            tree: Frontier::empty(),
            previous: None,
            out: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// A whole ledger of that shape.
    pub fn ledger(shape: Shape) -> Self {
        let mut maker = Self::new(1);
        for n in 0..shape.segments {
            maker.open();
            for i in 0..shape.writes {
                maker.write(shape.records_per_write, shape.body, shape.envelope);
                if (i + 1) % shape.writes_per_checkpoint == 0 {
                    maker.checkpoint();
                }
            }
            if n + 1 < shape.segments || shape.closed {
                maker.close();
            } else {
                for _ in 0..shape.tail_writes {
                    maker.write(shape.records_per_write, shape.body, shape.envelope);
                }
                maker.end_file();
            }
        }
        maker
    }

    pub fn save(&self, dir: &Path) {
        for (first, bytes) in &self.segments {
            fs::write(dir.join(format!("{first:020}.frames")), bytes).unwrap();
        }
    }

    pub fn trust_line(&self) -> String {
        let origin = self.origin.as_ref().unwrap();
        origin
            .log_verifier(self.log.verifying_key().to_bytes())
            .to_string()
    }

    /// The newest checkpoint's note.
    pub fn newest(&self) -> Vec<u8> {
        self.previous.as_ref().unwrap().0.clone()
    }

    fn control(&mut self, kind: Kind, write: WriteNumbers, body: &[u8], key: Option<&SigningKey>) {
        let parts = ControlParts {
            seq: Seq(self.seq),
            kind,
            write,
            appended_at: UnixMillis(START + self.seq),
            body,
        };
        let builder = FrameBuilder::control(&mut self.out, &parts);
        let context = match kind {
            Kind::Genesis => Context::GenesisSignature,
            _ => Context::OpenSignature,
        };
        let tag = match key {
            Some(key) => {
                let suite = [ledger_format::SUITE];
                let parts = [&suite[..], &self.link.0, builder.authenticated_bytes()];
                key.sign(&derive_parts(context, &parts)).to_bytes().to_vec()
            }
            None => vec![7; 16],
        };
        self.link = builder.finish(&tag, &self.link);
        self.advance();
    }

    fn advance(&mut self) {
        self.tree.push(leaf_hash(&self.link));
        self.seq += 1;
    }

    pub fn open(&mut self) {
        let first = self.seq;
        self.out = FRAMES_MAGIC.to_vec();
        self.segments.push((first, Vec::new()));
        let log = self.log.clone();
        let key = epoch(self.epochs);
        let mut write = WriteNumbers::ALONE;
        if first == 0 {
            let genesis = Genesis {
                name: "audit.example.com/agent".into(),
                random: [9; 32],
                log_key: log.verifying_key().to_bytes(),
                epoch_key: key.verifying_key().to_bytes(),
            };
            let body = genesis.encode();
            self.id = Genesis::ledger_id(&body);
            let origin = Origin::new(&genesis.name, &self.id, Generation(0)).unwrap();
            self.origin = Some(origin);
            self.control(
                Kind::Genesis,
                WriteNumbers { index: 0, count: 2 },
                &body,
                Some(&log),
            );
            write = WriteNumbers { index: 1, count: 2 };
        }
        let open = SegmentOpen {
            suite: 1,
            log_key: log.verifying_key().to_bytes(),
            data_key: [1; 32],
            frontier: self
                .previous
                .as_ref()
                .map(|p| p.1.clone())
                .unwrap_or_default(),
            previous: self.previous.as_ref().map(|p| p.0.clone()),
            epoch_key: key.verifying_key().to_bytes(),
            ledger_id: self.id,
            token_key: [2; 32],
            generation: Generation(0),
            predecessor: self.link,
            envelope_key: [3; 32],
            payload_keys: std::collections::BTreeMap::new(),
        };
        self.control(Kind::SegmentOpen, write, &open.encode(), Some(&key));
    }

    pub fn write(&mut self, records: usize, body: usize, envelope: usize) {
        let fill = vec![(self.seq % 251) as u8; body.max(envelope)];
        for index in 0..records {
            let parts = RecordParts {
                seq: Seq(self.seq),
                write: WriteNumbers {
                    index: index as u32,
                    count: records as u32,
                },
                appended_at: UnixMillis(START + self.seq),
                salt: [5; 16],
                commitment: [6; 32],
                body: &fill[..body],
                payload: None,
                envelope_len: envelope,
            };
            let builder = FrameBuilder::record(&mut self.out, &parts);
            self.link = builder.finish(&fill[..envelope], &self.link);
            self.advance();
        }
    }

    pub fn recovery(&mut self) {
        let body = Recovery {
            hash: [4; 32],
            length: 212,
            offset: ledger_format::ByteOffset(900),
            segment: Seq(self.segments.last().unwrap().0),
        };
        self.control(Kind::Recovery, WriteNumbers::ALONE, &body.encode(), None);
    }

    pub fn checkpoint(&mut self) {
        let origin = self.origin.clone().unwrap();
        let text = checkpoint_text(&origin, self.tree.size(), &self.tree.root());
        let key = epoch(self.epochs);
        let sign = |k: &SigningKey| {
            (
                k.verifying_key().to_bytes(),
                k.sign(text.as_bytes()).to_bytes(),
            )
        };
        let (log, epoch) = (sign(&self.log), sign(&key));
        let note = signed_checkpoint(&origin, &text, (&log.0, &log.1), (&epoch.0, &epoch.1));
        assert!(Checkpoint::parse(note.as_bytes()).is_ok());
        self.previous = Some((note.clone().into_bytes(), self.tree.hashes()));
        self.control(
            Kind::Checkpoint,
            WriteNumbers::ALONE,
            &checkpoint_body(note.as_bytes()),
            None,
        );
    }

    pub fn close(&mut self) {
        let close = Close {
            payloads: std::collections::BTreeMap::new(),
            epoch_key: epoch(self.epochs + 1).verifying_key().to_bytes(),
            index_root: None,
        };
        self.control(
            Kind::SegmentClose,
            WriteNumbers::ALONE,
            &close.encode(),
            None,
        );
        self.checkpoint();
        self.epochs += 1;
        self.end_file();
    }

    pub fn end_file(&mut self) {
        self.segments.last_mut().unwrap().1 = std::mem::take(&mut self.out);
    }
}
