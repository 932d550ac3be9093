//! The story of the documents, as people and programs see it.

use ledger_trace::{Answer, Limits, Query, TextOptions, TraceExit, trace};

use crate::fake::Fake;
use crate::tell::documented;

fn fake() -> Fake {
    Fake::new(881, documented().records())
}

#[test]
fn from_the_action_with_the_evidence() {
    let answer = fake().ask("act_01");
    assert_eq!(answer.exit(), TraceExit::Contradicted);
    insta::assert_snapshot!(answer.to_text(&TextOptions::default()));
}

#[test]
fn the_skeleton_tells_the_same_story() {
    let answer = fake().skeleton().ask("act_01");
    assert_eq!(answer.exit(), TraceExit::Contradicted);
    insta::assert_snapshot!(answer.to_text(&TextOptions {
        width: 80,
        ..TextOptions::default()
    }));
}

#[test]
fn from_every_identifier_the_same_lines() {
    let fake = fake();
    let lines = |answer: &Answer| match answer {
        Answer::Found(trace) => trace.lines.iter().map(|l| l.frame).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let want = lines(&fake.ask("act_01"));
    assert_eq!(want.len(), 15);
    for start in [
        "wf_7", "idem_44", "out_01", "op_9f2", "rcp_02", "evt_88", "cor_01", "exc_01", "rec_004",
        "evt_93", "ses_5",
    ] {
        assert_eq!(lines(&fake.ask(start)), want, "{start}");
    }
    let body = trace(&fake, &Query::body(b"evt_88"), Limits::default()).unwrap();
    assert_eq!(lines(&body), want);
    let pasted = Query::pasted("ERROR 14:07 callback (rcp_02) for op_9f2: see ticket");
    assert_eq!(
        lines(&trace(&fake, &pasted, Limits::default()).unwrap()),
        want
    );
}

#[test]
fn as_json() {
    let answer = fake().ask("act_01");
    let value: serde_json::Value = serde_json::from_str(&answer.to_json()).unwrap();
    assert_eq!(value["answer"], "found");
    assert_eq!(value["states"][0]["state"], "confirmed");
    assert_eq!(value["lines"][0]["record"]["action_id"], "act_01");
    // One line of each type is enough to see the form.
    let mut shown = value.clone();
    let lines = shown["lines"].as_array().unwrap()[10..11].to_vec();
    shown["lines"] = lines.into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&shown).unwrap());
}

#[test]
fn not_found_names_what_was_tried() {
    let answer = fake().ask("op_9f3");
    assert_eq!(answer.exit(), TraceExit::NotFound);
    insta::assert_snapshot!(answer.to_text(&TextOptions::default()));
}
