//! `ledger config check`: a daemon's configuration read without serving.
//!
//! What may stand in it is `ledger-server`'s.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ledger_server::{Config, Listener, PeerRule};

use super::read_text;
use crate::exit::{Exit, Failure};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    Check(CheckArgs),
}

/// Check a configuration and show what would be listened on
///
/// Every fault is named with its place. Users and groups are looked up on this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger config check /etc/ledger/build-agent.toml

EXIT CODES
  0 good   3 faults, or not readable   64 the command line was wrong")]
pub(crate) struct CheckArgs {
    /// The configuration, TOML
    file: PathBuf,
}

/// Reads a configuration; an error names every fault.
pub(crate) fn read_config(path: &Path) -> anyhow::Result<Config> {
    let config = Config::parse(&read_text(path)?).map_err(|faults| {
        let count = faults.0.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut text = format!("{}: {count} fault{plural}", path.display());
        for fault in &faults.0 {
            // A fault that quotes the file has several lines.
            text.push_str("\n  ");
            text.push_str(&fault.trim_end().replace('\n', "\n  "));
        }
        Failure::could_not_run(text)
    })?;
    Ok(config)
}

pub(crate) fn run(command: &ConfigCommand) -> anyhow::Result<Exit> {
    let ConfigCommand::Check(args) = command;
    let config = read_config(&args.file)?;
    crate::print(&text(&args.file, &config)?)?;
    Ok(Exit::Done)
}

fn text(path: &Path, config: &Config) -> Result<String, std::fmt::Error> {
    let mut t = String::new();
    writeln!(t, "GOOD  {}", path.display())?;
    if config.listeners.is_empty() {
        writeln!(
            t,
            "  writer    writer.sock    0660  in the runtime folder, as no [[listener]] is named"
        )?;
        writeln!(t, "  operator  operator.sock  0600  beside it")?;
    }
    for listener in &config.listeners {
        line(&mut t, listener)?;
    }
    if let Some(address) = config.tcp {
        writeln!(t, "  metrics   {address}  health and metrics only")?;
    }
    let state = config.state.as_ref().map_or_else(
        || "$STATE_DIRECTORY, else the user's state folder".to_owned(),
        |state| state.display().to_string(),
    );
    writeln!(t, "  state     {state}")?;
    Ok(t)
}

fn line(t: &mut String, listener: &Listener) -> std::fmt::Result {
    let (role, path, mode) = (
        listener.role.name(),
        listener.path.display(),
        listener.mode & 0o7777,
    );
    write!(t, "  {role:<8}  {path}  {mode:04o}")?;
    if let Some(group) = listener.group {
        write!(t, "  group {group}")?;
    }
    writeln!(t)?;
    for peer in &listener.peers {
        writeln!(t, "            {}", peer_text(peer))?;
    }
    Ok(())
}

fn peer_text(rule: &PeerRule) -> String {
    let who = match (rule.uid, rule.gid) {
        (Some(uid), _) => format!("uid {uid}"),
        (None, gid) => format!("gid {}", gid.unwrap_or_default()),
    };
    match &rule.types {
        None => format!("{who}: every record type"),
        Some(types) => {
            let names: Vec<_> = types.iter().map(|t| t.as_str()).collect();
            format!("{who}: {}", names.join(", "))
        }
    }
}
