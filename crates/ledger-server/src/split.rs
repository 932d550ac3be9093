//! A batch cut into the bytes of its records, before any of them is read.
//!
//! Only the outermost array is looked at; nesting below it costs no stack, and its depth is judged
//! where each record is read. Not a parser of records: `ledger-records`.

use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Why a body is no batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SplitError {
    /// Not an array, or not well-formed.
    Malformed(String),
    /// More records than allowed.
    TooMany { max: usize },
}

/// The elements of a JSON array, at most `max`.
pub(crate) fn json_array(body: &[u8], max: usize) -> Result<Vec<&[u8]>, SplitError> {
    let mut input = serde_json::Deserializer::from_slice(body);
    let elements = Elements { max }.deserialize(&mut input);
    let elements = elements.and_then(|found| input.end().map(|()| found));
    let found = elements.map_err(|e| SplitError::Malformed(e.to_string()))?;
    if found.len() > max {
        return Err(SplitError::TooMany { max });
    }
    Ok(found.into_iter().map(|raw| raw.get().as_bytes()).collect())
}

struct Elements {
    max: usize,
}

impl<'de> DeserializeSeed<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(element) = seq.next_element::<&RawValue>()? {
            // One beyond the limit is kept, so that the caller sees that there are more.
            if found.len() <= self.max {
                found.push(element);
            }
        }
        Ok(found)
    }
}

/// The items of a CBOR array, of definite or indefinite length, at most `max`.
pub(crate) fn cbor_array(body: &[u8], max: usize) -> Result<Vec<&[u8]>, SplitError> {
    let mut scan = Scan { body, at: 0 };
    let head = scan.head()?;
    if head.major != 4 {
        return Err(malformed("a batch is an array of records"));
    }
    let mut found = Vec::new();
    let mut left = head.value;
    loop {
        match &mut left {
            Some(0) => break,
            Some(n) => *n -= 1,
            None if scan.body.get(scan.at) == Some(&0xff) => {
                scan.at += 1;
                break;
            }
            None => {}
        }
        if found.len() == max {
            return Err(SplitError::TooMany { max });
        }
        let start = scan.at;
        scan.skip()?;
        found.push(&body[start..scan.at]);
    }
    if scan.at != body.len() {
        return Err(malformed("bytes behind the array"));
    }
    Ok(found)
}

/// Whether the body is an array by its first byte; white space before it is JSON's.
pub(crate) fn is_json_array(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Whether the body is a CBOR array by its first byte.
pub(crate) fn is_cbor_array(body: &[u8]) -> bool {
    body.first().is_some_and(|b| b >> 5 == 4)
}

fn malformed(why: &str) -> SplitError {
    SplitError::Malformed(why.to_owned())
}

struct Scan<'b> {
    body: &'b [u8],
    at: usize,
}

struct Head {
    major: u8,
    /// None for indefinite lengths and the break.
    value: Option<u64>,
}

