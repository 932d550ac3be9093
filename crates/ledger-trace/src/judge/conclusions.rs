//! What was concluded: joins that led nowhere, states without ground, evidence behind a final state, exceptions.

use std::collections::{BTreeMap, BTreeSet};

use ledger_format::Seq;
use ledger_records::{IdKind as K, Identifier, RecordType, Relation as R};

use super::{cites, is_kept};
use crate::facts::{Facts, Frames};
use crate::finding::{Finding, FindingCode as C};

/// A state that nothing is expected to change any more.
pub(crate) fn is_terminal(state: &str) -> bool {
    matches!(state, "confirmed" | "failed" | "cancelled")
}

pub(super) fn judge(frames: Frames<'_>, out: &mut Vec<Finding>) {
    joins(frames, out);
    let mut workflows: BTreeMap<&str, Vec<(Seq, Facts<'_>)>> = BTreeMap::new();
    for (seq, f) in frames.of(RecordType::StateTransition) {
        if let Some(workflow) = f.subject() {
            workflows.entry(workflow).or_default().push((seq, f));
        }
    }
    for (workflow, changes) in &workflows {
        states(frames, workflow, changes, out);
        late(frames, workflow, changes, out);
    }
    without_state(frames, &workflows, out);
    exceptions(frames, out);
}

fn joins(frames: Frames<'_>, out: &mut Vec<Finding>) {
    for (seq, f) in frames.of(RecordType::Correlation) {
        let Some(id) = f.subject() else { continue };
        let grounds: Vec<_> = [K::ReceiptId, K::RecordId]
            .into_iter()
            .flat_map(|kind| f.ids(R::Evidence, kind).map(move |value| (kind, value)))
            .chain([(K::CorrelationId, id)])
            .collect();
        let used = |f: Facts<'_>| grounds.iter().any(|(kind, value)| cites(f, *kind, value));
        let led = frames.of(RecordType::StateTransition).any(|(_, f)| used(f));
        let kept = grounds
            .iter()
            .any(|(kind, value)| is_kept(frames, *kind, value));
        if !led && !kept {
            let action = f.id(R::Names, K::ActionId).unwrap_or("an action");
            let text =
                format!("{id} joined an answer to {action}, and no change of state rests on it");
            out.push(Finding::new(C::CorrelationWithoutTransition, text, [seq]));
        }
    }
}

fn states(
    frames: Frames<'_>,
    workflow: &str,
    changes: &[(Seq, Facts<'_>)],
    out: &mut Vec<Finding>,
) {
    let mut before: Option<(Seq, &str)> = None;
    for (seq, f) in changes {
        let Some(to) = f.text("to") else { continue };
        let person = f.flag("decided_by_person") == Some(true);
        if let Some((at, state)) = before {
            if f.text("from").is_some_and(|from| from != state) || f.text("from").is_none() {
                let from = f.text("from").unwrap_or("nothing");
                let text = format!("{workflow} goes from {from} to {to}, but was {state} before");
                out.push(Finding::new(C::StatesDisagree, text, [at, *seq]));
            }
            if is_terminal(state) && to != state && !person {
                let text = format!(
                    "{workflow} was {state} and was changed to {to} without a person's decision"
                );
                out.push(Finding::new(C::TerminalOverwritten, text, [at, *seq]));
            }
        }
        if f.flag("conflict") == Some(true) && !is_settled(frames, *f) {
            let text = format!("{workflow} became {to} although evidence contradicts it");
            out.push(Finding::new(C::TransitionAgainstEvidence, text, [*seq]));
        }
        if matches!(to, "confirmed" | "failed") && !person && !is_grounded(frames, *f) {
            let text = format!(
                "{workflow} became {to} without a verified delivery or an authenticated look-up"
            );
            out.push(Finding::new(C::TransitionWithoutEvidence, text, [*seq]));
        }
        before = Some((*seq, to));
    }
    if let Some((seq, state)) = before
        && !is_terminal(state)
    {
        let text = format!("{workflow} is {state}: nothing has confirmed or failed it");
        out.push(Finding::new(C::OutcomeOpen, text, [seq]));
    }
}

/// Whether the exception that a change names was resolved.
fn is_settled(frames: Frames<'_>, f: Facts<'_>) -> bool {
    f.ids(R::Names, K::ExceptionId).any(|id| {
        frames
            .of(RecordType::Exception)
            .any(|(_, e)| e.subject() == Some(id) && e.text("status") == Some("resolved"))
    })
}

/// Whether what a change cites, directly or through a correlation, was verified.
fn is_grounded(frames: Frames<'_>, f: Facts<'_>) -> bool {
    let answered = |id: &str| {
        frames.record(id).is_some_and(|frame| {
            let f = Facts(&frame.envelope);
            match frame.envelope.record_type {
                RecordType::StatusLookup => f.flag("authenticated") == Some(true),
                RecordType::Verification => f.text("decision") == Some("accepted"),
                RecordType::Correlation => is_grounded_directly(frames, f),
                _ => false,
            }
        })
    };
    let through = |id: &str| {
        let mut joins = frames
            .of(RecordType::Correlation)
            .filter(|(_, c)| c.subject() == Some(id));
        joins.any(|(_, c)| is_grounded_directly(frames, c))
    };
    is_grounded_directly(frames, f)
        || f.ids(R::Evidence, K::RecordId).any(answered)
        || f.ids(R::Evidence, K::CorrelationId).any(through)
}

fn is_grounded_directly(frames: Frames<'_>, f: Facts<'_>) -> bool {
    let looked_up = |id: &str| {
        frames.record(id).is_some_and(|frame| {
            frame.envelope.record_type == RecordType::StatusLookup
                && Facts(&frame.envelope).flag("authenticated") == Some(true)
        })
    };
    // An event id is evidence through the verification of the delivery that brought it.
    let event = |id: &str| {
        let mut verified = frames.of(RecordType::Verification);
        verified.any(|(_, v)| {
            v.id(R::Names, K::ProviderEventId) == Some(id) && v.text("decision") == Some("accepted")
        })
    };
    f.ids(R::Evidence, K::ReceiptId)
        .any(|id| frames.is_accepted(id))
        || f.ids(R::Evidence, K::RecordId).any(looked_up)
        || f.ids(R::Evidence, K::ProviderEventId).any(event)
}

/// What a provider's word for an outcome means; none where it may mean anything.
fn meaning(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "succeeded" | "success" | "successful" | "ok" | "completed" | "complete" | "done"
        | "finished" | "passed" | "paid" | "confirmed" => Some(true),
        "failed" | "failure" | "fail" | "error" | "errored" | "cancelled" | "canceled"
        | "rejected" | "declined" | "aborted" | "expired" => Some(false),
        _ => None,
    }
}

/// Evidence behind a final state that says the opposite, and that no exception keeps.
fn late(frames: Frames<'_>, workflow: &str, changes: &[(Seq, Facts<'_>)], out: &mut Vec<Finding>) {
    let Some((since, f)) = changes.last() else {
        return;
    };
    let Some(state) = f.text("to").filter(|state| is_terminal(state)) else {
        return;
    };
    let (done, since) = (state == "confirmed", *since);
    let actions = actions(frames, workflow, changes);
    let ours = provider_ids(frames, &actions);
    for (seq, f) in frames
        .of(RecordType::Receipt)
        .filter(|(seq, _)| *seq > since)
    {
        let Some(receipt) = f.subject() else { continue };
        let claimed = f.part(R::Claims).any(|id| ours.contains(id));
        let opposite = f
            .texts("claimed_results")
            .iter()
            .find(|word| meaning(word) == Some(!done));
        if let Some(word) = opposite
            && claimed
            && frames.is_accepted(receipt)
            && !is_kept(frames, K::ReceiptId, receipt)
        {
            let text = format!(
                "{receipt} says {word} after {workflow} was {state}, and no exception keeps it"
            );
            out.push(Finding::new(C::LateContradiction, text, [since, seq]));
        }
    }
    for (seq, f) in frames
        .of(RecordType::StatusLookup)
        .filter(|(seq, _)| *seq > since)
    {
        let about = f
            .id(R::PartOf, K::ActionId)
            .is_some_and(|id| actions.contains(id));
        let result = f.text("result").unwrap_or_default();
        let opposite = meaning(result) == Some(!done) || (done && result == "not_found");
        let kept = frames.0.iter().find(|frame| frame.seq == seq);
        let kept =
            kept.is_some_and(|frame| is_kept(frames, K::RecordId, &frame.envelope.record_id));
        if about && opposite && f.flag("authenticated") == Some(true) && !kept {
            let text = format!(
                "a look-up says {result} after {workflow} was {state}, and no exception keeps it"
            );
            out.push(Finding::new(C::LateContradiction, text, [since, seq]));
        }
    }
}

