//! Load on the daemon: clients that speak HTTP/1.1 over its socket, each request acknowledged
//! before the client's next.
//!
//! One thread and one connection a client, kept open, as pgbench has them; requests are written and
//! answers read here, without a client library, so that little is measured but the daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::material::{Fields, run_number};
use crate::sample::Sample;
use crate::timed_sample;

/// A load that has not ended by then never will.
const HANGS_AFTER: Duration = Duration::from_secs(300);
/// An answer to 1,000 records is about 300 kB.
const ANSWER_LEN: usize = 1 << 19;

/// What the clients do together.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) socket: PathBuf,
    pub(crate) clients: u32,
    /// Records a request: one is sent as an object, more as an array.
    pub(crate) batch: u32,
    pub(crate) until: Until,
}

/// When the clients stop.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Time(Duration),
    Records(u64),
}

/// What the clients of one load share.
struct Shared {
    run: u64,
    start: Barrier,
    /// Records that nobody has taken yet, where their number is what ends the load.
    left: AtomicU64,
}

/// Runs the clients; count: records, each in an answer that said it is on the disk.
pub(crate) fn run(work: Work) -> Result<Sample> {
    ensure!(
        work.clients > 0 && work.batch > 0,
        "at least one client and record"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::time::timeout(HANGS_AFTER, all(work))
            .await
            .context("the daemon does not answer")?
    })
}

async fn all(work: Work) -> Result<Sample> {
    let shared = Arc::new(Shared {
        run: run_number(),
        start: Barrier::new(work.clients as usize),
        left: AtomicU64::new(match work.until {
            Until::Time(_) => u64::MAX,
            Until::Records(records) => records,
        }),
    });
    let mut clients = JoinSet::new();
    for name in 0..work.clients {
        clients.spawn(client(name, work.clone(), Arc::clone(&shared)));
    }
    let (mut latencies, mut records, mut seconds) = (Vec::new(), 0, 0.0_f64);
    while let Some(ended) = clients.join_next().await {
        let (own, appended, took) = ended.context("a client panicked")??;
        latencies.extend(own);
        records += appended;
        seconds = seconds.max(took);
    }
    Ok(Sample {
        count: records,
        ..timed_sample(latencies, 1, seconds, 0)
    })
}

/// Latency of each request, the records acknowledged, and the time until the last of them was.
async fn client(name: u32, work: Work, shared: Arc<Shared>) -> Result<(Vec<f64>, u64, f64)> {
    let mut stream = connect(&work.socket).await?;
    let (mut latencies, mut records) = (Vec::with_capacity(1 << 16), 0);
    let (mut body, mut request) = (String::new(), Vec::new());
    let mut answer = Vec::with_capacity(ANSWER_LEN);
    shared.start.wait().await;
    let (began, mut last) = (Instant::now(), Duration::ZERO);
    loop {
        if matches!(work.until, Until::Time(time) if last >= time) {
            break;
        }
        let count = shared.take(u64::from(work.batch));
        if count == 0 {
            break;
        }
        write_body(&mut body, work.batch > 1, count, |number| {
            Fields::new(shared.run, name, records + number)
        });
        write_request(&mut request, &body);
        stream.write_all(&request).await?;
        read_created(&mut stream, &mut answer).await?;
        records += count;
        let now = began.elapsed();
        latencies.push((now - last).as_secs_f64());
        last = now;
    }
    Ok((latencies, records, last.as_secs_f64()))
}

async fn connect(socket: &Path) -> Result<UnixStream> {
    UnixStream::connect(socket)
        .await
        .with_context(|| format!("connecting to {}", socket.display()))
}

impl Shared {
    /// Up to `wanted` records; none when all are taken.
    fn take(&self, wanted: u64) -> u64 {
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(wanted))
            });
        before.unwrap_or_else(|left| left).min(wanted)
    }
}

fn write_body(body: &mut String, is_array: bool, count: u64, fields: impl Fn(u64) -> Fields) {
    body.clear();
    for number in 0..count {
        if is_array {
            body.push(if number == 0 { '[' } else { ',' });
        }
        body.push_str(&fields(number).json());
    }
    if is_array {
        body.push(']');
    }
}

fn write_request(request: &mut Vec<u8>, body: &str) {
    request.clear();
    let head = format!(
        "POST /v1/records HTTP/1.1\r\nhost: ledger\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    request.extend_from_slice(head.as_bytes());
    request.extend_from_slice(body.as_bytes());
}

/// Reads one whole answer. Any status but 201 is an error: 200 would say that nothing was appended.
async fn read_created(stream: &mut UnixStream, answer: &mut Vec<u8>) -> Result<()> {
    answer.clear();
    let head_len = loop {
        ensure!(
            stream.read_buf(answer).await? > 0,
            "the daemon closed the connection"
        );
        if let Some(at) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = std::str::from_utf8(&answer[..head_len]).context("a head that is no text")?;
    let is_created = head.starts_with("HTTP/1.1 201 ");
    let whole = head_len + content_length(head)?;
    while answer.len() < whole {
        ensure!(
            stream.read_buf(answer).await? > 0,
            "the daemon closed the connection within an answer"
        );
    }
    ensure!(answer.len() == whole, "more than one answer to one request");
    if !is_created {
        bail!("the daemon answered {}", String::from_utf8_lossy(answer));
    }
    Ok(())
}

fn content_length(head: &str) -> Result<usize> {
    let value = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, value)| value.trim());
    let value = value.with_context(|| format!("an answer without a length:\n{head}"))?;
    value.parse().context("the answer's length")
}
