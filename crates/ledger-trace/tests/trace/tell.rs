//! Records in few words: each maker fills in what its type requires, and changes are merged in.

use ledger_records::{Record, Sha256Hex};
use serde_json::{Value, json};

/// A record from JSON members; its id from a counter that the caller keeps.
pub(crate) struct Teller {
    records: Vec<Record>,
    clock: i64,
}

impl Teller {
    pub(crate) fn new() -> Self {
        Self {
            records: Vec::new(),
            // 2026-11-30T14:03:07Z
            clock: 1_796_047_387,
        }
    }

    pub(crate) fn now(&self) -> String {
        jiff::Timestamp::from_second(self.clock)
            .unwrap()
            .to_string()
    }

    /// Lets time pass.
    pub(crate) fn later(&mut self, seconds: i64) -> &mut Self {
        self.clock += seconds;
        self
    }

    pub(crate) fn tell(&mut self, mut record: Value, more: Value) -> &mut Self {
        merge(&mut record, more);
        record["record_id"] = json!(format!("rec_{:03}", self.records.len() + 1));
        let bytes = serde_json::to_vec(&record).unwrap();
        self.records
            .push(Record::from_json(&bytes).unwrap_or_else(|e| panic!("{e}: {record}")));
        self.later(1)
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.clone()
    }

    pub(crate) fn action(&mut self, id: &str, more: Value) -> &mut Self {
        let record = json!({
            "type": "action", "source": "agent/build", "action_id": id, "session_id": "ses_5", "actor": "build-agent",
            "operation": "build.start", "provider": "builds.example.com", "scope": "production",
            "target": {"kind": "http", "host": "builds.example.com", "route_template": "/v1/builds", "method": "POST", "target_id": "4711"},
            "authorization": {"decision": "approved", "approver": "oncall@example.com", "approved_at": "2026-11-30T14:02:58Z",
                "grant_id": "build:start", "credential_label": "ci-prod-2"},
            "workflow_id": "wf_7", "requested_at": self.now(),
        });
        self.tell(record, more)
    }

    pub(crate) fn attempt(
        &mut self,
        id: &str,
        action: &str,
        reference: Option<&str>,
        outcome: Value,
        more: Value,
    ) -> &mut Self {
        let mut record = json!({
            "type": "attempt", "source": "service/outbound", "attempt_id": id, "action_id": action, "cause": "initial",
            "request": {"length": 3}, "sent_at": self.now(), "outcome": outcome,
        });
        if let Some(reference) = reference {
            record["idempotency_ref"] = json!(reference);
        }
        self.tell(record, more)
    }

    pub(crate) fn answered(
        &mut self,
        id: &str,
        action: &str,
        reference: Option<&str>,
        status: u64,
    ) -> &mut Self {
        let outcome = json!({"kind": "response", "status": status, "received_at": self.now()});
        self.attempt(id, action, reference, outcome, json!({}))
    }

    pub(crate) fn timed_out(
        &mut self,
        id: &str,
        action: &str,
        reference: Option<&str>,
    ) -> &mut Self {
        let outcome = json!({"kind": "timeout", "waited_ms": 30000, "observed_at": self.now()});
        self.attempt(id, action, reference, outcome, json!({}))
    }

    pub(crate) fn named(&mut self, action: &str, attempt: &str, operation: &str) -> &mut Self {
        let record = json!({
            "type": "remote_ref", "source": "service/outbound", "action_id": action, "attempt_id": attempt,
            "provider": "builds.example.com", "remote_operation_id": operation, "observed_at": self.now(),
        });
        self.tell(record, json!({}))
    }

    pub(crate) fn receipt(
        &mut self,
        id: &str,
        event: &str,
        operation: &str,
        result: &str,
        more: Value,
    ) -> &mut Self {
        let record = json!({
            "type": "receipt", "source": "intake", "receipt_id": id, "connection": "con_builds",
            "provider": "builds.example.com", "received_at": self.now(), "method": "POST",
            "route_template": "/in/{endpoint_token}", "raw_body_sha256": Sha256Hex::of(event.as_bytes()).as_str(), "length": 3,
            "claimed": [{
                "provider_event_id": {"value": event, "covered": true},
                "event_type": {"value": "build.finished", "covered": true},
                "remote_operation_id": {"value": operation, "covered": true},
                "result": {"value": result, "covered": true},
                "sender_time": {"value": self.now(), "covered": true},
            }],
        });
        self.tell(record, more)
    }

    pub(crate) fn verified(
        &mut self,
        receipt: &str,
        event: &str,
        decision: &str,
        more: Value,
    ) -> &mut Self {
        let good = decision != "rejected";
        let record = json!({
            "type": "verification", "source": "intake", "receipt_id": receipt, "connection": "con_builds",
            "provider": "builds.example.com", "provider_event_id": event, "scheme": "standard_webhooks",
            "key_label": "key b", "assurance": if good { "signed" } else { "none" },
            "signature": if good { "good" } else { "bad" }, "freshness": "fresh",
            "deduplication": if decision == "duplicate" { "duplicate" } else { "new" }, "account_check": "match",
            "decision": decision, "reason_code": if good { "ok" } else { "bad_signature" }, "verified_at": self.now(),
        });
        self.tell(record, more)
    }

