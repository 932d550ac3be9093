//! From chain and conclusion to the report: verdict, first sentences, notes, next steps.

use crate::chain::Chain;
use crate::code::{Class, Code};
use crate::conclude::{Conclusion, inside_line};
use crate::files::Folder;
use crate::finding::{FINDINGS_LISTED_MAX, Finding, Note};
use crate::payload_files::is_payload_file;
use crate::payloads::PayloadOutcome;
use crate::report::{
    Continuity, CountsReport, Freshness, GenerationReport, NOT_SHOWN, ReadReport, Report,
    TailReport, TrustReport, Verdict,
};
use crate::verify::Request;
use std::collections::BTreeSet;
use std::time::Duration;

/// Everything that a report is made from.
pub(crate) struct Material<'m, 'r> {
    pub(crate) request: &'m Request,
    pub(crate) folder: &'m Folder,
    pub(crate) read: usize,
    pub(crate) chain: &'m Chain<'r>,
    pub(crate) conclusion: &'m Conclusion,
    pub(crate) findings: Vec<Finding>,
    pub(crate) payloads: Option<&'m PayloadOutcome>,
    pub(crate) elapsed: Duration,
}

pub(crate) fn summarize(m: &Material<'_, '_>) -> Report {
    let total = &m.chain.total;
    let verdict = Verdict::of(&m.findings, m.conclusion.anchored, m.request.quick);
    let ledger = inside_line(m.chain).and_then(|l| l.split('+').next().map(str::to_owned));
    let frames = frames(m);
    let mut findings = m.findings.clone();
    let more = findings.len().saturating_sub(FINDINGS_LISTED_MAX) as u64;
    let more = more.saturating_add(m.payloads.map_or(0, |p| p.findings.more));
    findings.truncate(FINDINGS_LISTED_MAX);
    let mut report = Report {
        report: "v1",
        tool: concat!("ledger-verify ", env!("CARGO_PKG_VERSION")).to_owned(),
        verdict,
        exit_code: verdict.exit_code(),
        headline: String::new(),
        sentence: String::new(),
        ledger,
        frames,
        checked_at: m.request.now.to_rfc3339(),
        trust: trust(m),
        not_used: m.request.not_used.clone(),
        continuity: Continuity {
            checkpoints: m.conclusion.held.clone(),
            receipts: m.conclusion.receipts.clone(),
        },
        freshness: freshness(m),
        tail: tail(m),
        read: read(m),
        counts: CountsReport {
            records: total.counts.records,
            control_frames: total.counts.control,
            checkpoints: total.counts.checkpoints,
            epochs: m.chain.segments.len() as u64,
        },
        payloads: m.payloads.map(|p| p.report.clone()),
        generations: generations(m),
        notes: notes(m),
        notes_more: total.notes.more,
        findings,
        findings_more: total.findings.more.saturating_add(more),
        follows: total.follows.listed.clone(),
        follows_count: total.follows.total(),
        still_good: still_good(m),
        comparison: None,
        not_shown: NOT_SHOWN,
        next_steps: Vec::new(),
    };
    report.headline = headline(&report);
    report.sentence = sentence(m, &report);
    report.next_steps = next_steps(&report);
    report
}

fn frames(m: &Material<'_, '_>) -> Option<(u64, u64)> {
    let first = m.chain.total.first_seq?.0;
    let next = m.chain.total.next_seq?.0;
    let last = next.checked_sub(1)?;
    (last >= first).then_some((first, last))
}

fn trust(m: &Material<'_, '_>) -> TrustReport {
    let line = m.request.anchors.trust.as_ref();
    let inside = inside_line(m.chain);
    let shown = line.map(|l| l.key.to_string()).or_else(|| inside.clone());
    TrustReport {
        given: line.is_some(),
        source: line.map(|l| l.source.clone()),
        reads: shown.as_deref().map(ledger_format::short_form),
        key_inside: inside,
        reaches_generation: m.conclusion.reaches.map(|g| g.0),
    }
}

fn freshness(m: &Material<'_, '_>) -> Freshness {
    let newest = m.conclusion.newest.as_ref();
    Freshness {
        checkpoint_size: newest.map(|c| c.size),
        checkpoint_time: newest.map(|c| c.time.to_rfc3339()),
        age_ms: newest.and_then(|c| m.request.now.0.checked_sub(c.time.0)),
        max_age_ms: m.request.max_age,
    }
}

fn tail(m: &Material<'_, '_>) -> TailReport {
    let next = m.chain.total.next_seq.map_or(0, |s| s.0);
    // The checkpoint frame itself is its own proof: only what stands behind it is uncovered.
    let covered = m
        .conclusion
        .newest
        .as_ref()
        .map_or(0, |c| c.size.saturating_add(1));
    TailReport {
        last_frame: next.checked_sub(1),
        uncovered_frames: next.saturating_sub(covered),
    }
}

