//! One record, one sentence. Told from the envelope's facts alone; the record adds what only the evidence holds.
//! The words never claim more than the record: a timeout is not a failure, an answer of 202 is not a success.

use ledger_records::types::{AttemptOutcome, ExceptionStatus};
use ledger_records::{IdKind as K, Identifier, Record, RecordType, Relation as R};

use crate::facts::{Facts, Frames};
use crate::model::Role;
use crate::source::FrameView;

/// The sentence of a frame; `before` are the frames of the story that precede it.
pub(crate) fn sentence(frame: &FrameView, before: Frames<'_>) -> String {
    let (f, record) = (Facts(&frame.envelope), frame.record());
    match frame.envelope.record_type {
        RecordType::Run => run(f),
        RecordType::Action => action(f),
        RecordType::Attempt => attempt(f, record, before),
        RecordType::RemoteRef => remote_ref(f),
        RecordType::Receipt => receipt(f),
        RecordType::Verification => verification(f),
        RecordType::Correlation => correlation(f),
        RecordType::StateTransition => state_transition(f),
        RecordType::StatusLookup => status_lookup(f),
        RecordType::Processing => processing(f),
        RecordType::Memory => memory(f),
        RecordType::Rules => rules(f),
        RecordType::Exception => exception(f, record),
    }
}

/// Whose doing a frame tells.
pub(crate) fn role(frame: &FrameView) -> Role {
    let f = Facts(&frame.envelope);
    let by_person = f.flag("decided_by_person") == Some(true);
    match frame.envelope.record_type {
        RecordType::Run | RecordType::Action | RecordType::Memory => Role::Agent,
        RecordType::Attempt if f.text("outcome") == Some("response") => Role::Provider,
        RecordType::Attempt | RecordType::StatusLookup => Role::Service,
        RecordType::RemoteRef => Role::Provider,
        RecordType::Receipt | RecordType::Verification => Role::Receiver,
        RecordType::Correlation | RecordType::StateTransition | RecordType::Exception => {
            if by_person {
                Role::Person
            } else {
                Role::Workflow
            }
        }
        RecordType::Processing => Role::Worker,
        RecordType::Rules => Role::Operator,
    }
}

/// ` word value` where there is a value.
fn with(word: &str, value: Option<&str>) -> String {
    value.map_or_else(String::new, |value| format!(" {word} {value}"))
}

/// Where the type requires a subject, and a hostile envelope may lack it.
fn subject<'a>(f: Facts<'a>) -> &'a str {
    f.subject().unwrap_or("something unnamed")
}

fn run(f: Facts<'_>) -> String {
    let status = f.text("status").unwrap_or("recorded");
    let mut out = format!("{} {status}", subject(f));
    if status == "started" {
        out += &with("in session", f.id(R::PartOf, K::SessionId));
        out += &with("by", f.id(R::By, K::Actor));
        out += &with("under grant", f.id(R::Under, K::Grant));
        out += &with("triggered by delivery", f.id(R::CausedBy, K::ReceiptId));
        out += &with("started by", f.id(R::CausedBy, K::RunId));
    }
    out
}

/// What is asked and of whom, as far as it is said.
pub(crate) fn target(f: Facts<'_>) -> Option<String> {
    match f.text("target_kind")? {
        "command" => f.text("target_command").map(str::to_owned),
        _ => Some(format!(
            "{} {}",
            f.text("target_method")?,
            f.text("target_route")?
        )),
    }
}

fn action(f: Facts<'_>) -> String {
    let mut out = format!("{} requested", subject(f));
    out += &with("in session", f.id(R::PartOf, K::SessionId));
    if let Some(operation) = f.text("operation") {
        out += &format!(": {operation}");
        out += &f
            .text("target_id")
            .map_or_else(String::new, |id| format!(" {id}"));
    }
    out += &with("at", f.text("target_host"));
    let approver = f.id(R::ApprovedBy, K::Actor);
    out += &match f.text("decision") {
        Some("approved") => format!(", allowed{}", with("by", approver)),
        Some("denied") => format!(", REFUSED{}", with("by", approver)),
        Some("pending") => ", not decided yet".to_owned(),
        Some("exempt") => ", needs no permission of its own".to_owned(),
        _ => String::new(),
    };
    if let Some(receipt) = f.id(R::CausedBy, K::ReceiptId) {
        out += &format!(", set off by delivery {receipt}");
    }
    out
}

