//! The daemon among other processes: a second one, what a killed one left, signals under load, and
//! peers whom the kernel names.

use ledger_format::{AppendReceipt, Kind};
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::daemon::{Daemon, Setup, init, receipts_in, served};
use ledger_tests::http::{Connection, JSON, get, post};
use ledger_tests::ledger::copy_folder;
use ledger_tests::record::{self, Request, Shape};
use ledger_tests::tools::has;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, skip, stored_frames};
use ledger_verify::Verdict;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn line(prefix: &str, number: usize) -> String {
    let request = Request {
        prefix: prefix.to_owned(),
        thread: 0,
        number,
    };
    record::line(&request.ids(1, Shape::Small)[0])
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("a file").ino()
}

/// A daemon that must not come to serve: its exit code, and what it said.
fn refused(test: &TestLedger, setup: &Setup) -> (Option<i32>, String) {
    let mut daemon = Daemon::spawn(test, setup);
    let log = daemon.log().len();
    let code = daemon.ended().code();
    (code, daemon.log().split_off(log))
}

#[track_caller]
fn finish(test: &TestLedger, kept: &[AppendReceipt]) {
    let anchored = Anchored::by(&test.made.trust_line).holding(kept);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    let digests = kept.iter().map(|r| record::digest(&r.record_id));
    let acknowledged: Vec<_> = digests.zip(kept.iter().cloned()).collect();
    check_records(&read_everything(test), &acknowledged);
}

#[test]
fn a_second_daemon_is_refused_and_takes_nothing_from_the_first() {
    let test = init();
    let first = Daemon::start(&test);
    let sockets = [
        &first.sockets.writer,
        &first.sockets.reader,
        &first.sockets.operator,
    ];
    let inodes = sockets.map(|s| inode(s));
    let mut connection = served(&first.sockets.writer);
    let mut kept = receipts_in(&post(&first.sockets.writer, &line("one", 0)));

    let same = Setup::default();
    let elsewhere = Setup {
        run: "elsewhere".to_owned(),
        ..Setup::default()
    };
    // The same folder; a copy of the folder that shares the state; another ledger that wants the sockets.
    let copy = init();
    fs::remove_dir_all(copy.ledger()).expect("removed");
    copy_folder(&test.ledger(), &copy.ledger());
    let shared = Setup {
        state: Some(test.state()),
        ..Setup::default()
    };
    let other = init();
    let path = |s: &Path| s.to_str().expect("UTF-8").to_owned();
    let taken = Setup {
        run: "taken".to_owned(),
        writer_socket: format!(
            "[[listener]]\npath = {:?}\nrole = \"reader\"\n",
            path(&first.sockets.operator)
        ),
        ..Setup::default()
    };
    for (what, ledger, setup) in [
        ("the same", &test, &same),
        ("other sockets", &test, &elsewhere),
        ("a copy", &copy, &shared),
        ("a socket in use", &other, &taken),
    ] {
        let (code, said) = refused(ledger, setup);
        assert_eq!(code, Some(3), "{what}: {said}");
        assert!(!said.contains("serving"), "{what}: {said}");
    }
    assert_eq!(sockets.map(|s| inode(s)), inodes);
    assert!(!test.scratch("elsewhere/o").exists());
    // The connection that was open is served still, and new ones come to the first.
    let answer = connection.ask("POST", "/v1/records", &[JSON], line("one", 1).as_bytes());
    kept.extend(receipts_in(&answer.expect("an answer")));
    kept.extend(receipts_in(&post(&first.sockets.writer, &line("one", 2))));
    drop(connection);
    first.stop_well();
    for socket in [test.scratch("run/w"), test.scratch("run/o")] {
        assert!(!socket.exists(), "removed at a stop");
    }
    // What was refused left nothing behind that is in the way.
    let second = Daemon::start_with(&test, &elsewhere);
    kept.extend(receipts_in(&post(&second.sockets.writer, &line("one", 3))));
    second.stop_well();
    Daemon::start(&other).stop_well();
    finish(&test, &kept);
}

