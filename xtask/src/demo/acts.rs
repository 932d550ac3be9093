//! The steps of the drill, in their order. Each says what it shows and fails where it does not.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::stage::{Stage, all, files_below};

const APPEND: &str = "ledger append --ledger host/audit --state host/state";
const RECEIPTS: &str = "host/receipts.ndjson";
/// Receipts after which the writer is killed.
const KILLED_AFTER: usize = 1_000;

pub(super) fn play(stage: &mut Stage) -> Result<()> {
    vault_key(stage)?;
    ledger(stage)?;
    processes(stage)?;
    secret_refused(stage)?;
    threads(stage)?;
    killed(stage)?;
    opened_again(stage)?;
    audited(stage)?;
    read(stage)?;
    tampered(stage)?;
    rolled_back(stage)?;
    goes_on(stage)
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

fn processes(stage: &mut Stage) -> Result<()> {
    stage.step(
        "Five components tell one story, each in a process of its own",
        "The call to the build service times out and is sent again with the same idempotency reference; 202 is no \
         result yet; the callback comes twice; later another one says the opposite. Each line of input is a record; \
         its receipt is printed once the record is on the disk.",
    );
    let parts = [
        (
            "01-agent",
            "the rules in force, a run, an approved action: requested",
        ),
        (
            "02-outbound",
            "sent, timed out, sent again, 202, operation op_9f2: submitted",
        ),
        (
            "03-intake",
            "callback with its raw body, verified; the same again: a duplicate",
        ),
        ("04-workflow", "joined by the exact operation id: confirmed"),
        (
            "05-late",
            "a signed callback says failed: kept, as an exception nobody closes but a person",
        ),
    ];
    for (file, what) in parts {
        let ran = stage
            .run(&format!("{APPEND} story/{file}.ndjson >> {RECEIPTS}"))?
            .ends_with(0)?;
        let receipts = receipts_in(&ran.stdout)?;
        let records = fs::read_to_string(stage.path(&format!("story/{file}.ndjson")))?
            .lines()
            .count();
        ensure!(
            receipts.len() == records,
            "{records} records of {file}, {} receipts",
            receipts.len()
        );
        if file == "01-agent" {
            stage.show(&ran.stdout, all);
        }
        let (first, last) = (receipts.first(), receipts.last());
        if let (Some(first), Some(last)) = (first, last) {
            stage.note(&format!("frames {} to {}: {what}", first.seq, last.seq));
        }
    }
    Ok(())
}

fn secret_refused(stage: &mut Stage) -> Result<()> {
    stage.step(
        "A record that carries a token is refused",
        "Nothing can be taken out of an append-only ledger, so a credential must not get in.",
    );
    let ran = stage
        .run(&format!("{APPEND} story/refused.ndjson"))?
        .ends_with(1)?;
    stage.show(&ran.stderr, all);
    ran.says("/request/headers/1/value")?;
    ensure!(
        !ran.stdout.contains("7fc1") && !ran.stderr.contains("7fc1"),
        "the token was repeated in the refusal"
    );
    Ok(())
}

fn threads(stage: &mut Stage) -> Result<()> {
    stage.step(
        "Eight threads of one process append at the same time",
        "Every record waits for its own sync, and records that wait together share one.",
    );
    let before = highest_seq(stage)?;
    let ran = stage
        .run(&format!(
            "story host/audit host/state story/parallel.ndjson par 8 20 >> {RECEIPTS}"
        ))?
        .ends_with(0)?;
    let receipts = receipts_in(&ran.stdout)?;
    ensure!(
        receipts.len() == 8 * 20 * 4,
        "expected 640 receipts, found {}",
        receipts.len()
    );
    let ran = stage
        .run("ledger inspect host/audit --json > host/frames.ndjson")?
        .ends_with(0)?;
    let mut writes = 0;
    for line in ran.stdout.lines() {
        let frame: Value = serde_json::from_str(line).context("a frame as JSON")?;
        let is_new = frame["seq"].as_u64() > Some(before);
        writes += usize::from(
            is_new && frame["kind"] == "record" && frame["write"]["index"].as_u64() == Some(0),
        );
    }
    stage.note(&format!(
        "{} records acknowledged, brought by {writes} writes of one sync each",
        receipts.len()
    ));
    stage
        .run("cp -a host/audit host/nightly-backup")?
        .ends_with(0)?;
    stage.note("Somebody's nightly backup. It comes back in step 11.");
    Ok(())
}

fn killed(stage: &mut Stage) -> Result<()> {
    stage.step(
        "kill -9 in the middle of it",
        "Eight threads append without end. The writer gets no chance to finish, flush or close anything.",
    );
    let mut child = stage.start(
        "story host/audit host/state story/parallel.ndjson killed 8 >> host/receipts.ndjson",
    )?;
    let pid = child.id();
    let mut output = BufReader::new(child.stdout.take().context("its output")?);
    let mut text = String::new();
    for _ in 0..KILLED_AFTER {
        if output.read_line(&mut text)? == 0 {
            break;
        }
    }
    // SIGKILL, on Unix.
    child.kill().context("killing the writer")?;
    // What was printed before that was acknowledged too, but for a line that the kill cut.
    while output.read_line(&mut text)? > 0 {}
    let status = child.wait()?;
    ensure!(
        status.code().is_none(),
        "the writer ended by itself with {status}"
    );
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    text.truncate(whole);
    let receipts = receipts_in(&text)?;
    ensure!(
        receipts.len() >= KILLED_AFTER,
        "the writer ended after {} receipts",
        receipts.len()
    );
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(stage.path(RECEIPTS))?;
    file.write_all(text.as_bytes())?;
    stage.note(&format!(
        "kill -9 {pid}: {status}. It had acknowledged {} records.",
        receipts.len()
    ));
    Ok(())
}

fn opened_again(stage: &mut Stage) -> Result<()> {
    stage.step(
        "Open again: every acknowledged record is there",
        "Opening is recovery, always. An unfinished write would be set aside and declared in the chain, never dropped \
         in silence. Then the investigator reads all of it, and each receipt is held against what was read.",
    );
    let ran = stage
        .run("ledger recover host/audit --state host/state")?
        .ends_with(0)?;
    stage.show(&ran.stdout, all);
    ran.says("RECOVERED")?;
    let ran = stage
        .run("ledger read host/audit --vault-key investigator/vault.key --trust auditor/trust.txt > investigator/all.ndjson")?
        .ends_with(0)?;
    stage.show(&ran.stderr, all);
    let mut read = BTreeSet::new();
    for line in ran.stdout.lines() {
        let line: Value = serde_json::from_str(line).context("a record as JSON")?;
        read.insert(Receipt {
            seq: line["seq"].as_u64().context("seq")?,
            link: text_of(&line["link"])?,
            record_id: text_of(&line["record"]["record_id"])?,
        });
    }
    let acknowledged = receipts_in(&fs::read_to_string(stage.path(RECEIPTS))?)?;
    for receipt in &acknowledged {
        ensure!(
            read.contains(receipt),
            "record {} was acknowledged as frame {} and is not there",
            receipt.record_id,
            receipt.seq
        );
    }
    let more = read.len().saturating_sub(acknowledged.len());
    stage.note(&format!(
        "{} receipts, {} records found with the same number, chain value and id. {more} more were on the disk whole, \
         but nobody had been told yet: they stay too.",
        acknowledged.len(),
        acknowledged.len()
    ));
    Ok(())
}

fn audited(stage: &mut Stage) -> Result<()> {
    stage.step(
        "The auditor proves the chain whole, without any key",
        "A copy of the .frames files, the trust line, and the receipts that clients kept. The verifier links no \
         decryption at all, and it runs offline.",
    );
    let copy = stage.path("auditor/copy");
    fs::create_dir_all(&copy)?;
    let mut names = Vec::new();
    for file in files_below(&stage.path("host/audit/segments"))? {
        if file.extension().is_some_and(|end| end == "frames") {
            let name = file.file_name().context("a file name")?.to_string_lossy();
            names.push(format!("host/audit/segments/{name}"));
        }
    }
    stage
        .run(&format!("cp {} auditor/copy", names.join(" ")))?
        .ends_with(0)?;
    let ran = stage
        .run("ledger-verify auditor/copy --trust auditor/trust.txt --receipts host/receipts.ndjson --save-checkpoint auditor/today.ckpt")?
        .ends_with(0)?;
    stage.show(&ran.stdout, all);
    ran.says("VERIFIED")?;
    for word in [
        "act_01",
        "op_9f2",
        "oncall",
        "builds.example.com",
        "confirmed",
    ] {
        for file in files_below(&copy)? {
            ensure!(
                !holds(&fs::read(&file)?, word),
                "{word} can be read in {}",
                file.display()
            );
        }
    }
    stage.note(
        "No id, name, host or state of the story stands in these files in clear (searched for five).",
    );
    Ok(())
}

fn read(stage: &mut Stage) -> Result<()> {
    stage.step(
        "The investigator reads one record",
        "Decrypted only after the chain up to a signed checkpoint was checked. Another key opens nothing.",
    );
    let seq = seq_of(stage, "05-late", 2)?;
    let range = format!("--from {seq} --until {seq}");
    let ran = stage
        .run(&format!(
            "ledger read host/audit --vault-key investigator/vault.key --trust auditor/trust.txt {range}"
        ))?
        .ends_with(0)?;
    ran.says("rcp_05 says failed for op_9f2 after wf_7 was confirmed")?;
    let line: Value = serde_json::from_str(&ran.stdout).context("a record as JSON")?;
    stage.show(&serde_json::to_string_pretty(&line["record"])?, all);
    stage.note("Laid out here for reading: the program prints a record a line.");
    stage.show(&ran.stderr, all);
    stage
        .run("ledger vault-key new auditor/other.key > auditor/other.pub")?
        .ends_with(0)?;
    let ran = stage
        .run(&format!(
            "ledger read host/audit --vault-key auditor/other.key --trust auditor/trust.txt {range}"
        ))?
        .ends_with(3)?;
    stage.show(&ran.stderr, all);
    ensure!(ran.stdout.is_empty(), "another key opened something");
    Ok(())
}

fn tampered(stage: &mut Stage) -> Result<()> {
    stage.step(
        "Somebody changes one byte of the copy",
        "In the middle of the record that said confirmed. The verifier cannot read it, and names it.",
    );
    let seq = seq_of(stage, "04-workflow", 1)?;
    let ran = stage
        .run(&format!("ledger inspect host/audit --seq {seq} --json"))?
        .ends_with(0)?;
    stage.show(&ran.stdout, all);
    let frame: Value = serde_json::from_str(&ran.stdout).context("a frame as JSON")?;
    let number = |name: &str| frame[name].as_u64().with_context(|| name.to_owned());
    let at = number("offset")? + number("len")? / 2;
    let name = format!("{:020}.frames", number("segment")?);
    let path = stage.path("auditor/copy").join(&name);
    let mut bytes = fs::read(&path)?;
    let byte = bytes
        .get_mut(usize::try_from(at)?)
        .context("the frame lies inside the file")?;
    let old = *byte;
    *byte ^= 0x01;
    stage.note(&format!(
        "auditor/copy/{name}, byte {at}: {old:02x} becomes {:02x}",
        *byte
    ));
    fs::write(&path, bytes)?;
    let ran = stage
        .run("ledger-verify auditor/copy --trust auditor/trust.txt")?
        .ends_with(1)?;
    stage.show_report(&ran.stdout, "STILL GOOD");
    ran.says("VIOLATION")?;
    ran.says(&format!("frame_altered  frame {seq} "))
}

fn rolled_back(stage: &mut Stage) -> Result<()> {
    stage.step(
        "Somebody puts the nightly backup back",
        "An old copy is whole in itself, so its own contents cannot betray it. The floor does: the newest checkpoint \
         ever issued, kept outside of the folder. The auditor's kept checkpoint does too.",
    );
    for line in [
        "mv host/audit host/audit-today",
        "mv host/nightly-backup host/audit",
    ] {
        stage.run(line)?.ends_with(0)?;
    }
    let ran = stage
        .run(&format!("{APPEND} story/06-review.ndjson"))?
        .ends_with(3)?;
    stage.show(&ran.stderr, all);
    ran.says("was issued: this is an old copy")?;
    ensure!(
        ran.stdout.is_empty(),
        "something was appended to an old copy"
    );
    let ran = stage
        .run("ledger-verify host/audit --trust auditor/trust.txt --checkpoint auditor/today.ckpt")?
        .ends_with(1)?;
    stage.show_report(&ran.stdout, "STILL GOOD");
    ran.says("rolled_back")
}

fn goes_on(stage: &mut Stage) -> Result<()> {
    stage.step(
        "The right folder is back, and a person settles the exception",
        "The contradiction was kept until somebody decided. The chain goes on from where it was, and holds the \
         checkpoint that the auditor kept.",
    );
    for line in [
        "mv host/audit host/nightly-backup",
        "mv host/audit-today host/audit",
    ] {
        stage.run(line)?.ends_with(0)?;
    }
    let ran = stage
        .run(&format!("{APPEND} story/06-review.ndjson >> {RECEIPTS}"))?
        .ends_with(0)?;
    stage.show(&ran.stdout, all);
    let ran = stage
        .run("ledger-verify host/audit --trust auditor/trust.txt --checkpoint auditor/today.ckpt --receipts host/receipts.ndjson")?
        .ends_with(0)?;
    stage.show(&ran.stdout, |line| {
        line.starts_with("VERIFIED")
            || line.starts_with("Nothing")
            || line.starts_with("  continuity")
            || line.starts_with("  receipts")
            || line.starts_with("NOT SHOWN")
    });
    ran.says("VERIFIED")?;
    println!();
    Ok(())
}

/// A receipt, as far as the drill looks at it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Receipt {
    seq: u64,
    link: String,
    record_id: String,
}

