//! What a trace costs: `speed LEDGER_FOLDER RECORDS` makes a ledger of as many records with one story in its middle, an
//! index and tiles over it, and times the story by scan and by index. `cargo run --release -p ledger-trace --example
//! speed`. Made for numbers that go into documents; it checks nothing that the tests do not.

use std::error::Error;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use ledger_format::{Frame, Frontier, Hash, Link, Seq, leaf_hash};
use ledger_index::{Covered, Index, TileStore, load_or_create_key};
use ledger_records::Submission;
use ledger_trace::{
    Answer, Derived, FolderOptions, FolderSource, Limits, Query, Source, TrustLine, trace,
};
use ledger_vault::{Identities, KeyDir};
use ledger_writer::{Config, InitOptions, OpenMode, Writer, init};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH: usize = 500;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, records] = args.as_slice() else {
        return Err("usage: speed FOLDER RECORDS".into());
    };
    let (folder, records) = (Path::new(folder), records.parse()?);
    let vault = Identities::generate();
    let options = InitOptions {
        name: "audit.example.com/speed".into(),
        vault_recipients: vault.recipients()?,
        payload_classes: Vec::new(),
    };
    let (ledger, state) = (folder.join("audit"), folder.join("state"));
    let made = init(&ledger, &state, &options)?;
    fill(&ledger, &state, records)?;
    let trust = || TrustLine::parse(&made.trust_line);
    let keys = || Identities::open(vault.to_file_text("").as_bytes(), || None);

    let start = Instant::now();
    let options = FolderOptions {
        trust: Some(trust()?),
        evidence: true,
        ..FolderOptions::default()
    };
    let scanned = FolderSource::open(&ledger, keys()?, options)?;
    println!(
        "scan of {} frames: {:.1?}",
        scanned.extent().next,
        start.elapsed()
    );
    tell("by scan, opened before", &scanned)?;

    let links = derive(&ledger, &vault, &made, &scanned)?;
    for _ in 0..3 {
        let start = Instant::now();
        let options = FolderOptions {
            trust: Some(trust()?),
            evidence: true,
            derived: Some(Derived::of_folder(&ledger, &vault)?),
            ..FolderOptions::default()
        };
        let source = FolderSource::open(&ledger, keys()?, options)?;
        println!(
            "opening by index and tiles, {links} frames: {:.2?}",
            start.elapsed()
        );
        tell("by index and tiles", &source)?;
    }
    Ok(())
}

/// Others' records, and one story in their middle.
fn fill(ledger: &Path, state: &Path, records: usize) -> Outcome<()> {
    let (writer, _) = Writer::open(ledger, state, Config::default(), OpenMode::Normal)?;
    let append = |lines: Vec<String>| -> Outcome<()> {
        let prepared = lines
            .iter()
            .map(|line| Ok(writer.prepare(Submission::from_json(line.as_bytes())?, None)?));
        writer.append(prepared.collect::<Outcome<_>>()?)?;
        Ok(())
    };
    for n in (0..records).step_by(BATCH) {
        append((n..records.min(n + BATCH)).map(other).collect())?;
        if n <= records / 2 && n + BATCH > records / 2 {
            (0..20)
                .try_for_each(|i| append(vec![attempt("act_story", "idem_story", "story", i)]))?;
        }
    }
    writer.close()?;
    Ok(())
}

fn other(n: usize) -> String {
    attempt(
        &format!("act_{}", n / 4),
        &format!("idem_{}", n / 4),
        "other",
        n,
    )
}

fn attempt(action: &str, reference: &str, kind: &str, n: usize) -> String {
    format!(
        r#"{{"type":"attempt","record_id":"rec_{kind}_{n}","source":"service/outbound","attempt_id":"out_{kind}_{n}","action_id":"{action}","idempotency_ref":"{reference}","cause":"client_retry","request":{{"length":212}},"sent_at":"2026-11-30T14:03:38Z","outcome":{{"kind":"response","status":200,"received_at":"2026-11-30T14:03:39Z"}}}}"#
    )
}

fn derive(
    ledger: &Path,
    vault: &Identities,
    made: &ledger_writer::Initialized,
    scanned: &FolderSource<'_>,
) -> Outcome<usize> {
    let mut links: Vec<Link> = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(ledger.join("segments"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "frames"))
        .collect();
    files.sort();
    for path in files {
        let bytes = std::fs::read(path)?;
        let mut rest = &bytes[ledger_format::FRAMES_MAGIC.len()..];
        while let Ok(frame) = Frame::parse(rest) {
            links.push(frame.link);
            rest = &rest[frame.bytes().len()..];
        }
    }
    let dir = std::fs::File::open(ledger)?;
    let recipients = vault.recipients()?;
    let (key, _) = load_or_create_key(
        KeyDir::new(dir.as_fd(), ledger),
        vault,
        &recipients,
        &recipients,
    )?;
    let index = Index::open(ledger, key, made.ledger_id, |_| true)?;
    for seq in (0..links.len() as u64).map(Seq) {
        if let Ok(view) = scanned.frame(seq) {
            index.add(seq, &view.envelope);
        }
    }
    let link = links.last().copied().ok_or("no frames")?;
    index.flush(Covered {
        next: Seq(links.len() as u64),
        link,
    })?;
    index.settle()?;
    index.close()?;
    let leaves: Vec<Hash> = links.iter().map(leaf_hash).collect();
    TileStore::open(ledger, &Frontier::empty())?.append(&leaves)?;
    Ok(links.len())
}

fn tell(how: &str, source: &FolderSource<'_>) -> Outcome<()> {
    for _ in 0..3 {
        let start = Instant::now();
        let answer = trace(source, &Query::value("act_story"), Limits::default())?;
        let Answer::Found(told) = &answer else {
            return Err("the story was not found".into());
        };
        println!(
            "  story of {} lines {how}: {:.2?}",
            told.lines.len(),
            start.elapsed()
        );
    }
    Ok(())
}
