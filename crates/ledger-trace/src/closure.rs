//! Which frames belong together: from one identifier, over what records share, to closure.
//!
//! Joining identifiers are followed, grouping ones only as a start; `ledger_records::identifiers::TABLE` says which is
//! which. What a *sender* chose is never followed: a delivery is found by what it claims, but what it claims leads
//! nowhere until a verification or a correlation of ours says so. Otherwise a forged callback could tie the stories
//! of two tenants together.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use ledger_format::Seq;
use ledger_records::{IdKind, Identifier, RecordType, Relation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::model::IdentifierView;
use crate::source::{FrameView, Source, SourceError};

/// How much one answer may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Frames of a story.
    pub frames_max: usize,
    /// Frames read to find them: a value may mean something else elsewhere.
    pub reads_max: usize,
    /// Frames that one identifier may bring.
    pub hits_max: usize,
    /// Entities of one value, or tokens of pasted text, that are looked into.
    pub candidates_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // A story has tens of frames; thousands are a start that groups, and nobody reads them.
        Self {
            frames_max: 2_000,
            reads_max: 10_000,
            hits_max: 2_000,
            candidates_max: 64,
        }
    }
}

/// Where following stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cut {
    /// Which bound was met.
    pub reason: String,
    /// Identifiers that were not followed, or not to their last frame; the first few.
    pub not_followed: Vec<IdentifierView>,
    /// Their number.
    pub not_followed_count: u64,
}

/// How a frame came into a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) identifier: Identifier,
    pub(crate) relation: Relation,
}

/// A frame of a story.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) frame: Rc<FrameView>,
    pub(crate) joined: Joined,
}

/// A closed set of frames.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closure {
    pub(crate) members: BTreeMap<Seq, Member>,
    pub(crate) cut: Option<Cut>,
}

impl Closure {
    /// Whether some frame of it mentions an identifier.
    pub(crate) fn mentions(&self, id: &Identifier) -> bool {
        self.members
            .values()
            .any(|member| mention(&member.frame, id).is_some())
    }
}

/// Reads frames for one answer, each once.
pub(crate) struct Reader<'s> {
    source: &'s dyn Source,
    limits: Limits,
    read: HashMap<Seq, Rc<FrameView>>,
}

/// An entity that a value may mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) identifier: Identifier,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    pub(crate) frames: u64,
    pub(crate) more: bool,
}

impl<'s> Reader<'s> {
    pub(crate) fn new(source: &'s dyn Source, limits: Limits) -> Self {
        Self {
            source,
            limits,
            read: HashMap::new(),
        }
    }

    /// A frame; None when no more may be read.
    fn frame(&mut self, seq: Seq) -> Result<Option<Rc<FrameView>>, SourceError> {
        if let Some(frame) = self.read.get(&seq) {
            return Ok(Some(frame.clone()));
        }
        if self.read.len() >= self.limits.reads_max {
            return Ok(None);
        }
        let frame = Rc::new(self.source.frame(seq)?);
        self.read.insert(seq, frame.clone());
        Ok(Some(frame))
    }

    /// The entities that a value means, joining ones first, then in the order of their first frame.
    pub(crate) fn candidates(&mut self, value: &str) -> Result<Vec<Candidate>, SourceError> {
        let hits = self.source.lookup(value, self.limits.hits_max)?;
        let mut found: BTreeMap<Identifier, Candidate> = BTreeMap::new();
        for seq in hits.seqs {
            let Some(frame) = self.frame(seq)? else { break };
            let mentioned: BTreeSet<Identifier> = all_ids(&frame)
                .filter(|(_, id)| id.value == value)
                .map(|(_, id)| id)
                .collect();
            for identifier in mentioned {
                let candidate = found.entry(identifier.clone()).or_insert(Candidate {
                    identifier,
                    first: seq,
                    last: seq,
                    frames: 0,
                    more: hits.more,
                });
                candidate.last = seq;
                candidate.frames += 1;
            }
        }
        let mut found: Vec<_> = found.into_values().collect();
        found.sort_by_key(|c| (!c.identifier.kind.is_joining(), c.first, c.identifier.kind));
        Ok(found)
    }

