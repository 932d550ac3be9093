//! The month: a ledger is made and served, clients append to it, the daemon is killed meanwhile.
//!
//! Each step says what it shows and fails where it does not.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cast::Cast;
use super::drill::{Drill, OPERATOR, WRITER};
use super::month::{AMBIGUOUS, BURST_DAY, FORGED, LATE, Plot, TWICE, UNPUBLISHED};
use super::receipts::{Receipt, keep, kept};
use super::stage::{Stage, all, files_below, holds};
use super::story::{Event, Who};

/// Acknowledgements of the burst after which the daemon is killed.
const KILLED_AFTER: usize = 100;

pub(super) fn play(drill: &mut Drill) -> Result<()> {
    vault_key(&mut drill.stage)?;
    ledger(&mut drill.stage)?;
    served(drill)?;
    let mut cast = Cast::new(drill.stage.path("host/clients.log"));
    let burst = drill.events.iter().position(is_burst);
    let burst = burst.context("there is no burst")?;
    first_half(drill, &mut cast, burst)?;
    killed(drill, &mut cast, burst)?;
    sent_again(drill)?;
    second_half(drill, &mut cast)?;
    secret_refused(&mut drill.stage)?;
    status(drill)?;
    cast.leave()
}

fn is_burst(event: &Event) -> bool {
    event.at.day() == BURST_DAY && event.story > format!("11{BURST_DAY:02}_100")
}

fn first_of(drill: &Drill, day: u64) -> Result<usize> {
    let found = drill.events.iter().position(|e| e.at.day() >= day);
    found.with_context(|| format!("nothing happens from the {day}th on"))
}

fn vault_key(stage: &mut Stage) -> Result<()> {
    stage.step(
        "The investigator makes a vault key",
        "Only this key opens evidence. It stays on the investigator's machine; the host gets the public part.",
    );
    let ran = stage
        .run("ledger vault-key new investigator/vault.key > investigator/vault.pub")?
        .ends_with(0)?;
    stage.show(&ran.stderr, |line| line.contains("mode"));
    stage.show(&ran.stdout, all);
    Ok(())
}

fn ledger(stage: &mut Stage) -> Result<()> {
    stage.step(
        "The host makes a ledger",
        "Its trust line is all that an auditor ever needs. It is written down today, away from this machine.",
    );
    let ran = stage
        .run("ledger init host/audit --state host/state --origin audit.example.com/build-agent --recipients-file investigator/vault.pub")?
        .ends_with(0)?;
    stage.show(&ran.stdout, |line| {
        line.starts_with("Created") || line.contains("build-agent/") || line.contains("read aloud")
    });
    let trust = ran
        .stdout
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("audit.example.com/build-agent/") && line.contains('+'))
        .context("init printed no trust line")?;
    fs::write(stage.path("auditor/trust.txt"), format!("{trust}\n"))?;
    stage.note("The auditor keeps it in auditor/trust.txt.");

    let key = fs::read_to_string(stage.path("investigator/vault.key"))?;
    let secret = key
        .lines()
        .find(|line| line.starts_with("AGE-SECRET-KEY"))
        .context("the vault key file holds no key")?;
    for file in files_below(&stage.path("host"))? {
        ensure!(
            !holds(&fs::read(&file)?, secret),
            "{} holds the vault key",
            file.display()
        );
    }
    Ok(())
}

fn served(drill: &mut Drill) -> Result<()> {
    drill.stage.step(
        "The host serves it",
        "Services append over a unix socket, in any language. The kernel says who is behind it, and every record \
         holds that.",
    );
    let ran = drill.stage.run("ledger config check host/ledger.toml")?;
    let ran = ran.ends_with(0)?;
    drill.stage.show(&ran.stdout, |line| line.contains(".sock"));
    drill.serve()?;
    let pid = drill.pid().context("no daemon runs")?;
    drill
        .stage
        .note(&format!("It serves, pid {pid}. Its log is host/serve.log."));
    Ok(())
}

