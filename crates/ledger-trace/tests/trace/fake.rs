//! A source over records in memory: what it says of checks is invented, everything else is as the ledger would have it.

use ledger_format::{Link, Seq, UnixMillis};
use ledger_records::{Record, project};
use ledger_trace::{
    Answer, Check, Evidence, Extent, FrameView, Hits, How, Limits, Opened, Query, Source,
    SourceError, trace,
};

pub(crate) struct Fake {
    pub(crate) first: u64,
    pub(crate) records: Vec<Record>,
    pub(crate) with_bodies: bool,
    pub(crate) covered_to: u64,
    pub(crate) pinned: bool,
}

impl Fake {
    /// Records of NDJSON or of one JSON object each.
    pub(crate) fn new(first: u64, records: Vec<Record>) -> Self {
        Self {
            first,
            covered_to: first + records.len() as u64,
            records,
            with_bodies: true,
            pinned: true,
        }
    }

    pub(crate) fn skeleton(mut self) -> Self {
        self.with_bodies = false;
        self
    }

    pub(crate) fn ask(&self, value: &str) -> Answer {
        trace(self, &Query::value(value), Limits::default()).unwrap()
    }
}

impl Source for Fake {
    fn lookup(&self, value: &str, limit: usize) -> Result<Hits, SourceError> {
        let mentions = |record: &Record| {
            record.record_id().as_str() == value
                || record.identifiers().iter().any(|id| id.value == value)
        };
        let all = self.records.iter().enumerate().filter(|(_, r)| mentions(r));
        let mut seqs: Vec<Seq> = all
            .map(|(i, _)| Seq(self.first + i as u64))
            .take(limit + 1)
            .collect();
        let more = seqs.len() > limit;
        seqs.truncate(limit);
        Ok(Hits { seqs, more })
    }

    fn frame(&self, seq: Seq) -> Result<FrameView, SourceError> {
        let at = seq
            .0
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok());
        let record = at
            .and_then(|at| self.records.get(at))
            .ok_or(SourceError::NoRecord(seq))?;
        let covered = seq.0 < self.covered_to;
        Ok(FrameView {
            seq,
            appended_at: UnixMillis(1_796_047_387_000 + seq.0),
            link: Link([seq.0 as u8; 32]),
            envelope: project(record, [0; 16]),
            evidence: if self.with_bodies {
                Evidence::Opened(Box::new(Opened {
                    record: record.clone(),
                    attested: None,
                    envelope_differs: None,
                }))
            } else {
                Evidence::Sealed
            },
            check: Check {
                checkpoint: covered.then_some(self.covered_to),
                pinned: covered && self.pinned,
                how: if covered { How::Tree } else { How::ChainOnly },
            },
        })
    }

    fn extent(&self) -> Extent {
        Extent {
            origin: Some(
                "audit.example.com/build-agent/7d31a90c44be02f15e8890ab6c2d77e1".to_owned(),
            ),
            first: Seq(self.first),
            next: Seq(self.first + self.records.len() as u64),
            checkpoint: Some(self.covered_to),
            checkpoint_at: None,
            trust_line: None,
            pin_given: self.pinned,
            remarks: Vec::new(),
        }
    }
}
