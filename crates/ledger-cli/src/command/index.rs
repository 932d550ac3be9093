//! `ledger index rebuild`: index and tiles made again from the frames.
//!
//! What they are is `ledger-index`'s, how they are made the writer's.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ledger_writer::OpenError;

use crate::exit::{Exit, Failure};
use crate::secret;
use crate::socket::holder_of_lock;

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    Rebuild(RebuildArgs),
}

/// Throw the identifier index and the tiles away and make them again from the frames
///
/// Both are derived: the chain is read as it lies, and nothing is added to it. The ledger must not be open. Opening
/// does the same by itself when it finds the index missing, damaged, of another ledger or of another state of this one.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger index rebuild audit

EXIT CODES
  0   made again
  1   made again, but some frames could not be read: `ledger verify` names them
  3   not made: the ledger is open elsewhere, its state is not there, the disk failed
  64  the command line was wrong")]
pub(crate) struct RebuildArgs {
    /// The ledger
    dir: PathBuf,

    /// Where keys and floor are [default: $STATE_DIRECTORY, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

pub(crate) fn run(command: &IndexCommand) -> anyhow::Result<Exit> {
    let IndexCommand::Rebuild(args) = command;
    secret::protect_process()?;
    let state = ledger_writer::state_root(args.state.as_deref())?;
    let made =
        ledger_writer::rebuild_index(&args.dir, &state).map_err(|error| explained(&error))?;
    let mut text = format!(
        "REBUILT  {}: {} frames read, {} identifiers in the index\n",
        args.dir.display(),
        made.frames,
        made.entries
    );
    if made.unreadable == 0 {
        crate::print(&text)?;
        return Ok(Exit::Done);
    }
    text.push_str(&format!(
        "  {} frames could not be read and are not in it: `ledger verify {}` names them\n",
        made.unreadable,
        args.dir.display()
    ));
    crate::print(&text)?;
    Ok(Exit::Refused)
}

/// The error, with who has the ledger where that is what is in the way.
pub(crate) fn explained(error: &OpenError) -> Failure {
    match error {
        OpenError::Locked(folder) => {
            let holder = holder_of_lock(&folder.join("lock"));
            let holder = holder.map_or_else(String::new, |process| format!(": {process}"));
            Failure::could_not_run(format!(
                "{} is locked{holder}; a ledger has one writer",
                folder.display()
            ))
            .hint("stop that process first; while a daemon serves the ledger, clients append through its socket")
        }
        other => Failure::could_not_run(other.to_string()),
    }
}
