//! The README's programs and its configuration, as they stand there, against a daemon.
//!
//! A block is found by the comment before it, `<!-- test: NAME -->`. A program whose language or
//! package is not installed is skipped by name.

use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::daemon::{Daemon, init, receipt_in};
use ledger_tests::record::{self, Request, Shape};
use ledger_tests::tools::ledger_program;
use ledger_tests::vault::check_records;
use ledger_tests::{read_everything, skip};
use ledger_verify::Verdict;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// As the README names it.
const UNDICI: &str = "undici@7";
const HTTPX: &str = "httpx==0.28.1";

/// A block of the README: its language and its text.
type Block = (String, String);

fn blocks() -> BTreeMap<String, Block> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let text = fs::read_to_string(readme).expect("README.md");
    let mut found = BTreeMap::new();
    let mut rest = text.as_str();
    while let Some((_, behind)) = rest.split_once("<!-- test: ") {
        let (name, behind) = behind.split_once(" -->\n").expect("a name");
        let fenced = behind.trim_start_matches('\n').strip_prefix("```");
        let fenced = fenced.unwrap_or_else(|| panic!("no block behind {name}"));
        let (language, body) = fenced.split_once('\n').expect("a language");
        let (body, behind) = body.split_once("\n```\n").expect("the block ends");
        let block = (language.to_owned(), format!("{body}\n"));
        assert!(
            found.insert(name.to_owned(), block).is_none(),
            "two are named {name}"
        );
        rest = behind;
    }
    found
}

/// The workspace's target folder, where optional packages of other languages are kept.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.ancestors().nth(3).expect("target").to_owned()
}

fn works(program: &OsStr, arguments: &[&str]) -> bool {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|o| o.status.success())
}

/// A Python with httpx: the environment of the second implementation, or the system's, or one made
/// here once.
fn python_with_httpx() -> Option<PathBuf> {
    let made = target().join("venv-httpx");
    let at = |folder: &Path| folder.join("bin/python");
    let candidates = [at(&target().join("venv")), "python3".into(), at(&made)];
    let has = |python: &PathBuf| works(python.as_os_str(), &["-c", "import httpx"]);
    if let Some(found) = candidates.iter().find(|p| has(p)) {
        return Some(found.clone());
    }
    let folder = made.to_str()?;
    let python = at(&made);
    let ready = works("python3".as_ref(), &["-m", "venv", "--clear", folder])
        && works(
            python.as_os_str(),
            &[
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "--retries=1",
                "--timeout=20",
                HTTPX,
            ],
        );
    (ready && has(&python)).then_some(python)
}

/// A folder in which node finds undici; installed once.
fn folder_with_undici() -> Option<PathBuf> {
    let folder = target().join("node");
    if !folder.join("node_modules/undici/package.json").exists() {
        fs::create_dir_all(&folder).ok()?;
        let prefix = folder.to_str()?;
        let arguments = [
            "install",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=1",
            "--fetch-timeout=20000",
            "--prefix",
            prefix,
            UNDICI,
        ];
        if !works("npm".as_ref(), &arguments) {
            return None;
        }
    }
    Some(folder)
}

/// How a block is run: interpreter, file name, folder; none where something is not installed.
fn runner(name: &str, scratch: &Path) -> Option<(PathBuf, PathBuf)> {
    let there = |program: &str| works(program.as_ref(), &["--version"]).then(|| program.into());
    match name {
        "curl" => there("curl").map(|_: PathBuf| ("sh".into(), scratch.join("curl.sh"))),
        "python-stdlib" => Some((there("python3")?, scratch.join("stdlib.py"))),
        "python-httpx" => Some((python_with_httpx()?, scratch.join("httpx_client.py"))),
        "node-http" => Some((there("node")?, scratch.join("http.mjs"))),
        // A module is looked for beside the program that imports it.
        "node-undici" => {
            let file = format!("readme-{}.mjs", std::process::id());
            Some((there("node")?, folder_with_undici()?.join(file)))
        }
        other => panic!("nobody knows how to run {other}"),
    }
}

