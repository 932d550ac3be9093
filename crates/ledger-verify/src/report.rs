//! The report: what was found, how far it reaches, what it rests on.
//!
//! One model for every output; `report.schema.json` beside this crate describes its JSON. How it
//! looks as text is in `text` and `pages`.

use crate::code::Class;
use crate::compare::Difference;
use crate::finding::{Finding, Note};
use serde::Serialize;

/// The result in one word, gravest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Something was changed.
    Violation,
    /// Something could not be judged, or the check could not run.
    CouldNotJudge,
    /// No sign of change, but the copy does not reach as far as it should.
    Incomplete,
    /// Nothing from outside the copy vouches for it.
    SelfConsistentOnly,
    /// Whole up to a checkpoint that something from outside vouches for.
    Verified,
    /// As `Verified`, but most frames were not hashed.
    QuickCheckPassed,
}

impl Verdict {
    /// Process exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Verified | Self::QuickCheckPassed => 0,
            Self::Violation => 1,
            Self::Incomplete => 2,
            Self::CouldNotJudge => 3,
            Self::SelfConsistentOnly => 4,
        }
    }

    /// As the first line of a report says it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Verified => "VERIFIED",
            Self::QuickCheckPassed => "QUICK CHECK PASSED",
            Self::Violation => "VIOLATION",
            Self::Incomplete => "INCOMPLETE",
            Self::CouldNotJudge => "COULD NOT JUDGE",
            Self::SelfConsistentOnly => "SELF-CONSISTENT ONLY",
        }
    }

    /// As in JSON and for `explain`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::QuickCheckPassed => "quick_check_passed",
            Self::Violation => "violation",
            Self::Incomplete => "incomplete",
            Self::CouldNotJudge => "could_not_judge",
            Self::SelfConsistentOnly => "self_consistent_only",
        }
    }

    /// The gravest of what was found: violations before what could not be judged before what is
    /// incomplete before a missing pin.
    #[must_use]
    pub(crate) fn of(findings: &[Finding], anchored: bool, quick: bool) -> Self {
        let has = |class| findings.iter().any(|f| f.class == class);
        if has(Class::Violation) {
            Self::Violation
        } else if has(Class::CouldNotJudge) {
            Self::CouldNotJudge
        } else if has(Class::Incomplete) {
            Self::Incomplete
        } else if !anchored {
            Self::SelfConsistentOnly
        } else if quick {
            Self::QuickCheckPassed
        } else {
            Self::Verified
        }
    }
}

/// The pin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TrustReport {
    /// Whether a trust line was given, and used.
    pub given: bool,
    /// Where it came from.
    pub source: Option<String>,
    /// The trust line that the files themselves carry, for a reader without one.
    pub key_inside: Option<String>,
    /// 16 digits to read aloud, of the line given, else of the one inside.
    pub reads: Option<String>,
    /// Last generation that the pin reaches.
    pub reaches_generation: Option<u64>,
}

/// One anchor and how it came out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HeldCheckpoint {
    /// Where it came from.
    pub source: String,
    /// Frames it covers.
    pub size: u64,
    /// `unchanged`, `not_compared` or the finding's code.
    pub result: &'static str,
}

/// Receipts and how they came out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ReceiptsReport {
    /// Given.
    pub given: u64,
    /// Found as promised.
    pub kept: u64,
    /// Falling into parts that could not be read or were not read.
    pub not_compared: u64,
}

/// What the check rests on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Continuity {
    /// Checkpoints from outside.
    pub checkpoints: Vec<HeldCheckpoint>,
    /// Receipts from outside.
    pub receipts: ReceiptsReport,
}

