//! A ledger, a daemon on it, and raw HTTP.

use ledger_format::AppendReceipt;
use ledger_server::{
    AppendOutcome, AppendRefusal, Appender, Condition, Facts, Keeper, LedgerState, Limits,
    Listener, Metrics, Parts, PeerRule, Providers, Role, Running, start,
};
use ledger_vault::Identities;
use ledger_verify::{Anchors, Receipts, Request, TrustLine, Verdict};
use ledger_writer::{InitOptions, RetentionClass, init};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

pub(crate) struct Ledger {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) folder: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) trust_line: String,
}

pub(crate) fn ledger() -> Ledger {
    ledger_at(None)
}

/// A new ledger; its folder below `base` where that is given.
pub(crate) fn ledger_at(base: Option<&Path>) -> Ledger {
    let dir = tempfile::tempdir().unwrap();
    let folder = base.unwrap_or(dir.path()).join("audit");
    let state = dir.path().join("state");
    let vault = Identities::generate();
    let options = InitOptions {
        name: "audit.example.com/test".into(),
        vault_recipients: vault.recipients().unwrap(),
        payload_classes: RetentionClass::new("30d").into_iter().collect(),
    };
    let made = init(&folder, &state, &options).unwrap();
    Ledger {
        dir,
        folder,
        state,
        trust_line: made.trust_line,
    }
}

/// How a test's daemon differs from the usual one.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) peers: Vec<PeerRule>,
    pub(crate) appender: Option<Arc<dyn Appender>>,
    pub(crate) writer: Option<ledger_writer::Config>,
    pub(crate) providers: Providers,
    pub(crate) tcp: bool,
}

pub(crate) struct Daemon {
    pub(crate) ledger: Ledger,
    pub(crate) runtime: Runtime,
    running: Option<Running>,
    pub(crate) writer: PathBuf,
    pub(crate) reader: PathBuf,
    pub(crate) operator: PathBuf,
    pub(crate) tcp: Option<std::net::SocketAddr>,
}

pub(crate) fn daemon() -> Daemon {
    daemon_with(Setup::default())
}

pub(crate) fn daemon_with(setup: Setup) -> Daemon {
    daemon_on(ledger(), setup)
}

/// The writer's settings in tests: no reserve, so that small file systems do.
pub(crate) fn writer_config() -> ledger_writer::Config {
    ledger_writer::Config {
        reserve_soft: 0,
        reserve_hard: 0,
        ..ledger_writer::Config::default()
    }
}

pub(crate) fn daemon_on(ledger: Ledger, setup: Setup) -> Daemon {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let metrics = Arc::new(Metrics::default());
    let writer_config = setup.writer.unwrap_or_else(writer_config);
    let appender = setup.appender.unwrap_or_else(|| {
        let opened = Keeper::open(
            &ledger.folder,
            &ledger.state,
            writer_config.clone(),
            metrics.clone(),
        );
        Arc::new(opened.unwrap().0)
    });
    let run = ledger.dir.path().join("run");
    let listener = |name: &str, role, peers| Listener {
        path: run.join(name),
        mode: 0o600,
        group: None,
        role,
        peers,
    };
    let id = ledger
        .trust_line
        .split('+')
        .next()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    let parts = Parts {
        appender,
        providers: setup.providers,
        metrics,
        facts: Facts {
            ledger: ledger.folder.clone(),
            state: ledger.state.join(id),
            name: "audit.example.com/test".into(),
            writer: writer_config,
            started: Instant::now(),
            index_in_memory: None,
        },
        limits: setup.limits,
        drain_time: Duration::from_secs(5),
        listeners: vec![
            listener("w.sock", Role::Writer, setup.peers),
            listener("r.sock", Role::Reader, Vec::new()),
            listener("o.sock", Role::Operator, Vec::new()),
        ],
        handed_over: Vec::new(),
        tcp: setup.tcp.then(|| "127.0.0.1:0".parse().unwrap()),
    };
    let running = runtime.block_on(start(parts)).unwrap();
    Daemon {
        tcp: running.tcp(),
        writer: run.join("w.sock"),
        reader: run.join("r.sock"),
        operator: run.join("o.sock"),
        ledger,
        runtime,
        running: Some(running),
    }
}

impl Daemon {
    pub(crate) fn stop(&mut self) -> Result<(), AppendRefusal> {
        let running = self.running.take().unwrap();
        self.runtime.block_on(running.stop())
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.running.as_ref().unwrap().app().metrics
    }

