//! `ledger serve` as a child process, on a ledger that `ledger init` made.

use crate::TestLedger;
use crate::chain::stored_frames;
use crate::http::{self, Connection};
use crate::tools::ledger_program;
use ledger_format::{AppendReceipt, Genesis, Origin, VerifierKey};
use ledger_vault::Identities;
use ledger_writer::Initialized;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The name of the ledgers.
const NAME: &str = "audit.example.com/tests";
/// A daemon that does not serve after this time never will.
const START_TIME: Duration = Duration::from_secs(60);
/// A daemon that does not stop after this time never will.
const STOP_TIME: Duration = Duration::from_secs(60);

/// A new ledger, made by `ledger init` in this folder.
///
/// # Panics
/// It is not made.
#[must_use]
pub fn init_in(dir: TempDir) -> TestLedger {
    let vault = Identities::generate();
    let recipients = dir.path().join("vault.pub");
    let keys = vault.recipients().expect("recipients");
    fs::write(&recipients, keys.text()).expect("written");
    let output = ledger(dir.path())
        .args(["init", "audit", "--state", "state", "--origin", NAME])
        .args(["--recipients-file", "vault.pub"])
        .output()
        .expect("ledger starts");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    let mut lines = said.lines();
    lines.find(|l| l.starts_with("TRUST LINE"));
    let trust_line = lines.next().expect("a trust line").trim().to_owned();
    let verifier = VerifierKey::parse(&trust_line).expect("a trust line");
    let origin = Origin::parse(verifier.name()).expect("an origin");
    let frames = stored_frames(&dir.path().join("audit"));
    let made = Initialized {
        ledger_id: Genesis::ledger_id(frames[0].body()),
        short_form: ledger_format::short_form(&trust_line),
        state_dir: dir.path().join("state").join(origin.id_hex()),
        origin,
        trust_line,
    };
    TestLedger::made_elsewhere(dir, Arc::new(vault), made)
}

/// A new ledger, made by `ledger init` in a folder of its own.
///
/// # Panics
/// It is not made.
#[must_use]
pub fn init() -> TestLedger {
    init_in(tempfile::tempdir().expect("a temporary folder"))
}

/// The command `ledger`, to be run in a folder, without anything of our own environment.
fn ledger(folder: &Path) -> Command {
    let mut command = Command::new(ledger_program());
    command.current_dir(folder).env_clear();
    command.env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// What a daemon is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Folder of sockets and configuration, beside the ledger.
    pub run: String,
    /// Where states lie, if not beside the ledger.
    pub state: Option<PathBuf>,
    /// Lines above all tables.
    pub top: String,
    /// Lines for the writer socket's table: mode, `[[listener.peer]]`.
    pub writer_socket: String,
    /// Lines of `[limits]`.
    pub limits: String,
    /// Lines of `[writer]`.
    pub writer: String,
    /// What `ledger` is run under: `strace` and its arguments.
    pub under: Vec<String>,
}

impl Default for Setup {
    /// Small segments, no reserve: a small disk is no test's business unless it says so.
    fn default() -> Self {
        Self {
            run: "run".to_owned(),
            state: None,
            top: String::new(),
            writer_socket: String::new(),
            limits: String::new(),
            writer: format!(
                "segment_bytes = {}\nreserve_soft_bytes = 0\nreserve_hard_bytes = 0\nzero_fill_bytes = 65536\n",
                ledger_format::limits::SEGMENT_LEN_MIN
            ),
            under: Vec::new(),
        }
    }
}

/// The sockets of a ledger's daemon.
#[derive(Clone, Debug)]
pub struct Sockets {
    /// Role writer.
    pub writer: PathBuf,
    /// Role reader.
    pub reader: PathBuf,
    /// Role operator.
    pub operator: PathBuf,
}

impl Sockets {
    /// Where they are.
    #[must_use]
    pub fn of(test: &TestLedger) -> Self {
        Self::below(&test.scratch(&Setup::default().run))
    }

    fn below(folder: &Path) -> Self {
        let at = |name| folder.join(name);
        Self {
            writer: at("w"),
            reader: at("r"),
            operator: at("o"),
        }
    }

