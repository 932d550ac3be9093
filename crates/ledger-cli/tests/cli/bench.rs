//! A folder to work in, the command run in it, and texts with what changes from run to run replaced.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// One record of each of three types.
pub(crate) const RUN: &str = r#"{"type":"run","record_id":"rec_1","run_id":"run_1","session_id":"ses_5","initiator":"oncall@example.com","status":"started","started_at":"2026-11-30T14:02:41Z"}"#;
pub(crate) const MEMORY: &str = r#"{"type":"memory","record_id":"rec_2","memory_id":"mem_1","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","label":"untrusted","stored_at":"2026-11-30T14:07:41Z"}"#;
pub(crate) const UNKNOWN_MEMBER: &str = r#"{"type":"run","record_id":"rec_3","run_id":"run_1","initiator":"oncall@example.com","started_at":"2026-11-30T14:02:41Z","colour":"red"}"#;

/// A temporary folder, below which state goes too.
pub(crate) struct Bench {
    dir: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// With a vault key and a ledger `audit`.
    pub(crate) fn with_ledger() -> Self {
        let bench = Self::new();
        let made = bench.run(["vault-key", "new", "vault.key"], "");
        std::fs::write(bench.path("vault.pub"), &made.out).unwrap();
        let init = [
            "init",
            "audit",
            "--origin",
            "audit.example.com/build",
            "--recipients-file",
            "vault.pub",
        ];
        assert_eq!(bench.run(init, "").code, 0);
        bench
    }

    /// Appends lines; they are all good.
    pub(crate) fn append(&self, lines: &[&str]) -> Ended {
        let ended = self.run(["append", "--ledger", "audit"], &lines.join("\n"));
        assert_eq!(ended.code, 0, "{}", ended.err);
        ended
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command, to be started in the folder.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ledger"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("XDG_STATE_HOME", self.dir.path().join("state"));
        command
    }

    /// Runs the command to its end with this on standard input.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Ended {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // From a thread of its own: input and output may both fill their pipes.
        let feed = std::thread::spawn(move || {
            // A command that ends before it has read all is judged by how it ended.
            let _ = stdin.write_all(input.as_bytes());
        });
        let output = child.wait_with_output().unwrap();
        feed.join().unwrap();
        Ended::from(output)
    }

    /// The trust line that `init` printed, taken from the newest checkpoint's keys.
    pub(crate) fn trust_line(&self) -> String {
        let out = self
            .run(["inspect", "audit", "--seq", "0", "--json"], "")
            .out;
        let genesis: serde_json::Value = serde_json::from_str(&out).unwrap();
        let body = &genesis["control"]["body"];
        let id: [u8; 32] = unhex(body["ledger_id"].as_str().unwrap());
        let key: [u8; 32] = unhex(body["log_key"].as_str().unwrap());
        let id = ledger_format::LedgerId(id);
        let name = body["name"].as_str().unwrap();
        let origin = ledger_format::Origin::new(name, &id, ledger_format::Generation(0)).unwrap();
        origin.log_verifier(key).to_string()
    }

    /// The path of the only `.frames` file that begins with this frame.
    pub(crate) fn frames(&self, first_seq: u64) -> PathBuf {
        self.path(&format!("audit/segments/{first_seq:020}.frames"))
    }
}

fn unhex(text: &str) -> [u8; 32] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// Everything that a person sees, the same in every run.
    pub(crate) fn shown(&self, bench: &Bench) -> String {
        let text = format!(
            "exit {}\n--- out\n{}--- err\n{}",
            self.code, self.out, self.err
        );
        redact(&text.replace(bench.dir.path().to_str().unwrap(), "[dir]"))
    }
}

/// Replaces keys, hashes, times, signatures and everything else that is random or clock.
pub(crate) fn redact(text: &str) -> String {
    let trust_lines = tokens(text, |token| {
        let key = ledger_format::VerifierKey::parse(token).ok()?;
        Some(format!("{}+[key]", key.name()))
    });
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let times = runs(
        &trust_lines,
        20,
        |c| c.is_ascii_digit() || "-T:.Z".contains(c),
        |run| (run.ends_with('Z') && run.contains('T')).then_some("[time]"),
    );
    let keys = runs(
        &times,
        62,
        |c| c.is_ascii_alphanumeric(),
        |run| run.starts_with("age1").then_some("[age1]"),
    );
    let hashes = runs(&keys, 16, is_hex, |run| {
        let segment = run.len() == 20 && run.starts_with("000000");
        (!segment).then_some("[hex]")
    });
    let base64 = runs(
        &hashes,
        40,
        |c| c.is_ascii_alphanumeric() || "+/=".contains(c),
        |_| Some("[base64]"),
    );
    read_aloud(&base64)
}

/// Replaces what stands between white space, as `replace` says.
fn tokens(text: &str, replace: impl Fn(&str) -> Option<String>) -> String {
    let token = |token: &str| {
        let bare = token.trim_end();
        let new = replace(bare).unwrap_or_else(|| bare.to_owned());
        format!("{new}{}", &token[bare.len()..])
    };
    text.split_inclusive(char::is_whitespace)
        .map(token)
        .collect()
}

/// Replaces runs of at least `len` characters of one class, as `replace` says.
fn runs(
    text: &str,
    len: usize,
    class: impl Fn(char) -> bool,
    replace: impl Fn(&str) -> Option<&'static str>,
) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(&class) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c| !class(c)).unwrap_or(from.len());
        let (run, behind) = from.split_at(end);
        out.push_str(before);
        let new = (run.len() >= len).then(|| replace(run)).flatten();
        out.push_str(new.unwrap_or(run));
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Replaces the four groups of a key's short form.
fn read_aloud(text: &str) -> String {
    let is_short_form = |at: usize| {
        let mut groups = text.get(at..at + 19)?.split(' ');
        let hex = |group: &str| group.len() == 4 && group.bytes().all(|b| b.is_ascii_hexdigit());
        groups.all(hex).then_some(at)
    };
    match ["read aloud: ", "reads "]
        .iter()
        .find_map(|label| is_short_form(text.find(label)? + label.len()))
    {
        Some(at) => format!("{}[short form]{}", &text[..at], &text[at + 19..]),
        None => text.to_owned(),
    }
}
