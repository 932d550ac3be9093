//! What authenticates control frames (section 11.5), and the associated data they share with envelopes.
//!
//! Not the verification of signatures: that is keyless and lives with the frame reader.

use ledger_format::{Context, Link, SUITE, derive};
use subtle::ConstantTimeEq;

use crate::keys::{TagKey, first_16};
use crate::signing::{EpochKey, LogKey};

/// A of section 11: `u8 suite ‖ predecessor link ‖ frame bytes up to the authenticating item`.
///
/// Reusable: a writer keeps one and [`set`](Self::set)s it for every frame. Nothing in it is secret.
#[derive(Clone, Debug, Default)]
pub struct AssociatedData(Vec<u8>);

impl AssociatedData {
    /// Empty, for [`set`](Self::set).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the content: the link of the frame before, and the frame's bytes from its array head
    /// up to, not including, the envelope or tag item.
    pub fn set(&mut self, predecessor: &Link, frame_prefix: &[u8]) {
        self.0.clear();
        self.0.reserve(33 + frame_prefix.len());
        self.0.push(SUITE);
        self.0.extend_from_slice(&predecessor.0);
        self.0.extend_from_slice(frame_prefix);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A control frame's tag is not the one its bytes have under this segment's envelope key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the control frame's tag does not verify: it was not written by the holder of this segment's envelope key"
)]
pub struct TagMismatch;

impl TagKey {
    /// The tag of a control frame other than genesis and segment_open.
    #[must_use]
    pub fn tag(&self, associated: &AssociatedData) -> [u8; 16] {
        first_16(blake3::keyed_hash(self.0.expose(), associated.as_bytes()))
    }

    /// Checks a tag in constant time.
    ///
    /// # Errors
    /// It is another one.
    pub fn verify(&self, associated: &AssociatedData, tag: &[u8; 16]) -> Result<(), TagMismatch> {
        if self.tag(associated).ct_eq(tag).into() {
            Ok(())
        } else {
            Err(TagMismatch)
        }
    }
}

impl LogKey {
    /// The tag of genesis: a signature over `H(genesis-signature, A)`.
    #[must_use]
    pub fn sign_genesis(&self, associated: &AssociatedData) -> [u8; 64] {
        self.sign(&derive(Context::GenesisSignature, associated.as_bytes()))
    }
}

impl EpochKey {
    /// The tag of segment_open: a signature over `H(open-signature, A)`.
    #[must_use]
    pub fn sign_segment_open(&self, associated: &AssociatedData) -> [u8; 64] {
        self.sign(&derive(Context::OpenSignature, associated.as_bytes()))
    }
}
