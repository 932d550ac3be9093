//! The tip of the chain and the control frames that are pushed onto it.
//!
//! Pure bytes: nothing here touches the disk. A frame that was pushed is linked and in the tree;
//! whether it is on the disk is the business of whoever writes the buffer.

use ledger_format::{
    ControlParts, FrameBuilder, Frontier, Generation, Kind, LedgerId, Link, Origin, Seq,
    UnixMillis, WriteNumbers, checkpoint_body, checkpoint_text, leaf_hash, signed_checkpoint,
};
use ledger_vault::{AssociatedData, EpochKey, LogKey, TagKey};
use std::time::{SystemTime, UNIX_EPOCH};

/// The clock as read; 0 before 1970, capped at the format's limit.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    UnixMillis(millis.min(ledger_format::limits::TIME_MAX))
}

/// Where the chain ends.
#[derive(Clone, Debug)]
pub(crate) struct Tip {
    /// The number that stands next.
    pub(crate) next: Seq,
    /// Link of the last frame.
    pub(crate) link: Link,
    /// The tree over all frames.
    pub(crate) tree: Frontier,
}

impl Tip {
    pub(crate) const fn genesis() -> Self {
        Self {
            next: Seq(0),
            link: Link::ZERO,
            tree: Frontier::empty(),
        }
    }

    /// Takes the frame `next` with this link into the chain.
    pub(crate) fn advance(&mut self, link: Link) {
        self.tree.push(leaf_hash(&link));
        self.link = link;
        self.next = self.next.next();
    }
}

/// Who signs: the ledger, its generation, the keys in force.
#[derive(Debug)]
pub(crate) struct Signers {
    pub(crate) id: LedgerId,
    pub(crate) origin: Origin,
    pub(crate) log_key: LogKey,
    pub(crate) epoch_key: EpochKey,
}

impl Signers {
    pub(crate) fn generation(&self) -> Generation {
        self.origin.generation()
    }
}

/// What authenticates a control frame (section 11.5).
pub(crate) enum Tagger<'k> {
    Tag(&'k TagKey),
    Genesis(&'k LogKey),
    Open(&'k EpochKey),
}

/// A write under construction: frames at the end of one buffer.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    pub(crate) bytes: Vec<u8>,
    associated: AssociatedData,
}

impl WriteBuffer {
    /// Pushes a control frame onto the chain.
    pub(crate) fn control(
        &mut self,
        tip: &mut Tip,
        kind: Kind,
        write: WriteNumbers,
        body: &[u8],
        by: &Tagger<'_>,
    ) {
        let parts = ControlParts {
            seq: tip.next,
            kind,
            write,
            appended_at: now(),
            body,
        };
        let builder = FrameBuilder::control(&mut self.bytes, &parts);
        self.associated
            .set(&tip.link, builder.authenticated_bytes());
        let link = match by {
            Tagger::Tag(key) => builder.finish(&key.tag(&self.associated), &tip.link),
            Tagger::Genesis(key) => builder.finish(&key.sign_genesis(&self.associated), &tip.link),
            Tagger::Open(key) => {
                builder.finish(&key.sign_segment_open(&self.associated), &tip.link)
            }
        };
        tip.advance(link);
    }

    /// Pushes a checkpoint over everything before it, a write of its own; returns its note.
    pub(crate) fn checkpoint(
        &mut self,
        tip: &mut Tip,
        signers: &Signers,
        tag_key: &TagKey,
    ) -> String {
        let text = checkpoint_text(&signers.origin, tip.next.0, &tip.tree.root());
        let log = (
            signers.log_key.public(),
            signers.log_key.sign(text.as_bytes()),
        );
        let epoch = (
            signers.epoch_key.public(),
            signers.epoch_key.sign(text.as_bytes()),
        );
        let note = signed_checkpoint(
            &signers.origin,
            &text,
            (&log.0, &log.1),
            (&epoch.0, &epoch.1),
        );
        let body = checkpoint_body(note.as_bytes());
        self.control(
            tip,
            Kind::Checkpoint,
            WriteNumbers::ALONE,
            &body,
            &Tagger::Tag(tag_key),
        );
        note
    }

    /// The scratch space for associated data, for record frames.
    pub(crate) fn parts(&mut self) -> (&mut Vec<u8>, &mut AssociatedData) {
        (&mut self.bytes, &mut self.associated)
    }
}
