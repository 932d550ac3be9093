//! The source over a ledger's files: every frame that it hands out was tied to a signed checkpoint first.
//!
//! Two ways. *Scanned*: the whole chain is read once, its links and its tree computed, every checkpoint's root and
//! signatures held against them; nothing derived is used, so an auditor's stick is enough. *Indexed*: an index says
//! which frames, tiles give audit paths, and only the tail behind them is read; the cost does not grow with the ledger.
//! Both say the same. Nothing is written or locked; a ledger may be written to meanwhile.

mod chain;
mod derived;
mod files;
mod indexed;
mod keys;
mod memory;
mod scan;
mod walk;

use std::path::Path;
use std::sync::OnceLock;

use ledger_format::{ByteOffset, Frame, Link, Seq, Tail, UnixMillis};
use ledger_vault::Identities;

pub use chain::TrustLine;
pub use derived::{Derived, Lookup, Proofs};
use files::Files;
use keys::Keys;
use memory::Memory;
use walk::Position;

use crate::source::{Check, Extent, FrameView, Hits, How, Source, SourceError};

/// How a folder is read.
#[derive(Default)]
pub struct FolderOptions<'d> {
    /// The key that the checkpoints must be signed by, from outside the copy.
    pub trust: Option<TrustLine>,
    /// Whether bodies are opened too: with the vault key, not with the operational identity.
    pub evidence: bool,
    /// The index and the tiles, where they are to be used.
    pub derived: Option<Derived<'d>>,
    /// What else is to stand in every answer, such as why there is no index.
    pub remarks: Vec<String>,
    /// Of a ledger that is being written to: how many frames are synced. Asked once the derived data was read; frames
    /// from there on are not looked at, because a crash may still take them away.
    pub synced: Option<Box<dyn Fn() -> Seq + Send + Sync + 'd>>,
    /// Refuse, with [`SourceError::NoIndex`], where the whole chain would have to be read.
    pub never_scan: bool,
}

/// A ledger's folder as a source.
pub struct FolderSource<'d> {
    files: Files,
    identities: Identities,
    evidence: bool,
    segments: Vec<Segment>,
    memory: Memory,
    facts: Facts,
    derived: Option<indexed::Proven<'d>>,
}

/// What reads a ledger's folder, and with which keys.
struct Reader<'a> {
    files: &'a Files,
    identities: &'a Identities,
    evidence: bool,
}

/// What reading a chain established.
#[derive(Debug, Default)]
struct Facts {
    origin: Option<String>,
    trust_line: Option<String>,
    pin_given: bool,
    first: Seq,
    next: Seq,
    newest: Option<u64>,
    newest_at: Option<UnixMillis>,
    pinned: Option<u64>,
    remarks: Vec<String>,
}

/// One segment, and known places in it.
#[derive(Debug)]
struct Segment {
    first_seq: Seq,
    /// Ascending; the last one is the end of what was walked. Empty where nothing was.
    places: Vec<Place>,
    keys: OnceLock<Keys>,
}

/// A place whose link is known: what lies up to the next place can be read again and held against both.
#[derive(Debug, Clone, Copy)]
struct Place {
    seq: Seq,
    offset: ByteOffset,
    before: Link,
}

impl<'d> FolderSource<'d> {
    /// Opens a ledger's folder, or a folder that holds its segments.
    ///
    /// # Errors
    /// [`SourceError`]: `Violation` where the chain does not hold, `Keys` when no envelope key opens.
    pub fn open(
        path: &Path,
        identities: Identities,
        options: FolderOptions<'d>,
    ) -> Result<Self, SourceError> {
        let files = Files::open(path)?;
        if files.list()?.is_empty() {
            let what = format!(
                "{} holds no ledger: no segments/*.frames in it",
                path.display()
            );
            return Err(SourceError::Unusable(what));
        }
        let mut remarks = options.remarks;
        let synced = options
            .synced
            .as_deref()
            .map(|synced| synced as &dyn Fn() -> Seq);
        if let Some(derived) = options.derived {
            let reader = Reader {
                files: &files,
                identities: &identities,
                evidence: options.evidence,
            };
            match indexed::open(&reader, options.trust.as_ref(), derived, synced)? {
                indexed::Opening::Done(done) => {
                    return Ok(done.into_source(files, identities, options.evidence));
                }
                indexed::Opening::Unsuitable(why) if options.never_scan => {
                    return Err(SourceError::NoIndex(why));
                }
                indexed::Opening::Unsuitable(why) => {
                    remarks.push(format!(
                        "the whole chain was read instead of the tiles: {why}"
                    ));
                }
            }
        } else if options.never_scan {
            return Err(SourceError::NoIndex("none was given".to_owned()));
        }
        let until = synced.map_or(Seq(u64::MAX), |synced| synced());
        scan::open(
            files,
            identities,
            options.evidence,
            options.trust,
            remarks,
            until,
        )
    }

    fn segment_of(&self, seq: Seq) -> Option<&Segment> {
        let behind = self
            .segments
            .partition_point(|segment| segment.first_seq <= seq);
        behind.checked_sub(1).and_then(|at| self.segments.get(at))
    }

