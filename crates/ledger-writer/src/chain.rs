//! The tip of the chain and the control frames that are pushed onto it.
//!
//! Pure bytes: nothing here touches the disk. A frame that was pushed is linked and in the tree;
//! whether it is on the disk is the business of whoever writes the buffer.

use ledger_format::{
    ControlParts, FrameBuilder, Frontier, Generation, Kind, LedgerId, Link, Origin, Seq,
    UnixMillis, WriteNumbers, checkpoint_body, checkpoint_text, leaf_hash, signed_checkpoint,
};
use ledger_vault::{AssociatedData, EpochKey, LogKey, TagKey};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The clock as read; 0 before 1970, capped at the format's limit.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    UnixMillis(millis.min(ledger_format::limits::TIME_MAX))
}

/// Frames from some number on: links and times.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    pub(crate) first: Seq,
    pub(crate) frames: Vec<(Link, UnixMillis)>,
}

impl Recent {
    pub(crate) fn get(&self, seq: Seq) -> Option<(Link, UnixMillis)> {
        let at = seq.0.checked_sub(self.first.0)?;
        self.frames.get(usize::try_from(at).ok()?).copied()
    }

    /// Takes the frames below a number out.
    pub(crate) fn take_below(&mut self, seq: Seq) -> Self {
        let n = usize::try_from(seq.0.saturating_sub(self.first.0)).unwrap_or(usize::MAX);
        let kept = self.frames.split_off(n.min(self.frames.len()));
        let taken = std::mem::replace(&mut self.frames, kept);
        let first = std::mem::replace(&mut self.first, seq);
        Self {
            first,
            frames: taken,
        }
    }
}

/// Where the chain ends.
#[derive(Debug)]
pub(crate) struct Tip {
    /// The number that stands next.
    pub(crate) next: Seq,
    /// Link of the last frame.
    pub(crate) link: Link,
    /// The tree over all frames.
    pub(crate) tree: Frontier,
    /// Frames that nothing was derived from yet.
    pub(crate) recent: Recent,
}

impl Tip {
    pub(crate) fn genesis() -> Self {
        Self::new(Seq(0), Link::ZERO, Frontier::empty())
    }

    pub(crate) fn new(next: Seq, link: Link, tree: Frontier) -> Self {
        Self {
            next,
            link,
            tree,
            recent: Recent {
                first: next,
                frames: Vec::new(),
            },
        }
    }

    /// The same place, without what led there.
    pub(crate) fn place(&self) -> Self {
        Self::new(self.next, self.link, self.tree.clone())
    }

    /// Takes the frame `next` with this link and time into the chain.
    pub(crate) fn advance(&mut self, link: Link, at: UnixMillis) {
        self.recent.frames.push((link, at));
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

    /// The origin as receipts spell it.
    pub(crate) fn origin_text(&self) -> Arc<str> {
        self.origin.to_string().into()
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
        let at = now();
        let parts = ControlParts {
            seq: tip.next,
            kind,
            write,
            appended_at: at,
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
        tip.advance(link, at);
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