impl Scan<'_> {
    fn head(&mut self) -> Result<Head, SplitError> {
        let short = || malformed("the bytes end inside an item");
        let first = *self.body.get(self.at).ok_or_else(short)?;
        self.at += 1;
        let (major, info) = (first >> 5, first & 0x1f);
        let len = match info {
            0..=23 => {
                let value = Some(u64::from(info));
                return Ok(Head { major, value });
            }
            24..=27 => 1_usize << (info - 24),
            31 if matches!(major, 2..=5 | 7) => return Ok(Head { major, value: None }),
            _ => return Err(malformed("a reserved head")),
        };
        let bytes = self.body.get(self.at..self.at + len).ok_or_else(short)?;
        self.at += len;
        let value = bytes.iter().fold(0, |v, b| v << 8 | u64::from(*b));
        Ok(Head {
            major,
            value: Some(value),
        })
    }

    /// Passes one item. Open containers are counted on a heap stack, so depth costs no stack.
    fn skip(&mut self) -> Result<(), SplitError> {
        // Items that the innermost containers still hold; none for indefinite ones.
        let mut open: Vec<Option<u64>> = vec![Some(1)];
        while let Some(left) = open.last_mut() {
            match left {
                Some(0) => {
                    open.pop();
                    continue;
                }
                Some(n) => *n -= 1,
                None => {}
            }
            let indefinite = left.is_none();
            let head = self.head()?;
            match (head.major, head.value) {
                (7, None) if indefinite => {
                    open.pop();
                }
                (7, None) => return Err(malformed("a break outside an indefinite item")),
                (2 | 3, Some(len)) => self.pass(len)?,
                (4, Some(len)) => open.push(Some(len)),
                (5, Some(len)) => {
                    let items = len.checked_mul(2);
                    open.push(Some(
                        items.ok_or_else(|| malformed("a map beyond any length"))?,
                    ));
                }
                (6, Some(_)) => open.push(Some(1)),
                (_, None) => open.push(None),
                (_, Some(_)) => {}
            }
            if open.len() > self.body.len() {
                return Err(malformed("nested beyond its length"));
            }
        }
        Ok(())
    }

    fn pass(&mut self, len: u64) -> Result<(), SplitError> {
        let end = usize::try_from(len)
            .ok()
            .and_then(|len| self.at.checked_add(len));
        match end.filter(|end| *end <= self.body.len()) {
            Some(end) => {
                self.at = end;
                Ok(())
            }
            None => Err(malformed("the bytes end inside an item")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_elements_are_cut_as_they_stand() {
        let body = br#" [ {"a":[1,"]"]} ,2,
            "x" ] "#;
        let found = json_array(body, 3).unwrap();
        assert_eq!(found, [&br#"{"a":[1,"]"]}"#[..], b"2", b"\"x\""]);
        assert_eq!(json_array(body, 2), Err(SplitError::TooMany { max: 2 }));
        assert_eq!(json_array(b"[]", 2), Ok(vec![]));
        for bad in ["[1", "[1,]", "[1]x", "{}", "", "[1 2]"] {
            let found = json_array(bad.as_bytes(), 9);
            assert!(matches!(found, Err(SplitError::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = [b"[".repeat(1 << 20), b"]".repeat(1 << 20)].concat();
        // Cut as one element, or refused; either way without a crash.
        let _ = json_array(&deep, 9);
        let deep = [vec![0x81; 1 << 20], vec![0x01]].concat();
        assert_eq!(cbor_array(&deep, 9).unwrap().len(), 1);
        let deep = [vec![0x9f; 1 << 16], vec![0xff; 1 << 16]].concat();
        assert_eq!(cbor_array(&deep, 9).unwrap().len(), 1);
    }

    #[test]
    fn cbor_items_are_cut_as_they_stand() {
        // [{"a": [1, h'00']}, "x", 24, indefinite text, tag, simple]
        let items: [&[u8]; 6] = [
            &[0xa1, 0x61, b'a', 0x82, 0x01, 0x41, 0x00],
            &[0x61, b'x'],
            &[0x18, 0x18],
            &[0x7f, 0x61, b'y', 0xff],
            &[0xc1, 0x01],
            &[0xf6],
        ];
        let definite = [&[0x86][..], &items.concat()].concat();
        assert_eq!(cbor_array(&definite, 6).unwrap(), items);
        let indefinite = [&[0x9f][..], &items.concat(), &[0xff]].concat();
        assert_eq!(cbor_array(&indefinite, 6).unwrap(), items);
        assert_eq!(
            cbor_array(&definite, 5),
            Err(SplitError::TooMany { max: 5 })
        );
        for cut in 0..definite.len() {
            assert!(cbor_array(&definite[..cut], 6).is_err(), "cut at {cut}");
            assert!(cbor_array(&indefinite[..cut], 6).is_err(), "cut at {cut}");
        }
        let lying = [0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert!(cbor_array(&lying, 6).is_err());
        assert!(
            cbor_array(
                &[0x81, 0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                6
            )
            .is_err()
        );
        assert!(cbor_array(&[0x81, 0xff], 6).is_err(), "a break alone");
        assert!(cbor_array(&[0x81, 0x01, 0x00], 6).is_err(), "trailing");
    }
}
