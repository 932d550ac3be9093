//! Bytes and types of the ledger, as `ledger-format.md` defines them.
//!
//! Here are frames, chain, tree, checkpoints (signed notes), proofs, append receipts and the rule
//! for torn writes. Here are **not**: files, clocks, random numbers, encryption, the meaning of
//! records. Everything a keyless verifier needs to judge bytes is in this crate, and nothing that
//! could decrypt is reachable from it.
//!
//! ```
//! use ledger_format::{Frontier, leaf_hash, Link};
//! let mut tree = Frontier::empty();
//! tree.push(leaf_hash(&Link::ZERO));
//! assert_eq!(tree.size(), 1);
//! assert_eq!(tree.root(), leaf_hash(&Link::ZERO));
//! ```

mod cbor;
mod checkpoint;
mod context;
mod control;
mod encode;
mod frame;
mod head;
pub mod limits;
mod locate;
mod note;
mod proof;
mod receipt;
mod tail;
mod tree;
mod types;

pub use cbor::{CborError, Encoder, Reader};
pub use checkpoint::{
    Checkpoint, CheckpointError, Origin, OriginError, SIGNATURE_LINES_EXTRA_MAX, checkpoint_text,
    short_form, signed_checkpoint,
};
pub use context::{Context, derive, derive_parts, derive_xof};
pub use control::{
    BodyError, Close, ClosedPayloads, CosignatureBody, Erasure, Floor, GenerationBody, Genesis,
    Recovery, SegmentOpen, SetAside, checkpoint_body, decode_checkpoint_body,
};
pub use encode::{ControlParts, FrameBuilder, RecordParts};
pub use frame::{
    Content, ControlContent, Frame, FrameError, PayloadRef, RecordContent, link_in_place,
};
pub use head::{HEAD_PREFIX_LEN_MAX, HeadError, HeadPrefix, can_begin_head};
pub use locate::locate_frame;
pub use note::{
    KeyIdBytes, Note, NoteError, SignatureLine, VerifierKey, VerifierKeyError, key_id,
    signature_line, verify_signature,
};
pub use proof::{InclusionPath, ProofError, TlogProof, verify_consistency, verify_inclusion};
pub use receipt::{AppendReceipt, ReceiptError};
pub use tail::{OutsideCover, ReadAt, Tail, TailStart, classify_tail};
pub use tree::{CompactRange, Frontier, Hash, leaf_hash, node_hash};
pub use types::{ByteOffset, Generation, Kind, LedgerId, Link, Seq, UnixMillis, WriteNumbers};

/// The first bytes of every `.frames` file (`ledger-format.md`, section 2): a CBOR text string.
pub const FRAMES_MAGIC: &[u8; 17] = b"\x70ledger-frames v1";
/// The text with which any version's magic begins, behind its one-byte head.
pub const FRAMES_MAGIC_STEM: &[u8; 15] = b"ledger-frames v";
/// The first bytes of every `.payloads` file (section 13).
pub const PAYLOADS_MAGIC: &[u8; 19] = b"\x72ledger-payloads v1";
/// The suite of version 1 (section 22).
pub const SUITE: u8 = 1;
