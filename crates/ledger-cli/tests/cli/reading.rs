//! read, key test, checkpoint, inspect; closed pipes and colour.

use std::process::Stdio;

use serde_json::Value;

use crate::bench::{Bench, Ended, MEMORY, RUN};
use crate::forge;

fn read(bench: &Bench, more: &[&str]) -> Ended {
    bench.run(
        ["read", "audit", "--vault-key", "vault.key"]
            .iter()
            .chain(more),
        "",
    )
}

fn seqs(text: &str) -> Vec<u64> {
    let seq = |line: &str| {
        serde_json::from_str::<Value>(line).unwrap()["seq"]
            .as_u64()
            .unwrap()
    };
    text.lines().map(seq).collect()
}

/// Frames 4 to 8 with two records, 9 to 12 with one.
fn with_records() -> Bench {
    let bench = Bench::with_ledger();
    bench.append(&[RUN, MEMORY]);
    bench.append(&[&RUN.replace("rec_1", "rec_9")]);
    bench
}

#[test]
fn records_come_back_as_they_went_in() {
    let bench = with_records();
    let trust = bench.trust_line();
    let ended = read(&bench, &["--trust", &trust]);
    assert_eq!(ended.code, 0);
    insta::assert_snapshot!("read", ended.shown(&bench));
    let first: Value = serde_json::from_str(ended.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["record"], serde_json::from_str::<Value>(RUN).unwrap());
    assert_eq!(
        (&first["attested"], &first["checkpoint"]),
        (&Value::Null, &8.into())
    );

    assert_eq!(seqs(&read(&bench, &["--from", "6"]).out), [6, 10]);
    assert_eq!(seqs(&read(&bench, &["--until", "5"]).out), [5]);
    assert_eq!(
        seqs(&read(&bench, &["--from", "9", "--until", "10", "--trust", &trust]).out),
        [10]
    );
    let beyond = read(&bench, &["--from", "100"]);
    assert_eq!(
        (beyond.code, beyond.out.as_str()),
        (2, ""),
        "{}",
        beyond.err
    );
    assert_eq!(read(&bench, &["--until", "100"]).code, 2);
    std::fs::write(
        bench.path("trust.txt"),
        format!("# from the contract\n{trust}\n"),
    )
    .unwrap();
    assert!(
        read(&bench, &["--trust", "trust.txt"])
            .err
            .contains("key pinned")
    );
    assert!(read(&bench, &[]).err.contains("NOT PINNED"));
}

