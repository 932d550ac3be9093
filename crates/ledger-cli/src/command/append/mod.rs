//! `ledger append`: records in, receipts out, each after its sync.
//!
//! How they get onto the disk is the writer's.

mod lines;

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use ledger_records::Submission;
use ledger_records::limits::SUBMISSION_LEN_MAX;
use ledger_vault::RetentionClass;
use ledger_writer::{
    AppendError, Config, OpenMode, Opened, PrepareError, Prepared, Writer, state_root,
};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::secret;
use crate::terminal::{Out, Progress, Shown, json_line, say, say_labelled, warn};
use lines::{Line, Lines};

/// Records of one batch, unless asked for otherwise.
const BATCH_RECORDS: u64 = 1000;
/// Bytes of input after which a batch is not made longer.
const BATCH_LEN: usize = 4 << 20;

/// Append records: NDJSON in, one receipt a record out
///
/// Each input line is a record (`ledger schema`), for a receipt with its raw body in base64 as `raw_body`. Each output
/// line answers the input line in its place: an append receipt, written after the record's sync, or `{"error":{..},
/// "line":N}`. A line that is refused stops nothing else. What is there is committed together; the end of the input
/// closes the segment and signs a checkpoint. Opening recovers what a crash left.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger append --ledger audit records.ndjson > receipts.ndjson
  tail -f records.ndjson | ledger append --ledger audit > receipts.ndjson

EXIT CODES
  0   every line was appended
  1   some lines were refused, the others appended
  2   every line was appended, but receipts could not be written
  3   the ledger did not open, or the writer failed: what has no receipt may or may not be in it
  64  the command line was wrong")]
pub(crate) struct AppendArgs {
    /// The ledger
    #[arg(long, value_name = "DIR")]
    ledger: PathBuf,

    /// Where keys and floor are [default: $STATE_DIRECTORY, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// Most records committed by one write and one sync
    #[arg(long, value_name = "N", default_value_t = BATCH_RECORDS, value_parser = clap::value_parser!(u64).range(1..=BATCH_RECORDS))]
    max_batch: u64,

    /// A retention class that new segments have a key for; may be given several times
    #[arg(long, value_name = "CLASS", default_value = "30d", value_parser = RetentionClass::new)]
    payload_class: Vec<RetentionClass>,

