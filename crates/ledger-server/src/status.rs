//! How the daemon is doing: the model behind `GET /v1/status` and `ledger status`, and its text.
//!
//! Figures come from the writer, the counters and the folder; what cannot be read is left out, never
//! guessed. Not a judgement of the chain: that is the verifier's.

use crate::api::App;
use crate::appender::Condition;
use crate::disk;
use crate::metrics::Readings;
use ledger_format::limits::FORMAT_VERSION;
use ledger_format::{Checkpoint, UnixMillis};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use utoipa::ToSchema;

/// Refusals of unmapped peers older than this are no longer pointed out, milliseconds.
const UNMAPPED_SHOWN_MS: u64 = 24 * 60 * 60 * 1000;

/// What does not change while the daemon runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The ledger's folder.
    pub ledger: PathBuf,
    /// Its state folder, the one named by the ledger id.
    pub state: PathBuf,
    /// NAME.
    pub name: String,
    /// The writer's settings, for what is due when.
    pub writer: ledger_writer::Config,
    /// When the daemon was started.
    pub started: Instant,
    /// Why the identifier index is kept in memory only, if it was at the start.
    pub index_in_memory: Option<String>,
}

/// Whether appends are taken, and whether all is well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All is well.
    Ready,
    /// Appends are taken, and something needs a look.
    Degraded,
    /// Appends are refused.
    NotAccepting,
}

impl Health {
    /// The exit code of `ledger status`; 3 is for a daemon that is not reached.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Degraded => 1,
            Self::NotAccepting => 2,
        }
    }
}

/// The figures of one daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatusReport {
    /// NAME.
    pub name: String,
    /// Its origin now, from the newest checkpoint.
    pub origin: String,
    /// Whether all is well.
    pub health: Health,
    /// Seconds since the start.
    pub up_s: u64,
    /// The program's version.
    pub version: String,
    /// The format's.
    pub format: u64,
    /// The ledger's folder.
    pub folder: String,
    /// Appends.
    pub appends: Appends,
    /// The newest checkpoint.
    pub checkpoint: CheckpointStatus,
    /// The last segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<SegmentStatus>,
    /// The ledger's disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStatus>,
    /// Who can read the evidence, as the ledger's own list names them.
    pub readers: Vec<String>,
    /// The sockets.
    pub sockets: Vec<SocketStatus>,
    /// What needs a look.
    pub attention: Vec<Attention>,
}

/// Appends since the start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Appends {
    /// Records appended.
    pub records: u64,
    /// Records a second, on average since the start.
    pub records_per_s: f64,
    /// Milliseconds since the last acknowledgement; none before the first.
    pub last_ms_ago: Option<u64>,
    /// Number of the last synced frame.
    pub head: Option<u64>,
    /// Median time to the acknowledgement, milliseconds.
    pub ack_p50_ms: Option<f64>,
    /// The time that 99 of 100 stay below, milliseconds.
    pub ack_p99_ms: Option<f64>,
    /// Requests that wait for the writer.
    pub queue: u64,
    /// Requests that were in the ledger already.
    pub duplicates: u64,
    /// Requests whose record id has other content.
    pub conflicts: u64,
    /// Requests refused.
    pub refused: u64,
    /// Failures of the writer.
    pub faults: u64,
}

/// The newest checkpoint and the floor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckpointStatus {
    /// Frames that it covers.
    pub size: u64,
    /// Milliseconds since it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Size of the floor in the state folder; none if it cannot be read.
    pub floor: Option<u64>,
    /// Whether the floor lies on another disk than the ledger.
    pub floor_apart: Option<bool>,
}

/// The last segment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SegmentStatus {
    /// Segments in all.
    pub count: u64,
    /// Number of its first frame.
    pub first: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes at which it closes.
    pub bytes_max: u64,
    /// Seconds until it closes by age.
    pub closes_in_s: Option<u64>,
}

/// The ledger's disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskStatus {
    /// Bytes that are free.
    pub free: u64,
    /// Raw bodies are refused below this.
    pub payloads_below: u64,
    /// All appends are refused below this.
    pub appends_below: u64,
}

