//! Payload files of a real ledger under `--payloads`: appended, erased, altered, and while the
//! writer is at work.

use ledger_format::{Kind, Seq};
use ledger_tests::audit::expect_verdict;
use ledger_tests::ledger::{append, append_request, class};
use ledger_tests::record::{Request, Shape};
use ledger_tests::{TestLedger, stored_frames};
use ledger_verify::{Report, TrustLine, Verdict, verify};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn check(test: &TestLedger, payloads: &Path) -> Report {
    let mut request = ledger_verify::Request::new(test.ledger());
    let trust = TrustLine::parse(&test.made.trust_line, "test").expect("a trust line");
    request.anchors.trust = Some(trust);
    request.now = ledger_writer::clock();
    request.threads = 2;
    request.payloads = Some(payloads.to_path_buf());
    verify(&request, &|_| {}).expect("the check runs").report
}

/// Verified, with so many messages intact and so many erased.
#[track_caller]
fn expect_good(test: &TestLedger, intact: u64, erased: u64) -> Report {
    let report = check(test, &test.ledger());
    expect_verdict(&report, Verdict::Verified);
    let payloads = report.payloads.as_ref().expect("payload files were read");
    let found = (payloads.intact, payloads.erased, payloads.declared);
    assert_eq!(found, (intact, erased, intact + erased), "{payloads:?}");
    assert_eq!(payloads.not_judged, 0);
    report
}

/// A violation by this one code; the chain without its payload files stays verified.
#[track_caller]
fn expect_only(test: &TestLedger, code: &str) -> Report {
    let report = check(test, &test.ledger());
    expect_verdict(&report, Verdict::Violation);
    let codes: Vec<&str> = report.findings.iter().map(|f| f.code.name()).collect();
    assert_eq!(codes, [code], "{:#?}", report.findings);
    let anchored = ledger_tests::Anchored::by(&test.made.trust_line);
    let frames_only = ledger_tests::verify(&test.ledger(), &anchored);
    expect_verdict(&frames_only, Verdict::Verified);
    assert!(frames_only.payloads.is_none());
    report
}

fn notes(report: &Report, kind: &str) -> usize {
    report.notes.iter().filter(|n| n.kind == kind).count()
}

fn file(test: &TestLedger, segment: Seq, end: &str) -> PathBuf {
    let name = format!("{:020}.{}.{end}", segment.0, class());
    test.segments().join(name)
}

/// Segments with records, in order.
fn segments(test: &TestLedger) -> Vec<Seq> {
    let frames = stored_frames(&test.ledger());
    let records = frames.iter().filter(|f| f.kind() == Kind::Record);
    let mut segments: Vec<Seq> = records.map(|f| f.segment).collect();
    segments.dedup();
    segments
}

#[test]
fn appended_erased_and_tampered_with() {
    let test = TestLedger::new();
    test.append("a", 3, Shape::Payload);
    test.append("b", 2, Shape::Small);
    test.append("c", 3, Shape::Payload);
    expect_good(&test, 6, 0);
    let [first, _, third] = segments(&test)[..] else {
        panic!("three segments")
    };

    // Tampering with a closed file: every way has its code, and undoing it makes it good again.
    let path = file(&test, third, "payloads");
    let good = fs::read(&path).expect("readable");
    let mut flipped = good.clone();
    flipped[19 + 300] ^= 1;
    let longer = [&good[..], b"hidden"].concat();
    for (bytes, code) in [
        (&flipped[..], "payload_altered"),
        (&good[..good.len() - 1], "payload_missing"),
        (&longer[..], "payload_undeclared"),
    ] {
        fs::write(&path, bytes).expect("written");
        let report = expect_only(&test, code);
        assert_eq!(report.findings[0].place.segment, third);
    }
    fs::remove_file(&path).expect("removable");
    let report = expect_only(&test, "payload_missing");
    let record = stored_frames(&test.ledger());
    let record = record
        .iter()
        .find(|f| f.segment == third && f.kind() == Kind::Record)
        .expect("a record");
    assert_eq!(report.findings[0].place.seq, record.frame().prefix.seq);
    assert_eq!(
        report.follows_count, 2,
        "the other two messages of the file"
    );
    fs::write(&path, &good).expect("written");
    let stray = test.segments().join(format!("{:020}.7d.payloads", third.0));
    fs::write(&stray, &good).expect("written");
    let report = expect_only(&test, "payload_undeclared");
    assert_eq!(
        report.findings[0].file.as_deref(),
        stray.file_name().and_then(|n| n.to_str())
    );
    fs::remove_file(&stray).expect("removable");
    expect_good(&test, 6, 0);

    // The end of retention: counted, and green.
    let kept = ["age", "payloads"].map(|end| {
        let path = file(&test, first, end);
        (path.clone(), fs::read(&path).expect("readable"))
    });
    let writer = test.open();
    writer.erase(&class(), &[first], "90 days").expect("erases");
    let report = expect_good(&test, 3, 3);
    assert_eq!(notes(&report, "payload_erased"), 1);
    assert_eq!(notes(&report, "payload_still_present"), 0);
    writer.close().expect("closes");
    // A backup that was put back.
    for (path, bytes) in &kept {
        fs::write(path, bytes).expect("written");
        let report = expect_good(&test, 3, 3);
        assert_eq!(notes(&report, "payload_still_present"), 1);
    }
    // Opening repeats the deletion.
    test.open().close().expect("closes");
    let report = expect_good(&test, 3, 3);
    assert_eq!(notes(&report, "payload_still_present"), 0);

    // The files elsewhere.
    let elsewhere = test.scratch("raw");
    fs::create_dir(&elsewhere).expect("a folder");
    fs::rename(&path, elsewhere.join(path.file_name().expect("a name"))).expect("moved");
    expect_only(&test, "payload_missing");
    expect_verdict(&check(&test, &elsewhere), Verdict::Verified);
}

