//! Several threads of one process append to one ledger, as the threads of a service would.
//!
//! `story LEDGER STATE TEMPLATE LABEL THREADS [ROUNDS]`: every thread tells the records of TEMPLATE, NDJSON, once a
//! round; `#` in it becomes LABEL, thread and round, so that all ids are new. Each receipt is printed as soon as its
//! record is on the disk. Without ROUNDS it goes on until it is killed, which is what `cargo xtask demo` does to it.
//! Not a client to copy for production: it retries nothing.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use ledger_records::Submission;
use ledger_writer::{Config, OpenMode, Writer};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (ledger, state, template, label, threads, rounds) = match args.as_slice() {
        [ledger, state, template, label, threads] => {
            (ledger, state, template, label, threads.parse()?, u64::MAX)
        }
        [ledger, state, template, label, threads, rounds] => (
            ledger,
            state,
            template,
            label,
            threads.parse::<u64>()?,
            rounds.parse()?,
        ),
        _ => return Err("usage: story LEDGER STATE TEMPLATE LABEL THREADS [ROUNDS]".into()),
    };
    let template = std::fs::read_to_string(template)?;
    let (writer, opened) = Writer::open(
        Path::new(ledger),
        Path::new(state),
        Config::default(),
        OpenMode::Normal,
    )?;
    eprintln!(
        "opened with {} frames, {threads} threads append",
        opened.frames
    );
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (writer, template) = (&writer, &template);
                scope.spawn(move || tell(writer, template, &format!("{label}_{thread}"), rounds))
            })
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    writer.close()?;
    Ok(())
}

/// One thread: record after record, each acknowledged before the next is sent.
fn tell(writer: &Writer, template: &str, label: &str, rounds: u64) -> Result<(), Failure> {
    for round in 0..rounds {
        let name = format!("{label}_{round}");
        for line in template.lines() {
            let submission = Submission::from_json(line.replace('#', &name).as_bytes())?;
            let record = writer.prepare(submission, None)?;
            for appended in writer.append(vec![record])? {
                // One call a line: lines of different threads do not mix.
                let line = format!("{}\n", appended.receipt.to_json());
                std::io::stdout().lock().write_all(line.as_bytes())?;
            }
        }
    }
    Ok(())
}