fn attempt(f: Facts<'_>, record: Option<&Record>, before: Frames<'_>) -> String {
    let id = subject(f);
    let action = f.id(R::PartOf, K::ActionId).unwrap_or("an unnamed action");
    let known = before
        .of(RecordType::Attempt)
        .any(|(_, b)| b.subject() == Some(id));
    let born = || creation(f, id, action, before);
    let head = if known {
        id.to_owned()
    } else {
        born() + ", which"
    };
    match f.text("outcome") {
        Some("pending") if !known => born(),
        Some("pending") => format!("{id} still waits for its outcome"),
        Some("response") => {
            let status = f.uint("status").map_or("?".to_owned(), |s| s.to_string());
            let meaning = if status == "202" {
                ": taken, not done"
            } else {
                ""
            };
            format!("{head} was answered {status}{meaning}")
        }
        Some("timeout") => {
            let waited = record
                .and_then(waited)
                .map_or_else(String::new, |s| format!(" after {s}"));
            format!("{head} timed out{waited}, outcome unknown")
        }
        Some("transport_error") => {
            let error = f.text("error").unwrap_or("an error");
            let unknown = match f.flag("before_send") {
                Some(true) => "no byte had left",
                _ => "outcome unknown",
            };
            format!("{head} met {error}, {unknown}")
        }
        _ => format!("{head} has an outcome that this program does not know"),
    }
}

fn creation(f: Facts<'_>, id: &str, action: &str, before: Frames<'_>) -> String {
    let reference = f.id(R::Names, K::IdempotencyRef);
    let first = f.id(R::RetryOf, K::AttemptId);
    let first_ref = first.and_then(|first| {
        let mut attempts = before.of(RecordType::Attempt);
        attempts
            .find(|(_, b)| b.subject() == Some(first))
            .map(|(_, b)| b.id(R::Names, K::IdempotencyRef))
    });
    let key = match (reference, first_ref) {
        (Some(key), Some(Some(old))) if key == old => format!(" with the same {key}"),
        (Some(key), Some(_)) => format!(" with ANOTHER idempotency ref {key}"),
        (Some(key), None) => format!(" with idempotency ref {key}"),
        (None, _) => " without an idempotency ref".to_owned(),
    };
    let who = match f.text("cause") {
        Some("agent_retry") => "the agent asked again:",
        Some("client_retry") => "the client sent again:",
        Some("queue_redelivery") => "a queue handed it out again:",
        Some("operator") => "an operator sent again:",
        _ => return format!("{action} created outbound attempt {id}{key}"),
    };
    let after = first.map_or_else(String::new, |first| format!(" after {first}"));
    format!("{who} {id} for {action}{after}{key}")
}

fn waited(record: &Record) -> Option<String> {
    let Record::Attempt(attempt) = record else {
        return None;
    };
    let AttemptOutcome::Timeout(timeout) = &attempt.outcome else {
        return None;
    };
    timeout.waited_ms.map(|ms| {
        if ms % 1000 == 0 {
            format!("{} s", ms / 1000)
        } else {
            format!("{}.{:03} s", ms / 1000, ms % 1000)
        }
    })
}

fn remote_ref(f: Facts<'_>) -> String {
    let provider = f.text("provider").unwrap_or("the provider");
    let mut named = Vec::new();
    if let Some(id) = f.id(R::Names, K::RemoteOperationId) {
        named.push(format!("the operation {id}"));
    }
    if let Some(id) = f.id(R::Names, K::RemoteObjectId) {
        named.push(format!(
            "{} {id}",
            f.text("object_type").unwrap_or("the object")
        ));
    }
    let mut out = format!("{provider} named {}", named.join(" and "));
    out += &with("for", f.id(R::PartOf, K::ActionId));
    out += &with("in its answer to", f.id(R::Evidence, K::AttemptId));
    out += &with("in its answer to look-up", f.id(R::Evidence, K::RecordId));
    out
}

/// Not more of a delivery's events than a line can hold.
const EVENTS_SHOWN: usize = 3;

fn receipt(f: Facts<'_>) -> String {
    let provider = f.text("provider").unwrap_or("an unnamed provider");
    let mut out = format!("{} received for {provider}", subject(f));
    let of = |name: &str, i: usize| {
        f.texts(name)
            .get(i)
            .map(String::as_str)
            .filter(|t| !t.is_empty())
    };
    let count = f.texts("claimed_covered").len();
    for i in 0..count.min(EVENTS_SHOWN) {
        out += if i == 0 { ", claims" } else { ";" };
        out += &with("event", of("claimed_event_ids", i));
        out += &of("claimed_event_types", i).map_or_else(String::new, |t| format!(" {t}"));
        out += &with("result", of("claimed_results", i));
        out += &of("claimed_sender_times", i)
            .map_or_else(String::new, |t| format!(" (sender says {t})"));
    }
    if count > EVENTS_SHOWN {
        out += &format!("; {} events more", count - EVENTS_SHOWN);
    }
    if count == 0 {
        out += ", claims nothing that was read";
    }
    out
}

