//! An answer for people: first what it comes to, then one assertion a line, then what to do next.
//! Every character is printable ASCII, and no line begins with what a record says.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::finding::{Class, Finding, FindingCode};
use crate::model::{
    ActionView, Ambiguous, Answer, CheckView, Depth, Line, NotFound, RangeView, RelatedView,
    StateView, Trace,
};
use crate::shown::{Clock, ascii_json, distance, plain, wrap};

/// Where the text of the fields at the top begins.
const FIELD_AT: usize = 9;
/// Widest column of sources.
const BY_MAX: usize = 16;
/// States, actions and values shown at the top before the rest is only counted.
const SHOWN_MAX: usize = 5;

/// How an answer is shown.
#[derive(Debug, Clone)]
pub struct TextOptions {
    /// Columns of the terminal.
    pub width: usize,
    /// The zone of the times.
    pub zone: TimeZone,
    /// The zone that the reader may want instead, for a hint.
    pub other_zone: Option<String>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            width: 100,
            zone: TimeZone::UTC,
            other_zone: None,
        }
    }
}

impl Answer {
    /// The answer for people.
    #[must_use]
    pub fn to_text(&self, options: &TextOptions) -> String {
        let mut page = Page {
            out: String::new(),
            width: options.width.clamp(60, 400),
            clock: Clock {
                zone: options.zone.clone(),
            },
        };
        match self {
            Self::Found(trace) => page.trace(trace, options),
            Self::NotFound(answer) => page.not_found(answer),
            Self::Ambiguous(answer) => page.ambiguous(answer),
        }
        page.out
    }

    /// The answer for programs: JSON in ASCII, of the published schema, with a line break at its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Text, numbers, booleans and maps with text keys: there is nothing that can fail.
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        ascii_json(&json) + "\n"
    }
}

struct Page {
    out: String,
    width: usize,
    clock: Clock,
}

impl Page {
    /// A text behind `head`, further lines indented to where it began.
    fn hang(&mut self, head: &str, text: &str) {
        let at = head.len();
        for (i, line) in wrap(&plain(text), self.width.saturating_sub(at))
            .iter()
            .enumerate()
        {
            let written = if i == 0 {
                format!("{head}{line}")
            } else {
                format!("{:at$}{line}", "")
            };
            self.out.push_str(written.trim_end());
            self.out.push('\n');
        }
    }

    fn field(&mut self, label: &str, text: &str) {
        self.hang(&format!("{label:<FIELD_AT$}"), text);
    }

    fn trace(&mut self, trace: &Trace, options: &TextOptions) {
        self.hang("", &title(trace));
        self.states(&trace.states);
        self.actions(&trace.actions);
        self.field("CHECK", &check(&trace.findings, &trace.check));
        if trace.depth != Depth::Evidence {
            let text = match trace.depth {
                Depth::Skeleton => {
                    "the skeleton only: ids, relations, states; the vault key opens the evidence"
                }
                _ => "some bodies did not open: those lines show the skeleton only",
            };
            self.field("OPENED", text);
        }
        let base = trace.lines.iter().find_map(when);
        self.times(base, options);
        for remark in &trace.range.remarks {
            self.field("NOTE", remark);
        }
        if let Some(cut) = &trace.cut {
            let text = format!(
                "the story goes on: {}, {} identifiers were not followed to their end, {} among them",
                cut.reason,
                cut.not_followed_count,
                few(cut.not_followed.iter().map(|id| id.value.as_str())),
            );
            self.field("CUT", &text);
        }
        self.out.push('\n');
        self.table(trace, base);
        self.next(trace);
    }

    fn states(&mut self, states: &[StateView]) {
        for state in states.iter().take(SHOWN_MAX) {
            let mut text = format!("{} in {}", state.state, state.workflow_id);
            if let Some(since) = &state.since {
                text += &format!(" since {}", self.clock.date_time(since));
            }
            if state.by_person
                && let Some(by) = &state.decided_by
            {
                text += &format!(", decided by {by}");
            }
            for (i, piece) in state.evidence.iter().take(SHOWN_MAX).enumerate() {
                text += if i == 0 { ", on " } else { "; " };
                text += &piece.identifier.value;
                if let Some(says) = &piece.says {
                    text += &format!(": {says}");
                }
            }
            text += &format!(" [{}]", state.frame);
            self.field("STATE", &text);
        }
        match states.len() {
            0 => self.field("STATE", "none is recorded"),
            n if n > SHOWN_MAX => self.field("", &format!("and {} workflows more", n - SHOWN_MAX)),
            _ => {}
        }
    }

