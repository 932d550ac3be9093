//! A ledger in a folder of its own, with its state beside it and the vault key in hand.

use crate::record::{self, Request, Shape};
use ledger_format::AppendReceipt;
use ledger_format::limits::SEGMENT_LEN_MIN;
use ledger_vault::{Identities, RetentionClass};
use ledger_writer::{Config, InitOptions, Initialized, OpenError, OpenMode, Opened, Writer, init};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A ledger under test; its folder goes away with it.
#[derive(Debug)]
pub struct TestLedger {
    dir: TempDir,
    /// Who reads evidence; never on the writer's host.
    pub vault: Arc<Identities>,
    /// What `init` said.
    pub made: Initialized,
}

/// The retention class of the tests' payloads.
///
/// # Panics
/// Never.
#[must_use]
pub fn class() -> RetentionClass {
    RetentionClass::new("30d").expect("a class")
}

/// Small segments, no disk reserve, checkpoints only when asked for or at a close.
#[must_use]
pub fn config() -> Config {
    Config {
        segment_len: SEGMENT_LEN_MIN,
        checkpoint_delay: Duration::from_secs(10),
        payload_classes: vec![class()],
        reserve_soft: 0,
        reserve_hard: 0,
        zero_fill: 64 << 10,
        ..Config::default()
    }
}

impl TestLedger {
    /// A new ledger.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self::within(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A new ledger in a folder that is there already.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn within(dir: TempDir) -> Self {
        let vault = Identities::generate();
        let options = InitOptions {
            name: "audit.example.com/tests".to_owned(),
            vault_recipients: vault.recipients().expect("recipients"),
            payload_classes: vec![class()],
        };
        let made = init(
            &dir.path().join("audit"),
            &dir.path().join("state"),
            &options,
        )
        .expect("init");
        Self {
            dir,
            vault: Arc::new(vault),
            made,
        }
    }

    /// A ledger that something else made, `audit` and `state` in this folder.
    #[must_use]
    pub fn made_elsewhere(dir: TempDir, vault: Arc<Identities>, made: Initialized) -> Self {
        Self { dir, vault, made }
    }

    /// The ledger's folder.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.dir.path().join("audit")
    }

    /// Its folder of segments.
    #[must_use]
    pub fn segments(&self) -> PathBuf {
        self.ledger().join("segments")
    }

    /// The folder below which states lie.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// This ledger's state.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.state().join(self.made.ledger_id.short_hex())
    }

    /// A place for other files, gone with the ledger.
    #[must_use]
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens it, normally.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub fn try_open(&self) -> Result<(Writer, Opened), OpenError> {
        self.open_as(OpenMode::Normal)
    }

    /// Opens it in a mode.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub fn open_as(&self, mode: OpenMode) -> Result<(Writer, Opened), OpenError> {
        // A child that another test just forked holds every lock of this process until its exec.
        for _ in 0..50 {
            match Writer::open(&self.ledger(), &self.state(), config(), mode) {
                Err(OpenError::Locked(_)) => std::thread::sleep(Duration::from_millis(10)),
                other => return other,
            }
        }
        Writer::open(&self.ledger(), &self.state(), config(), mode)
    }

    /// Opens it.
    ///
    /// # Panics
    /// It does not open.
    #[must_use]
    pub fn open(&self) -> Writer {
        self.try_open()
            .unwrap_or_else(|e| panic!("the ledger does not open: {e}"))
            .0
    }

    /// Opens it, appends, closes it.
    ///
    /// # Panics
    /// Something of it fails.
    pub fn append(&self, prefix: &str, count: usize, shape: Shape) -> Vec<AppendReceipt> {
        let writer = self.open();
        let receipts = append(&writer, prefix, count, shape);
        writer.close().expect("closes");
        receipts
    }

    /// A copy of ledger and state as they are now, without care for a running writer.
    ///
    /// # Panics
    /// Copying fails.
    #[must_use]
    pub fn copy(&self) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        copy_folder(&self.ledger(), &dir.path().join("audit"));
        copy_folder(&self.state(), &dir.path().join("state"));
        Self {
            dir,
            vault: self.vault.clone(),
            made: self.made.clone(),
        }
    }

    /// Puts the ledger folder back to an earlier copy of it; the state stays.
    ///
    /// # Panics
    /// Copying fails.
    pub fn restore_ledger_from(&self, older: &Self) {
        fs::remove_dir_all(self.ledger()).expect("removable");
        copy_folder(&older.ledger(), &self.ledger());
    }

    /// Names of the frames files, in order.
    ///
    /// # Panics
    /// The folder cannot be listed.
    #[must_use]
    pub fn frames_files(&self) -> Vec<PathBuf> {
        frames_files(&self.segments())
    }
}

impl Default for TestLedger {
    fn default() -> Self {
        Self::new()
    }
}

/// Frames files of a folder, in order.
///
/// # Panics
/// The folder cannot be listed.
#[must_use]
pub fn frames_files(segments: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(segments).expect("segments");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "frames"));
    files.sort();
    files
}

/// Appends `count` records one by one.
///
/// # Panics
/// One is refused.
pub fn append(writer: &Writer, prefix: &str, count: usize, shape: Shape) -> Vec<AppendReceipt> {
    let one = |number| {
        let request = Request {
            prefix: prefix.to_owned(),
            thread: 0,
            number,
        };
        append_request(writer, &request, 1, shape)
            .unwrap_or_else(|e| panic!("{e}"))
            .remove(0)
    };
    (0..count).map(one).collect()
}

/// Appends one request.
///
/// # Errors
/// As [`Writer::append`].
///
/// # Panics
/// A record of the tests is not prepared.
pub fn append_request(
    writer: &Writer,
    request: &Request,
    count: usize,
    shape: Shape,
) -> Result<Vec<AppendReceipt>, ledger_writer::AppendError> {
    let ids = request.ids(count, shape);
    let prepared = ids
        .iter()
        .map(|id| {
            writer
                .prepare(record::submission(id), None)
                .expect("prepares")
        })
        .collect();
    let appended = writer.append(prepared)?;
    Ok(appended.into_iter().map(|a| a.receipt).collect())
}

/// Copies a folder with all below it; files that vanish meanwhile are left out.
///
/// # Panics
/// Copying fails.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    let mut entries: Vec<PathBuf> = fs::read_dir(from)
        .expect("a folder")
        .map(|e| e.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else if let Err(e) = fs::copy(&path, &target) {
            assert_eq!(
                e.kind(),
                std::io::ErrorKind::NotFound,
                "{}: {e}",
                path.display()
            );
        }
    }
}

/// All files below a folder.
///
/// # Panics
/// It cannot be listed.
#[must_use]
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.append(&mut files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}
