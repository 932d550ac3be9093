//! `ledger key test`: proof that the evidence opens, before the day it is needed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ledger_format::limits::PAYLOAD_LEN_MAX;
use ledger_format::{ByteOffset, Erasure, Frame, Kind, Link, PayloadRef, ReadAt, SegmentOpen, Seq};
use ledger_vault::{Identities, PayloadKey, Salt};

use crate::evidence::{SegmentSecrets, check_envelope, open_body, payload_key};
use crate::exit::Exit;
use crate::folder::{LedgerFolder, frames_name};
use crate::frames::{Ending, Found, FrameReader, walk};
use crate::secret::{self, VaultKeyArgs};
use crate::terminal::{Progress, Shown};

/// What can be tested of a key.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    Test(TestArgs),
}

/// Prove that a vault key opens the evidence
///
/// For each segment: its key files open and hold the keys that the segment committed to, and its first and last record
/// open, with their raw bodies where these are kept. The chain itself is not checked: that is `ledger verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger key test audit --vault-key vault.key

EXIT CODES
  0   all that was tested opens
  1   something does not open
  3   it could not run
  64  the command line was wrong")]
pub(crate) struct TestArgs {
    /// The ledger, or a copy of it with its key files
    dir: PathBuf,

    #[command(flatten)]
    key: VaultKeyArgs,
}

/// A record frame to try.
#[derive(Clone, Copy)]
struct Place {
    seq: Seq,
    offset: ByteOffset,
}

/// What a walk over one segment found.
#[derive(Default)]
struct Contents {
    open: Option<SegmentOpen>,
    first: Option<Place>,
    last: Option<Place>,
    records: u64,
}

/// What the test of one segment showed.
#[derive(Default)]
struct Report {
    good: Vec<String>,
    bad: Vec<String>,
    untested: Vec<String>,
    /// Retention classes whose key file is not there.
    missing: Vec<String>,
}

pub(crate) fn run(command: &KeyCommand) -> anyhow::Result<Exit> {
    let KeyCommand::Test(args) = command;
    secret::protect_process()?;
    let folder = LedgerFolder::open(&args.dir)?;
    let identities = args.key.open()?;
    let progress = Progress::new("read", Some(folder.bytes_from(Seq(0))));
    let mut erased = BTreeSet::new();
    let mut reports = Vec::new();
    for first_seq in folder.segments() {
        let report = test_segment(&folder, &identities, *first_seq, &mut erased, &progress)?;
        reports.push((*first_seq, report));
    }
    drop(progress);
    let (mut text, exit) = render(args, reports, &erased);
    if exit != Exit::Done {
        let readers = folder.recipients();
        if !readers.is_empty() {
            text += &format!(
                "READERS that the ledger's own list names: {}\n",
                readers.join(", ")
            );
        }
    }
    crate::print(&text)?;
    Ok(exit)
}

fn test_segment(
    folder: &LedgerFolder,
    identities: &Identities,
    first_seq: Seq,
    erased: &mut BTreeSet<(Seq, String)>,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut reader = FrameReader::new(folder.frames(first_seq)?);
    let mut contents = Contents::default();
    let ending = walk(&mut reader, |offset, frame| {
        look(offset, frame, &mut contents, erased);
        progress.advance(frame.prefix.frame_len.into());
        Ok(true)
    })?;
    if let Ending::Bad(offset, what) = ending {
        report
            .untested
            .push(format!("what stands behind byte {offset}: {what}"));
    }
    let Some(open) = &contents.open else {
        report
            .bad
            .push("no segment_open: the keys it committed to are unknown".to_owned());
        return Ok(report);
    };
    let secrets = SegmentSecrets::open(folder, identities, first_seq, open);
    match &secrets.data {
        Ok(_) => report.good.push("body key".to_owned()),
        Err(what) => report.bad.push(what.clone()),
    }
    match &secrets.envelope {
        Ok(_) => report.good.push("envelope key".to_owned()),
        Err(what) => report.bad.push(what.clone()),
    }
    for (class, hash) in &open.payload_keys {
        match payload_key(folder, identities, first_seq, class, hash) {
            Some(Ok(_)) => report.good.push(format!("payload key {class}")),
            Some(Err(what)) => report.bad.push(what),
            None => report.missing.push(class.clone()),
        }
    }
    test_records(
        folder,
        identities,
        &mut reader,
        &contents,
        &secrets,
        &mut report,
    )?;
    Ok(report)
}

fn look(
    offset: ByteOffset,
    frame: &Frame<'_>,
    contents: &mut Contents,
    erased: &mut BTreeSet<(Seq, String)>,
) {
    let seq = frame.prefix.seq;
    match (frame.prefix.kind, frame.control()) {
        (Kind::Record, _) => {
            let place = Place { seq, offset };
            contents.first.get_or_insert(place);
            contents.last = Some(place);
            contents.records += 1;
        }
        (Kind::SegmentOpen, Some(control)) => {
            contents.open = SegmentOpen::decode(control.body).ok()
        }
        (Kind::Erasure, Some(control)) => {
            if let Ok(erasure) = Erasure::decode(control.body) {
                erased.extend(
                    erasure
                        .segments
                        .iter()
                        .map(|seq| (*seq, erasure.class.clone())),
                );
            }
        }
        _ => {}
    }
}

