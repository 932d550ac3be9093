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

/// The best of a few runs: what the machine can do when nothing else runs.
fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..7).map(|_| {
        let begun = Instant::now();
        run();
        begun.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
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
    let alone = best(|| hash_alone(&maker));
    println!(
        "{name}: {records} records, {bytes} bytes, {} segments",
        shape.segments
    );
    println!(
        "  blake3::hash alone   {:>9.0} records/s",
        records as f64 / alone
    );
    let mut one = 0.0;
    for threads in [1, 2] {
        let mut request = Request::new(dir.path());
        request.threads = threads;
        request.anchors.trust = Some(TrustLine::parse(&maker.trust_line(), "test").unwrap());
        let time = best(|| {
            let done = verify(&request, &|_| {}).unwrap();
            assert_eq!(done.report.verdict, Verdict::Verified);
        });
        if threads == 1 {
            one = time;
        }
        println!(
            "  {threads} thread{}             {:>9.0} records/s   {:.2} of blake3 alone   {:.2} of one thread",
            if threads == 1 { " " } else { "s" },
            records as f64 / time,
            alone / time,
            one / time
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
