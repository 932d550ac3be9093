//! `ledger serve`: the daemon.
//!
//! Sockets, roles and HTTP are `ledger-server`'s, what it can tell of the ledger is in `skeleton`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ledger_server::{Config, Options, Providers, RunError, init_logging};

use super::config::read_config;
use super::index::explained;
use crate::exit::Failure;
use crate::secret;
use crate::skeleton::Skeleton;

/// Serve a ledger: append and look up over unix sockets, until SIGTERM or SIGINT
///
/// HTTP/1.1. Without a configuration there are two sockets in $RUNTIME_DIRECTORY, else /run/ledger/ID for root, else
/// $XDG_RUNTIME_DIR/ledger/ID: `writer.sock`, 0660, takes records; `operator.sock`, 0600, everything. ID is the ledger
/// id, 32 hex digits. A record is answered when it is on the disk. Opening recovers what a crash left. A stop drains,
/// closes the segment and signs. Reads are logged on standard error. The daemon cannot read the evidence of a closed
/// segment. systemd: readiness, watchdog and socket activation.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger serve audit
  ledger serve /var/lib/ledger/build-agent --config /etc/ledger/build-agent.toml
  curl --unix-socket writer.sock http://ledger/v1/checkpoint

EXIT CODES
  0   stopped by SIGTERM or SIGINT: drained, the segment closed and signed
  1   the ledger was refused at opening: damage, a roll-back, a wrong key; starting again does
      not help
  2   stopped, but the segment could not be closed; the next start recovers it
  3   could not run: the configuration, a socket, the state folder, the disk, another process
      has the ledger
  64  the command line was wrong")]
pub(crate) struct ServeArgs {
    /// The ledger
    dir: PathBuf,

    /// The configuration, TOML (`ledger config check` reads it without serving)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where keys and floor are [default: the configuration's `state`, else $STATE_DIRECTORY, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    secret::protect_process()?;
    let config = match &args.config {
        Some(path) => read_config(path)?,
        None => Config::default(),
    };
    let state = args.state.as_deref().or(config.state.as_deref());
    let state_root = ledger_writer::state_root(state)?;
    init_logging(config.log).map_err(Failure::could_not_run)?;
    let options = Options {
        ledger: args.dir.clone(),
        state_root: state_root.clone(),
        config,
    };
    let ended = ledger_server::run(options, |opened| {
        let state = state_root.join(opened.origin.id_hex());
        let skeleton = Arc::new(Skeleton::new(args.dir.clone(), state));
        Providers {
            records: Some(skeleton.clone()),
            trace: Some(skeleton),
            proofs: None,
        }
    });
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let failure = match &error {
                RunError::Open(error) => explained(error),
                other => Failure::could_not_run(other.to_string()),
            };
            crate::end(&failure.into());
            Ok(ExitCode::from(error.exit_code()))
        }
    }
}
