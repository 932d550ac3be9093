//! What the index key makes (section 18): tokens of identifiers, and tags over the pages of the index.
//!
//! Not the index: that crate sees tokens and tags, and never the key's bytes. The key has no commitment in
//! the chain, as nothing in the chain depends on it; a lost one is replaced, and the index made again.

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::identities::Identities;
use crate::keys::{IndexKey, RandomError, SecretBytes, first_16};
use crate::recipients::Recipients;
use crate::segment::{SegmentKeysError, UnwrapKeyError, unwrap_keys};
use crate::wrap::wrap;

/// First byte of every input that is not a bare value: no UTF-8 text holds it, so that the inputs of one
/// purpose are never those of another.
const NOT_TEXT: u8 = 0xff;
/// Second byte: a token over kind, scope and value.
const EXACT: u8 = 1;
/// Second byte: the tag of a page.
const PAGE: u8 = 2;

/// Inputs up to this length are hashed in one call, bytes: longer ones are rare.
const INLINE_LEN_MAX: usize = 192;

impl IndexKey {
    /// A new random key.
    ///
    /// # Errors
    /// The operating system gave no random bytes.
    pub fn generate() -> Result<Self, RandomError> {
        SecretBytes::random().map(Self)
    }

    /// Another handle of this key, for an index that replaces the one that has it. Each is wiped when dropped.
    #[must_use]
    pub fn again(&self) -> Self {
        let mut bytes = SecretBytes::zeroed();
        bytes.expose_mut().copy_from_slice(self.0.expose());
        Self(bytes)
    }

    /// `K(index key, value)[..16]`: what a value is looked up by when its kind is not known.
    #[must_use]
    pub fn local_token(&self, value: &str) -> [u8; 16] {
        first_16(blake3::keyed_hash(self.0.expose(), value.as_bytes()))
    }

    /// `K(index key, FF ‖ 01 ‖ u8 kind ‖ u32 length of scope ‖ scope ‖ value)[..16]`: one identifier, and no
    /// other one that has the same value. A scope has less than 4 GiB; longer ones share a token.
    #[must_use]
    pub fn exact_token(&self, kind: u8, scope: &str, value: &str) -> [u8; 16] {
        let scope_len = u32::try_from(scope.len()).unwrap_or(u32::MAX);
        let mut head = [NOT_TEXT, EXACT, kind, 0, 0, 0, 0];
        head[3..].copy_from_slice(&scope_len.to_be_bytes());
        let (scope, value) = (scope.as_bytes(), value.as_bytes());
        let scope_end = head.len() + scope.len();
        let end = scope_end + value.len();
        // One call on joined bytes costs a third of what the incremental hasher does.
        let mut joined = [0; INLINE_LEN_MAX];
        if let Some(input) = joined.get_mut(..end) {
            input[..head.len()].copy_from_slice(&head);
            input[head.len()..scope_end].copy_from_slice(scope);
            input[scope_end..].copy_from_slice(value);
            return first_16(blake3::keyed_hash(self.0.expose(), input));
        }
        self.hash(&[&head, scope, value])
    }

    /// `K(index key, FF ‖ 02 ‖ place ‖ content)[..16]`; `place` is of fixed length and says which page of
    /// which index this is.
    #[must_use]
    pub fn page_tag<const N: usize>(&self, place: &[u8; N], content: &[u8]) -> [u8; 16] {
        self.hash(&[&[NOT_TEXT, PAGE], place, content])
    }

    /// Checks a page's tag in constant time.
    #[must_use]
    pub fn page_tag_holds<const N: usize>(
        &self,
        place: &[u8; N],
        content: &[u8],
        tag: &[u8; 16],
    ) -> bool {
        self.page_tag(place, content).ct_eq(tag).into()
    }

    fn hash(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(self.0.expose());
        for part in parts {
            hasher.update(part);
        }
        let hash = first_16(hasher.finalize());
        hasher.zeroize();
        hash
    }

    /// The content of `index.age`: for the operational identity and the vault recipients (section 12).
    ///
    /// # Errors
    /// Too many recipients together, or the age library failed.
    pub fn wrap(
        &self,
        vault: &Recipients,
        operational: &Recipients,
    ) -> Result<Vec<u8>, SegmentKeysError> {
        let both = Recipients::union([operational, vault])?;
        let secret = Zeroizing::new(*self.0.expose());
        Ok(wrap(&both, secret.as_ref())?)
    }

    /// Opens `index.age`.
    ///
    /// # Errors
    /// The file did not open, or holds something else than one key.
    pub fn unwrap(identities: &Identities, file: &[u8]) -> Result<Self, UnwrapKeyError> {
        let [key] = unwrap_keys(identities, file, "index key")?;
        Ok(Self(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> IndexKey {
        let mut key = SecretBytes::zeroed();
        key.expose_mut().fill(byte);
        IndexKey(key)
    }

    #[test]
    fn tokens_are_what_the_specification_says() {
        let key = key(7);
        let expected = blake3::keyed_hash(&[7; 32], b"act_01");
        assert_eq!(key.local_token("act_01")[..], expected.as_bytes()[..16]);
        let scopes = ["", "buildco", &"s".repeat(400)];
        for scope in scopes {
            let len = u32::try_from(scope.len()).unwrap().to_be_bytes();
            let input = [&[0xff, 1, 12][..], &len, scope.as_bytes(), b"op_9"].concat();
            let expected = blake3::keyed_hash(&[7; 32], &input);
            assert_eq!(
                key.exact_token(12, scope, "op_9")[..],
                expected.as_bytes()[..16]
            );
        }
    }

    #[test]
    fn kind_scope_value_and_key_each_make_another_token() {
        let tokens = [
            key(1).exact_token(12, "a", "bc"),
            key(1).exact_token(13, "a", "bc"),
            key(1).exact_token(12, "ab", "c"),
            key(1).exact_token(12, "a", "bd"),
            key(2).exact_token(12, "a", "bc"),
            key(1).local_token("abc"),
        ];
        for (i, a) in tokens.iter().enumerate() {
            assert!(tokens[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn a_page_tag_holds_for_its_place_and_content_only() {
        let key = key(1);
        let tag = key.page_tag(&[1, 2], b"content");
        assert!(key.page_tag_holds(&[1, 2], b"content", &tag));
        assert!(!key.page_tag_holds(&[1, 3], b"content", &tag));
        assert!(!key.page_tag_holds(&[1, 2], b"contend", &tag));
    }
}
