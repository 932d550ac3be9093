//! Bytes and types of the ledger: frames, chain, tree, checkpoints, proofs, receipts
