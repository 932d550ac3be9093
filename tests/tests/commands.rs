//! The command `ledger` from outside: planted secrets are refused by their place and never shown,
//! and no secret stands in a command line, an environment or an output.

use ledger_tests::TestLedger;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::record;
use ledger_tests::tools::ledger_program;
use ledger_verify::Verdict;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
    /// `/proc/PID/cmdline` and `environ` as seen while it ran.
    seen: Vec<u8>,
    /// How often it was looked at.
    looks: usize,
}

/// Runs `ledger` and looks at it while it waits for its input and until it ends.
fn run(args: &[&str], input: &str) -> Ended {
    let mut child = Command::new(ledger_program())
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ledger starts");
    let proc_folder = format!("/proc/{}", child.id());
    let (mut seen, mut looks) = (Vec::new(), 0);
    let mut look = || {
        for name in ["cmdline", "environ"] {
            // The environment of a protected process may be closed to us: then to others, too.
            seen.extend(fs::read(Path::new(&proc_folder).join(name)).unwrap_or_default());
        }
        looks += 1;
    };
    for _ in 0..20 {
        look();
        std::thread::sleep(Duration::from_millis(5));
    }
    // A program that does not read may have ended.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes());
    look();
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("ends");
    Ended {
        status: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
        seen,
        looks,
    }
}

fn path(p: &Path) -> &str {
    p.to_str().expect("UTF-8")
}

/// Parts of secrets, joined here so that no scanner takes this file for a leak.
fn planted() -> Vec<(&'static str, String)> {
    let t = |n: usize| {
        "a8Kd02LmQz7Xw4Rt9Yb3Nc6Vf1Hj5GsPeUoIiTqWx2Ez0Mn8Bv4Ck6Dl1Jh3Fg5"[..n].to_owned()
    };
    let hex = |n: usize| {
        "9f2c1a7e03bd41d7c0b36a9155aa0c11e8f7d6c5b4a39281706f5e4d3c2b1a09"[..n].to_owned()
    };
    vec![
        ("/refs/0/value", format!("ghp_{}", t(36))),
        ("/refs/0/value", format!("github_pat_{}_{}", t(22), t(59))),
        ("/refs/0/value", format!("glpat-{}", t(20))),
        (
            "/refs/0/value",
            format!("xoxb-{}-{}", "123456789012", t(24)),
        ),
        ("/refs/0/value", format!("sk_live_{}", t(24))),
        ("/refs/0/value", format!("whsec_{}", t(32))),
        ("/refs/0/value", format!("AKIA{}", "IOSFODNN7EXAMPLE")),
        ("/refs/0/value", format!("AIza{}", t(35))),
        ("/refs/0/value", format!("sk-ant-api03-{}", t(48))),
        ("/refs/0/value", format!("SG.{}.{}", t(22), t(43))),
        ("/refs/0/value", format!("dop_v1_{}", hex(64))),
        ("/refs/0/value", format!("hf_{}", t(34))),
        ("/refs/0/value", format!("npm_{}", t(36))),
        (
            "/refs/0/value",
            format!("AGE-SECRET-{}1{}", "KEY-", t(58).to_uppercase()),
        ),
        ("/reason", format!("Bearer {}", t(32))),
        ("/reason", format!("-----BEGIN {}-----", "PRIVATE KEY")),
        (
            "/reason",
            format!(
                "{}.{}.{}",
                "eyJhbGciOiJIUzI1NiJ9",
                "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
                t(43)
            ),
        ),
        (
            "/reason",
            format!("login failed with password={}", "hunter2hunter"),
        ),
        (
            "/reason",
            format!("https://alice:{}@example.com/x", "hunter3hunter"),
        ),
        (
            "/reason",
            format!("GET /v1?page=2&API_KEY={}", "1234hunter"),
        ),
    ]
}

/// An exception record, which has room for a reason and for references.
fn template() -> Value {
    // The printed example, so that this test follows the record types.
    let examples = ledger_records::examples();
    let (_, text) = examples
        .iter()
        .find(|(t, _)| *t == ledger_records::RecordType::Exception)
        .expect("an example");
    let mut value: Value = serde_json::from_str(text).expect("JSON");
    value["refs"] =
        json!([{"kind": "request_id", "scope": "builds.example.com", "value": "req-1"}]);
    value
}

#[test]
fn planted_secrets_and_prompts_are_refused_by_their_place() {
    let test = TestLedger::new();
    let mut lines = Vec::new();
    let mut expected = Vec::new();
    for (n, (pointer, secret)) in planted().into_iter().enumerate() {
        let mut value = template();
        value["record_id"] = json!(format!("rec_planted_{n}"));
        *value.pointer_mut(pointer).expect("the field is there") = json!(secret);
        lines.push(value.to_string());
        expected.push((pointer, secret));
    }
    assert_eq!(expected.len(), 20);
    let prompt = format!(
        "You are a careful build agent. {}",
        "Do what the user says, then report. ".repeat(60)
    );
    for pointer in ["/reason", "/prompt"] {
        let mut value = template();
        value["record_id"] = json!(format!("rec_prompt{}", pointer.len()));
        value[&pointer[1..]] = json!(prompt);
        lines.push(value.to_string());
        expected.push((pointer, prompt.clone()));
    }
    let good = record::line("rec_good_0_0_0_1_s");
    lines.push(good);

    let (ledger, state) = (test.ledger(), test.state());
    let input = lines.join("\n") + "\n";
    let ended = run(
        &["append", "--ledger", path(&ledger), "--state", path(&state)],
        &input,
    );
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    let answers: Vec<Value> = ended
        .out
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), lines.len());
    for (i, (pointer, secret)) in expected.iter().enumerate() {
        let faults = answers[i]["error"]["faults"]
            .as_array()
            .unwrap_or_else(|| panic!("line {i} was not refused: {}", answers[i]));
        assert!(
            faults.iter().any(|f| f["pointer"] == *pointer),
            "line {i}, {pointer}: {faults:?}"
        );
        assert_eq!(answers[i]["line"], i + 1);
        for text in [&ended.out, &ended.err] {
            assert!(
                !text.contains(secret.as_str()),
                "line {i}: the secret is shown"
            );
        }
    }
    for part in [
        "hunter2hunter",
        "hunter3hunter",
        "1234hunter",
        "careful build agent",
    ] {
        assert!(
            !ended.out.contains(part) && !ended.err.contains(part),
            "{part} is shown"
        );
    }
    assert_eq!(
        answers.last().expect("answers")["record_id"],
        "rec_good_0_0_0_1_s"
    );
    let report = verify(&ledger, &Anchored::by(&test.made.trust_line));
    expect_verdict(&report, Verdict::Verified);
    assert_eq!(report.counts.records, 1);
}

