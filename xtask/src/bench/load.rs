//! Building and running the load program, `examples/load`, one process a measurement.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::sample::Sample;
use crate::workspace::{Workspace, capture, run};

/// The release-built load program.
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

    /// As [`Load::run`], with a switch.
    pub(crate) fn run_switched(
        &self,
        name: &str,
        path: &Path,
        options: &[(&str, u64)],
        switch: &str,
    ) -> Result<Sample> {
        sample(self.command(name, Some(path), options).arg(switch))
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
    let text = capture(command)?;
    serde_json::from_str(&text).with_context(|| format!("the load program printed `{text}`"))
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
}
