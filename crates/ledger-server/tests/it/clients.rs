//! The typed client, and what services in other languages use: curl, Python (standard library and
//! httpx), Node (http and undici). A client that is not installed is skipped by name.

use crate::support::{Daemon, Setup, daemon, daemon_with, receipt, record};
use ledger_client::{Client, ClientError, Pipeline, Settings, Wait};
use ledger_format::AppendReceipt;
use ledger_records::Submission;
use ledger_server::{AppendOutcome, AppendRefusal, Condition};
use ledger_writer::Appended;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn submission(id: &str) -> Submission {
    Submission::from_json(record(id).as_bytes()).unwrap()
}

fn quick() -> Settings {
    Settings {
        try_time: Duration::from_millis(500),
        call_time: Duration::from_secs(3),
        pause: Duration::from_millis(5),
        ..Settings::default()
    }
}

#[test]
fn the_typed_client_appends_reads_and_waits() {
    let mut daemon = daemon();
    let (client, reader) = (Client::new(&daemon.writer), Client::new(&daemon.operator));
    let kept = daemon.runtime.block_on(async {
        client.ready().await.unwrap();
        let one = client.append(&submission("one")).await.unwrap();
        assert!(!one.duplicate);
        let batch: Vec<_> = (0..300).map(|i| submission(&format!("b{i}"))).collect();
        let appended = client.append_batch(&batch, Wait::Checkpoint).await.unwrap();
        assert!(
            appended.checkpoint.is_some() && appended.records.iter().all(|r| r.proof.is_some())
        );
        let mut kept: Vec<AppendReceipt> = vec![one.receipt];
        kept.extend(appended.records.into_iter().map(|r| r.receipt));
        let shown = reader.record(kept[0].seq).await.unwrap();
        assert_eq!(shown["link"], kept[0].link.to_hex());
        let cut = client.cut_checkpoint().await.unwrap();
        assert_eq!(client.checkpoint().await.unwrap(), cut);
        assert_eq!(reader.status().await.unwrap()["appends"]["records"], 301);
        let refused = client.status().await.unwrap_err();
        assert_eq!(refused.code(), Some("role_forbidden"));
        let missing = reader.trace("a/b").await.unwrap_err();
        assert_eq!(missing.code(), Some("not_available"));
        let too_many = client.append_batch(&[], Wait::Sync).await.unwrap_err();
        assert!(matches!(too_many, ClientError::BatchSize { found: 0, .. }));
        kept
    });
    drop((client, reader));
    daemon.stop().unwrap();
    daemon.expect_verified(&kept);
}

#[test]
fn a_pipeline_acknowledges_each_record() {
    let mut daemon = daemon();
    let client = Client::new(&daemon.writer);
    let kept = daemon.runtime.block_on(async {
        let pipeline = Pipeline::new(&client, 1);
        let mut pending = Vec::new();
        for i in 0..2000 {
            pending.push(
                pipeline
                    .append(&submission(&format!("p{i}")))
                    .await
                    .unwrap(),
            );
        }
        let mut kept = Vec::new();
        for (i, pending) in pending.into_iter().enumerate() {
            let receipt = pending.acknowledged().await.unwrap().receipt;
            assert_eq!(receipt.record_id, format!("p{i}"));
            kept.push(receipt);
        }
        kept
    });
    assert!(
        kept.windows(2).all(|w| w[0].seq < w[1].seq),
        "one group under way keeps the order"
    );
    let syncs = daemon.metrics().ack.count();
    assert_eq!(syncs, 2000, "each record is a request of its own");
    drop(client);
    daemon.stop().unwrap();
    daemon.expect_verified(&kept);
}

fn faked(
    answer: impl Fn(usize) -> Result<AppendOutcome, AppendRefusal> + Send + Sync + 'static,
) -> Daemon {
    daemon_with(Setup {
        appender: Some(Arc::new(crate::support::Fake {
            answer: Box::new(answer),
            condition: Condition::Accepting,
        })),
        ..Setup::default()
    })
}

fn first_receipt() -> AppendReceipt {
    let at = ledger_format::UnixMillis(1_796_000_000_000);
    AppendReceipt::new(
        "a/b".into(),
        ledger_format::Seq(4),
        ledger_format::Link([7; 32]),
        "rec_1".into(),
        at,
    )
}

