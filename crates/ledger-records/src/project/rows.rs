//! What each record type projects: one function a type, in the order of the specification's rows.

use std::borrow::Cow;

use super::{FactRef, K, Projection, R};
use crate::text::Label;
use crate::types::{
    Action, Attempt, AttemptOutcome, Claim, ClaimedEvent, Correlation, Exception, Memory,
    Processing, Receipt, RemoteRef, Rules, Run, StateTransition, StatusLookup, Verification,
};

pub(super) fn run<'a>(record: &'a Run, out: &mut Projection<'a>) {
    out.id(R::Subject, K::RunId, &record.run_id);
    out.id_if(R::PartOf, K::SessionId, &record.session_id);
    out.id_if(R::CausedBy, K::RunId, &record.parent_run_id);
    out.id_if(R::By, K::Actor, &record.initiator);
    out.id_if(R::PartOf, K::Tenant, &record.tenant);
    out.id_if(R::CausedBy, K::ReceiptId, &record.trigger_receipt_id);
    out.id_if(R::PartOf, K::JobId, &record.job_id);
    if let Some(grant) = &record.grant {
        out.grant(grant);
    }
    out.text("status", record.status.as_str());
    out.text("started_at", record.started_at.as_str());
    out.text_if("ended_at", &record.ended_at);
}

pub(super) fn action<'a>(record: &'a Action, out: &mut Projection<'a>) {
    let (provider, authorization) = (record.provider.as_ref(), &record.authorization);
    out.id(R::Subject, K::ActionId, &record.action_id);
    out.id_if(R::PartOf, K::RunId, &record.run_id);
    out.id_if(R::PartOf, K::SessionId, &record.session_id);
    out.id(R::By, K::Actor, &record.actor);
    out.id_if(R::PartOf, K::Tenant, &record.tenant);
    out.id_if(R::ApprovedBy, K::Actor, &authorization.approver);
    out.id_if(R::Under, K::Grant, &authorization.grant_id);
    out.id_if(R::Names, K::IdempotencyRef, &record.idempotency_ref);
    out.of_provider(
        R::Expects,
        K::ClientReference,
        provider,
        &record.client_reference,
    );
    out.id_if(R::PartOf, K::WorkflowId, &record.workflow_id);
    out.business_object(R::Names, &record.business_object);
    out.business_key(R::Names, &record.business_key);
    out.id_if(R::CausedBy, K::ReceiptId, &record.caused_by_receipt_id);
    out.text("operation", record.operation.as_str());
    out.target(&record.target);
    out.text_if("scope", &record.scope);
    out.text_if("provider", &record.provider);
    out.text("decision", authorization.decision.as_str());
    out.text_if("approved_at", &authorization.approved_at);
    out.text_if("grant_expires_at", &authorization.expires_at);
    out.text_if("policy", &authorization.policy);
    out.text_if("credential_label", &authorization.credential_label);
    out.uint_if("expected_remote_objects", record.expected_remote_objects);
    out.text("requested_at", record.requested_at.as_str());
}

pub(super) fn attempt<'a>(record: &'a Attempt, out: &mut Projection<'a>) {
    out.id(R::Subject, K::AttemptId, &record.attempt_id);
    out.id(R::PartOf, K::ActionId, &record.action_id);
    out.id_if(R::Names, K::IdempotencyRef, &record.idempotency_ref);
    out.id_if(R::RetryOf, K::AttemptId, &record.retry_of);
    out.text("cause", record.cause.as_str());
    if let Some(target) = &record.target {
        out.target(target);
    }
    out.text_if("credential_label", &record.credential_label);
    out.text_if("request_digest", &record.request.digest);
    out.text("sent_at", record.sent_at.as_str());
    out.text("outcome", record.outcome.name());
    match &record.outcome {
        AttemptOutcome::Pending(pending) => out.text_if("deadline", &pending.deadline),
        AttemptOutcome::Response(response) => {
            out.fact("status", FactRef::Uint(response.status));
            out.text("observed_at", response.received_at.as_str());
        }
        AttemptOutcome::Timeout(timeout) => out.text("observed_at", timeout.observed_at.as_str()),
        AttemptOutcome::TransportError(error) => {
            out.text("error", error.error.as_str());
            out.bool_if("before_send", error.before_send);
            out.text("observed_at", error.observed_at.as_str());
        }
    }
}

