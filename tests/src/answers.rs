//! What index and tiles are for: records that are sent again are recognised, and a trace tells its story.
//!
//! A ledger whose derived data was lost, cut or altered must answer as one whose derived data never was.

use crate::ledger::TestLedger;
use crate::record::{self, Request, Shape};
use ledger_format::AppendReceipt;
use ledger_records::Submission;
use ledger_trace::{
    Answer, Derived, FolderOptions, FolderSource, Limits, Query, SourceError, TrustLine, trace,
};
use ledger_vault::Identities;
use ledger_writer::{AppendError, Appended, Prepared, Writer};
use serde_json::Value;

/// Records that were sent, and what was said of them.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Each record as it was sent: a line of JSON.
    pub lines: Vec<String>,
    /// Its receipt.
    pub receipts: Vec<AppendReceipt>,
}

/// Makes a request of lines.
///
/// # Panics
/// A line is no record.
#[must_use]
pub fn prepare(writer: &Writer, lines: &[String]) -> Vec<Prepared> {
    let each = lines.iter().map(|line| {
        let submission =
            Submission::from_json(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"));
        writer.prepare(submission, None).expect("prepares")
    });
    each.collect()
}

/// Appends one request of lines.
///
/// # Errors
/// As [`Writer::append`].
pub fn send(writer: &Writer, lines: &[String]) -> Result<Vec<Appended>, AppendError> {
    writer.append(prepare(writer, lines))
}

/// Lines of `count` records in the shapes of the tests.
#[must_use]
pub fn lines(prefix: &str, number: usize, count: usize, shape: Shape) -> Vec<String> {
    let request = Request {
        prefix: prefix.to_owned(),
        thread: 0,
        number,
    };
    let ids = request.ids(count, shape);
    ids.iter().map(|id| record::line(id)).collect()
}

/// An attempt of an action: attempts of one action are one story.
#[must_use]
pub fn attempt(action: &str, number: usize) -> String {
    format!(
        r#"{{"type":"attempt","record_id":"rec_{action}_{number}","source":"service/outbound","attempt_id":"out_{action}_{number}","action_id":"{action}","idempotency_ref":"idem_{action}","cause":"client_retry","request":{{"length":212}},"sent_at":"2026-11-30T14:03:38Z","outcome":{{"kind":"response","status":200,"received_at":"2026-11-30T14:03:39Z"}}}}"#
    )
}

impl Sent {
    /// Appends new records as one request.
    ///
    /// # Panics
    /// They are refused, or one was there before.
    pub fn send(&mut self, writer: &Writer, lines: Vec<String>) {
        for appended in send(writer, &lines).unwrap_or_else(|e| panic!("{e}")) {
            assert!(!appended.duplicate, "{:?} is new", appended.receipt);
            self.receipts.push(appended.receipt);
        }
        self.lines.extend(lines);
    }

    /// Sends everything again, some records a request; nothing may be appended.
    ///
    /// # Panics
    /// A record is not recognised, or is answered otherwise than the first time.
    #[track_caller]
    pub fn resend(&self, writer: &Writer, what: &str) {
        let before = writer.status().frames;
        self.recognised(writer, what);
        let after = writer.status().frames;
        assert_eq!(after, before, "{what}: something was appended");
    }

    /// Sends everything again. Where the index cannot be read, raw bodies are sealed before the chain's owner
    /// makes it anew, and a segment may be opened for them.
    ///
    /// # Panics
    /// A record is not recognised, or is answered otherwise than the first time.
    #[track_caller]
    pub fn recognised(&self, writer: &Writer, what: &str) {
        for (lines, receipts) in self.lines.chunks(300).zip(self.receipts.chunks(300)) {
            let again = send(writer, lines).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(again.len(), lines.len(), "{what}");
            for (again, first) in again.iter().zip(receipts) {
                assert!(again.duplicate, "{what}: {first:?} was appended again");
                assert_eq!(&again.receipt, first, "{what}");
            }
        }
    }
}

/// What a ledger tells.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// The answers, without the way in which they were found.
    pub answers: Vec<Value>,
    /// Why the chain was read instead of index and tiles, if it was.
    pub scanned: Vec<String>,
}

/// Asks for each value: through index and tiles, and from the chain where these do not serve.
///
/// # Panics
/// The ledger itself does not serve.
#[must_use]
pub fn ask(test: &TestLedger, values: &[&str]) -> Told {
    let mut told = Told {
        answers: Vec::new(),
        scanned: Vec::new(),
    };
    let through = Derived::of_folder(&test.ledger(), &test.vault)
        .and_then(|derived| source(test, Some(derived)));
    let mut through = match through {
        Ok(source) => Some(source),
        Err(error) => {
            told.scanned.push(unusable(&error));
            None
        }
    };
    for value in values {
        let asked =
            |source: &FolderSource<'_>| trace(source, &Query::value(*value), Limits::default());
        let answer = match through.as_ref().map(asked) {
            Some(Ok(answer)) => answer,
            other => {
                if let Some(Err(error)) = other {
                    told.scanned.push(unusable(&error));
                    through = None;
                }
                let scanned = source(test, None).expect("the chain is read");
                asked(&scanned).expect("the chain answers")
            }
        };
        told.answers.push(essence(&answer, &mut told.scanned));
    }
    told
}

/// The same from the chain alone.
///
/// # Panics
/// The ledger does not serve.
#[must_use]
pub fn ask_chain(test: &TestLedger, values: &[&str]) -> Vec<Value> {
    let scanned = source(test, None).expect("the chain is read");
    let each = values.iter().map(|value| {
        let answer = trace(&scanned, &Query::value(*value), Limits::default());
        essence(&answer.expect("the chain answers"), &mut Vec::new())
    });
    each.collect()
}

/// Derived data may be bad, and never makes a good ledger look bad.
fn unusable(error: &SourceError) -> String {
    assert!(
        matches!(
            error,
            SourceError::NoIndex(_) | SourceError::Unusable(_) | SourceError::Io { .. }
        ),
        "{error}"
    );
    error.to_string()
}

fn source(
    test: &TestLedger,
    derived: Option<Derived<'static>>,
) -> Result<FolderSource<'static>, SourceError> {
    let vault = Identities::open(test.vault.to_file_text("").as_bytes(), || None);
    let options = FolderOptions {
        trust: Some(TrustLine::parse(&test.made.trust_line).expect("a trust line")),
        evidence: true,
        derived,
        remarks: Vec::new(),
        ..FolderOptions::default()
    };
    FolderSource::open(&test.ledger(), vault.expect("the vault key"), options)
}

/// The answer without how its frames were tied to the checkpoint; what it remarks is told apart.
fn essence(answer: &Answer, remarks: &mut Vec<String>) -> Value {
    let mut value: Value = serde_json::from_str(&answer.to_json()).expect("JSON");
    for member in ["/check/how", "/range/remarks"] {
        if let Some(found) = value.pointer_mut(member).map(Value::take)
            && member == "/range/remarks"
        {
            let texts = found.as_array().into_iter().flatten();
            remarks.extend(texts.filter_map(|t| t.as_str().map(str::to_owned)));
        }
    }
    let lines = value.get_mut("lines").and_then(Value::as_array_mut);
    for line in lines.into_iter().flatten() {
        line["how"] = Value::Null;
    }
    value
}
