//! The head prefix of a frame: what a reader believes first (`ledger-format.md`, section 4).

use crate::cbor::{CborError, Reader};
use crate::context::{Context, derive};
use crate::limits::{FRAME_LEN_MAX, FRAME_LEN_MIN, WRITE_FRAMES_MAX};
use crate::types::{Kind, Seq, WriteNumbers};
use thiserror::Error;

/// Greatest length of a head prefix: array head, head, seq, kind, `[index, count]`.
pub const HEAD_PREFIX_LEN_MAX: usize = 1 + 9 + 9 + 1 + 1 + 5 + 5;

/// Number of array items of a record frame and of a control frame.
pub(crate) const RECORD_ITEMS: u64 = 11;
pub(crate) const CONTROL_ITEMS: u64 = 8;

/// Why no head prefix can be read at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HeadError {
    /// The bytes end before the prefix does.
    #[error("the bytes end inside the head of a frame")]
    Short,
    /// The bytes are no head prefix.
    #[error("no frame begins here: {0}")]
    Shape(CborError),
    /// A value that the format does not allow.
    #[error("{0} is outside the format's limits")]
    Value(&'static str),
    /// The four check bytes do not fit length, seq, kind, index and count.
    #[error("the check bytes of the frame head do not fit it")]
    Check,
}

/// A head prefix whose check bytes fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadPrefix {
    /// Length of the whole frame in bytes.
    pub frame_len: u32,
    /// The frame's number.
    pub seq: Seq,
    /// The frame's kind.
    pub kind: Kind,
    /// Its place in its write.
    pub write: WriteNumbers,
}

impl HeadPrefix {
    /// Reads the head prefix at the start of `bytes` and its length; checks it.
    ///
    /// # Errors
    /// [`HeadError`]; `Short` only if what is there can begin a head prefix.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), HeadError> {
        let mut r = Reader::new(bytes);
        let shape = |e| {
            if e == CborError::Short {
                HeadError::Short
            } else {
                HeadError::Shape(e)
            }
        };
        let items = r.array().map_err(shape)?;
        if items != RECORD_ITEMS && items != CONTROL_ITEMS {
            return Err(HeadError::Value("number of items"));
        }
        let head: &[u8; 8] = r.array_bytes().map_err(shape)?;
        let seq = Seq(r.uint().map_err(shape)?);
        let kind = Kind::from_number(r.uint().map_err(shape)?).ok_or(HeadError::Value("kind"))?;
        r.array_of(2).map_err(shape)?;
        let index = r.uint().map_err(shape)?;
        let count = r.uint().map_err(shape)?;
        let prefix = Self {
            frame_len: be32(head),
            seq,
            kind,
            write: write_numbers(index, count)?,
        };
        if (kind == Kind::Record) != (items == RECORD_ITEMS) {
            return Err(HeadError::Value("number of items"));
        }
        if !(FRAME_LEN_MIN..=FRAME_LEN_MAX).contains(&prefix.frame_len) {
            return Err(HeadError::Value("frame length"));
        }
        if head != &prefix.head() {
            return Err(HeadError::Check);
        }
        Ok((prefix, r.position()))
    }

    /// The 8 bytes of the item `head`.
    #[must_use]
    pub fn head(&self) -> [u8; 8] {
        let mut input = [0; 21];
        input[..4].copy_from_slice(&self.frame_len.to_be_bytes());
        input[4..12].copy_from_slice(&self.seq.0.to_be_bytes());
        input[12] = self.kind.number();
        input[13..17].copy_from_slice(&self.write.index.to_be_bytes());
        input[17..].copy_from_slice(&self.write.count.to_be_bytes());
        let [a, b, c, d, ..] = derive(Context::Head, &input);
        let [l0, l1, l2, l3] = self.frame_len.to_be_bytes();
        [l0, l1, l2, l3, a, b, c, d]
    }
}

fn be32(head: &[u8; 8]) -> u32 {
    let [a, b, c, d, ..] = *head;
    u32::from_be_bytes([a, b, c, d])
}

fn write_numbers(index: u64, count: u64) -> Result<WriteNumbers, HeadError> {
    if count == 0 || count > u64::from(WRITE_FRAMES_MAX) || index >= count {
        return Err(HeadError::Value("place in the write"));
    }
    let narrow = |v| u32::try_from(v).map_err(|_| HeadError::Value("place in the write"));
    Ok(WriteNumbers {
        index: narrow(index)?,
        count: narrow(count)?,
    })
}

/// Whether bytes that end inside a head prefix can begin one (section 14, step 3.3).
#[must_use]
pub fn can_begin_head(bytes: &[u8]) -> bool {
    match bytes {
        [] | [0x88 | 0x8b] => true,
        [0x88 | 0x8b, second, ..] => *second == 0x48,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbor::Encoder;

    fn encode(p: &HeadPrefix) -> Vec<u8> {
        let mut out = Vec::new();
        Encoder::new(&mut out)
            .array(if p.kind == Kind::Record { 11 } else { 8 })
            .bytes(&p.head())
            .uint(p.seq.0)
            .uint(p.kind.number().into())
            .array(2)
            .uint(p.write.index.into())
            .uint(p.write.count.into());
        out
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let p = HeadPrefix {
            frame_len: 812,
            seq: Seq(70_000),
            kind: Kind::Record,
            write: WriteNumbers {
                index: 3,
                count: 300,
            },
        };
        let good = encode(&p);
        assert_eq!(HeadPrefix::parse(&good), Ok((p, good.len())));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(HeadPrefix::parse(&bad).is_err(), "bit {bit}");
        }
        for n in 0..good.len() {
            assert_eq!(
                HeadPrefix::parse(&good[..n]),
                Err(HeadError::Short),
                "{n} bytes"
            );
            assert!(can_begin_head(&good[..n]));
        }
    }

    #[test]
    fn limits_hold() {
        let base = HeadPrefix {
            frame_len: 100,
            seq: Seq(1),
            kind: Kind::Recovery,
            write: WriteNumbers::ALONE,
        };
        for bad in [
            HeadPrefix {
                frame_len: FRAME_LEN_MAX + 1,
                ..base
            },
            HeadPrefix {
                frame_len: FRAME_LEN_MIN - 1,
                ..base
            },
            HeadPrefix {
                write: WriteNumbers { index: 1, count: 1 },
                ..base
            },
            HeadPrefix {
                write: WriteNumbers { index: 0, count: 0 },
                ..base
            },
            HeadPrefix {
                write: WriteNumbers {
                    index: 0,
                    count: WRITE_FRAMES_MAX + 1,
                },
                ..base
            },
        ] {
            assert!(
                matches!(HeadPrefix::parse(&encode(&bad)), Err(HeadError::Value(_))),
                "{bad:?}"
            );
        }
    }
}
