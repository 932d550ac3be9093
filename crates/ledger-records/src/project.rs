//! The projection of a record: the identifiers that it is found by, and the facts that rules, conditions and flags
//! read. Everything else stays in the body. Implements ledger-format.md, "Envelope plaintext": whoever holds the body
//! computes the same envelope.

use std::borrow::Cow;

use crate::identifiers::{IdKind, IdentifierRef, Relation};
use crate::record::Record;
use crate::text::{Id, Label, Time};
use crate::types::{
    Action, Attempt, AttemptOutcome, BusinessKey, BusinessObject, Correlation, DecidedBy,
    Exception, Grant, Memory, Processing, Receipt, Ref, RemoteRef, RuleRef, Rules, Run,
    StateTransition, StatusLookup, Target, Verification,
};

use IdKind as K;
use Relation as R;

/// The value of a fact while it is projected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FactRef<'a> {
    Uint(u64),
    Int(i64),
    Text(Cow<'a, str>),
    Bool(bool),
    Texts(Vec<Cow<'a, str>>),
}

/// Where a projection goes: only identifiers, or both.
pub(crate) struct Projection<'a> {
    pub(crate) identifiers: Vec<IdentifierRef<'a>>,
    pub(crate) facts: Vec<(&'static str, FactRef<'a>)>,
}

impl<'a> Projection<'a> {
    fn id(&mut self, relation: Relation, kind: IdKind, value: &'a Id) {
        self.scoped(relation, kind, "", value);
    }

    fn id_if(&mut self, relation: Relation, kind: IdKind, value: &'a Option<Id>) {
        if let Some(value) = value {
            self.id(relation, kind, value);
        }
    }

    fn scoped(&mut self, relation: Relation, kind: IdKind, scope: &'a str, value: &'a Id) {
        self.push(
            relation,
            kind,
            Cow::Borrowed(scope),
            Cow::Borrowed(value.as_str()),
        );
    }

    /// An id of a provider; the types require the provider's name where one is given.
    fn of_provider(
        &mut self,
        relation: Relation,
        kind: IdKind,
        provider: Option<&'a Label>,
        value: &'a Option<Id>,
    ) {
        if let (Some(provider), Some(value)) = (provider, value) {
            self.scoped(relation, kind, provider.as_str(), value);
        }
    }

    fn push(&mut self, relation: Relation, kind: IdKind, scope: Cow<'a, str>, value: Cow<'a, str>) {
        self.identifiers.push(IdentifierRef {
            kind,
            relation,
            scope,
            value,
        });
    }

    fn refs(&mut self, relation: Relation, refs: &'a [Ref]) {
        for item in refs {
            let (kind, value) = (item.id_kind(), Cow::Borrowed(item.value.as_str()));
            let scope = item.scope.as_ref().map_or("", Label::as_str);
            let scope = match (kind, scope) {
                (IdKind::Other, "") => Cow::Borrowed(item.kind.as_str()),
                (IdKind::Other, scope) => Cow::Owned(format!("{}/{scope}", item.kind)),
                (_, scope) => Cow::Borrowed(scope),
            };
            self.push(relation, kind, scope, value);
        }
    }

    fn business_key(&mut self, relation: Relation, key: &'a Option<BusinessKey>) {
        if let Some(key) = key {
            let mut value = escape(key.object.as_str());
            if let Some(version) = &key.version {
                value = Cow::Owned(format!("{value}/{}", escape(version.as_str())));
            }
            self.push(
                relation,
                IdKind::BusinessKey,
                Cow::Borrowed(key.operation.as_str()),
                value,
            );
        }
    }

    fn business_object(&mut self, relation: Relation, object: &'a Option<BusinessObject>) {
        if let Some(object) = object {
            let system = object.system.as_ref().map_or("", Label::as_str);
            self.scoped(relation, IdKind::BusinessObject, system, &object.id);
            self.text_if("object_version", &object.version);
        }
    }

    fn fact(&mut self, name: &'static str, value: FactRef<'a>) {
        self.facts.push((name, value));
    }

    fn text(&mut self, name: &'static str, value: &'a str) {
        self.fact(name, FactRef::Text(Cow::Borrowed(value)));
    }

