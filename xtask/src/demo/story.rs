//! The records of one story: an agent's action, what was sent, what came back, what it came to.
//!
//! They are data as any service would send it. When a story is told, and what goes wrong in it, is `month`'s.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Milliseconds since 1 November 2026, 00:00 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

const DAY: u64 = 24 * 60 * 60 * 1_000;

impl Moment {
    pub(super) const fn new(day: u64, hour: u64, minute: u64) -> Self {
        Self((((day - 1) * 24 + hour) * 60 + minute) * 60_000)
    }

    pub(super) const fn later(self, millis: u64) -> Self {
        Self(self.0 + millis)
    }

    pub(super) const fn day(self) -> u64 {
        self.0 / DAY + 1
    }

    /// As RFC 3339.
    fn text(self) -> String {
        let of = |unit: u64, range: u64| self.0 / unit % range;
        format!(
            "2026-11-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            self.day(),
            of(3_600_000, 24),
            of(60_000, 60),
            of(1_000, 60),
            of(1, 1_000)
        )
    }
}

/// The processes that append, each with a connection of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Who {
    Builder,
    Publisher,
    Outbound,
    Intake,
    Workflow,
}

impl Who {
    pub(super) const ALL: [Self; 5] = [
        Self::Builder,
        Self::Publisher,
        Self::Outbound,
        Self::Intake,
        Self::Workflow,
    ];

    /// Its name in the records.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::Builder => "agent/build",
            Self::Publisher => "agent/publish",
            Self::Outbound => "service/outbound",
            Self::Intake => "intake",
            Self::Workflow => "workflow",
        }
    }
}

/// A record on its way, and who sends it.
pub(super) struct Event {
    pub(super) at: Moment,
    pub(super) who: Who,
    /// What must wait for it: one story's records follow each other.
    pub(super) story: String,
    pub(super) record_id: String,
    pub(super) line: String,
}

/// What is asked of whom.
pub(super) struct Work {
    agent: Who,
    operation: &'static str,
    provider: &'static str,
    route: &'static str,
    system: &'static str,
    event: &'static str,
    connection: &'static str,
    hook_route: &'static str,
}

pub(super) const BUILD: Work = Work {
    agent: Who::Builder,
    operation: "build.start",
    provider: "builds.example.com",
    route: "/v1/builds",
    system: "releases",
    event: "build.finished",
    connection: "con_builds",
    hook_route: "/in/{endpoint_token}",
};

pub(super) const PUBLICATION: Work = Work {
    agent: Who::Publisher,
    operation: "release.publish",
    provider: "packages.example.com",
    route: "/v2/releases",
    system: "catalogue",
    event: "release.processed",
    connection: "con_packages",
    hook_route: "/in/packages/{endpoint_token}",
};

/// How a delivery is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    Accepted,
    /// The same event as that delivery.
    DuplicateOf(u32),
    BadSignature,
}

/// Tells one story; its clock only goes forward.
pub(super) struct Teller<'a> {
    work: &'a Work,
    name: String,
    now: Moment,
    records: u32,
    state: Option<&'static str>,
    out: &'a mut Vec<Event>,
}

impl<'a> Teller<'a> {
    /// A story named by its day and number, such as `1105_03`: its ids are `act_1105_03` and so on.
    pub(super) fn new(work: &'a Work, name: &str, begins: Moment, out: &'a mut Vec<Event>) -> Self {
        Self {
            work,
            name: name.to_owned(),
            now: begins,
            records: 0,
            state: None,
            out,
        }
    }

