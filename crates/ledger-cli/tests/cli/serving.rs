//! serve, and every command that goes through a daemon's socket: each as a process of its own.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, MEMORY, RUN};

/// A daemon on the ledger `audit` of a folder, with sockets `w` (writer), `r` (reader) and `o` (operator).
struct Daemon<'b> {
    bench: &'b Bench,
    child: Option<Child>,
}

/// The configuration: the three sockets, and what a test adds to the writer socket's table and to `[writer]`.
fn config(bench: &Bench, writer: &str, more: &str) -> String {
    let listener = |name: &str, role: &str, more: &str| {
        let path = bench.path(name);
        format!("[[listener]]\npath = {path:?}\nrole = \"{role}\"\n{more}\n")
    };
    // A small disk is none of these tests' business.
    listener("w", "writer", writer)
        + &listener("r", "reader", "")
        + &listener("o", "operator", "")
        + "[writer]\nreserve_soft_bytes = 0\nreserve_hard_bytes = 0\npayload_classes = [\"30d\"]\n"
        + more
}

impl<'b> Daemon<'b> {
    fn start(bench: &'b Bench) -> Self {
        Self::start_with(bench, "", "")
    }

    fn start_with(bench: &'b Bench, writer: &str, more: &str) -> Self {
        std::fs::write(bench.path("ledger.toml"), config(bench, writer, more)).unwrap();
        let mut child = bench
            .command(["serve", "audit", "--config", "ledger.toml"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while UnixStream::connect(bench.path("o")).is_err() {
            if let Some(status) = child.try_wait().unwrap() {
                let mut why = String::new();
                _ = child.stderr.take().unwrap().read_to_string(&mut why);
                panic!("{status}: {why}");
            }
            assert!(started.elapsed() < Duration::from_secs(20), "no socket");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self {
            bench,
            child: Some(child),
        }
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends it as systemd would; its exit code and its log.
    fn stop(mut self) -> (i32, String) {
        self.signal(rustix::process::Signal::TERM);
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.stdout, b"", "standard output carries data only");
        (output.status.code().unwrap_or(-1), log)
    }

    fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn append(&self, input: &str) -> crate::bench::Ended {
        self.bench.run(["append", "--socket", "w"], input)
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        if let Some(child) = &mut self.child {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// One request; status and body.
fn http(socket: &Path, request: &str, media: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: l\r\nconnection: close\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, answer.split_off(end + 4))
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(body)))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The documents' story, a line a record: the files that are numbered.
fn story() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/story");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with('0') && name.ends_with(".ndjson")
        })
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

fn verified(bench: &Bench, receipts: &str) {
    std::fs::write(bench.path("receipts.ndjson"), receipts).unwrap();
    let trust = bench.trust_line();
    let args = [
        "verify",
        "audit",
        "--trust",
        &trust,
        "--receipts",
        "receipts.ndjson",
        "--payloads",
    ];
    let ended = bench.run(args, "");
    assert!(
        ended.code == 0 && ended.out.starts_with("VERIFIED"),
        "{}{}",
        ended.out,
        ended.err
    );
}

#[test]
fn served_appended_traced_and_stopped() {
    let bench = Bench::with_ledger();
    let daemon = Daemon::start(&bench);
    assert_eq!(bench.run(["healthcheck", "--socket", "w"], "").code, 0);
    let appended = daemon.append(&story());
    assert_eq!((appended.code, appended.err.as_str()), (0, ""));
    let receipts = lines(&appended.out);
    assert_eq!(receipts.len(), story().lines().count());
    let first = receipts[0]["seq"].as_u64().unwrap();
    assert!(
        receipts
            .iter()
            .zip(first..)
            .all(|(r, seq)| r["seq"] == seq && r.get("duplicate").is_none()),
        "in the order of the input"
    );

    // The same story from the daemon and from the folder, before and behind a checkpoint over it.
    let through = |args: &[&str]| bench.run(["trace", "--socket", "o"].iter().chain(args), "");
    let found = through(&["act_01"]);
    assert_eq!(found.code, 0, "{}", found.err);
    let words = found.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("none of them under a signed checkpoint"),
        "{words}"
    );
    let cut = bench.run(["checkpoint", "--socket", "w", "--new"], "");
    assert_eq!(cut.code, 0, "{}", cut.err);
    let newest = bench.run(["checkpoint", "--socket", "r"], "");
    assert_eq!(newest.out, cut.out);
    let size = ledger_format::Checkpoint::parse(cut.out.as_bytes())
        .unwrap()
        .size;
    assert_eq!(size, first + receipts.len() as u64);
    let trust = bench.trust_line();
    let socket = through(&["act_01", "--trust", &trust]);
    let folder = ["trace", "act_01", "--ledger", "audit", "--trust", &trust];
    let folder = bench.run(folder, "");
    // The daemon's checkpoint frame itself may be in one range and not yet in the other.
    assert_eq!(
        (socket.code, folder.code),
        (0, 0),
        "{}{}",
        socket.err,
        folder.err
    );
    assert_eq!(socket.out, folder.out);
    assert!(socket.out.contains("key pinned"), "{}", socket.out);
    insta::assert_snapshot!(
        "trace through the socket",
        crate::bench::redact(&socket.out)
    );
    let depth = |ended: &crate::bench::Ended| json(ended.out.as_bytes())["depth"].clone();
    assert_eq!(depth(&through(&["act_01", "--format", "json"])), "skeleton");

    // From a text, from a body, and what is not there or means several things.
    let pasted = bench.run(["trace", "-", "--socket", "r"], "mail: op_9f2 is late");
    assert!(pasted.out.starts_with("op_9f2, "), "{}", pasted.out);
    let missing = through(&["nothing", "--kind", "action_id"]);
    assert_eq!(missing.code, 1);
    assert!(
        missing.out.starts_with("NOT FOUND nothing"),
        "{}",
        missing.out
    );
    let several = bench.run(["trace", "-", "--socket", "r"], "wf_7 ses_other con_builds");
    assert!([0, 2].contains(&several.code), "{}", several.err);
    assert_eq!(through(&["act_01", "--trust", "a+b+c"]).code, 64);
    assert_eq!(through(&["act_01", "--kind", "colour"]).code, 64);
    let writer = bench.run(["trace", "act_01", "--socket", "w"], "");
    assert_eq!(writer.code, 3);
    insta::assert_snapshot!("trace through a writer socket", writer.shown(&bench));

    // The skeleton of one record, and never its evidence.
    let (status, body) = http(
        &bench.path("r"),
        &format!("GET /v1/records/{}", first + 2),
        "",
        b"",
    );
    let record = json(&body);
    assert_eq!(status, 200);
    let skeleton = &record["skeleton"];
    assert_eq!(skeleton["record_id"], receipts[2]["record_id"]);
    assert_eq!(skeleton["how"], "audit_path");
    let identifiers = skeleton["identifiers"].as_array().unwrap();
    assert!(identifiers.iter().any(|id| id["kind"] == "action_id"));
    // A person's reasons are in bodies only.
    let reasons: Vec<String> = lines(&story())
        .iter()
        .filter_map(|record| Some(record["reason"].as_str()?.to_owned()))
        .collect();
    assert!(!reasons.is_empty());
    for receipt in &receipts {
        let (_, body) = http(
            &bench.path("o"),
            &format!("GET /v1/records/{}", receipt["seq"]),
            "",
            b"",
        );
        let text = String::from_utf8(body).unwrap();
        assert!(text.contains("\"skeleton\""), "{text}");
        for reason in &reasons {
            assert!(!text.contains(reason), "{text}");
            assert!(!found.out.contains(reason));
        }
    }

    let (code, log) = daemon.stop();
    assert_eq!(code, 0, "{log}");
    let reads = log.lines().filter(|l| l.contains("ledger_server::access"));
    assert!(
        reads.clone().any(|l| l.contains("/v1/trace/act_01")),
        "{log}"
    );
    assert!(
        !log.contains("is late"),
        "what was pasted is in no log: {log}"
    );
    assert!(!bench.path("w").exists() && !bench.path("o").exists());
    let segments = bench.run(["inspect", "audit", "--json"], "");
    let last: Vec<Value> = lines(&segments.out);
    let kinds: Vec<_> = last.iter().rev().take(2).map(|f| &f["kind"]).collect();
    assert_eq!(kinds, ["checkpoint", "segment_close"], "closed and signed");
    verified(&bench, &appended.out);
}

#[test]
fn what_is_sent_again_is_marked_and_conflicts_are_named_by_their_line() {
    let bench = Bench::with_ledger();
    let daemon = Daemon::start(&bench);
    let first = daemon.append(&format!("{RUN}\n{MEMORY}\n"));
    assert_eq!(first.code, 0, "{}", first.err);
    let other = RUN.replace("oncall", "somebody");
    let third = RUN.replace("rec_1", "rec_9");
    let again = daemon.append(&format!("{RUN}\n\n{other}\n{third}\n{{}}\n{MEMORY}\n"));
    assert_eq!(again.code, 1);
    insta::assert_snapshot!("append again through the socket", again.shown(&bench));
    let answers = lines(&again.out);
    let firsts = lines(&first.out);
    assert_eq!(answers[0]["link"], firsts[0]["link"]);
    assert_eq!(answers[0]["duplicate"], true);
    assert_eq!(answers[1]["error"]["code"], "record_conflict");
    assert_eq!(answers[1]["error"]["first_seq"], firsts[0]["seq"]);
    assert_eq!(answers[1]["line"], 3);
    assert!(answers[2].get("duplicate").is_none());
    assert_eq!(answers[4]["link"], firsts[1]["link"]);
    assert_eq!(daemon.stop().0, 0);
    // A marked receipt is a receipt; without the daemon the same is answered.
    let kept: Vec<&str> = again
        .out
        .lines()
        .filter(|l| l.starts_with("{\"receipt\""))
        .collect();
    verified(&bench, &(kept.join("\n") + "\n"));
    let local = bench.run(
        ["append", "--ledger", "audit"],
        &format!("{MEMORY}\n{other}\n"),
    );
    let answers = lines(&local.out);
    assert_eq!((local.code, &answers[0]["duplicate"]), (1, &true.into()));
    assert_eq!(answers[0]["link"], firsts[1]["link"]);
    assert_eq!(answers[1]["error"]["first_seq"], firsts[0]["seq"]);
}

#[test]
fn one_daemon_a_ledger_and_one_a_socket() {
    let bench = Bench::with_ledger();
    let daemon = Daemon::start(&bench);
    let inode = std::fs::metadata(bench.path("w")).unwrap().ino();
    let second = bench.run(["serve", "audit", "--config", "ledger.toml"], "");
    assert_eq!(second.code, 3);
    let holder = format!("process {} (ledger) holds it", daemon.pid());
    assert!(second.err.contains(&holder), "{}", second.err);
    let rebuild = bench.run(["index", "rebuild", "audit"], "");
    assert_eq!(rebuild.code, 3);
    assert!(rebuild.err.contains(&holder), "{}", rebuild.err);
    // Another ledger that wants the same sockets: the live ones stay.
    let other = Bench::with_ledger();
    std::fs::copy(bench.path("ledger.toml"), other.path("ledger.toml")).unwrap();
    let refused = other.run(["serve", "audit", "--config", "ledger.toml"], "");
    assert_eq!(refused.code, 3);
    assert!(
        refused.err.contains("another process serves this socket"),
        "{}",
        refused.err
    );
    assert_eq!(std::fs::metadata(bench.path("w")).unwrap().ino(), inode);
    assert_eq!(daemon.append(RUN).code, 0);
    daemon.kill();
    assert!(bench.path("w").exists(), "as kill -9 leaves it");
    let lost = bench.run(["healthcheck", "--socket", "w"], "");
    assert_eq!((lost.code, lost.out.as_str()), (1, ""));
    let status = bench.run(["status", "--socket", "o"], "");
    assert_eq!((status.code, status.out.as_str()), (3, ""));
    let daemon = Daemon::start(&bench);
    assert_ne!(std::fs::metadata(bench.path("w")).unwrap().ino(), inode);
    let again = daemon.append(RUN);
    assert_eq!(lines(&again.out)[0]["duplicate"], true);
    assert_eq!(daemon.stop().0, 0);
    verified(&bench, &again.out);
}

#[test]
fn status_says_how_it_is() {
    let bench = Bench::with_ledger();
    // In the default place: the runtime folder.
    let mut child = bench
        .command(["serve", "audit"])
        .env("RUNTIME_DIRECTORY", bench.path("run"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let run = |args: &[&str]| {
        let mut command = bench.command(args);
        command.env("RUNTIME_DIRECTORY", bench.path("run"));
        crate::bench::Ended::from(command.output().unwrap())
    };
    let started = Instant::now();
    while run(&["healthcheck"]).code != 0 {
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    let mode = |name: &str| std::fs::metadata(bench.path(name)).unwrap().mode() & 0o777;
    assert_eq!(
        (mode("run/writer.sock"), mode("run/operator.sock")),
        (0o660, 0o600)
    );
    let appended = bench.run(["append", "--socket", "run/writer.sock"], RUN);
    assert_eq!(appended.code, 0, "{}", appended.err);
    let json_status = run(&["status", "audit", "--json"]);
    let report = json(json_status.out.as_bytes());
    assert_eq!(report["appends"]["records"], 1);
    assert_eq!(report["readers"].as_array().unwrap().len(), 1);
    let text = run(&["status", "audit"]);
    // The reserve of the default configuration may be more than a small disk has.
    assert_eq!(text.code, json_status.code);
    for part in [
        "build  READY  up 0 s",
        "audit.example.com/build\n",
        "\n  appends      ",
        "head frame 5; ack p50 ",
        "\n  checkpoint   3, ",
        "floor 3 on",
        "\n  segment      2, ",
        "\n  disk         ",
        "\n  readers      age1",
        "\n  sockets      writer.sock (writer) 0 clients; operator.sock (operator) 1 client\n",
    ] {
        let degraded = text.code != 0 && part.contains("READY");
        assert!(degraded || text.out.contains(part), "{part}: {}", text.out);
    }
    assert!(
        text.out
            .contains("exit 0 (ready; 1 degraded, 2 not accepting appends, 3 not reachable)")
            || text.code != 0
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = run(&["status", "audit"]);
    assert_eq!(gone.code, 3);
    assert_eq!(run(&["healthcheck"]).code, 1);
}

#[test]
fn a_user_who_is_not_mapped_is_refused_and_status_tells() {
    let bench = Bench::with_ledger();
    let uid = rustix::process::getuid().as_raw();
    let rules = format!("[[listener.peer]]\nuser = {}\n", uid + 1);
    let daemon = Daemon::start_with(&bench, &rules, "");
    let (status, body) = http(
        &bench.path("w"),
        "POST /v1/records",
        "application/json",
        RUN.as_bytes(),
    );
    assert_eq!(
        (status, &json(&body)["code"]),
        (403, &"peer_not_mapped".into())
    );
    let refused = daemon.append(&format!("{RUN}\n{MEMORY}\n"));
    assert_eq!(refused.code, 3);
    assert_eq!(refused.err.matches("error:").count(), 1, "{}", refused.err);
    assert!(refused.err.contains("[[listener.peer]]"), "{}", refused.err);
    let degraded = bench.run(["status", "--socket", "o"], "");
    assert_eq!(degraded.code, 1);
    assert!(
        degraded.out.contains("ATTENTION\n  W017  ")
            && degraded
                .out
                .contains(&format!("peer uid {uid} is not mapped"))
            && degraded.out.contains("ledger explain W017"),
        "{}",
        degraded.out
    );
    assert!(
        bench
            .run(["explain", "W017"], "")
            .out
            .contains("user namespace")
    );
    assert_eq!(daemon.stop().0, 0);
    verified(&bench, "");

    // Only some types: the line is refused, the others are appended.
    let rules = format!("[[listener.peer]]\nuser = {uid}\ntypes = [\"memory\"]\n");
    let daemon = Daemon::start_with(&bench, &rules, "");
    let mixed = daemon.append(&format!("{RUN}\n{MEMORY}\n"));
    assert_eq!(mixed.code, 1);
    let answers = lines(&mixed.out);
    assert_eq!(answers[0]["error"]["code"], "record_type_forbidden");
    assert_eq!(answers[1]["record_id"], "rec_2");
    assert_eq!(daemon.stop().0, 0);
}

#[test]
fn raw_bodies_over_the_socket() {
    let bench = Bench::with_ledger();
    let daemon = Daemon::start(&bench);
    let (_, example) = ledger_records::examples()[4];
    let mut receipt: Value = serde_json::from_str(example).unwrap();
    receipt["raw_body"] = "aGVsbG8=".into();
    receipt["raw_body_sha256"] =
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824".into();
    receipt["length"] = 5.into();
    receipt["payload_class"] = "30d".into();
    let by_json = daemon.append(&receipt.to_string());
    assert_eq!(by_json.code, 0, "{}", by_json.err);
    // CBOR carries the bytes as they are.
    receipt["record_id"] = "rec_cbor".into();
    receipt["receipt_id"] = "rcp_cbor".into();
    let submission = ledger_records::Submission::from_json(receipt.to_string().as_bytes()).unwrap();
    let cbor = submission.to_cbor();
    assert!(cbor.windows(5).any(|w| w == b"hello"));
    let post = |body: &[u8]| {
        http(
            &bench.path("w"),
            "POST /v1/records",
            "application/cbor",
            body,
        )
    };
    let (status, body) = post(&cbor);
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&body));
    let by_cbor = json(&body)["receipt"].clone();
    // Another body under the same digest is not kept.
    let wrong: Vec<u8> = cbor
        .windows(5)
        .position(|w| w == b"hello")
        .map(|at| {
            let mut bytes = cbor.clone();
            bytes[at] ^= 1;
            bytes
        })
        .unwrap();
    assert_eq!(post(&wrong).0, 422);
    let (_, shown) = http(
        &bench.path("o"),
        &format!("GET /v1/records/{}", by_cbor["seq"]),
        "",
        b"",
    );
    assert_eq!(json(&shown)["payload"]["class"], "30d");
    assert!(!shown.windows(5).any(|w| w == b"hello"));
    std::fs::write(bench.path("hello"), "hello").unwrap();
    let traced = bench.run(["trace", "--body", "hello", "--socket", "o"], "");
    assert!(
        [0, 2, 5].contains(&traced.code),
        "{}{}",
        traced.out,
        traced.err
    );
    assert!(traced.out.contains("rcp_cbor"), "{}", traced.out);
    assert_eq!(daemon.stop().0, 0);
    verified(&bench, &format!("{}{by_cbor}\n", by_json.out));
    let read = bench.run(["read", "audit", "--vault-key", "vault.key"], "");
    assert_eq!((read.code, lines(&read.out).len()), (0, 2), "{}", read.err);
    assert_eq!(
        lines(&read.out)[1]["attested"]["uid"],
        rustix::process::getuid().as_raw()
    );
    let tested = bench.run(["key", "test", "audit", "--vault-key", "vault.key"], "");
    assert!(
        tested.code == 0 && tested.out.contains("raw body of"),
        "{}",
        tested.out
    );
}

#[test]
fn the_index_is_made_again_with_the_same_answers() {
    let bench = Bench::with_ledger();
    let appended = bench.run(["append", "--ledger", "audit"], &story());
    assert_eq!(appended.code, 0, "{}", appended.err);
    let key = ["--ledger", "audit", "--vault-key", "vault.key"];
    let trace = |more: &[&str]| {
        let args = ["trace", "act_01"].iter().chain(&key).chain(more);
        let ended = bench.run(args, "");
        assert_eq!(ended.code, 0, "{}", ended.err);
        ended.out
    };
    let with_index = trace(&["--format", "json"]);
    assert_eq!(json(with_index.as_bytes())["depth"], "evidence");
    assert!(with_index.contains("audit_path"));
    let whole = trace(&["--no-index", "--format", "json"]);
    assert!(!whole.contains("audit_path"), "no tile was believed");
    let sentences = |text: &str| -> Vec<String> {
        let lines = json(text.as_bytes())["lines"].as_array().unwrap().clone();
        lines.iter().map(|l| l["text"].to_string()).collect()
    };
    assert_eq!(sentences(&with_index), sentences(&whole));
    // One altered page: noticed, and done without.
    let path = bench.path("audit/index.sqlite");
    let good = std::fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad.iter_mut()
        .skip(4096)
        .step_by(16)
        .for_each(|b| *b ^= 0x55);
    std::fs::write(&path, bad).unwrap();
    let damaged = trace(&["--format", "json"]);
    assert_eq!(sentences(&damaged), sentences(&whole));
    assert!(damaged.contains("the whole chain was read"), "{damaged}");
    std::fs::remove_file(&path).unwrap();
    let without = trace(&[]);
    assert!(
        without.contains("the whole chain was read: the identifier index cannot be used"),
        "{without}"
    );
    let rebuilt = bench.run(["index", "rebuild", "audit"], "");
    assert_eq!(rebuilt.code, 0, "{}", rebuilt.err);
    assert!(
        rebuilt.out.starts_with("REBUILT  audit: "),
        "{}",
        rebuilt.out
    );
    assert_eq!(trace(&["--format", "json"]), with_index);
    assert_eq!(bench.run(["index", "rebuild", "nowhere"], "").code, 3);
}

#[test]
fn configurations_are_checked_whole() {
    let bench = Bench::with_ledger();
    std::fs::write(
        bench.path("bad.toml"),
        "tcp = \"0.0.0.0:80\"\n[[listener]]\npath = \"w.sock\"\nrole = \"writer\"\nmode = \"999\"\n[limits]\nconnections = 0\n",
    )
    .unwrap();
    let checked = bench.run(["config", "check", "bad.toml"], "");
    assert_eq!(checked.code, 3);
    insta::assert_snapshot!("config check bad", checked.shown(&bench));
    let served = bench.run(["serve", "audit", "--config", "bad.toml"], "");
    assert_eq!((served.code, served.err), (3, checked.err));
    std::fs::write(bench.path("unknown.toml"), "[limit]\nconnections = 1\n").unwrap();
    let unknown = bench.run(["config", "check", "unknown.toml"], "");
    assert_eq!(unknown.code, 3);
    insta::assert_snapshot!("config check unknown", unknown.shown(&bench));
    std::fs::write(
        bench.path("good.toml"),
        "state = \"/var/lib/ledger-state\"\ntcp = \"127.0.0.1:9464\"\n[[listener]]\npath = \"/run/ledger/writer.sock\"\nrole = \"writer\"\ngroup = 12\n[[listener.peer]]\nuser = \"root\"\n[[listener.peer]]\ngroup = 7\ntypes = [\"receipt\", \"verification\"]\n[[listener]]\npath = \"/run/ledger/operator.sock\"\nrole = \"operator\"\n",
    )
    .unwrap();
    let good = bench.run(["config", "check", "good.toml"], "");
    assert_eq!(good.code, 0);
    insta::assert_snapshot!("config check good", good.shown(&bench));
    // The README's.
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"))
            .unwrap();
    let (_, block) = readme
        .split_once("<!-- test: config -->\n```toml\n")
        .unwrap();
    let (documented, _) = block.split_once("```").unwrap();
    std::fs::write(bench.path("readme.toml"), documented).unwrap();
    let checked = bench.run(["config", "check", "readme.toml"], "");
    assert_eq!(checked.code, 0, "{}", checked.err);
    let whole = ledger_server::Config::parse(documented).unwrap();
    let default = ledger_server::Config::default();
    assert_eq!(
        whole.limits, default.limits,
        "the values shown are the defaults"
    );
    assert_eq!(
        format!("{:?}", whole.writer),
        format!("{:?}", default.writer)
    );
    assert_eq!(
        (whole.log, whole.drain_time),
        (default.log, default.drain_time)
    );
    std::fs::write(bench.path("empty.toml"), "").unwrap();
    let empty = bench.run(["config", "check", "empty.toml"], "");
    assert!(empty.out.contains("writer.sock    0660"), "{}", empty.out);
    assert_eq!(bench.run(["config", "check", "missing.toml"], "").code, 3);
    // What the ledger itself makes impossible has a code of its own.
    let path = bench.frames(0);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(bench.run(["serve", "audit"], "").code, 1);
}

#[test]
fn a_daemon_that_is_not_there() {
    let bench = Bench::with_ledger();
    for args in [
        &["status", "--socket", "none"][..],
        &["checkpoint", "--socket", "none"],
        &["status", "audit"],
    ] {
        let ended = bench.run(args, "");
        assert_eq!((ended.code, ended.out.as_str()), (3, ""), "{args:?}");
        assert!(ended.err.contains("next: "), "{args:?}: {}", ended.err);
    }
    for args in [
        &["append", "--socket", "w", "--ledger", "audit"][..],
        &["append", "--socket", "w", "--state", "s"],
        &["trace", "a", "--socket", "w", "--ledger", "audit"],
        &["trace", "a", "--socket", "w", "--vault-key", "k"],
        &["trace", "a"],
        &["status"],
        &["status", "audit", "--socket", "w"],
        &["checkpoint"],
        &["checkpoint", "audit", "--new"],
        &["serve"],
    ] {
        assert_eq!(bench.run(args, "").code, 64, "{args:?}");
    }
}

/// Segments close, checkpoints are cut and tiles follow while it is asked: no question fails for that, and none shows
/// what is not synced.
#[test]
fn questions_while_the_ledger_is_written_to() {
    let bench = Bench::with_ledger();
    let daemon = Daemon::start_with(
        &bench,
        "",
        "segment_bytes = 1048576\ncheckpoint_frames = 200\n",
    );
    let (writer, reader) = (bench.path("w"), bench.path("r"));
    let newest = std::sync::Mutex::new(None);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0..120 {
                let records: Vec<String> = (0..50)
                    .map(|i| {
                        RUN.replace("rec_1", &format!("rec_{batch}_{i}"))
                            .replace("run_1", &format!("run_{batch}_{i}"))
                            .replace("ses_5", &format!("ses_{batch}"))
                    })
                    .collect();
                let body = format!("[{}]", records.join(","));
                let (status, answer) = http(
                    &writer,
                    "POST /v1/records",
                    "application/json",
                    body.as_bytes(),
                );
                assert_eq!(status, 201);
                let last = json(&answer)["records"][49].clone();
                *newest.lock().unwrap() = Some((format!("run_{batch}_49"), last["seq"].clone()));
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let asked = scope.spawn(|| {
            let mut asked = 0;
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let Some((run, seq)) = newest.lock().unwrap().clone() else {
                    continue;
                };
                let (status, story) = http(&reader, &format!("GET /v1/trace/{run}"), "", b"");
                let story = json(&story);
                assert_eq!(
                    (status, &story["answer"]),
                    (200, &"found".into()),
                    "{story}"
                );
                assert_eq!(story["lines"][0]["frame"], seq);
                let (status, record) = http(&reader, &format!("GET /v1/records/{seq}"), "", b"");
                assert_eq!(status, 200, "{}", String::from_utf8_lossy(&record));
                asked += 1;
            }
            asked
        });
        assert!(asked.join().unwrap() > 3);
    });
    let segments = std::fs::read_dir(bench.path("audit/segments")).unwrap();
    let names = segments.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.filter(|name| name.ends_with(".frames")).count() > 4);
    assert_eq!(daemon.stop().0, 0);
    verified(&bench, "");
}
