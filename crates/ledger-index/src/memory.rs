//! The newest entries, in memory: appended in the order they come, found through chains of a hash table.
//!
//! Nothing is sorted here, as this stands on the append path; a run is sorted when it is written.

use crate::entry::{Entry, Token, token_hash, token_of};

/// End of a chain.
const NONE: u32 = u32::MAX;
/// Buckets of an empty table: 64 KiB.
const BUCKETS_MIN: usize = 1 << 14;

/// Entries of one width.
pub(crate) struct Table<const W: usize> {
    entries: Vec<Entry<W>>,
    /// The entry before this one in its bucket.
    before: Vec<u32>,
    /// The newest entry of each bucket; their number is a power of two.
    newest: Vec<u32>,
    /// Above every frame.
    end: u64,
}

impl<const W: usize> Table<W> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            before: Vec::new(),
            newest: vec![NONE; BUCKETS_MIN],
            end: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[Entry<W>] {
        &self.entries
    }

    /// Memory held, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<W>>()
            + (self.before.capacity() + self.newest.capacity()) * size_of::<u32>()
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: Entry<W>) {
        if self.entries.len() >= self.newest.len() {
            self.grow();
        }
        // A table is written out long before it has 2^32 entries; beyond, entries would only not be found.
        let place = u32::try_from(self.entries.len()).unwrap_or(NONE);
        self.end = self.end.max(entry.seq.saturating_add(1));
        self.entries.push(entry);
        self.chain(&entry.token(), place);
    }

    fn chain(&mut self, token: &Token, place: u32) {
        let bucket = self.bucket(token);
        if let Some(newest) = self.newest.get_mut(bucket) {
            self.before.push(*newest);
            *newest = place;
        }
    }

    fn grow(&mut self) {
        self.newest = vec![NONE; self.newest.len() * 2];
        self.before.clear();
        for place in 0..self.entries.len() {
            let token = self.entries[place].token();
            self.chain(&token, u32::try_from(place).unwrap_or(NONE));
        }
    }

    fn bucket(&self, token: &Token) -> usize {
        token_hash(token) as usize & (self.newest.len() - 1)
    }

    /// Every entry with this token, newest first.
    pub(crate) fn find(&self, token: &Token) -> impl Iterator<Item = &Entry<W>> {
        let mut place = self.newest.get(self.bucket(token)).copied();
        let token = *token;
        std::iter::from_fn(move || {
            let at = place? as usize;
            place = self.before.get(at).copied();
            self.entries.get(at)
        })
        .filter(move |entry| token_of(&entry.key) == token)
    }

    /// Takes the entries below `seq` out, and keeps the others.
    pub(crate) fn split_below(&mut self, seq: u64) -> Self {
        let whole = std::mem::replace(self, Self::new());
        if whole.end <= seq {
            return whole;
        }
        let mut taken = Self::new();
        for entry in whole.entries {
            if entry.seq < seq {
                taken.push(entry);
            } else {
                self.push(entry);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::IDENTIFIER;

    #[test]
    fn finds_all_of_a_token_through_growth_and_splits() {
        let mut table = Table::<IDENTIFIER>::new();
        for seq in 0..40_000_u64 {
            // One bucket is shared by many tokens: only their last bytes differ.
            let mut key = [0; IDENTIFIER];
            key[12..16].copy_from_slice(&((seq % 1000) as u32).to_be_bytes());
            table.push(Entry { key, seq });
        }
        let mut token = [0; 16];
        token[12..].copy_from_slice(&7_u32.to_be_bytes());
        let found = |table: &Table<IDENTIFIER>| -> Vec<u64> {
            table.find(&token).map(|entry| entry.seq).collect()
        };
        let expected: Vec<u64> = (0..40).rev().map(|n| n * 1000 + 7).collect();
        assert_eq!(found(&table), expected);
        let taken = table.split_below(20_007);
        assert_eq!((taken.len(), table.len()), (20_007, 19_993));
        assert_eq!(found(&table), expected[..20]);
        assert_eq!(found(&taken), expected[20..]);
    }
}
