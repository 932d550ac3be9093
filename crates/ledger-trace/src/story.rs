//! From a closed set of frames to the answer: lines, state, permission, evidence, check.
//! No reading and no judging here.

use std::collections::BTreeMap;

use ledger_records::{EnvelopeIdentifier, IdKind as K, Identifier, RecordType, Relation as R};

use crate::closure::{Closure, Joined};
use crate::facts::{Facts, Frames};
use crate::finding::{Finding, FindingCode};
use crate::judge::{is_terminal, judge};
use crate::model::{
    ActionView, AttestedView, CheckView, Depth, EvidenceView, FactView, IdentifierView,
    JSON_VERSION, Line, RangeView, RelatedView, StateView, Trace,
};
use crate::sentence::{basis, checks, role, sentence, target};
use crate::source::{Evidence, Extent, FrameView, How};

/// Tells the story of a closed set.
pub(crate) fn tell(
    asked: Vec<String>,
    start: &[Identifier],
    closure: Closure,
    extent: Extent,
) -> Trace {
    let mut joined = BTreeMap::new();
    let mut frames = Vec::with_capacity(closure.members.len());
    for (seq, member) in closure.members {
        joined.insert(seq, member.joined);
        frames.push(std::rc::Rc::unwrap_or_clone(member.frame));
    }
    let view = Frames(&frames);
    let findings = judge(view);
    let lines = frames
        .iter()
        .enumerate()
        .map(|(i, frame)| {
            line(
                frame,
                Frames(&frames[..i]),
                joined.get(&frame.seq),
                &findings,
            )
        })
        .collect();
    Trace {
        version: JSON_VERSION,
        asked,
        start: start.iter().map(IdentifierView::from).collect(),
        depth: depth(&frames),
        actions: actions(view),
        states: states(view),
        check: check(&frames),
        findings,
        lines,
        cut: closure.cut,
        range: RangeView::from(extent),
    }
}

fn depth(frames: &[FrameView]) -> Depth {
    let opened = frames.iter().filter(|f| f.record().is_some()).count();
    match opened {
        0 => Depth::Skeleton,
        n if n == frames.len() => Depth::Evidence,
        _ => Depth::Partial,
    }
}

/// A frame as one line; also how a candidate of an ambiguous value is told.
pub(crate) fn line(
    frame: &FrameView,
    before: Frames<'_>,
    joined: Option<&Joined>,
    findings: &[Finding],
) -> Line {
    let f = Facts(&frame.envelope);
    let opened = match &frame.evidence {
        Evidence::Opened(opened) => Some(opened),
        Evidence::Sealed | Evidence::Failed(_) => None,
    };
    let own = Joined {
        identifier: Identifier {
            kind: K::RecordId,
            scope: String::new(),
            value: frame.envelope.record_id.clone(),
        },
        relation: R::Subject,
    };
    let joined = joined.unwrap_or(&own);
    Line {
        frame: frame.seq.0,
        link: frame.link.to_hex(),
        appended_at: frame.appended_at.to_rfc3339(),
        checkpoint: frame.check.checkpoint,
        pinned: frame.check.pinned,
        how: frame.check.how,
        record_type: frame.envelope.record_type.as_str().to_owned(),
        record_id: frame.envelope.record_id.clone(),
        time: f.own_time().map(str::to_owned),
        source: f.text("source").map(str::to_owned),
        by: role(frame),
        attested: opened.and_then(|o| o.attested).map(|a| AttestedView {
            uid: a.uid,
            gid: a.gid,
            pid: a.pid,
        }),
        text: sentence(frame, before),
        contradicts: findings
            .iter()
            .any(|f| f.code == FindingCode::ContradictionOpen && f.frames.contains(&frame.seq.0)),
        joined_by: RelatedView {
            relation: joined.relation.as_str().to_owned(),
            identifier: IdentifierView::from(&joined.identifier),
        },
        identifiers: related(&frame.envelope.identifiers),
        facts: facts(frame),
        record: frame
            .record()
            .and_then(|r| serde_json::from_slice(&r.to_json()).ok()),
        unopened: match &frame.evidence {
            Evidence::Failed(why) => Some(why.clone()),
            Evidence::Opened(_) | Evidence::Sealed => None,
        },
    }
}

fn related(ids: &[EnvelopeIdentifier]) -> Vec<RelatedView> {
    ids.iter().map(RelatedView::from).collect()
}

fn facts(frame: &FrameView) -> BTreeMap<String, FactView> {
    let facts = frame.envelope.facts().iter();
    facts
        .map(|(name, fact)| (name.clone(), FactView::from(fact)))
        .collect()
}