fn test_records(
    folder: &LedgerFolder,
    identities: &Identities,
    reader: &mut FrameReader,
    contents: &Contents,
    secrets: &SegmentSecrets,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut places: Vec<Place> = contents.first.into_iter().chain(contents.last).collect();
    places.dedup_by_key(|place| place.seq);
    if places.is_empty() {
        report.untested.push("records: there is none".to_owned());
    }
    let Ok(data) = &secrets.data else {
        return Ok(());
    };
    for Place { seq, offset } in places {
        let predecessor = reader.predecessor(offset)?.unwrap_or(Link::ZERO);
        let first_seq = reader.file().first_seq();
        let Found::Frame(frame) = reader.at(offset)? else {
            report.bad.push(format!(
                "frame {seq}: the file changed while it was being read"
            ));
            continue;
        };
        if frame.compute_link(&predecessor) != frame.link {
            report
                .bad
                .push(format!("frame {seq} was altered, or the one before it"));
        }
        let tried = open_body(data, &frame).and_then(|opened| match &secrets.envelope {
            Ok(key) => check_envelope(key, &frame, &predecessor, &opened),
            Err(_) => Ok(()),
        });
        match tried {
            Ok(()) => report.good.push(format!("record {seq}")),
            Err(what) => report.bad.push(format!("frame {seq}: {what}")),
        }
        let payload = frame.record().and_then(|record| record.payload);
        let hash = payload.and_then(|p| contents.open.as_ref()?.payload_keys.get(p.class));
        // A class whose key does not open was reported with the segment's keys.
        if let (Some(payload), Some(hash)) = (payload, hash)
            && let Some(Ok(key)) = payload_key(folder, identities, first_seq, payload.class, hash)
        {
            match open_payload(folder, first_seq, &key, &payload) {
                Ok(()) => report.good.push(format!("raw body of {seq}")),
                Err(what) => report.bad.push(format!("raw body of frame {seq}: {what}")),
            }
        }
    }
    Ok(())
}

fn open_payload(
    folder: &LedgerFolder,
    first_seq: Seq,
    key: &PayloadKey,
    payload: &PayloadRef<'_>,
) -> Result<(), String> {
    let len_max = (PAYLOAD_LEN_MAX / 8 * 9 + 4096) as u64;
    if payload.length > len_max {
        return Err(format!(
            "expected at most {len_max} bytes, the frame says {}",
            payload.length
        ));
    }
    let file = folder
        .payloads(first_seq, payload.class)
        .map_err(|e| format!("{e:#}"))?;
    let mut sealed = vec![0; usize::try_from(payload.length).unwrap_or_default()];
    file.read_exact_at(payload.offset, &mut sealed)
        .map_err(|e| format!("{}: {e}", file.path().display()))?;
    key.open_payload(ByteOffset(payload.offset), &Salt(*payload.salt), &sealed)
        .map(drop)
        .map_err(|e| e.to_string())
}

fn render(
    args: &TestArgs,
    reports: Vec<(Seq, Report)>,
    erased: &BTreeSet<(Seq, String)>,
) -> (String, Exit) {
    let (mut body, mut bad, count) = (String::new(), 0, reports.len());
    for (first_seq, mut report) in reports {
        for class in report.missing {
            if erased.contains(&(first_seq, class.clone())) {
                report.untested.push(format!(
                    "payload key {class}: erased, as the chain declares"
                ));
            } else {
                report.bad.push(format!(
                    "the key file of payload class {class} is missing, and no erasure says why"
                ));
            }
        }
        bad += report.bad.len();
        body += &format!(
            "{}  opens: {}\n",
            frames_name(first_seq),
            list(&report.good)
        );
        for what in &report.bad {
            body += &format!("  DOES NOT OPEN  {}\n", Shown(what));
        }
        for what in &report.untested {
            body += &format!("  not tested     {}\n", Shown(what));
        }
    }
    let dir = args.dir.display();
    let verdict = match bad {
        0 => format!("KEY WORKS  {dir}: {count} segments, all that was tested opens\n"),
        1 => format!("KEY FAILS  {dir}: {count} segments, 1 thing does not open\n"),
        n => format!("KEY FAILS  {dir}: {count} segments, {n} things do not open\n"),
    };
    let limits = "NOT TESTED by this: records between the first and the last of a segment, and the chain (ledger verify)\n";
    let exit = if bad == 0 { Exit::Done } else { Exit::Refused };
    (format!("{verdict}{body}{limits}"), exit)
}

fn list(items: &[String]) -> String {
    if items.is_empty() {
        return "nothing".to_owned();
    }
    items.join(", ")
}
