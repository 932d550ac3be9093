//! What belongs to a story and what does not; hostile text; order.

use ledger_records::{IdKind, Record};
use ledger_trace::{Answer, Limits, Query, TextOptions, Trace, TraceExit, trace};
use proptest::prelude::*;
use serde_json::json;

use crate::fake::Fake;
use crate::tell::{Teller, cite, documented};

fn found(answer: Answer) -> Trace {
    match answer {
        Answer::Found(trace) => *trace,
        other => panic!("{other:?}"),
    }
}

fn frames(trace: &Trace) -> Vec<u64> {
    trace.lines.iter().map(|line| line.frame).collect()
}

/// Two tenants' works that share session, actor, approver, connection, account, grant and rules, and no joining id.
fn two_tenants() -> Vec<Record> {
    let mut t = Teller::new();
    for (n, tenant) in [(1, "acme"), (2, "globex")] {
        let (action, attempt) = (format!("act_0{n}"), format!("out_0{n}"));
        let (operation, receipt, event) =
            (format!("op_{n}"), format!("rcp_0{n}"), format!("evt_{n}"));
        t.action(
            &action,
            json!({"tenant": tenant, "workflow_id": format!("wf_{n}")}),
        );
        t.answered(&attempt, &action, Some(&format!("idem_{n}")), 202);
        t.named(&action, &attempt, &operation);
        t.receipt(
            &receipt,
            &event,
            &operation,
            "succeeded",
            json!({"tenant": tenant}),
        );
        t.verified(&receipt, &event, "accepted", json!({"account": "acct_9"}));
        t.joined(&format!("cor_{n}"), &action, &receipt, &operation);
        let evidence = json!([cite("receipt_id", &receipt)]);
        t.state(&format!("wf_{n}"), &action, None, "confirmed", evidence);
    }
    t.records()
}

#[test]
fn grouping_ids_do_not_lead_from_one_tenant_to_another() {
    let fake = Fake::new(0, two_tenants());
    for start in ["act_01", "rcp_01", "evt_1", "op_1", "wf_1", "acme"] {
        assert_eq!(
            frames(&found(fake.ask(start))),
            (0..7).collect::<Vec<_>>(),
            "{start}"
        );
    }
    assert_eq!(
        frames(&found(fake.ask("act_02"))),
        (7..14).collect::<Vec<_>>()
    );
    // As a start, what groups brings both, and the answer says so.
    let both = found(fake.ask("ses_5"));
    assert_eq!(both.lines.len(), 14);
    assert!(
        both.findings
            .iter()
            .any(|f| f.code.as_str() == "tenants_mixed")
    );
}

#[test]
fn a_forged_callback_ties_no_stories_together() {
    let mut t = Teller::new();
    for record in two_tenants() {
        let json: serde_json::Value = serde_json::from_slice(&record.to_json()).unwrap();
        t.tell(json, json!({}));
    }
    // It claims tenant globex' operation and event, and repeats acme's delivery id and client reference.
    let refs =
        json!({"refs": [{"kind": "delivery_id", "scope": "builds.example.com", "value": "dlv_1"}]});
    t.receipt("rcp_66", "evt_2", "op_1", "failed", refs);
    t.verified("rcp_66", "evt_2", "rejected", json!({}));
    let fake = Fake::new(0, t.records());
    let first = found(fake.ask("act_01"));
    assert_eq!(
        frames(&first),
        [0, 1, 2, 3, 4, 5, 6, 14, 15],
        "shown, and followed no further"
    );
    let forged = found(fake.ask("rcp_66"));
    assert_eq!(frames(&forged), [14, 15]);
    let text = Answer::Found(Box::new(forged)).to_text(&TextOptions::default());
    assert!(text.contains("ledger trace op_1"), "{text}");
}

#[test]
fn a_value_of_two_meanings_is_listed() {
    let mut t = Teller::new();
    t.action("act_01", json!({"workflow_id": "42"}));
    t.answered("out_01", "act_01", Some("idem_1"), 202);
    t.named("act_01", "out_01", "op_1");
    t.action("act_02", json!({"workflow_id": "wf_2"}));
    t.answered("out_02", "act_02", Some("idem_2"), 202);
    t.named("act_02", "out_02", "42");
    let fake = Fake::new(0, t.records());
    let answer = fake.ask("42");
    assert_eq!(
        (answer.exit(), answer.exit().code()),
        (TraceExit::Ambiguous, 2)
    );
    insta::assert_snapshot!(answer.to_text(&TextOptions::default()));
    let ask = |query: Query| trace(&fake, &query, Limits::default()).unwrap();
    let narrowed = found(ask(Query::value("42").of_kind(IdKind::WorkflowId)));
    assert_eq!(frames(&narrowed), [0, 1, 2]);
    let narrowed = found(ask(Query::value("42").within("builds.example.com")));
    assert_eq!(frames(&narrowed), [3, 4, 5]);
    let nothing = ask(Query::value("42").of_kind(IdKind::RunId));
    assert_eq!(nothing.exit(), TraceExit::NotFound);
    // The same value under two kinds of one story is one story.
    let mut t = Teller::new();
    t.action(
        "act_01",
        json!({"client_reference": "act_01", "workflow_id": "act_01"}),
    );
    assert_eq!(
        found(Fake::new(0, t.records()).ask("act_01")).start.len(),
        3
    );
}

