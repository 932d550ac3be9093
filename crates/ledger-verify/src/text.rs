//! A report as text for a terminal: the verdict in a sentence, what it rests on, what to do.

use crate::escape::plain;
use crate::finding::Finding;
use crate::report::{PayloadsReport, Report, Verdict};
use crate::summary::{plural, span};
use std::fmt::Write as _;

/// Findings that are written out in full; the rest is one line each.
const IN_FULL_MAX: usize = 20;
/// Lines of lists when not everything was asked for.
const LIST_MAX: usize = 20;

/// How a report is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TextStyle {
    /// With colour.
    pub color: bool,
    /// All findings, notes and what follows.
    pub all: bool,
}

/// The report as text, plain ASCII but for colour.
#[must_use]
pub fn render_text(report: &Report, style: TextStyle) -> String {
    let mut out = String::new();
    headline(&mut out, report, style);
    line(&mut out, &report.sentence);
    findings(&mut out, report, style);
    if report.verdict == Verdict::SelfConsistentOnly {
        claims(&mut out, report);
    } else {
        rests_on(&mut out, report);
    }
    not_used(&mut out, report);
    notes(&mut out, report, style);
    comparison(&mut out, report);
    if !report.next_steps.is_empty() {
        line(&mut out, "");
        line(&mut out, "WHAT TO DO");
        for step in &report.next_steps {
            line(&mut out, &format!("  {step}"));
        }
    }
    line(
        &mut out,
        &format!("NOT SHOWN by any such check: {}.", report.not_shown),
    );
    let explain = explain_word(report);
    let words = report.verdict.name().replace('_', " ");
    let end = format!(
        "exit {} ({words})    explain: ledger-verify explain {explain}",
        report.exit_code
    );
    line(&mut out, &end);
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(&plain(text));
    out.push('\n');
}

fn field(out: &mut String, name: &str, value: &str) {
    line(out, &format!("  {name:<13}{value}"));
}

fn headline(out: &mut String, report: &Report, style: TextStyle) {
    let words = report.verdict.words();
    let rest = report
        .headline
        .strip_prefix(words)
        .unwrap_or(&report.headline);
    if style.color {
        let color = match report.verdict {
            Verdict::Verified => "1;32",
            Verdict::Violation | Verdict::CouldNotJudge => "1;31",
            _ => "1;33",
        };
        let _ = write!(out, "\u{1b}[{color}m{words}\u{1b}[0m");
    } else {
        out.push_str(words);
    }
    line(out, rest);
}

fn findings(out: &mut String, report: &Report, style: TextStyle) {
    if report.findings.is_empty() {
        return;
    }
    line(out, "");
    let shown = if style.all { usize::MAX } else { IN_FULL_MAX };
    for (i, finding) in report.findings.iter().take(shown).enumerate() {
        in_full(out, i.saturating_add(1), finding);
    }
    let hidden =
        (report.findings.len().saturating_sub(shown) as u64).saturating_add(report.findings_more);
    if hidden > 0 {
        line(out, &format!("and {hidden} more (--all, --json)"));
    }
    if report.follows_count > 0 {
        let text = format!(
            "FOLLOWS FROM THESE, not counted: {} (--all lists them)",
            report.follows_count
        );
        line(out, &text);
        if style.all {
            for follow in &report.follows {
                line(
                    out,
                    &format!(
                        "  {}   frame {}   {}",
                        follow.code,
                        follow.place.seq,
                        place(follow)
                    ),
                );
            }
        }
    }
    if !report.still_good.is_empty() {
        let names: Vec<String> = report
            .still_good
            .iter()
            .take(LIST_MAX)
            .map(u64::to_string)
            .collect();
        let more = report.still_good.len().saturating_sub(LIST_MAX);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        line(
            out,
            &format!("STILL GOOD   segments {}{more}", names.join(", ")),
        );
    }
}

fn in_full(out: &mut String, number: usize, finding: &Finding) {
    let time = finding.time.as_deref().unwrap_or_default();
    line(
        out,
        format!(
            "{number}  {}  frame {}  {time}",
            finding.code, finding.place.seq
        )
        .trim_end(),
    );
    line(out, &format!("     {}", place(finding)));
    if let (Some(expected), Some(found)) = (&finding.expected, &finding.found) {
        line(out, &format!("     expected {expected}   found {found}"));
    }
    if !finding.detail.is_empty() {
        line(out, &format!("     {}", finding.detail));
    }
}

fn place(finding: &Finding) -> String {
    let file = finding.file_name();
    match finding.end {
        Some(end) => format!("{file}, bytes {} to {end}", finding.place.offset),
        None => format!("{file}, byte {}", finding.place.offset),
    }
}

fn rests_on(out: &mut String, report: &Report) {
    line(out, "");
    trust(out, report);
    continuity(out, report);
    freshness(out, report);
    tail(out, report);
    read(out, report);
}

fn trust(out: &mut String, report: &Report) {
    let trust = &report.trust;
    let reads = trust.reads.as_deref().unwrap_or("unknown");
    let text = match &trust.source {
        Some(source) => format!("key from {source}, reads {reads}"),
        None => format!("no trust line given; the key inside the copy reads {reads}"),
    };
    field(out, "trust", &text);
}

fn continuity(out: &mut String, report: &Report) {
    let held = &report.continuity.checkpoints;
    if held.is_empty() {
        let text = "no earlier checkpoint given: a rewrite by whoever holds today's keys would not be seen";
        field(out, "continuity", text);
    }
    for checkpoint in held.iter().take(LIST_MAX) {
        let text = match checkpoint.result {
            "unchanged" => format!(
                "holds your checkpoint {} ({} frames) unchanged",
                checkpoint.source, checkpoint.size
            ),
            other => format!(
                "your checkpoint {} ({} frames): {other}",
                checkpoint.source, checkpoint.size
            ),
        };
        field(out, "continuity", &text);
    }
    let receipts = &report.continuity.receipts;
    if receipts.given > 0 {
        field(
            out,
            "receipts",
            &format!("{} of {} kept as promised", receipts.kept, receipts.given),
        );
    }
}