    fn actions(&mut self, actions: &[ActionView]) {
        for action in actions.iter().take(SHOWN_MAX) {
            let mut text = match action.decision.as_deref() {
                Some("denied") => format!("{} was REFUSED", action.action_id),
                Some("pending") => format!("{} is NOT DECIDED", action.action_id),
                Some("exempt") => format!("{} needs no permission of its own", action.action_id),
                _ => action.action_id.clone(),
            };
            if let Some(by) = &action.approver {
                text += &format!(" by {by}");
            }
            if let Some(at) = &action.approved_at {
                text += &format!(" {}", self.clock.date_time(at));
            }
            for (word, value) in [
                ("grant", &action.grant),
                ("policy", &action.policy),
                ("credential", &action.credential_label),
            ] {
                if let Some(value) = value {
                    text += &format!(", {word} {value}");
                }
            }
            if let Some(ends) = &action.expires_at {
                text += &format!(", until {}", self.clock.date_time(ends));
            }
            text += &format!(" [{}]", action.frame);
            self.field("ALLOWED", &text);
        }
        match actions.len() {
            0 => self.field("ALLOWED", "no action is recorded in this story"),
            n if n > SHOWN_MAX => self.field("", &format!("and {} actions more", n - SHOWN_MAX)),
            _ => {}
        }
    }

    fn times(&mut self, base: Option<Timestamp>, options: &TextOptions) {
        let zone = match self.clock.zone.iana_name() {
            _ if self.clock.zone == TimeZone::UTC => "UTC".to_owned(),
            Some(name) => name.to_owned(),
            None => "local".to_owned(),
        };
        let mut text = format!("{zone}, each by the clock of whoever says so");
        if let Some(base) = base {
            text += &format!("; from {}", self.clock.date_time(&base.to_string()));
        }
        if let Some(other) = &options.other_zone {
            text += &format!(" (yours: {other}; --tz local)");
        }
        self.field("TIMES", &text);
    }

    fn table(&mut self, trace: &Trace, base: Option<Timestamp>) {
        let seq_width = trace
            .lines
            .iter()
            .map(|l| l.frame.to_string().len())
            .max()
            .unwrap_or(0)
            .max(5);
        let by: Vec<String> = trace.lines.iter().map(by).collect();
        let by_width = by.iter().map(String::len).max().unwrap_or(0).max(2);
        let time_width = match base {
            Some(base) => self.clock.time(base).len().max(9),
            None => 9,
        };
        let head = |frame: &str, time: &str, by: &str| {
            format!("{frame:>seq_width$}  {time:>time_width$}  {by:<by_width$}  ")
        };
        self.hang(&head("FRAME", "TIME", "BY"), "WHAT");
        for (i, (line, by)) in trace.lines.iter().zip(&by).enumerate() {
            let time = match (when(line), base) {
                (Some(at), Some(_)) if i == 0 => self.clock.time(at),
                (Some(at), Some(base)) => {
                    distance(at.as_millisecond().saturating_sub(base.as_millisecond()))
                }
                _ => "?".to_owned(),
            };
            let mark = if line.contradicts { "! " } else { "" };
            let kept = if line.contradicts {
                ", nobody has decided"
            } else {
                ""
            };
            let head = head(&line.frame.to_string(), &time, by) + mark;
            self.hang(&head, &format!("{}{kept}", line.text));
        }
        for finding in trace.findings.iter().filter(|finding| !finding.is_line()) {
            let mark = match finding.class {
                Class::Contradiction => "! ",
                Class::Gap => "? ",
                Class::Note => ". ",
            };
            let text = format!(
                "{} ({} {})",
                finding.text,
                finding.class.as_str(),
                finding.code.as_str()
            );
            self.hang(&(head("-", "", "-") + mark), &text);
        }
    }

    fn next(&mut self, trace: &Trace) {
        let mut steps: Vec<String> = Vec::new();
        // A delivery that claims something of ours stands in its story; one that does not may belong to another.
        let is_ours = |id: &RelatedView| {
            // A verification repeats what it judges, whether it believes it or not.
            let ours = trace
                .lines
                .iter()
                .filter(|l| l.record_type != "verification");
            let mut all = ours.flat_map(|l| &l.identifiers);
            all.any(|own| own.relation != "claims" && own.identifier == id.identifier)
        };
        for line in &trace.lines {
            let claims = || line.identifiers.iter().filter(|id| id.relation == "claims");
            for claim in claims().filter(|_| !claims().any(is_ours)) {
                let (kind, value) = (&claim.identifier.kind, &claim.identifier.value);
                let step = format!("ledger trace {value}");
                let fits = kind != "account" && is_a_word(value);
                if fits && steps.len() < 3 && !steps.contains(&step) {
                    steps.push(step);
                }
            }
        }
        if trace.depth == Depth::Skeleton {
            steps.push("--vault-key FILE opens the evidence".to_owned());
        }
        if !trace.check.pinned {
            steps.push("--trust LINE checks it against a key from outside".to_owned());
        }
        if !steps.is_empty() {
            self.out.push('\n');
            self.field("NEXT", &steps.join("   "));
        }
    }

