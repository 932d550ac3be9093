//! Every fixture of the repository: same verdict, exit code and findings as its header says, with
//! one thread and with two.

#[allow(unreachable_pub)]
#[path = "support/fixture.rs"]
mod fixture;

use fixture::{Fixture, parse};
use ledger_format::UnixMillis;
use ledger_verify::{OutsideCheckpoint, Receipts, Report, Request, TrustLine, verify};
use std::fs;
use std::path::Path;

/// Payloads as the header counts them; files that are still there stand in notes.
fn counts(report: &Report) -> Option<String> {
    let p = report.payloads.as_ref()?;
    let still = report
        .notes
        .iter()
        .filter(|n| n.kind == "payload_still_present");
    let still: usize = still
        .map(|n| n.text.matches(".age").count() + n.text.matches(".payloads").count())
        .sum();
    assert_eq!(
        report.notes.iter().any(|n| n.kind == "payload_erased"),
        p.erased > 0
    );
    Some(format!(
        "intact={} erased={} undeclared={} still_present={still}",
        p.intact, p.erased, p.undeclared_bytes
    ))
}

/// What differs from the header, if anything.
fn judge(f: &Fixture, dir: &Path, payloads: &Path, threads: usize) -> Option<String> {
    let mut request = Request::new(dir);
    request.payloads = f.read_payloads.then(|| payloads.to_path_buf());
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
        let file = f
            .file
            .as_ref()
            .map_or(String::new(), |n| format!(" file={n}"));
        format!(
            "{} segment={} seq={} offset={}{file}",
            f.code, p.segment, p.seq, p.offset
        )
    };
    let findings: Vec<String> = report.findings.iter().map(place).collect();
    let counted = counts(&report);
    let same = (verdict, report.exit_code, &findings) == (&f.expect, f.exit, &f.findings)
        && counted == f.counts;
    (!same).then(|| {
        let follows: Vec<String> = report.follows.iter().map(place).collect();
        let details: Vec<&str> = report.findings.iter().map(|f| f.detail.as_str()).collect();
        format!(
            "threads {threads}: expected {} {} {:#?} {:?}\n found {verdict} {} {findings:#?} {counted:?}\n details {details:?}\n follows {follows:#?}",
            f.expect, f.exit, f.findings, f.counts, report.exit_code
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
        let elsewhere = tempfile::tempdir().unwrap();
        for (name, bytes) in &fixture.files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        for (name, bytes) in &fixture.payloads {
            fs::write(dir.path().join(name), bytes).unwrap();
            fs::write(elsewhere.path().join(name), bytes).unwrap();
        }
        for (threads, payloads) in [(1, dir.path()), (2, elsewhere.path())] {
            if let Some(difference) = judge(&fixture, dir.path(), payloads, threads) {
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
fn payload_files() {
    run("payloads", 40);
}

#[test]
fn any_other_byte_of_a_closed_payload_file_is_found() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/payloads");
    let fixture = parse(&fs::read(path.join("good_closed.fixture")).unwrap());
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in fixture.files.iter().chain(&fixture.payloads) {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let codes = || {
        let mut request = Request::new(dir.path());
        request.payloads = Some(dir.path().to_path_buf());
        let report = verify(&request, &|_| {}).unwrap().report;
        let codes = report.findings.iter().map(|f| f.code.name());
        codes.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(codes(), "");
    // The close of the first file lists one range as unused: the message that was refused.
    let unused = |name: &str, at: usize| name.contains("4.30d") && (291..563).contains(&at);
    for (name, bytes) in &fixture.payloads {
        let path = dir.path().join(name);
        let mut changed = bytes.clone();
        for at in (0..bytes.len()).filter(|at| *at < 60 || at % 61 == 0) {
            changed[at] ^= 0x10;
            fs::write(&path, &changed).unwrap();
            let expected = if unused(name, at) {
                ""
            } else {
                "payload_altered"
            };
            assert_eq!(codes(), expected, "{name}: byte {at}");
            changed[at] = bytes[at];
            fs::write(&path, &bytes[..at]).unwrap();
            assert_eq!(codes(), "payload_missing", "{name}: cut at {at}");
        }
        changed.push(0);
        fs::write(&path, &changed).unwrap();
        assert_eq!(codes(), "payload_undeclared", "{name}: one byte more");
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn rejects() {
    run("reject", 150);
}