fn freshness(out: &mut String, report: &Report) {
    let fresh = &report.freshness;
    let limit = match fresh.max_age_ms {
        Some(ms) => format!("limit: {}", span(ms)),
        None => "limit: none set, --max-age".to_owned(),
    };
    let text = match (&fresh.checkpoint_time, fresh.age_ms) {
        (None, _) => "no checkpoint covers anything".to_owned(),
        (Some(_), Some(ms)) => format!(
            "newest checkpoint {} before this computer's clock ({limit})",
            span(ms)
        ),
        (Some(time), None) => {
            format!("newest checkpoint {time}, ahead of this computer's clock ({limit})")
        }
    };
    field(out, "freshness", &text);
}

fn tail(out: &mut String, report: &Report) {
    let text = match report.tail.uncovered_frames {
        0 => "fully covered by the checkpoint".to_owned(),
        n => format!(
            "{n} frame{} behind the newest checkpoint: chained, not signed yet",
            plural(n)
        ),
    };
    field(out, "tail", &text);
}

fn read(out: &mut String, report: &Report) {
    let read = &report.read;
    let mut text = format!(
        "{} of {} segments, {} in {}",
        read.segments_read,
        read.segments_present,
        size(read.bytes),
        span(read.elapsed_ms)
    );
    if read.ignored_count > 0 {
        let _ = write!(
            text,
            "; ignored: {} other file{}",
            read.ignored_count,
            plural(read.ignored_count)
        );
    }
    field(out, "read", &text);
    for skipped in &read.skipped {
        field(out, "skipped", skipped);
    }
    let c = &report.counts;
    let counts = format!(
        "{} records, {} control frames, {} checkpoints, {} epochs",
        c.records, c.control_frames, c.checkpoints, c.epochs
    );
    field(out, "counts", &counts);
    field(out, "payloads", &payloads(report.payloads.as_ref()));
}

fn payloads(report: Option<&PayloadsReport>) -> String {
    let Some(p) = report else {
        return "payload files not read (--payloads)".to_owned();
    };
    let mut text = format!(
        "{} of {} messages as declared, {} in {} file{}",
        p.intact,
        p.declared,
        size(p.bytes),
        p.files,
        plural(p.files)
    );
    if p.erased > 0 {
        let _ = write!(text, "; {} erased", p.erased);
    }
    if p.undeclared_bytes > 0 {
        let bytes = size(p.undeclared_bytes);
        let _ = write!(text, "; {bytes} without a frame where no close says so yet");
    }
    text
}

/// Bytes in the unit that gives one to three digits.
pub(crate) fn size(bytes: u64) -> String {
    for (unit, scale) in [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)] {
        if bytes >= scale {
            return format!("{} {unit}", bytes.div_euclid(scale));
        }
    }
    format!("{bytes} B")
}

fn claims(out: &mut String, report: &Report) {
    line(out, "");
    let unknown = "unknown";
    field(
        out,
        "they claim",
        report.ledger.as_deref().unwrap_or(unknown),
    );
    field(
        out,
        "key inside",
        report.trust.key_inside.as_deref().unwrap_or(unknown),
    );
    field(
        out,
        "reads",
        report.trust.reads.as_deref().unwrap_or(unknown),
    );
    tail(out, report);
    read(out, report);
}

fn not_used(out: &mut String, report: &Report) {
    for what in &report.not_used {
        field(out, "not used", what);
    }
}

fn notes(out: &mut String, report: &Report, style: TextStyle) {
    if report.notes.is_empty() {
        return;
    }
    line(out, "NOTES");
    let shown = if style.all { usize::MAX } else { LIST_MAX };
    for note in report.notes.iter().take(shown) {
        let frame = note.seq.map_or_else(String::new, |s| format!("frame {s}"));
        let time = note
            .time
            .as_ref()
            .map_or_else(String::new, |t| format!(", {t}"));
        line(
            out,
            &format!("  {frame:<14} {:<13} {}{time}", note.kind, note.text),
        );
    }
    let hidden =
        (report.notes.len().saturating_sub(shown) as u64).saturating_add(report.notes_more);
    if hidden > 0 {
        line(out, &format!("  and {hidden} more (--all, --json)"));
    }
}

fn comparison(out: &mut String, report: &Report) {
    let Some(differences) = &report.comparison else {
        return;
    };
    line(out, "");
    line(out, "COMPARED with the other copy");
    if differences.is_empty() {
        line(out, "  every segment is the same, byte for byte");
    }
    for d in differences.iter().take(LIST_MAX) {
        let frame = d
            .seq
            .map_or_else(|| "no frame".to_owned(), |s| format!("frame {s}"));
        let at = d
            .offset
            .map_or_else(String::new, |o| format!(", {frame}, byte {o}"));
        line(out, &format!("  {:020}.frames{at}: {}", d.segment, d.text));
    }
    let more = differences.len().saturating_sub(LIST_MAX);
    if more > 0 {
        line(out, &format!("  and {more} more segments"));
    }
}

fn explain_word(report: &Report) -> &str {
    match (report.findings.first(), report.notes.first()) {
        (Some(finding), _) => finding.code.name(),
        (None, Some(note)) if report.verdict == Verdict::Verified => note.kind,
        _ => report.verdict.name(),
    }
}