    fn config(&self, setup: &Setup) -> String {
        let listener = |path: &Path, role: &str, more: &str| {
            format!("[[listener]]\npath = {path:?}\nrole = \"{role}\"\n{more}\n")
        };
        setup.top.clone()
            + "\n"
            + &listener(&self.writer, "writer", &setup.writer_socket)
            + &listener(&self.reader, "reader", "")
            + &listener(&self.operator, "operator", "")
            + "[writer]\npayload_classes = [\"30d\"]\n"
            + &setup.writer
            + "\n[limits]\n"
            + &setup.limits
    }
}

/// A running daemon. Dropped, it is killed.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Of `ledger` itself, which may have a parent in between.
    pid: Pid,
    /// Its sockets.
    pub sockets: Sockets,
    log: PathBuf,
}

impl Daemon {
    /// Starts it and waits until it serves.
    ///
    /// # Panics
    /// It does not serve.
    #[must_use]
    #[track_caller]
    pub fn start(test: &TestLedger) -> Self {
        Self::start_with(test, &Setup::default())
    }

    /// The same with settings.
    ///
    /// # Panics
    /// It does not serve.
    #[must_use]
    #[track_caller]
    pub fn start_with(test: &TestLedger, setup: &Setup) -> Self {
        let mut daemon = Self::spawn(test, setup);
        daemon.wait_until_it_serves();
        daemon
    }

    /// Starts it and does not wait.
    ///
    /// # Panics
    /// The program does not start.
    #[must_use]
    #[track_caller]
    pub fn spawn(test: &TestLedger, setup: &Setup) -> Self {
        let sockets = Sockets::below(&test.scratch(&setup.run));
        let config = test.scratch(&format!("{}.toml", setup.run));
        let text = sockets.config(setup);
        // Another daemon may be reading it.
        if fs::read_to_string(&config).ok().as_ref() != Some(&text) {
            fs::write(&config, text).expect("written");
        }
        let log = test.scratch("serve.log");
        let append = File::options().create(true).append(true).open(&log);
        let folder = test.scratch("");
        let program = ledger_program();
        let mut command = ledger(&folder);
        if let Some((wrapper, args)) = setup.under.split_first() {
            let path = std::env::var_os("PATH").unwrap_or_default();
            command = Command::new(wrapper);
            command.args(args).arg(program).current_dir(&folder);
            command.env_clear().env("PATH", path).stdin(Stdio::null());
        }
        command
            .args(["serve", "audit", "--config"])
            .arg(&config)
            .arg("--state")
            .arg(setup.state.as_deref().unwrap_or(Path::new("state")))
            .stdout(Stdio::null())
            .stderr(append.expect("the log"));
        let child = command.spawn().expect("the daemon starts");
        let pid = Pid::from_child(&child);
        Self {
            child,
            pid,
            sockets,
            log,
        }
    }

