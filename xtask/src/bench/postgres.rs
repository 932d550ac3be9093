//! The peer PostgreSQL: a server of its own in the folder that is measured, single-row inserts by
//! `pgbench`, prepared, every commit on the disk.
//!
//! Its settings are the defaults of `initdb`, which sync every commit; two of them are said again,
//! because all depends on them. No TCP. It never outlives the benchmark's step.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::workspace::{Workspace, capture, succeeds};

const PROGRAMS: [&str; 4] = ["initdb", "postgres", "psql", "pgbench"];
/// Where Debian has the programs that are not on the path.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Who runs the server when this is root, which it refuses to be.
const USERS: [&str; 2] = ["postgres", "nobody"];
const START_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
const SETTINGS: [&str; 4] = [
    "fsync=on",
    "synchronous_commit=on",
    "listen_addresses=",
    "max_connections=80",
];
/// A log as one would keep it in a database: a number, a time, an id and the record's JSON. No chain,
/// no seal, no index of ids.
const TABLE: &str = "CREATE TABLE log (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, appended_at timestamptz NOT NULL DEFAULT now(), record_id text NOT NULL, record text NOT NULL)";
/// What pgbench runs. Both values are parameters of the prepared statement; the record is the same in
/// every row, which spares the peer the making of it.
const SCRIPT: &str = "\\set number random(100000000000000000, 999999999999999999)
INSERT INTO log (record_id, record) VALUES (:number, :record);
";

/// The programs, all of one version, and the user that runs them.
pub(crate) struct Programs {
    dir: PathBuf,
    /// `PostgreSQL 15.13`, for the report.
    version: String,
    /// User and group; none: as this process.
    user: Option<(u32, u32)>,
}

/// How long one measurement is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Span {
    Seconds(u64),
    /// Of each client.
    Rows(u64),
}

/// A running server.
pub(crate) struct Postgres<'a> {
    workspace: &'a Workspace,
    programs: &'a Programs,
    child: Child,
    dir: PathBuf,
    sockets: TempDir,
    record: String,
}

impl Programs {
    /// # Errors
    /// The name of what is absent.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self, String> {
        let on_path = env::var_os("PATH").unwrap_or_default();
        let dir = newest_first(Path::new(VERSIONS))
            .into_iter()
            .chain(env::split_paths(&on_path))
            .find(|dir| PROGRAMS.iter().all(|name| dir.join(name).is_file()))
            .ok_or_else(|| {
                format!(
                    "{} are not installed together, neither on the path nor in {VERSIONS}",
                    PROGRAMS.join(", ")
                )
            })?;
        let user = if geteuid().is_root() {
            let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
            let user = USERS.iter().find_map(|name| user_in(&passwd, name));
            Some(user.ok_or("PostgreSQL refuses to run as root, and there is no other user")?)
        } else {
            None
        };
        let mut programs = Self {
            dir,
            version: String::new(),
            user,
        };
        let version = capture(programs.command(workspace, "postgres").arg("--version"))
            .map_err(|error| format!("{error:#}"))?;
        programs.version = version_in(&version);
        Ok(programs)
    }

    fn command(&self, workspace: &Workspace, name: &str) -> Command {
        let mut command = workspace.command(self.dir.join(name));
        // The other user may not be allowed into the workspace.
        command.current_dir("/").env_remove("PGOPTIONS");
        if let Some((uid, gid)) = self.user {
            command.gid(gid).uid(uid);
        }
        command
    }

    /// Whether the server's user gets into `dir`.
    pub(crate) fn reaches(&self, workspace: &Workspace, dir: &Path) -> bool {
        let mut command = workspace.command("test");
        command.current_dir("/").arg("-x").arg(dir);
        if let Some((uid, gid)) = self.user {
            command.gid(gid).uid(uid);
        }
        succeeds(&mut command)
    }

    /// A new folder that belongs to the server's user and to nobody else.
    fn own(&self, dir: &Path) -> Result<()> {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
        if let Some((uid, gid)) = self.user {
            chown(dir, Some(uid), Some(gid))
                .with_context(|| format!("giving {} away", dir.display()))?;
        }
        Ok(())
    }
}

impl<'a> Postgres<'a> {
    /// Makes a cluster in the new folder `dir`, starts a server on it and makes the table.
    pub(crate) fn start(
        workspace: &'a Workspace,
        programs: &'a Programs,
        dir: &Path,
        record: &str,
    ) -> Result<Self> {
        let sockets = tempfile::Builder::new().prefix("ledger-bench-").tempdir()?;
        programs.own(sockets.path())?;
        fs::create_dir(dir).with_context(|| format!("making {}", dir.display()))?;
        programs.own(dir)?;
        let data = dir.join("data");
        // `--no-sync` is about making the cluster only; the caller syncs before it measures.
        capture(
            programs
                .command(workspace, "initdb")
                .args(["--no-sync", "--auth=trust", "--username=bench"])
                .args(["--encoding=UTF8", "--no-locale", "--pgdata"])
                .arg(&data),
        )?;
        let mut server = programs.command(workspace, "postgres");
        server.arg("-D").arg(&data).arg("-k").arg(sockets.path());
        for setting in SETTINGS {
            server.arg("-c").arg(setting);
        }
        let log = fs::File::create(dir.join("server.log"))?;
        let child = server
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting PostgreSQL")?;
        let mut postgres = Self {
            workspace,
            programs,
            child,
            dir: dir.to_owned(),
            sockets,
            record: record.to_owned(),
        };
        postgres.wait_until_it_serves()?;
        postgres.ask(TABLE)?;
        fs::write(postgres.script(), SCRIPT)?;
        Ok(postgres)
    }

