//! The RFC 6962 tree over links (`ledger-format.md`, section 8).
//!
//! Only the right edge of the tree is ever held: a frontier of O(log n) hashes. Proofs are in
//! `proof`, and their mathematics in a library.

use crate::types::Link;
use sha2::{Digest, Sha256};

/// A SHA-256 tree hash.
pub type Hash = [u8; 32];

/// Leaf hash of a frame: `SHA-256(00 ‖ link)`.
#[must_use]
pub fn leaf_hash(link: &Link) -> Hash {
    let mut block = [0; 64];
    block[1..33].copy_from_slice(&link.0);
    sha256_padded(&mut [block], 33)
}

/// Hash of an inner node: `SHA-256(01 ‖ left ‖ right)`.
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let [mut first, mut second] = [[0; 64]; 2];
    first[0] = 1;
    first[1..33].copy_from_slice(left);
    first[33..].copy_from_slice(&right[..31]);
    second[0] = right[31];
    sha256_padded(&mut [first, second], 65)
}

/// SHA-256 over `len` bytes that lie in `blocks`, zeros behind them, with room for the padding.
///
/// A tree has two hashes a frame, of two fixed lengths: without the library's buffering both
/// together cost half as much.
fn sha256_padded<const N: usize>(blocks: &mut [[u8; 64]; N], len: usize) -> Hash {
    const START: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    if let Some(end) = blocks.get_mut(len / 64).and_then(|b| b.get_mut(len % 64)) {
        *end = 0x80;
    }
    if let Some(last) = blocks.last_mut() {
        last[56..].copy_from_slice(&(len as u64 * 8).to_be_bytes());
    }
    let mut state = START;
    sha2::block_api::compress256(&mut state, blocks);
    let mut out = [0; 32];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// A perfect subtree: `index` counts subtrees of this level from the left of the whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node {
    level: u32,
    index: u64,
    hash: Hash,
}

/// The roots of the greatest perfect subtrees that tile a range of leaves.
///
/// Two ranges that touch can be joined, so a tree can be hashed in parallel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompactRange {
    begin: u64,
    end: u64,
    nodes: Vec<Node>,
}

impl CompactRange {
    /// The empty range that begins at leaf `begin`.
    #[must_use]
    pub const fn starting_at(begin: u64) -> Self {
        Self {
            begin,
            end: begin,
            nodes: Vec::new(),
        }
    }

    /// First leaf of the range.
    #[must_use]
    pub const fn begin(&self) -> u64 {
        self.begin
    }

    /// First leaf behind the range.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Appends the leaf `end()`.
    pub fn push(&mut self, leaf: Hash) {
        self.push_node(Node {
            level: 0,
            index: self.end,
            hash: leaf,
        });
        self.end = self.end.saturating_add(1);
    }

    /// Appends a range that begins where this one ends; false (and no change) if it does not.
    pub fn append(&mut self, other: &Self) -> bool {
        if other.begin != self.end {
            return false;
        }
        for node in &other.nodes {
            self.push_node(*node);
        }
        self.end = other.end;
        true
    }

    fn push_node(&mut self, mut node: Node) {
        while node.index & 1 == 1 {
            match self.nodes.last() {
                Some(left) if left.level == node.level && left.index + 1 == node.index => {
                    let hash = node_hash(&left.hash, &node.hash);
                    node = Node {
                        level: node.level + 1,
                        index: node.index >> 1,
                        hash,
                    };
                    self.nodes.pop();
                }
                _ => break,
            }
        }
        self.nodes.push(node);
    }
}

/// The right edge of the tree at a size: what is needed to go on and to know the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontier(CompactRange);

impl Frontier {
    /// The frontier of the empty tree.
    #[must_use]
    pub const fn empty() -> Self {
        Self(CompactRange::starting_at(0))
    }

