//! Where the default sockets lie.

use crate::config::{Config, Listener, Role};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// No folder for sockets could be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "no folder for sockets: name them in the configuration ([[listener]]), or set RUNTIME_DIRECTORY or XDG_RUNTIME_DIR"
)]
pub struct RuntimeFolderError;

/// The ledger's runtime folder: `$RUNTIME_DIRECTORY` (its first entry; systemd makes it), else
/// `/run/ledger/ID` for root, else `$XDG_RUNTIME_DIR/ledger/ID`; ID is the first 16 bytes of the
/// ledger id in hex.
///
/// # Errors
/// None of them is known.
pub fn runtime_folder(ledger_id: &str) -> Result<PathBuf, RuntimeFolderError> {
    let root = rustix::process::geteuid().is_root();
    from_environment(ledger_id, root, |name| std::env::var_os(name))
}

fn from_environment(
    ledger_id: &str,
    root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, RuntimeFolderError> {
    let set = |name| variable(name).filter(|v| !v.is_empty());
    if let Some(list) = set("RUNTIME_DIRECTORY") {
        let list = list.to_string_lossy().into_owned();
        let first = list.split(':').next().unwrap_or_default();
        return Ok(PathBuf::from(first));
    }
    if root {
        return Ok(Path::new("/run/ledger").join(ledger_id));
    }
    set("XDG_RUNTIME_DIR")
        .map(|base| Path::new(&base).join("ledger").join(ledger_id))
        .ok_or(RuntimeFolderError)
}

/// The sockets of a configuration, or the two defaults in `folder`: `writer.sock`, 0660, and
/// `operator.sock`, 0600.
#[must_use]
pub fn listeners_or_default(config: &Config, folder: &Path) -> Vec<Listener> {
    if !config.listeners.is_empty() {
        return config.listeners.clone();
    }
    let socket = |name: &str, mode, role| Listener {
        path: folder.join(name),
        mode,
        group: None,
        role,
        peers: Vec::new(),
    };
    vec![
        socket("writer.sock", 0o660, Role::Writer),
        socket("operator.sock", 0o600, Role::Operator),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_known() {
        let none = |_: &str| None;
        assert_eq!(from_environment("ab", false, none), Err(RuntimeFolderError));
        let root = from_environment("ab", true, none).unwrap();
        assert_eq!(root, Path::new("/run/ledger/ab"));
        let xdg = |n: &str| (n == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into());
        let user = from_environment("ab", false, xdg).unwrap();
        assert_eq!(user, Path::new("/run/user/7/ledger/ab"));
        let systemd = |n: &str| (n == "RUNTIME_DIRECTORY").then(|| "/run/a:/run/b".into());
        let unit = from_environment("ab", true, systemd).unwrap();
        assert_eq!(unit, Path::new("/run/a"));
    }
}
