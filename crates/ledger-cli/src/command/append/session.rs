//! Lines on their way into a ledger, and their answers in the same order.
//!
//! Not how records get onto the disk: that is the target's.

use std::io::{self, Write as _};

use anyhow::Context;
use ledger_format::AppendReceipt;
use ledger_records::limits::SUBMISSION_LEN_MAX;
use ledger_records::{RecordErrors, Submission};
use serde_json::{Value, json};

use super::Input;
use super::lines::{Line, Lines};
use crate::exit::Failure;
use crate::terminal::{Out, Progress, Shown, json_line, say_labelled, warn};

/// Bytes of input after which a batch is not made longer.
const BATCH_LEN: usize = 4 << 20;

/// A ledger that takes records.
pub(super) trait Target {
    /// A record that can be committed.
    type Ready;

    /// Makes a record ready; an error is what its line is answered with.
    fn prepare(&self, record: Submission) -> Result<Self::Ready, Value>;

    /// Commits each record by itself; outcomes in their order.
    fn commit(&self, ready: Vec<Self::Ready>) -> Vec<Outcome>;
}

/// What became of one record.
pub(super) enum Outcome {
    /// It is on the disk.
    Appended {
        receipt: AppendReceipt,
        duplicate: bool,
    },
    /// It was refused for what it is.
    Refused(Value),
    /// It was not acknowledged, and what follows would not be either.
    Failed {
        error: Value,
        /// What to do next.
        hint: &'static str,
    },
}

/// What it came to so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) appended: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    /// Standard output failed otherwise than by being closed.
    pub(super) lost_receipts: bool,
}

/// What became of one input line, before the batch is committed.
enum Slot {
    /// It is the next record of the batch.
    Ready(u64),
    /// It was refused; what to answer.
    Refused(u64, Value),
}

pub(super) struct Session<T: Target> {
    target: T,
    lines: Lines,
    batch_max: u64,
    /// None once whoever read the receipts has gone: the records are appended all the same.
    out: Option<Out>,
    progress: Progress,
    has_total: bool,
    pub(super) counts: Counts,
}

impl<T: Target> Session<T> {
    pub(super) fn new(target: T, (input, len): Input, batch_max: u64) -> Self {
        Self {
            target,
            lines: Lines::new(input, SUBMISSION_LEN_MAX),
            batch_max,
            out: Some(Out::new()),
            progress: Progress::new("appended", len),
            has_total: len.is_some(),
            counts: Counts::default(),
        }
    }

    /// To the end of the input.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        loop {
            let before = self.lines.bytes_read();
            let (slots, ready, ended) = self.batch()?;
            let done = self.counts.appended + self.counts.duplicates;
            self.commit(slots, ready)?;
            let step = if self.has_total {
                self.lines.bytes_read() - before
            } else {
                self.counts.appended + self.counts.duplicates - done
            };
            self.progress.advance(step);
            if ended {
                return Ok(());
            }
        }
    }

    /// Waits for a line, then takes those that are there already.
    fn batch(&mut self) -> anyhow::Result<(Vec<Slot>, Vec<T::Ready>, bool)> {
        let (mut slots, mut ready, mut len) = (Vec::new(), Vec::new(), 0);
        while (slots.len() as u64) < self.batch_max && len < BATCH_LEN {
            let line = self
                .lines
                .next(slots.is_empty())
                .context("reading the records")?;
            match line {
                Line::End => return Ok((slots, ready, true)),
                Line::NotYet => break,
                Line::TooLong(number) => {
                    let what = format!(
                        "expected a line of at most {SUBMISSION_LEN_MAX} bytes, found a longer one"
                    );
                    slots.push(Slot::Refused(number, refusal("too_long", &what)));
                }
                Line::Whole(number, bytes) => {
                    len += bytes.len();
                    let record = Submission::from_json(&bytes).map_err(|e| faults(&e));
                    match record.and_then(|record| self.target.prepare(record)) {
                        Ok(prepared) => {
                            ready.push(prepared);
                            slots.push(Slot::Ready(number));
                        }
                        Err(error) => slots.push(Slot::Refused(number, error)),
                    }
                }
            }
        }
        Ok((slots, ready, false))
    }

    /// Commits a batch and answers its lines in their order.
    fn commit(&mut self, slots: Vec<Slot>, ready: Vec<T::Ready>) -> anyhow::Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        let mut outcomes = self.target.commit(ready).into_iter();
        let mut failed = None;
        for slot in slots {
            match slot {
                Slot::Refused(number, error) => self.refuse(number, error),
                Slot::Ready(number) => match outcomes.next() {
                    Some(Outcome::Appended { receipt, duplicate }) => {
                        self.acknowledge(&receipt, duplicate);
                    }
                    Some(Outcome::Refused(error)) => self.refuse(number, error),
                    Some(Outcome::Failed { error, hint }) => {
                        failed.get_or_insert_with(|| (number, message(&error), hint));
                        self.answer_error(number, error);
                    }
                    None => {
                        let error = refusal("not_appended", "it was not answered");
                        let hint = "append the lines without a receipt again";
                        failed.get_or_insert_with(|| (number, message(&error), hint));
                        self.answer_error(number, error);
                    }
                },
            }
        }
        self.flush();
        match failed {
            None => Ok(()),
            Some((number, why, hint)) => {
                let text = format!("from line {number} on nothing was acknowledged: {why}");
                Err(Failure::could_not_run(text).hint(hint).into())
            }
        }
    }

    fn acknowledge(&mut self, receipt: &AppendReceipt, duplicate: bool) {
        let mut line = receipt.to_json();
        if duplicate {
            self.counts.duplicates += 1;
            // A receipt's reader ignores members that it does not know.
            line.truncate(line.len().saturating_sub(1));
            line.push_str(",\"duplicate\":true}");
        } else {
            self.counts.appended += 1;
        }
        self.answer(&line);
    }

    fn refuse(&mut self, number: u64, error: Value) {
        self.counts.refused += 1;
        let shown: Vec<String> = message(&error)
            .split('\n')
            .map(|line| Shown(line).to_string())
            .collect();
        let text = format!("line {number}: {}", shown.join("\n  "));
        self.progress.aside(|| say_labelled("error", 31, text));
        self.answer_error(number, error);
    }

    fn answer_error(&mut self, number: u64, error: Value) {
        self.answer(&json_line(
            &json!({ "error": error, "line": number }).to_string(),
        ));
    }

    fn answer(&mut self, line: &str) {
        let written = self.out.as_mut().map(|out| writeln!(out, "{line}"));
        self.note(written);
    }

    fn flush(&mut self) {
        let flushed = self.out.as_mut().map(io::Write::flush);
        self.note(flushed);
    }

    /// Receipts that nobody takes are no reason to lose records.
    fn note(&mut self, result: Option<io::Result<()>>) {
        if let Some(Err(error)) = result {
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.counts.lost_receipts = true;
                warn(format_args!(
                    "{error}: receipts are lost; the records are appended all the same"
                ));
            }
            self.out = None;
        }
    }
}

/// The answer to a line that was refused.
pub(super) fn refusal(code: &str, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// The answer to a record that breaks its rules.
pub(super) fn faults(errors: &RecordErrors) -> Value {
    let mut error = refusal("invalid_record", &errors.to_string());
    if let Value::Object(members) = &mut error {
        members.insert("faults".to_owned(), json!(errors.errors()));
        members.insert("more".to_owned(), json!(errors.more()));
    }
    error
}

fn message(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str);
    message.unwrap_or_default().to_owned()
}