/// Signature, freshness and so on of a verification, in a few words.
pub(crate) fn checks(f: Facts<'_>) -> String {
    let mut said = Vec::new();
    let signature = f.text("signature").unwrap_or("not_checked");
    let key = f
        .text("key_label")
        .map_or_else(String::new, |key| format!(" ({key})"));
    said.push(format!("signature {}{key}", spaced(signature)));
    match f.text("assurance") {
        Some("signed") | None => {}
        Some("signed_partial") => said.push("which covers a part".to_owned()),
        Some("token") => said.push("only a shared token was equal".to_owned()),
        Some(_) => said.push("which assures nothing".to_owned()),
    }
    said.extend(f.text("freshness").map(|t| {
        if t == "not_provable" {
            "freshness not provable".to_owned()
        } else {
            spaced(t)
        }
    }));
    said.extend(
        match (f.text("deduplication"), f.id(R::DuplicateOf, K::ReceiptId)) {
            (Some("duplicate"), Some(first)) => Some(format!("same event as {first}")),
            (Some("conflict"), _) => Some("same event id, OTHER content".to_owned()),
            (Some(other), _) => Some(spaced(other)),
            (None, _) => None,
        },
    );
    if let Some("mismatch" | "absent") = f.text("account_check") {
        said.push(format!(
            "account {}",
            f.text("account_check").unwrap_or_default()
        ));
    }
    if let Some("not_in_policy" | "denied") = f.text("policy") {
        said.push(format!(
            "policy says {}",
            spaced(f.text("policy").unwrap_or_default())
        ));
    }
    said.join(", ")
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

fn verification(f: Facts<'_>) -> String {
    let decision = match f.text("decision") {
        Some("accepted") => "accepted".to_owned(),
        Some("duplicate") => "is a duplicate".to_owned(),
        Some(other) => other.to_uppercase(),
        None => "judged".to_owned(),
    };
    let code = match (f.text("decision"), f.text("reason_code")) {
        (Some("accepted"), _) | (_, None) => String::new(),
        (_, Some(code)) => format!(" ({code})"),
    };
    format!("{} {decision}{code}: {}", subject(f), checks(f))
}

/// What a join rests on, in words.
pub(crate) fn basis(f: Facts<'_>) -> String {
    match f.text("basis") {
        Some("remote_operation_id_exact") => {
            format!(
                "same operation{}",
                name(f.id(R::Evidence, K::RemoteOperationId))
            )
        }
        Some("client_reference_exact") => {
            format!(
                "same client reference{}",
                name(f.id(R::Evidence, K::ClientReference))
            )
        }
        Some("authenticated_status_lookup") => "the answer to an authenticated look-up".to_owned(),
        Some("manual_review") => format!("a person's review{}", with("by", f.id(R::By, K::Actor))),
        _ => "a basis that this program does not know".to_owned(),
    }
}

fn name(value: Option<&str>) -> String {
    value.map_or_else(String::new, |value| format!(" {value}"))
}

fn correlation(f: Facts<'_>) -> String {
    let what = f
        .id(R::Evidence, K::ReceiptId)
        .or_else(|| f.id(R::Evidence, K::RecordId));
    format!(
        "{} joined to {} by {} ({})",
        what.unwrap_or("an answer"),
        f.id(R::Names, K::ActionId).unwrap_or("an unnamed action"),
        basis(f),
        subject(f),
    )
}

fn state_transition(f: Facts<'_>) -> String {
    let to = f.text("to").unwrap_or("an unnamed state");
    let change = match f.text("from") {
        Some(from) => format!("{from} -> {to}"),
        None => format!("begins as {to}"),
    };
    let mut out = format!(
        "{} {change}, rule {}",
        subject(f),
        f.text("rule").unwrap_or("unnamed")
    );
    let evidence = list(f.part(R::Evidence));
    out += &if evidence.is_empty() {
        ", no evidence cited".to_owned()
    } else {
        format!(", evidence {evidence}")
    };
    if f.flag("conflict") == Some(true) {
        out += ", AGAINST contradicting evidence";
    }
    if f.flag("decided_by_person") == Some(true) {
        out += &format!(", decided{}", with("by", f.id(R::By, K::Actor)));
    }
    out
}

/// Values, a few of them.
fn list<'a>(ids: impl Iterator<Item = &'a Identifier>) -> String {
    let mut values: Vec<&str> = ids.map(|id| id.value.as_str()).collect();
    let more = values.len().saturating_sub(6);
    values.truncate(6);
    let mut out = values.join(", ");
    if more > 0 {
        out += &format!(" and {more} more");
    }
    out
}

