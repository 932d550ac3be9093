//! Bodies of control frames: one CBOR map each, fixed keys in fixed order (`ledger-format.md`, section 7).
//!
//! What all bodies share is here; the bodies themselves are in `segment` (genesis, segment_open,
//! segment_close) and `event` (what is appended between them).

mod event;
mod segment;

pub use event::{
    CosignatureBody, Erasure, Floor, GenerationBody, Recovery, SetAside, checkpoint_body,
    decode_checkpoint_body,
};
pub use segment::{Close, ClosedPayloads, Genesis, SegmentOpen};

use crate::cbor::{CborError, Encoder, Reader};
use crate::tree::Hash;
use thiserror::Error;

/// Why a control body does not decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BodyError {
    /// Not the map that this kind has.
    #[error("the body is not this kind's map: {0}")]
    Cbor(#[from] CborError),
    /// A value outside what the specification allows for this key.
    #[error("the value of {0:?} is not allowed")]
    Value(&'static str),
}

type Decoded<T> = Result<T, BodyError>;

fn hash_of(r: &mut Reader<'_>) -> Result<Hash, CborError> {
    r.array_bytes::<32>().copied()
}

fn hashes_of(r: &mut Reader<'_>) -> Decoded<Vec<Hash>> {
    let n = r.array()?;
    if n > 64 {
        return Err(BodyError::Value("frontier"));
    }
    (0..n).map(|_| Ok(hash_of(r)?)).collect()
}

fn put_hashes(e: &mut Encoder<'_>, hashes: &[Hash]) {
    e.array(hashes.len());
    for h in hashes {
        e.bytes(h);
    }
}

fn encoded(write: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write(&mut Encoder::new(&mut out));
    out
}

#[cfg(test)]
mod tests;