/// One socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SocketStatus {
    /// Its path or address.
    pub name: String,
    /// What it offers.
    pub role: String,
    /// Connections now.
    pub connections: u64,
}

/// Something that needs a look.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Attention {
    /// A stable code; [`explain`] says more.
    pub code: String,
    /// What it is, in a sentence.
    pub text: String,
}

/// Codes of what needs a look, and what to do about it.
pub const EXPLANATIONS: &[(&str, &str)] = &[
    (
        "W001",
        "A write or sync failed, and nothing is acknowledged until the ledger is opened anew. A failed sync is never tried again, because the system may have dropped what it could not write. Look at the disk and the system log, then restart the daemon: opening is recovery, and every acknowledged record is kept.",
    ),
    (
        "W002",
        "The ledger's disk is full or down to its reserve. Appends are refused with 507 and reads go on. Free some space: the daemon goes on by itself. The reserve is kept for recovery and for closing the segment; do not lower it to win room.",
    ),
    (
        "W003",
        "Raw bodies are refused: less than the soft reserve is free. Records without a body are still taken. Free some space, or end the retention of old bodies.",
    ),
    (
        "W004",
        "The identifier index could not be opened or written when the daemon was started, so it is kept in memory until the next start. Appends go on and records that are sent again are recognised; traces and skeletons are refused with index_unavailable. Look at the reason and at the ledger's folder, then restart the daemon or run `ledger index rebuild`: the index is made from the frames again.",
    ),
    (
        "W017",
        "A peer was refused because neither its uid nor its gid has an entry in the socket's map. uid 65534 usually means a user namespace that does not map the peer's user here: name the uid as this host sees it in [[listener.peer]].",
    ),
];

/// What a code of [`Attention`] means and what to do.
#[must_use]
pub fn explain(code: &str) -> Option<&'static str> {
    EXPLANATIONS
        .iter()
        .find(|(c, _)| *c == code)
        .map(|(_, text)| *text)
}

/// What is read from disk and writer for a scrape. Blocks.
pub(crate) fn readings(app: &App) -> Readings {
    let state = app.appender.state();
    let facts = &app.facts;
    Readings {
        frames: state.frames,
        checkpoint_size: Checkpoint::parse(state.checkpoint.as_bytes()).map_or(0, |c| c.size),
        floor_size: disk::floor_size(&facts.state).unwrap_or(0),
        segment_bytes: disk::last_segment(&facts.ledger).map_or(0, |s| s.bytes),
        free_bytes: disk::free_bytes(&facts.ledger).unwrap_or(0),
        accepting: state.condition == Condition::Accepting,
    }
}