fn receipts_in(text: &str) -> Result<Vec<Receipt>> {
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).context("a receipt as JSON")?;
            Ok(Receipt {
                seq: line["seq"].as_u64().context("a receipt without seq")?,
                link: text_of(&line["link"])?,
                record_id: text_of(&line["record_id"])?,
            })
        })
        .collect()
}

fn text_of(value: &Value) -> Result<String> {
    Ok(value.as_str().context("expected a text")?.to_owned())
}

fn highest_seq(stage: &Stage) -> Result<u64> {
    let receipts = receipts_in(&fs::read_to_string(stage.path(RECEIPTS))?)?;
    Ok(receipts
        .iter()
        .map(|receipt| receipt.seq)
        .max()
        .unwrap_or_default())
}

/// The frame that a record of the story became: the receipts say.
fn seq_of(stage: &Stage, file: &str, line: usize) -> Result<u64> {
    let story = fs::read_to_string(stage.path(&format!("story/{file}.ndjson")))?;
    let record: Value = serde_json::from_str(story.lines().nth(line).context("no such line")?)?;
    let id = text_of(&record["record_id"])?;
    receipts_in(&fs::read_to_string(stage.path(RECEIPTS))?)?
        .into_iter()
        .find(|receipt| receipt.record_id == id)
        .map(|receipt| receipt.seq)
        .with_context(|| format!("no receipt for {id}"))
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_are_read_and_a_cut_one_is_an_error() {
        let line = r#"{"receipt":"v1","seq":5,"link":"ab","record_id":"rec_1"}"#;
        let receipts = receipts_in(&format!("{line}\n{line}\n")).unwrap();
        assert_eq!((receipts.len(), receipts[0].seq), (2, 5));
        assert!(receipts_in(&line[..30]).is_err());
        assert!(holds(b"xxabyy", "ab") && !holds(b"xxaby", "abz"));
    }
}
