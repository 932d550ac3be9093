//! The daemon as a process: systemd's readiness, watchdog and sockets, signals, exit codes, logs.

use crate::support::{Ledger, expect_verified, get, ledger, post, receipt, record};
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The example beside this test's binary.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/serve")
}

fn config(ledger: &Ledger, more: &str) -> (PathBuf, PathBuf, PathBuf) {
    let run = ledger.dir.path().join("run");
    let (writer, operator) = (run.join("w.sock"), run.join("o.sock"));
    let text = format!(
        "{more}\n[writer]\nreserve_soft_bytes = 0\nreserve_hard_bytes = 0\n[[listener]]\npath = {writer:?}\nrole = \"writer\"\n[[listener]]\npath = {operator:?}\nrole = \"operator\"\n"
    );
    let path = ledger.dir.path().join("ledger.toml");
    std::fs::write(&path, text).unwrap();
    (path, writer, operator)
}

fn serve(ledger: &Ledger, config: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg(&ledger.folder).arg(&ledger.state).arg(config);
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    for name in [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
        "LISTEN_PID",
    ] {
        command.env_remove(name);
    }
    command
}

fn wait_for(socket: &Path, child: &mut Child) {
    let started = Instant::now();
    while !socket.exists() {
        if let Some(status) = child.try_wait().unwrap() {
            let mut log = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut log);
            panic!("ended early: {status}: {log}");
        }
        assert!(started.elapsed() < Duration::from_secs(20), "no socket");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn ended(child: Child) -> (i32, String) {
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (
        status.code().unwrap_or(-1),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

#[test]
fn signals_stop_gracefully_and_systemd_is_told() {
    for kind in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let ledger = ledger();
        let (config, writer, operator) = config(&ledger, "log = \"json\"");
        let path = ledger.dir.path().join("notify.sock");
        let notify = UnixDatagram::bind(&path).unwrap();
        notify
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut child = serve(&ledger, &config)
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "300000")
            .spawn()
            .unwrap();
        let told = || {
            let mut buffer = [0; 512];
            let n = notify.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        };
        let (mut ready, mut fed) = (false, 0);
        while !ready || fed < 3 {
            let text = told();
            ready |= text.contains("READY=1");
            fed += usize::from(text.contains("WATCHDOG=1"));
        }
        wait_for(&writer, &mut child);
        let kept = receipt(&post(&writer, &record("a")).json());
        assert_eq!(
            get(&operator, &format!("/v1/records/{}", kept.seq)).status,
            200
        );
        signal(&child, kind);
        while !told().contains("STOPPING=1") {}
        let (code, log) = ended(child);
        assert_eq!(code, 0, "{log}");
        assert!(!writer.exists() && !operator.exists());
        let access: Vec<serde_json::Value> = log
            .lines()
            .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")))
            .filter(|v: &serde_json::Value| v["target"] == "ledger_server::access")
            .collect();
        assert_eq!(access.len(), 1, "reads are logged, appends are not: {log}");
        assert_eq!(access[0]["path"], format!("/v1/records/{}", kept.seq));
        assert_eq!(access[0]["uid"], rustix::process::getuid().as_raw());
        expect_verified(&ledger, &[kept]);
    }
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let ledger = ledger();
    let (config, writer, _) = config(&ledger, "");
    let mut first = serve(&ledger, &config).spawn().unwrap();
    wait_for(&writer, &mut first);
    let (code, why) = ended(serve(&ledger, &config).spawn().unwrap());
    assert_eq!(code, 3, "{why}");
    assert!(why.contains("locked"), "{why}");
    // Another ledger on the same socket: the live socket stays.
    let other = crate::support::ledger();
    let (code, why) = ended(serve(&other, &config).spawn().unwrap());
    assert_eq!(code, 3, "{why}");
    assert!(why.contains("another process serves this socket"), "{why}");
    let kept = receipt(&post(&writer, &record("a")).json());
    signal(&first, rustix::process::Signal::KILL);
    first.wait().unwrap();
    assert!(writer.exists(), "as kill -9 leaves it");
    let mut again = serve(&ledger, &config).spawn().unwrap();
    let started = Instant::now();
    while std::os::unix::net::UnixStream::connect(&writer).is_err() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "a stale socket was not replaced"
        );
        assert!(again.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let next = receipt(&post(&writer, &record("b")).json());
    assert!(next.seq > kept.seq);
    signal(&again, rustix::process::Signal::TERM);
    assert_eq!(ended(again).0, 0);
    expect_verified(&ledger, &[kept, next]);
}

#[test]
fn exit_codes_are_as_documented() {
    let ledger = ledger();
    let bad = ledger.dir.path().join("bad.toml");
    std::fs::write(&bad, "[limits]\nconnections = 0\n").unwrap();
    let (code, why) = ended(serve(&ledger, &bad).spawn().unwrap());
    assert_eq!(code, 3, "{why}");
    assert!(why.contains("limits.connections"), "{why}");
    // A flipped bit in the chain: refused at opening.
    let (config, ..) = config(&ledger, "");
    let path = ledger.folder.join("segments/00000000000000000000.frames");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (code, why) = ended(serve(&ledger, &config).spawn().unwrap());
    assert_eq!(code, 1, "{why}");
    let codes: Vec<u8> = ledger_server::EXIT_CODES
        .iter()
        .map(|(code, _)| *code)
        .collect();
    assert_eq!(codes, [0, 1, 2, 3, 64]);
}

/// Hands sockets over as systemd does: descriptors from 3 on, and their number in the environment.
const ACTIVATE: &str = r#"
import os, socket, sys
path, program, *rest = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen(8)
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
env = dict(os.environ, LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="writer")
os.execve(program, [program, *rest], env)
"#;

#[test]
fn sockets_of_systemd_are_taken_and_left() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED sockets_of_systemd_are_taken_and_left: no python3");
        return;
    }
    let ledger = ledger();
    let (config, writer, operator) = config(&ledger, "");
    std::fs::create_dir_all(writer.parent().unwrap()).unwrap();
    let mut child = Command::new("python3")
        .args(["-c", ACTIVATE])
        .arg(&writer)
        .arg(program())
        .arg(&ledger.folder)
        .arg(&ledger.state)
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&operator, &mut child);
    let kept = receipt(&post(&writer, &record("a")).json());
    signal(&child, rustix::process::Signal::TERM);
    let (code, log) = ended(child);
    assert_eq!(code, 0, "{log}");
    assert!(writer.exists(), "systemd's socket is not ours to remove");
    assert!(!operator.exists());
    expect_verified(&ledger, &[kept]);
}
