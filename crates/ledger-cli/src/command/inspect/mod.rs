//! `ledger inspect`: what stands in the files, public parts only.
//!
//! Nothing is decrypted and nothing is judged: a frame is shown because its head says that it is one.

mod bodies;

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ledger_format::{ByteOffset, Close, Frame, Kind, SegmentOpen, Seq, limits};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::folder::{LedgerFolder, frames_name};
use crate::frames::{Ending, FrameReader, walk};
use crate::terminal::{Out, Shown, hex, json_line, warn};

/// Show frames, segments or checkpoints as they stand in the files
///
/// Public parts only: no key is needed, nothing is decrypted, and nothing is judged (that is `ledger verify`).
/// With --json a line of JSON each.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "\
EXAMPLE
  ledger inspect audit --segments
  ledger inspect audit --seq 903117 --json
  ledger inspect constants

EXIT CODES
  0   shown
  1   a segment ends in something that is no frame
  2   there is no such frame, or the last segment ends in an unfinished write
  3   it could not run
  64  the command line was wrong"
)]
pub(crate) struct InspectArgs {
    #[command(subcommand)]
    what: Option<What>,

    /// The ledger, or a copy of it
    #[arg(required = true)]
    dir: Option<PathBuf>,

    /// One frame, with all that can be read of it
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["segments", "checkpoints"])]
    seq: Option<u64>,

    /// The segments
    #[arg(long, conflicts_with = "checkpoints")]
    segments: bool,

    /// The checkpoints with their notes
    #[arg(long)]
    checkpoints: bool,

    /// Lines of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What can be inspected without a ledger.
#[derive(Debug, Subcommand)]
enum What {
    /// Print the constants of the format that this program was built with, as lines `name value`
    Constants,
}

pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<Exit> {
    let mut out = Out::new();
    let exit = match (&args.what, &args.dir) {
        (None, Some(dir)) => {
            let folder = LedgerFolder::open(dir)?;
            match args.seq {
                Some(seq) => show_frame(&mut out, &folder, Seq(seq), args.json)?,
                None if args.segments => show_segments(&mut out, &folder, args.json)?,
                None => show_frames(&mut out, &folder, args)?,
            }
        }
        _ => {
            for (name, value) in limits::TABLE {
                writeln!(out, "{name} {value}")?;
            }
            Exit::Done
        }
    };
    out.flush()?;
    Ok(exit)
}

/// All frames, or all checkpoints.
fn show_frames(out: &mut Out, folder: &LedgerFolder, args: &InspectArgs) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    if !args.json && !args.checkpoints {
        writeln!(
            out,
            "{:>10} {:<13} {:>9} {:<24} {:>10} {:>7} {:<16} NOTE",
            "SEQ", "KIND", "WRITE", "APPENDED AT", "OFFSET", "LEN", "LINK"
        )?;
    }
    for first_seq in folder.segments() {
        let mut reader = FrameReader::new(folder.frames(*first_seq)?);
        let ending = walk(&mut reader, |offset, frame| {
            match (args.checkpoints, args.json) {
                (true, _) if frame.prefix.kind != Kind::Checkpoint => {}
                (_, true) => writeln!(
                    out,
                    "{}",
                    json_line(&as_json(*first_seq, offset, frame).to_string())
                )?,
                (true, false) => write_note(out, frame)?,
                (false, false) => write_row(out, offset, frame)?,
            }
            Ok(true)
        })?;
        exit = exit.worse(judge(folder, *first_seq, &ending));
    }
    Ok(exit)
}

/// Says what follows the last frame of a segment where it is no plain end.
fn judge(folder: &LedgerFolder, first_seq: Seq, ending: &Ending) -> Exit {
    let Ending::Bad(offset, what) = ending else {
        return Exit::Done;
    };
    let place = format!("{}, byte {offset}", frames_name(first_seq));
    if folder.segments().last() == Some(&first_seq) {
        warn(format_args!(
            "{place}: an unfinished write, or damage (`ledger verify` decides): {what}"
        ));
        return Exit::Incomplete;
    }
    warn(format_args!("{place}: no frame follows: {what}"));
    Exit::Refused
}