/// The actions whose state a workflow is.
fn actions<'a>(
    frames: Frames<'a>,
    workflow: &str,
    changes: &[(Seq, Facts<'a>)],
) -> BTreeSet<&'a str> {
    let named = changes
        .iter()
        .filter_map(|(_, f)| f.id(R::PartOf, K::ActionId));
    let theirs = frames
        .of(RecordType::Action)
        .filter(|(_, f)| f.id(R::PartOf, K::WorkflowId) == Some(workflow));
    named
        .chain(theirs.filter_map(|(_, f)| f.subject()))
        .collect()
}

/// What the provider calls those actions, as we observed it.
fn provider_ids<'a>(frames: Frames<'a>, actions: &BTreeSet<&str>) -> BTreeSet<&'a Identifier> {
    let mut found = BTreeSet::new();
    for record_type in [RecordType::RemoteRef, RecordType::StatusLookup] {
        for (_, f) in frames.of(record_type) {
            if f.id(R::PartOf, K::ActionId)
                .is_some_and(|id| actions.contains(id))
            {
                let kinds =
                    |id: &&Identifier| matches!(id.kind, K::RemoteOperationId | K::RemoteObjectId);
                found.extend(f.part(R::Names).filter(kinds));
            }
        }
    }
    for (_, f) in frames.of(RecordType::Action) {
        if f.subject().is_some_and(|id| actions.contains(id)) {
            found.extend(
                f.part(R::Expects)
                    .filter(|id| id.kind == K::ClientReference),
            );
        }
    }
    found
}