    fn text_if(&mut self, name: &'static str, value: &'a Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.text(name, value.as_ref());
        }
    }

    fn uint_if(&mut self, name: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.fact(name, FactRef::Uint(value));
        }
    }

    fn bool_if(&mut self, name: &'static str, value: Option<bool>) {
        if let Some(value) = value {
            self.fact(name, FactRef::Bool(value));
        }
    }

    /// An array, left out when it is empty.
    fn texts(&mut self, name: &'static str, values: impl Iterator<Item = &'a str>) {
        let values: Vec<_> = values.map(Cow::Borrowed).collect();
        if !values.is_empty() {
            self.fact(name, FactRef::Texts(values));
        }
    }

    fn rules(&mut self, rules: Option<&'a RuleRef>) {
        if let Some(rules) = rules {
            self.push(R::Under, K::RuleSet, "".into(), rules.name.as_str().into());
            self.text("rules_version", rules.version.as_str());
        }
    }

    fn decided(&mut self, by: &'a DecidedBy, at: &'a Time) {
        self.id(R::By, K::Actor, &by.actor);
        self.fact("decided_by_person", FactRef::Bool(by.person));
        self.text("decided_at", at.as_str());
    }

    fn target(&mut self, target: &'a Target) {
        self.text("target_kind", target.name());
        match target {
            Target::Http(http) => {
                self.text("target_host", http.host.as_str());
                self.text("target_method", http.method.as_str());
                self.text("target_route", http.route_template.as_str());
                self.text_if("target_id", &http.target_id);
            }
            Target::Command(command) => {
                self.text("target_host", command.host.as_str());
                self.text("target_command", command.command_template.as_str());
                self.text_if("target_id", &command.target_id);
            }
        }
    }

    fn grant(&mut self, grant: &'a Grant) {
        self.id(R::Under, K::Grant, &grant.grant_id);
        self.text_if("grant_tenant", &grant.tenant);
        self.text_if("grant_expires_at", &grant.expires_at);
        self.texts(
            "grant_operations",
            grant.operations.iter().map(Label::as_str),
        );
    }
}

/// Two parts of a business key meet at a slash, so a slash inside one is escaped.
fn escape(part: &str) -> Cow<'_, str> {
    if part.contains(['/', '%']) {
        Cow::Owned(part.replace('%', "%25").replace('/', "%2F"))
    } else {
        Cow::Borrowed(part)
    }
}

/// Projects a record.
pub(crate) fn projection(record: &Record) -> Projection<'_> {
    let mut out = Projection {
        identifiers: Vec::with_capacity(12),
        facts: Vec::with_capacity(16),
    };
    match record {
        Record::Run(record) => run(record, &mut out),
        Record::Action(record) => action(record, &mut out),
        Record::Attempt(record) => attempt(record, &mut out),
        Record::RemoteRef(record) => remote_ref(record, &mut out),
        Record::Receipt(record) => receipt(record, &mut out),
        Record::Verification(record) => verification(record, &mut out),
        Record::Correlation(record) => correlation(record, &mut out),
        Record::StateTransition(record) => state_transition(record, &mut out),
        Record::StatusLookup(record) => status_lookup(record, &mut out),
        Record::Processing(record) => processing(record, &mut out),
        Record::Memory(record) => memory(record, &mut out),
        Record::Rules(record) => rules(record, &mut out),
        Record::Exception(record) => exception(record, &mut out),
    }
    out.refs(R::Refs, record.refs());
    out.text_if("source", record.source_field());
    out.facts
        .sort_unstable_by(|a, b| a.0.len().cmp(&b.0.len()).then(a.0.cmp(b.0)));
    out
}

fn run<'a>(record: &'a Run, out: &mut Projection<'a>) {
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

fn action<'a>(record: &'a Action, out: &mut Projection<'a>) {
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

fn attempt<'a>(record: &'a Attempt, out: &mut Projection<'a>) {
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

fn remote_ref<'a>(record: &'a RemoteRef, out: &mut Projection<'a>) {
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

fn receipt<'a>(record: &'a Receipt, out: &mut Projection<'a>) {
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
    type Get = for<'e> fn(&'e crate::types::ClaimedEvent) -> Option<&'e crate::types::Claim>;
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

fn verification<'a>(record: &'a Verification, out: &mut Projection<'a>) {
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

fn correlation<'a>(record: &'a Correlation, out: &mut Projection<'a>) {
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

fn state_transition<'a>(record: &'a StateTransition, out: &mut Projection<'a>) {
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

fn status_lookup<'a>(record: &'a StatusLookup, out: &mut Projection<'a>) {
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

fn processing<'a>(record: &'a Processing, out: &mut Projection<'a>) {
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

fn memory<'a>(record: &'a Memory, out: &mut Projection<'a>) {
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

fn rules<'a>(record: &'a Rules, out: &mut Projection<'a>) {
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

fn exception<'a>(record: &'a Exception, out: &mut Projection<'a>) {
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
