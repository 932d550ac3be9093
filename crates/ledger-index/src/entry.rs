//! One row of the index: a key of fixed width and the frame it leads to.
//!
//! Two tables share everything but the width. *Identifiers*: the 16-byte token of the bare value, then the
//! first 4 bytes of the token over kind, scope and value. So one entry answers both questions, and entries of
//! one value lie together, parted by kind and scope. *Records*: the token of the record id, then the record's
//! digest.

use std::cmp::Ordering;

/// Length of a token, bytes.
pub(crate) const TOKEN_LEN: usize = 16;
/// Key width of the identifier table, bytes.
pub(crate) const IDENTIFIER: usize = TOKEN_LEN + 4;
/// Key width of the record table, bytes.
pub(crate) const RECORD: usize = TOKEN_LEN + 16;

/// The token of a value: uniformly distributed, as its key is secret.
pub(crate) type Token = [u8; TOKEN_LEN];

/// A row. Ordered by key, then frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<const W: usize> {
    pub(crate) key: [u8; W],
    pub(crate) seq: u64,
}

impl<const W: usize> Entry<W> {
    pub(crate) const ZERO: Self = Self {
        key: [0; W],
        seq: 0,
    };

    pub(crate) fn token(&self) -> Token {
        token_of(&self.key)
    }

    pub(crate) fn same_key(&self, other: &Self) -> bool {
        self.leading() == other.leading() && self.key == other.key
    }

    /// The first 8 bytes of the key: they settle nearly every comparison.
    pub(crate) fn leading(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.key[..8]);
        u64::from_be_bytes(bytes)
    }
}

impl<const W: usize> PartialEq for Entry<W> {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq && self.same_key(other)
    }
}

impl<const W: usize> Eq for Entry<W> {}

// Not derived: comparing whole keys is a call to memcmp each time, and sorting and merging do little else.
impl<const W: usize> Ord for Entry<W> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.leading()
            .cmp(&other.leading())
            .then_with(|| self.key.cmp(&other.key))
            .then_with(|| self.seq.cmp(&other.seq))
    }
}

impl<const W: usize> PartialOrd for Entry<W> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first 16 bytes of a key.
pub(crate) fn token_of<const W: usize>(key: &[u8; W]) -> Token {
    const { assert!(W >= TOKEN_LEN) };
    let mut token = [0; TOKEN_LEN];
    token.copy_from_slice(&key[..TOKEN_LEN]);
    token
}

/// A key: the token, then as much of the detail as the width holds.
pub(crate) fn key_of<const W: usize>(token: &Token, detail: &[u8]) -> [u8; W] {
    const { assert!(W >= TOKEN_LEN) };
    let mut key = [0; W];
    key[..TOKEN_LEN].copy_from_slice(token);
    let len = detail.len().min(W - TOKEN_LEN);
    key[TOKEN_LEN..TOKEN_LEN + len].copy_from_slice(&detail[..len]);
    key
}

/// The least key above this one, or None above the last.
pub(crate) fn key_after<const W: usize>(mut key: [u8; W]) -> Option<[u8; W]> {
    for byte in key.iter_mut().rev() {
        let (next, wrapped) = byte.overflowing_add(1);
        *byte = next;
        if !wrapped {
            return Some(key);
        }
    }
    None
}

/// A token's first 8 bytes, for tables and filters.
pub(crate) fn token_hash(token: &Token) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&token[..8]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_token_and_detail() {
        let key: [u8; IDENTIFIER] = key_of(&[7; 16], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(key[..16], [7; 16]);
        assert_eq!(key[16..], [1, 2, 3, 4]);
        assert_eq!(token_of(&key), [7; 16]);
    }

    #[test]
    fn the_key_after() {
        assert_eq!(key_after([0, 255]), Some([1, 0]));
        assert_eq!(key_after([3, 4]), Some([3, 5]));
        assert_eq!(key_after([255, 255]), None);
    }
}