fn first_half(drill: &mut Drill, cast: &mut Cast, until: usize) -> Result<()> {
    drill.stage.step(
        "A month at work: five services, each in a process of its own",
        "The times of November 2026 are in the records: they are what each service says. When the record was \
         appended is said by the ledger, and is today. A callback is recorded with its raw body before anybody \
         judges it.",
    );
    for who in Who::ALL {
        let line = drill.part(who);
        let pid = cast.enter(who, drill.stage.command(&line))?;
        let source = who.source();
        drill
            .stage
            .show_command(&format!("{line}  # {source}, pid {pid}"));
    }
    let backup = first_of(drill, BURST_DAY)?;
    cast.tell(&drill.events[..backup], |_| Ok(()))?;
    weeks(drill, &[(2, 6), (9, 13)])?;
    for plot in [&FORGED, &TWICE, &AMBIGUOUS] {
        tell_of(&drill.stage, plot);
    }
    drill
        .stage
        .note("Each record was acknowledged after its sync, with a receipt that the client keeps.");
    drill
        .stage
        .run("cp -a host/audit host/nightly-backup")?
        .ends_with(0)?;
    drill
        .stage
        .note("Somebody's nightly backup of 13 November. It comes back later.");
    cast.tell(&drill.events[backup..until], |_| Ok(()))?;
    keep_new(drill, cast)
}

/// What the weeks brought.
fn weeks(drill: &Drill, weeks: &[(u64, u64)]) -> Result<()> {
    for (from, until) in weeks {
        let mut counts = [0_usize; 4];
        for event in &drill.events {
            if !(*from..=*until).contains(&event.at.day()) {
                continue;
            }
            let record: Value = serde_json::from_str(&event.line)?;
            let kinds = ["action", "attempt", "receipt"];
            for (kind, count) in kinds.iter().zip(&mut counts) {
                let is_once = record["outcome"]["kind"] != "pending";
                *count += usize::from(record["type"] == *kind && is_once);
            }
            counts[3] += 1;
        }
        let [actions, attempts, callbacks, records] = counts;
        let days = if from == until {
            format!("{from} Nov")
        } else {
            format!("{from} to {until} Nov")
        };
        drill.stage.note(&format!(
            "{days:<12}  {actions} actions, {attempts} transmissions, {callbacks} callbacks: {records:>4} records"
        ));
    }
    Ok(())
}

fn tell_of(stage: &Stage, plot: &Plot) {
    let (day, action) = (format!("{} Nov", plot.day), format!("act_{}", plot.name()));
    stage.note(&format!("{day:<12}  {action}: {}", plot.told));
}

/// Keeps what clients were told since the last time; each record was acknowledged once.
fn keep_new(drill: &Drill, cast: &mut Cast) -> Result<()> {
    let lines = std::mem::take(&mut cast.receipts);
    keep(&drill.stage, &lines)?;
    let kept = kept(&drill.stage)?;
    let seqs: BTreeSet<u64> = kept.iter().map(|receipt| receipt.seq).collect();
    let ids: BTreeSet<&str> = kept.iter().map(|r| r.record_id.as_str()).collect();
    ensure!(
        seqs.len() == kept.len() && ids.len() == kept.len(),
        "{} receipts for {} records in {} frames",
        kept.len(),
        ids.len(),
        seqs.len()
    );
    Ok(())
}

fn killed(drill: &mut Drill, cast: &mut Cast, burst: usize) -> Result<()> {
    drill.stage.step(
        "16 November, 14:30: the daemon is killed in the middle of it",
        "An agent starts forty builds at once. kill -9 gives the daemon no chance to finish, flush or close \
         anything. The clients do not know what became of what they had sent; they send it again as it was.",
    );
    let until = first_of(drill, BURST_DAY + 1)?;
    let events = std::mem::take(&mut drill.events);
    let (mut unanswered, mut acknowledged) = (0, 0);
    let told = cast.tell(&events[burst..until], |cast| {
        acknowledged += 1;
        if acknowledged == KILLED_AFTER {
            unanswered = cast.unanswered();
            drill.kill()?;
            drill.serve()?;
        }
        Ok(())
    });
    drill.events = events;
    told?;
    ensure!(unanswered > 0, "nobody was waiting when it was killed");
    let there = cast.duplicates.len();
    let log = fs::read_to_string(drill.stage.path("host/serve.log"))?;
    let opened = log.lines().rev().find_map(|line| {
        let (_, opened) = line.split_once("the ledger is open ")?;
        opened.split(" origin=").next()
    });
    let opened = opened.context("the daemon's log does not say that it opened the ledger")?;
    ensure!(
        opened.contains("unclean=true"),
        "opened after kill -9: {opened}"
    );
    drill.stage.note(&format!(
        "{KILLED_AFTER} records of the burst were acknowledged, {unanswered} more on their way. The daemon was started \
         again, as systemd would; opening is recovery, always. Its log: open, {opened}."
    ));
    let reached = match there {
        0 => "Nothing of that had reached the disk".to_owned(),
        count => format!("{count} of them had reached the disk: answered with the first receipt"),
    };
    drill.stage.note(&format!(
        "The clients sent again by themselves. {reached}. All {} records of the day are acknowledged, each appended \
         once.",
        until - burst
    ));
    keep_new(drill, cast)
}

