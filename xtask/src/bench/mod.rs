//! `cargo xtask bench`.

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace::{Outcome, Workspace};

#[derive(Args)]
pub(crate) struct BenchArgs {
    /// A short run that shows that the benchmark works; its numbers mean nothing.
    #[arg(long)]
    pub(crate) smoke: bool,
}

pub(crate) fn run(_workspace: &Workspace, args: &BenchArgs) -> Result<Outcome> {
    bail!("not built yet (smoke: {})", args.smoke)
}
