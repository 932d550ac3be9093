//! Receipts as clients keep them, as far as the drill looks at them.

use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use super::stage::Stage;

/// Where the clients of the host keep their receipts.
pub(super) const RECEIPTS: &str = "host/receipts.ndjson";

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Receipt {
    pub(super) seq: u64,
    link: String,
    pub(super) record_id: String,
}

impl Receipt {
    /// Of an append receipt, or of what else has its members.
    pub(super) fn of(value: &Value) -> Result<Self> {
        let text = |name: &str| {
            let text = value[name].as_str();
            text.map(str::to_owned)
                .with_context(|| format!("no {name} in {value}"))
        };
        Ok(Self {
            seq: value["seq"].as_u64().context("a receipt without seq")?,
            link: text("link")?,
            record_id: text("record_id")?,
        })
    }
}

/// Of lines of JSON.
pub(super) fn receipts_in(text: &str) -> Result<Vec<Receipt>> {
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).context("a receipt as JSON")?;
            Receipt::of(&line)
        })
        .collect()
}

/// All that clients kept.
pub(super) fn kept(stage: &Stage) -> Result<Vec<Receipt>> {
    receipts_in(&std::fs::read_to_string(stage.path(RECEIPTS))?)
}

/// Keeps more of them, as they were printed.
pub(super) fn keep(stage: &Stage, lines: &[String]) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .append(true)
        .open(stage.path(RECEIPTS))?;
    lines.iter().try_for_each(|line| writeln!(file, "{line}"))?;
    Ok(())
}

/// The frame that a record became.
pub(super) fn seq_of(stage: &Stage, record_id: &str) -> Result<u64> {
    let receipts = kept(stage)?;
    let found = receipts.iter().find(|r| r.record_id == record_id);
    found
        .map(|receipt| receipt.seq)
        .with_context(|| format!("no receipt for {record_id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_are_read_and_a_cut_one_is_an_error() {
        let line = r#"{"receipt":"v1","seq":5,"link":"ab","record_id":"rec_1"}"#;
        let receipts = receipts_in(&format!("{line}\n{line}\n")).unwrap();
        assert_eq!((receipts.len(), receipts[0].seq), (2, 5));
        assert!(receipts_in(&line[..30]).is_err());
        assert!(receipts_in(r#"{"error":{}}"#).is_err());
    }
}
