//! What the daemon counts, and the text format in which it is scraped.
//!
//! All figures are atomics, so that an append costs a few additions and a scrape stops nobody. Not
//! the status page: that is `status`, made from the same figures.

use crate::problem::Code;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the latency histogram, in microseconds: about three a decade, from below a
/// fast disk's sync to a disk that hangs.
const BOUNDS_US: [u64; 18] = [
    50, 100, 200, 500, 1_000, 2_000, 3_500, 5_000, 7_500, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 5_000_000, 30_000_000,
];

/// A histogram of durations.
#[derive(Debug)]
pub struct Latency {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_us: AtomicU64::new(0),
        }
    }
}

impl Latency {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[at].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }

    /// The duration below which this share of them lies, by linear interpolation in its bucket;
    /// none before the first.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * total as f64;
        let mut below = 0.0;
        for (i, count) in counts.iter().enumerate() {
            let count = *count as f64;
            if below + count >= wanted && count > 0.0 {
                let low = i.checked_sub(1).map_or(0, |i| BOUNDS_US[i]);
                let high = BOUNDS_US.get(i).copied().unwrap_or(low);
                let within = (wanted - below) / count;
                let us = low as f64 + within * (high - low) as f64;
                return Some(Duration::from_secs_f64(us / 1e6));
            }
            below += count;
        }
        None
    }
}

/// Refusals by code.
#[derive(Debug)]
pub struct Refusals(Vec<AtomicU64>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Code::ALL.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

impl Refusals {
    /// Counts one.
    pub fn count(&self, code: Code) {
        if let Some(counter) = self.0.get(code as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// How many had this code.
    #[must_use]
    pub fn of(&self, code: Code) -> u64 {
        self.0.get(code as usize).map_or(0, |c| c.load(Relaxed))
    }
}

/// The figures of one socket.
#[derive(Debug)]
pub struct SocketFigures {
    /// Its path, or the address of the TCP listener.
    pub name: String,
    /// `writer`, `reader`, `operator`, or `metrics` for TCP.
    pub role: &'static str,
    /// Connections now.
    pub open: AtomicI64,
    /// Connections since the start.
    pub accepted: AtomicU64,
}

impl SocketFigures {
    /// Figures of a new socket.
    #[must_use]
    pub fn new(name: String, role: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            role,
            open: AtomicI64::new(0),
            accepted: AtomicU64::new(0),
        })
    }
}

/// What is counted while the daemon runs.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests that were acknowledged, duplicates included.
    pub appends: AtomicU64,
    /// Records that were appended.
    pub records: AtomicU64,
    /// Records that were in the ledger already.
    pub duplicates: AtomicU64,
    /// Requests whose record id was in the ledger with other content.
    pub conflicts: AtomicU64,
    /// All refusals, by code.
    pub refusals: Refusals,
    /// From the request's whole arrival to its acknowledgement.
    pub ack: Latency,
    /// Requests that wait for the writer now.
    pub queue: AtomicI64,
    /// Checkpoints given out on request.
    pub checkpoints: AtomicU64,
    /// Failures of the writer, a full disk included.
    pub faults: AtomicU64,
    /// When the last append was acknowledged, milliseconds since 1970; 0 before the first.
    pub last_append_ms: AtomicU64,
    /// When a peer was last refused for want of a mapping, milliseconds since 1970; 0 for never.
    pub last_unmapped_ms: AtomicU64,
    /// Its uid.
    pub last_unmapped_uid: AtomicU64,
}

/// What is read from the disk and the writer at the moment of a scrape.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Readings {
    /// Frames that are synced.
    pub frames: u64,
    /// Size of the newest checkpoint.
    pub checkpoint_size: u64,
    /// Size of the floor in the state folder.
    pub floor_size: u64,
    /// Bytes of the last segment's file.
    pub segment_bytes: u64,
    /// Bytes that are free on the ledger's disk.
    pub free_bytes: u64,
    /// Whether appends are taken.
    pub accepting: bool,
}

