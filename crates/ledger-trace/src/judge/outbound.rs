//! What was asked and sent: permission, outcomes, idempotency, the ids that came back.

use std::collections::{BTreeMap, BTreeSet};

use ledger_format::Seq;
use ledger_records::{IdKind as K, RecordType, Relation as R};

use super::millis;
use crate::facts::{Facts, Frames};
use crate::finding::{Finding, FindingCode as C};

/// All records of one transmission.
struct Attempt<'a> {
    id: &'a str,
    action: Option<&'a str>,
    reference: Option<&'a str>,
    records: Vec<(Seq, Facts<'a>)>,
}

impl<'a> Attempt<'a> {
    fn first(&self) -> (Seq, Facts<'a>) {
        self.records[0]
    }

    /// Its last record that is more than "pending".
    fn outcome(&self) -> Option<(Seq, Facts<'a>)> {
        let mut known = self.records.iter().rev();
        known
            .find(|(_, f)| f.text("outcome") != Some("pending"))
            .copied()
    }
}

fn attempts(frames: Frames<'_>) -> Vec<Attempt<'_>> {
    let mut found: Vec<Attempt<'_>> = Vec::new();
    for (seq, f) in frames.of(RecordType::Attempt) {
        let Some(id) = f.subject() else { continue };
        let reference = f.id(R::Names, K::IdempotencyRef);
        if let Some(known) = found.iter_mut().find(|a| a.id == id) {
            known.reference = known.reference.or(reference);
            known.records.push((seq, f));
        } else {
            found.push(Attempt {
                id,
                action: f.id(R::PartOf, K::ActionId),
                reference,
                records: vec![(seq, f)],
            });
        }
    }
    found
}

pub(super) fn judge(frames: Frames<'_>, out: &mut Vec<Finding>) {
    let attempts = attempts(frames);
    for attempt in &attempts {
        permission(frames, attempt, out);
        outcome(frames, attempt, out);
    }
    references(&attempts, out);
    remote_objects(frames, out);
    unknown_actions(frames, out);
}

fn permission(frames: Frames<'_>, attempt: &Attempt<'_>, out: &mut Vec<Finding>) {
    let (sent, f) = attempt.first();
    let Some(action) = attempt.action else { return };
    // A permission may be recorded after the action, in a second record of it: the last word before the bytes left.
    let decided = frames
        .of(RecordType::Action)
        .filter(|(seq, a)| a.subject() == Some(action) && *seq < sent)
        .last();
    let Some((decided_at, a)) = decided else {
        return;
    };
    if let Some(decision @ ("denied" | "pending")) = a.text("decision") {
        let text = format!(
            "{} was sent while the permission for {action} was {decision}",
            attempt.id
        );
        out.push(Finding::new(C::AttemptNotAllowed, text, [decided_at, sent]));
    }
    let ends = a.text("grant_expires_at");
    if let (Some(ends), Some(at)) = (ends, f.text("sent_at"))
        && let (Some(ends_at), Some(sent_at)) = (millis(ends), millis(at))
        && sent_at > ends_at
    {
        let text = format!(
            "{} was sent at {at}; the permission for {action} ended at {ends}",
            attempt.id
        );
        out.push(Finding::new(
            C::AttemptAfterExpiry,
            text,
            [decided_at, sent],
        ));
    }
}

fn outcome(frames: Frames<'_>, attempt: &Attempt<'_>, out: &mut Vec<Finding>) {
    let id = attempt.id;
    let Some((seq, f)) = attempt.outcome() else {
        let text = format!("{id} was begun, and nothing says what became of it");
        out.push(Finding::new(
            C::AttemptWithoutOutcome,
            text,
            [attempt.first().0],
        ));
        return;
    };
    match f.text("outcome") {
        Some("response") => acceptance(frames, attempt, seq, f, out),
        Some("transport_error") if f.flag("before_send") == Some(true) => {}
        _ => unresolved(frames, attempt, seq, out),
    }
}

/// A transmission of unknown outcome: only the provider knows.
fn unresolved(frames: Frames<'_>, attempt: &Attempt<'_>, seq: Seq, out: &mut Vec<Finding>) {
    let id = attempt.id;
    let about = |f: Facts<'_>| match f.id(R::PartOf, K::AttemptId) {
        Some(asked) => asked == id,
        None => f.id(R::PartOf, K::ActionId) == attempt.action,
    } || (attempt.reference.is_some() && f.id(R::Names, K::IdempotencyRef) == attempt.reference);
    let asked: Vec<_> = frames
        .of(RecordType::StatusLookup)
        .filter(|(at, f)| *at > seq && about(*f))
        .collect();
    let usable = |f: &Facts<'_>| {
        f.flag("authenticated") == Some(true)
            && !matches!(
                f.text("result"),
                None | Some("unavailable" | "forbidden" | "unknown")
            )
    };
    if asked.iter().any(|(_, f)| usable(f)) {
        return;
    }
    let text = if asked.is_empty() {
        format!("{id} never looked up at the provider")
    } else {
        format!("{id} was looked up at the provider, without a usable answer")
    };
    let shown = asked.iter().map(|(at, _)| *at).chain([seq]);
    out.push(Finding::new(C::AttemptTimeoutUnresolved, text, shown));
}