pub(super) fn remote_ref<'a>(record: &'a RemoteRef, out: &mut Projection<'a>) {
    let provider = Some(&record.provider);
    out.id(R::PartOf, K::ActionId, &record.action_id);
    out.id_if(R::Evidence, K::AttemptId, &record.attempt_id);
    out.id_if(R::Evidence, K::RecordId, &record.status_lookup);
    out.of_provider(R::PartOf, K::Account, provider, &record.account);
    out.of_provider(
        R::Names,
        K::RemoteOperationId,
        provider,
        &record.remote_operation_id,
    );
    out.of_provider(
        R::Names,
        K::RemoteObjectId,
        provider,
        &record.remote_object_id,
    );
    out.text("provider", record.provider.as_str());
    out.text_if("object_type", &record.object_type);
    out.text("observed_at", record.observed_at.as_str());
}

pub(super) fn receipt<'a>(record: &'a Receipt, out: &mut Projection<'a>) {
    let provider = record.provider.as_str();
    out.id(R::Subject, K::ReceiptId, &record.receipt_id);
    out.id(R::PartOf, K::Connection, &record.connection);
    out.id_if(R::PartOf, K::Tenant, &record.tenant);
    out.push(
        R::Names,
        K::RawBodySha256,
        "".into(),
        record.raw_body_sha256.as_str().into(),
    );
    for event in &record.claimed {
        let claims = [
            (K::ProviderEventId, &event.provider_event_id),
            (K::RemoteOperationId, &event.remote_operation_id),
            (K::RemoteObjectId, &event.object_id),
            (K::ClientReference, &event.client_reference),
            (K::Account, &event.account),
        ];
        for (kind, claim) in claims {
            if let Some(claim) = claim {
                out.scoped(R::Claims, kind, provider, &claim.value);
            }
        }
    }
    out.text("provider", provider);
    out.text_if("expected_sender", &record.expected_sender);
    out.text("received_at", record.received_at.as_str());
    out.text("method", record.method.as_str());
    out.text("route_template", record.route_template.as_str());
    out.fact("length", FactRef::Uint(record.length));
    out.text_if("payload_class", &record.payload_class);
    out.text_if("scheme", &record.scheme);
    claimed_facts(record, out);
}

/// Arrays with one element an event, empty text where the event does not claim it; left out where none does.
fn claimed_facts<'a>(record: &'a Receipt, out: &mut Projection<'a>) {
    type Get = for<'e> fn(&'e ClaimedEvent) -> Option<&'e Claim>;
    let columns: [(&'static str, Get); 6] = [
        ("claimed_event_ids", |event| {
            event.provider_event_id.as_ref()
        }),
        ("claimed_event_types", |event| event.event_type.as_ref()),
        ("claimed_event_actions", |event| event.event_action.as_ref()),
        ("claimed_event_versions", |event| {
            event.event_version.as_ref()
        }),
        ("claimed_object_versions", |event| {
            event.object_version.as_ref()
        }),
        ("claimed_results", |event| event.result.as_ref()),
    ];
    for (name, get) in columns {
        if record.claimed.iter().any(|event| get(event).is_some()) {
            out.texts(
                name,
                record
                    .claimed
                    .iter()
                    .map(|event| get(event).map_or("", |claim| claim.value.as_str())),
            );
        }
    }
    if !record.claimed.is_empty() {
        let covered = record
            .claimed
            .iter()
            .map(|event| Cow::Owned(event.covered_members().join(" ")));
        out.fact("claimed_covered", FactRef::Texts(covered.collect()));
    }
    if record
        .claimed
        .iter()
        .any(|event| event.sender_time.is_some())
    {
        let times = record.claimed.iter().map(|event| {
            event
                .sender_time
                .as_ref()
                .map_or("", |time| time.value.as_str())
        });
        out.texts("claimed_sender_times", times);
    }
}