    /// Waits until somebody listens on the last socket that is made.
    ///
    /// # Panics
    /// It ended, or takes too long.
    #[track_caller]
    pub fn wait_until_it_serves(&mut self) {
        let started = Instant::now();
        while UnixStream::connect(&self.sockets.operator).is_err() {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("{status}: {}", self.log());
            }
            let waited = started.elapsed();
            assert!(waited < START_TIME, "it does not serve: {}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
        self.pid = only_child(self.pid).unwrap_or(self.pid);
    }

    /// Whether it runs still.
    ///
    /// # Panics
    /// It cannot be asked for.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// What it wrote on standard error, all starts together.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to the daemon itself.
    ///
    /// # Panics
    /// It is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }

    /// `kill -9`, and waits for the end.
    ///
    /// # Panics
    /// It was gone already.
    #[track_caller]
    pub fn kill(mut self) {
        let ended = self.child.try_wait().expect("a child");
        assert!(
            ended.is_none(),
            "ended by itself: {ended:?}: {}",
            self.log()
        );
        self.signal(Signal::KILL);
        self.child.wait().expect("it ends");
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Panics
    /// It does not end.
    #[track_caller]
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// It does not end.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(started.elapsed() < STOP_TIME, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGTERM; it must end well.
    ///
    /// # Panics
    /// It does not.
    #[track_caller]
    pub fn stop_well(self) {
        let log = self.log.clone();
        let status = self.stop();
        let log = fs::read_to_string(log).unwrap_or_default();
        assert_eq!(status.code(), Some(0), "{log}");
    }

    /// The status, over the operator socket.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    #[track_caller]
    pub fn status(&self) -> Value {
        http::get(&self.sockets.operator, "/v1/status").json()
    }

    /// Connections that are open now, but for the one that asks.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    #[track_caller]
    pub fn connections(&self) -> u64 {
        let status = self.status();
        let sockets = status["sockets"].as_array().expect("sockets");
        let open = sockets.iter().map(|s| s["connections"].as_u64());
        open.sum::<Option<u64>>().expect("numbers") - 1
    }

    /// Waits until all connections but the one that asks are closed.
    ///
    /// # Panics
    /// They stay open.
    #[track_caller]
    pub fn wait_until_alone(&self) {
        let alone = eventually(Duration::from_secs(20), || self.connections() == 0);
        assert!(alone, "{}", self.status()["sockets"]);
    }

    /// Frames that are synced.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    #[track_caller]
    pub fn frames(&self) -> u64 {
        let head = self.status()["appends"]["head"].as_u64();
        head.expect("a ledger has frames") + 1
    }

    /// A figure of `/proc/PID/status`, such as `VmHWM` (KiB) or `Threads`.
    ///
    /// # Panics
    /// It is not there.
    #[must_use]
    #[track_caller]
    pub fn figure(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid.as_raw_nonzero());
        let text = fs::read_to_string(path).expect("the process");
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        let number = line.and_then(|l| l.trim_matches(':').split_whitespace().next());
        number.and_then(|n| n.parse().ok()).expect("a number")
    }
}

impl Daemon {
    /// Open descriptors; 0 where the daemon, which protects itself, does not show them.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pid.as_raw_nonzero());
        fs::read_dir(folder).map_or(0, Iterator::count)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // A test that failed leaves no process behind; a tracer lets go of its child by itself.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// strace at a daemon that runs, until dropped.
#[derive(Debug)]
pub struct Tracer(Child);

impl Daemon {
    /// Lets strace inject something into its system calls from now on, as `-e inject=`.
    ///
    /// # Panics
    /// It cannot be traced.
    #[must_use]
    pub fn inject(&self, injection: &str) -> Tracer {
        let call = injection.split(':').next().unwrap_or_default();
        let child = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e"])
            .arg(format!("trace={call}"))
            .arg("-e")
            .arg(format!("inject={injection}"))
            .arg("-p")
            .arg(self.pid.as_raw_nonzero().to_string())
            .stdin(Stdio::null())
            .spawn()
            .expect("strace starts");
        // Dropped, also if the wait fails.
        let tracer = Tracer(child);
        let traced = || self.figure("TracerPid") != 0;
        assert!(eventually(Duration::from_secs(10), traced), "not traced");
        // Threads are attached one after the other.
        std::thread::sleep(Duration::from_millis(200));
        tracer
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It lets go of the daemon when it is asked to end.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The only child of a process, if it has one.
fn only_child(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

/// Whether something becomes true in time.
pub fn eventually(time: Duration, mut what: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if what() {
            return true;
        }
        if started.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The receipt in an acknowledgement, which must say the same as the members beside it.
///
/// # Panics
/// It does not.
#[must_use]
#[track_caller]
pub fn receipt_in(acknowledgement: &Value) -> AppendReceipt {
    let text = acknowledgement["receipt"].to_string();
    let receipt = AppendReceipt::parse(&text).unwrap_or_else(|e| panic!("{e}: {acknowledgement}"));
    assert_eq!(acknowledgement["seq"], receipt.seq.0, "{acknowledgement}");
    assert_eq!(acknowledgement["link"], receipt.link.to_hex());
    assert_eq!(acknowledgement["record_id"], receipt.record_id);
    assert_eq!(acknowledgement["appended_at"], receipt.appended_at);
    receipt
}

/// The acknowledgements of an answer: of one record, or of a batch.
///
/// # Panics
/// It is no acknowledgement.
#[must_use]
#[track_caller]
pub fn receipts_in(answer: &http::Answer) -> Vec<AppendReceipt> {
    let json = answer.json();
    assert!([200, 201].contains(&answer.status), "{json}");
    match json["records"].as_array() {
        Some(records) => records.iter().map(receipt_in).collect(),
        None => vec![receipt_in(&json)],
    }
}

/// Opens a connection that is served: an answer has come through it.
///
/// # Panics
/// It is not served.
#[must_use]
#[track_caller]
pub fn served(socket: &Path) -> Connection {
    let mut connection = Connection::open(socket).expect("somebody listens");
    let answer = connection.ask("GET", "/healthz", &[], b"");
    assert_eq!(answer.expect("an answer").status, 200);
    connection
}
