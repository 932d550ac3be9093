//! Prints how fast a ledger is checked: records a second on one thread and on two, for one big
//! segment and for many, and the ratio to `blake3::hash` over each frame alone.
//!
//! `cargo run --release -p ledger-verify --example speed [RECORDS]`

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/support/mod.rs"]
mod support;

use ledger_format::HeadPrefix;
use ledger_verify::{Request, TrustLine, Verdict, verify};
use std::hint::black_box;
use std::time::Instant;
use support::{Maker, Shape};

/// Seconds of a run: by the clock (the best of some), and of processors (their mean).
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    processors: f64,
}

const RUNS: usize = 9;

fn cost(mut run: impl FnMut()) -> Cost {
    let spent = processor_time();
    let times = (0..RUNS).map(|_| {
        let begun = Instant::now();
        run();
        begun.elapsed().as_secs_f64()
    });
    let wall = times.fold(f64::INFINITY, f64::min);
    Cost {
        wall,
        processors: (processor_time() - spent) / RUNS as f64,
    }
}

/// Processor seconds of this process, ended threads included; 0 where the system does not say.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn hash_alone(maker: &Maker) {
    for (_, bytes) in &maker.segments {
        let mut at = ledger_format::FRAMES_MAGIC.len();
        while at < bytes.len() {
            let length = &bytes[at + 2..at + 6];
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            black_box(blake3::hash(&bytes[at..at + length]));
            at += length;
        }
    }
}

fn measure(name: &str, shape: Shape) {
    let maker = Maker::ledger(shape);
    let records = shape.segments * shape.writes * shape.records_per_write;
    let dir = tempfile::tempdir().unwrap();
    maker.save(dir.path());
    let bytes: usize = maker.segments.iter().map(|(_, b)| b.len()).sum();
    assert!(HeadPrefix::parse(&maker.segments[0].1[17..]).is_ok());
    let alone = cost(|| hash_alone(&maker));
    let rate = |seconds: f64| records as f64 / seconds;
    println!(
        "{name}: {records} records, {bytes} bytes, {} segments",
        shape.segments
    );
    println!("  blake3::hash alone   {:>9.0} records/s", rate(alone.wall));
    let mut one = None;
    for threads in [1, 2] {
        let mut request = Request::new(dir.path());
        request.threads = threads;
        request.anchors.trust = Some(TrustLine::parse(&maker.trust_line(), "test").unwrap());
        let run = cost(|| {
            let done = verify(&request, &|_| {}).unwrap();
            assert_eq!(done.report.verdict, Verdict::Verified);
        });
        let first = *one.get_or_insert(run);
        println!(
            "  {threads} thread(s)          {:>9.0} records/s   {:.2} of blake3 alone ({:.2} in processor time)   {:.2} x one thread",
            rate(run.wall),
            alone.wall / run.wall,
            alone.processors / run.processors,
            first.wall / run.wall
        );
    }
}

fn main() {
    let records: usize = std::env::args()
        .nth(1)
        .map_or(200_000, |n| n.parse().expect("a number"));
    let base = Shape {
        segments: 1,
        writes: records / 8,
        records_per_write: 8,
        writes_per_checkpoint: 512,
        body: 272,
        envelope: 272,
        closed: true,
        tail_writes: 0,
    };
    measure("one segment", base);
    let many = Shape {
        segments: 50,
        writes: records / 8 / 50,
        ..base
    };
    measure("many segments", many);
    let dense = Shape {
        writes_per_checkpoint: 8,
        ..many
    };
    measure("a checkpoint every 64 records", dense);
}
