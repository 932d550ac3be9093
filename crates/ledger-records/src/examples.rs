//! One example of each record type, as a client would send it; together they tell one story.
//! Data only: printed beside the schemas, and checked by the tests against parser and schema.

use crate::record::RecordType;

/// One JSON example of each type, in the order of the type codes.
#[must_use]
pub fn examples() -> [(RecordType, &'static str); 13] {
    [
        (RecordType::Run, RUN),
        (RecordType::Action, ACTION),
        (RecordType::Attempt, ATTEMPT),
        (RecordType::RemoteRef, REMOTE_REF),
        (RecordType::Receipt, RECEIPT),
        (RecordType::Verification, VERIFICATION),
        (RecordType::Correlation, CORRELATION),
        (RecordType::StateTransition, STATE_TRANSITION),
        (RecordType::StatusLookup, STATUS_LOOKUP),
        (RecordType::Processing, PROCESSING),
        (RecordType::Memory, MEMORY),
        (RecordType::Rules, RULES),
        (RecordType::Exception, EXCEPTION),
    ]
}

const RUN: &str = r#"{
  "type": "run",
  "record_id": "rec_01JDZK5T0000000000000000A1",
  "source": "agent/build",
  "run_id": "run_01JDZK5T0000000000000000R1",
  "session_id": "ses_5",
  "initiator": "oncall@example.com",
  "agent": "build-agent 3.2",
  "tenant": "acme",
  "grant": {
    "grant_id": "build:start",
    "tenant": "acme",
    "operations": ["build.start", "build.status"],
    "expires_at": "2026-11-30T18:00:00Z",
    "credential_label": "ci-prod-2"
  },
  "prompt": { "digest": "sha256:6b1f0a2c9be0c5a1f6a4c8e0b0d4d8a6f1f3c2a5978a0b4f3c1d2e3f4a5b6c7d", "length": 1840 },
  "status": "started",
  "started_at": "2026-11-30T14:02:41.120Z",
  "refs": [{ "kind": "trace_id", "value": "4bf92f3577b34da6a3ce929d0e0e4736" }]
}"#;

const ACTION: &str = r#"{
  "type": "action",
  "record_id": "rec_01JDZK5T0000000000000000A2",
  "source": "agent/build",
  "action_id": "act_01",
  "run_id": "run_01JDZK5T0000000000000000R1",
  "session_id": "ses_5",
  "actor": "build-agent",
  "tenant": "acme",
  "operation": "build.start",
  "target": {
    "kind": "http",
    "host": "builds.example.com",
    "route_template": "/v1/builds",
    "method": "POST",
    "target_id": "4711"
  },
  "provider": "builds.example.com",
  "scope": "production",
  "authorization": {
    "decision": "approved",
    "approver": "oncall@example.com",
    "approved_at": "2026-11-30T14:02:58Z",
    "expires_at": "2026-11-30T15:02:58Z",
    "grant_id": "build:start",
    "credential_label": "ci-prod-2"
  },
  "idempotency_ref": "idem_44",
  "client_reference": "act_01",
  "workflow_id": "wf_7",
  "business_object": { "system": "releases", "id": "4711", "version": "12" },
  "business_key": { "object": "4711", "version": "12", "operation": "build" },
  "expected_remote_objects": 1,
  "requested_at": "2026-11-30T14:03:07Z",
  "refs": [
    { "kind": "mcp_call", "scope": "build-server", "value": "call_19" },
    { "kind": "change_request", "value": "CR-1207" }
  ]
}"#;

const ATTEMPT: &str = r#"{
  "type": "attempt",
  "record_id": "rec_01JDZK5T0000000000000000A3",
  "source": "service/outbound",
  "attempt_id": "out_02",
  "action_id": "act_01",
  "idempotency_ref": "idem_44",
  "cause": "client_retry",
  "retry_of": "out_01",
  "request": {
    "digest": "sha256:9f2c1a7e03bd41d7c0b36a9155aa0c11e8f7d6c5b4a39281706f5e4d3c2b1a09",
    "length": 212,
    "content_type": "application/json",
    "headers": [{ "name": "Idempotency-Key", "value": "idem_44" }],
    "query": [{ "name": "dry_run", "value": "false" }],
    "body_fields": ["ref", "client_reference"]
  },
  "credential_label": "ci-prod-2",
  "sent_at": "2026-11-30T14:03:38.1Z",
  "outcome": {
    "kind": "response",
    "status": 202,
    "digest": "sha256:0c11e8f7d6c5b4a39281706f5e4d3c2b1a099f2c1a7e03bd41d7c0b36a9155aa",
    "length": 64,
    "received_at": "2026-11-30T14:03:38.62Z"
  },
  "refs": [{ "kind": "request_id", "scope": "builds.example.com", "value": "req-77f0" }]
}"#;