/// Actions that were sent, and of whose work no state was recorded.
fn without_state(
    frames: Frames<'_>,
    workflows: &BTreeMap<&str, Vec<(Seq, Facts<'_>)>>,
    out: &mut Vec<Finding>,
) {
    let sent: BTreeSet<_> = frames
        .of(RecordType::Attempt)
        .filter_map(|(_, f)| f.id(R::PartOf, K::ActionId))
        .collect();
    for action in sent {
        let of = frames
            .of(RecordType::Action)
            .filter(|(_, f)| f.subject() == Some(action));
        let workflow = of
            .filter_map(|(_, f)| f.id(R::PartOf, K::WorkflowId))
            .last();
        let direct = frames
            .of(RecordType::StateTransition)
            .any(|(_, f)| f.id(R::PartOf, K::ActionId) == Some(action));
        if !direct && workflow.is_none_or(|id| !workflows.contains_key(id)) {
            let shown = frames
                .of(RecordType::Attempt)
                .filter(|(_, f)| f.id(R::PartOf, K::ActionId) == Some(action))
                .map(|(seq, _)| seq);
            let text = format!("{action} was sent, and no record says what state it is in");
            out.push(Finding::new(C::NoStateRecorded, text, shown));
        }
    }
}

fn exceptions(frames: Frames<'_>, out: &mut Vec<Finding>) {
    let mut last: BTreeMap<&str, (Seq, Facts<'_>)> = BTreeMap::new();
    let mut all: BTreeMap<&str, Vec<Seq>> = BTreeMap::new();
    for (seq, f) in frames.of(RecordType::Exception) {
        if let Some(id) = f.subject() {
            last.insert(id, (seq, f));
            all.entry(id).or_default().push(seq);
        }
    }
    for (id, (_, f)) in last {
        let kind = f.text("kind").unwrap_or("exception").replace('_', " ");
        let shown = all.remove(id).unwrap_or_default();
        let (code, text) = if f.text("status") == Some("resolved") {
            let by = f.id(R::By, K::Actor).unwrap_or("somebody");
            (
                C::ExceptionResolved,
                format!("{id} ({kind}) was decided by {by}"),
            )
        } else if f.text("kind") == Some("contradiction") {
            (
                C::ContradictionOpen,
                format!("{id} ({kind}): nobody has decided"),
            )
        } else {
            (
                C::ExceptionOpen,
                format!("{id} ({kind}): nobody has decided"),
            )
        };
        out.push(Finding::new(code, text, shown));
    }
}
