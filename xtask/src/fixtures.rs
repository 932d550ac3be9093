//! The fixtures are made by a second implementation, in Python, and are compared byte for byte.
//!
//! A fixture is never written by hand and never by the Rust code: where both agree, two programs
//! agree on the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::python;
use crate::workspace::{Outcome, Workspace, refuse, run as run_command};

const MAKER: &str = "fixtures/ref/make.py";
/// The folders below `fixtures/` that the maker owns whole.
const MADE: &[&str] = &["accept", "reject", "payloads"];

#[derive(Args)]
pub(crate) struct FixturesArgs {
    /// Replace the checked-in fixtures by what was made.
    #[arg(long)]
    pub(crate) bless: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &FixturesArgs) -> Result<Outcome> {
    if !workspace.root.join(MAKER).exists() {
        bail!("{MAKER} is not there: is the checkout whole?");
    }
    let venv = python::ensure(workspace)?;
    let made = tempfile::tempdir_in(&workspace.target).context("making a folder for fixtures")?;
    run_command(
        workspace
            .command(&venv.python)
            .args([MAKER, "--out"])
            .arg(made.path())
            // No compiled files beside the sources.
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )?;
    let checked_in = workspace.root.join("fixtures");
    let mut count = 0;
    let mut findings = Vec::new();
    for folder in MADE {
        let new = read_tree(&made.path().join(folder))?;
        if new.is_empty() {
            bail!("{MAKER} made nothing in {folder}/");
        }
        count += new.len();
        if args.bless {
            replace(&checked_in.join(folder), &new)?;
        }
        let old = read_tree(&checked_in.join(folder))?;
        findings.extend(
            difference(&old, &new)
                .into_iter()
                .map(|finding| format!("fixtures/{folder}/{finding}")),
        );
    }
    refuse(
        &findings,
        "if the change is meant: `cargo xtask fixtures --bless`, and say so in the commit",
    )?;
    Ok(Outcome::Passed(format!("{count} fixtures are as made")))
}

type Tree = BTreeMap<String, Vec<u8>>;

/// All files below `dir` by their path relative to it. An absent folder is empty.
fn read_tree(dir: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    if dir.exists() {
        read_into(dir, "", &mut tree)?;
    }
    Ok(tree)
}

fn read_into(dir: &Path, prefix: &str, tree: &mut Tree) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_into(&entry.path(), &format!("{name}/"), tree)?;
        } else {
            let bytes = fs::read(entry.path())
                .with_context(|| format!("reading {}", entry.path().display()))?;
            tree.insert(name, bytes);
        }
    }
    Ok(())
}

fn replace(dir: &Path, tree: &Tree) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("emptying {}", dir.display()))?;
    }
    for (name, bytes) in tree {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn difference(checked_in: &Tree, made: &Tree) -> Vec<String> {
    let names: BTreeSet<&String> = checked_in.keys().chain(made.keys()).collect();
    names
        .into_iter()
        .filter_map(|name| match (checked_in.get(name), made.get(name)) {
            (Some(old), Some(new)) if old == new => None,
            (Some(old), Some(new)) => {
                let at = old.iter().zip(new).take_while(|(a, b)| a == b).count();
                Some(format!(
                    "{name} differs at byte {at} ({} bytes checked in, {} made)",
                    old.len(),
                    new.len()
                ))
            }
            (Some(_), None) => Some(format!("{name} is checked in but was not made")),
            (None, _) => Some(format!("{name} was made but is not checked in")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> Tree {
        files
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()))
            .collect()
    }

    #[test]
    fn differences_name_the_file_and_the_byte() {
        let old = tree(&[("a", b"same"), ("b", b"12345"), ("c", b""), ("e", b"12")]);
        let new = tree(&[("a", b"same"), ("b", b"12x45"), ("d", b""), ("e", b"123")]);
        assert_eq!(
            difference(&old, &new),
            [
                "b differs at byte 2 (5 bytes checked in, 5 made)",
                "c is checked in but was not made",
                "d was made but is not checked in",
                "e differs at byte 2 (2 bytes checked in, 3 made)",
            ]
        );
    }

    #[test]
    fn blessing_leaves_exactly_what_was_made() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("accept");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stale"), b"x").unwrap();
        let made = tree(&[("one", b"1"), ("ledger/segments/0.frames", b"\x00\xff")]);
        replace(&dir, &made).unwrap();
        assert_eq!(read_tree(&dir).unwrap(), made);
    }

    #[test]
    fn an_absent_folder_is_empty() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_tree(&root.path().join("none")).unwrap(), Tree::new());
    }
}
