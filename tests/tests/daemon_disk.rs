//! A daemon whose disk fills up: appends are refused with 507, reads go on, and appends go on by
//! themselves once there is space. Nothing acknowledged is lost. The daemon's log is on the same disk.

use ledger_format::AppendReceipt;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::daemon::{Daemon, Setup, eventually, init_in, receipts_in};
use ledger_tests::http::{JSON, LINES, ask, get, post};
use ledger_tests::mounted::Mounted;
use ledger_tests::record::{self, Request, Shape};
use ledger_tests::tools::ledger_program;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, skip};
use ledger_verify::Verdict;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn ids(prefix: &str, number: usize, count: usize, shape: Shape) -> Vec<String> {
    let request = Request {
        prefix: prefix.to_owned(),
        thread: 0,
        number,
    };
    request.ids(count, shape)
}

fn array(ids: &[String]) -> String {
    let lines: Vec<String> = ids.iter().map(|id| record::line(id)).collect();
    format!("[{}]", lines.join(","))
}

/// A ledger on a small disk, and a daemon on it.
fn begin(name: &str, mib: u64, writer: &str) -> Option<(Mounted, TestLedger, Daemon)> {
    let Some(mounted) = Mounted::new(mib * MIB) else {
        skip(name, "mounting is not permitted");
        return None;
    };
    let test = init_in(tempfile::tempdir_in(mounted.path()).expect("a folder"));
    let setup = Setup {
        writer: format!("segment_bytes = 1048576\nzero_fill_bytes = 65536\n{writer}"),
        ..Setup::default()
    };
    let daemon = Daemon::start_with(&test, &setup);
    Some((mounted, test, daemon))
}

/// What `ledger status` and `ledger healthcheck` end with.
fn exit_codes(daemon: &Daemon) -> (Option<i32>, Option<i32>, String) {
    let run = |command: &str| {
        let mut ledger = Command::new(ledger_program());
        ledger
            .arg(command)
            .arg("--socket")
            .arg(&daemon.sockets.operator);
        ledger.output().expect("ledger starts")
    };
    let (status, health) = (run("status"), run("healthcheck"));
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    (status.status.code(), health.status.code(), text)
}

/// Everything that is read is answered as on a good day.
#[track_caller]
fn reads_go_on(daemon: &Daemon, known: &AppendReceipt) {
    let operator = &daemon.sockets.operator;
    let record = get(operator, &format!("/v1/records/{}", known.seq));
    assert_eq!(record.status, 200, "{}", record.text());
    assert_eq!(record.json()["link"], known.link.to_hex());
    assert_eq!(
        record.json()["skeleton"]["record_id"],
        known.record_id.as_str()
    );
    let trace = get(operator, &format!("/v1/trace/op_{}", known.record_id));
    assert_eq!(trace.status, 200, "{}", trace.text());
    for path in [
        "/v1/checkpoint",
        "/v1/status",
        "/healthz",
        "/metrics",
        "/openapi.json",
    ] {
        assert_eq!(get(operator, path).status, 200, "{path}");
    }
}

fn attention(daemon: &Daemon) -> Vec<String> {
    let status = daemon.status();
    let all = status["attention"].as_array().expect("a list").iter();
    all.map(|a| a["code"].as_str().expect("a code").to_owned())
        .collect()
}

