//! The daemon under load: the release-built `ledger serve`, a process of its own.
//!
//! Its socket lies in a short folder of its own, because an address has room for 107 bytes only. It
//! never outlives the benchmark's step: dropped, it is killed.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::workspace::Workspace;

/// Opening does not grow with a ledger; this is for a machine that is busy.
const START_WITHIN: Duration = Duration::from_secs(20);
/// Draining, closing the segment, writing what is left of the index.
const STOP_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// A daemon that serves one ledger.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
    sockets: TempDir,
}

impl Daemon {
    /// Serves the ledger in `dir`, as `load init` made it, and waits until clients can connect.
    pub(crate) fn start(workspace: &Workspace, dir: &Path) -> Result<Self> {
        let program = workspace.target.join("release/ledger");
        ensure!(program.is_file(), "{} was not built", program.display());
        let sockets = tempfile::Builder::new().prefix("ledger-bench-").tempdir()?;
        let (config, log) = (dir.join("ledger.toml"), dir.join("serve.log"));
        // A JSON string is a TOML string too.
        let socket = serde_json::to_string(&sockets.path().join("w"))?;
        fs::write(
            &config,
            format!("[[listener]]\npath = {socket}\nrole = \"writer\"\n"),
        )?;
        let child = workspace
            .command(program)
            .arg("serve")
            .arg(dir.join("audit"))
            .arg("--state")
            .arg(dir.join("state"))
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("starting the daemon")?;
        let mut daemon = Self {
            child,
            log,
            sockets,
        };
        daemon.wait_until_it_serves()?;
        Ok(daemon)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.sockets.path().join("w")
    }

    fn wait_until_it_serves(&mut self) -> Result<()> {
        let began = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the daemon ended with {status}: {}", self.logged());
            }
            ensure!(
                began.elapsed() < START_WITHIN,
                "the daemon does not serve: {}",
                self.logged()
            );
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Most memory that it ever held resident, in KiB; 0 where the system does not say.
    pub(crate) fn peak_kib(&self) -> u64 {
        fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .ok()
            .and_then(|status| peak_in(&status))
            .unwrap_or(0)
    }

    /// Ends it as an operator does, by SIGTERM, and demands that it drained and signed.
    pub(crate) fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("stopping the daemon")?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                began.elapsed() < STOP_WITHIN,
                "the daemon does not stop: {}",
                self.logged()
            );
            thread::sleep(PAUSE);
        };
        ensure!(
            status.success(),
            "the daemon stopped with {status}: {}",
            self.logged()
        );
        Ok(())
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both are harmless on one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_where_it_is_told() {
        let status = "Name:\tledger\nVmPeak:\t  900 kB\nVmHWM:\t  115656 kB\nVmRSS:\t 10 kB\n";
        assert_eq!(peak_in(status), Some(115_656));
        assert_eq!(peak_in("Name:\tledger\n"), None);
    }
}
