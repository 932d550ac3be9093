//! The whole check: folder and anchors in, report out.

use crate::anchors::Anchors;
use crate::chain::Chain;
use crate::code::Code;
use crate::conclude::{Conclusion, Limits, conclude};
use crate::files::{Folder, SegmentFile};
use crate::finding::Finding;
use crate::pipeline;
use crate::report::Report;
use crate::summary;
use ledger_format::{ByteOffset, Seq, UnixMillis};
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// What is to be checked, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The ledger's folder, its folder `segments`, or a folder that holds `.frames` files.
    pub dir: PathBuf,
    /// What is known from outside the copy.
    pub anchors: Anchors,
    /// What was given but is not among the anchors, and why.
    pub not_used: Vec<String>,
    /// First frame of a part to check.
    pub from: Option<Seq>,
    /// Last frame of a part to check.
    pub until: Option<Seq>,
    /// The newest checkpoint may not be older than this, in milliseconds.
    pub max_age: Option<u64>,
    /// Only heads, borders and checkpoint signatures.
    pub quick: bool,
    /// Worker threads, at least 1.
    pub threads: usize,
    /// This computer's clock.
    pub now: UnixMillis,
}

impl Request {
    /// A whole check of a folder without anchors, on one thread.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            anchors: Anchors::default(),
            not_used: Vec::new(),
            from: None,
            until: None,
            max_age: None,
            quick: false,
            threads: 1,
            now: UnixMillis(0),
        }
    }
}

/// A finished check.
#[derive(Clone, Debug)]
pub struct Verification {
    /// The report.
    pub report: Report,
    /// The newest checkpoint under the pin: what the next check should be held against.
    pub newest_checkpoint: Option<Vec<u8>>,
    /// The files that were read.
    pub files: Vec<SegmentFile>,
}

/// Checks a copy of a ledger.
///
/// `progress` is told of bytes as they are done, from any thread.
///
/// # Errors
/// Only when the folder cannot be listed; everything about the files is in the report.
pub fn verify(request: &Request, progress: &(dyn Fn(u64) + Sync)) -> io::Result<Verification> {
    verify_by(request, Path::Fast, progress)
}

/// Which path judges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    Fast,
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests compare both paths"))]
    Slow,
}

fn verify_by(
    request: &Request,
    path: Path,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<Verification> {
    let begun = Instant::now();
    let folder = Folder::list(&request.dir)?;
    let mut anchors = request.anchors.clone();
    let rules = anchors.rules(request.quick);
    let files = selected(&folder.segments, request);
    let from_start = files.first().map(|f| f.first) == folder.segments.first().map(|f| f.first);
    let to_end = files.last() == folder.segments.last();
    let mut chain = Chain::new(&rules, from_start);
    match path {
        Path::Fast => pipeline::run(&mut chain, &files, to_end, request.threads, progress),
        Path::Slow => {
            for (i, file) in files.iter().enumerate() {
                if !chain.halted() {
                    let last = to_end && i.saturating_add(1) == files.len();
                    chain.walk_segment(file, last);
                }
            }
        }
    }
    if folder.segments.is_empty() {
        let finding = Finding::new(Code::NoSegments, Seq(0), Seq(0), ByteOffset(0));
        chain.total.findings.push(finding);
    }
    let limits = Limits {
        now: request.now.0,
        max_age: request.max_age,
        partial: files.len() != folder.segments.len(),
    };
    let mut conclusion = conclude(&chain, &anchors, &rules, limits);
    let findings = ordered(&mut chain, &mut conclusion);
    let newest_checkpoint = conclusion.newest.as_ref().map(|c| c.note.clone());
    let report = summary::summarize(&summary::Material {
        request,
        folder: &folder,
        read: files.len(),
        chain: &chain,
        conclusion: &conclusion,
        findings,
        elapsed: begun.elapsed(),
    });
    Ok(Verification {
        report,
        newest_checkpoint,
        files,
    })
}

/// The segments that hold frames `from` to `until`; all, when no part was asked for.
fn selected(all: &[SegmentFile], request: &Request) -> Vec<SegmentFile> {
    let from = request.from.unwrap_or(Seq(0));
    let until = request.until.unwrap_or(Seq(u64::MAX));
    let start = all.partition_point(|f| f.first <= from).saturating_sub(1);
    let end = all.partition_point(|f| f.first <= until);
    all.get(start..end.max(start)).unwrap_or_default().to_vec()
}

/// Chain order, those of the anchors last; a generation that is not covered stands at its frame.
fn ordered(chain: &mut Chain<'_>, conclusion: &mut Conclusion) -> Vec<Finding> {
    let mut all = std::mem::take(&mut chain.total.findings.listed);
    for finding in conclusion.findings.drain(..) {
        if finding.code == Code::GenerationUncovered {
            let place = |f: &Finding| (f.place.segment, f.place.offset);
            let at = all.partition_point(|f| place(f) <= place(&finding));
            all.insert(at, finding);
        } else {
            all.push(finding);
        }
    }
    all
}