fn status_lookup(f: Facts<'_>) -> String {
    let about = f
        .id(R::PartOf, K::AttemptId)
        .or_else(|| f.id(R::PartOf, K::ActionId));
    let provider = f.text("provider").unwrap_or("the provider");
    let answer = match f.text("result") {
        Some("not_found") => "knows no such work".to_owned(),
        Some("unavailable") => "gave no usable answer".to_owned(),
        Some("forbidden") => "may not tell us".to_owned(),
        Some("unknown") | None => "answered what we cannot read".to_owned(),
        Some(result) => format!("says {}", spaced(result)),
    };
    let operation = f
        .id(R::Names, K::RemoteOperationId)
        .map_or_else(String::new, |id| format!(" of {id}"));
    let how = match f.flag("authenticated") {
        Some(true) => "",
        _ => ", NOT authenticated",
    };
    format!(
        "asked about {}: {provider} {answer}{operation}{how}",
        about.unwrap_or("an unnamed action")
    )
}

fn processing(f: Facts<'_>) -> String {
    let outcome = match f.text("outcome") {
        Some("scheduled") => "is in the queue",
        Some("leased") => "was handed out",
        Some("completed") => "completed",
        Some("stale") => "ended: the object has moved on",
        Some("object_gone") => "ended: the object is gone",
        Some("object_forbidden") => "ended: the object is not ours to see",
        Some("permission_revoked") => "ended: its permission was revoked",
        Some("deferred") => "was put off",
        Some("parked") => "waits for a person",
        Some("failed") => "FAILED",
        _ => "ended, effect unknown",
    };
    let attempt = f
        .uint("try_no")
        .map_or_else(String::new, |n| format!(" try {n}"));
    let mut out = format!("{}{attempt}", subject(f));
    out += &with("for", f.id(R::CausedBy, K::ReceiptId));
    out += &format!(" {outcome}");
    out += &with("with", f.text("worker"));
    out += &f
        .text("reason_code")
        .map_or_else(String::new, |code| format!(" ({code})"));
    out += &f
        .id(R::Names, K::BusinessKey)
        .map_or_else(String::new, |key| format!(", effect {key}"));
    out += &f
        .id(R::Names, K::ActionId)
        .map_or_else(String::new, |id| format!(", led to {id}"));
    out
}

fn memory(f: Facts<'_>) -> String {
    let from = list(f.part(R::DerivedFrom));
    let from = if from.is_empty() {
        String::new()
    } else {
        format!(", out of {from}")
    };
    format!(
        "{} kept as {}{from}",
        subject(f),
        f.text("label").unwrap_or("unlabelled")
    )
}

fn rules(f: Facts<'_>) -> String {
    let mut out = format!("rules {}", subject(f));
    out += &with("version", f.text("rules_version"));
    out += " in force from here on";
    out += &with("by", f.id(R::By, K::Actor));
    out
}

fn exception(f: Facts<'_>, record: Option<&Record>) -> String {
    let id = subject(f);
    let record = match record {
        Some(Record::Exception(exception)) => Some(exception),
        _ => None,
    };
    let reason = record
        .and_then(|e| e.reason.as_ref())
        .map(|reason| reason.as_str());
    let resolved = record.is_some_and(|e| e.status == ExceptionStatus::Resolved)
        || f.text("status") == Some("resolved");
    if resolved {
        let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        return format!(
            "{id} resolved{}, {}{because}",
            with("by", f.id(R::By, K::Actor)),
            spaced(f.text("decision").unwrap_or("no decision named")),
        );
    }
    let what = match reason {
        Some(reason) => reason.to_owned(),
        None => {
            let code = f
                .text("reason_code")
                .map_or_else(String::new, |code| format!(" ({code})"));
            let kind = spaced(f.text("kind").unwrap_or("something wrong"));
            format!("{kind}{code} about {}", list(f.part(R::Evidence)))
        }
    };
    format!("{what}: kept as {id}")
}
