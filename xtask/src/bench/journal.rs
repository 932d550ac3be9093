//! The peer `journalctl --verify`, on a journal file made without a daemon. Not sealed: sealing
//! needs keys set up for a machine, and its check would only make the peer slower.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::load::Load;
use crate::workspace::{Workspace, capture, succeeds};

const MAKERS: &[&str] = &[
    "/usr/lib/systemd/systemd-journal-remote",
    "/lib/systemd/systemd-journal-remote",
];

/// Both programs of systemd that the peer needs.
pub(crate) struct Journal<'a> {
    workspace: &'a Workspace,
    maker: PathBuf,
}

impl<'a> Journal<'a> {
    /// # Errors
    /// The name of what is absent, as the inner result.
    pub(crate) fn find(workspace: &'a Workspace) -> Result<Self, String> {
        if !succeeds(workspace.command("journalctl").arg("--version")) {
            return Err("journalctl is not installed".into());
        }
        MAKERS
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_file())
            .map(|maker| Self { workspace, maker })
            .ok_or_else(|| {
                "systemd-journal-remote, which makes the journal file, is not installed".into()
            })
    }

    /// Makes a journal of `entries` entries in `dir`; returns its files. It is more than one when
    /// systemd rotates.
    pub(crate) fn make(
        &self,
        load: &Load<'_>,
        dir: &Path,
        entries: u64,
        whole: bool,
    ) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir)?;
        let mut export = load
            .journal_export(entries, whole)
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the load program")?;
        let out = export.stdout.take().context("its output is a pipe")?;
        let made = self
            .workspace
            .command(&self.maker)
            .arg("--split-mode=none")
            .arg("--output")
            .arg(dir.join("bench.journal"))
            .arg("-")
            .stdin(out)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?
            .wait_with_output()?;
        let exported = export.wait()?;
        ensure!(
            exported.success(),
            "printing the entries ended with {exported}"
        );
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            bail!("systemd-journal-remote ended with {}: {said}", made.status);
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            files.push(entry?.path());
        }
        files.sort();
        let mut found = 0;
        for file in &files {
            let header = capture(
                self.workspace
                    .command("journalctl")
                    .arg("--header")
                    .arg(file_option(file)),
            )?;
            found += entries_of(&header)
                .with_context(|| format!("no number of entries in the header of {file:?}"))?;
        }
        ensure!(
            found == entries,
            "{entries} entries written, {found} in the journal"
        );
        Ok(files)
    }

    /// Verifies all files, one after another; seconds from start to end of the processes.
    pub(crate) fn verify(&self, files: &[PathBuf]) -> Result<f64> {
        let began = Instant::now();
        for file in files {
            let output = self
                .workspace
                .command("journalctl")
                .args(["--quiet", "--verify"])
                .arg(file_option(file))
                .output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                bail!("journalctl --verify ended with {}: {said}", output.status);
            }
        }
        Ok(began.elapsed().as_secs_f64())
    }
}

fn file_option(file: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from("--file=");
    option.push(file);
    option
}

/// The number of entries that a journal's header declares.
fn entries_of(header: &str) -> Option<u64> {
    header
        .lines()
        .find_map(|line| line.trim().strip_prefix("Entry objects:"))
        .or_else(|| {
            header
                .lines()
                .find_map(|line| line.trim().strip_prefix("Entry Objects:"))
        })?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_tells_the_entries() {
        let header = "File path: a.journal\nObjects: 1402\nEntry objects: 200\nData objects: 9\n";
        assert_eq!(entries_of(header), Some(200));
        assert_eq!(entries_of("Objects: 3\n"), None);
        assert_eq!(entries_of("Entry objects: many\n"), None);
    }
}