#[test]
fn bytes_behind_the_last_declared_message_are_none_once_the_segment_closes() {
    let test = TestLedger::new();
    let writer = test.open();
    append(&writer, "a", 3, Shape::Payload);
    // A crash, with a message that was sealed and whose record was never written.
    let crashed = test.copy();
    let segment = segments(&crashed)[0];
    let mut open = OpenOptions::new()
        .append(true)
        .open(file(&crashed, segment, "payloads"))
        .expect("opens");
    open.write_all(&[7; 500]).expect("written");
    let report = expect_good(&crashed, 3, 0);
    assert_eq!(report.payloads.expect("read").undeclared_bytes, 500);
    // Recovery cuts it; whoever adds it again is found.
    crashed.open().close().expect("closes");
    writer.close().expect("closes");
    for ledger in [&test, &crashed] {
        let report = expect_good(ledger, 3, 0);
        assert_eq!(report.payloads.expect("read").undeclared_bytes, 0);
    }
    open.write_all(&[7; 500]).expect("written");
    expect_only(&crashed, "payload_undeclared");
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_writer_at_work_raises_no_false_alarm() {
    let test = TestLedger::new();
    let writer = test.open();
    append(&writer, "z", 1, Shape::Payload);
    writer.checkpoint().expect("a checkpoint");
    let stop = AtomicBool::new(false);
    let erasures = AtomicUsize::new(0);
    let mut erased = 0;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (writer, stop) = (&writer, &stop);
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let request = Request {
                        prefix: "w".to_owned(),
                        thread,
                        number,
                    };
                    append_request(writer, &request, 2, Shape::Payload).expect("appends");
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                writer.rotate().expect("rotates");
                // Every other segment, never the newest one.
                let closed = segments(&test);
                let next = erasures.load(Ordering::Relaxed);
                if closed.len() > 2 * next + 1 {
                    let segment = closed[2 * next];
                    writer.erase(&class(), &[segment], "soon").expect("erases");
                    erasures.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // Ends the threads, whether or not the checks go well.
        let _stop = Stop(&stop);
        let begun = Instant::now();
        let mut checks = 0;
        while checks < 25 || erasures.load(Ordering::Relaxed) < 5 {
            checks += 1;
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "{checks} checks"
            );
            let report = check(&test, &test.ledger());
            let good = matches!(report.verdict, Verdict::Verified | Verdict::Incomplete);
            assert!(good, "{}: {:#?}", report.headline, report.findings);
            erased = report.payloads.expect("read").erased;
        }
    });
    writer.close().expect("closes");
    let report = check(&test, &test.ledger());
    expect_verdict(&report, Verdict::Verified);
    let payloads = report.payloads.expect("read");
    assert!(
        payloads.erased >= erased && payloads.erased > 0 && payloads.intact > 0,
        "{payloads:?}"
    );
    assert_eq!(payloads.undeclared_bytes, 0);
}
