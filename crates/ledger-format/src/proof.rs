//! Inclusion and consistency proofs, and `.tlog-proof` files (`ledger-format.md`, section 19).
//!
//! The mathematics is the `ct-merkle` library's; here are only the file format and the bounds.

use crate::limits::NOTE_LEN_MAX;
use crate::tree::Hash;
use crate::types::{Link, Seq};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ct_merkle::{ConsistencyProof, InclusionProof, RootHash};
use sha2::Sha256;
use thiserror::Error;

/// Audit path of one leaf, leaf to root.
pub type InclusionPath = Vec<Hash>;

/// No path is longer: a tree has fewer than 2^63 leaves.
const PATH_LEN_MAX: usize = 63;
const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// Why a proof fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ProofError {
    /// Not a proof file.
    #[error(
        "expected a c2sp.org/tlog-proof@v1 file: header, index, audit path, empty line, checkpoint"
    )]
    Shape,
    /// Index, size or path cannot belong together.
    #[error("index, tree size and path length do not fit each other")]
    Bounds,
    /// The path leads to another root.
    #[error("the path does not lead to the root of the checkpoint")]
    Root,
}

fn root_hash(size: u64, root: &Hash) -> Result<RootHash<Sha256>, ProofError> {
    if size == 0 || size > u64::MAX / 4 {
        return Err(ProofError::Bounds);
    }
    Ok(RootHash::new((*root).into(), size))
}

/// Checks that the frame with this number and link stands in the tree.
///
/// # Errors
/// [`ProofError`], never `Shape`.
pub fn verify_inclusion(
    seq: Seq,
    link: &Link,
    path: &[Hash],
    size: u64,
    root: &Hash,
) -> Result<(), ProofError> {
    let root = root_hash(size, root)?;
    if seq.0 >= size || path.len() > PATH_LEN_MAX {
        return Err(ProofError::Bounds);
    }
    let proof = InclusionProof::try_from_bytes(path.concat()).map_err(|_| ProofError::Bounds)?;
    root.verify_inclusion(&link.0, seq.0, &proof)
        .map_err(|_| ProofError::Root)
}

/// Checks that the smaller tree is a prefix of the greater one.
///
/// # Errors
/// [`ProofError`], never `Shape`.
pub fn verify_consistency(
    old_size: u64,
    old_root: &Hash,
    size: u64,
    root: &Hash,
    path: &[Hash],
) -> Result<(), ProofError> {
    let (old, new) = (root_hash(old_size, old_root)?, root_hash(size, root)?);
    if old_size > size || path.len() > 2 * PATH_LEN_MAX {
        return Err(ProofError::Bounds);
    }
    if old_size == size {
        return if old_root == root && path.is_empty() {
            Ok(())
        } else {
            Err(ProofError::Root)
        };
    }
    let proof = ConsistencyProof::try_from_bytes(path.concat()).map_err(|_| ProofError::Bounds)?;
    new.verify_consistency(&old, &proof)
        .map_err(|_| ProofError::Root)
}

/// A `.tlog-proof` file: one frame's place under one checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlogProof {
    /// The frame's number.
    pub index: Seq,
    /// Its audit path.
    pub path: InclusionPath,
    /// The checkpoint note, verbatim.
    pub checkpoint: String,
}

impl TlogProof {
    /// The file's text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let path: String = self
            .path
            .iter()
            .map(|h| STANDARD.encode(h) + "\n")
            .collect();
        format!(
            "{HEADER}\nindex {}\n{path}\n{}",
            self.index, self.checkpoint
        )
    }

    /// Reads a file; its checkpoint is not verified here.
    ///
    /// # Errors
    /// `Shape`.
    pub fn parse(text: &str) -> Result<Self, ProofError> {
        if text.len() > NOTE_LEN_MAX + 64 * 128 {
            return Err(ProofError::Shape);
        }
        let (head, checkpoint) = text.split_once("\n\n").ok_or(ProofError::Shape)?;
        let mut lines = head.split('\n').peekable();
        if lines.next() != Some(HEADER) {
            return Err(ProofError::Shape);
        }
        lines.next_if(|l| l.starts_with("extra "));
        let index = lines
            .next()
            .and_then(|l| l.strip_prefix("index "))
            .ok_or(ProofError::Shape)?;
        let number: u64 = index.parse().map_err(|_| ProofError::Shape)?;
        if number.to_string() != index {
            return Err(ProofError::Shape);
        }
        let path: Option<InclusionPath> = lines
            .map(|l| STANDARD.decode(l).ok().and_then(|h| Hash::try_from(h).ok()))
            .collect();
        let path = path
            .filter(|p| p.len() <= PATH_LEN_MAX)
            .ok_or(ProofError::Shape)?;
        Ok(Self {
            index: Seq(number),
            path,
            checkpoint: checkpoint.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ct_merkle::mem_backed_tree::MemoryBackedTree;

    fn tree(n: u64) -> MemoryBackedTree<Sha256, [u8; 32]> {
        let mut t = MemoryBackedTree::new();
        (0..n).for_each(|i| t.push([i as u8; 32]));
        t
    }

    #[test]
    fn inclusion_holds_for_its_leaf_only() {
        let t = tree(37);
        let root: Hash = (*t.root().as_bytes()).into();
        for i in 0..37_u64 {
            let bytes = t.prove_inclusion(i as usize).as_bytes().to_vec();
            let path: InclusionPath = bytes.chunks(32).map(|c| c.try_into().unwrap()).collect();
            assert_eq!(
                verify_inclusion(Seq(i), &Link([i as u8; 32]), &path, 37, &root),
                Ok(())
            );
            assert!(verify_inclusion(Seq(i), &Link([99; 32]), &path, 37, &root).is_err());
            assert!(
                verify_inclusion(Seq((i + 1) % 37), &Link([i as u8; 32]), &path, 37, &root)
                    .is_err()
            );
            assert!(verify_inclusion(Seq(i), &Link([i as u8; 32]), &path[1..], 37, &root).is_err());
            let proof = TlogProof {
                index: Seq(i),
                path,
                checkpoint: "text\n\nsignature\n".to_owned(),
            };
            assert_eq!(TlogProof::parse(&proof.to_text()), Ok(proof));
        }
        assert_eq!(
            verify_inclusion(Seq(0), &Link([0; 32]), &[], 0, &root),
            Err(ProofError::Bounds)
        );
        assert_eq!(
            verify_inclusion(Seq(u64::MAX), &Link([0; 32]), &[], u64::MAX, &root),
            Err(ProofError::Bounds)
        );
    }

    #[test]
    fn consistency_holds_for_prefixes_only() {
        let (old, new) = (tree(11), tree(37));
        let (old_root, root): (Hash, Hash) = (
            (*old.root().as_bytes()).into(),
            (*new.root().as_bytes()).into(),
        );
        let path: Vec<Hash> = new
            .prove_consistency(26)
            .as_bytes()
            .chunks(32)
            .map(|c| c.try_into().unwrap())
            .collect();
        assert_eq!(verify_consistency(11, &old_root, 37, &root, &path), Ok(()));
        assert!(verify_consistency(12, &old_root, 37, &root, &path).is_err());
        assert!(verify_consistency(11, &root, 37, &root, &path).is_err());
        assert_eq!(verify_consistency(37, &root, 37, &root, &[]), Ok(()));
    }
}
