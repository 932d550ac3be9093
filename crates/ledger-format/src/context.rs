//! Domain separation: one derive-key context a purpose (`ledger-format.md`, section 1).

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use std::sync::LazyLock;

/// A purpose of BLAKE3 in derive-key mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// Check of a frame head (section 4).
    Head,
    /// Chain value of a frame (section 5).
    Link,
    /// Ledger id from the genesis body (section 7).
    LedgerId,
    /// Message under the genesis signature (section 11.5).
    GenesisSignature,
    /// Message under the segment_open signature (section 11.5).
    OpenSignature,
    /// AEAD key and commitment of a section (section 11.2).
    Section,
    /// Commitment to a data key (section 11.1).
    CommitData,
    /// Commitment to an envelope key.
    CommitEnvelope,
    /// Commitment to a token key.
    CommitToken,
    /// Commitment to a payload key.
    CommitPayload,
    /// Control tag key from the envelope key.
    TagKey,
    /// Record digest key from the envelope key.
    DigestKey,
    /// Salt key of the identifier set's leaves from the envelope key (section 18).
    LeafSaltKey,
    /// Key of the digests that replace redacted values.
    GuardKey,
}

const CONTEXTS: [(Context, &str); 14] = [
    (Context::Head, "ledger-format v1 frame head"),
    (Context::Link, "ledger-format v1 link"),
    (Context::LedgerId, "ledger-format v1 ledger id"),
    (
        Context::GenesisSignature,
        "ledger-format v1 genesis signature",
    ),
    (
        Context::OpenSignature,
        "ledger-format v1 segment-open signature",
    ),
    (
        Context::Section,
        "ledger-format v1 section key and commitment",
    ),
    (Context::CommitData, "ledger-format v1 key commitment data"),
    (
        Context::CommitEnvelope,
        "ledger-format v1 key commitment envelope",
    ),
    (
        Context::CommitToken,
        "ledger-format v1 key commitment token",
    ),
    (
        Context::CommitPayload,
        "ledger-format v1 key commitment payload",
    ),
    (Context::TagKey, "ledger-format v1 control tag key"),
    (Context::DigestKey, "ledger-format v1 record digest key"),
    (Context::LeafSaltKey, "ledger-format v1 index leaf salt key"),
    (Context::GuardKey, "ledger-format v1 redaction digest key"),
];

// Hashing the context string costs as much as hashing a frame head: do it once a process.
static CONTEXT_KEYS: LazyLock<[ContextKey; 14]> =
    LazyLock::new(|| CONTEXTS.map(|(_, text)| hash_derive_key_context(text)));

impl Context {
    /// The context string itself.
    #[must_use]
    pub fn text(self) -> &'static str {
        CONTEXTS[self as usize].1
    }

    fn hasher(self) -> blake3::Hasher {
        blake3::Hasher::new_from_context_key(&CONTEXT_KEYS[self as usize])
    }
}

/// `H(context, input)` of the specification.
#[must_use]
pub fn derive(context: Context, input: &[u8]) -> [u8; 32] {
    *context.hasher().update(input).finalize().as_bytes()
}

/// `H(context, a ‖ b ‖ ...)` without joining the parts first.
#[must_use]
pub fn derive_parts(context: Context, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = context.hasher();
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// `H(context, input)` extended to the length of `out`.
pub fn derive_xof(context: Context, input: &[u8], out: &mut [u8]) {
    context.hasher().update(input).finalize_xof().fill(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_context_equals_derive_key() {
        for (i, (context, text)) in CONTEXTS.iter().enumerate() {
            assert_eq!(*context as usize, i, "table order is the enum's order");
            assert_eq!(
                derive(*context, b"input"),
                blake3::derive_key(text, b"input")
            );
            assert_eq!(
                derive_parts(*context, &[b"in", b"put"]),
                derive(*context, b"input")
            );
        }
    }
}
