//! Building and running the load program, `examples/load`, one process a measurement.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::sample::Sample;
use crate::workspace::{Workspace, capture, command_line, run};

/// The longest load, two million records on a slow disk, needs a fraction of it.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// The release-built load program; the daemon is built beside it.
pub(crate) struct Load<'a> {
    workspace: &'a Workspace,
    program: PathBuf,
}

impl<'a> Load<'a> {
    pub(crate) fn build(workspace: &'a Workspace) -> Result<Self> {
        run(&mut workspace.cargo([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--package",
            "xtask",
            "--example",
            "load",
            "--package",
            "ledger-cli",
            "--bin",
            "ledger",
        ]))?;
        let program = workspace.target.join("release/examples/load");
        ensure!(program.is_file(), "{} was not built", program.display());
        Ok(Self { workspace, program })
    }

    fn command(&self, name: &str, path: Option<&Path>, options: &[(&str, u64)]) -> Command {
        let mut command = self.workspace.command(&self.program);
        command.arg(name).args(path);
        for (option, value) in options {
            command.arg(format!("--{option}={value}"));
        }
        command
    }

    /// Runs one load to its end.
    pub(crate) fn run(&self, name: &str, path: &Path, options: &[(&str, u64)]) -> Result<Sample> {
        sample(&mut self.command(name, Some(path), options))
    }

    /// The same, and the time from starting the process to its end in seconds.
    pub(crate) fn run_whole(
        &self,
        name: &str,
        path: &Path,
        options: &[(&str, u64)],
    ) -> Result<(Sample, f64)> {
        let began = Instant::now();
        let sample = self.run(name, path, options)?;
        Ok((sample, began.elapsed().as_secs_f64()))
    }

    /// As [`Load::run`], with switches.
    pub(crate) fn run_switched(
        &self,
        name: &str,
        path: &Path,
        options: &[(&str, u64)],
        switches: &[&str],
    ) -> Result<Sample> {
        sample(self.command(name, Some(path), options).args(switches))
    }

    /// Starts `until-killed` and kills it (SIGKILL) while it appends.
    pub(crate) fn kill_while_appending(&self, dir: &Path, records: u64) -> Result<()> {
        let mut child = self
            .command("until-killed", Some(dir), &[("records", records)])
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the load program")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        child.kill().context("killing the writer")?;
        let status = child.wait()?;
        if line.trim() != "ready" {
            bail!("the writer ended before it was killed: {status}");
        }
        Ok(())
    }

    /// The JSON of a record as all loads append it.
    pub(crate) fn record(&self) -> Result<String> {
        let text = capture(&mut self.command("record", None, &[]))?;
        Ok(text.trim_end().to_owned())
    }

    /// A command that prints journal entries; `whole` ones have the fields that journald adds.
    pub(crate) fn journal_export(&self, entries: u64, whole: bool) -> Command {
        let mut command = self.command("journal-export", None, &[("entries", entries)]);
        if whole {
            command.arg("--whole");
        }
        command
    }
}

fn sample(command: &mut Command) -> Result<Sample> {
    let text = bounded(command, HANGS_AFTER)?;
    serde_json::from_str(&text).with_context(|| format!("the load program printed `{text}`"))
}

/// What a command printed; it is killed when it has not ended in time.
fn bounded(command: &mut Command, time: Duration) -> Result<String> {
    let line = command_line(command);
    let child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{line}`"))?;
    let pid = Pid::from_child(&child);
    let (ended, end) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let is_late = end.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        // It is killed by number: who waits for it below has the handle.
        is_late && kill_process(pid, Signal::KILL).is_ok()
    });
    let output = child.wait_with_output();
    drop(ended);
    let was_killed = watch.join().unwrap_or_default();
    let output = output.with_context(|| format!("waiting for `{line}`"))?;
    ensure!(
        !was_killed,
        "`{line}` did not end within {} s and was killed",
        time.as_secs()
    );
    ensure!(
        output.status.success(),
        "`{line}` ended with {}",
        output.status
    );
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed no UTF-8"))
}

/// Operations a second.
pub(crate) fn rate(sample: &Sample) -> f64 {
    sample.count as f64 / sample.seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_the_pipe() {
        let sample = Sample {
            count: 10,
            seconds: 2.5,
            bytes: 7,
            core_seconds: 2.0,
            median_us: 1.25,
            p99_us: 3.0,
            peak_kib: 9,
        };
        let text = serde_json::to_string(&sample).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
        assert_eq!(rate(&sample), 4.0);
        assert!(serde_json::from_str::<Sample>("{}").is_err());
    }

    #[test]
    fn what_hangs_is_killed_and_what_fails_is_an_error() {
        let time = Duration::from_millis(200);
        let printed = bounded(Command::new("echo").arg("1"), Duration::from_secs(60)).unwrap();
        assert_eq!(printed, "1\n");
        let late = bounded(Command::new("sleep").arg("60"), time).unwrap_err();
        assert!(late.to_string().contains("was killed"), "{late}");
        let failed = bounded(&mut Command::new("false"), Duration::from_secs(60)).unwrap_err();
        assert!(failed.to_string().contains("exit status: 1"), "{failed}");
    }
}
