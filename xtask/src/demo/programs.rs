//! Builds what the drill runs, and says where it is.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;

use crate::workspace::Workspace;

/// The programs of the drill, by name.
pub(super) struct Programs(BTreeMap<String, PathBuf>);

/// What is run, beside `cp` and `mv`, and `curl` and `python3` where they are.
const NAMES: [&str; 2] = ["ledger", "ledger-verify"];

impl Programs {
    /// Builds them; cargo says itself where they went.
    pub(super) fn build(workspace: &Workspace) -> Result<Self> {
        println!("building ledger and ledger-verify");
        let mut cargo = workspace.cargo([
            "build",
            "--locked",
            "--message-format=json-render-diagnostics",
            "-p=ledger-cli",
            "-p=ledger-verify",
            "--bins",
        ]);
        let mut child = cargo
            .stdout(Stdio::piped())
            .spawn()
            .context("starting cargo")?;
        let output = child.stdout.take().context("cargo's output")?;
        let mut found = BTreeMap::new();
        for message in Message::parse_stream(BufReader::new(output)) {
            if let Message::CompilerArtifact(artifact) =
                message.context("reading cargo's output")?
                && let Some(path) = artifact.executable
            {
                found.insert(artifact.target.name, path.into_std_path_buf());
            }
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("the build ended with {status}");
        }
        for name in NAMES {
            if !found.contains_key(name) {
                bail!("the build made no program {name}");
            }
        }
        Ok(Self(found))
    }

    /// Where a program is; the system's own go by their name.
    pub(super) fn path<'a>(&'a self, name: &'a str) -> &'a Path {
        self.0.get(name).map_or(Path::new(name), PathBuf::as_path)
    }
}
