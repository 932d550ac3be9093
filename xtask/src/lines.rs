//! The length of source files: about 400 lines, 1,000 at most.
//!
//! It counts lines, not sense; functions are left to review.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::{Outcome, Workspace, capture, refuse};

/// Above this nobody reads a file in one sitting.
const FILE_LINES_MAX: usize = 1_000;

pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let files = if workspace.root.join(".git").exists() {
        tracked(workspace)?
    } else {
        // An unpacked source archive has no index to ask.
        let mut files = Vec::new();
        walk(&workspace.root, &workspace.target, &mut files)?;
        files
    };
    let mut findings = Vec::new();
    let mut longest = (0, String::from("none"));
    for path in &files {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            // Tracked, but deleted in the work tree.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let count = line_count(&bytes);
        if count > FILE_LINES_MAX {
            findings.push(format!("{}: {count} lines", workspace.show(path)));
        }
        if count > longest.0 {
            longest = (count, workspace.show(path));
        }
    }
    refuse(
        &findings,
        &format!("a source file has at most {FILE_LINES_MAX} lines: split it by subject"),
    )?;
    Ok(Outcome::Passed(format!(
        "{} files, the longest {} with {} lines",
        files.len(),
        longest.1,
        longest.0
    )))
}

fn tracked(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    // CI often runs as another user than the one who owns the checkout; git then wants to be told
    // that the folder is trusted.
    let list = capture(workspace.command("git").args([
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--",
        "*.rs",
        "*.py",
    ]))?;
    Ok(list
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(|name| workspace.root.join(name))
        .collect())
}

fn walk(dir: &Path, target: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || path == target {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&path, target, files)?;
        } else if kind.is_file() && is_source(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_source(path: &Path) -> bool {
    matches!(path.extension().and_then(OsStr::to_str), Some("rs" | "py"))
}

/// Lines as an editor numbers them: an unterminated last line counts.
fn line_count(bytes: &[u8]) -> usize {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    let open_end = usize::from(bytes.last().is_some_and(|byte| *byte != b'\n'));
    ends + open_end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_an_editor_does() {
        assert_eq!(line_count(b""), 0);
        assert_eq!(line_count(b"a\n"), 1);
        assert_eq!(line_count(b"a\nb"), 2);
        assert_eq!(line_count(b"\n\n"), 2);
    }

    #[test]
    fn only_sources_count_and_the_target_folder_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("target");
        fs::create_dir_all(root.path().join("src/.hidden")).unwrap();
        fs::create_dir_all(&target).unwrap();
        for name in [
            "src/a.rs",
            "src/b.py",
            "src/c.md",
            "src/.hidden/d.rs",
            "target/e.rs",
        ] {
            fs::write(root.path().join(name), "x\n").unwrap();
        }
        let mut files = Vec::new();
        walk(root.path(), &target, &mut files).unwrap();
        files.sort();
        let expected: Vec<_> = ["src/a.rs", "src/b.py"]
            .iter()
            .map(|name| root.path().join(name))
            .collect();
        assert_eq!(files, expected);
    }
}
