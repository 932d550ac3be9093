//! Core deterministic CBOR (RFC 8949 section 4.2.1): a direct writer, and a strict reader.
//! Not a general CBOR library: no floats, no tags, no indefinite lengths.

use std::borrow::Cow;

use crate::error::DecodeError;
use crate::limits::DEPTH_MAX;
use crate::node::Node;

const UINT: u8 = 0 << 5;
const NEGATIVE: u8 = 1 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const MAP: u8 = 5 << 5;
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;

#[inline]
fn head(out: &mut Vec<u8>, major: u8, value: u64) {
    match value {
        0..=23 => out.push(major | value as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, value as u8]),
        0x100..=0xffff => {
            let [a, b] = (value as u16).to_be_bytes();
            out.extend_from_slice(&[major | 25, a, b]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

#[inline]
pub(crate) fn uint(out: &mut Vec<u8>, value: u64) {
    head(out, UINT, value);
}

pub(crate) fn int(out: &mut Vec<u8>, value: i64) {
    match u64::try_from(value) {
        Ok(value) => head(out, UINT, value),
        // !value is -1 - value, which is what major type 1 carries.
        Err(_) => head(out, NEGATIVE, !value as u64),
    }
}

#[inline]
pub(crate) fn text(out: &mut Vec<u8>, value: &str) {
    head(out, TEXT, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

#[inline]
pub(crate) fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    head(out, BYTES, value.len() as u64);
    out.extend_from_slice(value);
}

#[inline]
pub(crate) fn array(out: &mut Vec<u8>, len: usize) {
    head(out, ARRAY, len as u64);
}

#[inline]
pub(crate) fn map(out: &mut Vec<u8>, len: usize) {
    head(out, MAP, len as u64);
}

pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    out.push(if value { TRUE } else { FALSE });
}

pub(crate) fn null(out: &mut Vec<u8>) {
    out.push(NULL);
}

/// True when key `a` stands before key `b` in a deterministic map: by encoded bytes, so by length, then by content.
pub(crate) const fn key_before(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return a.len() < b.len();
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    false
}

/// The deterministic order of `names`, as indices; computed when the crate is compiled.
pub(crate) const fn key_order<const N: usize>(names: [&str; N]) -> [u8; N] {
    let mut order = [0u8; N];
    let mut i = 0;
    while i < N {
        let mut at = i;
        while at > 0 && key_before(names[i], names[order[at - 1] as usize]) {
            order[at] = order[at - 1];
            at -= 1;
        }
        order[at] = i as u8;
        i += 1;
    }
    order
}

/// What a fact may be, as read.
pub(crate) enum Scalar<'a> {
    Uint(u64),
    Int(i64),
    Bool(bool),
    Text(&'a str),
    Array(usize),
}

/// A strict reader over one plaintext. Shortest heads and definite lengths only.
pub(crate) struct Reader<'a> {
    what: &'static str,
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, input: &'a [u8]) -> Self {
        Self { what, input, at: 0 }
    }

    pub(crate) fn fail<T>(&self, problem: &'static str) -> Result<T, DecodeError> {
        Err(DecodeError {
            what: self.what,
            offset: self.at,
            problem,
        })
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], DecodeError> {
        let end = usize::try_from(len)
            .ok()
            .and_then(|len| self.at.checked_add(len));
        match end.and_then(|end| self.input.get(self.at..end).map(|slice| (slice, end))) {
            Some((slice, end)) => {
                self.at = end;
                Ok(slice)
            }
            None => self.fail("the input ends inside a value"),
        }
    }

    fn head(&mut self) -> Result<(u8, u64), DecodeError> {
        let first = self.take(1)?[0];
        let (width, least) = match first & 31 {
            info @ 0..=23 => return Ok((first & 0xe0, u64::from(info))),
            24 => (1, 24),
            25 => (2, 1 << 8),
            26 => (4, 1 << 16),
            27 => (8, 1 << 32),
            _ => return self.fail("an indefinite length or a reserved head"),
        };
        let value = self
            .take(width)?
            .iter()
            .fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        if value < least {
            return self.fail("a head that is not the shortest");
        }
        Ok((first & 0xe0, value))
    }

    fn expect(&mut self, major: u8, problem: &'static str) -> Result<u64, DecodeError> {
        match self.head()? {
            (found, value) if found == major => Ok(value),
            _ => self.fail(problem),
        }
    }

    pub(crate) fn uint(&mut self) -> Result<u64, DecodeError> {
        self.expect(UINT, "not an unsigned integer")
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.expect(BYTES, "not a byte string")?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let len = self.expect(TEXT, "not a text string")?;
        self.utf8(len)
    }

    fn utf8(&mut self, len: u64) -> Result<&'a str, DecodeError> {
        let raw = self.take(len)?;
        std::str::from_utf8(raw).or_else(|_| self.fail("text that is not UTF-8"))
    }

    /// The element count of an array; never more than the bytes that are left, so it is safe to loop over.
    pub(crate) fn array(&mut self) -> Result<usize, DecodeError> {
        let len = self.expect(ARRAY, "not an array")?;
        self.count(len)
    }

    pub(crate) fn map(&mut self) -> Result<usize, DecodeError> {
        let len = self.expect(MAP, "not a map")?;
        self.count(len)
    }

    fn count(&self, len: u64) -> Result<usize, DecodeError> {
        match usize::try_from(len) {
            Ok(len) if len <= self.input.len() - self.at => Ok(len),
            _ => self.fail("more elements than bytes"),
        }
    }

    pub(crate) fn scalar(&mut self) -> Result<Scalar<'a>, DecodeError> {
        let (major, value) = self.head()?;
        match (major, value) {
            (UINT, value) => Ok(Scalar::Uint(value)),
            (NEGATIVE, value) => match i64::try_from(value) {
                Ok(value) => Ok(Scalar::Int(!value)),
                Err(_) => self.fail("an integer below the range of i64"),
            },
            (TEXT, len) => Ok(Scalar::Text(self.utf8(len)?)),
            (ARRAY, len) => Ok(Scalar::Array(self.count(len)?)),
            (0xe0, 20) => Ok(Scalar::Bool(false)),
            (0xe0, 21) => Ok(Scalar::Bool(true)),
            _ => self.fail("a type that a fact cannot have"),
        }
    }

    /// True and past it when the next value is `null`.
    pub(crate) fn null(&mut self) -> bool {
        let found = self.input.get(self.at) == Some(&NULL);
        self.at += usize::from(found);
        found
    }

    /// Passes over one value of integers, strings, arrays, maps and simple values, without recursion.
    pub(crate) fn skip(&mut self) -> Result<&'a [u8], DecodeError> {
        let start = self.at;
        let mut left = 1u64;
        while left > 0 {
            left -= 1;
            match self.head()? {
                (UINT | NEGATIVE, _) | (0xe0, 20..=22) => {}
                (BYTES | TEXT, len) => drop(self.take(len)?),
                (ARRAY, len) => left += self.count(len)? as u64,
                (MAP, len) => left += 2 * self.count(len)? as u64,
                _ => return self.fail("a tag, a float or a reserved value"),
            }
        }
        Ok(&self.input[start..self.at])
    }

    /// One value as a tree, borrowed from the input. `left` bounds the number of values.
    pub(crate) fn node(&mut self, depth: u8, left: &mut u32) -> Result<Node<'a>, DecodeError> {
        if depth > DEPTH_MAX || *left == 0 {
            return self.fail("too deep or too many values");
        }
        *left -= 1;
        Ok(match self.head()? {
            (UINT, value) => Node::Uint(value),
            (NEGATIVE, value) => i64::try_from(value).map_or(Node::Wide, |value| Node::Int(!value)),
            (BYTES, len) => Node::Bytes(self.take(len)?.to_vec()),
            (TEXT, len) => Node::Text(Cow::Borrowed(self.utf8(len)?)),
            (ARRAY, len) => {
                let mut list = Vec::new();
                for _ in 0..self.count(len)? {
                    list.push(self.node(depth + 1, left)?);
                }
                Node::List(list)
            }
            (MAP, len) => {
                let len = self.count(len)?;
                let mut map = Vec::with_capacity(len.min(32));
                for _ in 0..len {
                    let key = Cow::Borrowed(self.text()?);
                    map.push((key, self.node(depth + 1, left)?));
                }
                Node::Map(map)
            }
            (0xe0, 20) => Node::Bool(false),
            (0xe0, 21) => Node::Bool(true),
            (0xe0, 22) => Node::Null,
            _ => return self.fail("a tag, a float or a reserved value"),
        })
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.at == self.input.len() {
            Ok(())
        } else {
            self.fail("bytes behind the end")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_rfc_8949_appendix_a() {
        let cases: [(i64, &[u8]); 9] = [
            (0, &[0x00]),
            (23, &[0x17]),
            (24, &[0x18, 0x18]),
            (1000, &[0x19, 0x03, 0xe8]),
            (1_000_000, &[0x1a, 0x00, 0x0f, 0x42, 0x40]),
            (
                1_000_000_000_000,
                &[0x1b, 0, 0, 0, 0xe8, 0xd4, 0xa5, 0x10, 0],
            ),
            (-1, &[0x20]),
            (-100, &[0x38, 0x63]),
            (-1000, &[0x39, 0x03, 0xe7]),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            int(&mut out, value);
            assert_eq!(out, expected, "{value}");
        }
    }

    #[test]
    fn keys_stand_by_length_then_by_content() {
        let names = [
            "record_id",
            "type",
            "refs",
            "by",
            "a_name_longer_than_twenty_three_bytes",
            "to",
        ];
        let order = key_order(names).map(|i| names[usize::from(i)]);
        assert_eq!(
            order,
            [
                "by",
                "to",
                "refs",
                "type",
                "record_id",
                "a_name_longer_than_twenty_three_bytes"
            ]
        );
        let mut sorted = names.map(|name| {
            let mut key = Vec::new();
            text(&mut key, name);
            key
        });
        sorted.sort();
        for (key, name) in sorted.iter().zip(order) {
            assert!(key.ends_with(name.as_bytes()));
        }
    }

    #[test]
    fn the_reader_refuses_what_is_not_deterministic() {
        let refused: [&[u8]; 7] = [
            &[0x18, 0x17],
            &[0x19, 0x00, 0xff],
            &[0x5f],
            &[0x1c],
            &[0x9a, 0xff, 0xff, 0xff, 0xff],
            &[0xc0, 0x00],
            &[],
        ];
        for input in refused {
            assert!(Reader::new("test", input).skip().is_err(), "{input:02x?}");
        }
        assert!(Reader::new("test", &[0x62, 0xc3, 0x28]).text().is_err());
    }
}