const REMOTE_REF: &str = r#"{
  "type": "remote_ref",
  "record_id": "rec_01JDZK5T0000000000000000A4",
  "source": "service/outbound",
  "action_id": "act_01",
  "attempt_id": "out_02",
  "provider": "builds.example.com",
  "account": "acct_9",
  "remote_operation_id": "op_9f2",
  "found_in": "body:/id",
  "observed_at": "2026-11-30T14:03:38.62Z"
}"#;

const RECEIPT: &str = r#"{
  "type": "receipt",
  "record_id": "rec_01JDZK5T0000000000000000A5",
  "source": "intake",
  "receipt_id": "rcp_02",
  "connection": "con_builds",
  "provider": "builds.example.com",
  "expected_sender": "builds.example.com webhooks",
  "tenant": "acme",
  "received_at": "2026-11-30T14:07:39.004Z",
  "method": "POST",
  "host": "hooks.acme.example",
  "route_template": "/in/{endpoint_token}",
  "headers": [
    { "name": "webhook-id", "value": "evt_88" },
    { "name": "webhook-timestamp", "value": "1796047651" }
  ],
  "content_type": "application/json",
  "source_address": "203.0.113.20",
  "raw_body_sha256": "ceccecad0b6fb4d0e6d1d5adc3bbc2f3a86b4e2cd2a80b28a52a8a1c1de9d2f7",
  "length": 331,
  "scheme": "standard_webhooks",
  "claimed": [
    {
      "provider_event_id": { "value": "evt_88", "covered": true },
      "event_type": { "value": "build.finished", "covered": true },
      "sender_time": { "value": "2026-11-30T14:07:31Z", "covered": true },
      "object_id": { "value": "bld_310", "covered": true },
      "object_version": { "value": "3", "covered": true },
      "account": { "value": "acct_9", "covered": true },
      "client_reference": { "value": "act_01", "covered": true },
      "remote_operation_id": { "value": "op_9f2", "covered": true },
      "result": { "value": "succeeded", "covered": true }
    }
  ],
  "refs": [{ "kind": "delivery_id", "scope": "builds.example.com", "value": "dlv-5512" }]
}"#;

const VERIFICATION: &str = r#"{
  "type": "verification",
  "record_id": "rec_01JDZK5T0000000000000000A6",
  "source": "intake",
  "receipt_id": "rcp_02",
  "connection": "con_builds",
  "provider": "builds.example.com",
  "provider_event_id": "evt_88",
  "account": "acct_9",
  "scheme": "standard_webhooks",
  "key_label": "key b",
  "assurance": "signed",
  "covers": ["body", "event_id", "event_type", "timestamp", "account"],
  "signature": "good",
  "freshness": "fresh",
  "skew_ms": 8004,
  "deduplication": "new",
  "account_check": "match",
  "policy": { "outcome": "permitted", "row": "build.finished", "rules": { "name": "intake", "version": "7" } },
  "decision": "accepted",
  "reason_code": "ok",
  "verified_at": "2026-11-30T14:07:39.009Z"
}"#;

const CORRELATION: &str = r#"{
  "type": "correlation",
  "record_id": "rec_01JDZK5T0000000000000000A7",
  "source": "workflow",
  "correlation_id": "cor_01",
  "action_id": "act_01",
  "attempt_id": "out_02",
  "receipt_id": "rcp_02",
  "verification": "rec_01JDZK5T0000000000000000A6",
  "provider": "builds.example.com",
  "provider_event_id": "evt_88",
  "remote_operation_id": "op_9f2",
  "basis": "remote_operation_id_exact",
  "fields_used": ["provider", "remote_operation_id"],
  "fields_digest": "sha256:41d7c0b36a9155aa0c11e8f7d6c5b4a39281706f5e4d3c2b1a099f2c1a7e03bd",
  "decided_by": { "actor": "workflow-engine", "person": false, "via": "correlator.2" },
  "decided_at": "2026-11-30T14:07:41Z"
}"#;

