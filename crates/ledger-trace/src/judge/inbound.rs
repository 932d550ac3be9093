//! What came in and what was done with it: verification, joins, work, each only once.

use std::collections::{BTreeMap, BTreeSet};

use ledger_format::Seq;
use ledger_records::{IdKind as K, RecordType, Relation as R};

use super::{cites, is_kept};
use crate::facts::{Facts, Frames};
use crate::finding::{Finding, FindingCode as C};

pub(super) fn judge(frames: Frames<'_>, out: &mut Vec<Finding>) {
    for (seq, f) in frames.of(RecordType::Receipt) {
        if let Some(receipt) = f.subject() {
            delivery(frames, receipt, seq, out);
        }
    }
    unknown_receipts(frames, out);
    differing(frames, out);
    for (seq, f) in frames.of(RecordType::Verification) {
        if f.text("deduplication") == Some("conflict") {
            let event = f.id(R::Names, K::ProviderEventId).unwrap_or("an event");
            let text = format!(
                "{event} came again in {} with other content",
                f.subject().unwrap_or("a delivery")
            );
            out.push(Finding::new(C::EventConflict, text, [seq]));
        }
    }
    early(frames, out);
    work(frames, out);
}

fn delivery(frames: Frames<'_>, receipt: &str, seq: Seq, out: &mut Vec<Finding>) {
    let verified: Vec<_> = frames.verifications(receipt).collect();
    if verified.is_empty() {
        let text = format!("{receipt} was received, and nothing says whether it was believed");
        out.push(Finding::new(C::ReceiptUnverified, text, [seq]));
        return;
    }
    let decided = |want: &str| {
        verified
            .iter()
            .any(|(_, f)| f.text("decision") == Some(want))
    };
    let uses: Vec<(Seq, RecordType)> = uses(frames, receipt);
    if decided("accepted") {
        if uses.is_empty() && !is_kept(frames, K::ReceiptId, receipt) {
            let text =
                format!("{receipt} was accepted, and nothing was joined to it or started by it");
            out.push(Finding::new(
                C::AcceptedUncorrelated,
                text,
                verified.iter().map(|(s, _)| *s),
            ));
        }
        return;
    }
    let (code, what) = if decided("duplicate") {
        (C::DuplicateProcessed, "is a duplicate")
    } else {
        (C::RefusedDeliveryUsed, "was not accepted")
    };
    // Work that says that it stopped at the duplicate had no effect.
    let used: Vec<_> = uses
        .iter()
        .filter(|(at, kind)| {
            code != C::DuplicateProcessed
                || *kind != RecordType::Processing
                || had_effect(frames, *at)
        })
        .map(|(at, _)| *at)
        .collect();
    if let Some(first) = used.first() {
        let text = format!("{receipt} {what}, and frame {first} rests on it");
        out.push(Finding::new(
            code,
            text,
            used.into_iter().chain(verified.iter().map(|(s, _)| *s)),
        ));
    }
}

fn had_effect(frames: Frames<'_>, at: Seq) -> bool {
    frames
        .of(RecordType::Processing)
        .any(|(seq, f)| seq == at && f.text("outcome") == Some("completed"))
}

/// The records that rest on a delivery.
fn uses(frames: Frames<'_>, receipt: &str) -> Vec<(Seq, RecordType)> {
    let mut found = Vec::new();
    for record_type in [RecordType::Correlation, RecordType::StateTransition] {
        let rests = frames
            .of(record_type)
            .filter(|(_, f)| cites(*f, K::ReceiptId, receipt));
        found.extend(rests.map(|(seq, _)| (seq, record_type)));
    }
    for record_type in [RecordType::Run, RecordType::Action, RecordType::Processing] {
        let caused = |f: &Facts<'_>| f.ids(R::CausedBy, K::ReceiptId).any(|id| id == receipt);
        let started = frames.of(record_type).filter(|(_, f)| caused(f));
        found.extend(started.map(|(seq, _)| (seq, record_type)));
    }
    found.sort_unstable_by_key(|(seq, _)| *seq);
    found
}

fn unknown_receipts(frames: Frames<'_>, out: &mut Vec<Finding>) {
    let known: BTreeSet<_> = frames
        .of(RecordType::Receipt)
        .filter_map(|(_, f)| f.subject())
        .collect();
    let mut named: BTreeMap<&str, Vec<Seq>> = BTreeMap::new();
    for frame in frames.0 {
        let f = Facts(&frame.envelope);
        for relation in [R::Subject, R::Evidence, R::CausedBy, R::DuplicateOf] {
            for receipt in f
                .ids(relation, K::ReceiptId)
                .filter(|id| !known.contains(id))
            {
                named.entry(receipt).or_default().push(frame.seq);
            }
        }
    }
    for (receipt, shown) in named {
        let text = format!("{receipt} is cited, and no record tells of that delivery");
        out.push(Finding::new(C::ReceiptNotRecorded, text, shown));
    }
}

