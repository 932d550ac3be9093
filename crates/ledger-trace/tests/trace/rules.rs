//! One story a finding: what it takes for a rule to speak, and that it is silent without it.

use std::collections::BTreeSet;

use ledger_trace::{Answer, FindingCode, Trace, TraceExit};
use serde_json::json;

use crate::fake::Fake;
use crate::tell::{Teller, cite, documented};

fn found(teller: &Teller, value: &str) -> Trace {
    // With and without the evidence, the rules say the same.
    let bare = story(&Fake::new(0, teller.records()).skeleton(), value);
    let full = story(&Fake::new(0, teller.records()), value);
    assert_eq!(bare.findings, full.findings);
    full
}

fn story(fake: &Fake, value: &str) -> Trace {
    match fake.ask(value) {
        Answer::Found(trace) => *trace,
        other => panic!("{other:?}"),
    }
}

fn codes(teller: &Teller) -> BTreeSet<&'static str> {
    found(teller, "act_01")
        .findings
        .iter()
        .map(|f| f.code.as_str())
        .collect()
}

/// A story in which nothing is missing, up to a point.
fn sent(status: u64) -> Teller {
    let mut t = Teller::new();
    t.action("act_01", json!({"idempotency_ref": "idem_44"}));
    t.state(
        "wf_7",
        "act_01",
        None,
        "requested",
        json!([cite("action_id", "act_01")]),
    );
    t.attempt(
        "out_01",
        "act_01",
        Some("idem_44"),
        json!({"kind": "pending"}),
        json!({}),
    );
    t.answered("out_01", "act_01", Some("idem_44"), status);
    t
}

fn named() -> Teller {
    let mut t = sent(202);
    t.named("act_01", "out_01", "op_9f2");
    t
}

fn called_back() -> Teller {
    let mut t = named();
    t.receipt("rcp_02", "evt_88", "op_9f2", "succeeded", json!({}));
    t.verified("rcp_02", "evt_88", "accepted", json!({}));
    t
}

fn joined() -> Teller {
    let mut t = called_back();
    t.joined("cor_01", "act_01", "rcp_02", "op_9f2");
    t
}

fn confirmed() -> Teller {
    let mut t = joined();
    t.state(
        "wf_7",
        "act_01",
        Some("requested"),
        "confirmed",
        json!([cite("correlation_id", "cor_01")]),
    );
    t
}

#[track_caller]
fn expect(teller: &Teller, want: &[FindingCode]) {
    let want: BTreeSet<_> = want.iter().map(|code| code.as_str()).collect();
    assert_eq!(codes(teller), want);
}

use FindingCode as C;

#[test]
fn a_whole_story_has_no_finding() {
    let t = confirmed();
    expect(&t, &[]);
    assert_eq!(
        Fake::new(0, t.records()).ask("act_01").exit(),
        TraceExit::Found
    );
}

#[test]
fn each_step_that_is_missing_is_named() {
    expect(&named(), &[C::OutcomeOpen]);
    expect(&sent(202), &[C::OutcomeOpen, C::AcceptanceWithoutRemoteRef]);
    expect(&sent(200), &[C::OutcomeOpen]);
    expect(&called_back(), &[C::OutcomeOpen, C::AcceptedUncorrelated]);
    expect(
        &joined(),
        &[C::OutcomeOpen, C::CorrelationWithoutTransition],
    );
    let mut t = named();
    t.receipt("rcp_02", "evt_88", "op_9f2", "succeeded", json!({}));
    expect(&t, &[C::OutcomeOpen, C::ReceiptUnverified]);
    let mut t = Teller::new();
    t.action("act_01", json!({}));
    t.attempt(
        "out_01",
        "act_01",
        None,
        json!({"kind": "pending"}),
        json!({}),
    );
    expect(&t, &[C::AttemptWithoutOutcome, C::NoStateRecorded]);
    let mut t = Teller::new();
    t.answered("out_01", "act_01", None, 200);
    expect(&t, &[C::ActionNotRecorded, C::NoStateRecorded]);
    let mut t = called_back();
    t.joined("cor_01", "act_01", "rcp_99", "op_9f2");
    expect(
        &t,
        &[
            C::OutcomeOpen,
            C::AcceptedUncorrelated,
            C::CorrelationWithoutTransition,
            C::ReceiptNotRecorded,
        ],
    );
}

