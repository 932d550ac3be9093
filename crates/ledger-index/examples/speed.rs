//! What the index costs on this machine:
//! `cargo run --release -p ledger-index --example speed [-- RECORDS]`.
//!
//! Two million records of six identifiers each unless told otherwise. Not a regression test: it prints, and
//! judges nothing.

use std::fs::File;
use std::hint::black_box;
use std::time::{Duration, Instant};

use ledger_format::{Frontier, LedgerId, Link, Seq, leaf_hash};
use ledger_index::{Covered, IdentifierParts, Index, TileStore};
use ledger_records::IdKind;
use ledger_vault::{Identities, IndexKey};
use rustix::time::ClockId;

const BLOCK: u64 = 4096;
const LEDGER: LedgerId = LedgerId([1; 32]);
const EVERYTHING: std::ops::Range<Seq> = Seq(0)..Seq(u64::MAX);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Record `n`: its id, and six identifiers, as a service would name them.
struct Record {
    id: String,
    run: String,
    action: String,
    attempt: String,
    reference: String,
    operation: String,
}

impl Record {
    fn new(n: u64) -> Self {
        let name = |prefix: &str, n: u64| format!("{prefix}_01JDZK5T{n:018}");
        Self {
            id: name("rec", n),
            run: name("run", n / 100),
            action: name("act", n / 10),
            attempt: name("out", n / 4),
            reference: name("idem", n / 8),
            operation: name("op", n / 6),
        }
    }

    fn identifiers(&self) -> [IdentifierParts<'_>; 6] {
        let part = |kind, scope, value| IdentifierParts { kind, scope, value };
        [
            part(IdKind::Tenant, "", "acme"),
            part(IdKind::RunId, "", &self.run),
            part(IdKind::ActionId, "", &self.action),
            part(IdKind::AttemptId, "", &self.attempt),
            part(IdKind::IdempotencyRef, "", &self.reference),
            part(
                IdKind::RemoteOperationId,
                "builds.example.com",
                &self.operation,
            ),
        ]
    }
}

fn covered(next: u64) -> Covered {
    let mut link = [7; 32];
    link[..8].copy_from_slice(&next.to_be_bytes());
    Covered {
        next: Seq(next),
        link: Link(link),
    }
}

fn main() -> Outcome<()> {
    let records: u64 = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 2_000_000,
    };
    let folder = tempfile::tempdir_in(std::env::current_dir()?)?;
    let identities = Identities::generate();
    let recipients = identities.recipients()?;
    let file = IndexKey::generate()?.wrap(&recipients, &recipients)?;
    let key = || IndexKey::unwrap(&identities, &file);
    let open = || -> Outcome<Index> {
        Ok(Index::open(folder.path(), key()?, LEDGER, |found| {
            *found == covered(found.next.0)
        })?)
    };

    single_flush(key()?)?;
    let index = open()?;
    fill(&index, records)?;
    memory("after filling")?;
    look_up("warm", &index, records, 1)?;
    index.close()?;
    drop(index);

    let path = folder.path().join("index.sqlite");
    println!(
        "file {:.1} MB",
        std::fs::metadata(&path)?.len() as f64 / 1e6
    );
    forget(&path)?;
    let start = Instant::now();
    let index = open()?;
    println!("open, cold: {:.1} ms", millis(start.elapsed()));
    index.settle()?;
    println!("  filters loaded after {:.1} ms", millis(start.elapsed()));
    forget(&path)?;
    look_up("cold file", &index, records, 3)?;
    look_up("warm", &index, records, 3)?;
    memory("after opening")?;
    drop(index);
    tiles(folder.path(), records)
}

/// One flush of 4,096 records, alone.
fn single_flush(key: IndexKey) -> Outcome<()> {
    let folder = tempfile::tempdir_in(std::env::current_dir()?)?;
    let index = Index::open(folder.path(), key, LEDGER, |_| false)?;
    let block: Vec<Record> = (0..BLOCK).map(Record::new).collect();
    for (n, record) in block.iter().enumerate() {
        index.add_parts(Seq(n as u64), &record.id, [0; 16], record.identifiers());
    }
    let start = Instant::now();
    index.flush(covered(BLOCK))?;
    let handed_over = start.elapsed();
    index.settle()?;
    println!(
        "flush of {BLOCK} records: caller {:.1} us, written after {:.2} ms",
        handed_over.as_nanos() as f64 / 1e3,
        millis(start.elapsed())
    );
    Ok(())
}