/// The actions of a story, each by its last record: a permission may come after the first.
fn actions(frames: Frames<'_>) -> Vec<ActionView> {
    let mut order: Vec<&str> = Vec::new();
    let mut found: BTreeMap<&str, ActionView> = BTreeMap::new();
    for frame in frames
        .0
        .iter()
        .filter(|f| f.envelope.record_type == RecordType::Action)
    {
        let f = Facts(&frame.envelope);
        let Some(id) = f.subject() else { continue };
        if !found.contains_key(id) {
            order.push(id);
        }
        found.insert(id, action(id, frame, f));
    }
    order
        .into_iter()
        .filter_map(|id| found.remove(id))
        .collect()
}

fn action(id: &str, frame: &FrameView, f: Facts<'_>) -> ActionView {
    let text = |name| f.text(name).map(str::to_owned);
    let reason = match frame.record() {
        Some(ledger_records::Record::Action(action)) => {
            let why = action
                .authorization
                .reason
                .as_ref()
                .or(action.reason.as_ref());
            why.map(|reason| reason.as_str().to_owned())
        }
        _ => None,
    };
    ActionView {
        action_id: id.to_owned(),
        frame: frame.seq.0,
        actor: f.id(R::By, K::Actor).map(str::to_owned),
        operation: text("operation"),
        target_id: text("target_id"),
        target: target(f),
        host: text("target_host"),
        scope: text("scope"),
        decision: text("decision"),
        approver: f.id(R::ApprovedBy, K::Actor).map(str::to_owned),
        approved_at: text("approved_at"),
        expires_at: text("grant_expires_at"),
        grant: f.id(R::Under, K::Grant).map(str::to_owned),
        policy: text("policy"),
        credential_label: text("credential_label"),
        reason,
    }
}

fn states(frames: Frames<'_>) -> Vec<StateView> {
    let mut order: Vec<&str> = Vec::new();
    let mut found: BTreeMap<&str, StateView> = BTreeMap::new();
    for (seq, f) in frames.of(RecordType::StateTransition) {
        let (Some(workflow), Some(to)) = (f.subject(), f.text("to")) else {
            continue;
        };
        if !found.contains_key(workflow) {
            order.push(workflow);
        }
        let state = StateView {
            workflow_id: workflow.to_owned(),
            state: to.to_owned(),
            terminal: is_terminal(to),
            since: f.text("decided_at").map(str::to_owned),
            frame: seq.0,
            rule: f.text("rule").map(str::to_owned),
            decided_by: f.id(R::By, K::Actor).map(str::to_owned),
            by_person: f.flag("decided_by_person") == Some(true),
            evidence: f.part(R::Evidence).map(|id| evidence(frames, id)).collect(),
        };
        found.insert(workflow, state);
    }
    order
        .into_iter()
        .filter_map(|id| found.remove(id))
        .collect()
}

/// What the ledger says about something that a change of state cites.
fn evidence(frames: Frames<'_>, id: &Identifier) -> EvidenceView {
    let (says, shown): (Option<String>, Vec<u64>) = match id.kind {
        K::ReceiptId => {
            let verified: Vec<_> = frames.verifications(&id.value).collect();
            let best = verified
                .iter()
                .find(|(_, f)| f.text("decision") == Some("accepted"));
            (
                best.or(verified.last()).map(|(_, f)| checks(*f)),
                seqs(verified.iter().map(|(s, _)| *s)),
            )
        }
        K::CorrelationId => {
            let mut joins = frames
                .of(RecordType::Correlation)
                .filter(|(_, f)| f.subject() == Some(&id.value));
            joins
                .next()
                .map_or((None, Vec::new()), |(seq, f)| (Some(basis(f)), vec![seq.0]))
        }
        K::RecordId => frames
            .record(&id.value)
            .map_or((None, Vec::new()), |frame| {
                (Some(sentence(frame, Frames(&[]))), vec![frame.seq.0])
            }),
        _ => {
            let names = |frame: &&FrameView| {
                let mut ids = frame.envelope.identifiers.iter();
                ids.any(|item| {
                    item.identifier == *id && matches!(item.relation, R::Names | R::Subject)
                })
            };
            (
                None,
                seqs(frames.0.iter().filter(names).map(|frame| frame.seq)),
            )
        }
    };
    EvidenceView {
        identifier: IdentifierView::from(id),
        says,
        frames: shown,
    }
}

fn seqs(of: impl Iterator<Item = ledger_format::Seq>) -> Vec<u64> {
    of.map(|seq| seq.0).collect()
}

fn check(frames: &[FrameView]) -> CheckView {
    let covered: Vec<_> = frames
        .iter()
        .filter(|f| f.check.checkpoint.is_some())
        .collect();
    let mut how: Vec<How> = Vec::new();
    for frame in frames {
        if !how.contains(&frame.check.how) {
            how.push(frame.check.how);
        }
    }
    CheckView {
        frames: frames.len() as u64,
        covered: covered.len() as u64,
        checkpoint: covered.iter().filter_map(|f| f.check.checkpoint).max(),
        pinned: !covered.is_empty() && covered.iter().all(|f| f.check.pinned),
        how,
    }
}
