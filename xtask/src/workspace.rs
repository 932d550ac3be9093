//! Where the workspace is, and how commands are run in it.
//!
//! Not a task runner: no parallelism, no caching, no retries. A command either succeeds or ends the
//! step.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};

/// How a check ended, when it did not fail.
pub(crate) enum Outcome {
    /// Checked and good; the note says how much was checked.
    Passed(String),
    /// Not checked; the reason names what is absent.
    Skipped(String),
}

/// The workspace this xtask was built in, with its dependency graph.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// All targets and features, as `Cargo.lock` pins them.
    pub(crate) metadata: Metadata,
}

impl Workspace {
    /// Reads the dependency graph. A `Cargo.lock` that does not match the manifests is an error,
    /// never silently updated.
    pub(crate) fn open() -> Result<Self> {
        let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir
            .parent()
            .context("xtask lies directly in the workspace")?
            .to_path_buf();
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .other_options(vec!["--locked".into(), "--all-features".into()])
            .exec()
            .context(
                "reading the dependency graph (is Cargo.lock up to date? `cargo check` renews it)",
            )?;
        Ok(Self {
            root,
            target: metadata.target_directory.clone().into_std_path_buf(),
            metadata,
        })
    }

    /// A cargo command in the workspace's root.
    pub(crate) fn cargo<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args);
        command
    }

    /// A command in the workspace's root, with nothing on its standard input.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        // `cargo run` describes xtask in these variables. Left in place they reach the build
        // scripts and tests of other crates, which then are built again.
        for (name, _) in env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// `path` relative to the root, for messages.
    pub(crate) fn show(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .unwrap_or(path)
            .display()
            .to_string()
    }
}

/// Runs a command whose output people should see.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    println!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("starting `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output; its standard error passes through.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` ended with {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed no UTF-8"))
}

/// Whether a command starts and succeeds; what it prints is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Findings as one error, or none.
pub(crate) fn refuse(findings: &[String], hint: &str) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    bail!(
        "{} finding{}\n  {}\n{hint}",
        findings.len(),
        if findings.len() == 1 { "" } else { "s" },
        findings.join("\n  ")
    )
}

pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|part| part.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