fn read(m: &Material<'_, '_>) -> ReadReport {
    let bytes = m.chain.segments.iter();
    let mut skipped = Vec::new();
    if m.request.quick {
        skipped.push(
            "most record frames: their links and leaf hashes, and all checkpoint roots (--quick)"
                .to_owned(),
        );
    }
    let absent = m.folder.segments.len().saturating_sub(m.read);
    if absent > 0 {
        skipped.push(format!("{absent} segments outside the frames asked for"));
    }
    if m.request.payloads.is_some() && m.payloads.is_none() {
        skipped.push("payload files: they need all frames up to the end, hashed".to_owned());
    }
    let not_judged = m.payloads.map_or(0, |p| p.report.not_judged);
    if not_judged > 0 {
        skipped.push(format!(
            "payload files of {not_judged} segment{} absent or with findings in the chain",
            plural(not_judged)
        ));
    }
    // Payload files beside the frames are not ignored when they are checked.
    let beside = m.payloads.map_or(0, |p| p.beside);
    let mut ignored = m.folder.ignored.clone();
    ignored.retain(|name| beside == 0 || !is_payload_file(name));
    ReadReport {
        segments_read: m.chain.segments.len() as u64,
        segments_present: m.folder.segments.len() as u64,
        bytes: bytes.fold(0, |sum: u64, s| sum.saturating_add(s.len)),
        elapsed_ms: u64::try_from(m.elapsed.as_millis()).unwrap_or(u64::MAX),
        ignored,
        ignored_count: m.folder.ignored_count.saturating_sub(beside),
        skipped,
        files: Vec::new(),
    }
}

fn generations(m: &Material<'_, '_>) -> Vec<GenerationReport> {
    let seen = m.chain.total.generations.iter().take(FINDINGS_LISTED_MAX);
    seen.map(|g| GenerationReport {
        generation: g.number.0,
        seq: g.seq.0,
        planned: g.planned,
        reason: g.reason.clone(),
        time: g.time.to_rfc3339(),
    })
    .collect()
}

fn notes(m: &Material<'_, '_>) -> Vec<Note> {
    let total = &m.chain.total;
    let mut notes = total.notes.listed.clone();
    let plain = |kind, text| Note {
        kind,
        seq: None,
        time: None,
        text,
    };
    if let Some((seq, by)) = total.clock.worst {
        let text = format!(
            "the clock went back {} times, at most by {}",
            total.clock.steps,
            span(by)
        );
        notes.push(Note {
            seq: Some(seq.0),
            ..plain("clock_back", text)
        });
    }
    for what in &m.conclusion.not_compared {
        let text = format!("{what}: falls into what was not or could not be read");
        notes.push(plain("not_compared", text));
    }
    notes
}

fn still_good(m: &Material<'_, '_>) -> Vec<u64> {
    if m.findings.iter().all(|f| f.class == Class::Incomplete) {
        return Vec::new();
    }
    let of_payloads = m.findings.iter().filter(|f| f.code.is_of_payloads());
    let touched: BTreeSet<u64> = of_payloads.map(|f| f.place.segment.0).collect();
    let good = m.chain.segments.iter();
    let good = good.filter(|s| s.good && !touched.contains(&s.first.0));
    good.map(|s| s.first.0).collect()
}

fn headline(report: &Report) -> String {
    let ledger = report.ledger.as_deref().unwrap_or("an unnamed ledger");
    let mut line = format!("{}  {ledger}", report.verdict.words());
    match report.verdict {
        Verdict::Violation => {
            let count = report.findings.len() as u64;
            let total = count.saturating_add(report.findings_more);
            line.push_str(&match report.findings.first() {
                Some(f) if total == 1 => format!(": 1 finding, at frame {}", f.place.seq),
                Some(f) => format!(": {total} findings, the first at frame {}", f.place.seq),
                None => String::new(),
            });
        }
        Verdict::SelfConsistentOnly => {
            line = format!(
                "{}  (nothing from outside vouches for it, so nothing is verified)",
                report.verdict.words()
            );
        }
        _ => {
            if let Some((first, last)) = report.frames {
                line.push_str(&format!(", frames {first} to {last}"));
            }
            let notes = (report.notes.len() as u64).saturating_add(report.notes_more);
            if notes > 0 {
                line.push_str(&format!(", with {notes} note{}", plural(notes)));
            }
        }
    }
    for g in report.generations.iter().take(3) {
        let kind = if g.planned {
            "planned"
        } else {
            "NOT announced by the old key"
        };
        line.push_str(&format!(
            "; generation {} at frame {} ({kind}, {})",
            g.generation, g.seq, g.reason
        ));
    }
    line
}