#[test]
fn the_clients_of_the_readme_append() {
    let test = init();
    let daemon = Daemon::start(&test);
    let mut kept = Vec::new();
    let clients = [
        "curl",
        "python-stdlib",
        "python-httpx",
        "node-http",
        "node-undici",
    ];
    let blocks = blocks();
    for (number, name) in clients.into_iter().enumerate() {
        let (_, text) = blocks
            .get(name)
            .unwrap_or_else(|| panic!("README.md lacks {name}"));
        let Some((program, file)) = runner(name, &test.scratch("")) else {
            skip(name, "what it needs is not installed");
            continue;
        };
        fs::write(&file, text).expect("written");
        let run = |record: &str| {
            let mut client = Command::new(&program);
            client.arg(&file).env("SOCKET", &daemon.sockets.writer);
            client.env("RECORD", record).stdin(Stdio::null());
            client.output().expect("it starts")
        };
        let request = Request {
            prefix: "readme".to_owned(),
            thread: 0,
            number,
        };
        let id = request.ids(1, Shape::Payload).remove(0);
        let said = |duplicate: bool| {
            let output = run(&record::line(&id));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{name}: {text} {output:?}");
            let json: Value =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
            assert_eq!(json["duplicate"], duplicate, "{name}");
            let receipt = receipt_in(&json);
            assert_eq!(receipt.record_id, id, "{name}");
            receipt
        };
        let receipt = said(false);
        assert_eq!(said(true), receipt, "{name}: the same answer again");
        kept.push(receipt);
        // What is refused is no success, and says why.
        let refused = run(&record::line(&id).replace("webhooks", "others"));
        let shown = [refused.stdout, refused.stderr].concat();
        let shown = String::from_utf8_lossy(&shown);
        assert!(!refused.status.success(), "{name}: {shown}");
        assert!(shown.contains("record_conflict"), "{name}: {shown}");
        fs::remove_file(&file).expect("removed");
    }
    assert!(kept.len() >= 2, "hardly anything is installed");
    daemon.stop_well();
    let anchored = Anchored::by(&test.made.trust_line).holding(&kept);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    let digests = kept.iter().map(|r| record::digest(&r.record_id));
    let acknowledged: Vec<_> = digests.zip(kept.iter().cloned()).collect();
    let opened = read_everything(&test);
    check_records(&opened, &acknowledged);
    assert_eq!(opened.len(), kept.len());
}

/// The configuration of the README is one, and a daemon serves with it.
#[test]
fn the_configuration_of_the_readme_is_taken() {
    let test = init();
    let blocks = blocks();
    let (language, text) = &blocks["config"];
    assert_eq!(language, "toml");
    // Only where the sockets are is another place here.
    let run = test.scratch("run");
    let text = text.replace("/run/ledger/build-agent", run.to_str().expect("UTF-8"));
    let file = test.scratch("readme.toml");
    fs::write(&file, text).expect("written");
    let checked = Command::new(ledger_program())
        .args(["config", "check"])
        .arg(&file)
        .output()
        .expect("ledger starts");
    assert!(checked.status.success(), "{checked:?}");
    let shown = String::from_utf8_lossy(&checked.stdout);
    for socket in ["writer.sock", "operator.sock"] {
        assert!(shown.contains(socket), "{shown}");
    }
    let mut child = Command::new(ledger_program())
        .arg("serve")
        .arg(test.ledger())
        .arg("--state")
        .arg(test.state())
        .arg("--config")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .expect("ledger starts");
    let operator = run.join("operator.sock");
    let serves = ledger_tests::daemon::eventually(std::time::Duration::from_secs(30), || {
        std::os::unix::net::UnixStream::connect(&operator).is_ok()
    });
    let ready = serves && ledger_tests::http::get(&operator, "/healthz").status == 200;
    let stopped = rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    );
    let status = child.wait().expect("it ends");
    assert!(
        ready && stopped.is_ok() && status.code() == Some(0),
        "{ready} {status}"
    );
}

/// Every block that claims to be tested is: here, or by the test that is named for it.
#[test]
fn every_marked_block_has_its_test() {
    let known = [
        "config",
        "curl",
        "node-http",
        "node-undici",
        "python-httpx",
        "python-stdlib",
        "unit",
    ];
    let blocks = blocks();
    let found: Vec<&str> = blocks.keys().map(String::as_str).collect();
    assert_eq!(found, known);
    let (_, unit) = &blocks["unit"];
    // What a unit starts must be a command line that the program takes.
    let start = unit.lines().find_map(|l| l.strip_prefix("ExecStart="));
    let words: Vec<&str> = start.expect("ExecStart").split(' ').collect();
    assert_eq!(words[..2], ["/usr/bin/ledger", "serve"]);
    let mut command = Command::new(ledger_program());
    let output = command.args(&words[1..]).arg("--help").output();
    let output = output.expect("ledger starts");
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for option in words.iter().filter(|w| w.starts_with("--")) {
        assert!(help.contains(option), "{option}");
    }
}