    /// All frames that belong to an identifier.
    pub(crate) fn close(&mut self, start: &Identifier) -> Result<Closure, SourceError> {
        let mut closure = Closure::default();
        let mut followed = HashSet::from([start.clone()]);
        let mut queue = VecDeque::from([start.clone()]);
        let mut left: Vec<Identifier> = Vec::new();
        let mut reason = None;
        while let Some(id) = queue.pop_front() {
            if reason.is_some() {
                left.push(id);
                continue;
            }
            let hits = self.source.lookup(&id.value, self.limits.hits_max)?;
            if hits.more {
                left.push(id.clone());
            }
            for seq in hits.seqs {
                if closure.members.contains_key(&seq) {
                    continue;
                }
                let Some(frame) = self.frame(seq)? else {
                    reason = Some(format!("{} frames were read", self.limits.reads_max));
                    break;
                };
                let Some(relation) = mention(&frame, &id) else {
                    continue;
                };
                if closure.members.len() >= self.limits.frames_max {
                    reason = Some(format!("the story has {} frames", self.limits.frames_max));
                    break;
                }
                for next in leads_to(&frame) {
                    if followed.insert(next.clone()) {
                        queue.push_back(next);
                    }
                }
                let joined = Joined {
                    identifier: id.clone(),
                    relation,
                };
                closure.members.insert(seq, Member { frame, joined });
            }
            if reason.is_some() {
                left.push(id);
            }
        }
        closure.cut = cut(reason, &left, self.limits);
        Ok(closure)
    }
}

fn cut(reason: Option<String>, left: &[Identifier], limits: Limits) -> Option<Cut> {
    if left.is_empty() {
        return None;
    }
    let hits = || {
        format!(
            "one identifier stands in more than {} frames",
            limits.hits_max
        )
    };
    Some(Cut {
        reason: reason.unwrap_or_else(hits),
        not_followed: left.iter().take(8).map(IdentifierView::from).collect(),
        not_followed_count: left.len() as u64,
    })
}

/// A record's own id, then everything else that it mentions.
fn all_ids(frame: &FrameView) -> impl Iterator<Item = (Relation, Identifier)> {
    let own = Identifier {
        kind: IdKind::RecordId,
        scope: String::new(),
        value: frame.envelope.record_id.clone(),
    };
    let others = frame.envelope.identifiers.iter();
    std::iter::once((Relation::Subject, own))
        .chain(others.map(|item| (item.relation, item.identifier.clone())))
}

/// How a frame mentions an identifier; of several ways, the first.
fn mention(frame: &FrameView, id: &Identifier) -> Option<Relation> {
    if id.kind == IdKind::RecordId && id.value == frame.envelope.record_id {
        return Some(Relation::Subject);
    }
    let mut all = frame.envelope.identifiers.iter();
    all.find(|item| item.identifier == *id)
        .map(|item| item.relation)
}

/// The identifiers that a frame leads to.
fn leads_to(frame: &FrameView) -> impl Iterator<Item = Identifier> {
    let facts = Facts(&frame.envelope);
    let record_type = frame.envelope.record_type;
    // A refused delivery's verification repeats what a stranger wrote.
    let believed = matches!(facts.text("decision"), Some("accepted" | "duplicate"));
    all_ids(frame).filter_map(move |(relation, id)| {
        let ours = match record_type {
            RecordType::Receipt => relation == Relation::Subject,
            RecordType::Verification => {
                believed || matches!(id.kind, IdKind::ReceiptId | IdKind::RecordId)
            }
            _ => relation != Relation::Claims,
        };
        (ours && id.kind.is_joining()).then_some(id)
    })
}