#[test]
fn a_timeout_stays_open_until_the_provider_was_asked() {
    let timeout = || {
        let mut t = confirmed();
        t.timed_out("out_02", "act_01", Some("idem_44"));
        t
    };
    expect(&timeout(), &[C::AttemptTimeoutUnresolved]);
    let mut t = timeout();
    t.looked_up("act_01", Some("out_02"), "unavailable");
    expect(&t, &[C::AttemptTimeoutUnresolved]);
    t.looked_up("act_01", Some("out_02"), "succeeded");
    expect(&t, &[]);
    let mut t = confirmed();
    let error = |before_send: bool| {
        json!({"kind": "transport_error", "error": "connection_reset", "before_send": before_send,
            "observed_at": "2026-11-30T14:03:40Z"})
    };
    t.attempt("out_02", "act_01", Some("idem_44"), error(true), json!({}));
    expect(&t, &[]);
    t.attempt("out_03", "act_01", Some("idem_44"), error(false), json!({}));
    expect(&t, &[C::AttemptTimeoutUnresolved]);
}

#[test]
fn permission_is_held_against_what_was_sent() {
    let mut t = Teller::new();
    t.action("act_01", json!({"authorization": {"decision": "denied"}}));
    t.state("wf_7", "act_01", None, "cancelled", json!([]));
    t.answered("out_01", "act_01", None, 200);
    expect(&t, &[C::AttemptNotAllowed]);
    let mut t = Teller::new();
    t.action(
        "act_01",
        json!({"authorization": {"expires_at": "2026-11-30T14:03:08.500Z"}}),
    );
    t.state("wf_7", "act_01", None, "cancelled", json!([]));
    t.answered("out_01", "act_01", None, 200);
    expect(&t, &[C::AttemptAfterExpiry]);
}

#[test]
fn idempotency_references_are_compared() {
    let mut t = confirmed();
    t.answered("out_02", "act_01", Some("idem_45"), 200);
    expect(&t, &[C::IdempotencyRefsDiffer]);
    let mut t = confirmed();
    t.answered("out_02", "act_01", None, 200);
    expect(&t, &[C::IdempotencyRefMissing]);
    let mut t = confirmed();
    t.action("act_02", json!({"workflow_id": "wf_8"}));
    t.state("wf_8", "act_02", None, "cancelled", json!([]));
    t.answered("out_02", "act_02", Some("idem_44"), 200);
    expect(&t, &[C::IdempotencyRefShared]);
    let mut t = confirmed();
    t.action("act_01", json!({"expected_remote_objects": 1}));
    t.named("act_01", "out_01", "op_9f3");
    expect(&t, &[C::RemoteObjectsExceeded]);
}

#[test]
fn deliveries_that_were_not_believed_lead_to_nothing() {
    for (decision, more, want) in [
        ("rejected", json!({}), C::RefusedDeliveryUsed),
        (
            "duplicate",
            json!({"duplicate_of": "rcp_02"}),
            C::DuplicateProcessed,
        ),
    ] {
        let mut t = confirmed();
        t.receipt("rcp_03", "evt_88", "op_9f2", "succeeded", json!({}));
        t.verified("rcp_03", "evt_88", decision, more);
        expect(&t, &[]);
        t.processed("job_1", "rcp_03", "completed", json!({}));
        expect(&t, &[want]);
    }
    let mut t = confirmed();
    t.verified("rcp_02", "evt_88", "rejected", json!({}));
    expect(&t, &[C::VerificationsDiffer]);
    let mut t = confirmed();
    t.receipt("rcp_03", "evt_88", "op_9f2", "succeeded", json!({}));
    t.verified(
        "rcp_03",
        "evt_88",
        "quarantined",
        json!({"deduplication": "conflict"}),
    );
    expect(&t, &[C::EventConflict]);
}

#[test]
fn a_callback_may_be_faster_than_the_answer() {
    let mut t = Teller::new();
    t.action("act_01", json!({}));
    t.attempt(
        "out_01",
        "act_01",
        None,
        json!({"kind": "pending"}),
        json!({}),
    );
    t.receipt("rcp_02", "evt_88", "op_9f2", "succeeded", json!({}));
    t.verified("rcp_02", "evt_88", "accepted", json!({}));
    t.answered("out_01", "act_01", None, 202);
    t.named("act_01", "out_01", "op_9f2");
    t.joined("cor_01", "act_01", "rcp_02", "op_9f2");
    t.state(
        "wf_7",
        "act_01",
        None,
        "confirmed",
        json!([cite("receipt_id", "rcp_02")]),
    );
    expect(&t, &[C::CallbackBeforeResponse]);
    assert_eq!(
        Fake::new(0, t.records()).ask("act_01").exit(),
        TraceExit::Found
    );
}