fn write_row(out: &mut Out, offset: ByteOffset, frame: &Frame<'_>) -> std::io::Result<()> {
    let prefix = &frame.prefix;
    let write = format!(
        "{}/{}",
        u64::from(prefix.write.index) + 1,
        prefix.write.count
    );
    let link = frame.link.to_hex();
    let note = bodies::note(frame);
    let row = format!(
        "{:>10} {:<13} {write:>9} {} {offset:>10} {:>7} {:.16} {}",
        prefix.seq,
        prefix.kind.name(),
        frame.appended_at.to_rfc3339(),
        prefix.frame_len,
        link,
        Shown(&note)
    );
    writeln!(out, "{}", row.trim_end())
}

fn write_note(out: &mut Out, frame: &Frame<'_>) -> std::io::Result<()> {
    writeln!(
        out,
        "frame {}, {}",
        frame.prefix.seq,
        frame.appended_at.to_rfc3339()
    )?;
    let body = frame
        .control()
        .map(|control| control.body)
        .unwrap_or_default();
    match ledger_format::decode_checkpoint_body(body) {
        Ok(note) => {
            for line in String::from_utf8_lossy(note)
                .trim_end_matches('\n')
                .split('\n')
            {
                writeln!(out, "  {}", Shown(line))?;
            }
            Ok(())
        }
        Err(error) => writeln!(out, "  does not decode: {error}"),
    }
}

/// All that is public of a frame.
fn as_json(first_seq: Seq, offset: ByteOffset, frame: &Frame<'_>) -> Value {
    let prefix = &frame.prefix;
    let mut value = json!({
        "seq": prefix.seq.0,
        "kind": prefix.kind.name(),
        "write": { "index": prefix.write.index, "count": prefix.write.count },
        "appended_at": frame.appended_at.to_rfc3339(),
        "segment": first_seq.0,
        "offset": offset.0,
        "len": prefix.frame_len,
        "link": frame.link.to_hex(),
    });
    let (name, content) = match (frame.record(), frame.control()) {
        (Some(record), _) => (
            "record",
            json!({
                "salt": hex(record.salt),
                "commitment": hex(record.commitment),
                "body_len": record.body.len(),
                "envelope_len": record.envelope.len(),
                "payload": record.payload.map(|p| json!({
                    "class": p.class,
                    "offset": p.offset,
                    "length": p.length,
                    "salt": hex(p.salt),
                    "blake3": hex(p.hash),
                })),
            }),
        ),
        (None, Some(control)) => (
            "control",
            json!({ "body": bodies::decode(frame), "tag": hex(control.tag) }),
        ),
        (None, None) => return value,
    };
    if let Value::Object(members) = &mut value {
        members.insert(name.to_owned(), content);
    }
    value
}

/// One frame, with all that is public of it.
fn show_frame(out: &mut Out, folder: &LedgerFolder, seq: Seq, json: bool) -> anyhow::Result<Exit> {
    let before = folder.segments().iter().rev().find(|first| **first <= seq);
    let mut found = None;
    if let Some(first_seq) = before {
        let mut reader = FrameReader::new(folder.frames(*first_seq)?);
        walk(&mut reader, |offset, frame| {
            if frame.prefix.seq == seq {
                found = Some(as_json(*first_seq, offset, frame));
            }
            Ok(found.is_none())
        })?;
    }
    let Some(value) = found else {
        let last = folder.segments().last().copied().unwrap_or_default();
        return Err(Failure::new(
            Exit::Incomplete,
            format!("there is no frame {seq} in these files"),
        )
        .hint(format!(
            "the last segment begins with frame {last}; `ledger inspect DIR --segments` lists them"
        ))
        .into());
    };
    if json {
        writeln!(out, "{}", json_line(&value.to_string()))?;
    } else {
        write_members(out, 0, &value)?;
    }
    Ok(Exit::Done)
}

/// What is shown first of a frame, in this order; JSON objects have none.
const FIRST: [&str; 8] = [
    "seq",
    "kind",
    "write",
    "appended_at",
    "segment",
    "offset",
    "len",
    "link",
];