pub(super) fn verification<'a>(record: &'a Verification, out: &mut Projection<'a>) {
    let provider = record.provider.as_ref();
    out.id(R::Subject, K::ReceiptId, &record.receipt_id);
    out.id_if(R::PartOf, K::Connection, &record.connection);
    out.of_provider(
        R::Names,
        K::ProviderEventId,
        provider,
        &record.provider_event_id,
    );
    out.of_provider(R::PartOf, K::Account, provider, &record.account);
    out.id_if(R::DuplicateOf, K::ReceiptId, &record.duplicate_of);
    out.text_if("provider", &record.provider);
    out.text("scheme", record.scheme.as_str());
    out.text_if("key_label", &record.key_label);
    out.text("assurance", record.assurance.as_str());
    out.texts("covers", record.covers.iter().map(|part| part.as_str()));
    out.text("signature", record.signature.as_str());
    out.text("freshness", record.freshness.as_str());
    if let Some(skew) = record.skew_ms {
        out.fact("skew_ms", FactRef::Int(skew));
    }
    out.text("deduplication", record.deduplication.as_str());
    out.text("account_check", record.account_check.as_str());
    if let Some(policy) = &record.policy {
        out.rules(policy.rules.as_ref());
        out.text("policy", policy.outcome.as_str());
        out.text_if("policy_row", &policy.row);
    }
    out.text("decision", record.decision.as_str());
    out.text("reason_code", record.reason_code.as_str());
    out.text("verified_at", record.verified_at.as_str());
}

pub(super) fn correlation<'a>(record: &'a Correlation, out: &mut Projection<'a>) {
    let provider = record.provider.as_ref();
    out.id(R::Subject, K::CorrelationId, &record.correlation_id);
    out.id(R::Names, K::ActionId, &record.action_id);
    out.id_if(R::Names, K::AttemptId, &record.attempt_id);
    out.id_if(R::Evidence, K::ReceiptId, &record.receipt_id);
    out.id_if(R::Evidence, K::RecordId, &record.status_lookup);
    out.id_if(R::Evidence, K::RecordId, &record.verification);
    out.of_provider(
        R::Evidence,
        K::ProviderEventId,
        provider,
        &record.provider_event_id,
    );
    out.of_provider(
        R::Evidence,
        K::RemoteOperationId,
        provider,
        &record.remote_operation_id,
    );
    out.of_provider(
        R::Evidence,
        K::RemoteObjectId,
        provider,
        &record.remote_object_id,
    );
    out.of_provider(
        R::Evidence,
        K::ClientReference,
        provider,
        &record.client_reference,
    );
    out.text_if("provider", &record.provider);
    out.text("basis", record.basis.as_str());
    out.texts("fields_used", record.fields_used.iter().map(Label::as_str));
    out.text("fields_digest", record.fields_digest.as_str());
    out.decided(&record.decided_by, &record.decided_at);
}

pub(super) fn state_transition<'a>(record: &'a StateTransition, out: &mut Projection<'a>) {
    out.id(R::Subject, K::WorkflowId, &record.workflow_id);
    out.id_if(R::PartOf, K::ActionId, &record.action_id);
    out.refs(R::Evidence, &record.evidence);
    out.business_object(R::Names, &record.business_object);
    out.id_if(R::Names, K::ExceptionId, &record.exception_id);
    if let Some(from) = record.from {
        out.text("from", from.as_str());
    }
    out.text("to", record.to.as_str());
    out.text("rule", record.rule.as_str());
    out.rules(record.rules.as_ref());
    out.bool_if("conflict", record.conflict);
    out.decided(&record.decided_by, &record.decided_at);
}

