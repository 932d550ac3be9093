//! `ledger completions`: scripts for shells.

use std::io::Write as _;

use clap::Args;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::terminal::Out;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger completions bash > /etc/bash_completion.d/ledger")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    // Into memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::command_line(),
        "ledger",
        &mut script,
    );
    let mut out = Out::new();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Exit::Done)
}
