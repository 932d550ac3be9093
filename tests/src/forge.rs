//! What an attacker can build: frames from stolen keys, or from none.

use crate::chain::StoredFrame;
use ledger_format::{
    ControlParts, FrameBuilder, Frontier, Kind, Link, Origin, RecordParts, Seq, UnixMillis,
    WriteNumbers, checkpoint_body, checkpoint_text, leaf_hash, signed_checkpoint,
};
use ledger_vault::{AssociatedData, EpochKey, LogKey, TagKey};

/// A chain that is being forged: where it ends, and its tree.
#[derive(Clone, Debug)]
pub struct Tip {
    /// Next number.
    pub next: Seq,
    /// Last link.
    pub link: Link,
    /// Tree over all before.
    pub tree: Frontier,
}

impl Tip {
    /// Behind these frames.
    #[must_use]
    pub fn behind(frames: &[StoredFrame]) -> Self {
        let mut tip = Self {
            next: Seq(0),
            link: Link::ZERO,
            tree: Frontier::empty(),
        };
        for stored in frames {
            tip.take(stored.frame().link);
        }
        tip
    }

    fn take(&mut self, link: Link) {
        self.tree.push(leaf_hash(&link));
        self.link = link;
        self.next = self.next.next();
    }

    /// Takes a frame as it is, its link made anew for this chain. Its number must fit.
    ///
    /// # Panics
    /// Its number does not fit.
    pub fn relink(&mut self, frame: &StoredFrame) -> Vec<u8> {
        assert_eq!(frame.seq(), self.next);
        let mut bytes = frame.bytes.clone();
        let link = frame.frame().compute_link(&self.link);
        let at = bytes.len() - 32;
        bytes[at..].copy_from_slice(&link.0);
        self.take(link);
        bytes
    }

    /// A control frame with the tag of a key, or of none.
    pub fn control(&mut self, kind: Kind, body: &[u8], tag: Option<&TagKey>) -> Vec<u8> {
        let mut out = Vec::new();
        let appended_at = UnixMillis(1_796_000_000_000);
        let parts = ControlParts {
            seq: self.next,
            kind,
            write: WriteNumbers::ALONE,
            appended_at,
            body,
        };
        let builder = FrameBuilder::control(&mut out, &parts);
        let mut associated = AssociatedData::new();
        associated.set(&self.link, builder.authenticated_bytes());
        let tag = tag.map_or([0x5a; 16], |key| key.tag(&associated));
        let link = builder.finish(&tag, &self.link);
        self.take(link);
        out
    }

    /// A segment_open in a write of its own, signed by this key.
    pub fn segment_open(&mut self, body: &[u8], epoch: &EpochKey) -> Vec<u8> {
        let mut out = Vec::new();
        let appended_at = UnixMillis(1_796_000_000_000);
        let parts = ControlParts {
            seq: self.next,
            kind: Kind::SegmentOpen,
            write: WriteNumbers::ALONE,
            appended_at,
            body,
        };
        let builder = FrameBuilder::control(&mut out, &parts);
        let mut associated = AssociatedData::new();
        associated.set(&self.link, builder.authenticated_bytes());
        let link = builder.finish(&epoch.sign_segment_open(&associated), &self.link);
        self.take(link);
        out
    }

    /// A checkpoint over all before, signed by these keys.
    pub fn checkpoint(
        &mut self,
        origin: &Origin,
        log: &LogKey,
        epoch: &EpochKey,
        tag: Option<&TagKey>,
    ) -> Vec<u8> {
        let text = checkpoint_text(origin, self.next.0, &self.tree.root());
        let (by_log, by_epoch) = (log.sign(text.as_bytes()), epoch.sign(text.as_bytes()));
        let note = signed_checkpoint(
            origin,
            &text,
            (&log.public(), &by_log),
            (&epoch.public(), &by_epoch),
        );
        self.control(Kind::Checkpoint, &checkpoint_body(note.as_bytes()), tag)
    }

    /// A record frame of noise: good head and link, nothing in it opens.
    pub fn noise_record(&mut self, write: WriteNumbers) -> Vec<u8> {
        let mut out = Vec::new();
        let envelope = [0x77; 272];
        let parts = RecordParts {
            seq: self.next,
            write,
            appended_at: UnixMillis(1_796_000_000_000),
            salt: [1; 16],
            commitment: [2; 32],
            body: &[0x33; 272],
            payload: None,
            envelope_len: envelope.len(),
        };
        let link = FrameBuilder::record(&mut out, &parts).finish(&envelope, &self.link);
        self.take(link);
        out
    }
}
