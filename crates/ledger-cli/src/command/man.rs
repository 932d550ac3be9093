//! `ledger man`: manual pages, made from the same text as `--help`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::exit::Exit;

/// Print the manual page, or write all pages into a folder
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger man | man -l -
  ledger man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The folder: gets ledger.1 and a page for each command, replacing older ones
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<Exit> {
    let command = crate::command_line();
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            crate::print(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => {
            clap_mangen::generate_to(command, dir)
                .with_context(|| format!("writing manual pages into {}", dir.display()))?;
        }
    }
    Ok(Exit::Done)
}
