//! The plaintext of a frame's body section: the whole record, and what the server attests of who sent it.
//! Implements ledger-format.md, "Body plaintext". Not sealed and not padded here.

use crate::cbor::{self, Reader};
use crate::error::DecodeError;

/// What the kernel says of the process at the other end of the socket. Zero where it says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Attested {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process; 0 when it is not attested.
    pub pid: u32,
}

/// An opened body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<'a> {
    /// The record's canonical CBOR, for [`crate::Record::from_canonical_cbor`].
    pub record: &'a [u8],
    /// What the server attests, if it does.
    pub attested: Option<Attested>,
}

/// The body of a record: `[record, attested or null]`. `canonical_record` is [`crate::Record::to_canonical_cbor`].
#[must_use]
pub fn encode_body(canonical_record: &[u8], attested: Option<&Attested>) -> Vec<u8> {
    let mut out = Vec::with_capacity(canonical_record.len() + 32);
    cbor::array(&mut out, 2);
    out.extend_from_slice(canonical_record);
    let Some(attested) = attested else {
        cbor::null(&mut out);
        return out;
    };
    cbor::map(&mut out, MEMBERS.len());
    for (name, value) in MEMBERS
        .iter()
        .zip([attested.gid, attested.pid, attested.uid])
    {
        cbor::text(&mut out, name);
        cbor::uint(&mut out, u64::from(value));
    }
    out
}

/// In deterministic order.
const MEMBERS: [&str; 3] = ["gid", "pid", "uid"];

/// Decodes a body that has been opened and whose padding has been taken off. The record is not looked into.
///
/// # Errors
/// The bytes are not what an encoder writes.
pub fn decode_body(input: &[u8]) -> Result<Body<'_>, DecodeError> {
    let mut reader = Reader::new("body", input);
    if reader.array()? != 2 {
        return reader.fail("not an array of 2");
    }
    let record = reader.skip()?;
    if record.first().is_none_or(|head| head & 0xe0 != 0xa0) {
        return reader.fail("a record that is not a map");
    }
    let attested = if reader.null() {
        None
    } else {
        Some(read_attested(&mut reader)?)
    };
    reader.end()?;
    Ok(Body { record, attested })
}

fn read_attested(reader: &mut Reader<'_>) -> Result<Attested, DecodeError> {
    if reader.map()? != MEMBERS.len() {
        return reader.fail("an attestation that is not a map of 3");
    }
    let mut values = [0u32; 3];
    for (name, value) in MEMBERS.iter().zip(&mut values) {
        if reader.text()? != *name {
            return reader.fail("another member than gid, pid, uid");
        }
        *value =
            u32::try_from(reader.uint()?).or_else(|_| reader.fail("a number beyond 32 bits"))?;
    }
    let [gid, pid, uid] = values;
    Ok(Attested { uid, gid, pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_come_back_and_others_are_refused() {
        let record = [0xa1, 0x61, b'a', 0x01];
        let attested = Attested {
            uid: 1000,
            gid: 100,
            pid: 70_000,
        };
        for attested in [None, Some(attested)] {
            let bytes = encode_body(&record, attested.as_ref());
            assert_eq!(
                decode_body(&bytes).unwrap(),
                Body {
                    record: &record,
                    attested
                }
            );
            for end in 0..bytes.len() {
                assert!(decode_body(&bytes[..end]).is_err(), "cut at {end}");
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert!(decode_body(&longer).is_err());
        }
        assert!(
            decode_body(&[0x82, 0x01, 0xf6]).is_err(),
            "a record that is no map"
        );
        assert!(
            decode_body(&[0x82, 0xa0, 0xa0]).is_err(),
            "an empty attestation"
        );
    }
}