    fn not_found(&mut self, answer: &NotFound) {
        let tried = few(answer.tried.iter().map(String::as_str));
        self.hang(
            "",
            &format!(
                "NOT FOUND  {}",
                if tried.is_empty() {
                    "nothing to look for".to_owned()
                } else {
                    tried
                }
            ),
        );
        let scope = answer
            .scope
            .as_ref()
            .map_or_else(String::new, |s| format!(", within {s}"));
        self.field("AS", &format!("{}{scope}", answer.kinds.join(", ")));
        self.range(&answer.range);
        self.field("NEXT", "an id is found as it was recorded, whole and in the same case; it may stand in another ledger");
    }

    fn ambiguous(&mut self, answer: &Ambiguous) {
        let tried = few(answer.tried.iter().map(String::as_str));
        self.hang(
            "",
            &format!(
                "AMBIGUOUS  {tried} means {} things that share nothing",
                answer.candidates.len()
            ),
        );
        for candidate in &answer.candidates {
            let id = &candidate.identifier;
            let scope = if id.scope.is_empty() {
                String::new()
            } else {
                format!(" of {}", id.scope)
            };
            let more = if candidate.frames == 1 { "" } else { "s" };
            let text = format!(
                "{} {}{scope}: {} frame{more}, {} to {}; first: {}",
                id.kind,
                id.value,
                candidate.frames,
                candidate.first,
                candidate.last,
                candidate.about,
            );
            self.hang("  ", &text);
        }
        if answer.more {
            self.hang("  ", "and more that were not looked into");
        }
        self.range(&answer.range);
        self.field("NEXT", "name the kind, and the scope where there is one");
    }

    fn range(&mut self, range: &RangeView) {
        let mut text = match range.next.checked_sub(1) {
            Some(last) if range.next > range.first => format!("frames {} to {last}", range.first),
            _ => "no frames".to_owned(),
        };
        if let Some(origin) = &range.origin {
            text += &format!(" of {origin}");
        }
        text += &match range.checkpoint {
            Some(size) => format!(", checked to checkpoint {size}"),
            None => ", no checkpoint".to_owned(),
        };
        self.field("SEARCHED", &text);
        for remark in &range.remarks {
            self.field("NOTE", remark);
        }
    }
}

fn title(trace: &Trace) -> String {
    let mut parts = vec![few(trace.asked.iter().map(String::as_str))];
    match trace.actions.as_slice() {
        [action] => {
            let operation = [&action.operation, &action.target_id];
            let operation: Vec<&str> = operation
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect();
            parts.push(operation.join(" "));
            parts.extend(
                [&action.target, &action.host, &action.scope]
                    .into_iter()
                    .flatten()
                    .cloned(),
            );
        }
        [] => {}
        many => parts.push(format!("{} actions", many.len())),
    }
    parts.retain(|part| !part.is_empty());
    // Wrapping joins words by one space; a comma keeps the parts apart.
    parts.join(", ")
}

/// What the findings and the checks come to.
fn check(findings: &[Finding], check: &CheckView) -> String {
    let count =
        |class, one: &str, many: &str| match findings.iter().filter(|f| f.class == class).count() {
            0 => format!("no {one}"),
            1 => format!("1 {one}"),
            n => format!("{n} {many}"),
        };
    let mut text = format!(
        "{}, {}{}; ",
        count(Class::Contradiction, "contradiction", "contradictions"),
        count(Class::Gap, "gap", "gaps"),
        match findings
            .iter()
            .filter(|f| f.code == FindingCode::ExceptionResolved)
            .count()
        {
            0 => String::new(),
            n => format!(", {n} decided by a person"),
        },
    );
    let frames = if check.frames == 1 {
        "1 frame".to_owned()
    } else {
        format!("{} frames", check.frames)
    };
    text += &match check.checkpoint {
        Some(size) if check.covered == check.frames => {
            format!("{frames} read and checked to checkpoint {size}")
        }
        Some(size) => format!(
            "{frames} read, {} of them checked to checkpoint {size}",
            check.covered
        ),
        None => format!("{frames} read, none of them under a signed checkpoint"),
    };
    if check.checkpoint.is_some() {
        text += if check.pinned {
            ", key pinned"
        } else {
            ", key NOT PINNED"
        };
    }
    text
}

/// The source of a line in its column, else whose doing it tells.
fn by(line: &Line) -> String {
    let mut text = plain(line.source.as_deref().unwrap_or(line.by.as_str()));
    if text.len() > BY_MAX {
        text.truncate(BY_MAX - 1);
        text.push('~');
    }
    text
}

/// When a line happened, else when it was appended.
fn when(line: &Line) -> Option<Timestamp> {
    line.time.as_ref().unwrap_or(&line.appended_at).parse().ok()
}

fn few<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut values: Vec<&str> = values.collect();
    let more = values.len().saturating_sub(SHOWN_MAX);
    values.truncate(SHOWN_MAX);
    let mut out = values.join(", ");
    if more > 0 {
        out += &format!(" and {more} more");
    }
    out
}

/// Whether a value may stand in a command that somebody copies.
fn is_a_word(value: &str) -> bool {
    !value.starts_with('-')
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.:@".contains(&b))
}