/// One scrape, in the text format of OpenMetrics, which Prometheus reads.
#[must_use]
pub fn scrape(
    metrics: &Arc<Metrics>,
    sockets: &[Arc<SocketFigures>],
    readings: Readings,
) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape {
        metrics: metrics.clone(),
        sockets: sockets.to_vec(),
        readings,
    }));
    let mut text = String::with_capacity(8 << 10);
    // A String takes every write.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Scrape {
    metrics: Arc<Metrics>,
    sockets: Vec<Arc<SocketFigures>>,
    readings: Readings,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let m = &*self.metrics;
        let e = &mut encoder;
        counter(
            e,
            "ledger_appends",
            "Requests acknowledged, duplicates included",
            &m.appends,
        )?;
        counter(e, "ledger_records", "Records appended", &m.records)?;
        counter(
            e,
            "ledger_duplicates",
            "Records that were in the ledger already",
            &m.duplicates,
        )?;
        counter(
            e,
            "ledger_conflicts",
            "Requests whose record id has other content",
            &m.conflicts,
        )?;
        counter(
            e,
            "ledger_checkpoints",
            "Checkpoints given out on request",
            &m.checkpoints,
        )?;
        counter(e, "ledger_faults", "Failures of the writer", &m.faults)?;
        let r = &self.readings;
        gauge(
            e,
            "ledger_queue_requests",
            "Requests waiting for the writer",
            m.queue.load(Relaxed),
        )?;
        gauge(e, "ledger_frames", "Frames synced", signed(r.frames))?;
        gauge(
            e,
            "ledger_checkpoint_size",
            "Size of the newest checkpoint",
            signed(r.checkpoint_size),
        )?;
        gauge(
            e,
            "ledger_floor_size",
            "Size of the floor",
            signed(r.floor_size),
        )?;
        gauge(
            e,
            "ledger_segment_bytes",
            "Bytes of the last segment's file",
            signed(r.segment_bytes),
        )?;
        gauge(
            e,
            "ledger_disk_free_bytes",
            "Free bytes on the ledger's disk",
            signed(r.free_bytes),
        )?;
        gauge(
            e,
            "ledger_accepting",
            "1 when appends are taken",
            i64::from(r.accepting),
        )?;
        self.refusals(e)?;
        self.latency(e)?;
        self.connections(e)
    }
}

impl Scrape {
    fn refusals(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests refused, by the code of the problem";
        let mut family =
            encoder.encode_descriptor("ledger_refusals", help, None, MetricType::Counter)?;
        for code in Code::ALL {
            let labels = [("code", code.name())];
            let count = self.metrics.refusals.of(*code);
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, f64>(&count, None)?;
        }
        Ok(())
    }

    fn latency(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Seconds from a request's arrival to its acknowledgement";
        let latency = &self.metrics.ack;
        let bounds = BOUNDS_US
            .iter()
            .map(|us| *us as f64 / 1e6)
            .chain([f64::INFINITY]);
        let counts = latency.buckets.iter().map(|b| b.load(Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        let sum = latency.sum_us.load(Relaxed) as f64 / 1e6;
        encoder
            .encode_descriptor("ledger_ack_seconds", help, None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn connections(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Connections open now, by socket";
        let mut family =
            encoder.encode_descriptor("ledger_connections", help, None, MetricType::Gauge)?;
        for socket in &self.sockets {
            let labels = [("socket", socket.name.as_str()), ("role", socket.role)];
            let open = socket.open.load(Relaxed);
            family.encode_family(&labels)?.encode_gauge(&open)?;
        }
        let help = "Connections accepted since the start, by socket";
        let mut family = encoder.encode_descriptor(
            "ledger_connections_accepted",
            help,
            None,
            MetricType::Counter,
        )?;
        for socket in &self.sockets {
            let labels = [("socket", socket.name.as_str()), ("role", socket.role)];
            let accepted = socket.accepted.load(Relaxed);
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, f64>(&accepted, None)?;
        }
        Ok(())
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn counter(
    e: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &AtomicU64,
) -> fmt::Result {
    e.encode_descriptor(name, help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, f64>(&value.load(Relaxed), None)
}

fn gauge(e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    e.encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_in_their_bucket() {
        let latency = Latency::default();
        assert_eq!(latency.quantile(0.5), None);
        for _ in 0..99 {
            latency.observe(Duration::from_micros(700));
        }
        latency.observe(Duration::from_millis(40));
        let p50 = latency.quantile(0.5).unwrap().as_micros();
        let p99 = latency.quantile(0.995).unwrap().as_micros();
        assert!((500..=1000).contains(&p50), "{p50}");
        assert!((20_000..=50_000).contains(&p99), "{p99}");
        latency.observe(Duration::from_secs(3600));
        assert!(latency.quantile(1.0).unwrap() >= Duration::from_secs(30));
        assert_eq!(latency.count(), 101);
    }

    #[test]
    fn a_scrape_has_every_family_and_ends_as_it_must() {
        let metrics = Arc::new(Metrics::default());
        metrics.refusals.count(Code::RecordConflict);
        metrics.ack.observe(Duration::from_micros(300));
        let sockets = [SocketFigures::new("/run/w\"x.sock".to_owned(), "writer")];
        let text = scrape(&metrics, &sockets, Readings::default());
        for line in [
            "ledger_records_total 0",
            "ledger_refusals_total{code=\"record_conflict\"} 1",
            "ledger_ack_seconds_bucket{le=\"0.0005\"} 1",
            "ledger_ack_seconds_bucket{le=\"+Inf\"} 1",
            "ledger_ack_seconds_count 1",
            "ledger_connections{socket=\"/run/w\\\"x.sock\",role=\"writer\"} 0",
            "ledger_accepting 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
