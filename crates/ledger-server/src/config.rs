//! The daemon's configuration: TOML, checked whole before anything is opened.
//!
//! Not where defaults depend on the ledger: without a `[[listener]]` the sockets are made in the
//! ledger's runtime folder, see `places`.

use crate::names::{group_id, user_id};
use ledger_records::RecordType;
use ledger_records::limits::SUBMISSION_LEN_MAX;
use ledger_writer::{REQUEST_RECORDS_MAX, RetentionClass};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// A socket's address has room for 108 bytes with its end; `.new` is added while it is made.
pub const SOCKET_PATH_LEN_MAX: usize = 108 - 1 - ".new".len();
/// Fewer bytes and hyper cannot read a request line.
const HEADER_LEN_MIN: u64 = 8 << 10;

/// What a listener offers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Appends and checkpoints.
    Writer,
    /// Looks up records and traces, reads checkpoints, status and metrics.
    Reader,
    /// Everything.
    Operator,
    /// Health and metrics only; what the TCP listener has.
    #[serde(skip)]
    Metrics,
}

impl Role {
    /// The name in the configuration, in logs and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Metrics => "metrics",
        }
    }
}

/// What one user or group may append. One of both is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerRule {
    /// The user.
    pub uid: Option<u32>,
    /// The peer's group at the moment it connected.
    pub gid: Option<u32>,
    /// The record types; all if none.
    pub types: Option<Vec<RecordType>>,
}

/// One unix socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Where it is made.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
    /// Its group, if not the daemon's.
    pub group: Option<u32>,
    /// What it offers.
    pub role: Role,
    /// Who may use it; everybody whom `mode` lets through if empty.
    pub peers: Vec<PeerRule>,
}

/// What is refused before it is read, and how long is waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of one request's body, or of one line of a stream.
    pub body_len: u64,
    /// Bytes of bodies under way in all connections together; those up to 64 KiB are not counted.
    pub inflight_len: u64,
    /// Records of one batch.
    pub batch_records: usize,
    /// Connections of one socket.
    pub connections: usize,
    /// Bytes of a request's line and headers that are waited for; up to twice as many are taken
    /// when they are there at once.
    pub header_len: u64,
    /// Time for a request's line and headers, from their first byte.
    pub header_time: Duration,
    /// Time for a body; for a stream, time between two pieces of it.
    pub body_time: Duration,
    /// Time that a connection may be open between two requests.
    pub idle_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_len: SUBMISSION_LEN_MAX as u64,
            inflight_len: 96 << 20,
            batch_records: REQUEST_RECORDS_MAX,
            connections: 256,
            header_len: 32 << 10,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(300),
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Everything that an operator may set.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where states lie, if not as `ledger init` chose.
    pub state: Option<PathBuf>,
    /// The sockets; none means the two defaults.
    pub listeners: Vec<Listener>,
    /// Health and metrics over loopback TCP.
    pub tcp: Option<SocketAddr>,
    /// Bounds.
    pub limits: Limits,
    /// The append path.
    pub writer: ledger_writer::Config,
    /// How long a stop waits for requests under way.
    pub drain_time: Duration,
    /// How log lines look.
    pub log: LogFormat,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state: None,
            listeners: Vec::new(),
            tcp: None,
            limits: Limits::default(),
            writer: ledger_writer::Config::default(),
            drain_time: Duration::from_secs(20),
            log: LogFormat::default(),
        }
    }
}

/// What is wrong with a configuration: every fault, one a line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigErrors(pub Vec<String>);

