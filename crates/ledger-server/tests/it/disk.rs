//! A disk that is full: 507, reads go on, appends go on by themselves. On a small file system of
//! its own; skipped by name where none can be mounted.

use crate::support::{Setup, daemon_on, get, ledger_at, post, receipt, record, writer_config};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn mount(at: &Path) -> Option<Mounted<'_>> {
    let done = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"])
        .arg(at)
        .status();
    done.is_ok_and(|s| s.success()).then_some(Mounted(at))
}

#[test]
fn a_full_disk_refuses_then_goes_on_by_itself() {
    let small = tempfile::tempdir().unwrap();
    let Some(_mounted) = mount(small.path()) else {
        eprintln!(
            "SKIPPED a_full_disk_refuses_then_goes_on_by_itself: no tmpfs can be mounted here"
        );
        return;
    };
    let mut writer = writer_config();
    writer.zero_fill = 0;
    let setup = Setup {
        writer: Some(writer),
        ..Setup::default()
    };
    let mut daemon = daemon_on(ledger_at(Some(small.path())), setup);
    let mut kept = vec![receipt(&post(&daemon.writer, &record("before")).json())];
    let ballast = small.path().join("ballast");
    fill(&ballast);
    // Records as large as they may be, until one does not fit.
    let refused = (0..200).map(|i| {
        let long = record(&format!("fill{i}")).replace(
            "\"observed_at\"",
            &format!("\"found_in\":\"{}\",\"observed_at\"", "x".repeat(200)),
        );
        post(&daemon.writer, &long)
    });
    let mut refusal = None;
    for answer in refused {
        if answer.status == 201 {
            kept.push(receipt(&answer.json()));
        } else {
            refusal = Some(answer);
            break;
        }
    }
    let refusal = refusal.expect("the disk became full");
    assert_eq!(
        (refusal.status, refusal.code().as_str()),
        (507, "disk_full"),
        "{}",
        refusal.text()
    );
    assert_eq!(get(&daemon.operator, "/readyz").code(), "disk_full");
    let seq = kept[0].seq;
    assert_eq!(
        get(&daemon.reader, &format!("/v1/records/{seq}")).status,
        200,
        "reads go on"
    );
    assert_eq!(get(&daemon.reader, "/v1/checkpoint").status, 200);
    assert_eq!(
        get(&daemon.operator, "/v1/status").json()["health"],
        "not_accepting"
    );
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(
        post(&daemon.writer, &record("still")).status,
        507,
        "no space, no reopening"
    );
    std::fs::remove_file(&ballast).unwrap();
    let started = Instant::now();
    let again = loop {
        let answer = post(&daemon.writer, &record("again"));
        if answer.status == 201 {
            break answer;
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{}",
            answer.text()
        );
        std::thread::sleep(Duration::from_millis(200));
    };
    kept.push(receipt(&again.json()));
    assert!(
        daemon
            .metrics()
            .faults
            .load(std::sync::atomic::Ordering::Relaxed)
            >= 1
    );
    daemon.stop().unwrap();
    daemon.expect_verified(&kept);
}

/// Takes all the space there is.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let block = [7; 4096];
    while file.write_all(&block).is_ok() {}
}