    fn script(&self) -> PathBuf {
        self.dir.join("insert.sql")
    }

    fn wait_until_it_serves(&mut self) -> Result<()> {
        let began = Instant::now();
        while !succeeds(self.psql().arg("SELECT 1")) {
            if let Some(status) = self.child.try_wait()? {
                bail!("PostgreSQL ended with {status}: {}", self.logged());
            }
            ensure!(
                began.elapsed() < START_WITHIN,
                "PostgreSQL does not serve: {}",
                self.logged()
            );
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn client(&self, name: &str) -> Command {
        let mut command = self.programs.command(self.workspace, name);
        command.arg("--host").arg(self.sockets.path());
        command.args(["--username=bench"]);
        command
    }

    /// What is to be executed follows.
    fn psql(&self) -> Command {
        let mut command = self.client("psql");
        command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
        command.args(["--dbname=postgres", "--set=ON_ERROR_STOP=1", "--command"]);
        command
    }

    fn ask(&self, statement: &str) -> Result<String> {
        Ok(capture(self.psql().arg(statement))?.trim().to_owned())
    }

    /// Rows a second of so many clients, each inserting one row a transaction.
    pub(crate) fn insert(&self, clients: u64, span: Span) -> Result<f64> {
        let mut command = self.client("pgbench");
        command.args(["--no-vacuum", "--protocol=prepared"]);
        command.arg(format!("--client={clients}")).arg("--jobs=1");
        match span {
            Span::Seconds(seconds) => command.arg(format!("--time={seconds}")),
            Span::Rows(rows) => command.arg(format!("--transactions={rows}")),
        };
        command.arg(format!("--define=record={}", self.record));
        command.arg("--file").arg(self.script()).arg("postgres");
        command.stderr(Stdio::null());
        let text = capture(&mut command)?;
        rate_in(&text).with_context(|| format!("pgbench printed `{text}`"))
    }

    pub(crate) fn version(&self) -> &str {
        &self.programs.version
    }

    /// Rows in the table, and bytes of what a client gave of one.
    pub(crate) fn stored(&self) -> Result<(u64, u64)> {
        let rows = self.ask("SELECT count(*) FROM log")?;
        let bytes = self.ask("SELECT max(length(record)) FROM log")?;
        Ok((rows.parse()?, bytes.parse()?))
    }

    /// Both settings as the server has them.
    pub(crate) fn durability(&self) -> Result<String> {
        self.ask("SELECT string_agg(name || ' ' || setting, ', ' ORDER BY name) FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'wal_sync_method')")
    }

    fn logged(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }
}

impl Drop for Postgres<'_> {
    /// SIGINT is its fast shutdown: it takes its own processes and its shared memory with it.
    fn drop(&mut self) {
        let asked = kill_process(Pid::from_child(&self.child), Signal::INT);
        let began = Instant::now();
        while asked.is_ok() && began.elapsed() < STOP_WITHIN {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `VERSIONS/*/bin`, the greatest version first.
fn newest_first(versions: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(versions).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().rev().map(|(_, dir)| dir).collect()
}

/// User and group of a name, in the text of `/etc/passwd`.
fn user_in(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let line = passwd
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (uid != 0).then_some((uid, gid))
}

/// `PostgreSQL 15.13` of `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)`.
fn version_in(text: &str) -> String {
    let number = text.split_whitespace().find(|word| {
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || c == '.')
    });
    format!("PostgreSQL {}", number.unwrap_or("of unknown version"))
}

/// Transactions a second without the time that connecting took.
fn rate_in(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.starts_with("tps = ") && line.contains("without initial connection"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_one_without_connecting() {
        let text = "transaction type: insert.sql\nnumber of clients: 16\ninitial connection time = 21.100 ms\ntps = 6543.210987 (without initial connection time)\n";
        assert_eq!(rate_in(text), Some(6_543.210_987));
        assert_eq!(
            rate_in("tps = 1.0 (including connections establishing)\n"),
            None
        );
    }

    #[test]
    fn another_user_than_root_is_found_by_the_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody2:x:7:7::/:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        assert_eq!(user_in(passwd, "nobody"), Some((65_534, 65_533)));
        assert_eq!(user_in(passwd, "postgres"), None);
        assert_eq!(user_in(passwd, "root"), None);
    }

    #[test]
    fn versions_are_numbers_and_not_texts() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["9", "15", "14", "x"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let found = newest_first(dir.path());
        let expected = ["15", "14", "9"].map(|name| dir.path().join(name).join("bin"));
        assert_eq!(found, expected);
        assert!(newest_first(&dir.path().join("absent")).is_empty());
        assert_eq!(
            version_in("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n"),
            "PostgreSQL 15.13"
        );
    }
}
