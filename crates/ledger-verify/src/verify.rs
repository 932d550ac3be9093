//! The whole check: folder and anchors in, report out.

use crate::anchors::Anchors;
use crate::chain::Chain;
use crate::code::Code;
use crate::conclude::{Conclusion, Limits, conclude};
use crate::files::{Folder, SegmentBytes, SegmentFile};
use crate::finding::Finding;
use crate::payload_files::PayloadFolder;
use crate::payloads::{self, PayloadOutcome, Scope};
use crate::pipeline;
use crate::report::Report;
use crate::summary;
use ledger_format::{ByteOffset, ReadAt, Seq, UnixMillis};
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
    /// Check payload files too: those in this folder, or in its folder `segments`. Not done in a
    /// quick check, nor with `until`: any later segment may hold the erasure of a file.
    pub payloads: Option<PathBuf>,
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
            payloads: None,
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
    /// The payload files that were read.
    pub payload_files: Vec<PathBuf>,
}

/// Readings of a ledger that goes on while its payload files are looked for.
const READINGS_MAX: usize = 3;

/// Checks a copy of a ledger.
///
/// `progress` is told of bytes as they are done, from any thread.
///
/// # Errors
/// Only when a folder cannot be listed; everything about the files is in the report.
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
    let mut readings = 0_usize;
    loop {
        readings = readings.saturating_add(1);
        let (verification, again) = read(request, path, progress)?;
        if !again || readings >= READINGS_MAX {
            return Ok(verification);
        }
    }
}

