//! The segments of a copy in their order: borders, tails, and what all of them gave together
//! (`ledger-format.md`, sections 14 and 15).

use crate::code::{Class, Code};
use crate::files::{SegmentBytes, SegmentFile};
use crate::finding::Finding;
use crate::judge::{Ended, Judge};
use crate::state::{Carry, GoodCheckpoint, Outcome, Previous, Rules, keep_all};
use crate::walk::{FIRST_FRAME, Walked, walk};
use ledger_format::{ByteOffset, Seq, Tail, classify_tail};
use std::io;
use std::thread;
use std::time::Duration;

/// Between two readings of a tail that looks damaged, so that a live writer can finish.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(40);
/// Readings of the last segment before what was read is believed.
const READINGS_MAX: usize = 4;

/// How one segment came out.
#[derive(Clone, Debug)]
pub(crate) struct SegmentResult {
    pub(crate) first: Seq,
    pub(crate) len: u64,
    /// Nothing that is a violation was found in it.
    pub(crate) good: bool,
}

/// All segments judged so far.
pub(crate) struct Chain<'r> {
    pub(crate) rules: &'r Rules,
    pub(crate) carry: Carry,
    pub(crate) total: Outcome,
    pub(crate) segments: Vec<SegmentResult>,
    /// Newest good checkpoint of each generation, ascending.
    pub(crate) newest: Vec<GoodCheckpoint>,
}

/// What is found at a border before the segment behind it is read.
struct Border {
    finding: Option<Finding>,
    carry: Carry,
    /// The segment before lacks its end, unless an unplanned generation follows.
    unclosed: Option<Finding>,
}

impl<'r> Chain<'r> {
    pub(crate) fn new(rules: &'r Rules, from_start: bool) -> Self {
        let carry = if from_start {
            Carry::start()
        } else {
            Carry::default()
        };
        Self {
            rules,
            carry,
            total: Outcome::default(),
            segments: Vec::new(),
            newest: Vec::new(),
        }
    }

    /// Nothing behind an unknown suite is judged.
    pub(crate) const fn halted(&self) -> bool {
        self.total.halt
    }

    /// Step 1.
    fn border(&self, first: Seq) -> Border {
        let mut border = Border {
            finding: None,
            carry: self.carry.clone(),
            unclosed: None,
        };
        let (Some(next), previous) = (self.carry.next, self.carry.previous) else {
            return border;
        };
        let at_end = |code, p: Previous| Finding::new(code, p.first, next, ByteOffset(p.len));
        if first > next {
            border.finding = Some(match previous.filter(|p| !p.closed) {
                Some(p) => at_end(Code::FramesMissing, p)
                    .saying(format!("segment {first} follows; frame {next} must")),
                None => Finding::new(Code::SegmentMissing, first, next, ByteOffset(0)).saying(
                    format!("frames {next} to {} are absent", first.0.saturating_sub(1)),
                ),
            });
            border.carry = Carry::unknown(previous);
        } else if first < next {
            let finding = Finding::new(Code::FrameRepeated, first, first, ByteOffset(FIRST_FRAME));
            border.finding = Some(finding.saying(format!("the segment before ends at {next}")));
            border.carry = Carry::unknown(previous);
        } else if let Some(p) = previous.filter(|p| !p.closed) {
            border.unclosed = Some(at_end(Code::SegmentUnclosed, p));
        }
        border
    }