    /// The records, one a line; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// What became of one input line, before the batch is committed.
enum Slot {
    /// It is the request of this number in the batch.
    Ready(u64),
    /// It was refused; what to answer.
    Refused(u64, Value),
}

pub(crate) fn run(args: &AppendArgs) -> anyhow::Result<Exit> {
    secret::protect_process()?;
    let (input, len) = open_input(&args.file)?;
    let config = Config {
        payload_classes: args.payload_class.clone(),
        ..Config::default()
    };
    let state = state_root(args.state.as_deref())?;
    let (writer, opened) = Writer::open(&args.ledger, &state, config, OpenMode::Normal)?;
    announce(&opened);
    let mut session = Appending {
        writer: &writer,
        lines: Lines::new(input, SUBMISSION_LEN_MAX),
        batch_max: args.max_batch,
        out: Some(Out::new()),
        progress: Progress::new("appended", len),
        has_total: len.is_some(),
        appended: 0,
        refused: 0,
        lost_receipts: false,
    };
    let result = session.run();
    let (appended, refused, lost) = (session.appended, session.refused, session.lost_receipts);
    drop(session);
    let closed = writer.close();
    if let Err(error) = result {
        say(format_args!("{appended} records were appended before this"));
        return Err(error);
    }
    closed.with_context(|| {
        format!("{appended} records were appended, but the segment was not closed")
    })?;
    if refused > 0 {
        warn(format_args!(
            "{refused} lines were refused, {appended} records appended"
        ));
        return Ok(Exit::Refused);
    }
    Ok(if lost { Exit::Incomplete } else { Exit::Done })
}

/// Says what opening had to repair; nothing when there was nothing.
fn announce(opened: &Opened) {
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

/// The input and, for a regular file, its length.
fn open_input(path: &std::path::Path) -> anyhow::Result<(OwnedFd, Option<u64>)> {
    if path.as_os_str() == "-" {
        let input = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .context("standard input")?;
        return Ok((input, None));
    }
    let file = std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let metadata = file
        .metadata()
        .with_context(|| format!("reading {}", path.display()))?;
    if metadata.is_dir() {
        return Err(Failure::usage(format!(
            "{}: expected a file of records, found a folder",
            path.display()
        ))
        .into());
    }
    let len = metadata.is_file().then_some(metadata.len());
    Ok((file.into(), len))
}

/// Lines on their way into the ledger.
struct Appending<'w> {
    writer: &'w Writer,
    lines: Lines,
    batch_max: u64,
    /// None once whoever read the receipts has gone: the records are appended all the same.
    out: Option<Out>,
    progress: Progress,
    has_total: bool,
    appended: u64,
    refused: u64,
    /// Standard output failed otherwise than by being closed.
    lost_receipts: bool,
}

impl Appending<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        loop {
            let before = self.lines.bytes_read();
            let (slots, requests, ended) = self.batch()?;
            let appended = self.appended;
            self.commit(slots, requests)?;
            let step = if self.has_total {
                self.lines.bytes_read() - before
            } else {
                self.appended - appended
            };
            self.progress.advance(step);
            if ended {
                return Ok(());
            }
        }
    }

    /// Waits for a line, then takes those that are there already.
    fn batch(&mut self) -> anyhow::Result<(Vec<Slot>, Vec<Vec<Prepared>>, bool)> {
        let (mut slots, mut requests, mut len) = (Vec::new(), Vec::new(), 0);
        while (slots.len() as u64) < self.batch_max && len < BATCH_LEN {
            let line = self
                .lines
                .next(slots.is_empty())
                .context("reading the records")?;
            match line {
                Line::End => return Ok((slots, requests, true)),
                Line::NotYet => break,
                Line::TooLong(number) => {
                    let what = format!(
                        "expected a line of at most {SUBMISSION_LEN_MAX} bytes, found a longer one"
                    );
                    slots.push(Slot::Refused(number, refusal("too_long", &what)));
                }
                Line::Whole(number, bytes) => {
                    len += bytes.len();
                    match self.prepare(&bytes) {
                        Ok(prepared) => {
                            requests.push(vec![prepared]);
                            slots.push(Slot::Ready(number));
                        }
                        Err(error) => slots.push(Slot::Refused(number, error)),
                    }
                }
            }
        }
        Ok((slots, requests, false))
    }

    fn prepare(&self, line: &[u8]) -> Result<Prepared, Value> {
        let faults = |errors: &ledger_records::RecordErrors| {
            let mut error = refusal("invalid_record", &errors.to_string());
            if let Value::Object(members) = &mut error {
                members.insert("faults".to_owned(), json!(errors.errors()));
                members.insert("more".to_owned(), json!(errors.more()));
            }
            error
        };
        let submission = Submission::from_json(line).map_err(|errors| faults(&errors))?;
        // Nobody's socket is behind a file: nothing is attested of the sender.
        self.writer
            .prepare(submission, None)
            .map_err(|error| match &error {
                PrepareError::Record(errors) => faults(errors),
                PrepareError::Class { .. } => refusal("unknown_payload_class", &error.to_string()),
                other => refusal("invalid_record", &other.to_string()),
            })
    }

    /// Commits a batch and answers its lines in their order.
    fn commit(&mut self, slots: Vec<Slot>, requests: Vec<Vec<Prepared>>) -> anyhow::Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        let mut results = self.writer.append_each(requests).into_iter();
        let mut failed = None;
        for slot in slots {
            match slot {
                Slot::Refused(number, error) => self.refuse(number, error),
                Slot::Ready(number) => match results.next().unwrap_or(Err(AppendError::Closing)) {
                    Ok(records) => {
                        for record in &records {
                            self.appended += u64::from(!record.duplicate);
                            self.answer(&record.receipt.to_json());
                        }
                    }
                    Err(error @ AppendError::Conflict { .. }) => {
                        self.refuse(number, refusal("record_conflict", &error.to_string()));
                    }
                    Err(error @ AppendError::Unreadable { .. }) => {
                        self.refuse(number, refusal("unreadable_frame", &error.to_string()));
                    }
                    Err(error) => {
                        let ends = !matches!(error, AppendError::RequestSize { .. });
                        self.refuse(number, refusal("not_appended", &error.to_string()));
                        if ends {
                            failed.get_or_insert((number, error));
                        }
                    }
                },
            }
        }
        self.flush();
        match failed {
            None => Ok(()),
            Some((number, error)) => Err(not_appended(number, &error)),
        }
    }

    fn refuse(&mut self, number: u64, error: Value) {
        self.refused += 1;
        let message = error
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let shown: Vec<String> = message
            .split('\n')
            .map(|line| Shown(line).to_string())
            .collect();
        let text = format!("line {number}: {}", shown.join("\n  "));
        self.progress.aside(|| say_labelled("error", 31, text));
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
                self.lost_receipts = true;
                warn(format_args!(
                    "{error}: receipts are lost; the records are appended all the same"
                ));
            }
            self.out = None;
        }
    }
}

fn refusal(code: &str, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

fn not_appended(number: u64, error: &AppendError) -> anyhow::Error {
    let hint = if error.is_disk_full() {
        "make room on the ledger's disk, then append the lines without a receipt again"
    } else {
        "append the lines without a receipt again: opening recovers first"
    };
    Failure::could_not_run(format!(
        "from line {number} on nothing was acknowledged: {error}"
    ))
    .hint(hint)
    .into()
}
