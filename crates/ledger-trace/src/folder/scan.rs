//! Reading the whole chain once: links, tree, checkpoints, and which frames mention what.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ledger_format::{ByteOffset, Frame, Kind, Link, SegmentOpen, Seq, UnixMillis};
use ledger_vault::Identities;

use super::chain::{Chain, Meaning, TrustLine};
use super::files::Files;
use super::keys::Keys;
use super::memory::Memory;
use super::walk::{Position, Shown, Visitor, walk};
use super::{Facts, FolderSource, Place, Segment};
use crate::source::SourceError;

/// Frames, and bytes, between two places that are remembered: what one look costs again.
const PLACE_FRAMES: u64 = 64;
const PLACE_LEN: u64 = 256 << 10;
/// The file `checkpoint` is at most a few behind the chain.
const CHECKPOINTS_KEPT: usize = 64;

/// Takes in what a walk shows.
pub(super) struct Collector<'a> {
    files: &'a Files,
    identities: &'a Identities,
    evidence: bool,
    pub(super) chain: Option<Chain>,
    pub(super) segments: Vec<Segment>,
    pub(super) memory: Memory,
    pub(super) next: Seq,
    /// Segments whose envelopes do not open, and why the first one does not.
    pub(super) unopened: Vec<Seq>,
    pub(super) fault: Option<String>,
    /// A frame whose link is to be noted, and that link.
    pub(super) watch: Seq,
    pub(super) watched: Option<Link>,
    /// The checkpoints met, and when they were appended; the last few.
    pub(super) checkpoints: BTreeMap<Seq, UnixMillis>,
    closed: bool,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        files: &'a Files,
        identities: &'a Identities,
        evidence: bool,
        first: Seq,
        chain: Option<Chain>,
    ) -> Self {
        Self {
            files,
            identities,
            evidence,
            chain,
            segments: Vec::new(),
            memory: Memory::new(first),
            next: first,
            unopened: Vec::new(),
            fault: None,
            watch: Seq(u64::MAX),
            watched: None,
            checkpoints: BTreeMap::new(),
            closed: false,
        }
    }

    /// The segment at hand, its keys as far as they open.
    pub(super) fn begin(&mut self, first_seq: Seq, keys: Option<Keys>) {
        let cell = OnceLock::new();
        if let Some(keys) = keys {
            if let Err(why) = &keys.envelope {
                self.unopened.push(first_seq);
                self.fault.get_or_insert_with(|| why.clone());
            }
            _ = cell.set(keys);
        }
        match self.segments.last_mut() {
            Some(segment) if segment.first_seq == first_seq => segment.keys = cell,
            _ => self.segments.push(Segment {
                first_seq,
                places: Vec::new(),
                keys: cell,
            }),
        }
    }

    fn place(&mut self, segment: Seq, seq: Seq, offset: ByteOffset, before: Link, at_end: bool) {
        if self
            .segments
            .last()
            .is_none_or(|last| last.first_seq != segment)
        {
            self.begin(segment, None);
        }
        let Some(segment) = self.segments.last_mut() else {
            return;
        };
        let due = segment.places.last().is_none_or(|last| {
            seq.0.saturating_sub(last.seq.0) >= PLACE_FRAMES
                || offset.0.saturating_sub(last.offset.0) >= PLACE_LEN
        });
        if due || at_end {
            segment.places.push(Place {
                seq,
                offset,
                before,
            });
        }
    }

    fn frame(&mut self, segment: Seq, frame: &Frame<'_>, predecessor: &Link) -> Result<(), String> {
        let (seq, kind) = (frame.prefix.seq, frame.prefix.kind);
        self.closed = kind == Kind::SegmentClose || (kind == Kind::Checkpoint && self.closed);
        if seq == self.watch {
            self.watched = Some(frame.link);
        }
        if kind == Kind::Checkpoint {
            self.checkpoints.insert(seq, frame.appended_at);
            if self.checkpoints.len() > CHECKPOINTS_KEPT {
                self.checkpoints.pop_first();
            }
        }
        let meaning = match &mut self.chain {
            Some(chain) => chain.accept(segment, frame, predecessor)?,
            None => meaning_alone(frame)?,
        };
        match meaning {
            Meaning::Opened(open) => {
                let keys = Keys::open(self.files, self.identities, self.evidence, segment, &open);
                self.begin(segment, Some(keys));
            }
            Meaning::Record => {
                let keys = self.segments.last().and_then(|segment| segment.keys.get());
                let Some(keys) = keys.filter(|keys| keys.envelope.is_ok()) else {
                    return Ok(());
                };
                let envelope = keys.envelope(frame, predecessor)?;
                if !self.memory.add(frame.prefix.seq, &envelope) {
                    return Err("more frames than can be searched without an index".to_owned());
                }
            }
            Meaning::Control => {}
        }
        Ok(())
    }
}