/// Verifications that say both yes and no about one event.
fn differing(frames: Frames<'_>, out: &mut Vec<Finding>) {
    /// A delivery, and one event of it.
    type Event<'a> = (&'a str, Option<&'a str>);
    let mut said: BTreeMap<Event<'_>, Vec<(Seq, &str)>> = BTreeMap::new();
    for (seq, f) in frames.of(RecordType::Verification) {
        if let (Some(receipt), Some(decision)) = (f.subject(), f.text("decision")) {
            let event = f.id(R::Names, K::ProviderEventId);
            said.entry((receipt, event))
                .or_default()
                .push((seq, decision));
        }
    }
    for ((receipt, _), said) in said {
        let has = |want| said.iter().any(|(_, decision)| *decision == want);
        if has("accepted") && has("rejected") {
            let text = format!("{receipt} was both accepted and rejected");
            out.push(Finding::new(
                C::VerificationsDiffer,
                text,
                said.iter().map(|(seq, _)| *seq),
            ));
        }
    }
}

/// Callbacks that were faster than the record of the answer.
fn early(frames: Frames<'_>, out: &mut Vec<Finding>) {
    for (_, f) in frames.of(RecordType::Correlation) {
        let (Some(action), Some(receipt)) =
            (f.id(R::Names, K::ActionId), f.id(R::Evidence, K::ReceiptId))
        else {
            continue;
        };
        let received = frames
            .of(RecordType::Receipt)
            .find(|(_, r)| r.subject() == Some(receipt));
        let Some((received, _)) = received else {
            continue;
        };
        let of_action = |f: &Facts<'_>| f.id(R::PartOf, K::ActionId) == Some(action);
        let attempts: Vec<_> = frames
            .of(RecordType::Attempt)
            .filter(|(_, f)| of_action(f))
            .collect();
        let sent = attempts
            .iter()
            .map(|(seq, _)| *seq)
            .rfind(|seq| *seq < received);
        let answers = attempts
            .iter()
            .filter(|(_, f)| f.text("outcome") == Some("response"));
        let named = frames
            .of(RecordType::RemoteRef)
            .filter(|(_, f)| of_action(f));
        let heard = answers
            .map(|(seq, _)| *seq)
            .chain(named.map(|(seq, _)| seq))
            .min();
        if let Some(sent) = sent
            && heard.is_none_or(|heard| heard > received)
        {
            let text = format!("{receipt} was received before an answer for {action} was recorded");
            out.push(Finding::new(
                C::CallbackBeforeResponse,
                text,
                [sent, received].into_iter().chain(heard),
            ));
        }
    }
}

fn work(frames: Frames<'_>, out: &mut Vec<Finding>) {
    let mut tries: BTreeMap<(&str, u64), Vec<(Seq, Facts<'_>)>> = BTreeMap::new();
    let mut effects: BTreeMap<(&str, &str), Vec<(Seq, &str)>> = BTreeMap::new();
    for (seq, f) in frames.of(RecordType::Processing) {
        let Some(job) = f.subject() else { continue };
        tries
            .entry((job, f.uint("try_no").unwrap_or_default()))
            .or_default()
            .push((seq, f));
        let key = f.part(R::Names).find(|id| id.kind == K::BusinessKey);
        if let (Some(key), Some("completed")) = (key, f.text("outcome")) {
            effects
                .entry((&key.scope, &key.value))
                .or_default()
                .push((seq, job));
        }
        if let Some(receipt) = f.id(R::CausedBy, K::ReceiptId) {
            let verified = frames.verifications(receipt).map(|(at, _)| at).min();
            if let Some(verified) = verified.filter(|at| *at > seq) {
                let text = format!("{job} worked on {receipt} before it was verified");
                out.push(Finding::new(
                    C::ProcessedBeforeVerification,
                    text,
                    [seq, verified],
                ));
            }
        }
    }
    for ((operation, object), done) in effects {
        let jobs: BTreeSet<_> = done.iter().map(|(_, job)| *job).collect();
        if jobs.len() > 1 {
            let jobs: Vec<_> = jobs.into_iter().collect();
            let text = format!(
                "{operation} of {object} was completed by {}",
                jobs.join(" and ")
            );
            out.push(Finding::new(
                C::EffectTwice,
                text,
                done.iter().map(|(seq, _)| *seq),
            ));
        }
    }
    let last_try = |job: &str| {
        tries
            .keys()
            .filter(|(of, _)| *of == job)
            .map(|(_, n)| *n)
            .max()
    };
    for ((job, number), records) in &tries {
        let Some((seq, f)) = records.last() else {
            continue;
        };
        // An earlier try that a later one followed has run out: its lease ended.
        let open = matches!(f.text("outcome"), Some("scheduled" | "leased" | "unknown"));
        if open && last_try(job) == Some(*number) {
            let text = format!(
                "{job} try {number} is {}, and nothing says what became of it",
                f.text("outcome").unwrap_or("open")
            );
            out.push(Finding::new(C::ProcessingWithoutOutcome, text, [*seq]));
        }
    }
}
