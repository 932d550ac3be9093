//! `index.sqlite`: two tables of blobs in a SQLite file. Not what the blobs mean.
//!
//! Write-ahead log, synced when it is copied back only: a power loss takes the newest runs, never the file.
//! The file may come from anybody: its schema must be exactly ours, it is opened without following links,
//! and every blob carries a tag of its own.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::IndexError;
use crate::store::{BlobId, Reader, Writer};

type Result<T> = std::result::Result<T, IndexError>;

/// The file's name in the ledger's folder.
pub(crate) const FILE: &str = "index.sqlite";
/// Files that SQLite keeps beside it.
const COMPANIONS: [&str; 3] = [
    "index.sqlite-wal",
    "index.sqlite-shm",
    "index.sqlite-journal",
];
const JOURNAL: &str = "index.sqlite-journal";
const WAL: &str = "index.sqlite-wal";

/// Says whose file it is, for `file` and the like.
const APPLICATION_ID: i32 = 0x4c64_6778;
/// Changes with anything that an older program would misread; another version is made again.
const LAYOUT_VERSION: i32 = 1;
const TABLES: [(&str, &str); 2] = [
    (
        "manifest",
        "CREATE TABLE manifest(id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    ),
    (
        "pages",
        "CREATE TABLE pages(id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    ),
];
/// A SQLite page holds one of ours, without an overflow page.
const PAGE_SIZE: i64 = 16_384;
/// The log is copied back when it has so many pages: 32 MiB, two syncs for each.
const WAL_PAGES: i64 = 2_048;
/// Pages each connection keeps, KiB as SQLite wants it: negative.
const CACHE_KIB: i64 = -8_192;
/// No manifest is longer, bytes.
const MANIFEST_LEN_MAX: i64 = 1 << 20;
/// Another process reads or copies back for so long at most.
const BUSY: Duration = Duration::from_secs(10);

fn database(operation: &'static str) -> impl FnOnce(rusqlite::Error) -> IndexError {
    move |error| {
        let code = error.sqlite_error_code();
        let retry = matches!(
            code,
            Some(
                ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::PermissionDenied
                    | ErrorCode::OutOfMemory
            )
        );
        if retry {
            return IndexError::Database {
                operation,
                full: code == Some(ErrorCode::DiskFull),
                source: error.into(),
            };
        }
        // Every statement here is sound on a file of ours: whatever else goes wrong, the file is not one.
        IndexError::damaged(format!("{operation}: {error}"))
    }
}

fn io(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> IndexError {
    let path = path.to_owned();
    move |errno| IndexError::Io {
        operation,
        path,
        source: errno.into(),
    }
}

/// The folder without links in its path, as SQLite is told not to follow any.
fn resolved(folder: &Path) -> Result<PathBuf> {
    folder.canonicalize().map_err(|source| IndexError::Io {
        operation: "open the folder",
        path: folder.to_owned(),
        source,
    })
}

/// Deletes the file and what SQLite keeps beside it.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    let folder = resolved(folder)?;
    for name in std::iter::once(FILE).chain(COMPANIONS) {
        unlink(&folder.join(name))?;
    }
    Ok(())
}

fn unlink(path: &Path) -> Result<()> {
    match rustix::fs::unlinkat(rustix::fs::CWD, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(io("delete", path)(errno)),
    }
}

/// One connection that writes and one that reads.
pub(crate) struct SqliteStore {
    pub(crate) writer: SqliteWriter,
    pub(crate) reader: SqliteReader,
}

/// What was found when a file was opened.
pub(crate) struct Found {
    /// None when the file is new.
    pub(crate) manifest: Option<Vec<u8>>,
    /// The highest blob number in the file, of a run or of a merge that did not finish.
    pub(crate) last: Option<i64>,
}

impl SqliteStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// `Damaged`: the file is no index; deleting it helps. Others: it does not.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Found)> {
        let folder = resolved(folder)?;
        let path = folder.join(FILE);
        create_private(&path)?;
        // Only a write-ahead log is ever ours. A rollback journal would be played back, and can name
        // other files.
        unlink(&folder.join(JOURNAL))?;
        let writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        prepare(&writer)?;
        let manifest = manifest(&writer)?;
        let last = writer
            .query_row("SELECT max(id) FROM pages", [], |row| row.get(0))
            .map_err(database("find the last page"))?;
        let reader = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let store = Self {
            writer: SqliteWriter { connection: writer },
            reader: SqliteReader { connection: reader },
        };
        Ok((store, Found { manifest, last }))
    }
}

/// A file of mode 0600, so that its companions get it too.
fn create_private(path: &Path) -> Result<()> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => {
            let stat = rustix::fs::fstat(&file).map_err(io("stat", path))?;
            let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
            if kind == rustix::fs::FileType::RegularFile {
                return Ok(());
            }
            Err(IndexError::damaged("index.sqlite is not a regular file"))
        }
        Err(Errno::LOOP) => Err(IndexError::damaged("index.sqlite is a symbolic link")),
        Err(errno) => Err(io("open", path)(errno)),
    }
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    configured(Connection::open_with_flags(path, flags).map_err(database("open"))?)
}

fn configured(connection: Connection) -> Result<Connection> {
    let set = || -> rusqlite::Result<()> {
        connection.busy_timeout(BUSY)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "mmap_size", 0)?;
        connection.pragma_update(None, "cache_size", CACHE_KIB)
    };
    set().map_err(database("set up the connection"))?;
    Ok(connection)
}

