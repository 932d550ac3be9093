//! `ledger serve` as a process that the drill kills, stops and starts again.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A daemon that does not serve, or stop, after this time never will.
const TIME: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// A running daemon. Dropped, it is killed.
pub(super) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it and waits until somebody listens on the socket.
    pub(super) fn start(mut command: Command, log: &Path, socket: &Path) -> Result<Self> {
        let mut options = std::fs::File::options();
        let file = options.create(true).append(true).open(log)?;
        let child = command
            .stderr(file)
            .spawn()
            .context("starting the daemon")?;
        let log = log.to_path_buf();
        let mut daemon = Self { child, log };
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("the daemon ended with {status}\n{}", daemon.log());
            }
            if started.elapsed() > TIME {
                bail!("the daemon does not serve\n{}", daemon.log());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(daemon)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`. It must have been running.
    pub(super) fn kill(mut self) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the daemon had ended by itself, {status}\n{}", self.log());
        }
        self.child.kill().context("killing the daemon")?;
        Ok(self.child.wait()?)
    }

    /// SIGTERM; it must end with exit code 0.
    pub(super) fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("stopping the daemon")?;
        let started = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the daemon ended with {status}\n{}", self.log()),
                None if started.elapsed() > TIME => {
                    bail!("the daemon does not stop\n{}", self.log())
                }
                None => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // A drill that failed leaves no process behind.
            _ = self.child.kill();
            _ = self.child.wait();
        }
    }
}
