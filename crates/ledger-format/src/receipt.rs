//! Append receipts: what a service keeps of an acknowledgement (`ledger-format.md`, section 17).

use crate::types::{Link, Seq, UnixMillis, hex};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

/// A line longer than this is no receipt.
const LINE_LEN_MAX: usize = 8192;

/// Why a line is no receipt.
#[derive(Debug, Error)]
pub enum ReceiptError {
    /// Longer than any receipt.
    #[error("the line has {0} bytes, more than a receipt has")]
    TooLong(usize),
    /// Not the JSON of a receipt.
    #[error("not an append receipt: {0}")]
    Json(#[from] serde_json::Error),
    /// A version other than `v1`.
    #[error("a receipt of version {0:?}; this program reads v1")]
    Version(String),
    /// A link that is not 64 lower-case hex digits.
    #[error("the link is not 64 lower-case hex digits")]
    Link,
}

/// One acknowledged record: its holder can show that the chain they see is the one promised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppendReceipt {
    /// The ledger's origin in the generation of the append.
    pub origin: String,
    /// The frame's number.
    pub seq: Seq,
    /// The frame's link.
    pub link: Link,
    /// The record's id.
    pub record_id: String,
    /// The writer's clock, RFC 3339.
    pub appended_at: String,
}

/// As it is written.
#[derive(Serialize)]
struct WireRef<'r> {
    receipt: &'static str,
    origin: &'r str,
    seq: u64,
    link: String,
    record_id: &'r str,
    appended_at: &'r str,
}

/// As it is read.
#[derive(Deserialize)]
struct Wire {
    receipt: String,
    origin: String,
    seq: u64,
    link: String,
    record_id: String,
    appended_at: String,
}

impl AppendReceipt {
    /// A receipt for a frame.
    #[must_use]
    pub fn new(
        origin: String,
        seq: Seq,
        link: Link,
        record_id: String,
        appended_at: UnixMillis,
    ) -> Self {
        Self {
            origin,
            seq,
            link,
            record_id,
            appended_at: appended_at.to_rfc3339(),
        }
    }

    /// One line of JSON, without a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self)
            .unwrap_or_else(|_| unreachable!("strings and a number always serialize"))
    }

    /// Reads a line; other members are ignored, doubled or missing ones refused.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn parse(line: &str) -> Result<Self, ReceiptError> {
        if line.len() > LINE_LEN_MAX {
            return Err(ReceiptError::TooLong(line.len()));
        }
        let wire: Wire = serde_json::from_str(line)?;
        if wire.receipt != "v1" {
            return Err(ReceiptError::Version(
                wire.receipt.chars().take(16).collect(),
            ));
        }
        Ok(Self {
            origin: wire.origin,
            seq: Seq(wire.seq),
            link: parse_link(&wire.link).ok_or(ReceiptError::Link)?,
            record_id: wire.record_id,
            appended_at: wire.appended_at,
        })
    }
}

/// The object of section 17.
impl Serialize for AppendReceipt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = WireRef {
            receipt: "v1",
            origin: &self.origin,
            seq: self.seq.0,
            link: hex(&self.link.0),
            record_id: &self.record_id,
            appended_at: &self.appended_at,
        };
        wire.serialize(serializer)
    }
}

fn parse_link(text: &str) -> Option<Link> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let value = |d: u8| match d {
        b'0'..=b'9' => Some(d - b'0'),
        b'a'..=b'f' => Some(d - b'a' + 10),
        _ => None,
    };
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(Link(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let r = AppendReceipt::new(
            "a/b".into(),
            Seq(u64::MAX),
            Link([0xf0; 32]),
            "rec_1".into(),
            UnixMillis(1_796_000_000_123),
        );
        let line = r.to_json();
        assert!(
            line.contains("\"2026-11-30T") && line.contains(".123Z\""),
            "{line}"
        );
        assert_eq!(AppendReceipt::parse(&line).unwrap(), r);
        assert_eq!(
            AppendReceipt::parse(&line.replacen('{', "{\"more\":[1],", 1)).unwrap(),
            r
        );
        for (from, to) in [
            ("\"v1\"", "\"v2\""),
            ("f0f0", "F0F0"),
            ("f0f0", "f0f"),
            ("\"seq\":", "\"seq\":1,\"seq\":"),
            ("\"seq\"", "\"sequence\""),
        ] {
            assert!(
                AppendReceipt::parse(&line.replacen(from, to, 1)).is_err(),
                "{to}"
            );
        }
    }
}