    /// A frame's bytes and its predecessor, from between two places whose links are known.
    fn placed(&self, segment: &Segment, seq: Seq) -> Result<Option<(Vec<u8>, Link)>, SourceError> {
        let behind = segment.places.partition_point(|place| place.seq <= seq);
        let from = behind.checked_sub(1).and_then(|at| segment.places.get(at));
        let (Some(from), Some(to)) = (from, segment.places.get(behind)) else {
            return Ok(None);
        };
        let changed = || SourceError::Violation {
            seq,
            what: "the segment is not what it was when its chain was checked".to_owned(),
        };
        let file = self.files.frames(segment.first_seq)?;
        let bytes = file.bytes(from.offset.0, to.offset.0.saturating_sub(from.offset.0))?;
        let (mut rest, mut link, mut found) = (&bytes[..], from.before, None);
        while !rest.is_empty() {
            let frame = Frame::parse(rest).map_err(|_| changed())?;
            if frame.compute_link(&link) != frame.link {
                return Err(changed());
            }
            if frame.prefix.seq == seq {
                found = Some((frame.bytes().to_vec(), link));
            }
            link = frame.link;
            rest = rest.get(frame.bytes().len()..).unwrap_or_default();
        }
        if link == to.before {
            Ok(found)
        } else {
            Err(changed())
        }
    }

    fn check(&self, seq: Seq) -> Check {
        let how = if self.derived.is_some() {
            How::AuditPath
        } else {
            How::Tree
        };
        let (checkpoint, pinned, how) = match (self.facts.pinned, self.facts.newest) {
            (Some(size), _) if seq.0 < size => (Some(size), true, how),
            (_, Some(size)) if seq.0 < size => (Some(size), false, how),
            _ => (None, false, How::ChainOnly),
        };
        Check {
            checkpoint,
            pinned,
            how,
        }
    }
}

impl Source for FolderSource<'_> {
    fn lookup(&self, value: &str, limit: usize) -> Result<Hits, SourceError> {
        let mut hits = match &self.derived {
            Some(proven) => proven.lookup(value, self.facts.next, limit)?,
            None => Hits::default(),
        };
        if !hits.more {
            hits.seqs.extend(self.memory.lookup(value).take(limit + 1));
            hits.seqs.sort_unstable();
            hits.seqs.dedup();
            hits.more = hits.seqs.len() > limit;
            hits.seqs.truncate(limit);
        }
        Ok(hits)
    }

    fn frame(&self, seq: Seq) -> Result<FrameView, SourceError> {
        if seq >= self.facts.next {
            return Err(SourceError::NoRecord(seq));
        }
        let segment = self.segment_of(seq).ok_or(SourceError::NoRecord(seq))?;
        let (bytes, predecessor) = match (self.placed(segment, seq)?, &self.derived) {
            (Some(placed), _) => placed,
            (None, Some(proven)) => proven.frame(&self.files, segment.first_seq, seq)?,
            (None, None) => return Err(SourceError::NoRecord(seq)),
        };
        let violation = |what: String| SourceError::Violation { seq, what };
        let frame = Frame::parse(&bytes).map_err(|e| violation(e.to_string()))?;
        if frame.record().is_none() {
            return Err(SourceError::NoRecord(seq));
        }
        let keys = match (segment.keys.get(), &self.derived) {
            (Some(keys), _) => keys,
            (None, Some(proven)) => {
                let open = proven.segment_open(&self.files, segment.first_seq)?;
                let keys = || {
                    Keys::open(
                        &self.files,
                        &self.identities,
                        self.evidence,
                        segment.first_seq,
                        &open,
                    )
                };
                segment.keys.get_or_init(keys)
            }
            (None, None) => return Err(SourceError::NoRecord(seq)),
        };
        if let Err(why) = &keys.envelope {
            return Err(SourceError::Keys(format!("frame {seq}: {why}")));
        }
        let envelope = keys.envelope(&frame, &predecessor).map_err(violation)?;
        Ok(FrameView {
            seq,
            appended_at: frame.appended_at,
            link: frame.link,
            evidence: keys.evidence(&frame, &envelope),
            envelope,
            check: self.check(seq),
        })
    }

    fn extent(&self) -> Extent {
        Extent {
            origin: self.facts.origin.clone(),
            first: self.facts.first,
            next: self.facts.next,
            checkpoint: self.facts.newest,
            checkpoint_at: self.facts.newest_at,
            trust_line: self.facts.trust_line.clone(),
            pin_given: self.facts.pin_given,
            remarks: self.facts.remarks.clone(),
        }
    }
}

impl Facts {
    /// What a reader has to know of how reading ended.
    fn remark_on(&mut self, tail: Option<Tail>) {
        if self.first > Seq(0) {
            let text = format!(
                "frames before {} are not in this folder: they were not searched",
                self.first
            );
            self.remarks.push(text);
        }
        match tail {
            Some(Tail::CopiedWhileWritten) => {
                self.remarks.push(format!(
                    "behind frame {} the copy was made while the ledger was writing",
                    self.last()
                ));
            }
            Some(_) => self.remarks.push(format!(
                "behind frame {} stands an unfinished write",
                self.last()
            )),
            None => {}
        }
        if self.pin_given && self.pinned.is_none() {
            self.remarks
                .push("no checkpoint under the trust line given was found".to_owned());
        } else if self.pin_given && self.pinned < self.newest {
            let size = self.pinned.unwrap_or_default();
            self.remarks.push(format!(
                "from frame {size} on another trust line holds than the one given"
            ));
        }
        if self.newest.is_none() {
            self.remarks
                .push("no signed checkpoint was found".to_owned());
        }
    }

    fn last(&self) -> u64 {
        self.next.0.saturating_sub(1)
    }
}