/// `name  value` lines, nested values indented behind the plain ones.
fn write_members(out: &mut Out, depth: usize, value: &Value) -> std::io::Result<()> {
    let Value::Object(members) = value else {
        return Ok(());
    };
    let rank = |name: &str| {
        let place = FIRST.iter().position(|first| *first == name);
        place.unwrap_or(FIRST.len())
    };
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(name, member)| {
        let nested = depth > 0 && matches!(member, Value::Object(_));
        (rank(name), nested)
    });
    let indent = depth * 2;
    for (name, member) in members {
        let label = format!("{:indent$}{}", "", Shown(name));
        match member {
            Value::Object(inner) if inner.is_empty() => writeln!(out, "{label:<18} none")?,
            Value::Object(_) => {
                writeln!(out, "{label}")?;
                write_members(out, depth + 1, member)?;
            }
            Value::String(text) if text.contains('\n') => {
                writeln!(out, "{label}")?;
                for line in text.trim_end_matches('\n').split('\n') {
                    let line = format!("{:indent$}  {}", "", Shown(line));
                    writeln!(out, "{}", line.trim_end())?;
                }
            }
            Value::String(text) => writeln!(out, "{label:<18} {}", Shown(text))?,
            Value::Null => writeln!(out, "{label:<18} none")?,
            Value::Array(items) if items.iter().all(Value::is_string) => {
                let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                writeln!(out, "{label:<18} {}", Shown(&items.join(" ")))?;
            }
            other => writeln!(out, "{label:<18} {}", Shown(&other.to_string()))?,
        }
    }
    Ok(())
}

/// A segment as its frames describe it.
struct Segment {
    last: Option<Seq>,
    frames: u64,
    records: u64,
    last_kind: Option<Kind>,
    close: Option<Close>,
    open: Option<SegmentOpen>,
    ending: Ending,
}

fn show_segments(out: &mut Out, folder: &LedgerFolder, json: bool) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    if !json {
        writeln!(
            out,
            "{:>20} {:>10} {:>9} {:>9} {:>12} {:<6} {:>3} EPOCH KEY",
            "FIRST", "LAST", "FRAMES", "RECORDS", "BYTES", "STATE", "GEN"
        )?;
    }
    for first_seq in folder.segments() {
        let mut reader = FrameReader::new(folder.frames(*first_seq)?);
        let bytes = reader.file().len();
        let segment = survey(&mut reader)?;
        exit = exit.worse(judge(folder, *first_seq, &segment.ending));
        let is_closed = segment.close.is_some() && segment.last_kind == Some(Kind::Checkpoint);
        let state = if is_closed { "closed" } else { "open" };
        if json {
            let open = segment.open.as_ref();
            let value = json!({
                "first": first_seq.0,
                "last": segment.last.map(|seq| seq.0),
                "frames": segment.frames,
                "records": segment.records,
                "bytes": bytes,
                "state": state,
                "generation": open.map(|open| open.generation.0),
                "epoch_key": open.map(|open| hex(&open.epoch_key)),
                "next_epoch_key": segment.close.as_ref().map(|close| hex(&close.epoch_key)),
                "payload_classes": open.map(|open| open.payload_keys.keys().collect::<Vec<_>>()),
            });
            writeln!(out, "{}", json_line(&value.to_string()))?;
            continue;
        }
        let (generation, key) = match &segment.open {
            Some(open) => (
                open.generation.to_string(),
                format!("{:.16}", hex(&open.epoch_key)),
            ),
            None => ("?".to_owned(), "unreadable".to_owned()),
        };
        let last = segment.last.map_or("-".to_owned(), |seq| seq.to_string());
        let (frames, records) = (segment.frames, segment.records);
        writeln!(
            out,
            "{:020} {last:>10} {frames:>9} {records:>9} {bytes:>12} {state:<6} {generation:>3} {key}",
            first_seq.0
        )?;
    }
    Ok(exit)
}

fn survey(reader: &mut FrameReader) -> anyhow::Result<Segment> {
    let mut segment = Segment {
        last: None,
        frames: 0,
        records: 0,
        last_kind: None,
        close: None,
        open: None,
        ending: Ending::End,
    };
    segment.ending = walk(reader, |_, frame| {
        segment.last = Some(frame.prefix.seq);
        segment.last_kind = Some(frame.prefix.kind);
        segment.frames += 1;
        match (frame.prefix.kind, frame.control()) {
            (Kind::Record, _) => segment.records += 1,
            (Kind::SegmentOpen, Some(c)) => segment.open = SegmentOpen::decode(c.body).ok(),
            (Kind::SegmentClose, Some(c)) => segment.close = Close::decode(c.body).ok(),
            _ => {}
        }
        Ok(true)
    })?;
    Ok(segment)
}