#[test]
fn another_trust_line_is_refused_before_a_record_is_shown() {
    let bench = with_records();
    let other = Bench::with_ledger();
    let refused = read(&bench, &["--trust", &other.trust_line()]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    insta::assert_snapshot!("read another trust line", refused.shown(&bench));
    let inside = "audit/trust.txt";
    std::fs::write(bench.path(inside), bench.trust_line()).unwrap();
    let refused = read(&bench, &["--trust", inside]);
    assert_eq!(refused.code, 64);
    assert!(refused.err.contains("inside the copy"), "{}", refused.err);
    assert_eq!(read(&bench, &["--trust", "a+b+c"]).code, 64);
}

#[test]
fn a_wrong_vault_key_opens_nothing() {
    let bench = with_records();
    bench.run(["vault-key", "new", "other.key"], "");
    let ended = bench.run(["read", "audit", "--vault-key", "other.key"], "");
    assert_eq!((ended.code, ended.out.as_str()), (3, ""));
    insta::assert_snapshot!("read wrong key", ended.shown(&bench));
    let ended = bench.run(["key", "test", "audit", "--vault-key", "other.key"], "");
    assert_eq!(ended.code, 1);
    insta::assert_snapshot!("key test wrong key", ended.shown(&bench));
}

#[test]
fn key_test_says_what_opens_and_what_it_did_not_try() {
    let bench = with_records();
    let ended = bench.run(["key", "test", "audit", "--vault-key", "vault.key"], "");
    insta::assert_snapshot!("key test", ended.shown(&bench));
    let segments = bench.path("audit/segments");
    std::fs::remove_file(segments.join("00000000000000000004.body.age")).unwrap();
    std::fs::remove_file(segments.join("00000000000000000009.30d.age")).unwrap();
    // Another segment's key in place of the right one.
    std::fs::copy(
        segments.join("00000000000000000000.envelope.age"),
        segments.join("00000000000000000009.envelope.age"),
    )
    .unwrap();
    let ended = bench.run(["key", "test", "audit", "--vault-key", "vault.key"], "");
    assert_eq!(ended.code, 1);
    insta::assert_snapshot!("key test with missing keys", ended.shown(&bench));
}

#[test]
fn an_altered_frame_ends_the_reading_before_it_is_shown() {
    let bench = with_records();
    let path = bench.frames(4);
    let good = std::fs::read(&path).unwrap();
    let inspected = bench.run(["inspect", "audit", "--seq", "6", "--json"], "");
    let frame: Value = serde_json::from_str(&inspected.out).unwrap();
    let offset = usize::try_from(frame["offset"].as_u64().unwrap()).unwrap();
    let mut bad = good.clone();
    bad[offset + 200] ^= 1;
    std::fs::write(&path, bad).unwrap();
    let ended = read(&bench, &[]);
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    insta::assert_snapshot!("read altered", ended.shown(&bench));
    // A cut end: nothing behind the last complete write is shown, nor what no checkpoint covers.
    let later = bench.frames(9);
    for name in ["frames", "body.age", "envelope.age", "30d.age"] {
        std::fs::remove_file(later.with_file_name(format!("{:020}.{name}", 9))).unwrap();
    }
    std::fs::write(&path, &good[..offset + 10]).unwrap();
    let ended = read(&bench, &[]);
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    insta::assert_snapshot!("read torn", ended.shown(&bench));
}

#[test]
fn records_without_a_checkpoint_are_shown_only_on_request() {
    let bench = Bench::with_ledger();
    bench.append(&[RUN]);
    // Cut behind the record's write: close and final checkpoint are gone.
    let close: Value = serde_json::from_str(
        &bench
            .run(["inspect", "audit", "--seq", "6", "--json"], "")
            .out,
    )
    .unwrap();
    assert_eq!(close["kind"], "segment_close");
    let file = std::fs::File::options()
        .write(true)
        .open(bench.frames(4))
        .unwrap();
    file.set_len(close["offset"].as_u64().unwrap()).unwrap();
    let ended = read(&bench, &[]);
    assert_eq!((ended.code, ended.out.as_str()), (0, ""));
    insta::assert_snapshot!("read uncovered not shown", ended.shown(&bench));
    let ended = read(&bench, &["--uncovered"]);
    assert!(
        ended.code == 0 && ended.out.contains("\"checkpoint\":null"),
        "{ended:?}"
    );
    assert_eq!(seqs(&ended.out), [5]);
}

#[test]
fn a_body_that_belies_its_envelope_is_reported() {
    let bench = Bench::new();
    forge::ledger(&bench);
    let ended = read(&bench, &[]);
    assert_eq!(ended.code, 1);
    insta::assert_snapshot!("read forged", ended.shown(&bench));
    assert_eq!(
        seqs(&ended.out),
        [2, 3, 5],
        "what opens is shown, what does not is left out"
    );
    let ended = bench.run(["key", "test", "audit", "--vault-key", "vault.key"], "");
    assert_eq!(
        ended.code, 0,
        "the first record and the last are sound: {}",
        ended.out
    );
}

#[test]
fn hostile_text_does_not_reach_the_terminal() {
    let bench = Bench::new();
    forge::ledger(&bench);
    for args in [
        &["inspect", "audit"][..],
        &["inspect", "audit", "--json"],
        &["inspect", "audit", "--seq", "6"],
        &["inspect", "audit", "--checkpoints"],
        &["inspect", "audit", "--segments"],
        &["read", "audit", "--vault-key", "vault.key"],
        &["key", "test", "audit", "--vault-key", "vault.key"],
    ] {
        let ended = bench.run(args, "");
        for text in [&ended.out, &ended.err] {
            assert!(
                !text.contains(['\u{1b}', '\u{202e}', '\u{9b}']),
                "{args:?}: {text}"
            );
        }
    }
    let shown = bench.run(["inspect", "audit"], "");
    assert!(
        shown.out.contains("\\u{1b}[2J") && shown.out.contains("\\u{202e}"),
        "{}",
        shown.out
    );
    let json = bench.run(["inspect", "audit", "--seq", "6", "--json"], "");
    let value: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(value["control"]["body"]["rule"], forge::RULE);
}

#[test]
fn the_newest_checkpoint_is_the_chains() {
    let bench = with_records();
    // The file beside the chain is a convenience and not looked at.
    std::fs::write(bench.path("audit/checkpoint"), "nonsense").unwrap();
    let ended = bench.run(["checkpoint", "audit"], "");
    insta::assert_snapshot!("checkpoint", ended.shown(&bench));
    let checkpoint = ledger_format::Checkpoint::parse(ended.out.as_bytes()).unwrap();
    assert_eq!(checkpoint.size, 12);
    let trust = ledger_format::VerifierKey::parse(&bench.trust_line()).unwrap();
    checkpoint.verify_standalone(&trust).unwrap();
    // Without the last segment, the one before.
    std::fs::remove_file(bench.frames(9)).unwrap();
    assert!(bench.run(["checkpoint", "audit"], "").out.contains("\n8\n"));
    // One flipped bit of a signature.
    let path = bench.frames(4);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(7).rposition(|w| w == b"/epoch ").unwrap() + 20;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let ended = bench.run(["checkpoint", "audit"], "");
    assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{}", ended.err);
}

#[test]
fn inspect_shows_public_parts() {
    let bench = with_records();
    for (name, args) in [
        ("frames", &[][..]),
        ("segments", &["--segments"]),
        ("checkpoints", &["--checkpoints"]),
        ("record", &["--seq", "5"]),
        ("open", &["--seq", "4"]),
        ("record json", &["--seq", "5", "--json"]),
        ("close json", &["--seq", "7", "--json"]),
        ("absent", &["--seq", "99"]),
    ] {
        let ended = bench.run(["inspect", "audit"].iter().chain(args), "");
        insta::assert_snapshot!(format!("inspect {name}"), ended.shown(&bench));
    }
    // The folder of the segments alone is enough.
    assert_eq!(bench.run(["inspect", "audit/segments"], "").code, 0);
    let lines = bench.run(["inspect", "audit", "--json"], "").out;
    let kinds: Vec<String> = lines
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["kind"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds.len(), 13);
    assert_eq!(kinds[..3], ["genesis", "segment_open", "segment_close"]);
}

#[test]
fn inspect_says_where_frames_end() {
    let bench = with_records();
    let path = bench.frames(4);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[17] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
    let ended = bench.run(["inspect", "audit", "--segments"], "");
    assert_eq!(ended.code, 1);
    insta::assert_snapshot!("inspect damaged", ended.shown(&bench));
}

#[test]
fn pipes_and_links_in_place_of_segments_are_refused_and_do_not_hang() {
    let bench = with_records();
    let path = bench.frames(9);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(bench.frames(4), &path).unwrap();
    for command in ["checkpoint", "inspect"] {
        assert_eq!(
            bench.run([command, "audit"], "").code,
            3,
            "{command} follows no link"
        );
    }
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for command in ["checkpoint", "inspect"] {
        assert_eq!(
            bench.run([command, "audit"], "").code,
            3,
            "{command} opens no pipe"
        );
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let bench = with_records();
    bench.append(
        &(0..2000)
            .map(|i| RUN.replace("rec_1", &format!("rec_more_{i}")))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    for args in [
        &["inspect", "audit"][..],
        &["inspect", "audit", "--json"],
        &["inspect", "constants"],
        &["read", "audit", "--vault-key", "vault.key"],
        &["key", "test", "audit", "--vault-key", "vault.key"],
        &["checkpoint", "audit"],
        &["schema"],
        &["schema", "identifiers"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["verify", "audit"],
        &["explain", "frame_altered"],
    ] {
        let mut command = bench.command(args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(
            !err.contains("panicked") && !err.contains("Broken pipe"),
            "{args:?}: {err}"
        );
        // `verify` without a pin ends with 4 whoever reads it.
        let expected = if args[0] == "verify" { 4 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{args:?}: {err}");
    }
}

#[test]
fn verify_is_the_verifier() {
    let bench = with_records();
    let trust = bench.trust_line();
    let ended = bench.run(["verify", "audit", "--trust", &trust], "");
    assert!(
        ended.code == 0 && ended.out.starts_with("VERIFIED"),
        "{}{}",
        ended.out,
        ended.err
    );
    bench.run(["checkpoint", "audit"], "");
    let path = bench.frames(4);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(
        bench.run(["verify", "audit", "--trust", &trust], "").code,
        1
    );
}