/// What a frame is, where the chain before it is proved otherwise.
fn meaning_alone(frame: &Frame<'_>) -> Result<Meaning, String> {
    Ok(match (frame.prefix.kind, frame.control()) {
        (Kind::Record, _) => Meaning::Record,
        (Kind::SegmentOpen, Some(control)) => Meaning::Opened(Box::new(
            SegmentOpen::decode(control.body).map_err(|e| e.to_string())?,
        )),
        _ => Meaning::Control,
    })
}

impl Visitor for Collector<'_> {
    fn show(&mut self, shown: Shown<'_>) -> Result<(), String> {
        match shown {
            Shown::Frame {
                segment,
                offset,
                frame,
                predecessor,
            } => {
                self.place(segment, frame.prefix.seq, offset, predecessor, false);
                self.frame(segment, &frame, &predecessor)?;
                self.next = frame.prefix.seq.next();
            }
            Shown::End {
                segment,
                offset,
                next,
                link,
            } => self.place(segment, next, offset, link, true),
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.chain.as_ref().map_or(self.closed, Chain::is_closed)
    }
}

/// Reads everything.
pub(super) fn open<'d>(
    files: Files,
    identities: Identities,
    evidence: bool,
    trust: Option<TrustLine>,
    remarks: Vec<String>,
    until: Seq,
) -> Result<FolderSource<'d>, SourceError> {
    let first = files.list()?.first().copied().unwrap_or_default();
    let pin_given = trust.is_some();
    let start = Position {
        segment: first,
        offset: ByteOffset(0),
        next: first,
        link: None,
    };
    let mut collector = Collector::new(
        &files,
        &identities,
        evidence,
        first,
        Some(Chain::new(trust)),
    );
    let tail = walk(&files, start, until, &mut collector)?;
    collector.memory.sort();
    let Collector {
        chain,
        segments,
        memory,
        next,
        unopened,
        fault,
        ..
    } = collector;
    let mut facts = Facts {
        pin_given,
        first,
        next,
        remarks,
        ..Facts::default()
    };
    if let Some(chain) = chain {
        facts.origin = chain.origin.as_ref().map(ToString::to_string);
        facts.newest = chain.newest.map(|(size, _)| size);
        facts.newest_at = chain.newest.map(|(_, at)| at);
        facts.pinned = chain.pinned;
        facts.trust_line = chain.trust_line;
    }
    if let Some(fault) = fault {
        let open = segments
            .iter()
            .any(|s| s.keys.get().is_some_and(|k| k.envelope.is_ok()));
        if !open {
            return Err(SourceError::Keys(format!(
                "no envelope of {} opens: {fault}",
                files.path().display()
            )));
        }
        let names: Vec<_> = unopened.iter().take(4).map(ToString::to_string).collect();
        facts.remarks.push(format!(
            "{} segments were not searched, from frame {}: {fault}",
            unopened.len(),
            names.join(", ")
        ));
    }
    facts.remark_on(tail);
    Ok(FolderSource {
        files,
        identities,
        evidence,
        segments,
        memory,
        facts,
        derived: None,
    })
}
