//! The strict CBOR subset of frames and control bodies (`ledger-format.md`, section 1).
//!
//! Core deterministic encoding only: everything else is an error, so that one value has one
//! encoding. This is not a general CBOR library: no floats, no tags, no negative numbers.

use thiserror::Error;

/// Why bytes are no item of the subset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CborError {
    /// The bytes end inside an item.
    #[error("the bytes end inside an item")]
    Short,
    /// A head that is not the shortest for its value, indefinite, or reserved.
    #[error("a head that is not in shortest form, or is indefinite or reserved")]
    NotShortest,
    /// Another type of item than the one that must stand here.
    #[error("expected {expected}, found another type of item")]
    Type {
        /// What must stand here.
        expected: &'static str,
    },
    /// The right type with another size or value than allowed.
    #[error("{what} out of bounds")]
    Bounds {
        /// What is out of bounds.
        what: &'static str,
    },
    /// A text string that is not UTF-8.
    #[error("a text string that is not UTF-8")]
    Utf8,
    /// Another key than the one that must stand next in this map.
    #[error("map key {expected:?} must stand here")]
    Key {
        /// The key that must stand here.
        expected: &'static str,
    },
    /// Bytes behind the end of the item.
    #[error("bytes behind the end of the item")]
    Trailing,
}

/// Reads items of the subset from a slice; nothing is copied.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    buf: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `buf`.
    #[must_use]
    pub const fn new(buf: &'a [u8]) -> Self {
        Self { buf, pos: 0 }
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.pos
    }

    /// Whether everything was read.
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.pos == self.buf.len()
    }

    /// Fails unless everything was read.
    ///
    /// # Errors
    /// [`CborError::Trailing`].
    pub const fn finish(&self) -> Result<(), CborError> {
        if self.is_at_end() {
            Ok(())
        } else {
            Err(CborError::Trailing)
        }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], CborError> {
        let end = self.pos.checked_add(n).ok_or(CborError::Short)?;
        let part = self.buf.get(self.pos..end).ok_or(CborError::Short)?;
        self.pos = end;
        Ok(part)
    }

    fn head(&mut self) -> Result<(u8, u64), CborError> {
        let first = *self.take(1)?.first().ok_or(CborError::Short)?;
        let (major, info) = (first >> 5, first & 0x1f);
        let (value, floor) = match info {
            0..=23 => return Ok((major, u64::from(info))),
            24 => (self.be(1)?, 24),
            25 => (self.be(2)?, 1 << 8),
            26 => (self.be(4)?, 1 << 16),
            27 => (self.be(8)?, 1 << 32),
            _ => return Err(CborError::NotShortest),
        };
        if value < floor {
            return Err(CborError::NotShortest);
        }
        Ok((major, value))
    }

    fn be(&mut self, n: usize) -> Result<u64, CborError> {
        Ok(self
            .take(n)?
            .iter()
            .fold(0, |v, b| (v << 8) | u64::from(*b)))
    }

    fn typed(&mut self, major: u8, expected: &'static str) -> Result<u64, CborError> {
        match self.head()? {
            (m, v) if m == major => Ok(v),
            _ => Err(CborError::Type { expected }),
        }
    }

    /// An unsigned integer.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn uint(&mut self) -> Result<u64, CborError> {
        self.typed(0, "an unsigned integer")
    }

    /// A byte string.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn bytes(&mut self) -> Result<&'a [u8], CborError> {
        let n = self.typed(2, "a byte string")?;
        self.take(usize::try_from(n).map_err(|_| CborError::Short)?)
    }

    /// A byte string of exactly `N` bytes.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn array_bytes<const N: usize>(&mut self) -> Result<&'a [u8; N], CborError> {
        let bytes = self.bytes()?;
        bytes.try_into().map_err(|_| CborError::Bounds {
            what: "length of a byte string",
        })
    }

    /// A text string.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn text(&mut self) -> Result<&'a str, CborError> {
        let n = self.typed(3, "a text string")?;
        let bytes = self.take(usize::try_from(n).map_err(|_| CborError::Short)?)?;
        std::str::from_utf8(bytes).map_err(|_| CborError::Utf8)
    }

    /// The head of an array; its number of items.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn array(&mut self) -> Result<u64, CborError> {
        self.typed(4, "an array")
    }

    /// The head of an array of exactly `n` items.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn array_of(&mut self, n: u64) -> Result<(), CborError> {
        if self.array()? == n {
            Ok(())
        } else {
            Err(CborError::Bounds {
                what: "number of array items",
            })
        }
    }

    /// The head of a map; its number of pairs.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn map(&mut self) -> Result<u64, CborError> {
        self.typed(5, "a map")
    }

    /// The head of a map of exactly `n` pairs.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn map_of(&mut self, n: u64) -> Result<(), CborError> {
        if self.map()? == n {
            Ok(())
        } else {
            Err(CborError::Bounds {
                what: "number of map pairs",
            })
        }
    }

    /// The next map key, which must be `expected`: maps of the format have fixed keys in fixed order.
    ///
    /// # Errors
    /// Any [`CborError`] that fits.
    pub fn key(&mut self, expected: &'static str) -> Result<(), CborError> {
        match self.text() {
            Ok(k) if k == expected => Ok(()),
            Ok(_) | Err(CborError::Type { .. }) => Err(CborError::Key { expected }),
            Err(e) => Err(e),
        }
    }

    /// Consumes a null if one stands here.
    pub fn take_null(&mut self) -> bool {
        let is_null = self.buf.get(self.pos) == Some(&0xf6);
        if is_null {
            self.pos += 1;
        }
        is_null
    }
}