    /// The frontier at `size` from its stored hashes, largest subtree first; `None` unless there
    /// are as many as `size` has one-bits.
    #[must_use]
    pub fn from_hashes(size: u64, hashes: &[Hash]) -> Option<Self> {
        if hashes.len() as u32 != size.count_ones() {
            return None;
        }
        let levels = (0..u64::BITS).rev().filter(|level| size >> level & 1 == 1);
        let nodes = levels
            .zip(hashes)
            .map(|(level, hash)| {
                // Leaves before this subtree: the one-bits of the size above `level`.
                let index = (size >> level) - 1;
                Node {
                    level,
                    index,
                    hash: *hash,
                }
            })
            .collect();
        Some(Self(CompactRange {
            begin: 0,
            end: size,
            nodes,
        }))
    }

    /// Number of leaves.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.0.end
    }

    /// The hashes as segment_open stores them.
    #[must_use]
    pub fn hashes(&self) -> Vec<Hash> {
        self.0.nodes.iter().map(|n| n.hash).collect()
    }

    /// Appends one leaf.
    pub fn push(&mut self, leaf: Hash) {
        self.0.push(leaf);
    }

    /// Appends a range that begins at `size()`; false (and no change) if it does not.
    pub fn append(&mut self, range: &CompactRange) -> bool {
        self.0.append(range)
    }

    /// The root at this size.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut right_to_left = self.0.nodes.iter().rev();
        match right_to_left.next() {
            None => Sha256::digest([]).into(),
            Some(last) => right_to_left.fold(last.hash, |acc, n| node_hash(&n.hash, &acc)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use proptest::prelude::*;

    fn leaf(i: u64) -> Hash {
        let mut input = vec![0];
        input.extend_from_slice(format!("record {i}").as_bytes());
        Sha256::digest(&input).into()
    }

    #[test]
    fn fixed_lengths_are_padded_as_the_library_pads() {
        for i in 0..=255_u8 {
            let (left, right) = ([i; 32], [i.wrapping_mul(31); 32]);
            let leaf = Sha256::digest([&[0][..], &left].concat());
            let node = Sha256::digest([&[1][..], &left, &right].concat());
            assert_eq!(leaf_hash(&Link(left))[..], leaf[..]);
            assert_eq!(node_hash(&left, &right)[..], node[..]);
        }
    }

    #[test]
    fn published_vector_of_300_leaves() {
        let mut tree = Frontier::empty();
        (0..300).for_each(|i| tree.push(leaf(i)));
        assert_eq!(
            STANDARD.encode(tree.root()),
            "gw31yQrqZZCcEOPrzX+bpy3nJ6QgngTKn8G1m0i62uU="
        );
    }

    #[test]
    fn agrees_with_the_proof_library_at_every_size() {
        let mut ours = Frontier::empty();
        let mut theirs = ct_merkle::mem_backed_tree::MemoryBackedTree::<Sha256, Vec<u8>>::new();
        for i in 0..260_u64 {
            let link = Link([i as u8; 32]);
            ours.push(leaf_hash(&link));
            theirs.push(link.0.to_vec());
            assert_eq!(
                ours.root()[..],
                theirs.root().as_bytes()[..],
                "size {}",
                i + 1
            );
            let again = Frontier::from_hashes(ours.size(), &ours.hashes()).unwrap();
            assert_eq!(again, ours);
        }
    }

    #[test]
    fn frontier_needs_as_many_hashes_as_one_bits() {
        assert!(Frontier::from_hashes(6, &[[0; 32]; 2]).is_some());
        assert!(Frontier::from_hashes(6, &[[0; 32]; 3]).is_none());
        assert!(Frontier::from_hashes(0, &[]).is_some());
    }

    proptest! {
        #[test]
        fn ranges_join_to_the_same_tree(cuts in proptest::collection::vec(0_u64..120, 1..5)) {
            let mut cuts = cuts;
            cuts.push(0);
            cuts.push(120);
            cuts.sort_unstable();
            let mut joined = Frontier::empty();
            for pair in cuts.windows(2) {
                let mut range = CompactRange::starting_at(pair[0]);
                (pair[0]..pair[1]).for_each(|i| range.push(leaf(i)));
                prop_assert!(joined.append(&range));
            }
            let mut whole = Frontier::empty();
            (0..120).for_each(|i| whole.push(leaf(i)));
            prop_assert_eq!(joined, whole);
        }
    }
}
