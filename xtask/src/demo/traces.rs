//! The stories that the month left, told from whatever identifier somebody has at hand.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::drill::{Drill, OPERATOR};
use super::month::{AMBIGUOUS, FORGED, LATE, Plot, TWICE, UNPUBLISHED};
use super::stage::all;
use super::story::Event;

const WITH_KEY: &str =
    "--ledger host/audit --vault-key investigator/vault.key --trust auditor/trust.txt";

pub(super) fn play(drill: &mut Drill) -> Result<()> {
    three_ways(drill)?;
    others(drill)
}

fn three_ways(drill: &mut Drill) -> Result<()> {
    drill.stage.step(
        "One story, from three identifiers",
        "First from the idempotency reference in the client's log: the daemon tells what it can, which is the \
         skeleton. Each line names its frame, and each frame was checked to a signed checkpoint.",
    );
    let stage = &drill.stage;
    stage
        .run(&format!(
            "ledger checkpoint --socket {OPERATOR} --new > host/checkpoint.txt"
        ))?
        .ends_with(0)?;
    // 5: found, and the story contradicts itself.
    let by_ref = stage
        .run(&format!("ledger trace idem_44 --socket {OPERATOR}"))?
        .ends_with(5)?;
    stage.show(&by_ref.stdout, all);
    by_ref.says("! contradiction (late_failure) about rcp_05, wf_7")?;

    stage.say("Then from the operation id that the provider's support asks about; here is only the head of it:");
    let by_operation = stage
        .run(&format!("ledger trace op_9f2 --socket {OPERATOR}"))?
        .ends_with(5)?;
    stage.show_extract(&by_operation.stdout, is_head);

    stage.say(
        "And from the bytes of a callback, on the investigator's machine: with the vault key, the evidence too.",
    );
    fs::write(
        stage.path("investigator/callback.json"),
        callback(&drill.events)?,
    )?;
    let by_body = stage
        .run(&format!(
            "ledger trace --body investigator/callback.json {WITH_KEY}"
        ))?
        .ends_with(5)?;
    stage.show_extract(&by_body.stdout, is_head);
    by_body.says("key pinned")?;

    let frames = frames_of(&by_ref.stdout);
    ensure!(frames.len() == 18, "18 records, {} frames", frames.len());
    for other in [&by_operation, &by_body] {
        ensure!(
            frames_of(&other.stdout) == frames,
            "another story than from idem_44:\n{}",
            other.stdout
        );
    }
    stage.note(&format!(
        "The same {} frames of {} from all three. Exit code 5: found, and it contradicts itself.",
        frames.len(),
        drill.events.len()
    ));
    Ok(())
}

/// What stands at the top of a story: its state, who allowed it, how it was checked.
pub(super) fn is_head(line: &str) -> bool {
    ["STATE", "ALLOWED", "CHECK"]
        .iter()
        .any(|field| line.starts_with(field))
}

/// The body of the story's callback, which was delivered twice.
fn callback(events: &[Event]) -> Result<Vec<u8>> {
    let told = events.iter().filter(|event| event.story == "act_01");
    for event in told {
        let record: Value = serde_json::from_str(&event.line)?;
        if let Some(body) = record["raw_body"].as_str() {
            return STANDARD.decode(body).context("a body in base64");
        }
    }
    anyhow::bail!("the story has no callback")
}

/// The numbers that the lines of a story begin with.
fn frames_of(text: &str) -> BTreeSet<u64> {
    let table = text.lines().skip_while(|line| !line.starts_with("FRAME"));
    table
        .filter(|line| line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

/// Whether a line of a story says that something contradicts or is missing.
fn has_mark(line: &str) -> bool {
    line.contains("  ! ") || line.contains("  ? ")
}

/// A story of the month, and what its trace must say.
struct Asked {
    plot: &'static Plot,
    kind: &'static str,
    code: i32,
    says: &'static [&'static str],
}

fn others(drill: &mut Drill) -> Result<()> {
    drill.stage.step(
        "What else went wrong in November",
        "Each of these is one question away, whichever identifier it is asked by. Shown are the state, what is missing \
         or contradicts, and the lines that tell of it.",
    );
    let asked = [
        Asked {
            plot: &FORGED,
            kind: "act",
            code: 0,
            says: &["signature bad"],
        },
        Asked {
            plot: &TWICE,
            kind: "op",
            code: 0,
            says: &["duplicate"],
        },
        Asked {
            plot: &AMBIGUOUS,
            kind: "idem",
            code: 0,
            says: &["timed out", "asked about", "in progress"],
        },
        Asked {
            plot: &LATE,
            kind: "wf",
            code: 5,
            says: &[
                "-> cancelled",
                "result succeeded",
                "! contradiction (late_callback)",
            ],
        },
        Asked {
            plot: &UNPUBLISHED,
            kind: "act",
            code: 0,
            says: &["answered 202", "-> failed"],
        },
    ];
    for asked in asked {
        let name = asked.plot.name();
        let line = format!("ledger trace {}_{name} --socket {OPERATOR}", asked.kind);
        let ran = drill.stage.run(&line)?.ends_with(asked.code)?;
        drill.stage.show_extract(&ran.stdout, |line| {
            let tells = asked.says.iter().any(|text| line.contains(text));
            tells || line.starts_with("STATE") || line.starts_with("CHECK") || has_mark(line)
        });
        for text in asked.says {
            ran.says(text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_numbers_of_the_table() {
        let text = "STATE    confirmed [12]\n\nFRAME  TIME  BY  WHAT\n    6  14:02  a  8 of\n       9\n    - -\nNEXT  5\n";
        assert_eq!(frames_of(text), BTreeSet::from([6, 9]));
    }
}