const STATE_TRANSITION: &str = r#"{
  "type": "state_transition",
  "record_id": "rec_01JDZK5T0000000000000000A8",
  "source": "workflow",
  "workflow_id": "wf_7",
  "action_id": "act_01",
  "from": "submitted",
  "to": "confirmed",
  "rule": "build.finished",
  "rules": { "name": "workflow", "version": "3" },
  "evidence": [
    { "kind": "receipt_id", "value": "rcp_02" },
    { "kind": "correlation_id", "value": "cor_01" }
  ],
  "business_object": { "system": "releases", "id": "4711", "version": "13" },
  "conflict": false,
  "decided_by": { "actor": "workflow-engine", "person": false },
  "decided_at": "2026-11-30T14:07:41.2Z"
}"#;

const STATUS_LOOKUP: &str = r#"{
  "type": "status_lookup",
  "record_id": "rec_01JDZK5T0000000000000000A9",
  "source": "reconciler",
  "action_id": "act_01",
  "attempt_id": "out_01",
  "provider": "builds.example.com",
  "account": "acct_9",
  "idempotency_ref": "idem_44",
  "remote_operation_id": "op_9f2",
  "authenticated": true,
  "credential_label": "ci-prod-read",
  "target": {
    "kind": "http",
    "host": "builds.example.com",
    "route_template": "/v1/operations/{id}",
    "method": "GET",
    "target_id": "op_9f2"
  },
  "result": "in_progress",
  "remote_state": "RUNNING",
  "remote_objects": 1,
  "status": 200,
  "digest": "sha256:6a9155aa0c11e8f7d6c5b4a39281706f5e4d3c2b1a099f2c1a7e03bd41d7c0b3",
  "asked_at": "2026-11-30T14:04:40Z",
  "answered_at": "2026-11-30T14:04:40.3Z"
}"#;

const PROCESSING: &str = r#"{
  "type": "processing",
  "record_id": "rec_01JDZK5T0000000000000000AA",
  "source": "worker/release",
  "job_id": "job_31",
  "receipt_id": "rcp_02",
  "provider": "builds.example.com",
  "provider_event_id": "evt_88",
  "run_id": "run_01JDZK5T0000000000000000R2",
  "workflow_id": "wf_7",
  "tenant": "acme",
  "actor": "release-bot",
  "grant_id": "release:note",
  "worker": "worker-3",
  "try_no": 2,
  "business_key": { "object": "4711", "version": "13", "operation": "release_note" },
  "object_version": "13",
  "outcome": "completed",
  "observed_at": "2026-11-30T14:08:02Z"
}"#;

const MEMORY: &str = r#"{
  "type": "memory",
  "record_id": "rec_01JDZK5T0000000000000000AB",
  "source": "agent/build",
  "memory_id": "mem_4",
  "digest": "sha256:3d3c2b1a099f2c1a7e03bd41d7c0b36a9155aa0c11e8f7d6c5b4a39281706f5e",
  "length": 96,
  "label": "untrusted",
  "derived_from": [{ "kind": "provider_event_id", "scope": "builds.example.com", "value": "evt_88" }],
  "run_id": "run_01JDZK5T0000000000000000R2",
  "tenant": "acme",
  "stored_at": "2026-11-30T14:08:03Z"
}"#;

const RULES: &str = r#"{
  "type": "rules",
  "record_id": "rec_01JDZK5T0000000000000000AC",
  "source": "ledger rules",
  "name": "workflow",
  "version": "3",
  "text": "[[rule]]\nname = \"build.finished\"\nfrom = [\"submitted\", \"unknown\"]\nto = \"confirmed\"\n",
  "digest": "sha256:856876cd65da5c0ed8263b2da68d302ca43dcd663f8b67b677f9a2df13ecddd5",
  "actor": "oncall@example.com",
  "declared_at": "2026-11-30T09:00:00+01:00"
}"#;

const EXCEPTION: &str = r#"{
  "type": "exception",
  "record_id": "rec_01JDZK5T0000000000000000AD",
  "source": "workflow",
  "exception_id": "exc_01",
  "kind": "contradiction",
  "about": [
    { "kind": "receipt_id", "value": "rcp_05" },
    { "kind": "workflow_id", "value": "wf_7" }
  ],
  "detected_by": "workflow-engine",
  "detected_at": "2026-11-30T14:12:17Z",
  "status": "open",
  "reason_code": "late_failure",
  "reason": "rcp_05 says failed for op_9f2 after wf_7 was confirmed"
}"#;