/// All figures. Blocks on the disk, never on a sync.
#[must_use]
pub fn report(app: &App) -> StatusReport {
    let state = app.appender.state();
    let facts = &app.facts;
    let checkpoint = Checkpoint::parse(state.checkpoint.as_bytes()).ok();
    let disk = disk::free_bytes(&facts.ledger).ok().map(|free| DiskStatus {
        free,
        payloads_below: facts.writer.reserve_soft,
        appends_below: facts.writer.reserve_hard,
    });
    let checkpoint_status = CheckpointStatus {
        size: checkpoint.as_ref().map_or(0, |c| c.size),
        age_ms: disk::checkpoint_age_ms(&facts.ledger),
        floor: disk::floor_size(&facts.state).ok(),
        floor_apart: disk::on_different_disks(&facts.ledger, &facts.state).ok(),
    };
    let attention = attention(app, &state.condition, disk.as_ref());
    let low = disk.as_ref().is_some_and(|d| d.free < d.appends_below);
    let health = match (&state.condition, attention.is_empty()) {
        (Condition::Accepting, _) if low => Health::NotAccepting,
        (Condition::Accepting, true) => Health::Ready,
        (Condition::Accepting, false) => Health::Degraded,
        _ => Health::NotAccepting,
    };
    StatusReport {
        name: facts.name.clone(),
        origin: checkpoint.map(|c| c.origin.to_string()).unwrap_or_default(),
        health,
        up_s: facts.started.elapsed().as_secs(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        format: FORMAT_VERSION,
        folder: facts.ledger.display().to_string(),
        appends: appends(app, state.frames),
        checkpoint: checkpoint_status,
        segment: segment(app),
        disk,
        readers: disk::readers(&facts.ledger),
        sockets: sockets(app),
        attention,
    }
}

fn appends(app: &App, frames: u64) -> Appends {
    let m = &app.metrics;
    let records = m.records.load(Relaxed);
    let up = app.facts.started.elapsed().as_secs_f64().max(0.001);
    let last = m.last_append_ms.load(Relaxed);
    let ms = |share| m.ack.quantile(share).map(|d| d.as_secs_f64() * 1e3);
    let refused = crate::problem::Code::ALL
        .iter()
        .map(|c| m.refusals.of(*c))
        .sum();
    Appends {
        records,
        records_per_s: records as f64 / up,
        last_ms_ago: (last > 0).then(|| ledger_writer::clock().0.saturating_sub(last)),
        head: frames.checked_sub(1),
        ack_p50_ms: ms(0.5),
        ack_p99_ms: ms(0.99),
        queue: u64::try_from(m.queue.load(Relaxed)).unwrap_or(0),
        duplicates: m.duplicates.load(Relaxed),
        conflicts: m.conflicts.load(Relaxed),
        refused,
        faults: m.faults.load(Relaxed),
    }
}

fn segment(app: &App) -> Option<SegmentStatus> {
    let last = disk::last_segment(&app.facts.ledger).ok()?;
    let writer = &app.facts.writer;
    let closes_in_s = last.opened_at.map(|opened| {
        let age = ledger_writer::clock().0.saturating_sub(opened.0) / 1000;
        writer.segment_age.as_secs().saturating_sub(age)
    });
    Some(SegmentStatus {
        count: last.count as u64,
        first: last.first.0,
        bytes: last.bytes,
        bytes_max: writer.segment_len,
        closes_in_s,
    })
}

fn sockets(app: &App) -> Vec<SocketStatus> {
    let sockets = app.sockets.iter().map(|s| SocketStatus {
        name: s.name.clone(),
        role: s.role.to_owned(),
        connections: u64::try_from(s.open.load(Relaxed)).unwrap_or(0),
    });
    sockets.collect()
}

fn attention(app: &App, condition: &Condition, disk: Option<&DiskStatus>) -> Vec<Attention> {
    let mut found = Vec::new();
    let mut say = |code: &str, text: String| {
        let code = code.to_owned();
        found.push(Attention { code, text });
    };
    match condition {
        Condition::Accepting => {}
        Condition::Stopped(why) => say("W001", format!("no appends: {why}")),
        Condition::DiskFull(why) => say("W002", format!("no appends, the disk is full: {why}")),
        Condition::Closed => say("W001", "the ledger is closed".to_owned()),
    }
    if let Some(d) = disk.filter(|_| *condition == Condition::Accepting) {
        if d.free < d.appends_below {
            say(
                "W002",
                format!("{} are free: all appends are refused", bytes(d.free)),
            );
        } else if d.free < d.payloads_below {
            say(
                "W003",
                format!("{} are free: raw bodies are refused", bytes(d.free)),
            );
        }
    }
    if let Some(why) = &app.facts.index_in_memory {
        say(
            "W004",
            format!("the identifier index is kept in memory only: {why}"),
        );
    }
    let m = &app.metrics;
    let last = m.last_unmapped_ms.load(Relaxed);
    if last > 0 && ledger_writer::clock().0.saturating_sub(last) < UNMAPPED_SHOWN_MS {
        let count = m.refusals.of(crate::problem::Code::PeerNotMapped);
        let uid = m.last_unmapped_uid.load(Relaxed);
        let at = UnixMillis(last).to_rfc3339();
        say(
            "W017",
            format!("{count} requests refused, the last {at}: peer uid {uid} is not mapped"),
        );
    }
    found
}

/// Bytes in the greatest unit of three digits.
fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return format!("{value:.0} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// Seconds in the two greatest units.
fn span(seconds: u64) -> String {
    let (d, h, m) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, m) => format!("{m} min {} s", seconds % 60),
        (0, h, m) => format!("{h} h {m} min"),
        (d, h, _) => format!("{d} d {h} h"),
    }
}

