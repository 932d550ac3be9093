//! The ledger behind a daemon's socket. What is tried again, and when, is the client's.

use std::path::Path;

use anyhow::Context;
use ledger_client::{Client, ClientError, Pipeline, Problem};
use ledger_records::Submission;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::session::{Outcome, Target, refusal};

/// What may be done after any failure.
const SEND_AGAIN: &str = "send the lines without a receipt again: a record id is appended once";

pub(super) struct Remote {
    runtime: Runtime,
    pipeline: Pipeline,
}

impl Remote {
    pub(super) fn new(socket: &Path) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the client")?;
        let client = Client::new(socket);
        // One group under way, so that the ledger's order is the input's.
        let pipeline = runtime.block_on(async { Pipeline::new(&client, 1) });
        Ok(Self { runtime, pipeline })
    }
}

impl Target for Remote {
    type Ready = Submission;

    fn prepare(&self, record: Submission) -> Result<Submission, Value> {
        Ok(record)
    }

    fn commit(&self, ready: Vec<Submission>) -> Vec<Outcome> {
        self.runtime.block_on(async {
            let mut pending = Vec::with_capacity(ready.len());
            for record in &ready {
                pending.push(self.pipeline.append(record).await);
            }
            let mut outcomes = Vec::with_capacity(pending.len());
            for handed_in in pending {
                let acknowledged = match handed_in {
                    Ok(pending) => pending.acknowledged().await,
                    Err(error) => Err(error),
                };
                outcomes.push(match acknowledged {
                    Ok(done) => Outcome::Appended {
                        receipt: done.receipt,
                        duplicate: done.duplicate,
                    },
                    Err(error) => outcome(&error),
                });
            }
            outcomes
        })
    }
}

fn outcome(error: &ClientError) -> Outcome {
    match error {
        ClientError::Refused(problem) if is_of_the_record(problem) => {
            let mut refusal = refusal(&problem.code, &problem.detail);
            for (theirs, ours) in [
                ("errors", "faults"),
                ("errors_left_out", "more"),
                ("first_seq", "first_seq"),
            ] {
                if let Some(value) = problem.members.get(theirs) {
                    refusal[ours] = value.clone();
                }
            }
            Outcome::Refused(refusal)
        }
        ClientError::Refused(problem) => Outcome::Failed {
            error: refusal(&problem.code, &error.to_string()),
            hint: match problem.code.as_str() {
                "peer_not_mapped" => "ask the operator to name this user in [[listener.peer]]",
                "role_forbidden" => "name a writer or operator socket",
                "disk_full" => {
                    "the daemon goes on by itself once there is space; then send the lines without a receipt again"
                }
                "ledger_stopped" => "an operator has to look: `ledger status` says why",
                _ => SEND_AGAIN,
            },
        },
        ClientError::NotReached { .. } => Outcome::Failed {
            error: refusal("not_appended", &error.to_string()),
            hint: "is the daemon there? `ledger serve DIR` starts it, --socket names its writer socket",
        },
        _ => Outcome::Failed {
            error: refusal("not_appended", &error.to_string()),
            hint: SEND_AGAIN,
        },
    }
}

/// Whether the next record may fare better.
fn is_of_the_record(problem: &Problem) -> bool {
    !matches!(problem.code.as_str(), "peer_not_mapped" | "role_forbidden") && problem.status < 500
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(code: &str, status: u16) -> ClientError {
        let text = format!(r#"{{"code":"{code}","status":{status},"detail":"d","first_seq":7}}"#);
        ClientError::Refused(Box::new(serde_json::from_str(&text).unwrap()))
    }

    #[test]
    fn what_concerns_one_record_stops_no_other() {
        for (code, status, stops) in [
            ("record_conflict", 409, false),
            ("secret_refused", 422, false),
            ("record_type_forbidden", 403, false),
            ("peer_not_mapped", 403, true),
            ("role_forbidden", 403, true),
            ("ledger_stopped", 503, true),
            ("disk_full", 507, true),
        ] {
            let outcome = outcome(&problem(code, status));
            assert_eq!(matches!(outcome, Outcome::Failed { .. }), stops, "{code}");
        }
        let Outcome::Refused(answer) = outcome(&problem("record_conflict", 409)) else {
            panic!("a conflict is the record's own")
        };
        assert_eq!(answer["first_seq"], 7);
    }
}