#[test]
fn pasted_text_of_two_stories_is_ambiguous_and_of_none_not_found() {
    let fake = Fake::new(0, two_tenants());
    let ask = |text: &str| trace(&fake, &Query::pasted(text), Limits::default()).unwrap();
    assert_eq!(ask("act_01 and act_02").exit(), TraceExit::Ambiguous);
    assert_eq!(ask("nothing here").exit(), TraceExit::NotFound);
    assert_eq!(ask("").exit(), TraceExit::NotFound);
    let one = found(ask(
        "tenant=acme session=ses_5 GET https://h/v1/op_1 rcp_01",
    ));
    assert_eq!(one.lines.len(), 7);
}

#[test]
fn what_is_too_much_is_cut_and_said() {
    let fake = Fake::new(0, documented().records());
    let limits = Limits {
        frames_max: 4,
        ..Limits::default()
    };
    let answer = trace(&fake, &Query::value("act_01"), limits).unwrap();
    let text = answer.to_text(&TextOptions::default());
    let trace_found = found(answer);
    assert_eq!(trace_found.lines.len(), 4);
    assert!(trace_found.cut.is_some() && text.contains("CUT "), "{text}");
    let limits = Limits {
        hits_max: 2,
        reads_max: 6,
        ..Limits::default()
    };
    let few = found(trace(&fake, &Query::value("act_01"), limits).unwrap());
    assert!(few.cut.is_some() && few.lines.len() <= 6);
}

#[test]
fn hostile_text_stays_text() {
    let hostile = "x\u{202e}STATE    confirmed\\u{9b}[2J\u{1f600} FRAME  TIME";
    let mut t = Teller::new();
    t.action(
        "act_01",
        json!({"operation": hostile, "scope": hostile, "source": hostile, "actor": hostile}),
    );
    t.receipt(
        "rcp_01",
        hostile,
        hostile,
        hostile,
        json!({"source": "\u{feff}"}),
    );
    t.exception(
        "exc_01",
        json!([cite("action_id", "act_01")]),
        json!({"reason": "a\nSTATE    confirmed\r\n\tb"}),
    );
    let fake = Fake::new(0, t.records());
    for width in [1, 60, 80, 200] {
        let text = fake.ask("act_01").to_text(&TextOptions {
            width,
            ..TextOptions::default()
        });
        assert!(
            text.bytes()
                .all(|b| b == b'\n' || (b' '..=b'~').contains(&b)),
            "{text}"
        );
        let states = text
            .lines()
            .filter(|line| line.starts_with("STATE"))
            .count();
        assert_eq!(states, 1, "{text}");
    }
    let json = fake.ask("act_01").to_json();
    assert!(
        json.bytes()
            .all(|b| b == b'\n' || (b' '..=b'~').contains(&b))
    );
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["actions"][0]["operation"], hostile);
    // What could do something in a shell is not offered as a command.
    let text = fake.ask("rcp_01").to_text(&TextOptions::default());
    assert!(!text.contains("ledger trace x"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lines_stand_in_chain_order_whatever_the_times_say(order in Just((0..15_usize).collect::<Vec<_>>()).prop_shuffle(), start in 0..15_usize) {
        let told = documented().records();
        let shuffled: Vec<Record> = order.iter().map(|i| told[*i].clone()).collect();
        let fake = Fake::new(100, shuffled.clone());
        let trace = found(fake.ask(shuffled[start].record_id().as_str()));
        prop_assert_eq!(frames(&trace), (100..115).collect::<Vec<_>>());
        for (line, record) in trace.lines.iter().zip(&shuffled) {
            prop_assert_eq!(&line.record_id, record.record_id().as_str());
        }
        let text = Answer::Found(Box::new(trace)).to_text(&TextOptions::default());
        prop_assert!(text.lines().all(|line| line.len() <= 100));
    }
}