fn fill(index: &Index, records: u64) -> Outcome<()> {
    let (mut adding, mut finding) = (Duration::ZERO, Duration::ZERO);
    let (mut flushing, mut slowest, mut put_off) = (Duration::ZERO, Duration::ZERO, 0);
    let (mut runs_max, mut memory_max) = (0, 0);
    let whole = Instant::now();
    let (process, thread) = (
        processor(ClockId::ProcessCPUTime),
        processor(ClockId::ThreadCPUTime),
    );
    for from in (0..records).step_by(BLOCK as usize) {
        let to = records.min(from + BLOCK);
        let block: Vec<Record> = (from..to).map(Record::new).collect();
        let start = processor(ClockId::ThreadCPUTime);
        for record in &block {
            black_box(index.find_record(&record.id)?);
        }
        finding += processor(ClockId::ThreadCPUTime) - start;
        let start = processor(ClockId::ThreadCPUTime);
        for (seq, record) in (from..to).zip(&block) {
            index.add_parts(Seq(seq), &record.id, [0; 16], record.identifiers());
        }
        adding += processor(ClockId::ThreadCPUTime) - start;
        let start = Instant::now();
        let done = index.flush_if_large(covered(to))?;
        flushing += start.elapsed();
        slowest = slowest.max(start.elapsed());
        put_off += u32::from(!done);
        let stats = index.stats();
        runs_max = runs_max.max(stats.runs);
        memory_max = memory_max.max(stats.memory_bytes);
    }
    let caller = whole.elapsed();
    index.flush(covered(records))?;
    index.settle()?;
    let stats = index.stats();
    let per = |time: Duration| time.as_nanos() as f64 / records as f64;
    let thread = processor(ClockId::ThreadCPUTime) - thread;
    let process = processor(ClockId::ProcessCPUTime) - process;
    println!(
        "{records} records, {} entries; processor time:",
        stats.entries
    );
    println!("  add: {:.0} ns a record", per(adding));
    println!("  find_record of a new id: {:.0} ns", per(finding));
    println!("  the worker: {:.0} ns a record", per(process - thread));
    println!(
        "  flush_if_large: {:.1} us a call, slowest {:.1} us, {put_off} put off",
        flushing.as_nanos() as f64 / 1e3 / (records as f64 / BLOCK as f64),
        slowest.as_nanos() as f64 / 1e3
    );
    println!(
        "  filled in {:.2} s, all merged after {:.2} s; runs {} (at most {runs_max}); memory at most {:.1} MB, now {:.1} MB",
        caller.as_secs_f64(),
        whole.elapsed().as_secs_f64(),
        stats.runs,
        memory_max as f64 / 1e6,
        stats.memory_bytes as f64 / 1e6
    );
    Ok(())
}

/// 2,000 look-ups each of values spread over the ledger.
fn look_up(name: &str, index: &Index, records: u64, stride: u64) -> Outcome<()> {
    const COUNT: u64 = 2_000;
    let spread: Vec<Record> = (0..COUNT)
        .map(|n| Record::new((n * 7_919 * stride + n) * 499 % records))
        .collect();
    let ask = |what: &str, question: &dyn Fn(&Record) -> Outcome<usize>| -> Outcome<()> {
        let before = index.stats();
        let (mut found, mut times) = (0, Vec::new());
        for record in &spread {
            let start = Instant::now();
            found += question(record)?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let after = index.stats();
        println!(
            "  {name}: {what}: median {:.1} us, p99 {:.1} us; {:.1} pages, {:.0} bytes read; {:.1} frames found",
            times[times.len() / 2].as_nanos() as f64 / 1e3,
            times[times.len() * 99 / 100].as_nanos() as f64 / 1e3,
            (after.pages_read - before.pages_read) as f64 / COUNT as f64,
            (after.bytes_read - before.bytes_read) as f64 / COUNT as f64,
            found as f64 / COUNT as f64
        );
        Ok(())
    };
    ask("value", &|record| {
        Ok(index
            .lookup_value(&record.action, EVERYTHING, 100)?
            .seqs
            .len())
    })?;
    ask("exact", &|record| {
        let [.., operation] = record.identifiers();
        Ok(index.lookup_exact(operation, EVERYTHING, 100)?.seqs.len())
    })?;
    ask("record id", &|record| {
        Ok(usize::from(index.find_record(&record.id)?.is_some()))
    })?;
    ask("absent value", &|record| {
        let absent = format!("{}x", record.action);
        Ok(index.lookup_value(&absent, EVERYTHING, 100)?.seqs.len())
    })?;
    ask("first 100 of the value in every record", &|_| {
        Ok(index.lookup_value("acme", EVERYTHING, 100)?.seqs.len())
    })
}

fn tiles(folder: &std::path::Path, records: u64) -> Outcome<()> {
    let mut store = TileStore::open(folder, &Frontier::empty())?;
    let mut spent = Duration::ZERO;
    for from in (0..records).step_by(BLOCK as usize) {
        let to = records.min(from + BLOCK);
        let leaves: Vec<_> = (from..to).map(|n| leaf_hash(&covered(n).link)).collect();
        let start = Instant::now();
        store.append(&leaves)?;
        spent += start.elapsed();
    }
    println!(
        "tiles: {:.0} ns a leaf",
        spent.as_nanos() as f64 / records as f64
    );
    let start = Instant::now();
    for n in 0..1000 {
        black_box(
            store
                .reader()
                .inclusion_path(Seq(n * 7919 % records), records)?,
        );
    }
    println!(
        "  audit path: {:.1} us",
        start.elapsed().as_nanos() as f64 / 1e6
    );
    Ok(())
}

/// Takes the file out of the page cache.
fn forget(path: &std::path::Path) -> Outcome<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

fn memory(when: &str) -> Outcome<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let lines = status
        .lines()
        .filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    let shown: Vec<String> = lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    println!("memory of the process {when}: {}", shown.join(", "));
    Ok(())
}

/// Processor time of this thread or of the process: other work on the machine does not count.
fn processor(clock: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}
