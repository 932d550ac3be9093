//! init, append, recover.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::Value;

use crate::bench::{Bench, MEMORY, RUN, UNKNOWN_MEMBER};

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn init_says_what_everybody_needs_and_never_overwrites() {
    let bench = Bench::new();
    let key = bench.run(["vault-key", "new", "vault.key"], "");
    insta::assert_snapshot!("vault-key new", key.shown(&bench));
    std::fs::write(bench.path("vault.pub"), format!("# oncall\n{}", key.out)).unwrap();
    let init = [
        "init",
        "audit",
        "--origin",
        "audit.example.com/build",
        "--recipients-file",
        "vault.pub",
    ];
    insta::assert_snapshot!("init", bench.run(init, "").shown(&bench));

    let before = std::fs::read(bench.frames(0)).unwrap();
    let again = bench.run(init, "");
    assert_eq!(again.code, 3);
    insta::assert_snapshot!("init twice", again.shown(&bench));
    assert_eq!(std::fs::read(bench.frames(0)).unwrap(), before);

    let again = bench.run(["vault-key", "new", "vault.key"], "");
    assert_eq!((again.code, again.out.as_str()), (3, ""));
    insta::assert_snapshot!("vault-key new twice", again.shown(&bench));
}

#[test]
fn init_refuses_wrong_names_recipients_and_places() {
    let bench = Bench::new();
    let recipient = "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa";
    let init = |origin: &str, recipient: &str, more: &[&str]| {
        let args = [
            "init",
            "audit",
            "--origin",
            origin,
            "--vault-recipient",
            recipient,
        ];
        bench.run(args.iter().chain(more), "")
    };
    insta::assert_snapshot!(
        "wrong origin",
        init("a b\u{1b}[2J", recipient, &[]).shown(&bench)
    );
    insta::assert_snapshot!(
        "wrong recipient",
        init("a.example/b", "age1nonsense", &[]).shown(&bench)
    );
    let secret = "AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33";
    let refused = init("a.example/b", secret, &[]);
    assert!(
        refused.code == 64 && !refused.err.contains("1GQ9778"),
        "{}",
        refused.err
    );
    let inside = init("a.example/b", recipient, &["--state", "audit/state"]);
    assert_eq!(inside.code, 3, "{}", inside.err);
    assert!(!bench.path("audit/segments").exists());
}

#[test]
fn appended_lines_are_answered_in_their_order() {
    let bench = Bench::with_ledger();
    let input = format!("{RUN}\n{UNKNOWN_MEMBER}\n\nnot json\n{MEMORY}");
    let ended = bench.run(["append", "--ledger", "audit"], &input);
    assert_eq!(ended.code, 1);
    insta::assert_snapshot!("append mixed", ended.shown(&bench));
    let answers = lines(&ended.out);
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0]["record_id"], "rec_1");
    assert_eq!(
        (&answers[1]["line"], &answers[1]["error"]["code"]),
        (&2.into(), &"invalid_record".into())
    );
    assert_eq!(answers[1]["error"]["faults"][0]["code"], "unknown_field");
    assert_eq!(answers[2]["line"], 4);
    assert_eq!(answers[3]["record_id"], "rec_2");
    for receipt in [&answers[0], &answers[3]] {
        ledger_format::AppendReceipt::parse(&receipt.to_string()).unwrap();
    }
}

#[test]
fn credentials_are_refused_and_not_repeated() {
    let bench = Bench::with_ledger();
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let input = RUN.replace(
        "started\"",
        &format!("started\",\"agent\":\"Bearer {token}\""),
    );
    let ended = bench.run(["append", "--ledger", "audit"], &input);
    assert_eq!(ended.code, 1);
    assert!(
        ended.out.contains("\"secret\"") && ended.out.contains("/agent"),
        "{}",
        ended.out
    );
    assert!(!ended.out.contains(token) && !ended.err.contains(token));
}

