//! Little or no space: the reserve refuses in time, a full disk poisons the writer, and nothing
//! acknowledged is lost.

use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::ledger::{append, append_request, config};
use ledger_tests::record::{Request, Shape};
use ledger_tests::{TestLedger, read_everything, skip};
use ledger_verify::Verdict;
use ledger_writer::{AppendError, Config, OpenMode, Writer};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A small file system of its own, gone with it.
struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    fn new(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={bytes},mode=700"),
                "ledger-tests",
            ])
            .arg(folder.path())
            .output();
        made.is_ok_and(|o| o.status.success())
            .then_some(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing to be done if it fails.
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

const MIB: u64 = 1 << 20;

/// Fills up until so much is left.
fn leave_free(mounted: &Mounted, free: u64) {
    let ballast = mounted.path().join("ballast");
    let _ = fs::remove_file(&ballast);
    let output = Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(mounted.path())
        .output()
        .expect("df");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let available: u64 = text
        .lines()
        .last()
        .and_then(|l| l.trim().parse().ok())
        .expect("a number");
    let len = available.saturating_sub(free);
    fs::write(&ballast, vec![1; usize::try_from(len).expect("small")]).expect("written");
    // The writer asks for the figure at most five times a second.
    std::thread::sleep(Duration::from_millis(300));
}

fn one(writer: &Writer, number: usize, shape: Shape) -> Result<(), AppendError> {
    let request = Request {
        prefix: "disk".to_owned(),
        thread: 0,
        number,
    };
    append_request(writer, &request, 1, shape).map(drop)
}

#[test]
fn below_the_reserve_appends_are_refused_and_close_still_works() {
    let name = "below_the_reserve_appends_are_refused_and_close_still_works";
    let Some(mounted) = Mounted::new(24 * MIB) else {
        return skip(name, "mounting is not permitted");
    };
    let test = TestLedger::within(tempfile::tempdir_in(mounted.path()).expect("a folder"));
    let settings = || Config {
        reserve_soft: 6 * MIB,
        reserve_hard: 3 * MIB,
        ..config()
    };
    let open = || {
        Writer::open(&test.ledger(), &test.state(), settings(), OpenMode::Normal)
            .expect("opens")
            .0
    };
    let writer = open();
    one(&writer, 0, Shape::Payload).expect("there is room");

    leave_free(&mounted, 5 * MIB);
    let refused = one(&writer, 1, Shape::Payload).expect_err("below the soft limit");
    assert!(
        matches!(refused, AppendError::DiskReserve { refused: "payloads", reserve, .. } if reserve == 6 * MIB),
        "{refused}"
    );
    one(&writer, 2, Shape::Small).expect("records go on");

    leave_free(&mounted, 2 * MIB);
    for shape in [Shape::Small, Shape::Payload] {
        let refused = one(&writer, 3, shape).expect_err("below the hard limit");
        assert!(
            matches!(
                refused,
                AppendError::DiskReserve {
                    refused: "appends",
                    ..
                }
            ),
            "{refused}"
        );
        assert!(refused.is_disk_full());
    }
    // The reserve is for this.
    writer.checkpoint().expect("a checkpoint");
    writer.close().expect("closes");
    expect_verdict(
        &verify(&test.ledger(), &Anchored::by(&test.made.trust_line)),
        Verdict::Verified,
    );

    let writer = open();
    assert!(one(&writer, 4, Shape::Small).is_err());
    leave_free(&mounted, 10 * MIB);
    one(&writer, 5, Shape::Payload).expect("goes on without being opened anew");
    writer.close().expect("closes");
    assert_eq!(read_everything(&test).len(), 3);
}

#[test]
fn a_disk_that_is_really_full_poisons_and_loses_nothing() {
    let name = "a_disk_that_is_really_full_poisons_and_loses_nothing";
    let Some(mounted) = Mounted::new(16 * MIB) else {
        return skip(name, "mounting is not permitted");
    };
    let test = TestLedger::within(tempfile::tempdir_in(mounted.path()).expect("a folder"));
    let writer = test.open();
    let mut receipts = append(&writer, "before", 3, Shape::Small);
    leave_free(&mounted, MIB / 2);
    let mut number = 0;
    let failed = loop {
        let request = Request {
            prefix: "fill".to_owned(),
            thread: 0,
            number,
        };
        number += 1;
        match append_request(&writer, &request, 20, Shape::Payload) {
            Ok(more) => receipts.extend(more),
            Err(e) => break e,
        }
        assert!(number < 1000, "the disk does not fill up");
    };
    assert!(
        matches!(failed, AppendError::Poisoned(_)) && failed.is_disk_full(),
        "{failed}"
    );
    let again = one(&writer, 0, Shape::Small).expect_err("poisoned");
    assert_eq!(again.to_string(), failed.to_string());
    drop(writer);

    leave_free(&mounted, 4 * MIB);
    let writer = test.open();
    receipts.extend(append(&writer, "after", 3, Shape::Payload));
    writer.close().expect("closes");
    let report = verify(
        &test.ledger(),
        &Anchored::by(&test.made.trust_line).holding(&receipts),
    );
    expect_verdict(&report, Verdict::Verified);
    let acknowledged: Vec<_> = receipts
        .into_iter()
        .map(|r| (ledger_tests::record::digest(&r.record_id), r))
        .collect();
    ledger_tests::vault::check_records(&read_everything(&test), &acknowledged);
}