    pub(crate) fn expect_verified(&self, receipts: &[AppendReceipt]) {
        expect_verified(&self.ledger, receipts);
    }
}

/// The keyless verifier finds the folder whole under the trust line, and every receipt kept.
#[track_caller]
pub(crate) fn expect_verified(ledger: &Ledger, receipts: &[AppendReceipt]) {
    let lines: String = receipts.iter().map(|r| r.to_json() + "\n").collect();
    let mut request = Request::new(&ledger.folder);
    request.anchors = Anchors {
        trust: Some(TrustLine::parse(&ledger.trust_line, "test").unwrap()),
        checkpoints: Vec::new(),
        receipts: Receipts::read(lines.as_bytes()).unwrap(),
    };
    request.now = ledger_writer::clock();
    let report = ledger_verify::verify(&request, &|_| {}).unwrap().report;
    assert_eq!(
        report.verdict,
        Verdict::Verified,
        "{}: {:#?}",
        report.headline,
        report.findings
    );
    assert_eq!(report.continuity.receipts.kept, receipts.len() as u64);
}

/// The receipt of an acknowledgement.
pub(crate) fn receipt(acknowledgement: &Value) -> AppendReceipt {
    AppendReceipt::parse(&acknowledgement["receipt"].to_string()).unwrap()
}

/// A record as a client sends it.
pub(crate) fn record(id: &str) -> String {
    format!(
        r#"{{"type":"remote_ref","record_id":"{id}","action_id":"act_1","attempt_id":"out_1","provider":"builds.example.com","remote_operation_id":"op_{id}","observed_at":"2026-11-30T14:03:07Z"}}"#
    )
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn code(&self) -> String {
        assert!(
            self.head.contains("application/problem+json"),
            "{}",
            self.head
        );
        let json = self.json();
        assert_eq!(json["status"], self.status);
        json["code"].as_str().unwrap().to_owned()
    }
}

/// One request on a connection of its own.
pub(crate) fn http(socket: &Path, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: ledger\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    let mut copy = stream.try_clone().unwrap();
    // Beside the reading: a daemon that refuses does not read everything.
    let sender = std::thread::spawn(move || {
        let _ = copy.write_all(&request);
    });
    let answer = read_answer(&mut stream);
    drop(stream);
    sender.join().unwrap();
    answer
}

/// Reads an answer up to the end of the connection.
pub(crate) fn read_answer(stream: &mut UnixStream) -> Answer {
    let mut bytes = Vec::new();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // A reset behind the answer is how a refusal of an unread body ends.
    let _ = stream.read_to_end(&mut bytes);
    let at = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let at = at.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = bytes[at + 4..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    Answer { status, head, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(at) = rest.windows(2).position(|w| w == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if len == 0 || rest.len() < at + 2 + len {
            break;
        }
        out.extend_from_slice(&rest[at + 2..at + 2 + len]);
        rest = rest.get(at + 2 + len + 2..).unwrap_or_default();
    }
    out
}

pub(crate) fn post(socket: &Path, body: &str) -> Answer {
    http(
        socket,
        "POST",
        "/v1/records",
        "content-type: application/json\r\n",
        body.as_bytes(),
    )
}

pub(crate) fn get(socket: &Path, path: &str) -> Answer {
    http(socket, "GET", path, "", b"")
}

/// A writer that answers what it is told to.
pub(crate) struct Fake {
    pub(crate) answer: Box<dyn Fn(usize) -> Result<AppendOutcome, AppendRefusal> + Send + Sync>,
    pub(crate) condition: Condition,
}

impl Appender for Fake {
    fn append_each(
        &self,
        requests: Vec<Vec<ledger_records::Submission>>,
        _: ledger_records::Attested,
    ) -> Vec<Result<AppendOutcome, AppendRefusal>> {
        requests.iter().map(|r| (self.answer)(r.len())).collect()
    }

    fn checkpoint(&self) -> Result<String, AppendRefusal> {
        Err(AppendRefusal::Stopped("fake".into()))
    }

    fn state(&self) -> LedgerState {
        LedgerState {
            frames: 0,
            link: ledger_format::Link::ZERO,
            checkpoint: String::new(),
            condition: self.condition.clone(),
        }
    }

    fn close(&self) -> Result<(), AppendRefusal> {
        Ok(())
    }
}