    /// A judge for the next segment; its outcome is handed back with [`Self::commit`].
    pub(crate) fn judge(&self, first: Seq) -> Judge<'r> {
        let mut judge = Judge::new(self.rules, first, self.border(first).carry);
        judge.out.name.clone_from(&self.total.name);
        judge
    }

    /// Judges a segment on the slow path.
    pub(crate) fn walk_segment(&mut self, file: &SegmentFile, last: bool) {
        match self.walked(file, last) {
            Ok((judge, ended)) => self.commit(judge, ended),
            Err(error) => self.unreadable(file, &error),
        }
    }

    pub(crate) fn unreadable(&mut self, file: &SegmentFile, error: &io::Error) {
        let mut judge = self.judge(file.first);
        let finding = judge.at(Code::Unreadable, file.first, 0);
        judge.find(finding.saying(error.to_string()));
        let ended = Ended {
            stopped: true,
            ..Ended::default()
        };
        self.commit(judge, ended);
    }

    fn walked(&self, file: &SegmentFile, last: bool) -> io::Result<(Judge<'r>, Ended)> {
        if last {
            return self.walked_last(file);
        }
        let bytes = SegmentBytes::open(&file.path)?;
        let mut judge = self.judge(file.first);
        let walked = walk(&bytes, bytes.len(), false, &mut judge)?;
        if let Some((seq, at)) = walked.unfinished {
            let finding = judge.at(Code::WriteBroken, seq, at);
            judge.find(finding.saying("the last write of the segment is not whole"));
        }
        Ok((judge, walked.ended))
    }

    /// A live writer may be at work: nothing is believed that a second reading does not confirm.
    fn walked_last(&self, file: &SegmentFile) -> io::Result<(Judge<'r>, Ended)> {
        let mut before: Option<(Tail, u64, u64)> = None;
        let mut readings = 0_usize;
        loop {
            readings = readings.saturating_add(1);
            let reading = self.read_last(file);
            let again = readings < READINGS_MAX;
            match reading {
                Ok((judge, ended, tail, key)) => {
                    let seen = Some((tail, key, ended.len));
                    if tail == Tail::Clean || before == seen || !again {
                        return Ok((judge, ended));
                    }
                    before = seen;
                }
                // The writer cuts the file when it closes: what was there a moment ago is gone.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && again => before = None,
                Err(e) => return Err(e),
            }
            thread::sleep(READ_AGAIN_AFTER);
        }
    }

    /// One reading of the last segment (step 5): judge, end, verdict on the tail, and its place.
    fn read_last(&self, file: &SegmentFile) -> io::Result<(Judge<'r>, Ended, Tail, u64)> {
        let bytes = SegmentBytes::open(&file.path)?;
        let mut judge = self.judge(file.first);
        let walked = walk(&bytes, bytes.len(), true, &mut judge)?;
        if !walked.flawed && walked.unfinished.is_none() {
            judge.out.end = Some((walked.complete.end, walked.complete.next));
            return Ok((judge, walked.ended, Tail::Clean, 0));
        }
        let start = walked.complete;
        let tail = classify_tail(&bytes, bytes.len(), start, self.rules.cover(start.next))?;
        let code = match tail {
            Tail::Clean => {
                return Ok((judge, walked.ended, tail, start.end.0));
            }
            Tail::Damaged => {
                if let (false, Some((seq, at))) = (walked.flawed, walked.unfinished) {
                    let finding = judge.at(Code::WriteBroken, seq, at);
                    judge.find(finding.saying("the last write of the file is not whole"));
                }
                return Ok((judge, walked.ended, tail, start.end.0));
            }
            Tail::Torn => Code::TornTail,
            Tail::CopiedWhileWritten => Code::CopiedWhileWritten,
        };
        let (judge, ended) = self.cut(file, &bytes, &walked, code)?;
        Ok((judge, ended, tail, start.end.0))
    }

    /// The segment as it is up to E, and one finding for what lies behind.
    fn cut(
        &self,
        file: &SegmentFile,
        bytes: &SegmentBytes,
        walked: &Walked,
        code: Code,
    ) -> io::Result<(Judge<'r>, Ended)> {
        let start = walked.complete;
        let mut judge = self.judge(file.first);
        let kept = walk(bytes, start.end.0, true, &mut judge)?;
        let mut finding = judge.at(code, start.next, start.end.0);
        finding.end = Some(bytes.len());
        judge.find(finding);
        judge.out.end = Some((start.end, start.next));
        let ended = Ended {
            len: bytes.len(),
            ..kept.ended
        };
        Ok((judge, ended))
    }

    /// Takes over a judged segment.
    pub(crate) fn commit(&mut self, judge: Judge<'r>, ended: Ended) {
        let first = judge.segment;
        let border = self.border(first);
        let (out, carry, generation_follows) = judge.finish(ended);
        let unclosed = border.unclosed.filter(|_| !generation_follows);
        if let Some(segment) = self.segments.last_mut()
            && unclosed.is_some()
        {
            segment.good = false;
        }
        for finding in [border.finding, unclosed].into_iter().flatten() {
            self.total.findings.push(finding);
        }
        let violation = |f: &Finding| f.class != Class::Incomplete;
        self.segments.push(SegmentResult {
            first,
            len: ended.len,
            good: !out.findings.listed.iter().any(violation) && out.findings.more == 0,
        });
        self.carry = carry;
        self.merge(out);
    }

    fn merge(&mut self, out: Outcome) {
        let total = &mut self.total;
        total.findings.append(out.findings);
        total.follows.append(out.follows);
        total.notes.append(out.notes);
        total.counts.records = total.counts.records.saturating_add(out.counts.records);
        total.counts.control = total.counts.control.saturating_add(out.counts.control);
        total.counts.checkpoints = total
            .counts
            .checkpoints
            .saturating_add(out.counts.checkpoints);
        let first = self.segments.last().map_or(Seq(0), |s| s.first);
        total.clock.append(&out.clock, first);
        total.generations.extend(out.generations);
        for identity in out.identities {
            // A good ledger has one a generation; a hostile one must not make this list long.
            if total.identities.len() < 1024 && !total.identities.contains(&identity) {
                total.identities.push(identity);
            }
        }
        total.name = total.name.take().or(out.name);
        total.roots.extend(out.roots);
        keep_all(&mut total.promises_kept, &out.promises_kept);
        total.promises_broken.append(out.promises_broken);
        total.first_seq = total
            .first_seq
            .or_else(|| self.segments.first().map(|s| s.first));
        total.next_seq = out.next_seq;
        total.end = out.end;
        total.halt |= out.halt;
        total.erased.append(&out.erased);
        if let Some(newest) = out.newest {
            self.newest.retain(|c| c.generation != newest.generation);
            self.newest.push(newest);
        }
    }
}
