//! The Python environment of the second implementation, under the target folder.
//!
//! It is made when it is absent or when its requirements changed, so that nobody prepares anything
//! by hand. Nothing of it is shipped.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::workspace::{Outcome, Workspace, run};

const REQUIREMENTS: &str = "fixtures/ref/requirements.txt";

/// The interpreter with the packages of `fixtures/ref/requirements.txt`.
pub(crate) struct Venv {
    pub(crate) python: PathBuf,
}

/// Step `python`: makes the environment, for the tests that use it.
pub(crate) fn prepare(workspace: &Workspace) -> Result<Outcome> {
    if !workspace.root.join(REQUIREMENTS).exists() {
        bail!("{REQUIREMENTS} is not there: is the checkout whole?");
    }
    let venv = ensure(workspace)?;
    Ok(Outcome::Passed(workspace.show(&venv.python)))
}

/// Makes the environment unless it is there and up to date.
pub(crate) fn ensure(workspace: &Workspace) -> Result<Venv> {
    let requirements = fs::read_to_string(workspace.root.join(REQUIREMENTS))
        .with_context(|| format!("reading {REQUIREMENTS}"))?;
    let dir = workspace.target.join("venv");
    let python = dir.join("bin/python");
    let stamp = dir.join("requirements.stamp");
    if python.exists() && fs::read_to_string(&stamp).is_ok_and(|made| made == requirements) {
        return Ok(Venv { python });
    }
    run(workspace
        .command("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&dir))
    .context("making the Python environment (Debian: apt-get install python3-venv)")?;
    run(workspace
        .command(&python)
        .args(["-m", "pip", "install", "--quiet"])
        .args(["--disable-pip-version-check", "--no-input", "-r"])
        .arg(REQUIREMENTS))
    .with_context(|| format!("installing {REQUIREMENTS}"))?;
    // Last: an interrupted installation has no stamp and is made again.
    fs::write(&stamp, &requirements).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(Venv { python })
}