#[test]
fn a_receipt_comes_before_the_next_line_is_sent() {
    let bench = Bench::with_ledger();
    let mut command = bench.command(["append", "--ledger", "audit"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for id in ["rec_a", "rec_b", "rec_c"] {
        writeln!(stdin, "{}", RUN.replace("rec_1", id)).unwrap();
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["record_id"], id);
        // It is on the disk already: another process reads it.
        let inspected = bench.run(
            [
                "inspect",
                "audit",
                "--seq",
                &answer["seq"].to_string(),
                "--json",
            ],
            "",
        );
        assert!(
            inspected.out.contains(answer["link"].as_str().unwrap()),
            "{}",
            inspected.err
        );
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn batches_hold_as_many_records_as_asked_for() {
    let bench = Bench::with_ledger();
    let input: String = (0..7)
        .map(|i| RUN.replace("rec_1", &format!("rec_{i}")) + "\n")
        .collect();
    std::fs::write(bench.path("in.ndjson"), input).unwrap();
    let ended = bench.run(
        [
            "append",
            "--ledger",
            "audit",
            "--max-batch",
            "3",
            "in.ndjson",
        ],
        "",
    );
    assert_eq!((ended.code, lines(&ended.out).len()), (0, 7));
    let frames = lines(&bench.run(["inspect", "audit", "--json"], "").out);
    let counts: Vec<_> = frames
        .iter()
        .filter(|f| f["kind"] == "record")
        .map(|f| f["write"]["count"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [3, 3, 3, 3, 3, 3, 1]);
}

#[test]
fn raw_bodies_go_in_with_their_receipt_and_a_class_needs_a_key() {
    let bench = Bench::with_ledger();
    let (_, example) = ledger_records::examples()[4];
    let mut receipt: Value = serde_json::from_str(example).unwrap();
    receipt["raw_body"] = "aGVsbG8=".into();
    receipt["raw_body_sha256"] =
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824".into();
    receipt["length"] = 5.into();
    receipt["payload_class"] = "7y".into();
    let refused = bench.run(["append", "--ledger", "audit"], &receipt.to_string());
    assert_eq!(
        (refused.code, &lines(&refused.out)[0]["error"]["code"]),
        (1, &"unknown_payload_class".into())
    );
    let args = [
        "append",
        "--ledger",
        "audit",
        "--payload-class",
        "7y",
        "--payload-class",
        "30d",
    ];
    assert_eq!(bench.run(args, &receipt.to_string()).code, 0);
    let tested = bench.run(["key", "test", "audit", "--vault-key", "vault.key"], "");
    assert!(
        tested.code == 0
            && tested.out.contains("payload key 7y")
            && tested.out.contains("raw body of"),
        "{}",
        tested.out
    );
}

#[test]
fn a_killed_writer_leaves_nothing_to_decide() {
    let bench = Bench::with_ledger();
    let mut command = bench.command(["append", "--ledger", "audit"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{RUN}").unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut answer)
        .unwrap();
    let locked = bench.run(["append", "--ledger", "audit"], MEMORY);
    assert_eq!((locked.code, locked.out.as_str()), (3, ""));
    child.kill().unwrap();
    child.wait().unwrap();
    // A torn write behind what was acknowledged.
    let open = bench.frames(4);
    let data = std::fs::read(&open).unwrap();
    let end = data.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut torn = data[..end].to_vec();
    torn.extend_from_slice(&[0x8b, 0x48, 0, 0]);
    std::fs::write(&open, torn).unwrap();

    let recovered = bench.run(["recover", "audit"], "");
    insta::assert_snapshot!("recover", recovered.shown(&bench));
    let nothing = bench.run(["recover", "audit"], "");
    insta::assert_snapshot!("recover nothing", nothing.shown(&bench));
    let read = bench.run(["read", "audit", "--vault-key", "vault.key"], "");
    assert!(
        read.code == 0 && read.out.contains("\"rec_1\""),
        "{}",
        read.err
    );
}

#[test]
fn a_roll_back_is_refused_until_it_is_accepted() {
    let bench = Bench::with_ledger();
    let old = bench.trust_line();
    bench.append(&[RUN]);
    // An old copy of the ledger, put in its place.
    let copy = |from: &str, to: &str| {
        let copied = std::process::Command::new("cp")
            .args(["-a", from, to])
            .current_dir(bench.path(""))
            .status();
        assert!(copied.unwrap().success());
    };
    copy("audit", "old");
    bench.append(&[MEMORY]);
    std::fs::remove_dir_all(bench.path("audit")).unwrap();
    copy("old", "audit");
    let refused = bench.run(["append", "--ledger", "audit"], MEMORY);
    assert_eq!(refused.code, 3);
    insta::assert_snapshot!("append below the floor", refused.shown(&bench));
    let accepted = bench.run(["recover", "audit", "--accept-roll-back"], "");
    assert_eq!(accepted.code, 0);
    insta::assert_snapshot!("recover accept-roll-back", accepted.shown(&bench));
    bench.append(&[MEMORY]);
    let read = bench.run(
        ["read", "audit", "--vault-key", "vault.key", "--trust", &old],
        "",
    );
    assert!(
        read.code == 2 && read.out.contains("rec_1") && !read.out.contains("rec_2"),
        "{}",
        read.err
    );
    insta::assert_snapshot!("read behind a generation", read.shown(&bench));
    let new = accepted
        .out
        .lines()
        .find(|line| line.contains("/g1+"))
        .unwrap()
        .trim();
    let read = bench.run(
        ["read", "audit", "--vault-key", "vault.key", "--trust", new],
        "",
    );
    assert!(
        read.code == 0 && read.out.contains("rec_2") && read.err.contains("key pinned"),
        "{}",
        read.err
    );
    assert!(
        read.out.contains("rec_1"),
        "what the new key's checkpoint covers is shown under it"
    );
    let needless = bench.run(["recover", "audit", "--lost-epoch-key"], "");
    assert_eq!(needless.code, 3, "{}", needless.err);
}

#[test]
fn damage_is_passed_only_when_asked() {
    let bench = Bench::with_ledger();
    bench.append(&[RUN]);
    bench.append(&[MEMORY]);
    let last = bench.frames(8);
    let mut bytes = std::fs::read(&last).unwrap();
    // In the final checkpoint: opening looks at what stands behind the last one it knows of.
    let at = bytes.windows(7).rposition(|w| w == b"/epoch ").unwrap() + 20;
    bytes[at] ^= 1;
    std::fs::write(&last, bytes).unwrap();
    let refused = bench.run(["append", "--ledger", "audit"], RUN);
    assert_eq!(refused.code, 3);
    let passed = bench.run(["recover", "audit", "--past-damage"], "");
    assert_eq!(passed.code, 0, "{}", passed.err);
    insta::assert_snapshot!("recover past-damage", passed.shown(&bench));
    let read = bench.run(["read", "audit", "--vault-key", "vault.key"], "");
    // Only the checkpoint was damaged: both records are whole, and the next checkpoint covers them.
    assert!(
        read.code == 2 && read.out.contains("rec_1") && read.out.contains("rec_2"),
        "{}",
        read.err
    );
    assert!(read.err.contains("set aside"), "{}", read.err);
}

#[test]
fn lost_receipts_do_not_lose_records() {
    let bench = Bench::with_ledger();
    let input: String = (0..3000)
        .map(|i| RUN.replace("rec_1", &format!("rec_{i}")) + "\n")
        .collect();
    std::fs::write(bench.path("in.ndjson"), input).unwrap();
    let mut command = bench.command(["append", "--ledger", "audit", "in.ndjson"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap()
        ),
        (Some(0), String::new())
    );
    let segments = lines(
        &bench
            .run(["inspect", "audit", "--segments", "--json"], "")
            .out,
    );
    assert_eq!(segments.last().unwrap()["records"], 3000);
}

#[test]
fn a_full_output_is_an_error_that_names_it() {
    let bench = Bench::with_ledger();
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    std::fs::write(bench.path("in.ndjson"), RUN).unwrap();
    let ended = |args: &[&str]| {
        let output = bench.command(args).stdout(full()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, err) = ended(&["append", "--ledger", "audit", "in.ndjson"]);
    assert!(code == Some(2) && err.contains("standard output"), "{err}");
    let (code, err) = ended(&["inspect", "audit"]);
    assert!(code == Some(3) && err.contains("standard output"), "{err}");
    assert!(
        bench
            .run(["read", "audit", "--vault-key", "vault.key"], "")
            .out
            .contains("rec_1")
    );
}

#[test]
fn a_copy_without_its_floor_is_refused() {
    let bench = Bench::with_ledger();
    let mut states = std::fs::read_dir(bench.path("state/ledger")).unwrap();
    let state = states.next().unwrap().unwrap().path();
    std::fs::remove_file(state.join("floor")).unwrap();
    let refused = bench.run(["append", "--ledger", "audit"], RUN);
    assert_eq!(refused.code, 3);
    insta::assert_snapshot!("append without a floor", refused.shown(&bench));
    // Another state folder holds none of this ledger.
    let refused = bench.run(["append", "--ledger", "audit", "--state", "elsewhere"], RUN);
    assert_eq!(refused.code, 3);
    insta::assert_snapshot!("append without state", refused.shown(&bench));
}