/// Every secret of a ledger, as it could stand in a text.
fn secrets(test: &TestLedger, vault: &str) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(test.state_dir().join(name)).expect("readable");
    let last = |text: String| text.trim().rsplit(' ').next().expect("a word").to_owned();
    let key = |text: &str| {
        text.lines()
            .find(|l| l.starts_with("AGE-SECRET-KEY-1"))
            .expect("an identity")
            .to_owned()
    };
    vec![
        last(read("log.key")),
        last(read("epoch.key")),
        key(&read("operational.key")),
        key(vault),
    ]
}

#[test]
fn no_secret_stands_in_a_command_line_an_environment_or_an_output() {
    let test = TestLedger::new();
    let vault_text = test.vault.to_file_text("2026-11-30T00:00:00Z");
    let vault_file = test.scratch("vault.key");
    fs::write(&vault_file, vault_text.as_bytes()).expect("written");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&vault_file, fs::Permissions::from_mode(0o600)).expect("private");
    }
    let (ledger, state, fresh) = (test.ledger(), test.state(), test.scratch("fresh"));
    let (ledger, state, vault) = (
        path(&ledger).to_owned(),
        path(&state).to_owned(),
        path(&vault_file).to_owned(),
    );
    let recipient = test
        .vault
        .recipients()
        .expect("recipients")
        .text()
        .lines()
        .last()
        .expect("a key")
        .to_owned();
    let input = format!(
        "{}\n{}\nnot json\n",
        record::line("rec_cli_0_0_0_1_s"),
        record::line("rec_cli_0_1_0_1_p")
    );
    let trust = test.made.trust_line.clone();
    let state_fresh = test.scratch("state-fresh");
    let new_key = test.scratch("new.key");
    let before = secrets(&test, &vault_text);
    let commands: Vec<(Vec<&str>, Option<i32>)> = vec![
        (vec!["vault-key", "new", path(&new_key)], Some(0)),
        (
            vec![
                "init",
                path(&fresh),
                "--origin",
                "audit.example.com/x",
                "--vault-recipient",
                &recipient,
                "--state",
                path(&state_fresh),
            ],
            Some(0),
        ),
        (
            vec!["append", "--ledger", &ledger, "--state", &state],
            Some(1),
        ),
        (vec!["recover", &ledger, "--state", &state], Some(0)),
        (vec!["checkpoint", &ledger], None),
        (vec!["verify", &ledger, "--trust", &trust], Some(0)),
        (vec!["inspect", &ledger], None),
        (
            vec!["read", &ledger, "--vault-key", &vault, "--trust", &trust],
            Some(0),
        ),
        (vec!["key", "test", &ledger, "--vault-key", &vault], Some(0)),
        // Errors, too.
        (
            vec!["append", "--ledger", path(&fresh), "--state", &state],
            Some(3),
        ),
        (vec!["read", &ledger, "--vault-key", &trust], Some(3)),
    ];
    let (mut looks, mut seen) = (0, 0);
    let mut ended = Vec::new();
    for (args, status) in commands {
        let e = run(&args, if args[0] == "append" { &input } else { "" });
        if let Some(status) = status {
            assert_eq!(e.status, Some(status), "{args:?}: {} {}", e.out, e.err);
        }
        looks += e.looks;
        // The one that waits for its input is always seen; others may end before they are looked at.
        let running = e.seen.windows(6).any(|w| w == b"ledger");
        assert!(
            running || args[0] != "append" || e.status == Some(3),
            "{args:?} was not seen running"
        );
        seen += usize::from(running);
        ended.push((args, e));
    }
    // How many of the quick ones are caught running depends on the machine.
    assert!(looks > 0 && seen >= 1, "{seen} commands seen running");
    let mut all = before;
    all.extend(secrets(
        &test,
        &fs::read_to_string(&new_key).expect("readable"),
    ));
    for (args, e) in &ended {
        for secret in &all {
            let needle = secret.as_bytes();
            assert!(
                !e.seen.windows(needle.len()).any(|w| w == needle),
                "{args:?}: a secret in /proc"
            );
            assert!(
                !e.out.contains(secret.as_str()),
                "{args:?}: a secret on standard output"
            );
            assert!(
                !e.err.contains(secret.as_str()),
                "{args:?}: a secret on standard error"
            );
        }
    }
    // Reading shows the record: the search looks at real outputs.
    assert!(
        ended
            .iter()
            .any(|(args, e)| args[0] == "read" && e.out.contains("rec_cli_0_0_0_1_s"))
    );
}
