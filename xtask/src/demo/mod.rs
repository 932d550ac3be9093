//! `cargo xtask demo`: a month on a new ledger in `target/demo`, end to end, for a person to read.
//!
//! It runs the real programs and shows their real output; a step that does not behave ends it. It is
//! no test suite: what it shows once, the tests show in all its variants.

mod acts;
mod cast;
mod daemon;
mod drill;
mod layout;
mod month;
mod programs;
mod proofs;
mod receipts;
mod stage;
mod story;
mod traces;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace::{Outcome, Workspace};
use drill::Drill;
use programs::Programs;
use stage::Stage;

#[derive(Args)]
pub(crate) struct DemoArgs {}

pub(crate) fn run(workspace: &Workspace, _args: &DemoArgs) -> Result<Outcome> {
    let programs = Programs::build(workspace)?;
    let started = Instant::now();
    let dir = workspace.target.join("demo");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("clearing {}", dir.display()))?;
    }
    for folder in ["host", "investigator", "auditor", "story"] {
        fs::create_dir_all(dir.join(folder))?;
    }
    let story = workspace.root.join("fixtures/story");
    for entry in fs::read_dir(&story).with_context(|| format!("reading {}", story.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), dir.join("story").join(entry.file_name()))?;
    }

    let stage = Stage::new(dir, programs);
    stage.intro(&workspace.show(&workspace.target.join("demo")));
    let mut drill = Drill::new(stage)?;
    acts::play(&mut drill)?;
    traces::play(&mut drill)?;
    proofs::play(&mut drill)?;
    println!();
    Ok(Outcome::Passed(format!(
        "{} steps behaved, in {:.1} s",
        drill.stage.steps(),
        started.elapsed().as_secs_f64()
    )))
}
