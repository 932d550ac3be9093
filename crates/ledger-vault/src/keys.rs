//! The random 32-byte keys of a segment, what is derived from them, and their commitments (section 11.1).
//!
//! Not here: the signing keys (`signing`) and the one-message keys of a section (`seal`).

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use ledger_format::Seq;

use crate::context::{self, SecretContext};

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes: {0}")]
pub struct RandomError(#[from] getrandom::Error);

/// 32 secret bytes in a heap box: a move copies the pointer, not the secret.
pub(crate) struct SecretBytes(Box<Zeroizing<[u8; 32]>>);

impl SecretBytes {
    pub(crate) fn zeroed() -> Self {
        Self(Box::new(Zeroizing::new([0; 32])))
    }

    pub(crate) fn random() -> Result<Self, RandomError> {
        let mut bytes = Self::zeroed();
        getrandom::fill(bytes.expose_mut())?;
        Ok(bytes)
    }

    pub(crate) fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn expose_mut(&mut self) -> &mut [u8; 32] {
        &mut self.0
    }

    fn derived(context: &SecretContext, key: &Self) -> Self {
        let mut bytes = Self::zeroed();
        context.derive_into(key.expose(), bytes.expose_mut());
        bytes
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        self.expose().ct_eq(other.expose()).into()
    }
}

/// What segment_open says of a key: `H(commit-..., key)`. Public.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyCommitment(pub [u8; 32]);

impl fmt::Display for KeyCommitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyCommitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyCommitment({self})")
    }
}

/// Declares a type over [`SecretBytes`] with the traits every secret has.
macro_rules! secret_type {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(PartialEq)]
        pub struct $name(pub(crate) SecretBytes);

        impl Eq for $name {}

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(secret)"))
            }
        }
    };
}

/// Declares a random segment key and its commitment.
macro_rules! segment_key {
    ($(#[$meta:meta])* $name:ident, $context:path) => {
        secret_type!($(#[$meta])* $name);

        impl $name {
            /// A new random key.
            ///
            /// # Errors
            /// The operating system gave no random bytes.
            pub fn generate() -> Result<Self, RandomError> {
                SecretBytes::random().map(Self)
            }

            /// What segment_open says of this key (section 7).
            #[must_use]
            pub fn commitment(&self) -> KeyCommitment {
                let mut commitment = [0; 32];
                $context.derive_into(self.0.expose(), &mut commitment);
                KeyCommitment(commitment)
            }
        }
    };
}

segment_key! {
    /// Seals the bodies of one segment. In memory while the segment is open; then only the vault has it.
    DataKey, context::COMMIT_DATA
}
segment_key! {
    /// Seals the envelopes of one segment; tag, digest and leaf-salt key derive from it.
    EnvelopeKey, context::COMMIT_ENVELOPE
}
segment_key! {
    /// Makes the identifier tokens under a segment's index root (section 18).
    TokenKey, context::COMMIT_TOKEN
}
segment_key! {
    /// Seals the payloads of one retention class in one segment.
    PayloadKey, context::COMMIT_PAYLOAD
}
secret_type! {
    /// Makes the tokens of the identifier index and the tags of its pages (section 18). See `index_key`.
    IndexKey
}
secret_type! {
    /// Makes and checks the tags of control frames (section 11.5).
    TagKey
}
secret_type! {
    /// Makes the keyed digest of a client's canonical record, for "same id, other content".
    DigestKey
}
secret_type! {
    /// Salts the leaves under a segment's index root (section 18).
    LeafSaltKey
}

impl EnvelopeKey {
    /// `H(tag-key, E)`.
    #[must_use]
    pub fn tag_key(&self) -> TagKey {
        TagKey(SecretBytes::derived(&context::TAG_KEY, &self.0))
    }

    /// `H(digest-key, E)`.
    #[must_use]
    pub fn digest_key(&self) -> DigestKey {
        DigestKey(SecretBytes::derived(&context::DIGEST_KEY, &self.0))
    }

    /// `H(leaf-salt-key, E)`.
    #[must_use]
    pub fn leaf_salt_key(&self) -> LeafSaltKey {
        LeafSaltKey(SecretBytes::derived(&context::LEAF_SALT_KEY, &self.0))
    }
}

/// `K(digest key, canonical record)[..16]`: stands in the envelope, tells a repetition from a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordDigest(pub [u8; 16]);

impl DigestKey {
    /// The digest of a record's canonical bytes.
    #[must_use]
    pub fn record_digest(&self, canonical: &[u8]) -> RecordDigest {
        RecordDigest(first_16(blake3::keyed_hash(self.0.expose(), canonical)))
    }
}

impl TokenKey {
    /// The token of an identifier: `K(token key, u8 kind ‖ u16 length of scope ‖ scope ‖ value)`, section 18.
    ///
    /// None when the scope is longer than any identifier's (65,535 bytes).
    #[must_use]
    pub fn token(&self, kind: u8, scope: &[u8], value: &[u8]) -> Option<[u8; 32]> {
        let [high, low] = u16::try_from(scope.len()).ok()?.to_be_bytes();
        let mut hasher = blake3::Hasher::new_keyed(self.0.expose());
        hasher.update(&[kind, high, low]);
        hasher.update(scope).update(value);
        let token = *hasher.finalize().as_bytes();
        zeroize::Zeroize::zeroize(&mut hasher);
        Some(token)
    }
}

impl LeafSaltKey {
    /// The salt of a leaf: `K(leaf salt key, T ‖ u64 seq)[..16]`, section 18.
    #[must_use]
    pub fn leaf_salt(&self, token: &[u8; 32], seq: Seq) -> [u8; 16] {
        let mut input = [0; 40];
        input[..32].copy_from_slice(token);
        input[32..].copy_from_slice(&seq.0.to_be_bytes());
        first_16(blake3::keyed_hash(self.0.expose(), &input))
    }
}

/// The first half of a hash.
pub(crate) fn first_16(hash: blake3::Hash) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&hash.as_bytes()[..16]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SecretBytes {
        let mut key = SecretBytes::zeroed();
        key.expose_mut().fill(byte);
        key
    }

    #[test]
    fn debug_names_the_type_only() {
        assert_eq!(format!("{:?}", DataKey(key(0xab))), "DataKey(secret)");
        assert_eq!(format!("{:?}", TagKey(key(0xab))), "TagKey(secret)");
    }

    #[test]
    fn equality_compares_content_and_generation_differs() {
        assert_eq!(DataKey(key(1)), DataKey(key(1)));
        assert_ne!(DataKey(key(1)), DataKey(key(2)));
        assert_ne!(DataKey::generate().unwrap(), DataKey::generate().unwrap());
    }

    #[test]
    fn each_kind_of_key_commits_in_its_own_context() {
        let commitments = [
            DataKey(key(1)).commitment(),
            EnvelopeKey(key(1)).commitment(),
            TokenKey(key(1)).commitment(),
            PayloadKey(key(1)).commitment(),
        ];
        for (i, a) in commitments.iter().enumerate() {
            assert!(commitments[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn a_scope_beyond_its_length_field_has_no_token() {
        let key = TokenKey(key(1));
        assert!(key.token(1, &[0; 65_535], b"v").is_some());
        assert!(key.token(1, &[0; 65_536], b"v").is_none());
    }
}