/// Writes items of the subset, always in shortest form, to the end of a vector.
#[derive(Debug)]
pub struct Encoder<'v> {
    out: &'v mut Vec<u8>,
}

impl<'v> Encoder<'v> {
    /// An encoder that appends to `out`.
    pub const fn new(out: &'v mut Vec<u8>) -> Self {
        Self { out }
    }

    #[allow(clippy::cast_possible_truncation)] // each arm has checked the width it casts to
    fn head(&mut self, major: u8, value: u64) -> &mut Self {
        let major = major << 5;
        match value {
            0..=23 => self.out.push(major | value as u8),
            24..=0xff => self.out.extend_from_slice(&[major | 24, value as u8]),
            0x100..=0xffff => {
                self.out.push(major | 25);
                self.out.extend_from_slice(&(value as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                self.out.push(major | 26);
                self.out.extend_from_slice(&(value as u32).to_be_bytes());
            }
            _ => {
                self.out.push(major | 27);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
        }
        self
    }

    /// An unsigned integer.
    pub fn uint(&mut self, value: u64) -> &mut Self {
        self.head(0, value)
    }

    /// A byte string.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.head(2, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self
    }

    /// Only the head of a byte string of `len` bytes; the caller appends them.
    pub fn bytes_head(&mut self, len: usize) -> &mut Self {
        self.head(2, len as u64)
    }

    /// A text string.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.head(3, text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    /// The head of an array.
    pub fn array(&mut self, items: usize) -> &mut Self {
        self.head(4, items as u64)
    }

    /// The head of a map.
    pub fn map(&mut self, pairs: usize) -> &mut Self {
        self.head(5, pairs as u64)
    }

    /// Null.
    pub fn null(&mut self) -> &mut Self {
        self.out.push(0xf6);
        self
    }
}

/// Length of the head of an item with this argument.
pub(crate) const fn head_len(value: u64) -> usize {
    match value {
        0..=23 => 1,
        24..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_not_deterministic() {
        for bad in [
            &[0x18, 0x17][..],   // 23 in two bytes
            &[0x19, 0x00, 0xff], // 255 in three
            &[0x1a, 0x00, 0x00, 0xff, 0xff],
            &[0x1b, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x1f], // indefinite
            &[0x1c], // reserved
        ] {
            assert_eq!(
                Reader::new(bad).uint(),
                Err(CborError::NotShortest),
                "{bad:02x?}"
            );
        }
        assert_eq!(
            Reader::new(&[0x5f, 0x41, 0x00, 0xff]).bytes(),
            Err(CborError::NotShortest)
        );
        assert_eq!(Reader::new(&[0x61, 0xff]).text(), Err(CborError::Utf8));
        assert_eq!(
            Reader::new(&[0x20]).uint(),
            Err(CborError::Type {
                expected: "an unsigned integer"
            })
        );
        assert_eq!(
            Reader::new(&[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).bytes(),
            Err(CborError::Short)
        );
    }

    proptest! {
        #[test]
        fn round_trip(v: u64, b in proptest::collection::vec(any::<u8>(), 0..400), t in ".{0,40}") {
            let mut out = Vec::new();
            Encoder::new(&mut out).uint(v).bytes(&b).text(&t).null();
            prop_assert_eq!(head_len(v) + head_len(b.len() as u64) + b.len() + head_len(t.len() as u64) + t.len() + 1, out.len());
            let mut r = Reader::new(&out);
            prop_assert_eq!(r.uint(), Ok(v));
            prop_assert_eq!(r.bytes(), Ok(&b[..]));
            prop_assert_eq!(r.text(), Ok(&t[..]));
            prop_assert!(r.take_null());
            prop_assert_eq!(r.finish(), Ok(()));
        }
    }
}
