//! Derive-key contexts for secrets: the strings are ledger-format's, the hasher's state is wiped here.

use std::sync::OnceLock;

use blake3::Hasher;
use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use ledger_format::Context;
use zeroize::Zeroize;

/// One context, its string hashed once a process: hashing it each time costs a second compression.
pub(crate) struct SecretContext {
    context: Context,
    key: OnceLock<ContextKey>,
}

pub(crate) static SECTION: SecretContext = SecretContext::new(Context::Section);
pub(crate) static COMMIT_DATA: SecretContext = SecretContext::new(Context::CommitData);
pub(crate) static COMMIT_ENVELOPE: SecretContext = SecretContext::new(Context::CommitEnvelope);
pub(crate) static COMMIT_TOKEN: SecretContext = SecretContext::new(Context::CommitToken);
pub(crate) static COMMIT_PAYLOAD: SecretContext = SecretContext::new(Context::CommitPayload);
pub(crate) static TAG_KEY: SecretContext = SecretContext::new(Context::TagKey);
pub(crate) static DIGEST_KEY: SecretContext = SecretContext::new(Context::DigestKey);
pub(crate) static LEAF_SALT_KEY: SecretContext = SecretContext::new(Context::LeafSaltKey);

impl SecretContext {
    const fn new(context: Context) -> Self {
        Self {
            context,
            key: OnceLock::new(),
        }
    }

    /// `H(context, secret)` into `out`, in XOF mode when `out` is longer than 32 bytes.
    pub(crate) fn derive_into(&self, secret: &[u8; 32], out: &mut [u8]) {
        let key = self
            .key
            .get_or_init(|| hash_derive_key_context(self.context.text()));
        let mut hasher = Hasher::new_from_context_key(key);
        hasher.update(secret);
        let mut reader = hasher.finalize_xof();
        reader.fill(out);
        reader.zeroize();
        // `reset` overwrites the block that holds the secret. `Hasher::zeroize` would also wipe the empty
        // tree stack, 1,760 bytes, and so costs more than the derivation. The hint keeps the store.
        hasher.reset();
        std::hint::black_box(&hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_bytes_as_the_keyless_derivation() {
        let mut out = [0; 64];
        SECTION.derive_into(&[7; 32], &mut out);
        let mut expected = [0; 64];
        ledger_format::derive_xof(Context::Section, &[7; 32], &mut expected);
        assert_eq!(out, expected);
    }
}