/// Makes the tables in an empty file; refuses any other schema than ours.
fn prepare(connection: &Connection) -> Result<()> {
    if schema(connection)?.is_empty() {
        create_tables(connection).map_err(database("create the tables"))?;
    }
    check(connection)?;
    let mode: String = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .map_err(database("ask for the journal mode"))?;
    if mode != "wal" {
        return Err(IndexError::damaged("its journal mode is not ours"));
    }
    connection
        .pragma_update(None, "synchronous", "NORMAL")
        .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", WAL_PAGES))
        .map_err(database("set up the connection"))
}

fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", PAGE_SIZE)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let mut batch = format!(
        "BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LAYOUT_VERSION};"
    );
    for (_, sql) in TABLES {
        let _ = write!(batch, "{sql};");
    }
    batch.push_str("COMMIT;");
    connection.execute_batch(&batch)
}

/// The names and texts of everything the file defines.
fn schema(connection: &Connection) -> Result<Vec<(String, String)>> {
    let read = || -> rusqlite::Result<Vec<(String, String)>> {
        connection
            .prepare("SELECT name, ifnull(sql, '') FROM sqlite_schema ORDER BY name LIMIT 3")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    };
    read().map_err(database("read the schema"))
}

fn check(connection: &Connection) -> Result<()> {
    let found = schema(connection)?;
    let ours = found.len() == TABLES.len()
        && found
            .iter()
            .zip(TABLES)
            .all(|((name, sql), (our_name, our_sql))| name == our_name && sql == our_sql);
    let number = |pragma| {
        connection
            .pragma_query_value(None, pragma, |row| row.get::<_, i32>(0))
            .map_err(database("read the layout version"))
    };
    if !ours
        || number("application_id")? != APPLICATION_ID
        || number("user_version")? != LAYOUT_VERSION
    {
        return Err(IndexError::damaged(
            "its tables or its version are not ours",
        ));
    }
    Ok(())
}

fn manifest(connection: &Connection) -> Result<Option<Vec<u8>>> {
    connection
        .query_row(
            "SELECT CAST(body AS BLOB) FROM manifest WHERE id = 1 AND length(body) <= ?1",
            [MANIFEST_LEN_MAX],
            |row| row.get(0),
        )
        .optional()
        .map_err(database("read the manifest"))
}

/// The connection that looks up.
pub(crate) struct SqliteReader {
    connection: Connection,
}

impl SqliteReader {
    /// Opens an existing file without writing anything, and keeps one view of it while this lives.
    ///
    /// # Errors
    /// There is none, or none that can be read.
    pub(crate) fn open_alone(folder: &Path) -> Result<(Self, Vec<u8>)> {
        let folder = resolved(folder)?;
        let path = folder.join(FILE);
        if folder.join(JOURNAL).symlink_metadata().is_ok() {
            return Err(IndexError::damaged(
                "a journal that is not ours stands beside it",
            ));
        }
        let logged = folder
            .join(WAL)
            .symlink_metadata()
            .is_ok_and(|found| found.len() > 0);
        // Without a log nobody writes: then nothing beside the file is needed, or made.
        let connection = if logged {
            connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?
        } else {
            connect_immutable(&path)?
        };
        check(&connection)?;
        connection
            .execute_batch("BEGIN")
            .map_err(database("begin to read"))?;
        let manifest = manifest(&connection)?.ok_or_else(|| IndexError::Unusable {
            reason: "it is empty".to_owned(),
        })?;
        Ok((Self { connection }, manifest))
    }
}

fn connect_immutable(path: &Path) -> Result<Connection> {
    use std::os::unix::ffi::OsStrExt;
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            _ => {
                let _ = write!(uri, "%{byte:02x}");
            }
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    configured(Connection::open_with_flags(uri, flags).map_err(database("open"))?)
}

impl Reader for SqliteReader {
    fn blob(&mut self, id: BlobId) -> Result<Option<Vec<u8>>> {
        let read = || -> rusqlite::Result<Option<Vec<u8>>> {
            self.connection
                .prepare_cached("SELECT body FROM pages WHERE id = ?1")?
                .query_row([id.0], |row| {
                    Ok(row.get_ref(0)?.as_blob().ok().map(<[u8]>::to_vec))
                })
                .optional()
                .map(Option::flatten)
        };
        read().map_err(database("read a page"))
    }
}

/// The connection that writes.
pub(crate) struct SqliteWriter {
    connection: Connection,
}

impl Writer for SqliteWriter {
    fn begin(&mut self) -> Result<()> {
        self.connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(database("begin to write"))
    }

    fn put(&mut self, id: BlobId, blob: &[u8]) -> Result<()> {
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO pages(id, body) VALUES(?1, ?2)")
            .and_then(|mut statement| statement.execute(params![id.0, blob]))
            .map(drop)
            .map_err(database("write a page"))
    }

    fn put_manifest(&mut self, manifest: &[u8]) -> Result<()> {
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO manifest(id, body) VALUES(1, ?1)")
            .and_then(|mut statement| statement.execute(params![manifest]))
            .map(drop)
            .map_err(database("write the manifest"))
    }

    fn commit(&mut self) -> Result<()> {
        self.connection
            .execute_batch("COMMIT")
            .map_err(database("commit"))
    }

    fn rollback(&mut self) {
        if !self.connection.is_autocommit() {
            // Best effort: what counts is the failure that led here.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn delete(&mut self, ids: Range<BlobId>, limit: u32) -> Result<usize> {
        let delete = || -> rusqlite::Result<usize> {
            let mut statement = self.connection.prepare_cached(
                "DELETE FROM pages WHERE id IN (SELECT id FROM pages WHERE id >= ?1 AND id < ?2 LIMIT ?3)",
            )?;
            statement.execute(params![ids.start.0, ids.end.0, limit])
        };
        delete().map_err(database("delete merged pages"))
    }
}