    pub(crate) fn joined(
        &mut self,
        id: &str,
        action: &str,
        receipt: &str,
        operation: &str,
    ) -> &mut Self {
        let record = json!({
            "type": "correlation", "source": "workflow", "correlation_id": id, "action_id": action, "receipt_id": receipt,
            "provider": "builds.example.com", "remote_operation_id": operation, "basis": "remote_operation_id_exact",
            "fields_digest": format!("sha256:{}", "4".repeat(64)),
            "decided_by": {"actor": "workflow-engine", "person": false}, "decided_at": self.now(),
        });
        self.tell(record, json!({}))
    }

    pub(crate) fn state(
        &mut self,
        workflow: &str,
        action: &str,
        from: Option<&str>,
        to: &str,
        evidence: Value,
    ) -> &mut Self {
        let mut record = json!({
            "type": "state_transition", "source": "workflow", "workflow_id": workflow, "action_id": action, "to": to,
            "rule": "build.finished", "evidence": evidence,
            "decided_by": {"actor": "workflow-engine", "person": false}, "decided_at": self.now(),
        });
        if let Some(from) = from {
            record["from"] = json!(from);
        }
        self.tell(record, json!({}))
    }

    pub(crate) fn looked_up(
        &mut self,
        action: &str,
        attempt: Option<&str>,
        result: &str,
    ) -> &mut Self {
        let mut record = json!({
            "type": "status_lookup", "source": "reconciler", "action_id": action, "provider": "builds.example.com",
            "authenticated": true, "result": result, "asked_at": self.now(),
        });
        if let Some(attempt) = attempt {
            record["attempt_id"] = json!(attempt);
        }
        self.tell(record, json!({}))
    }

    pub(crate) fn processed(
        &mut self,
        job: &str,
        receipt: &str,
        outcome: &str,
        more: Value,
    ) -> &mut Self {
        let record = json!({
            "type": "processing", "source": "worker/release", "job_id": job, "receipt_id": receipt, "try_no": 1,
            "outcome": outcome, "worker": "worker-3", "observed_at": self.now(),
        });
        self.tell(record, more)
    }

    pub(crate) fn exception(&mut self, id: &str, about: Value, more: Value) -> &mut Self {
        let record = json!({
            "type": "exception", "source": "workflow", "exception_id": id, "kind": "contradiction", "about": about,
            "detected_by": "workflow-engine", "detected_at": self.now(), "status": "open",
        });
        self.tell(record, more)
    }
}

/// A reference in `evidence` or `about`.
pub(crate) fn cite(kind: &str, value: &str) -> Value {
    json!({"kind": kind, "value": value})
}

/// What a Null replaces is removed.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                if value.is_null() {
                    into.remove(&name);
                } else {
                    merge(into.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (into, more) => *into = more,
    }
}

/// The story that the documents tell: a timeout, a retry, a callback, and a late one that says the opposite.
pub(crate) fn documented() -> Teller {
    let mut t = Teller::new();
    let pending = || json!({"kind": "pending"});
    t.action(
        "act_01",
        json!({"idempotency_ref": "idem_44", "expected_remote_objects": 1}),
    );
    t.state(
        "wf_7",
        "act_01",
        None,
        "requested",
        json!([cite("action_id", "act_01")]),
    );
    t.attempt("out_01", "act_01", Some("idem_44"), pending(), json!({}));
    t.later(29).timed_out("out_01", "act_01", Some("idem_44"));
    let retry = json!({"cause": "client_retry", "retry_of": "out_01"});
    t.attempt("out_02", "act_01", Some("idem_44"), pending(), retry);
    t.answered("out_02", "act_01", Some("idem_44"), 202);
    t.named("act_01", "out_02", "op_9f2");
    t.state(
        "wf_7",
        "act_01",
        Some("requested"),
        "submitted",
        json!([cite("attempt_id", "out_02")]),
    );
    t.later(230)
        .receipt("rcp_02", "evt_88", "op_9f2", "succeeded", json!({}));
    t.verified("rcp_02", "evt_88", "accepted", json!({}));
    t.joined("cor_01", "act_01", "rcp_02", "op_9f2");
    let evidence = json!([
        cite("receipt_id", "rcp_02"),
        cite("correlation_id", "cor_01")
    ]);
    t.state("wf_7", "act_01", Some("submitted"), "confirmed", evidence);
    t.later(275)
        .receipt("rcp_05", "evt_93", "op_9f2", "failed", json!({}));
    t.verified("rcp_05", "evt_93", "accepted", json!({}));
    let about = json!([cite("receipt_id", "rcp_05"), cite("workflow_id", "wf_7")]);
    t.exception(
        "exc_01",
        about,
        json!({"reason": "rcp_05 says failed for op_9f2 after confirmed"}),
    );
    t
}
