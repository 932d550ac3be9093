//! Durable appends over the socket against the writer in this process: `speed DIR [SECONDS]`.
//!
//! Both make the same frames on the same disk; what lies between them is HTTP, the socket and the
//! threads. Prints records a second and the latency of single appends.

use ledger_client::{Client, Wait};
use ledger_records::{Attested, Submission};
use ledger_server::{Facts, Keeper, Limits, Listener, Metrics, Parts, Providers, Role, start};
use ledger_vault::Identities;
use ledger_writer::{InitOptions, OpenMode, RetentionClass, Writer, init};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static NEXT: AtomicU64 = AtomicU64::new(0);

fn record() -> Submission {
    let n = NEXT.fetch_add(1, Relaxed);
    let line = format!(
        r#"{{"type":"remote_ref","record_id":"rec_{n}","action_id":"act_{n}","attempt_id":"out_{n}","provider":"builds.example.com","remote_operation_id":"op_{n}","observed_at":"2026-11-30T14:03:07Z"}}"#
    );
    Submission::from_json(line.as_bytes()).unwrap()
}

/// A new ledger below `dir`.
fn ledger(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (folder, state) = (dir.join(name).join("audit"), dir.join(name).join("state"));
    let _ = std::fs::remove_dir_all(dir.join(name));
    std::fs::create_dir_all(dir.join(name)).unwrap();
    let options = InitOptions {
        name: "audit.example.com/speed".into(),
        vault_recipients: Identities::generate().recipients().unwrap(),
        payload_classes: RetentionClass::new("30d").into_iter().collect(),
    };
    init(&folder, &state, &options).unwrap();
    (folder, state)
}

fn direct(dir: &Path, clients: usize, batch: usize, time: Duration) -> f64 {
    let (folder, state) = ledger(dir, "direct");
    let config = ledger_writer::Config::default();
    let (writer, _) = Writer::open(&folder, &state, config, OpenMode::Normal).unwrap();
    let (attested, done, started) = (
        Attested {
            uid: 1,
            gid: 1,
            pid: 1,
        },
        AtomicU64::new(0),
        Instant::now(),
    );
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                while started.elapsed() < time {
                    let prepared =
                        (0..batch).map(|_| writer.prepare(record(), Some(&attested)).unwrap());
                    writer.append(prepared.collect()).unwrap();
                    done.fetch_add(batch as u64, Relaxed);
                }
            });
        }
    });
    let rate = done.load(Relaxed) as f64 / started.elapsed().as_secs_f64();
    writer.close().unwrap();
    rate
}

fn over_socket(
    dir: &Path,
    typed: bool,
    clients: usize,
    batch: usize,
    time: Duration,
) -> (f64, String) {
    let (folder, state) = ledger(dir, "socket");
    let metrics = Arc::new(Metrics::default());
    let writer = ledger_writer::Config::default();
    let (keeper, opened) = Keeper::open(&folder, &state, writer.clone(), metrics.clone()).unwrap();
    let socket = dir.join("socket/w.sock");
    let parts = Parts {
        appender: Arc::new(keeper),
        providers: Providers::default(),
        metrics: metrics.clone(),
        facts: Facts {
            state: state.join(opened.origin.id_hex()),
            ledger: folder,
            name: "speed".into(),
            writer,
            started: Instant::now(),
            index_in_memory: None,
        },
        limits: Limits::default(),
        drain_time: Duration::from_secs(5),
        listeners: vec![Listener {
            path: socket.clone(),
            mode: 0o600,
            group: None,
            role: Role::Writer,
            peers: Vec::new(),
        }],
        handed_over: Vec::new(),
        tcp: None,
    };
    let server = tokio::runtime::Runtime::new().unwrap();
    let running = server.block_on(start(parts)).unwrap();
    let started = Instant::now();
    let done = if typed {
        typed_clients(&socket, clients, batch, time)
    } else {
        plain_clients(&socket, clients, batch, time)
    };
    let rate = done as f64 / started.elapsed().as_secs_f64();
    server.block_on(running.stop()).unwrap();
    let ms = |q| metrics.ack.quantile(q).unwrap_or_default().as_secs_f64() * 1e3;
    (
        rate,
        format!("server p50 {:.2} ms p99 {:.2} ms", ms(0.5), ms(0.99)),
    )
}

/// Tasks of one thread with the typed client. Returns the records that were acknowledged.
fn typed_clients(socket: &Path, clients: usize, batch: usize, time: Duration) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (client, started) = (Client::new(socket), Instant::now());
    runtime.block_on(async {
        let tasks: Vec<_> = (0..clients)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut done = 0;
                    while started.elapsed() < time {
                        let records: Vec<_> = (0..batch).map(|_| record()).collect();
                        client.append_batch(&records, Wait::Sync).await.unwrap();
                        done += batch as u64;
                    }
                    done
                })
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.unwrap();
        }
        done
    })
}

/// Threads that write requests and read answers, one connection each, without any library.
fn plain_clients(socket: &Path, clients: usize, batch: usize, time: Duration) -> u64 {
    let (done, started) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
                let mut answer = vec![0; 1 << 20];
                while started.elapsed() < time {
                    let records = (0..batch).map(|_| record().to_json());
                    let body = [&b"["[..], &records.collect::<Vec<_>>().join(&b","[..]), b"]"].concat();
                    let head = format!(
                        "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
                    let mut len = 0;
                    while !answer[..len].ends_with(b"]}") {
                        let n = stream.read(&mut answer[len..]).unwrap();
                        assert!(n > 0 && answer.starts_with(b"HTTP/1.1 201"), "{len}");
                        len += n;
                    }
                    done.fetch_add(batch as u64, Relaxed);
                }
            });
        }
    });
    done.load(Relaxed)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let dir = Path::new(&arguments[1]);
    let seconds = arguments.get(2).map_or(2.0, |s| s.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    for (clients, batch) in [(1, 1), (16, 1), (64, 1), (1, 100)] {
        let plain = direct(dir, clients, batch, time);
        for (name, typed) in [("typed client", true), ("plain threads", false)] {
            let (served, latency) = over_socket(dir, typed, clients, batch, time);
            println!(
                "{clients} clients, batches of {batch}: direct {plain:.0}/s, {name} {served:.0}/s, ratio {:.2}; {latency}",
                served / plain
            );
        }
    }
}
