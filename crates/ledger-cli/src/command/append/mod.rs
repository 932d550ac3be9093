//! `ledger append`: records in, receipts out, each after its sync.
//!
//! Here are the arguments and how it ends; `session` feeds lines to a ledger, which is opened here (`local`) or behind
//! a daemon's socket (`remote`).

mod lines;
mod local;
mod remote;
mod session;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use ledger_vault::RetentionClass;

use crate::exit::{Exit, Failure};
use crate::secret;
use crate::terminal::{say, warn};
use session::{Counts, Session, Target};

/// Records of one batch, unless asked for otherwise.
const BATCH_RECORDS: u64 = 1000;

/// Append records: NDJSON in, one receipt a record out
///
/// Each input line is a record (`ledger schema`), for a receipt with its raw body in base64 as `raw_body`. Each output
/// line answers the input line in its place: an append receipt, written after the record's sync, or `{"error":{..},
/// "line":N}`. A record that was in the ledger already gets the receipt of its first time, with `"duplicate":true`, so
/// the same input can be sent again after any failure. A line that is refused stops nothing else. What is there is
/// committed together. With --ledger the end of the input closes the segment and signs a checkpoint, and opening
/// recovers what a crash left; with --socket a daemon has the ledger, and its answer is waited for.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger append --ledger audit records.ndjson > receipts.ndjson
  ledger append --socket /run/ledger/build-agent/writer.sock records.ndjson > receipts.ndjson
  tail -f records.ndjson | ledger append --ledger audit > receipts.ndjson

EXIT CODES
  0   every line was appended, or was there already
  1   some lines were refused, the others appended
  2   every line was appended, but receipts could not be written
  3   the ledger did not open, the daemon was not reached, or the writer failed: what has no
      receipt may or may not be in it; send it again
  64  the command line was wrong")]
pub(crate) struct AppendArgs {
    /// The ledger
    #[arg(long, value_name = "DIR", required_unless_present = "socket")]
    ledger: Option<PathBuf>,

    /// The writer socket of a daemon that serves the ledger
    #[arg(long, value_name = "PATH", conflicts_with_all = ["ledger", "state", "payload_class"])]
    socket: Option<PathBuf>,

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

pub(crate) fn run(args: &AppendArgs) -> anyhow::Result<Exit> {
    secret::protect_process()?;
    let input = open_input(&args.file)?;
    match (&args.socket, &args.ledger) {
        (Some(socket), _) => {
            let (result, counts) = feed(remote::Remote::new(socket)?, input, args.max_batch);
            end(result, counts)
        }
        (None, Some(ledger)) => {
            let (writer, opened) =
                local::open(ledger, args.state.as_deref(), args.payload_class.clone())?;
            local::announce(&opened);
            let (result, counts) = feed(local::Local(&writer), input, args.max_batch);
            let closed = writer.close();
            let end = end(result, counts)?;
            let appended = counts.appended;
            closed.with_context(|| {
                format!("{appended} records were appended, but the segment was not closed")
            })?;
            Ok(end)
        }
        // The parser asks for one of both.
        (None, None) => Err(Failure::usage("expected --ledger DIR or --socket PATH").into()),
    }
}

fn feed(target: impl Target, input: Input, batch_max: u64) -> (anyhow::Result<()>, Counts) {
    let mut session = Session::new(target, input, batch_max);
    let result = session.run();
    (result, session.counts)
}

/// Says what it came to.
fn end(result: anyhow::Result<()>, counts: Counts) -> anyhow::Result<Exit> {
    let Counts {
        appended,
        duplicates,
        refused,
        lost_receipts,
    } = counts;
    if let Err(error) = result {
        say(format_args!("{appended} records were appended before this"));
        return Err(error);
    }
    if duplicates > 0 {
        say(format_args!(
            "{duplicates} records were in the ledger already, {appended} were appended"
        ));
    }
    if refused > 0 {
        warn(format_args!(
            "{refused} lines were refused, {appended} records appended"
        ));
        return Ok(Exit::Refused);
    }
    Ok(if lost_receipts {
        Exit::Incomplete
    } else {
        Exit::Done
    })
}

/// Where records come from and, for a regular file, how many bytes there are.
type Input = (OwnedFd, Option<u64>);

fn open_input(path: &std::path::Path) -> anyhow::Result<Input> {
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