#[test]
fn the_client_tries_again_and_never_says_more_than_the_daemon() {
    // The first try is not answered in time: the record may be in the ledger, the second try says so.
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let slow = faked(move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(900));
        }
        Ok(AppendOutcome {
            records: vec![Appended {
                receipt: first_receipt(),
                duplicate: true,
            }],
        })
    });
    let client = Client::with_settings(&slow.writer, quick());
    let done = slow
        .runtime
        .block_on(client.append(&submission("rec_1")))
        .unwrap();
    assert!(done.duplicate && tries.load(Ordering::SeqCst) >= 2);
    // An acknowledgement of another record is no success.
    let error = slow
        .runtime
        .block_on(client.append(&submission("other")))
        .unwrap_err();
    assert!(matches!(error, ClientError::Answer(_)) && error.may_be_appended());

    // A ledger that is closing is asked again; one that stopped is not.
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let closing = faked(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0..3 => Err(AppendRefusal::Closing),
        _ => Ok(AppendOutcome {
            records: vec![Appended {
                receipt: first_receipt(),
                duplicate: false,
            }],
        }),
    });
    let client = Client::with_settings(&closing.writer, quick());
    closing
        .runtime
        .block_on(client.append(&submission("rec_1")))
        .unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 4);

    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let conflict = faked(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err(AppendRefusal::Conflict {
            index: 0,
            record_id: "rec_1".into(),
            first_seq: ledger_format::Seq(4),
        })
    });
    let client = Client::with_settings(&conflict.writer, quick());
    let error = conflict
        .runtime
        .block_on(client.append(&submission("rec_1")))
        .unwrap_err();
    let ClientError::Refused(problem) = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (problem.code.as_str(), problem.first_seq()),
        ("record_conflict", Some(4))
    );
    assert!(!error.may_be_appended());
    assert_eq!(tries.load(Ordering::SeqCst), 1);
}

#[test]
fn a_daemon_that_is_not_there_is_told_from_one_that_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = Settings {
        call_time: Duration::from_millis(300),
        try_time: Duration::from_millis(100),
        ..quick()
    };
    let client = Client::with_settings(&dir.path().join("none.sock"), settings.clone());
    let error = runtime
        .block_on(client.append(&submission("a")))
        .unwrap_err();
    assert!(
        matches!(error, ClientError::NotReached { tries: 2.., .. }),
        "{error}"
    );
    assert!(!error.may_be_appended());
    // Something that listens and never answers.
    let path = dir.path().join("deaf.sock");
    let _deaf = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let client = Client::with_settings(&path, settings);
    let error = runtime
        .block_on(client.append(&submission("a")))
        .unwrap_err();
    assert!(error.may_be_appended(), "{error}");
}

#[test]
fn a_pooled_connection_that_went_stale_is_replaced() {
    let limits = ledger_server::Limits {
        idle_time: Duration::from_millis(200),
        ..ledger_server::Limits::default()
    };
    let daemon = daemon_with(Setup {
        limits,
        ..Setup::default()
    });
    let client = Client::with_settings(&daemon.writer, quick());
    daemon.runtime.block_on(async {
        for i in 0..3 {
            client.append(&submission(&format!("s{i}"))).await.unwrap();
            tokio::time::sleep(Duration::from_millis(450)).await;
        }
    });
}

/// Runs a client that prints the acknowledgement of the record that it is given.
fn foreign(daemon: &Daemon, id: &str, mut command: Command) -> AppendReceipt {
    let output = command
        .env("SOCKET", &daemon.writer)
        .env("RECORD", record(id))
        .output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let json = serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {text}"));
    let kept = receipt(&json);
    assert_eq!(kept.record_id, id);
    kept
}

/// The README's examples, from `examples/clients`.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/clients")
        .join(name)
}

/// The workspace's target folder, where optional packages of other languages are installed.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

/// Whether a program is there, and ends well with these arguments.
fn has(program: &Path, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn clients_of_other_languages() {
    let mut daemon = daemon();
    let venv = target().join("venv/bin/python3");
    let with_httpx = if has(&venv, &["-c", "import httpx"]) {
        venv
    } else {
        "python3".into()
    };
    // A module is looked for beside the program that imports it.
    let node = target().join("node");
    let undici = node.join("node_modules/undici/index.js").exists();
    let cases: [(&str, PathBuf, bool); 5] = [
        ("curl.sh", "sh".into(), has("curl".as_ref(), &["--version"])),
        (
            "stdlib.py",
            "python3".into(),
            has("python3".as_ref(), &["--version"]),
        ),
        (
            "httpx_client.py",
            with_httpx.clone(),
            has(&with_httpx, &["-c", "import httpx"]),
        ),
        (
            "http.mjs",
            "node".into(),
            has("node".as_ref(), &["--version"]),
        ),
        (
            "undici.mjs",
            "node".into(),
            undici && has("node".as_ref(), &["--version"]),
        ),
    ];
    let mut kept = Vec::new();
    for (name, program, there) in cases {
        if !there {
            eprintln!("SKIPPED {name}: what it needs is not installed");
            continue;
        }
        let mut path = example(name);
        if name == "undici.mjs" {
            let beside = node.join(format!("{name}-{}.mjs", std::process::id()));
            std::fs::copy(&path, &beside).unwrap();
            path = beside;
        }
        let mut command = Command::new(program);
        command.arg(&path);
        kept.push(foreign(&daemon, name, command));
        if path.starts_with(&node) {
            std::fs::remove_file(path).unwrap();
        }
    }
    daemon.stop().unwrap();
    daemon.expect_verified(&kept);
}

/// What is shown there is what is run here.
#[test]
fn the_readme_shows_these_clients() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for name in [
        "curl.sh",
        "stdlib.py",
        "httpx_client.py",
        "http.mjs",
        "undici.mjs",
    ] {
        let text = std::fs::read_to_string(example(name)).unwrap();
        assert!(readme.contains(&text), "README.md lacks {name} as it is");
    }
}