#[test]
fn work_is_done_once_and_after_verification() {
    let key = json!({"business_key": {"object": "4711", "operation": "release_note"}});
    let mut t = confirmed();
    t.processed("job_1", "rcp_02", "leased", key.clone());
    expect(&t, &[C::ProcessingWithoutOutcome]);
    t.processed("job_1", "rcp_02", "completed", key.clone());
    expect(&t, &[]);
    t.processed("job_2", "rcp_02", "completed", key);
    expect(&t, &[C::EffectTwice]);
    let mut t = named();
    t.receipt("rcp_02", "evt_88", "op_9f2", "succeeded", json!({}));
    t.processed("job_1", "rcp_02", "completed", json!({}));
    t.verified("rcp_02", "evt_88", "accepted", json!({}));
    expect(&t, &[C::OutcomeOpen, C::ProcessedBeforeVerification]);
}

#[test]
fn states_need_ground_and_are_not_overwritten() {
    let mut t = named();
    t.state(
        "wf_7",
        "act_01",
        Some("requested"),
        "confirmed",
        json!([cite("attempt_id", "out_01")]),
    );
    expect(&t, &[C::TransitionWithoutEvidence]);
    let mut t = confirmed();
    t.looked_up("act_01", None, "succeeded");
    expect(&t, &[]);
    let lookup = json!([cite("record_id", "rec_006")]);
    let mut t = named();
    t.looked_up("act_01", None, "succeeded");
    t.state("wf_7", "act_01", Some("requested"), "confirmed", lookup);
    expect(&t, &[]);
    let mut t = confirmed();
    t.state("wf_7", "act_01", Some("confirmed"), "cancelled", json!([]));
    expect(&t, &[C::TerminalOverwritten]);
    let mut t = confirmed();
    t.state(
        "wf_7",
        "act_01",
        Some("submitted"),
        "confirmed",
        json!([cite("receipt_id", "rcp_02")]),
    );
    expect(&t, &[C::StatesDisagree]);
}

#[test]
fn evidence_behind_a_final_state_is_kept_or_named() {
    let late = || {
        let mut t = confirmed();
        t.receipt("rcp_05", "evt_93", "op_9f2", "failed", json!({}));
        t.verified("rcp_05", "evt_93", "accepted", json!({}));
        t
    };
    expect(&late(), &[C::LateContradiction, C::AcceptedUncorrelated]);
    let about = json!([cite("receipt_id", "rcp_05")]);
    let mut t = late();
    t.exception("exc_01", about.clone(), json!({}));
    expect(&t, &[C::ContradictionOpen]);
    let resolution = json!({"status": "resolved", "resolution": {"decision": "confirmed_stands",
        "decided_by": {"actor": "oncall@example.com", "person": true}, "decided_at": "2026-11-30T16:40:00Z"}});
    t.exception("exc_01", about.clone(), resolution);
    expect(&t, &[C::ExceptionResolved]);
    let mut t = late();
    t.exception("exc_01", about, json!({"kind": "unpaired_callback"}));
    expect(&t, &[C::ExceptionOpen]);
    let mut t = confirmed();
    t.looked_up("act_01", None, "failed");
    expect(&t, &[C::LateContradiction]);
    // A forged callback says what it likes.
    let mut t = confirmed();
    t.receipt("rcp_05", "evt_93", "op_9f2", "failed", json!({}));
    t.verified("rcp_05", "evt_93", "rejected", json!({}));
    expect(&t, &[]);
}

#[test]
fn frames_without_a_checkpoint_are_named() {
    let mut fake = Fake::new(10, confirmed().records());
    fake.covered_to = 18;
    fake.pinned = false;
    let trace = story(&fake, "act_01");
    assert_eq!(trace.findings.len(), 1);
    assert_eq!(trace.findings[0].code, C::NotCovered);
    assert_eq!(trace.findings[0].frames, [18]);
    assert_eq!((trace.check.covered, trace.check.pinned), (8, false));
}

#[test]
fn the_documented_story_has_one_contradiction_and_one_gap() {
    expect(
        &documented(),
        &[C::ContradictionOpen, C::AttemptTimeoutUnresolved],
    );
}

#[test]
fn the_list_of_codes() {
    let list: Vec<_> = C::ALL
        .iter()
        .map(|code| {
            format!(
                "{:<32}{:<15}{}",
                code.as_str(),
                code.class().as_str(),
                code.meaning()
            )
        })
        .collect();
    insta::assert_snapshot!(list.join("\n"));
}
