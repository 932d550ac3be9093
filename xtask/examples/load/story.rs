//! Load on the read side: the story behind an identifier, from a ledger's folder.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ledger_trace::{
    Answer, Derived, FolderOptions, FolderSource, Limits, Query, TraceExit, TrustLine, trace,
};
use ledger_vault::Identities;

use crate::material::{STORY_ACTION, STORY_RECORDS};
use crate::sample::Sample;
use crate::timed_sample;

/// Tells the story that `fill --story` appended, `times` times. Each time everything is opened
/// again, index, tiles and segments, as a process of its own would; only the page cache stays warm.
pub(crate) fn trace_story(dir: &Path, times: u32) -> Result<Sample> {
    let ledger = dir.join("audit");
    let vault = fs::read(dir.join("vault.key")).context("reading the vault key")?;
    let vault = Identities::open(&vault, || None)?;
    let line = fs::read_to_string(dir.join("trust")).context("reading the trust line")?;
    let trust = TrustLine::parse(line.trim())
        .map_err(|why| anyhow::anyhow!("the trust line just written: {why}"))?;
    let mut latencies = Vec::new();
    let began = Instant::now();
    for _ in 0..times {
        let start = Instant::now();
        let options = FolderOptions {
            trust: Some(trust.clone()),
            evidence: true,
            derived: Some(Derived::of_folder(&ledger, &vault)?),
            never_scan: true,
            ..FolderOptions::default()
        };
        let source = FolderSource::open(&ledger, vault.again(), options)?;
        let query = Query::value(STORY_ACTION);
        let answer = trace(&source, &query, Limits::default())?;
        latencies.push(start.elapsed().as_secs_f64());
        check(&answer)?;
    }
    Ok(timed_sample(
        latencies,
        1,
        began.elapsed().as_secs_f64(),
        STORY_RECORDS,
    ))
}

/// The whole story and nothing else, every line of it opened and tied to a pinned checkpoint.
fn check(answer: &Answer) -> Result<()> {
    let Answer::Found(told) = answer else {
        bail!("the story was not found: {answer:?}");
    };
    ensure!(
        answer.exit() == TraceExit::Found && told.lines.len() as u64 == STORY_RECORDS,
        "{STORY_RECORDS} records were appended, {} lines told, {:?}",
        told.lines.len(),
        told.findings
    );
    Ok(())
}