/// The newest checkpoint and what lies behind it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Freshness {
    /// Frames that the newest checkpoint under the pin covers.
    pub checkpoint_size: Option<u64>,
    /// When it was signed, by the writer's clock.
    pub checkpoint_time: Option<String>,
    /// Its age by this computer's clock, in milliseconds; absent when it lies ahead.
    pub age_ms: Option<u64>,
    /// The limit that was set, in milliseconds.
    pub max_age_ms: Option<u64>,
}

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ReadReport {
    /// Segments read.
    pub segments_read: u64,
    /// Segments in the folder.
    pub segments_present: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Time it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Some names that were ignored.
    pub ignored: Vec<String>,
    /// How many were ignored.
    pub ignored_count: u64,
    /// What was left out, in words; empty for a whole check.
    pub skipped: Vec<String>,
    /// SHA-256 of every file read, when a report file was asked for.
    pub files: Vec<FileDigest>,
}

/// One file that was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileDigest {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 in hex.
    pub sha256: String,
}

/// What the check of payload files gave.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PayloadsReport {
    /// The folder that they were looked for in.
    pub folder: String,
    /// Payload files that were read.
    pub files: u64,
    /// Bytes of messages that were hashed.
    pub bytes: u64,
    /// Messages that frames declare.
    pub declared: u64,
    /// Of these, there and with the hash that the frame has.
    pub intact: u64,
    /// Of these, ended by an erasure.
    pub erased: u64,
    /// Bytes of segments without a close that no frame declares: sealed, and not yet or never
    /// appended. They are no finding.
    pub undeclared_bytes: u64,
    /// Segments and payload files that were not judged, because the chain around them was not
    /// read, is not there or has findings of its own.
    pub not_judged: u64,
}

/// Frames counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CountsReport {
    /// Record frames.
    pub records: u64,
    /// Control frames, checkpoints included.
    pub control_frames: u64,
    /// Checkpoint frames.
    pub checkpoints: u64,
    /// Segments, each with an epoch key of its own.
    pub epochs: u64,
}

/// A change of keys declared in the chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GenerationReport {
    /// Its number.
    pub generation: u64,
    /// The frame that declares it.
    pub seq: u64,
    /// Whether the old key announced it.
    pub planned: bool,
    /// The reason given.
    pub reason: String,
    /// The writer's clock.
    pub time: String,
}

/// The end of the data in the last segment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TailReport {
    /// Number of the last good frame.
    pub last_frame: Option<u64>,
    /// Frames behind the newest checkpoint.
    pub uncovered_frames: u64,
}

/// The whole report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Version of this model.
    pub report: &'static str,
    /// Program and version.
    pub tool: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Exit code of the program.
    pub exit_code: u8,
    /// The verdict in one line.
    pub headline: String,
    /// What it means, in one sentence.
    pub sentence: String,
    /// Origin of the ledger, as far as known.
    pub ledger: Option<String>,
    /// First and last frame that were read.
    pub frames: Option<(u64, u64)>,
    /// When it was checked, by this computer's clock.
    pub checked_at: String,
    /// The pin.
    pub trust: TrustReport,
    /// What was given as an anchor and not used, and why.
    pub not_used: Vec<String>,
    /// Other anchors.
    pub continuity: Continuity,
    /// Newest checkpoint.
    pub freshness: Freshness,
    /// End of the data.
    pub tail: TailReport,
    /// What was read.
    pub read: ReadReport,
    /// Frames counted.
    pub counts: CountsReport,
    /// Payload files; None when they were not read.
    pub payloads: Option<PayloadsReport>,
    /// Changes of keys.
    pub generations: Vec<GenerationReport>,
    /// Notes; they never change the verdict.
    pub notes: Vec<Note>,
    /// Notes beyond those listed.
    pub notes_more: u64,
    /// Findings, in chain order, those of the anchors last.
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub findings_more: u64,
    /// What follows from the findings.
    pub follows: Vec<Finding>,
    /// How many follow, listed or not.
    pub follows_count: u64,
    /// First seq of each segment in which no violation was found, when there are findings.
    pub still_good: Vec<u64>,
    /// How another copy differs, when one was named.
    pub comparison: Option<Vec<Difference>>,
    /// What no such check shows.
    pub not_shown: &'static str,
    /// What to do now.
    pub next_steps: Vec<String>,
}

/// What no check of a chain can show.
pub(crate) const NOT_SHOWN: &str =
    "that what was recorded is true, or that everything was recorded";