#[test]
fn what_a_killed_daemon_left_is_replaced_and_one_of_two_wins() {
    let test = init();
    let mut kept = Vec::new();
    let mut last = 0;
    for round in 0..8 {
        // Two at once, on what was left by kill -9.
        let mut pair = [0, 1].map(|_| Daemon::spawn(&test, &Setup::default()));
        let begun = Instant::now();
        let winner = loop {
            let running = [pair[0].is_running(), pair[1].is_running()];
            assert_ne!(running, [false, false], "{}", pair[0].log());
            if let Some(loser) = running.iter().position(|r| !r) {
                break 1 - loser;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "both run");
            std::thread::sleep(Duration::from_millis(2));
        };
        let [a, b] = pair;
        let (mut winner, mut loser) = if winner == 0 { (a, b) } else { (b, a) };
        assert_eq!(loser.ended().code(), Some(3), "{}", loser.log());
        winner.wait_until_it_serves();
        let found = inode(&winner.sockets.writer);
        assert_ne!(found, last, "a new socket");
        last = found;
        kept.extend(receipts_in(&post(
            &winner.sockets.writer,
            &line("left", round),
        )));
        winner.kill();
        assert!(Connection::open(&test.scratch("run/w")).is_err(), "stale");
        assert!(test.scratch("run/w").exists(), "and there");
    }
    // What is no socket is nobody's to replace.
    let path = test.scratch("run/r");
    fs::remove_file(&path).expect("removed");
    fs::write(&path, b"evidence").expect("written");
    let (code, said) = refused(&test, &Setup::default());
    assert!(
        code == Some(3) && said.contains("is no socket"),
        "{code:?} {said}"
    );
    assert_eq!(fs::read(&path).expect("there"), b"evidence");
    fs::remove_file(&path).expect("removed");
    Daemon::start(&test).stop_well();
    finish(&test, &kept);
}

#[test]
fn a_stop_under_load_keeps_what_was_acknowledged_closes_and_signs() {
    let test = init();
    let mut kept: Vec<AppendReceipt> = Vec::new();
    for (round, signal) in [Signal::TERM, Signal::INT, Signal::TERM]
        .into_iter()
        .enumerate()
    {
        let setup = Setup {
            top: "drain_time_ms = 1500".to_owned(),
            ..Setup::default()
        };
        let mut daemon = Daemon::start_with(&test, &setup);
        let socket = daemon.sockets.writer.clone();
        // One that never finishes its request, one that only holds a connection, one that streams.
        let mut stuck = Connection::open(&socket).expect("connects");
        stuck
            .send(b"POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
            .expect("sent");
        let idle = served(&socket);
        let before = kept.len();
        let answered = AtomicUsize::new(0);
        let status = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..6)
                .map(|c| {
                    let (socket, answered) = (&socket, &answered);
                    scope.spawn(move || load(socket, &format!("r{round}c{c}"), answered))
                })
                .collect();
            while answered.load(Ordering::Relaxed) < 200 {
                assert!(clients.iter().all(|c| !c.is_finished()), "a client failed");
                std::thread::sleep(Duration::from_millis(1));
            }
            daemon.signal(signal);
            let begun = Instant::now();
            let status = daemon.ended();
            assert!(
                begun.elapsed() < Duration::from_secs(8),
                "{:?}",
                begun.elapsed()
            );
            for client in clients {
                kept.extend(client.join().expect("a client"));
            }
            status
        });
        assert_eq!(status.code(), Some(0), "{}", daemon.log());
        assert!(kept.len() >= before + 200);
        drop((stuck, idle));
        let frames = stored_frames(&test.ledger());
        let kinds: Vec<Kind> = frames.iter().rev().take(2).map(|f| f.kind()).collect();
        assert_eq!(
            kinds,
            [Kind::Checkpoint, Kind::SegmentClose],
            "closed and signed"
        );
        assert!(!test.scratch("run/w").exists());
        finish(&test, &kept);
    }
}

