//! The ledger opened by this very command. How records get onto the disk is the writer's.

use std::path::Path;

use ledger_records::Submission;
use ledger_vault::RetentionClass;
use ledger_writer::{
    AppendError, Config, OpenMode, Opened, PrepareError, Prepared, Writer, state_root,
};
use serde_json::Value;

use super::session::{Outcome, Target, faults, refusal};
use crate::terminal::{say, warn};

/// Opens the ledger.
pub(super) fn open(
    ledger: &Path,
    state: Option<&Path>,
    payload_classes: Vec<RetentionClass>,
) -> anyhow::Result<(Writer, Opened)> {
    let config = Config {
        payload_classes,
        ..Config::default()
    };
    let state = state_root(state)?;
    Ok(Writer::open(ledger, &state, config, OpenMode::Normal)?)
}

/// Says what opening had to repair; nothing when there was nothing.
pub(super) fn announce(opened: &Opened) {
    if opened.unclean {
        warn("the last writer did not close its segment; recovered");
    }
    for file in &opened.set_aside {
        let (length, segment, path) = (file.length, file.segment, file.path.display());
        say(format_args!(
            "  {length} bytes of an unfinished write in segment {segment} set aside in {path}"
        ));
    }
}

pub(super) struct Local<'w>(pub(super) &'w Writer);

impl Target for Local<'_> {
    type Ready = Vec<Prepared>;

    fn prepare(&self, record: Submission) -> Result<Vec<Prepared>, Value> {
        // Nobody's socket is behind a file: nothing is attested of the sender.
        let prepared = self.0.prepare(record, None);
        prepared
            .map(|prepared| vec![prepared])
            .map_err(|error| match &error {
                PrepareError::Record(errors) => faults(errors),
                PrepareError::Class { .. } => refusal("unknown_payload_class", &error.to_string()),
                other => refusal("invalid_record", &other.to_string()),
            })
    }

    fn commit(&self, ready: Vec<Vec<Prepared>>) -> Vec<Outcome> {
        let results = self.0.append_each(ready).into_iter();
        results.map(outcome).collect()
    }
}

fn outcome(result: Result<Vec<ledger_writer::Appended>, AppendError>) -> Outcome {
    let error = match result {
        Ok(records) => match records.into_iter().next() {
            Some(record) => {
                return Outcome::Appended {
                    receipt: record.receipt,
                    duplicate: record.duplicate,
                };
            }
            None => AppendError::Closing,
        },
        Err(error) => error,
    };
    let text = error.to_string();
    match error {
        AppendError::Conflict {
            first_seq,
            record_id,
            ..
        } => {
            let what = format!(
                "record_id {record_id:?} is in the ledger since frame {first_seq}, with other content"
            );
            let mut refusal = refusal("record_conflict", &what);
            refusal["first_seq"] = first_seq.0.into();
            Outcome::Refused(refusal)
        }
        AppendError::Unreadable { .. } => Outcome::Refused(refusal("unreadable_frame", &text)),
        AppendError::RequestSize { .. } => Outcome::Refused(refusal("not_appended", &text)),
        full if full.is_disk_full() => Outcome::Failed {
            error: refusal("not_appended", &text),
            hint: "make room on the ledger's disk, then append the lines without a receipt again",
        },
        _ => Outcome::Failed {
            error: refusal("not_appended", &text),
            hint: "append the lines without a receipt again: opening recovers first",
        },
    }
}
