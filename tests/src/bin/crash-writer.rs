//! A writer to be killed: appends as its arguments say and tells of every acknowledgement.
//!
//! `crash-writer LEDGER STATE storm PREFIX SEED` runs 8 threads until it is killed;
//! `crash-writer LEDGER STATE steps PREFIX STEP...` takes the steps in order in one thread;
//! `roll_back`, `damage` or `lost_epoch_key` in place of `steps` opens in a new generation.
//! What it says is read by `ledger_tests::child`.

use ledger_format::{AppendReceipt, Seq};
use ledger_tests::ledger::{append_request, class, config};
use ledger_tests::record::{self, Request, Shape};
use ledger_tests::{Rng, stored_frames};
use ledger_writer::{AppendError, Appended, GenerationReason, OpenMode, Writer};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ledger, state, mode, prefix, rest @ ..] = &args[..] else {
        return ExitCode::from(64);
    };
    let mut settings = config();
    if mode == "storm" {
        settings.checkpoint_delay = Duration::from_millis(20);
        settings.checkpoint_frames = 300;
    }
    let open_mode = match mode.as_str() {
        "roll_back" => OpenMode::NewGeneration(GenerationReason::RollBack),
        "damage" => OpenMode::NewGeneration(GenerationReason::Damage),
        "lost_epoch_key" => OpenMode::NewGeneration(GenerationReason::LostEpochKey),
        _ => OpenMode::Normal,
    };
    let writer = match Writer::open(ledger.as_ref(), state.as_ref(), settings, open_mode) {
        Ok((writer, opened)) => {
            if opened.new_generation.is_some() {
                say(&format!("trust {}\n", opened.trust_line));
            }
            writer
        }
        Err(e) => {
            say(&format!("failed open {e}\n"));
            return ExitCode::from(3);
        }
    };
    say("opened\n");
    if mode == "storm" {
        let seed = rest.first().and_then(|s| s.parse().ok()).unwrap_or(0);
        storm(&writer, prefix, seed)
    } else {
        steps(writer, ledger.as_ref(), prefix, rest)
    }
}

/// One write: threads do not mix, a kill may cut the last line.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may be gone.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn acknowledge(receipts: &[AppendReceipt]) {
    let lines = receipts
        .iter()
        .map(|r| format!("ack {} {}\n", record::digest(&r.record_id), r.to_json()));
    say(&lines.collect::<String>());
}

fn storm(writer: &Writer, prefix: &str, seed: u64) -> ! {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed ^ (thread as u64) << 32);
                // Once in twelve runs: a check takes receipts of 16 generations at most.
                let rotates = thread == 0 && rng.one_in(12);
                let new_log_key_at = if rotates {
                    rng.below(60) as usize
                } else {
                    usize::MAX
                };
                for number in 0.. {
                    let request = Request {
                        prefix: prefix.to_owned(),
                        thread,
                        number,
                    };
                    let (count, shape) = match rng.below(20) {
                        0 => (1, Shape::Payload),
                        1 => (1 + rng.below(40) as usize, Shape::Small),
                        2 => (1 + rng.below(6) as usize, Shape::Payload),
                        3..8 => (1, Shape::Large),
                        _ => (1, Shape::Small),
                    };
                    match append_request(writer, &request, count, shape) {
                        Ok(receipts) => acknowledge(&receipts),
                        Err(e) => say(&format!("failed append {e}\n")),
                    }
                    if rng.one_in(200) {
                        report("rotate", writer.rotate().map(drop));
                    }
                    if number == new_log_key_at {
                        report("log-key", writer.rotate_log_key().map(drop));
                    }
                    if rng.one_in(50) {
                        report("checkpoint", writer.checkpoint().map(drop));
                    }
                }
            });
        }
    });
    unreachable!("the threads go on for ever")
}

fn report(step: &str, result: Result<(), AppendError>) {
    match result {
        Ok(()) => say(&format!("done {step}\n")),
        Err(e) => say(&format!("failed {step} {e}\n")),
    }
}

fn steps(writer: Writer, ledger: &Path, prefix: &str, steps: &[String]) -> ExitCode {
    let request = |number| Request {
        prefix: prefix.to_owned(),
        thread: 0,
        number,
    };
    for (number, step) in steps.iter().enumerate() {
        let appended = |count, shape| {
            append_request(&writer, &request(number), count, shape).map(|r| acknowledge(&r))
        };
        let result = match step.as_str() {
            "append" => appended(1, Shape::Small),
            "twins" => {
                twins(&writer, &request(number));
                Ok(())
            }
            "batch" => appended(7, Shape::Large),
            "payload" => appended(2, Shape::Payload),
            "checkpoint" => writer.checkpoint().map(drop),
            "rotate" => writer.rotate(),
            "log-key" => writer
                .rotate_log_key()
                .map(|(_, line)| say(&format!("trust {line}\n"))),
            "erase" => writer
                .erase(&class(), &closed_with_payloads(ledger), "90 days")
                .map(drop),
            "pause" => {
                std::thread::sleep(Duration::from_millis(1500));
                Ok(())
            }
            "close" => {
                let result = writer.close();
                report(step, result);
                return ExitCode::SUCCESS;
            }
            other => panic!("no such step: {other}"),
        };
        report(step, result);
    }
    ExitCode::SUCCESS
}

/// Eight threads send the same records, each in an order of its own, and tell who brought which.
fn twins(writer: &Writer, request: &Request) {
    let id = |n| {
        let number = 100 * request.number + n;
        let one = Request {
            number,
            ..request.clone()
        };
        one.ids(1, Shape::Small).remove(0)
    };
    let ids: Vec<String> = (0..16).map(id).collect();
    let ids = &ids;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for at in 0..ids.len() {
                    let id = &ids[(at + 3 * (thread / 2)) % ids.len()];
                    let record = writer.prepare(record::submission(id), None);
                    match writer.append(vec![record.expect("prepares")]) {
                        Ok(appended) => tell(&appended),
                        Err(e) => say(&format!("failed append {e}\n")),
                    }
                }
            });
        }
    });
}

fn tell(appended: &[Appended]) {
    for Appended { receipt, duplicate } in appended {
        if *duplicate {
            say(&format!("again {}\n", receipt.to_json()));
        } else {
            acknowledge(std::slice::from_ref(receipt));
        }
    }
}

/// First seqs of the closed segments that have a payload file.
fn closed_with_payloads(ledger: &Path) -> Vec<Seq> {
    let mut segments: Vec<Seq> = stored_frames(ledger).iter().map(|f| f.segment).collect();
    segments.dedup();
    let newest = segments.last().copied();
    let has_file = |s: &Seq| {
        ledger
            .join(format!("segments/{:020}.{}.payloads", s.0, class()))
            .exists()
    };
    let last_closed = stored_frames(ledger).iter().rev().nth(1).map(|f| f.kind());
    let open = newest.filter(|_| last_closed != Some(ledger_format::Kind::SegmentClose));
    segments
        .into_iter()
        .filter(|s| Some(*s) != open && has_file(s))
        .collect()
}
