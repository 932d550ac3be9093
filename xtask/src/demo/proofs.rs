//! What can be shown of the month afterwards, without a key and with it, and what a change or a roll-back looks like.
//!
//! Each step says what it shows and fails where it does not.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::drill::{Drill, OPERATOR, SERVE};
use super::receipts::{Receipt, keep, kept, seq_of};
use super::stage::{all, files_below, holds};
use super::traces::is_head;

/// Records of the story: the one that says confirmed, and the exception.
const CONFIRMED: &str = "rec_01KBAZ6W8G00000000000000SG";
const EXCEPTION: &str = "rec_01KBAZ6W8G00000000000000SK";

pub(super) fn play(drill: &mut Drill) -> Result<()> {
    audited(drill)?;
    each_there_once(drill)?;
    read(drill)?;
    tampered(drill)?;
    rolled_back(drill)?;
    goes_on(drill)
}

fn audited(drill: &mut Drill) -> Result<()> {
    let stage = &mut drill.stage;
    stage.step(
        "The auditor proves the chain whole, without any key",
        "A copy of the .frames files, taken while the daemon serves, the trust line, and the receipts that clients \
         kept. The verifier links no decryption at all, and it runs offline.",
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

fn each_there_once(drill: &mut Drill) -> Result<()> {
    let stage = &mut drill.stage;
    stage.step(
        "The investigator reads all of it: every acknowledged record is there, once",
        "Also what was under way when the daemon was killed. Each receipt that a client kept is held against \
         what was read.",
    );
    let ran = stage
        .run("ledger read host/audit --vault-key investigator/vault.key --trust auditor/trust.txt > investigator/all.ndjson")?
        .ends_with(0)?;
    stage.show(&ran.stderr, all);
    let mut read: BTreeMap<String, Vec<Receipt>> = BTreeMap::new();
    for line in ran.stdout.lines() {
        let mut line: Value = serde_json::from_str(line).context("a record as JSON")?;
        ensure!(
            line["attested"]["uid"].is_u64(),
            "the kernel's word about the sender is missing: {line}"
        );
        line["record_id"] = line["record"]["record_id"].take();
        let found = Receipt::of(&line)?;
        read.entry(found.record_id.clone()).or_default().push(found);
    }
    let acknowledged = kept(stage)?;
    for receipt in &acknowledged {
        let found = read.get(&receipt.record_id).map(Vec::as_slice);
        ensure!(
            found == Some(std::slice::from_ref(receipt)),
            "{receipt:?} was acknowledged, and {found:?} is there"
        );
    }
    ensure!(
        read.len() == acknowledged.len(),
        "{} records, {} receipts",
        read.len(),
        acknowledged.len()
    );
    stage.note(&format!(
        "{} receipts, {} records: each once, with the same number, chain value and id, and each with the uid that the \
         kernel attested.",
        acknowledged.len(),
        read.len()
    ));
    Ok(())
}

fn read(drill: &mut Drill) -> Result<()> {
    let stage = &mut drill.stage;
    stage.step(
        "The investigator reads one record",
        "Decrypted only after the chain up to a signed checkpoint was checked. Another key opens nothing.",
    );
    let seq = seq_of(stage, EXCEPTION)?;
    let range = format!("--from {seq} --until {seq}");
    let ran = stage
        .run(&format!(
            "ledger read host/audit --vault-key investigator/vault.key --trust auditor/trust.txt {range}"
        ))?
        .ends_with(0)?;
    ran.says("rcp_05 says failed for op_9f2 after wf_7 was confirmed")?;
    let line: Value = serde_json::from_str(&ran.stdout).context("a record as JSON")?;
    stage.show_json(&line["record"])?;
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

fn tampered(drill: &mut Drill) -> Result<()> {
    let stage = &mut drill.stage;
    stage.step(
        "Somebody changes one byte of the copy",
        "In the middle of the record that said confirmed. The verifier cannot read it, and names it.",
    );
    let seq = seq_of(stage, CONFIRMED)?;
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

fn rolled_back(drill: &mut Drill) -> Result<()> {
    drill.stage.step(
        "Somebody puts the nightly backup back",
        "An old copy is whole in itself, so its own contents cannot betray it. The floor does: the newest checkpoint \
         ever issued, kept outside of the folder. The auditor's kept checkpoint does too.",
    );
    drill.stop()?;
    let stage = &drill.stage;
    stage.note("Stopped: what had arrived was answered, the segment closed, a checkpoint signed; exit code 0.");
    for line in [
        "mv host/audit host/audit-today",
        "mv host/nightly-backup host/audit",
    ] {
        stage.run(line)?.ends_with(0)?;
    }
    let ran = stage.run(SERVE)?.ends_with(1)?;
    stage.show(&ran.stderr, all);
    ran.says("was issued: this is an old copy")?;
    let ran = stage
        .run("ledger-verify host/audit --trust auditor/trust.txt --checkpoint auditor/today.ckpt")?
        .ends_with(1)?;
    stage.show_report(&ran.stdout, "STILL GOOD");
    ran.says("rolled_back")
}

fn goes_on(drill: &mut Drill) -> Result<()> {
    drill.stage.step(
        "The right folder is back, and a person settles the exception",
        "The contradiction was kept until somebody decided. The chain goes on from where it was, and holds the \
         checkpoint that the auditor kept.",
    );
    for line in [
        "mv host/audit host/nightly-backup",
        "mv host/audit-today host/audit",
    ] {
        drill.stage.run(line)?.ends_with(0)?;
    }
    drill.serve()?;
    let (ran, answer) = drill.send("story/06-review.ndjson")?;
    let ran = ran.ends_with(0)?;
    drill.stage.show(&ran.stdout, all);
    // curl prints the daemon's acknowledgement, which has the receipt in it; ours the receipt itself.
    let receipt = answer.get("receipt").filter(|member| member.is_object());
    keep(&drill.stage, &[receipt.unwrap_or(&answer).to_string()])?;
    let ran = drill
        .stage
        .run(&format!("ledger trace exc_01 --socket {OPERATOR}"))?
        .ends_with(0)?;
    drill.stage.show_extract(&ran.stdout, is_head);
    ran.says("1 decided by a person")?;
    drill.stop()?;
    let stage = &drill.stage;
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
    ran.says("VERIFIED")
}
