//! A split-block Bloom filter: whether a run may hold a token, at the cost of one cache line.
//!
//! Blocks of 32 bytes, one bit in each of eight words. A token is random under a secret key, so its own bits
//! are the hash, and nobody can choose values that collide.

use crate::entry::{Token, token_hash};

/// A block, as it lies in memory.
pub(crate) type Block = [u32; 8];
/// Length of a block on disk, bytes.
pub(crate) const BLOCK_LEN: usize = 32;

// Odd multipliers of the published construction (as in Apache Parquet): each picks the bit of its word.
const SALTS: Block = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// How often a filter that was made too large is halved.
const FOLDS_MAX: u32 = 3;

/// A filter in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    blocks: Vec<Block>,
}

/// Blocks for so many tokens.
fn blocks_for(tokens: u64, bits_per_token: u64) -> u64 {
    (tokens.saturating_mul(bits_per_token))
        .div_ceil(8 * BLOCK_LEN as u64)
        .max(1)
}

/// The block of a token, of so many.
pub(crate) fn block_of(token: &Token, blocks: usize) -> usize {
    let high = token_hash(token) >> 32;
    // Below `blocks`, as the product is below blocks << 32.
    ((u128::from(high) * blocks as u128) >> 32) as usize
}

fn bits_of(token: &Token) -> Block {
    let low = token_hash(token) as u32;
    SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
}

/// Whether the block may hold the token.
pub(crate) fn block_may_hold(block: &Block, token: &Token) -> bool {
    let bits = bits_of(token);
    block.iter().zip(bits).all(|(word, bit)| word & bit != 0)
}

impl Filter {
    /// An empty filter for up to `tokens_max` tokens, that can be folded.
    pub(crate) fn with_room(tokens_max: u64, bits_per_token: u64) -> Self {
        let fold = 1 << FOLDS_MAX;
        let blocks = blocks_for(tokens_max, bits_per_token).next_multiple_of(fold);
        Self {
            blocks: vec![[0; 8]; usize::try_from(blocks).unwrap_or(1)],
        }
    }

    /// A filter from its blocks; None without any.
    pub(crate) fn from_blocks(blocks: Vec<Block>) -> Option<Self> {
        (!blocks.is_empty()).then_some(Self { blocks })
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Length in memory, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_LEN
    }

    pub(crate) fn insert(&mut self, token: &Token) {
        let at = block_of(token, self.blocks.len());
        if let Some(block) = self.blocks.get_mut(at) {
            let bits = bits_of(token);
            block.iter_mut().zip(bits).for_each(|(word, b)| *word |= b);
        }
    }

    pub(crate) fn may_hold(&self, token: &Token) -> bool {
        self.blocks
            .get(block_of(token, self.blocks.len()))
            .is_none_or(|block| block_may_hold(block, token))
    }

    /// Halves the filter while it stays large enough for `tokens`: block 2i and 2i+1 become block i, which
    /// is where [`block_of`] then looks.
    pub(crate) fn fold_to(&mut self, tokens: u64, bits_per_token: u64) {
        let needed = blocks_for(tokens, bits_per_token);
        while self.blocks.len().is_multiple_of(2) && self.blocks.len() as u64 / 2 >= needed {
            let (pairs, _) = self.blocks.as_chunks::<2>();
            self.blocks = pairs
                .iter()
                .map(|[left, right]| std::array::from_fn(|i| left[i] | right[i]))
                .collect();
        }
    }
}

/// A block as it is stored, little-endian.
pub(crate) fn block_bytes(block: &Block) -> [u8; BLOCK_LEN] {
    let mut out = [0; BLOCK_LEN];
    let (words, _) = out.as_chunks_mut::<4>();
    words
        .iter_mut()
        .zip(block)
        .for_each(|(to, word)| *to = word.to_le_bytes());
    out
}

/// A block as it was stored.
pub(crate) fn block_from(bytes: &[u8; BLOCK_LEN]) -> Block {
    let (words, _) = bytes.as_chunks::<4>();
    let mut block = [0; 8];
    block
        .iter_mut()
        .zip(words)
        .for_each(|(to, word)| *to = u32::from_le_bytes(*word));
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u64) -> Token {
        let hash = ledger_format::derive(ledger_format::Context::Head, &n.to_be_bytes());
        *hash.first_chunk().unwrap()
    }

    #[test]
    fn holds_what_was_inserted_and_little_else_also_when_folded() {
        for bits in [12, 16] {
            let mut filter = Filter::with_room(80_000, bits);
            (0..10_000).for_each(|n| filter.insert(&token(n)));
            filter.fold_to(10_000, bits);
            assert_eq!(
                filter.len_bytes() as u64,
                (10_000 * bits).div_ceil(256) * 32
            );
            assert!((0..10_000).all(|n| filter.may_hold(&token(n))));
            let wrong = (10_000..60_000)
                .filter(|n| filter.may_hold(&token(*n)))
                .count();
            assert!(
                wrong < if bits == 12 { 600 } else { 200 },
                "{wrong} of 50,000"
            );
        }
    }

    #[test]
    fn blocks_come_back_from_their_bytes() {
        let block = [1, 2, 3, 4, 5, 6, 7, u32::MAX];
        assert_eq!(block_from(&block_bytes(&block)), block);
    }
}
