//! Where a daemon's socket is, calls through it, and who holds what is in the way.
//!
//! Not the protocol: that is `ledger-client`'s.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ledger_client::{Client, ClientError, Settings};
use ledger_format::{Frame, Genesis, ReadAt as _, Seq};

use crate::exit::Failure;
use crate::folder::LedgerFolder;

/// Of the default sockets, those that answer everything, then those that say how the daemon is.
pub(crate) const OPERATOR: &[&str] = &["operator.sock"];
pub(crate) const ANY: &[&str] = &["operator.sock", "writer.sock"];

/// Genesis stands in the first bytes of the first segment, with room for the longest NAME.
const GENESIS_WITHIN: u64 = 4096;
/// How long a daemon that starts or stops is waited for, by commands that only look.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// A ledger's id as folders are named by it: 32 hex digits.
pub(crate) fn ledger_id(dir: &Path) -> anyhow::Result<String> {
    let file = LedgerFolder::open(dir)?.frames(Seq(0))?;
    let len = usize::try_from(file.len().min(GENESIS_WITHIN)).unwrap_or(0);
    let mut start = vec![0; len];
    file.read_exact_at(0, &mut start)
        .with_context(|| format!("reading {}", file.path().display()))?;
    let id = start
        .strip_prefix(ledger_format::FRAMES_MAGIC)
        .and_then(|frames| Frame::parse(frames).ok())
        .and_then(|frame| Some(Genesis::ledger_id(frame.control()?.body).short_hex()));
    id.ok_or_else(|| {
        let text = format!(
            "{}: expected a genesis frame, found none",
            file.path().display()
        );
        Failure::could_not_run(text).into()
    })
}

/// The socket of a daemon with the default sockets, which serves the ledger in `dir`.
pub(crate) fn socket_of(dir: &Path, names: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = ledger_server::runtime_folder(&ledger_id(dir)?)
        .map_err(|e| Failure::could_not_run(e.to_string()).hint("name it: --socket PATH"))?;
    let found = names
        .iter()
        .map(|name| folder.join(name))
        .find(|p| p.exists());
    found.ok_or_else(|| {
        let text = format!(
            "no daemon serves {}: {} is not there",
            dir.display(),
            folder
                .join(names.first().copied().unwrap_or_default())
                .display()
        );
        let hint = "`ledger serve DIR` starts one; if its sockets are elsewhere: --socket PATH";
        Failure::could_not_run(text).hint(hint).into()
    })
}

/// The socket of the only daemon with the default sockets on this machine, or in this container.
pub(crate) fn only_socket(names: &[&str]) -> anyhow::Result<PathBuf> {
    // The folder of some ledger; what is beside it are the others'.
    let unknown = |e: ledger_server::RuntimeFolderError| Failure::could_not_run(e.to_string());
    let (some, other) = (
        ledger_server::runtime_folder("0").map_err(unknown)?,
        ledger_server::runtime_folder("1").map_err(unknown)?,
    );
    let folders = if some == other {
        vec![some]
    } else {
        let beside = some.parent().unwrap_or(&some).to_owned();
        let entries = std::fs::read_dir(&beside).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let sockets = folders.iter().filter_map(|folder| {
        let mut found = names.iter().map(|name| folder.join(name));
        found.find(|path| path.exists())
    });
    let mut sockets: Vec<PathBuf> = sockets.collect();
    match (sockets.pop(), sockets.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => {
            Err(Failure::could_not_run("several daemons have sockets here: name one").into())
        }
        (None, _) => Err(
            Failure::could_not_run("no daemon has its sockets in the default place")
                .hint("name it: --socket PATH")
                .into(),
        ),
    }
}

/// Calls a daemon and waits for the answer. `look`: the call only looks, and gives up soon.
pub(crate) fn call<T, F: Future<Output = Result<T, ClientError>>>(
    socket: &Path,
    look: bool,
    run: impl FnOnce(Client) -> F,
) -> anyhow::Result<Result<T, ClientError>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the client")?;
    let settings = if look {
        Settings {
            try_time: LOOK_TIME,
            call_time: LOOK_TIME,
            ..Settings::default()
        }
    } else {
        Settings::default()
    };
    let client = Client::with_settings(socket, settings);
    Ok(runtime.block_on(run(client)))
}

/// A call that failed, as an error of the command.
pub(crate) fn failure(socket: &Path, error: &ClientError) -> Failure {
    let failure = Failure::could_not_run(format!("{}: {error}", socket.display()));
    match (error, error.code()) {
        (ClientError::NotReached { .. }, _) => failure.hint("is the daemon there? `ledger serve DIR` starts it"),
        (_, Some("role_forbidden")) => {
            failure.hint("name a socket that offers it: a reader or operator socket tells, a writer socket takes records")
        }
        (_, Some("peer_not_mapped")) => failure.hint("ask the operator to name this user in [[listener.peer]]"),
        _ => failure,
    }
}

/// The process that holds an exclusive lock on a file, as `/proc` tells; none where it does not.
pub(crate) fn holder_of_lock(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    let wanted = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4711 fe:01:2885 0 EOF`
    let pid: u32 = locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(4);
        let pid = fields.next()?;
        (fields.next()? == wanted).then(|| pid.parse().ok())?
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = crate::terminal::Shown(name.trim_end()).to_string();
    Some(if name.is_empty() {
        format!("process {pid} holds it")
    } else {
        format!("process {pid} ({name}) holds it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = std::fs::File::create(&path).unwrap();
        assert_eq!(holder_of_lock(&path), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let own = format!("process {} (", std::process::id());
        // Without /proc, or where it shows another machine's processes, nothing is said.
        let right = |text: String| text.starts_with(&own);
        assert!(holder_of_lock(&path).is_none_or(right));
    }
}