/// Appends until the daemon says or shows that it stops; what was acknowledged.
fn load(socket: &Path, prefix: &str, answered: &AtomicUsize) -> Vec<AppendReceipt> {
    let mut kept = Vec::new();
    let mut connection = Connection::open(socket).expect("connects");
    for number in 0.. {
        let body = line(prefix, number);
        match connection.ask("POST", "/v1/records", &[JSON], body.as_bytes()) {
            Ok(answer) if answer.status < 300 => kept.extend(receipts_in(&answer)),
            Ok(answer) => {
                assert_eq!((answer.status, answer.code().as_str()), (503, "stopping"));
                break;
            }
            // Closed between two requests.
            Err(_) => break,
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    kept
}

/// Every request of whoever is not in the map is refused, and the status points at it.
#[test]
fn whoever_is_not_mapped_may_do_nothing() {
    let test = init();
    let us = rustix::process::getuid().as_raw();
    let rules = |rules: &str| Setup {
        writer_socket: rules.to_owned(),
        ..Setup::default()
    };
    let daemon = Daemon::start_with(
        &test,
        &rules(&format!("[[listener.peer]]\nuser = {}\n", us + 1)),
    );
    let frames = daemon.frames();
    let socket = &daemon.sockets.writer;
    let paths = [
        "/healthz",
        "/readyz",
        "/v1/checkpoint",
        "/v1/nothing",
        "/openapi.json",
    ];
    let answers = paths.iter().map(|p| get(socket, p));
    for answer in answers.chain([post(socket, &line("no", 0)), post(socket, "no JSON")]) {
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "peer_not_mapped")
        );
        assert_eq!(answer.json()["uid"], us);
    }
    assert_eq!(daemon.frames(), frames);
    let status = daemon.status();
    assert_eq!(
        (&status["health"], &status["attention"][0]["code"]),
        (&Value::from("degraded"), &Value::from("W017"))
    );
    daemon.stop_well();

    // By the group, and for two types only.
    let gid = rustix::process::getgid().as_raw();
    let types = "types = [\"receipt\", \"verification\"]";
    let only = format!("[[listener.peer]]\ngroup = {gid}\n{types}\n");
    let daemon = Daemon::start_with(&test, &rules(&only));
    let socket = &daemon.sockets.writer;
    let request = Request {
        prefix: "type".to_owned(),
        thread: 0,
        number: 0,
    };
    let receipt = record::line(&request.ids(1, Shape::Payload)[0]);
    let kept = receipts_in(&post(socket, &receipt));
    let other = line("type", 1);
    for body in [other.clone(), format!("[{receipt},{other}]")] {
        let answer = post(socket, &body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "record_type_forbidden")
        );
    }
    daemon.stop_well();
    finish(&test, &kept);
    let opened = read_everything(&test);
    assert_eq!(opened.len(), 1);
    let attested = opened[0].attested.expect("attested");
    assert_eq!(
        (attested.uid, attested.gid, attested.pid),
        (us, gid, std::process::id())
    );
}

/// The kernel says who is there: a process of another user is judged as that user.
#[test]
fn another_user_is_seen_as_who_it_is() {
    let name = "another_user_is_seen_as_who_it_is";
    if !rustix::process::getuid().is_root() || !has("curl") {
        return skip(
            name,
            "only root can become another user, and curl is needed",
        );
    }
    let test = init();
    // The way to the sockets is open to others; who they are is then judged by the daemon.
    fs::set_permissions(test.scratch(""), fs::Permissions::from_mode(0o711)).expect("set");
    let (known, group, unknown) = (4321, 4322, 4323);
    let setup = Setup {
        writer_socket: format!(
            "mode = \"0666\"\n[[listener.peer]]\nuser = {known}\n[[listener.peer]]\ngroup = {group}\ntypes = [\"remote_ref\"]\n"
        ),
        ..Setup::default()
    };
    let daemon = Daemon::start_with(&test, &setup);
    let curl = |socket: &Path, uid: u32, gid: u32, body: &str| -> Output {
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--max-time",
            "20",
            "-w",
            "\n%{http_code}",
            "-H",
            "content-type: application/json",
        ]);
        curl.arg("--unix-socket")
            .arg(socket)
            .args(["-d", body, "http://l/v1/records"]);
        curl.current_dir("/")
            .uid(uid)
            .gid(gid)
            .output()
            .expect("curl starts")
    };
    let writer = &daemon.sockets.writer;
    let said = |output: Output| {
        let text = String::from_utf8(output.stdout).expect("text");
        let (body, status) = text.rsplit_once('\n').expect("a status");
        let json: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text}"));
        (status.to_owned(), json)
    };
    let mut kept = Vec::new();
    for (number, (uid, gid, expected)) in [
        (known, known, "201"),
        (unknown, group, "201"),
        (unknown, unknown, "403"),
        (65534, 65534, "403"),
        // Root is mapped nowhere here, so it is nobody.
        (0, 0, "403"),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, json) = said(curl(writer, uid, gid, &line("user", number)));
        assert_eq!(status, expected, "{uid}: {json}");
        if status == "201" {
            kept.push((uid, gid, ledger_tests::daemon::receipt_in(&json)));
        } else {
            assert_eq!(
                (&json["code"], &json["uid"]),
                (&Value::from("peer_not_mapped"), &Value::from(uid))
            );
        }
    }
    // The operator socket is closed to others by its mode: the kernel does not even connect them.
    let refused = curl(&daemon.sockets.operator, known, known, &line("user", 9));
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
    daemon.stop_well();
    let receipts: Vec<AppendReceipt> = kept.iter().map(|k| k.2.clone()).collect();
    finish(&test, &receipts);
    let opened = read_everything(&test);
    assert_eq!(opened.len(), kept.len());
    for (uid, gid, receipt) in kept {
        let found = opened.iter().find(|o| o.seq == receipt.seq).expect("there");
        let attested = found.attested.expect("attested");
        assert_eq!((attested.uid, attested.gid), (uid, gid));
        assert_ne!(attested.pid, 0);
    }
}