impl Config {
    /// Reads and checks a configuration file's text.
    ///
    /// # Errors
    /// Every fault that can be told apart: what does not parse ends the reading.
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        let file: File = toml::from_str(text).map_err(|e| ConfigErrors(vec![e.to_string()]))?;
        let mut faults = Vec::new();
        let config = file.into_config(&mut faults);
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(ConfigErrors(faults))
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    state: Option<PathBuf>,
    listener: Vec<ListenerTable>,
    tcp: Option<SocketAddr>,
    limits: LimitsTable,
    writer: WriterTable,
    drain_time_ms: Option<u64>,
    log: LogFormat,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenerTable {
    path: PathBuf,
    role: Role,
    mode: Option<String>,
    group: Option<Name>,
    #[serde(default)]
    peer: Vec<PeerTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerTable {
    user: Option<Name>,
    group: Option<Name>,
    types: Option<Vec<String>>,
}

/// A user or group by number or name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Id(u32),
    Name(String),
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LimitsTable {
    body_bytes: Option<u64>,
    inflight_bytes: Option<u64>,
    batch_records: Option<u64>,
    connections: Option<u64>,
    header_bytes: Option<u64>,
    header_time_ms: Option<u64>,
    body_time_ms: Option<u64>,
    idle_time_ms: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WriterTable {
    segment_bytes: Option<u64>,
    segment_age_ms: Option<u64>,
    checkpoint_frames: Option<u64>,
    checkpoint_delay_ms: Option<u64>,
    checkpoint_idle_ms: Option<u64>,
    payload_classes: Option<Vec<String>>,
    reserve_soft_bytes: Option<u64>,
    reserve_hard_bytes: Option<u64>,
    zero_fill_bytes: Option<u64>,
}

impl File {
    fn into_config(self, faults: &mut Vec<String>) -> Config {
        let mut listeners = Vec::with_capacity(self.listener.len());
        for (i, table) in self.listener.into_iter().enumerate() {
            let place = format!("listener {}", i + 1);
            listeners.push(table.into_listener(&place, faults));
        }
        let paths: BTreeSet<_> = listeners.iter().map(|l| &l.path).collect();
        if paths.len() < listeners.len() {
            faults.push("listener: two of them have the same path".to_owned());
        }
        if let Some(address) = self.tcp.filter(|a| !a.ip().is_loopback()) {
            faults.push(format!(
                "tcp: expected an address of this machine only, such as 127.0.0.1:9464, found {address}"
            ));
        }
        let drain_time = millis("drain_time_ms", self.drain_time_ms, 0, 600_000, faults)
            .unwrap_or(Config::default().drain_time);
        Config {
            state: self.state,
            listeners,
            tcp: self.tcp,
            limits: self.limits.into_limits(faults),
            writer: self.writer.into_writer(faults),
            drain_time,
            log: self.log,
        }
    }
}

impl ListenerTable {
    fn into_listener(self, place: &str, faults: &mut Vec<String>) -> Listener {
        let len = self.path.as_os_str().len();
        if !self.path.is_absolute() || len > SOCKET_PATH_LEN_MAX {
            faults.push(format!(
                "{place}: path: expected an absolute path of at most {SOCKET_PATH_LEN_MAX} bytes, found {:?}",
                self.path
            ));
        }
        let default_mode = if self.role == Role::Operator {
            0o600
        } else {
            0o660
        };
        let mode = match &self.mode {
            None => default_mode,
            Some(text) => parse_mode(text).unwrap_or_else(|| {
                faults.push(format!(
                    "{place}: mode: expected three octal digits such as \"0660\", found {text:?}"
                ));
                default_mode
            }),
        };
        let group = self
            .group
            .and_then(|n| n.resolve("group", group_id, place, faults));
        let peers =
            self.peer.into_iter().enumerate().filter_map(|(i, peer)| {
                peer.into_rule(&format!("{place}: peer {}", i + 1), faults)
            });
        Listener {
            path: self.path,
            mode,
            group,
            role: self.role,
            peers: peers.collect(),
        }
    }
}

impl PeerTable {
    fn into_rule(self, place: &str, faults: &mut Vec<String>) -> Option<PeerRule> {
        if self.user.is_some() == self.group.is_some() {
            faults.push(format!("{place}: expected either `user` or `group`"));
            return None;
        }
        let types = self.types.map(|names| {
            let found = names.iter().filter_map(|name| {
                let found = RecordType::from_name(name);
                if found.is_none() {
                    faults.push(format!("{place}: types: {name:?} is no record type"));
                }
                found
            });
            found.collect()
        });
        let uid = self.user.map(|n| n.resolve("user", user_id, place, faults));
        let gid = self
            .group
            .map(|n| n.resolve("group", group_id, place, faults));
        // A name that is not known must not become a rule for everybody.
        if uid == Some(None) || gid == Some(None) {
            return None;
        }
        Some(PeerRule {
            uid: uid.flatten(),
            gid: gid.flatten(),
            types,
        })
    }
}

impl Name {
    fn resolve(
        self,
        what: &str,
        look_up: fn(&str) -> Option<u32>,
        place: &str,
        faults: &mut Vec<String>,
    ) -> Option<u32> {
        match self {
            Self::Id(id) => Some(id),
            Self::Name(name) => {
                let found = look_up(&name);
                if found.is_none() {
                    faults.push(format!("{place}: this machine has no {what} {name:?}"));
                }
                found
            }
        }
    }
}

impl LimitsTable {
    fn into_limits(self, faults: &mut Vec<String>) -> Limits {
        let d = Limits::default();
        let gib = 1 << 30;
        let body_len = within(
            "limits.body_bytes",
            self.body_bytes,
            1 << 10,
            d.body_len,
            faults,
        )
        .unwrap_or(d.body_len);
        let inflight = within(
            "limits.inflight_bytes",
            self.inflight_bytes,
            body_len,
            4 * gib,
            faults,
        );
        let batch = within(
            "limits.batch_records",
            self.batch_records,
            1,
            d.batch_records as u64,
            faults,
        );
        let connections = within("limits.connections", self.connections, 1, 4096, faults);
        let header = within(
            "limits.header_bytes",
            self.header_bytes,
            HEADER_LEN_MIN,
            1 << 20,
            faults,
        );
        let time =
            |name, value, faults: &mut Vec<String>| millis(name, value, 10, 86_400_000, faults);
        Limits {
            body_len,
            inflight_len: inflight.unwrap_or(d.inflight_len.max(body_len)),
            batch_records: batch.map_or(d.batch_records, size),
            connections: connections.map_or(d.connections, size),
            header_len: header.unwrap_or(d.header_len),
            header_time: time("limits.header_time_ms", self.header_time_ms, faults)
                .unwrap_or(d.header_time),
            body_time: time("limits.body_time_ms", self.body_time_ms, faults)
                .unwrap_or(d.body_time),
            idle_time: time("limits.idle_time_ms", self.idle_time_ms, faults)
                .unwrap_or(d.idle_time),
        }
    }
}

impl WriterTable {
    fn into_writer(self, faults: &mut Vec<String>) -> ledger_writer::Config {
        let d = ledger_writer::Config::default();
        let classes = self.payload_classes.map(|names| {
            let found = names
                .iter()
                .filter_map(|name| match RetentionClass::new(name) {
                    Ok(class) => Some(class),
                    Err(e) => {
                        faults.push(format!("writer.payload_classes: {e}"));
                        None
                    }
                });
            found.collect()
        });
        let time = |value: Option<u64>, default| value.map_or(default, Duration::from_millis);
        let config = ledger_writer::Config {
            segment_len: self.segment_bytes.unwrap_or(d.segment_len),
            segment_age: time(self.segment_age_ms, d.segment_age),
            checkpoint_frames: self.checkpoint_frames.unwrap_or(d.checkpoint_frames),
            checkpoint_delay: time(self.checkpoint_delay_ms, d.checkpoint_delay),
            checkpoint_idle: time(self.checkpoint_idle_ms, d.checkpoint_idle),
            payload_classes: classes.unwrap_or(d.payload_classes),
            reserve_soft: self.reserve_soft_bytes.unwrap_or(d.reserve_soft),
            reserve_hard: self.reserve_hard_bytes.unwrap_or(d.reserve_hard),
            zero_fill: self.zero_fill_bytes.unwrap_or(d.zero_fill),
            // Records that are sent again must be recognised.
            index: true,
        };
        if let Err(e) = config.check() {
            faults.push(format!("writer: {e}"));
        }
        config
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn within(
    name: &str,
    value: Option<u64>,
    min: u64,
    max: u64,
    faults: &mut Vec<String>,
) -> Option<u64> {
    let found = value?;
    if (min..=max).contains(&found) {
        return Some(found);
    }
    faults.push(format!("{name}: expected {min} to {max}, found {found}"));
    None
}

fn millis(
    name: &str,
    value: Option<u64>,
    min: u64,
    max: u64,
    faults: &mut Vec<String>,
) -> Option<Duration> {
    within(name, value, min, max, faults).map(Duration::from_millis)
}

/// Permission bits in octal; only those a socket can have.
fn parse_mode(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok()?;
    (digits.len() >= 3 && mode <= 0o777).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        state = "/var/lib/ledger-state"
        tcp = "127.0.0.1:9464"
        log = "json"
        drain_time_ms = 5000
        [[listener]]
        path = "/run/ledger/w.sock"
        role = "writer"
        mode = "0620"
        group = 12
        [[listener.peer]]
        user = "root"
        [[listener.peer]]
        group = 7
        types = ["run", "action"]
        [[listener]]
        path = "/run/ledger/o.sock"
        role = "operator"
        [limits]
        connections = 8
        idle_time_ms = 100
        [writer]
        payload_classes = ["30d", "90d"]
        checkpoint_delay_ms = 500
    "#;

    #[test]
    fn a_whole_file_is_read() {
        let config = Config::parse(WHOLE).unwrap();
        let [writer, operator] = &config.listeners[..] else {
            panic!("{config:?}")
        };
        assert_eq!((writer.mode, writer.group), (0o620, Some(12)));
        assert_eq!(writer.peers[0].uid, Some(0));
        let types = writer.peers[1].types.as_deref();
        assert_eq!(types, Some(&[RecordType::Run, RecordType::Action][..]));
        assert_eq!((operator.mode, operator.role), (0o600, Role::Operator));
        assert_eq!(config.limits.connections, 8);
        assert_eq!(config.limits.idle_time, Duration::from_millis(100));
        assert_eq!(config.writer.payload_classes.len(), 2);
        assert_eq!(config.log, LogFormat::Json);
        assert!(Config::parse("").unwrap().listeners.is_empty());
    }

    #[test]
    fn every_fault_is_named_with_its_place() {
        let bad = r#"
            tcp = "0.0.0.0:80"
            [[listener]]
            path = "relative.sock"
            role = "writer"
            mode = "999"
            group = "no-such-group"
            [[listener.peer]]
            user = "no-such-user"
            [[listener.peer]]
            types = ["runs"]
            [limits]
            connections = 0
            [writer]
            segment_bytes = 5
            payload_classes = ["body"]
        "#;
        let ConfigErrors(faults) = Config::parse(bad).unwrap_err();
        for part in [
            "tcp:",
            "listener 1: path",
            "listener 1: mode",
            "no group \"no-such-group\"",
            "no user \"no-such-user\"",
            "peer 2: expected either",
            "limits.connections: expected 1",
            "writer: setting segment_len",
            "payload_classes",
        ] {
            assert!(
                faults.iter().any(|f| f.contains(part)),
                "{part}: {faults:#?}"
            );
        }
        let unknown = Config::parse("[limit]\nx = 1").unwrap_err().to_string();
        assert!(unknown.contains("unknown field"), "{unknown}");
        let role = "[[listener]]\npath='/a'\nrole='metrics'";
        assert!(
            Config::parse(role).is_err(),
            "metrics is the TCP listener's role only"
        );
    }
}
