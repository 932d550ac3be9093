//! Passphrases, identity files, permissions: where secrets go, and where they do not.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::bench::{Bench, RUN};

const PASSPHRASE: &str = "correct horse battery staple";

/// A terminal: our end, and the end that a command has.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let theirs = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
    (ours.into(), theirs.into())
}

/// Waits until the terminal no longer shows what is typed: before that a line would be echoed and thrown away.
fn wait_for_mute(terminal: &File, child: &mut Child) {
    let start = Instant::now();
    while tcgetattr(terminal)
        .unwrap()
        .local_modes
        .contains(LocalModes::ECHO)
    {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended without asking"
        );
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it never switched the echo off"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // The prompt is printed behind it, and the line is read then.
    std::thread::sleep(Duration::from_millis(50));
}

/// Types lines into a command on a terminal; how it ended, and what the terminal showed.
fn type_into(bench: &Bench, args: &[&str], lines: &[&str]) -> (std::process::Output, String) {
    let (ours, theirs) = terminal();
    let mut command = bench.command(args);
    command
        .stdin(theirs.try_clone().unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    for line in lines {
        wait_for_mute(&theirs, &mut child);
        (&ours).write_all(line.as_bytes()).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(
        tcgetattr(&theirs)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO),
        "the echo is back"
    );
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    let mut shown = Vec::new();
    // Ends with an error once there is nothing more to read.
    let _ = (&ours).read_to_end(&mut shown);
    (output, String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn a_typed_passphrase_is_not_echoed_and_opens_the_key() {
    let bench = Bench::new();
    let line = format!("{PASSPHRASE}\n");
    let args = ["vault-key", "new", "vault.key", "--passphrase"];
    let (output, shown) = type_into(&bench, &args, &[&line, &line]);
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success() && out.starts_with("age1"), "{err}");
    for text in [&shown, &out, &err] {
        assert!(!text.contains("horse"), "{text}");
    }
    std::fs::write(bench.path("vault.pub"), out).unwrap();
    let init = [
        "init",
        "audit",
        "--origin",
        "a.example/b",
        "--recipients-file",
        "vault.pub",
    ];
    assert_eq!(bench.run(init, "").code, 0);
    bench.append(&[RUN]);

    let read = ["read", "audit", "--vault-key", "vault.key"];
    let (output, shown) = type_into(&bench, &read, &[&line]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("rec_1"));
    assert!(!shown.contains("horse"), "{shown}");
    // The same from a pipe, and a wrong one.
    assert!(bench.run(read, &line).out.contains("rec_1"));
    let wrong = bench.run(read, "incorrect horse\n");
    assert_eq!((wrong.code, wrong.out.as_str()), (3, ""));
    assert!(
        wrong.err.contains("wrong passphrase") && !wrong.err.contains("incorrect"),
        "{}",
        wrong.err
    );
    let none = bench.run(read, "");
    assert_eq!(none.code, 3, "{}", none.err);
}

#[test]
fn differing_and_interrupted_passphrases_write_nothing() {
    let bench = Bench::new();
    let args = ["vault-key", "new", "vault.key", "--passphrase"];
    let (output, _) = type_into(&bench, &args, &["one\n", "two\n"]);
    assert_eq!(output.status.code(), Some(3));
    let (output, _) = type_into(&bench, &args, &["one\x03"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("interrupted")
    );
    assert!(!bench.path("vault.key").exists());
}

#[test]
fn a_vault_key_encrypted_to_people_needs_the_identity_of_one() {
    let bench = Bench::new();
    for name in ["alice", "eve"] {
        let made = bench.run(["vault-key", "new", &format!("{name}.key")], "");
        std::fs::write(bench.path(&format!("{name}.pub")), made.out).unwrap();
    }
    let made = bench.run(
        [
            "vault-key",
            "new",
            "vault.key",
            "--recipients-file",
            "alice.pub",
        ],
        "",
    );
    assert_eq!(made.code, 0, "{}", made.err);
    std::fs::write(bench.path("vault.pub"), made.out).unwrap();
    let init = [
        "init",
        "audit",
        "--origin",
        "a.example/b",
        "--recipients-file",
        "vault.pub",
    ];
    assert_eq!(bench.run(init, "").code, 0);
    bench.append(&[RUN]);
    let test = ["key", "test", "audit", "--vault-key", "vault.key"];
    let locked = bench.run(test, "");
    assert_eq!(locked.code, 3);
    insta::assert_snapshot!("vault key without identity", locked.shown(&bench));
    let with = |identity| bench.run(test.iter().chain(&["--identity", identity]), "");
    assert_eq!(with("alice.key").code, 0);
    let other = with("eve.key");
    assert_eq!((other.code, other.out.as_str()), (3, ""), "{}", other.err);
}

#[test]
fn identity_files_must_be_private_and_are_never_shown() {
    let bench = Bench::with_ledger();
    let path = bench.path("vault.key");
    let secret = std::fs::read_to_string(&path).unwrap();
    let secret = secret
        .lines()
        .find(|line| line.starts_with("AGE-SECRET-KEY"))
        .unwrap()
        .to_owned();
    let test = ["key", "test", "audit", "--vault-key", "vault.key"];
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = bench.run(test, "");
    assert_eq!(open.code, 3);
    insta::assert_snapshot!("vault key open to others", open.shown(&bench));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, secret.replacen("KEY-1", "KEY-1X", 1)).unwrap();
    let mistyped = bench.run(test, "");
    assert_eq!(mistyped.code, 3);
    assert!(!mistyped.err.contains(&secret[20..]), "{}", mistyped.err);
    insta::assert_snapshot!("vault key mistyped", mistyped.shown(&bench));
}

#[test]
fn the_command_line_carries_no_secret() {
    let bench = Bench::new();
    let mut command = bench.command(["vault-key", "new", "vault.key", "--passphrase"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{PASSPHRASE}").unwrap();
    let path = format!("/proc/{}/cmdline", child.id());
    // Empty for a moment after the process was made.
    let lines = std::iter::repeat_with(|| std::fs::read_to_string(&path).unwrap());
    let line = lines.take(100_000).find(|line| !line.is_empty()).unwrap();
    assert!(
        line.contains("--passphrase\0") && !line.contains("horse"),
        "{line:?}"
    );
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    // It is a flag: a value cannot be given to it.
    let refused = bench.run(["vault-key", "new", "other.key", "--passphrase=horse"], "");
    assert_eq!(refused.code, 64);
}

#[test]
fn the_process_cannot_be_dumped() {
    let bench = Bench::with_ledger();
    let mut command = bench.command(["append", "--ledger", "audit"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{RUN}").unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    drop(stdin);
    child.wait_with_output().unwrap();
}

fn modes(path: &Path, found: &mut Vec<(String, u32)>) {
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let mode = std::fs::symlink_metadata(&path)
            .unwrap()
            .permissions()
            .mode()
            & 0o7777;
        found.push((path.display().to_string(), mode));
        if path.is_dir() {
            modes(&path, found);
        }
    }
}

#[test]
fn what_is_made_is_private() {
    let bench = Bench::with_ledger();
    bench.append(&[RUN]);
    let mut found = Vec::new();
    modes(&bench.path("audit"), &mut found);
    modes(&bench.path("state"), &mut found);
    found.push((
        "audit".to_owned(),
        std::fs::metadata(bench.path("audit"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
    ));
    found.push((
        "vault.key".to_owned(),
        std::fs::metadata(bench.path("vault.key"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
    ));
    assert!(found.len() > 15, "{found:?}");
    for (path, mode) in found {
        assert!(mode == 0o600 || mode == 0o700, "{path}: {mode:o}");
    }
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let bench = Bench::new();
    let error = |no_color: &str| {
        let (ours, theirs) = terminal();
        let mut command = bench.command(["inspect", "missing"]);
        command
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color)
            .stderr(theirs);
        assert_eq!(command.status().unwrap().code(), Some(3));
        drop(command);
        let mut shown = [0; 4096];
        let count = (&ours).read(&mut shown).unwrap();
        String::from_utf8_lossy(&shown[..count]).into_owned()
    };
    assert!(
        error("").contains("\u{1b}[1;31merror:"),
        "an empty NO_COLOR means nothing"
    );
    assert!(!error("1").contains('\u{1b}'));
    assert!(
        !bench.run(["inspect", "missing"], "").err.contains('\u{1b}'),
        "a pipe"
    );
}
