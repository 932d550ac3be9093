//! Makes a ledger and appends for a while: `smoke DIR THREADS RECORDS [BATCH]`; prints records a second.

use ledger_records::Submission;
use ledger_vault::{Identities, RetentionClass};
use ledger_writer::{Config, InitOptions, OpenMode, Writer, init};
use std::path::Path;
use std::time::Instant;

fn line(thread: usize, n: usize) -> String {
    format!(
        r#"{{"type":"remote_ref","record_id":"rec_{thread}_{n}","action_id":"act_{thread}_{n}","attempt_id":"out_{thread}_{n}","provider":"builds.example.com","remote_operation_id":"op_{n}","observed_at":"2026-11-30T14:03:07Z"}}"#
    )
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (dir, threads, records): (&Path, usize, usize) = (
        Path::new(&args[1]),
        args[2].parse().unwrap(),
        args[3].parse().unwrap(),
    );
    let batch: usize = args.get(4).map_or(1, |b| b.parse().unwrap());
    let (ledger, state) = (dir.join("audit"), dir.join("state"));
    if !ledger.exists() {
        let vault = Identities::generate();
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("vault.key"), vault.to_file_text("now").as_bytes()).unwrap();
        let options = InitOptions {
            name: "audit.example.com/smoke".into(),
            vault_recipients: vault.recipients().unwrap(),
            payload_classes: RetentionClass::new("30d").into_iter().collect(),
        };
        println!("{}", init(&ledger, &state, &options).unwrap().trust_line);
    }
    let started = Instant::now();
    let (writer, opened) =
        Writer::open(&ledger, &state, Config::default(), OpenMode::Normal).unwrap();
    println!(
        "opened in {:?}: {} frames, unclean {}",
        started.elapsed(),
        opened.frames,
        opened.unclean
    );
    let started = Instant::now();
    std::thread::scope(|scope| {
        for t in 0..threads {
            let writer = &writer;
            scope.spawn(move || {
                for n in (0..records).step_by(batch) {
                    let request = (n..n + batch)
                        .map(|n| {
                            writer
                                .prepare(
                                    Submission::from_json(line(t, n).as_bytes()).unwrap(),
                                    None,
                                )
                                .unwrap()
                        })
                        .collect();
                    let receipts = writer.append(request).unwrap();
                    assert_eq!(receipts.len(), batch);
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    let total = (threads * records) as f64;
    println!(
        "{total} records in {seconds:.2} s: {:.0}/s, {:.1} us a request",
        total / seconds,
        seconds * 1e6 / total * batch as f64 * threads as f64
    );
    if std::env::var_os("CRASH").is_none() {
        writer.close().unwrap();
    } else {
        std::process::abort();
    }
}