impl StatusReport {
    /// The report for a terminal, one line a subject.
    #[must_use]
    pub fn render(&self) -> String {
        let health = match self.health {
            Health::Ready => "READY",
            Health::Degraded => "DEGRADED",
            Health::NotAccepting => "NOT ACCEPTING APPENDS",
        };
        // NAME is a host name and a path as a rule; its last part is what people call the ledger.
        let short = self.name.rsplit('/').next().unwrap_or(&self.name);
        let mut out = format!(
            "{short}  {health}  up {}  v{}, format {}  {}  {}\n",
            span(self.up_s),
            self.version,
            self.format,
            self.folder,
            self.name
        );
        let mut line = |name: &str, text: String| out.push_str(&format!("  {name:<12} {text}\n"));
        line("appends", self.appends.render());
        line("checkpoint", self.checkpoint.render());
        if let Some(s) = &self.segment {
            let closes = s.closes_in_s.map(|s| format!(", closes in {}", span(s)));
            let (bytes, max) = (bytes(s.bytes), bytes(s.bytes_max));
            let text = format!(
                "{}, {bytes} of {max}{}",
                s.count,
                closes.unwrap_or_default()
            );
            line("segment", text);
        }
        if let Some(d) = &self.disk {
            let text = format!(
                "{} free; bodies refused below {}, all appends below {}",
                bytes(d.free),
                bytes(d.payloads_below),
                bytes(d.appends_below)
            );
            line("disk", text);
        }
        if !self.readers.is_empty() {
            line("readers", self.readers.join(", "));
        }
        let sockets = self.sockets.iter().map(SocketStatus::render);
        line("sockets", sockets.collect::<Vec<_>>().join("; "));
        if !self.attention.is_empty() {
            out.push_str("ATTENTION\n");
            for a in &self.attention {
                out.push_str(&format!(
                    "  {}  {}   ledger explain {}\n",
                    a.code, a.text, a.code
                ));
            }
        }
        out
    }
}

impl Appends {
    fn render(&self) -> String {
        let last = self
            .last_ms_ago
            .map_or("none since the start".to_owned(), |ms| {
                format!("last {} ago", span(ms / 1000))
            });
        let head = self
            .head
            .map(|h| format!(", head frame {h}"))
            .unwrap_or_default();
        let ack = self.ack_p50_ms.zip(self.ack_p99_ms);
        let ack = ack.map(|(p50, p99)| format!("; ack p50 {p50:.1} ms p99 {p99:.1} ms"));
        format!(
            "{:.1}/s, {last}{head}{}; queue {}; duplicates {}; conflicts {}; refused {}; faults {}",
            self.records_per_s,
            ack.unwrap_or_default(),
            self.queue,
            self.duplicates,
            self.conflicts,
            self.refused,
            self.faults
        )
    }
}

impl SocketStatus {
    fn render(&self) -> String {
        let name = self.name.rsplit('/').next().unwrap_or(&self.name);
        let clients = if self.connections == 1 {
            "client"
        } else {
            "clients"
        };
        format!("{name} ({}) {} {clients}", self.role, self.connections)
    }
}

impl CheckpointStatus {
    fn render(&self) -> String {
        let floor = self
            .floor
            .map_or("floor not readable".to_owned(), |f| format!("floor {f}"));
        let place = match self.floor_apart {
            Some(true) => " on another disk",
            Some(false) => " on the ledger's own disk",
            None => "",
        };
        let age = self.age_ms.map(|ms| match ms {
            0..10_000 => format!(", {}.{} s ago", ms / 1000, ms % 1000 / 100),
            _ => format!(", {} ago", span(ms / 1000)),
        });
        format!("{}{}; {floor}{place}", self.size, age.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_bytes() {
        assert_eq!(span(59), "59 s");
        assert_eq!(span(61), "1 min 1 s");
        assert_eq!(span(2 * 86_400 + 12 * 3_600), "2 d 12 h");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(41_000_000_000), "41 GB");
        assert_eq!(bytes(2_500_000_000_000), "2.5 TB");
    }

    #[test]
    fn codes_are_explained() {
        for code in ["W001", "W002", "W003", "W004", "W017"] {
            assert!(explain(code).is_some(), "{code}");
        }
        assert_eq!(explain("W999"), None);
    }
}
