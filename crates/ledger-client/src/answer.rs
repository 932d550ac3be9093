//! What the daemon answers, typed and checked: an acknowledgement that does not fit the record it
//! is for is an error, never a success.

use crate::error::ClientError;
use ledger_format::AppendReceipt;
use serde::Deserialize;
use serde_json::Value;

/// One record that is on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// The receipt, to be kept: [`AppendReceipt::to_json`] is a line of a receipts file.
    pub receipt: AppendReceipt,
    /// True when the record was in the ledger already: the receipt is the one of the first time.
    pub duplicate: bool,
    /// With [`crate::Wait::Checkpoint`]: a `.tlog-proof` file.
    pub proof: Option<String>,
}

/// The answer to one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appended {
    /// One acknowledgement a record, in the order of the call.
    pub records: Vec<Acknowledged>,
    /// With [`crate::Wait::Checkpoint`]: the signed note over them, if one could be cut.
    pub checkpoint: Option<String>,
}

#[derive(Deserialize)]
struct Wire {
    seq: u64,
    link: String,
    record_id: String,
    duplicate: bool,
    receipt: Value,
    proof: Option<String>,
}

#[derive(Deserialize)]
struct WireBatch {
    records: Vec<Value>,
    checkpoint: Option<String>,
}

fn bad(why: impl Into<String>) -> ClientError {
    ClientError::Answer(why.into())
}

impl Acknowledged {
    /// Reads one acknowledgement and holds it against the record id it must be for.
    pub(crate) fn read(value: Value, record_id: &str) -> Result<Self, ClientError> {
        let wire: Wire = serde_json::from_value(value).map_err(|e| bad(e.to_string()))?;
        let receipt =
            AppendReceipt::parse(&wire.receipt.to_string()).map_err(|e| bad(e.to_string()))?;
        let fits = receipt.seq.0 == wire.seq
            && receipt.link.to_hex() == wire.link
            && receipt.record_id == wire.record_id
            && receipt.record_id == record_id;
        if !fits {
            let found = &wire.record_id;
            return Err(bad(format!(
                "an acknowledgement of {found:?} where {record_id:?} was sent"
            )));
        }
        Ok(Self {
            receipt,
            duplicate: wire.duplicate,
            proof: wire.proof,
        })
    }
}

impl Appended {
    /// Reads the answer to a batch.
    pub(crate) fn read(body: &[u8], record_ids: &[String]) -> Result<Self, ClientError> {
        let wire: WireBatch = serde_json::from_slice(body).map_err(|e| bad(e.to_string()))?;
        if wire.records.len() != record_ids.len() {
            let (found, sent) = (wire.records.len(), record_ids.len());
            return Err(bad(format!("{found} acknowledgements for {sent} records")));
        }
        let records = wire.records.into_iter().zip(record_ids);
        let records = records.map(|(value, id)| Acknowledged::read(value, id));
        Ok(Self {
            records: records.collect::<Result<_, _>>()?,
            checkpoint: wire.checkpoint,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value() -> Value {
        let link = "ab".repeat(32);
        json!({
            "seq": 7, "link": link, "record_id": "rec_1", "appended_at": "2026-11-30T14:00:00.000Z",
            "duplicate": false,
            "receipt": {"receipt": "v1", "origin": "a/b", "seq": 7, "link": link,
                "record_id": "rec_1", "appended_at": "2026-11-30T14:00:00.000Z"},
        })
    }

    #[test]
    fn an_acknowledgement_must_fit_its_record() {
        let good = Acknowledged::read(value(), "rec_1").unwrap();
        assert_eq!(good.receipt.seq.0, 7);
        assert!(Acknowledged::read(value(), "rec_2").is_err());
        for (member, wrong) in [
            ("seq", json!(8)),
            ("link", json!("cd".repeat(32))),
            ("record_id", json!("rec_2")),
            ("receipt", json!({})),
            ("duplicate", json!(null)),
        ] {
            let mut bad = value();
            bad[member] = wrong;
            assert!(Acknowledged::read(bad, "rec_1").is_err(), "{member}");
        }
    }

    #[test]
    fn a_batch_must_be_acknowledged_whole() {
        let body = json!({ "records": [value()] }).to_string();
        assert!(Appended::read(body.as_bytes(), &["rec_1".into()]).is_ok());
        let two = ["rec_1".to_owned(), "rec_2".to_owned()];
        assert!(Appended::read(body.as_bytes(), &two).is_err());
    }
}