fn sentence(m: &Material<'_, '_>, report: &Report) -> String {
    let until = report.freshness.checkpoint_time.as_deref();
    match report.verdict {
        Verdict::Verified => format!(
            "Nothing was changed, removed, inserted or reordered up to the checkpoint signed {}.",
            until.unwrap_or("at an unknown time")
        ),
        Verdict::QuickCheckPassed => "Heads, segment borders and checkpoint signatures are in order; most frames were not hashed.".to_owned(),
        Verdict::Violation => match first_violation(&report.findings) {
            Some(f) if outside(f.code) => {
                "The copy is not what was promised by what you hold from outside it.".to_owned()
            }
            Some(f) if f.code.is_of_payloads() => {
                "The frames are whole; payload files are not what they declare.".to_owned()
            }
            Some(f) => changed(m, f),
            None => String::new(),
        },
        Verdict::Incomplete => match m.findings.iter().find(|f| f.class == Class::Incomplete) {
            Some(f) if f.code == Code::TornTail => format!(
                "No sign of change. The last {} bytes are the start of a write that was never completed.",
                f.end.unwrap_or(0).saturating_sub(f.place.offset.0)
            ),
            Some(f) => format!("No sign of change. {}", first_sentence(f.code.explanation())),
            None => String::new(),
        },
        Verdict::CouldNotJudge => match m.findings.iter().find(|f| f.class == Class::CouldNotJudge) {
            Some(f) => first_sentence(f.code.explanation()),
            None => String::new(),
        },
        Verdict::SelfConsistentOnly => {
            "The files agree with each other. Whoever can write this folder can make such a set.".to_owned()
        }
    }
}

/// Says what is whole before the first violation, when nothing else was found there.
fn changed(m: &Material<'_, '_>, violation: &Finding) -> String {
    let mut text = "Something was changed after it was written.".to_owned();
    let first = m.chain.total.first_seq.map_or(0, |s| s.0);
    let last = violation.place.seq.0.checked_sub(1).filter(|l| *l >= first);
    if let (Some(last), true) = (last, m.findings.first() == Some(violation)) {
        text.push_str(&format!(" Frames {first} to {last} are whole."));
    }
    text
}

fn first_violation(findings: &[Finding]) -> Option<&Finding> {
    findings.iter().find(|f| f.class == Class::Violation)
}

const fn outside(code: Code) -> bool {
    matches!(
        code,
        Code::TrustMismatch
            | Code::RolledBack
            | Code::CheckpointAbsent
            | Code::AnchorSignature
            | Code::ReceiptAbsent
            | Code::ReceiptMismatch
    )
}

fn first_sentence(text: &str) -> String {
    match text.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => text.to_owned(),
    }
}

fn has(report: &Report, code: Code) -> bool {
    report.findings.iter().any(|f| f.code == code)
}

fn next_steps(report: &Report) -> Vec<String> {
    let steps: &[&str] = match report.verdict {
        Verdict::Violation => &[
            "keep this copy as it is: nothing was written to it",
            "rule out a bad copy:  ledger-verify DIR --compare OTHER_COPY   names the first frame that differs",
            "record it:            --report violation.html   (SHA-256 of all files read, tool version, this text)",
        ],
        Verdict::Incomplete if has(report, Code::GenerationUncovered) => &[
            "ask the operator, by a road that does not pass the ledger's host, for the new trust line and the reason, then pass it with --trust",
        ],
        Verdict::Incomplete if has(report, Code::SegmentMissing) => {
            &["fetch the absent segments: each file is named by its first frame"]
        }
        Verdict::Incomplete => &[
            "a copy that ends on a checkpoint:   ledger snapshot DIR DEST      (on the ledger's host)",
            "later checkpoint or receipts:       --checkpoint FILE, --receipts FILE",
        ],
        Verdict::SelfConsistentOnly => &[
            "ask the operator, by phone or from the contract, for the 16 digits above, then pass the key line with --trust",
        ],
        Verdict::CouldNotJudge => &["ledger-verify explain CODE   says what usually causes it"],
        Verdict::Verified => &[],
        Verdict::QuickCheckPassed => &["run again without --quick to hash every frame"],
    };
    let elsewhere = "payload files elsewhere:  --payloads DIR2   names the folder that they lie in";
    let elsewhere = has(report, Code::PayloadMissing).then_some(&elsewhere);
    let steps = steps.iter().chain(elsewhere);
    steps.map(|s| (*s).to_owned()).collect()
}

pub(crate) const fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// A span of milliseconds in the two greatest units that fit.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    if days > 0 {
        format!("{days} d {hours} h")
    } else if hours > 0 {
        format!("{hours} h {minutes} min")
    } else if minutes > 0 {
        format!("{minutes} min {rest} s")
    } else if seconds > 0 {
        format!("{seconds} s")
    } else {
        format!("{ms} ms")
    }
}
