//! Findings, what follows from them, and notes: the material of a report.

use crate::code::{Class, Code};
use ledger_format::{ByteOffset, Seq, UnixMillis};
use serde::Serialize;

/// No report lists more findings than this; the rest is counted.
pub const FINDINGS_LISTED_MAX: usize = 10_000;

/// Where something was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Place {
    /// First seq of the file.
    #[serde(serialize_with = "seq")]
    pub segment: Seq,
    /// Frame number.
    #[serde(serialize_with = "seq")]
    pub seq: Seq,
    /// Byte offset in the file.
    #[serde(serialize_with = "offset")]
    pub offset: ByteOffset,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn seq<S: serde::Serializer>(v: &Seq, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(v.0)
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn offset<S: serde::Serializer>(v: &ByteOffset, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(v.0)
}

/// One thing that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What.
    pub code: Code,
    /// How grave.
    pub class: Class,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// The file that the offset is in, when it is not the segment's `.frames` file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// End of the bytes concerned, when their length is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// The writer's clock in that frame, when it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// What must stand there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// One sentence about this very finding.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Finding {
    /// A finding without particulars.
    #[must_use]
    pub fn new(code: Code, segment: Seq, seq: Seq, offset: ByteOffset) -> Self {
        let place = Place {
            segment,
            seq,
            offset,
        };
        Self {
            code,
            class: code.class(),
            place,
            file: None,
            end: None,
            time: None,
            expected: None,
            found: None,
            detail: String::new(),
        }
    }

    /// In another file than the segment's `.frames` file.
    #[must_use]
    pub fn in_file(mut self, name: impl Into<String>) -> Self {
        self.file = Some(name.into());
        self
    }

    /// Name of the file that the offset is in.
    #[must_use]
    pub fn file_name(&self) -> String {
        let frames = || format!("{:020}.frames", self.place.segment.0);
        self.file.clone().unwrap_or_else(frames)
    }

    /// With one sentence.
    #[must_use]
    pub fn saying(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// With what must and what does stand there.
    #[must_use]
    pub fn between(mut self, expected: impl Into<String>, found: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self.found = Some(found.into());
        self
    }

    /// With the frame's end and clock.
    #[must_use]
    pub fn of_frame(mut self, end: u64, time: UnixMillis) -> Self {
        self.end = Some(end);
        self.time = Some(time.to_rfc3339());
        self
    }
}

/// A list with a bound: what does not fit is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounded<T> {
    /// The first ones.
    pub listed: Vec<T>,
    /// How many more there were.
    pub more: u64,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            more: 0,
        }
    }
}

impl<T> Bounded<T> {
    /// Appends, or counts when full.
    pub fn push(&mut self, item: T) {
        if self.listed.len() < FINDINGS_LISTED_MAX {
            self.listed.push(item);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Appends a whole list.
    pub fn append(&mut self, other: Self) {
        other.listed.into_iter().for_each(|item| self.push(item));
        self.more = self.more.saturating_add(other.more);
    }

    /// Listed and unlisted ones.
    #[must_use]
    pub fn total(&self) -> u64 {
        (self.listed.len() as u64).saturating_add(self.more)
    }
}

/// What the writer declared in the chain, or what a reader should know; never changes a verdict.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Note {
    /// A word that `explain` knows.
    pub kind: &'static str,
    /// Frame concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The writer's clock there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// One sentence.
    pub text: String,
}