#[track_caller]
fn refused_for_space(answer: &ledger_tests::http::Answer) {
    assert_eq!(answer.status, 507, "{}", answer.text());
    assert_eq!(answer.code(), "disk_full");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[track_caller]
fn finish(test: &TestLedger, daemon: Daemon, kept: &[AppendReceipt]) -> usize {
    daemon.stop_well();
    let anchored = Anchored::by(&test.made.trust_line).holding(kept);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    let opened = read_everything(test);
    let digests = kept.iter().map(|r| record::digest(&r.record_id));
    check_records(
        &opened,
        &digests.zip(kept.iter().cloned()).collect::<Vec<_>>(),
    );
    opened.len()
}

#[test]
fn the_reserve_refuses_bodies_first_then_everything_and_gives_way_again() {
    let name = "the_reserve_refuses_bodies_first_then_everything_and_gives_way_again";
    let reserves = format!(
        "reserve_soft_bytes = {}\nreserve_hard_bytes = {}\n",
        6 * MIB,
        3 * MIB
    );
    let Some((mounted, test, daemon)) = begin(name, 24, &reserves) else {
        return;
    };
    let socket = &daemon.sockets.writer;
    let mut kept = receipts_in(&post(socket, &array(&ids("disk", 0, 3, Shape::Small))));
    kept.extend(receipts_in(&post(
        socket,
        &array(&ids("disk", 1, 3, Shape::Payload)),
    )));
    assert_eq!(get(&daemon.sockets.operator, "/readyz").status, 200);
    assert_eq!(exit_codes(&daemon).0, Some(0));

    mounted.leave_free(5 * MIB);
    refused_for_space(&post(socket, &array(&ids("disk", 2, 1, Shape::Payload))));
    kept.extend(receipts_in(&post(
        socket,
        &array(&ids("disk", 3, 1, Shape::Small)),
    )));
    assert!(attention(&daemon).contains(&"W003".to_owned()));
    let (status, health, text) = exit_codes(&daemon);
    assert_eq!((status, health), (Some(1), Some(0)), "{text}");

    mounted.leave_free(2 * MIB);
    for shape in [Shape::Small, Shape::Payload] {
        refused_for_space(&post(socket, &array(&ids("disk", 4, 2, shape))));
    }
    let line = record::line(&ids("disk", 5, 1, Shape::Small)[0]);
    let lines = ask(
        socket,
        "POST",
        "/v1/records",
        &[LINES],
        format!("{line}\n{line}").as_bytes(),
    );
    assert_eq!(lines.status, 200);
    let problem: Value =
        serde_json::from_str(lines.text().lines().next().expect("a line")).expect("JSON");
    assert_eq!(problem["problem"]["status"], 507, "{problem}");
    reads_go_on(&daemon, &kept[0]);
    assert!(attention(&daemon).contains(&"W002".to_owned()));
    let (status, _, text) = exit_codes(&daemon);
    assert!(
        matches!(status, Some(1 | 2)) && text.contains("W002"),
        "{status:?} {text}"
    );

    mounted.leave_free(12 * MIB);
    kept.extend(receipts_in(&post(
        socket,
        &array(&ids("disk", 2, 1, Shape::Payload)),
    )));
    assert_eq!(attention(&daemon), [""; 0]);
    assert_eq!(finish(&test, daemon, &kept), kept.len());
}

#[test]
fn a_disk_that_is_really_full_is_survived_without_a_restart() {
    let name = "a_disk_that_is_really_full_is_survived_without_a_restart";
    let reserves = "reserve_soft_bytes = 0\nreserve_hard_bytes = 0\n";
    let Some((mounted, test, daemon)) = begin(name, 16, reserves) else {
        return;
    };
    let socket = &daemon.sockets.writer;
    let mut kept = receipts_in(&post(socket, &array(&ids("full", 0, 3, Shape::Small))));
    let mut unsure = Vec::new();
    for round in 1..=3 {
        mounted.leave_free(MIB / 2);
        let mut number = 1000 * round;
        let refused = loop {
            number += 1;
            assert!(number % 1000 < 500, "the disk does not fill up");
            let batch = array(&ids("full", number, 20, Shape::Payload));
            let answer = post(socket, &batch);
            if answer.status >= 300 {
                unsure.push(batch);
                break answer;
            }
            kept.extend(receipts_in(&answer));
        };
        refused_for_space(&refused);
        // It stays refused, whatever is asked and however often, and all that is read is answered.
        for again in 0..20 {
            let batch = array(&ids("full", 1000 * round + 900 + again, 1, Shape::Small));
            let answer = ask(socket, "POST", "/v1/records", &[JSON], batch.as_bytes());
            refused_for_space(&answer);
        }
        reads_go_on(&daemon, &kept[0]);
        let ready = get(&daemon.sockets.operator, "/readyz");
        assert_eq!((ready.status, ready.code().as_str()), (507, "disk_full"));
        assert_eq!(daemon.status()["health"], "not_accepting");
        assert!(attention(&daemon).contains(&"W002".to_owned()));
        let (status, health, text) = exit_codes(&daemon);
        assert_eq!((status, health), (Some(2), Some(1)), "{text}");

        mounted.leave_free(6 * MIB);
        let ready = || get(&daemon.sockets.operator, "/readyz").status == 200;
        assert!(
            eventually(Duration::from_secs(20), ready),
            "{}",
            daemon.log()
        );
        // Nobody knows what became of the refused batch; sent again it is there once.
        for batch in unsure.drain(..) {
            kept.extend(receipts_in(&post(socket, &batch)));
        }
        kept.extend(receipts_in(&post(
            socket,
            &array(&ids("full", 1000 * round, 2, Shape::Small)),
        )));
        assert_eq!(daemon.status()["health"], "ready", "{}", daemon.status());
        reads_go_on(&daemon, kept.last().expect("records"));
    }
    assert_eq!(finish(&test, daemon, &kept), kept.len());
}