/// One reading, and whether a payload file is missing from a ledger that has gone on meanwhile:
/// the erasure of it stands behind what was read.
fn read(
    request: &Request,
    path: Path,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<(Verification, bool)> {
    let begun = Instant::now();
    let wanted = request.payloads.as_ref();
    let wanted = wanted.filter(|_| !request.quick && request.until.is_none());
    // Listed first: a payload file is made after its segment.
    let payload_folder = wanted.map(|dir| PayloadFolder::list(dir)).transpose()?;
    let folder = Folder::list(&request.dir)?;
    let mut anchors = request.anchors.clone();
    let mut rules = anchors.rules(request.quick);
    rules.payloads = payload_folder.is_some();
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
    let scope = Scope {
        listed: &folder.segments,
        read: &files,
    };
    let mut payloads = payload_folder.map(|p| payloads::check(&p, &chain, scope, progress));
    let mut missing = payloads.iter().flat_map(|p| &p.findings.listed);
    let missing = missing.any(|f| f.code == Code::PayloadMissing);
    let again = missing && has_gone_on(&request.dir, &folder, &chain);
    let findings = ordered(&mut chain, payloads.as_mut(), &mut conclusion);
    let newest_checkpoint = conclusion.newest.as_ref().map(|c| c.note.clone());
    let report = summary::summarize(&summary::Material {
        request,
        folder: &folder,
        read: files.len(),
        chain: &chain,
        conclusion: &conclusion,
        findings,
        payloads: payloads.as_ref(),
        elapsed: begun.elapsed(),
    });
    let verification = Verification {
        report,
        newest_checkpoint,
        files,
        payload_files: payloads.map(|p| p.read).unwrap_or_default(),
    };
    Ok((verification, again))
}

/// Whether the copy has other segments or more frames than when it was read.
fn has_gone_on(dir: &std::path::Path, folder: &Folder, chain: &Chain<'_>) -> bool {
    let Ok(now) = Folder::list(dir) else {
        return false;
    };
    if now.segments != folder.segments {
        return true;
    }
    let (Some(last), Some((end, _))) = (now.segments.last(), chain.total.end) else {
        return false;
    };
    let mut byte = [0];
    let next = SegmentBytes::open(&last.path).and_then(|b| b.read_exact_at(end.0, &mut byte));
    next.is_ok() && byte != [0]
}

/// The segments that hold frames `from` to `until`; all, when no part was asked for.
fn selected(all: &[SegmentFile], request: &Request) -> Vec<SegmentFile> {
    let from = request.from.unwrap_or(Seq(0));
    let until = request.until.unwrap_or(Seq(u64::MAX));
    let start = all.partition_point(|f| f.first <= from).saturating_sub(1);
    let end = all.partition_point(|f| f.first <= until);
    all.get(start..end.max(start)).unwrap_or_default().to_vec()
}

/// Chain order, then those of payload files, those of the anchors last.
fn ordered(
    chain: &mut Chain<'_>,
    payloads: Option<&mut PayloadOutcome>,
    conclusion: &mut Conclusion,
) -> Vec<Finding> {
    let mut all = std::mem::take(&mut chain.total.findings.listed);
    if let Some(payloads) = payloads {
        all.append(&mut payloads.findings.listed);
        chain
            .total
            .follows
            .append(std::mem::take(&mut payloads.follows));
        chain
            .total
            .notes
            .append(std::mem::take(&mut payloads.notes));
    }
    all.append(&mut conclusion.findings);
    all
}

#[cfg(test)]
#[allow(dead_code, unreachable_pub)]
#[path = "../tests/support/mod.rs"]
mod support;

#[cfg(test)]
mod tests {
    use super::support::{Maker, START, Shape};
    use super::*;
    use crate::anchors::{OutsideCheckpoint, Receipts, TrustLine};
    use ledger_format::{AppendReceipt, Frame, Link, Origin};
    use proptest::prelude::*;
    use std::fs;

    /// Frames of a file: seq, offset, link.
    fn frames(bytes: &[u8]) -> Vec<(u64, usize, Link)> {
        let mut at = 17;
        let mut out = Vec::new();
        while let Ok(frame) = Frame::parse(&bytes[at..]) {
            out.push((frame.prefix.seq.0, at, frame.link));
            at += frame.bytes().len();
        }
        out
    }

    fn request(maker: &Maker, dir: &std::path::Path) -> Request {
        let mut request = Request::new(dir);
        request.now = UnixMillis(START + 5_000);
        request.anchors.trust = Some(TrustLine::parse(&maker.trust_line(), "test").unwrap());
        request
    }

    fn anchored(maker: &Maker, dir: &std::path::Path) -> Request {
        let mut request = request(maker, dir);
        let newest = OutsideCheckpoint::new(maker.newest(), "newest");
        request.anchors.checkpoints.push(newest);
        request
    }

    fn by(request: &Request, path: Path) -> Report {
        let mut report = verify_by(request, path, &|_| {}).unwrap().report;
        report.read.elapsed_ms = 0;
        report
    }

    /// Both paths and both thread counts, which must agree.
    fn all_paths(request: &Request) -> Report {
        let slow = by(request, Path::Slow);
        for threads in [1, 2, 3] {
            let request = Request {
                threads,
                ..request.clone()
            };
            assert_eq!(by(&request, Path::Fast), slow, "{threads} threads");
        }
        slow
    }

    #[test]
    fn both_paths_agree_and_verify_a_good_ledger() {
        let shape = Shape {
            writes: 700,
            records_per_write: 7,
            writes_per_checkpoint: 50,
            tail_writes: 3,
            ..Shape::SMALL
        };
        let mut maker = Maker::ledger(shape);
        let dir = tempfile::tempdir().unwrap();
        // Zero fill behind the data of the open segment.
        maker.segments.last_mut().unwrap().1.resize(9 << 20, 0);
        maker.save(dir.path());
        let mut request = anchored(&maker, dir.path());
        let origin = Origin::parse(request.anchors.trust.as_ref().unwrap().key.name()).unwrap();
        let mut lines = String::new();
        for (seq, _, link) in frames(&maker.segments[1].1).into_iter().step_by(97) {
            let receipt = AppendReceipt::new(
                origin.to_string(),
                Seq(seq),
                link,
                "r".into(),
                UnixMillis(1),
            );
            lines.push_str(&receipt.to_json());
            lines.push('\n');
        }
        request.anchors.receipts = Receipts::read(lines.as_bytes()).unwrap();
        let given = request.anchors.receipts.len() as u64;
        let report = all_paths(&request);
        assert_eq!(report.verdict.name(), "verified", "{report:#?}");
        assert_eq!(report.continuity.receipts.kept, given);
        assert_eq!(report.continuity.checkpoints[0].result, "unchanged");
        assert_eq!(report.counts.records, (3 * 700 + 3) * 7);
        assert_eq!(report.tail.uncovered_frames, 21);
        request.quick = true;
        let quick = by(&request, Path::Fast);
        assert_eq!(quick.verdict.name(), "quick_check_passed");
        assert_eq!(quick.counts, report.counts);
        // No root was computed, so none was compared, and neither were most links.
        assert_eq!(quick.continuity.checkpoints[0].result, "not_compared");
        assert!(quick.continuity.receipts.kept < given);
    }

    #[test]
    fn frames_longer_than_a_chunk_are_joined() {
        let maker = Maker::ledger(Shape {
            body: 1_000_000,
            writes: 2,
            ..Shape::SMALL
        });
        let dir = tempfile::tempdir().unwrap();
        maker.save(dir.path());
        let report = all_paths(&anchored(&maker, dir.path()));
        assert_eq!(report.verdict.name(), "verified", "{report:#?}");
    }

    #[test]
    fn a_part_can_be_checked_alone() {
        let maker = Maker::ledger(Shape::SMALL);
        let dir = tempfile::tempdir().unwrap();
        maker.save(dir.path());
        let mut request = request(&maker, dir.path());
        request.from = Some(Seq(maker.segments[1].0 + 2));
        request.until = request.from;
        let report = all_paths(&request);
        assert_eq!(report.verdict.name(), "verified", "{report:#?}");
        assert_eq!(report.frames.unwrap().0, maker.segments[1].0);
        assert_eq!(
            report.read.skipped,
            ["2 segments outside the frames asked for"]
        );
    }

    #[test]
    fn an_old_checkpoint_is_stale() {
        let maker = Maker::ledger(Shape::SMALL);
        let dir = tempfile::tempdir().unwrap();
        maker.save(dir.path());
        let mut request = request(&maker, dir.path());
        request.max_age = Some(1000);
        let report = all_paths(&request);
        assert_eq!(
            (report.exit_code, report.findings[0].code),
            (2, Code::Stale)
        );
    }

    #[test]
    fn a_key_that_signed_nothing_here_vouches_for_nothing() {
        let mut maker = Maker::new(1);
        maker.open();
        maker.write(3, 300, 272);
        maker.end_file();
        let dir = tempfile::tempdir().unwrap();
        maker.save(dir.path());
        let report = all_paths(&request(&maker, dir.path()));
        assert_eq!(report.verdict.name(), "self_consistent_only");
    }

    #[test]
    fn two_histories_are_told_by_the_checkpoint_of_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let maker = Maker::ledger(Shape::SMALL);
        let other = Maker::ledger(Shape {
            body: 301,
            ..Shape::SMALL
        });
        maker.save(dir.path());
        let report = all_paths(&anchored(&other, dir.path()));
        assert_eq!(
            (report.exit_code, report.findings[0].code),
            (1, Code::CheckpointAbsent)
        );
        let foreign = Maker::new(2);
        assert_ne!(foreign.segments.len(), maker.segments.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(160))]

        #[test]
        fn any_flipped_bit_before_the_last_checkpoint_is_a_violation(at: prop::sample::Index, bit in 0_u8..8) {
            let mut maker = Maker::ledger(Shape::SMALL);
            let total: usize = maker.segments.iter().map(|s| s.1.len()).sum();
            let mut byte = at.index(total);
            let mut n = 0;
            while byte >= maker.segments[n].1.len() {
                byte -= maker.segments[n].1.len();
                n += 1;
            }
            let bytes = &mut maker.segments[n].1;
            let last = frames(bytes).last().unwrap().1;
            // The last checkpoint frame itself is not covered by one.
            prop_assume!(n + 1 < 3 || byte < last);
            bytes[byte] ^= 1 << bit;
            let dir = tempfile::tempdir().unwrap();
            maker.save(dir.path());
            let report = all_paths(&request(&maker, dir.path()));
            // Only another version in the magic is none of ours to judge.
            let version = (1..17).contains(&byte);
            let code = report.exit_code;
            prop_assert!(code == 1 || (version && code == 3), "segment {n} byte {byte}: {report:?}");
        }

        #[test]
        fn no_cut_passes_a_known_checkpoint(at: prop::sample::Index, n in 0_usize..3) {
            let mut maker = Maker::ledger(Shape::SMALL);
            let bytes = &mut maker.segments[n].1;
            bytes.truncate(at.index(bytes.len()));
            let dir = tempfile::tempdir().unwrap();
            maker.save(dir.path());
            let report = all_paths(&anchored(&maker, dir.path()));
            prop_assert!([1, 2].contains(&report.exit_code), "{report:?}");
        }

        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..3000), keep in 0_usize..900) {
            let maker = Maker::ledger(Shape::SMALL);
            let mut file = maker.segments[0].1[..keep].to_vec();
            file.extend_from_slice(&bytes);
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(format!("{:020}.frames", 0)), &file).unwrap();
            let report = all_paths(&request(&maker, dir.path()));
            prop_assert!(report.exit_code != 0);
        }
    }
}