fn acceptance(
    frames: Frames<'_>,
    attempt: &Attempt<'_>,
    seq: Seq,
    f: Facts<'_>,
    out: &mut Vec<Finding>,
) {
    let Some(status) = f.uint("status") else {
        return;
    };
    let expects = frames.of(RecordType::Action).any(|(_, a)| {
        a.subject().is_some()
            && a.subject() == attempt.action
            && a.uint("expected_remote_objects").is_some_and(|n| n > 0)
    });
    let taken = status == 202 || ((200..300).contains(&status) && expects);
    let named =
        frames
            .of(RecordType::RemoteRef)
            .any(|(_, r)| match r.id(R::Evidence, K::AttemptId) {
                Some(of) => of == attempt.id,
                None => r.id(R::PartOf, K::ActionId) == attempt.action,
            });
    if taken && !named {
        let text = format!(
            "{} was answered {status}, and no id of the provider's work was recorded",
            attempt.id
        );
        out.push(Finding::new(C::AcceptanceWithoutRemoteRef, text, [seq]));
    }
}

fn references(attempts: &[Attempt<'_>], out: &mut Vec<Finding>) {
    let mut by_reference: BTreeMap<&str, Vec<&Attempt<'_>>> = BTreeMap::new();
    let mut by_action: BTreeMap<&str, Vec<&Attempt<'_>>> = BTreeMap::new();
    for attempt in attempts {
        if let Some(reference) = attempt.reference {
            by_reference.entry(reference).or_default().push(attempt);
        }
        if let Some(action) = attempt.action {
            by_action.entry(action).or_default().push(attempt);
        }
    }
    let firsts = |of: &[&Attempt<'_>]| of.iter().map(|a| a.first().0).collect::<Vec<_>>();
    for (reference, of) in &by_reference {
        let actions: BTreeSet<_> = of.iter().filter_map(|a| a.action).collect();
        if actions.len() > 1 {
            let text = format!("{reference} was sent for {}", and(&actions));
            out.push(Finding::new(C::IdempotencyRefShared, text, firsts(of)));
        }
    }
    for (action, of) in &by_action {
        let used: BTreeSet<_> = of.iter().filter_map(|a| a.reference).collect();
        if used.len() > 1 {
            let text = format!("{action} was sent with {}", and(&used));
            out.push(Finding::new(C::IdempotencyRefsDiffer, text, firsts(of)));
        }
        let bare: Vec<_> = of
            .iter()
            .copied()
            .filter(|a| a.reference.is_none())
            .collect();
        if of.len() > 1 && !bare.is_empty() {
            let ids: BTreeSet<_> = bare.iter().map(|a| a.id).collect();
            let text = format!(
                "{action} was sent {} times, {} without an idempotency ref",
                of.len(),
                and(&ids)
            );
            out.push(Finding::new(C::IdempotencyRefMissing, text, firsts(&bare)));
        }
    }
}

fn and(names: &BTreeSet<&str>) -> String {
    let names: Vec<_> = names.iter().copied().collect();
    names.join(" and ")
}

/// More operations than the action expects: it was probably done twice.
fn remote_objects(frames: Frames<'_>, out: &mut Vec<Finding>) {
    let actions: BTreeMap<&str, u64> = frames
        .of(RecordType::Action)
        .filter_map(|(_, f)| f.subject().zip(f.uint("expected_remote_objects")))
        .collect();
    for (action, expected) in actions {
        let mut operations = BTreeSet::new();
        let mut shown = Vec::new();
        for (seq, f) in frames.of(RecordType::RemoteRef) {
            if f.id(R::PartOf, K::ActionId) == Some(action)
                && let Some(id) = f.id(R::Names, K::RemoteOperationId)
                && operations.insert(id)
            {
                shown.push(seq);
            }
        }
        if operations.len() as u64 > expected.max(1) {
            let text = format!(
                "{action} expects {expected}, the provider named {}",
                and(&operations)
            );
            out.push(Finding::new(C::RemoteObjectsExceeded, text, shown));
        }
    }
}

fn unknown_actions(frames: Frames<'_>, out: &mut Vec<Finding>) {
    let known: BTreeSet<_> = frames
        .of(RecordType::Action)
        .filter_map(|(_, f)| f.subject())
        .collect();
    let mut named: BTreeMap<&str, Vec<Seq>> = BTreeMap::new();
    let parts = [
        (RecordType::Attempt, R::PartOf),
        (RecordType::RemoteRef, R::PartOf),
        (RecordType::StatusLookup, R::PartOf),
        (RecordType::Correlation, R::Names),
        (RecordType::StateTransition, R::PartOf),
    ];
    for (record_type, relation) in parts {
        for (seq, f) in frames.of(record_type) {
            if let Some(action) = f.id(relation, K::ActionId).filter(|id| !known.contains(id)) {
                named.entry(action).or_default().push(seq);
            }
        }
    }
    for (action, shown) in named {
        let text = format!("{action} is named, and no record says what it is or who allowed it");
        out.push(Finding::new(C::ActionNotRecorded, text, shown));
    }
}