    pub(super) fn wait(&mut self, millis: u64) -> &mut Self {
        self.now = self.now.later(millis);
        self
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.name)
    }

    fn numbered(&self, prefix: &str, number: u32) -> String {
        format!("{prefix}_{}_{number}", self.name)
    }

    fn time(&self) -> String {
        self.now.text()
    }

    fn say(&mut self, who: Who, mut record: Value) -> String {
        self.records += 1;
        let record_id = format!("rec_{}_{:02}", self.name, self.records);
        record["record_id"] = record_id.as_str().into();
        record["source"] = who.source().into();
        self.out.push(Event {
            at: self.now,
            who,
            story: self.name.clone(),
            record_id: record_id.clone(),
            line: record.to_string(),
        });
        record_id
    }

    /// The agent asks, and was allowed to.
    pub(super) fn asks(&mut self) -> &mut Self {
        let work = self.work;
        let grant = work.operation.replace('.', ":");
        let run = json!({
            "type": "run", "run_id": self.id("run"), "session_id": format!("ses_{}", &self.name[..4]),
            "initiator": "schedule/workday", "agent": format!("{} 3.2", work.agent.source()), "tenant": "acme",
            "grant": { "grant_id": grant, "tenant": "acme", "operations": [work.operation],
                       "expires_at": self.now.later(8 * 3_600_000).text(), "credential_label": "ci-prod-2" },
            "status": "started", "started_at": self.time(),
        });
        self.say(work.agent, run);
        self.wait(18_400);
        let action = json!({
            "type": "action", "action_id": self.id("act"), "run_id": self.id("run"), "actor": work.agent.source(),
            "tenant": "acme", "operation": work.operation,
            "target": { "kind": "http", "host": work.provider, "route_template": work.route, "method": "POST" },
            "provider": work.provider, "scope": "production",
            "authorization": { "decision": "approved", "approver": "oncall@example.com", "approved_at": self.time(),
                               "expires_at": self.now.later(3_600_000).text(), "grant_id": grant,
                               "credential_label": "ci-prod-2" },
            "idempotency_ref": self.id("idem"), "client_reference": self.id("act"), "workflow_id": self.id("wf"),
            "business_object": { "system": work.system, "id": self.id("rel") }, "expected_remote_objects": 1,
            "requested_at": self.time(),
        });
        self.say(work.agent, action);
        self.wait(10);
        let evidence = json!([{ "kind": "action_id", "value": self.id("act") }]);
        self.becomes("requested", "action.approved", &evidence);
        self.wait(15)
    }

    fn attempt(&mut self, number: u32, cause: &str, sent: Moment, outcome: Value) {
        let mut record = json!({
            "type": "attempt", "attempt_id": self.numbered("out", number), "action_id": self.id("act"),
            "idempotency_ref": self.id("idem"), "cause": cause,
            "request": { "content_type": "application/json", "body_fields": ["ref", "client_reference"],
                         "headers": [{ "name": "Idempotency-Key", "value": self.id("idem") }] },
            "credential_label": "ci-prod-2", "sent_at": sent.text(), "outcome": outcome,
        });
        if number > 1 {
            record["retry_of"] = self.numbered("out", number - 1).into();
        }
        self.say(Who::Outbound, record);
    }

    /// A transmission that ends so after some time. It is recorded before the bytes leave, and again.
    fn transmits(&mut self, number: u32, millis: u64, outcome: impl Fn(String) -> Value) {
        let cause = if number == 1 {
            "initial"
        } else {
            "client_retry"
        };
        let sent = self.now;
        let deadline = sent.later(30_000).text();
        let pending = json!({ "kind": "pending", "deadline": deadline });
        self.attempt(number, cause, sent, pending);
        self.wait(millis);
        let outcome = outcome(self.time());
        self.attempt(number, cause, sent, outcome);
    }

    /// The connection broke before anything was sent.
    pub(super) fn connection_fails(&mut self, number: u32) -> &mut Self {
        self.transmits(number, 210, |at| {
            json!({ "kind": "transport_error", "error": "connection_refused", "before_send": true, "observed_at": at })
        });
        self.wait(1_000)
    }

    /// No answer in 30 s: whether it arrived, nobody knows.
    pub(super) fn times_out(&mut self, number: u32) -> &mut Self {
        self.transmits(
            number,
            30_000,
            |at| json!({ "kind": "timeout", "waited_ms": 30_000, "observed_at": at }),
        );
        self.wait(1_500)
    }

    /// Answered 202, and the provider names its operation: taken, not done.
    pub(super) fn is_taken(&mut self, number: u32) -> &mut Self {
        self.transmits(
            number,
            480,
            |at| json!({ "kind": "response", "status": 202, "received_at": at }),
        );
        let attempt = self.numbered("out", number);
        self.provider_names("attempt_id", &attempt);
        self.wait(40);
        let evidence = json!([{ "kind": "attempt_id", "value": attempt }]);
        self.becomes("submitted", "request.accepted", &evidence);
        self.wait(1_000)
    }

    fn provider_names(&mut self, found_by: &str, id: &str) {
        let mut record = json!({
            "type": "remote_ref", "action_id": self.id("act"), "provider": self.work.provider, "account": "acct_9",
            "remote_operation_id": self.id("op"), "found_in": "body:/id", "observed_at": self.time(),
        });
        record[found_by] = id.into();
        self.say(Who::Outbound, record);
    }

    /// The provider is asked under our own credentials instead of sending twice.
    pub(super) fn is_looked_up(&mut self) -> &mut Self {
        let lookup = json!({
            "type": "status_lookup", "action_id": self.id("act"), "attempt_id": self.numbered("out", 1),
            "provider": self.work.provider, "account": "acct_9", "idempotency_ref": self.id("idem"),
            "authenticated": true, "credential_label": "ci-prod-2", "result": "in_progress", "remote_state": "running",
            "remote_objects": 1, "status": 200, "asked_at": self.time(), "answered_at": self.now.later(320).text(),
        });
        self.wait(320);
        let lookup = self.say(Who::Outbound, lookup);
        self.provider_names("status_lookup", &lookup);
        self.wait(40);
        let evidence = json!([{ "kind": "record_id", "value": lookup }]);
        self.becomes("submitted", "request.found", &evidence);
        self.wait(1_000)
    }

    /// The bytes of a callback. Two deliveries of one event are the same bytes.
    fn body(&self, event: u32, result: &str) -> String {
        json!({
            "type": self.work.event, "id": self.numbered("evt", event), "account": "acct_9",
            "data": { "operation": self.id("op"), "client_reference": self.id("act"), "result": result },
        })
        .to_string()
    }

    /// A callback comes, with its body, and is judged.
    pub(super) fn called_back(
        &mut self,
        delivery: u32,
        event: u32,
        result: &str,
        judged: Judged,
    ) -> &mut Self {
        let work = self.work;
        let body = self.body(event, result);
        let covered = judged != Judged::BadSignature;
        let claim = |value: String| json!({ "value": value, "covered": covered });
        let receipt = json!({
            "type": "receipt", "receipt_id": self.numbered("rcp", delivery), "connection": work.connection,
            "provider": work.provider, "expected_sender": format!("{} webhooks", work.provider), "tenant": "acme",
            "received_at": self.time(), "method": "POST", "host": "hooks.acme.example",
            "route_template": work.hook_route, "content_type": "application/json",
            "headers": [{ "name": "webhook-id", "value": self.numbered("evt", event) }],
            "source_address": if covered { "203.0.113.20" } else { "198.51.100.77" },
            "raw_body_sha256": sha256(&body), "length": body.len(), "scheme": "standard_webhooks",
            "claimed": [{
                "provider_event_id": claim(self.numbered("evt", event)), "event_type": claim(work.event.to_owned()),
                "account": claim("acct_9".to_owned()), "client_reference": claim(self.id("act")),
                "remote_operation_id": claim(self.id("op")), "result": claim(result.to_owned()),
            }],
            "raw_body": STANDARD.encode(&body),
        });
        self.say(Who::Intake, receipt);
        self.wait(5);
        self.verification(delivery, event, judged);
        self.wait(1_500)
    }

    fn verification(&mut self, delivery: u32, event: u32, judged: Judged) {
        let work = self.work;
        let (decision, reason, signature, deduplication) = match judged {
            Judged::Accepted => ("accepted", "ok", "good", "new"),
            Judged::DuplicateOf(_) => ("duplicate", "seen_before", "good", "duplicate"),
            Judged::BadSignature => ("rejected", "bad_signature", "bad", "not_checked"),
        };
        let mut record = json!({
            "type": "verification", "receipt_id": self.numbered("rcp", delivery), "connection": work.connection,
            "provider": work.provider, "scheme": "standard_webhooks", "assurance": "signed",
            "covers": ["body", "event_id", "event_type", "timestamp", "account"], "signature": signature,
            "deduplication": deduplication, "decision": decision, "reason_code": reason, "verified_at": self.time(),
            "policy": { "outcome": "permitted", "row": work.event, "rules": { "name": "intake", "version": "7" } },
            "freshness": "fresh", "account_check": "match",
        });
        match judged {
            Judged::BadSignature => {
                for unchecked in ["freshness", "account_check"] {
                    record[unchecked] = "not_checked".into();
                }
                record["policy"] = json!({ "outcome": "not_checked" });
            }
            Judged::DuplicateOf(first) => {
                record["duplicate_of"] = self.numbered("rcp", first).into();
            }
            Judged::Accepted => {}
        }
        if judged != Judged::BadSignature {
            record["provider_event_id"] = self.numbered("evt", event).into();
            record["account"] = "acct_9".into();
            record["key_label"] = "key b".into();
        }
        self.say(Who::Intake, record);
    }

    /// A delivery is joined to the action by the provider's own id, and settles its state.
    pub(super) fn settles(&mut self, delivery: u32, to: &'static str) -> &mut Self {
        let fields = format!("{}\n{}", self.work.provider, self.id("op"));
        let join = json!({
            "type": "correlation", "correlation_id": self.numbered("cor", delivery), "action_id": self.id("act"),
            "receipt_id": self.numbered("rcp", delivery), "provider": self.work.provider,
            "remote_operation_id": self.id("op"), "basis": "remote_operation_id_exact",
            "fields_used": ["provider", "remote_operation_id"], "fields_digest": format!("sha256:{}", sha256(&fields)),
            "decided_by": { "actor": "workflow-engine", "person": false }, "decided_at": self.time(),
        });
        self.say(Who::Workflow, join);
        self.wait(120);
        let evidence = json!([
            { "kind": "receipt_id", "value": self.numbered("rcp", delivery) },
            { "kind": "correlation_id", "value": self.numbered("cor", delivery) },
        ]);
        let rule = self.work.event;
        self.becomes(to, rule, &evidence);
        self.wait(100)
    }

    fn becomes(&mut self, to: &'static str, rule: &str, evidence: &Value) {
        let by = json!({ "actor": "workflow-engine", "person": false });
        self.transition(to, rule, evidence, &by);
    }

    fn transition(&mut self, to: &'static str, rule: &str, evidence: &Value, by: &Value) {
        let mut record = json!({
            "type": "state_transition", "workflow_id": self.id("wf"), "action_id": self.id("act"), "to": to,
            "rule": rule, "rules": { "name": "workflow", "version": "2" }, "evidence": evidence, "decided_by": by,
            "decided_at": self.time(),
        });
        if let Some(from) = self.state.replace(to) {
            record["from"] = from.into();
        }
        self.say(Who::Workflow, record);
    }

    /// A person calls it off.
    pub(super) fn is_cancelled(&mut self) -> &mut Self {
        let evidence = json!([{ "kind": "action_id", "value": self.id("act") }]);
        let by = json!({ "actor": "oncall@example.com", "person": true, "via": "console" });
        self.transition("cancelled", "person.cancels", &evidence, &by);
        self
    }

    /// What contradicts a final state is kept, until a person decides.
    pub(super) fn is_kept(&mut self, delivery: u32, code: &str, reason: &str) -> &mut Self {
        let record = json!({
            "type": "exception", "exception_id": self.id("exc"), "kind": "contradiction", "status": "open",
            "reason_code": code, "reason": reason,
            "about": [{ "kind": "receipt_id", "value": self.numbered("rcp", delivery) },
                      { "kind": "workflow_id", "value": self.id("wf") }],
            "detected_by": "workflow-engine", "detected_at": self.time(),
        });
        self.say(Who::Workflow, record);
        self
    }
}

/// In hex.
pub(super) fn sha256(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339() {
        let moment = Moment::new(5, 9, 7).later(61_002);
        assert_eq!(moment.text(), "2026-11-05T09:08:01.002Z");
        assert_eq!((moment.day(), Moment::new(1, 0, 0).day()), (5, 1));
    }

    #[test]
    fn a_duplicate_is_the_same_bytes_under_another_receipt() {
        let mut events = Vec::new();
        Teller::new(&BUILD, "1105_01", Moment::new(5, 9, 0), &mut events)
            .called_back(1, 1, "succeeded", Judged::Accepted)
            .called_back(2, 1, "succeeded", Judged::DuplicateOf(1));
        let records: Vec<Value> = events
            .iter()
            .map(|event| serde_json::from_str(&event.line).unwrap())
            .collect();
        assert_eq!(records[0]["raw_body"], records[2]["raw_body"]);
        assert_eq!(records[0]["raw_body_sha256"], records[2]["raw_body_sha256"]);
        assert_ne!(records[0]["receipt_id"], records[2]["receipt_id"]);
        assert_eq!(records[3]["duplicate_of"], records[0]["receipt_id"]);
        assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }
}
