//! What the steps share: the stage, the daemon, the month, and which client programs this machine has.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::daemon::Daemon;
use super::month;
use super::stage::{Ran, Stage};
use super::story::{Event, Who};

pub(super) const WRITER: &str = "host/run/writer.sock";
pub(super) const OPERATOR: &str = "host/run/operator.sock";
pub(super) const SERVE: &str =
    "ledger serve host/audit --state host/state --config host/ledger.toml";

/// Longest path of the sockets' folder: with a socket's name behind it a unix socket's address holds it.
const RUN_LEN_MAX: usize = 80;

pub(super) struct Drill {
    pub(super) stage: Stage,
    pub(super) events: Vec<Event>,
    daemon: Option<Daemon>,
    /// Python, to append with its standard library.
    pub(super) python: bool,
    /// A curl that knows unix sockets.
    pub(super) curl: bool,
    /// Where sockets are, when the path below `target` is too long for them.
    _run: Option<TempDir>,
}

impl Drill {
    pub(super) fn new(stage: Stage) -> Result<Self> {
        let run = sockets_folder(&stage)?;
        let listener = |name: &str, role: &str| {
            let path = run.0.join(name);
            format!("[[listener]]\npath = {path:?}\nrole = \"{role}\"\n")
        };
        let config =
            listener("writer.sock", "writer") + "\n" + &listener("operator.sock", "operator");
        fs::write(stage.path("host/ledger.toml"), config)?;
        fs::write(stage.path("story/intake.py"), include_str!("intake.py"))?;
        let events = month::month(&stage.path("story"))?;
        // `a | b` of dicts: Python 3.9.
        let python = says("python3", &["-c", "print({'a': 1} | {'b': 2})"], "'b'");
        let curl = says("curl", &["--version"], "UnixSockets");
        Ok(Self {
            stage,
            events,
            daemon: None,
            python,
            curl,
            _run: run.1,
        })
    }

    /// Starts the daemon, and waits until it serves.
    pub(super) fn serve(&mut self) -> Result<()> {
        self.stage.show_command(SERVE);
        let log = self.stage.path("host/serve.log");
        let socket = self.stage.path("host/run").canonicalize()?;
        let socket = socket.join("operator.sock");
        let daemon = Daemon::start(self.stage.command(SERVE), &log, &socket)?;
        self.daemon = Some(daemon);
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("no daemon runs")?;
        self.stage
            .show_command(&format!("kill -9 {}", daemon.pid()));
        let status = daemon.kill()?;
        ensure!(status.code().is_none(), "the daemon ended with {status}");
        Ok(())
    }

    /// SIGTERM, and a good end.
    pub(super) fn stop(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("no daemon runs")?;
        self.stage.show_command(&format!("kill {}", daemon.pid()));
        daemon.stop()
    }

    /// The line that starts the process of a part.
    pub(super) fn part(&self, who: Who) -> String {
        if who == Who::Intake && self.python {
            format!("python3 story/intake.py {WRITER}")
        } else {
            format!("ledger append --socket {WRITER}")
        }
    }

    /// Sends the record of a file, with curl where it is.
    pub(super) fn send(&self, file: &str) -> Result<(Ran, Value)> {
        let line = if self.curl {
            format!(
                "curl --silent --show-error --max-time 30 --unix-socket {WRITER} http://ledger/v1/records \
                 --header content-type:application/json --data-binary @{file}"
            )
        } else {
            format!("ledger append --socket {WRITER} {file}")
        };
        let ran = self.stage.run(&line)?;
        let answer = serde_json::from_str(&ran.stdout);
        let answer =
            answer.with_context(|| format!("an answer as JSON: {}{}", ran.stdout, ran.stderr))?;
        Ok((ran, answer))
    }
}

/// `host/run`, which is elsewhere where its path is too long for sockets.
fn sockets_folder(stage: &Stage) -> Result<(PathBuf, Option<TempDir>)> {
    let run = stage.path("host/run");
    if run.as_os_str().len() <= RUN_LEN_MAX {
        fs::create_dir(&run)?;
        return Ok((run, None));
    }
    let elsewhere = tempfile::tempdir()?;
    std::os::unix::fs::symlink(elsewhere.path(), &run)?;
    Ok((elsewhere.path().to_path_buf(), Some(elsewhere)))
}

/// Whether a program is there and prints this.
fn says(program: &str, args: &[&str], text: &str) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| {
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains(text)
    })
}
