//! Every fixture of the repository: same verdict, exit code and findings as its header says, with
//! one thread and with two.

use ledger_format::UnixMillis;
use ledger_verify::{OutsideCheckpoint, Receipts, Request, TrustLine, verify};
use std::fs;
use std::path::Path;

#[derive(Default)]
struct Fixture {
    expect: String,
    exit: u8,
    findings: Vec<String>,
    trust: Option<String>,
    checkpoints: Vec<Vec<u8>>,
    receipts: Option<Vec<u8>>,
    files: Vec<(String, Vec<u8>)>,
}

fn parse(bytes: &[u8]) -> Fixture {
    let split = bytes
        .windows(2)
        .position(|w| w == b"\n\n")
        .expect("a header and an empty line");
    let header = std::str::from_utf8(&bytes[..split]).expect("a text header");
    let mut rest = &bytes[split + 2..];
    let mut block = |len: &str| {
        let (part, tail) = rest.split_at(len.trim().parse().expect("a length"));
        rest = tail;
        part.to_vec()
    };
    let mut lines = header.lines();
    assert_eq!(lines.next(), Some("ledger-fixture v1"));
    let mut f = Fixture::default();
    for line in lines {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        match key {
            "expect" => f.expect = value.to_owned(),
            "exit" => f.exit = value.parse().expect("an exit code"),
            "finding" => f.findings.push(value.to_owned()),
            "trust" => f.trust = Some(value.to_owned()),
            "checkpoint" => f.checkpoints.push(block(value)),
            "receipts" => f.receipts = Some(block(value)),
            "file" => {
                let (name, len) = value.rsplit_once(' ').expect("name and length");
                f.files.push((name.to_owned(), block(len)));
            }
            "comment" | "keys" => {}
            other => panic!("unknown header line {other}"),
        }
    }
    assert!(rest.is_empty(), "bytes behind the blocks");
    f
}

/// What differs from the header, if anything.
fn judge(f: &Fixture, dir: &Path, threads: usize) -> Option<String> {
    let mut request = Request::new(dir);
    request.threads = threads;
    request.now = UnixMillis(1_800_000_000_000);
    let anchors = &mut request.anchors;
    anchors.trust = f
        .trust
        .as_ref()
        .map(|t| TrustLine::parse(t, "fixture").unwrap());
    for (i, note) in f.checkpoints.iter().enumerate() {
        let name = format!("checkpoint {i}");
        anchors
            .checkpoints
            .push(OutsideCheckpoint::new(note.clone(), name));
    }
    if let Some(receipts) = &f.receipts {
        anchors.receipts = Receipts::read(&receipts[..]).unwrap();
    }
    let report = verify(&request, &|_| {}).unwrap().report;
    let verdict = match report.verdict.name() {
        "self_consistent_only" => "self-consistent",
        "could_not_judge" => "could-not-judge",
        other => other,
    };
    let place = |f: &ledger_verify::Finding| {
        let p = &f.place;
        format!(
            "{} segment={} seq={} offset={}",
            f.code, p.segment, p.seq, p.offset
        )
    };
    let findings: Vec<String> = report.findings.iter().map(place).collect();
    let same = (verdict, report.exit_code, &findings) == (&f.expect, f.exit, &f.findings);
    (!same).then(|| {
        let follows: Vec<String> = report.follows.iter().map(place).collect();
        let details: Vec<&str> = report.findings.iter().map(|f| f.detail.as_str()).collect();
        format!(
            "threads {threads}: expected {} {} {:#?}\n found {verdict} {} {findings:#?}\n details {details:?}\n follows {follows:#?}",
            f.expect, f.exit, f.findings, report.exit_code
        )
    })
}

fn run(folder: &str, at_least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(folder);
    let mut paths: Vec<_> = fs::read_dir(&root)
        .expect("the fixtures")
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "fixture"))
        .collect();
    paths.sort();
    assert!(
        paths.len() >= at_least,
        "{} fixtures in {folder}",
        paths.len()
    );
    let mut wrong = Vec::new();
    for path in &paths {
        let fixture = parse(&fs::read(path).unwrap());
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in &fixture.files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        for threads in [1, 2] {
            if let Some(difference) = judge(&fixture, dir.path(), threads) {
                wrong.push(format!(
                    "{}: {difference}",
                    path.file_name().unwrap().to_string_lossy()
                ));
                break;
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        paths.len(),
        wrong.join("\n\n")
    );
}

#[test]
fn accepts() {
    run("accept", 25);
}

#[test]
fn rejects() {
    run("reject", 150);
}
