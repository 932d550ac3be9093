//! `cargo xtask demo`.

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace::{Outcome, Workspace};

#[derive(Args)]
pub(crate) struct DemoArgs {}

pub(crate) fn run(_workspace: &Workspace, _args: &DemoArgs) -> Result<Outcome> {
    bail!("not built yet")
}