pub(super) fn status_lookup<'a>(record: &'a StatusLookup, out: &mut Projection<'a>) {
    let provider = Some(&record.provider);
    out.id(R::PartOf, K::ActionId, &record.action_id);
    out.id_if(R::PartOf, K::AttemptId, &record.attempt_id);
    out.of_provider(R::PartOf, K::Account, provider, &record.account);
    out.of_provider(
        R::Names,
        K::RemoteOperationId,
        provider,
        &record.remote_operation_id,
    );
    out.of_provider(
        R::Names,
        K::ClientReference,
        provider,
        &record.client_reference,
    );
    out.id_if(R::Names, K::IdempotencyRef, &record.idempotency_ref);
    out.of_provider(
        R::Names,
        K::RemoteObjectId,
        provider,
        &record.remote_object_id,
    );
    out.text("provider", record.provider.as_str());
    out.text_if("object_version", &record.object_version);
    out.fact("authenticated", FactRef::Bool(record.authenticated));
    out.text_if("credential_label", &record.credential_label);
    if let Some(target) = &record.target {
        out.target(target);
    }
    out.text("result", record.result.as_str());
    out.uint_if("remote_objects", record.remote_objects);
    out.uint_if("status", record.status);
    out.text("asked_at", record.asked_at.as_str());
    out.text_if("answered_at", &record.answered_at);
}

pub(super) fn processing<'a>(record: &'a Processing, out: &mut Projection<'a>) {
    out.id(R::Subject, K::JobId, &record.job_id);
    out.id_if(R::CausedBy, K::ReceiptId, &record.receipt_id);
    out.of_provider(
        R::CausedBy,
        K::ProviderEventId,
        record.provider.as_ref(),
        &record.provider_event_id,
    );
    out.id_if(R::PartOf, K::RunId, &record.run_id);
    out.id_if(R::Names, K::ActionId, &record.action_id);
    out.id_if(R::PartOf, K::WorkflowId, &record.workflow_id);
    out.id_if(R::PartOf, K::Tenant, &record.tenant);
    out.id_if(R::By, K::Actor, &record.actor);
    out.id_if(R::Under, K::Grant, &record.grant_id);
    out.business_key(R::Names, &record.business_key);
    out.id_if(R::PartOf, K::JobId, &record.merged_into_job_id);
    out.text_if("provider", &record.provider);
    out.text_if("worker", &record.worker);
    out.fact("try_no", FactRef::Uint(record.try_no));
    out.text_if("object_version", &record.object_version);
    out.text("outcome", record.outcome.as_str());
    out.text_if("reason_code", &record.reason_code);
    out.text("observed_at", record.observed_at.as_str());
    out.text_if("lease_expires_at", &record.lease_expires_at);
    out.text_if("not_before", &record.not_before);
}

pub(super) fn memory<'a>(record: &'a Memory, out: &mut Projection<'a>) {
    out.id(R::Subject, K::MemoryId, &record.memory_id);
    out.refs(R::DerivedFrom, &record.derived_from);
    out.id_if(R::PartOf, K::RunId, &record.run_id);
    out.id_if(R::PartOf, K::SessionId, &record.session_id);
    out.id_if(R::By, K::Actor, &record.actor);
    out.id_if(R::PartOf, K::Tenant, &record.tenant);
    out.text("label", record.label.as_str());
    out.text("digest", record.digest.as_str());
    out.text("stored_at", record.stored_at.as_str());
}

pub(super) fn rules<'a>(record: &'a Rules, out: &mut Projection<'a>) {
    out.push(
        R::Subject,
        K::RuleSet,
        "".into(),
        record.name.as_str().into(),
    );
    out.id_if(R::By, K::Actor, &record.actor);
    out.id_if(R::ApprovedBy, K::Actor, &record.approver);
    out.text("rules_version", record.version.as_str());
    out.text("digest", record.digest.as_str());
    out.text("declared_at", record.declared_at.as_str());
}

pub(super) fn exception<'a>(record: &'a Exception, out: &mut Projection<'a>) {
    out.id(R::Subject, K::ExceptionId, &record.exception_id);
    out.refs(R::Evidence, &record.about);
    out.text("kind", record.kind.as_str());
    out.text("detected_by", record.detected_by.as_str());
    out.text("detected_at", record.detected_at.as_str());
    out.text("status", record.status.as_str());
    out.text_if("reason_code", &record.reason_code);
    if let Some(resolution) = &record.resolution {
        out.text("decision", resolution.decision.as_str());
        out.decided(&resolution.decided_by, &resolution.decided_at);
    }
}