fn sent_again(drill: &mut Drill) -> Result<()> {
    drill.stage.step(
        "Sent again: the first receipt. Other content under the same id: a conflict",
        "Whoever got no answer sends again. Nothing is appended twice, and nothing is replaced.",
    );
    let last = first_of(drill, BURST_DAY + 1)? - 1;
    let event = drill.events.get(last).context("an event")?;
    let receipts = kept(&drill.stage)?;
    let first = receipts.iter().find(|r| r.record_id == event.record_id);
    let first = first.context("no receipt of that record")?;

    fs::write(drill.stage.path("story/again.json"), &event.line)?;
    let (ran, answer) = drill.send("story/again.json")?;
    ran.ends_with(0)?;
    drill.stage.show_json(&answer)?;
    ensure!(
        answer["duplicate"] == true && Receipt::of(&answer)? == *first,
        "{first:?} was the first receipt, and this is the second: {answer}"
    );

    let other = event
        .line
        .replace(r#""to":"confirmed""#, r#""to":"failed""#);
    ensure!(other != event.line, "{} confirms nothing", event.record_id);
    fs::write(drill.stage.path("story/other.json"), other)?;
    let (ran, answer) = drill.send("story/other.json")?;
    drill.stage.show_json(&answer)?;
    ran.says("record_conflict")?;
    let named = [&answer["first_seq"], &answer["error"]["first_seq"]];
    ensure!(
        named.iter().any(|seq| **seq == first.seq),
        "the conflict does not name frame {}: {answer}",
        first.seq
    );
    drill.stage.note(&format!(
        "{} stands in frame {} as it was said first: confirmed.",
        event.record_id, first.seq
    ));
    Ok(())
}

fn second_half(drill: &mut Drill, cast: &mut Cast) -> Result<()> {
    drill.stage.step(
        "The second half of November",
        "The same five processes; none of them was started again. Late and contradictory evidence is never refused: \
         it is kept, and what it contradicts stays open until a person decides.",
    );
    let from = first_of(drill, BURST_DAY + 1)?;
    cast.tell(&drill.events[from..], |_| Ok(()))?;
    weeks(drill, &[(16, 20), (23, 27), (30, 30)])?;
    for plot in [&LATE, &UNPUBLISHED] {
        tell_of(&drill.stage, plot);
    }
    drill.stage.note(&format!(
        "{:<12}  act_01: timed out, sent again, taken with 202, called back twice; later the opposite",
        "30 Nov"
    ));
    keep_new(drill, cast)?;
    let kept = kept(&drill.stage)?.len();
    let sent = drill.events.len();
    ensure!(kept == sent, "{sent} records sent, {kept} receipts");
    Ok(())
}

fn secret_refused(stage: &mut Stage) -> Result<()> {
    stage.step(
        "A record that carries a token is refused",
        "Nothing can be taken out of an append-only ledger, so a credential must not get in.",
    );
    let ran = stage
        .run(&format!(
            "ledger append --socket {WRITER} story/refused.ndjson"
        ))?
        .ends_with(1)?;
    stage.show(&ran.stderr, all);
    ran.says("/request/headers/1/value")?;
    ensure!(
        !ran.stdout.contains("7fc1") && !ran.stderr.contains("7fc1"),
        "the token was repeated in the refusal"
    );
    Ok(())
}

fn status(drill: &mut Drill) -> Result<()> {
    drill.stage.step(
        "How the daemon is",
        "For whoever is on call, and for machines with --json. The operator socket is for its owner only.",
    );
    let ran = drill
        .stage
        .run(&format!("ledger status --socket {OPERATOR}"))?;
    drill.stage.show(&ran.stdout, all);
    // 1: degraded. A nearly full disk or another clock is this machine's business.
    ensure!(
        ran.code == Some(0) || ran.code == Some(1),
        "it is not accepting appends"
    );
    ran.says("head frame")?;
    ran.says("faults 0")
}
