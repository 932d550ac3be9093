//! Intent and what leaves: runs, actions, attempts, ids that came back, questions to the provider.

use super::{
    BusinessKey, BusinessObject, Fingerprint, Grant, Header, QueryParameter, Ref, needs_provider,
};
use crate::field::Cx;
use crate::macros::{fields, names, tagged};
use crate::text::{
    Code, CommandTemplate, Digest, Host, Id, Label, Method, Reason, RouteTemplate, Time,
};

names! {
    /// How far a run has come.
    pub enum RunStatus {
        /// It began.
        Started = "started",
        /// It ended by itself.
        Completed = "completed",
        /// It ended with an error.
        Failed = "failed",
        /// Somebody stopped it.
        Cancelled = "cancelled",
    }
}

fields! {
    /// One agent run.
    pub struct Run ("type" = "run") {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The run.
        run_id: Id,
        /// The session or conversation that it belongs to.
        session_id: Option<Id>,
        /// The run that started it.
        parent_run_id: Option<Id>,
        /// Who set it going: a person, a schedule, another process.
        initiator: Option<Id>,
        /// The agent, by name and version.
        agent: Option<Label>,
        /// For whose data.
        tenant: Option<Id>,
        /// The delivery that triggered it.
        trigger_receipt_id: Option<Id>,
        /// The queued work that it does.
        job_id: Option<Id>,
        /// The limited permission that it works under.
        grant: Option<Grant>,
        /// The prompt, as digest and length.
        prompt: Option<Fingerprint>,
        /// How far it has come.
        status: RunStatus,
        /// When it began, by our clock.
        started_at: Time,
        /// When it ended, by our clock.
        ended_at: Option<Time>,
        /// Why it ended so.
        reason: Option<Reason>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

fields! {
    /// A target that is reached by HTTP: enough to tell production from test, no query.
    pub struct HttpTarget ("kind" = "http") {
        /// The normalised host.
        host: Host,
        /// The path with its variable parts as names in braces.
        route_template: RouteTemplate,
        /// The method.
        method: Method,
        /// The object that the variable parts name.
        target_id: Option<Id>,
    }
}

fields! {
    /// A target that is reached by a command, for instance over SSH.
    pub struct CommandTarget ("kind" = "command") {
        /// The normalised host.
        host: Host,
        /// The command with its variable parts as names in braces.
        command_template: CommandTemplate,
        /// The object that the variable parts name.
        target_id: Option<Id>,
    }
}

tagged! {
    /// Where an action goes.
    pub enum Target by "kind" {
        /// An HTTP endpoint.
        Http(HttpTarget) = "http",
        /// A command on a host.
        Command(CommandTarget) = "command",
    }
}

names! {
    /// What became of the request for permission.
    pub enum AuthorizationDecision {
        /// Somebody or a policy allowed it.
        Approved = "approved",
        /// Somebody or a policy refused it.
        Denied = "denied",
        /// Nobody has decided yet.
        Pending = "pending",
        /// The operation needs no permission of its own.
        Exempt = "exempt",
    }
}

fields! {
    /// Who allowed an action, under what, with which credential.
    pub struct Authorization {
        /// The decision.
        decision: AuthorizationDecision,
        /// The person or policy that decided.
        approver: Option<Id>,
        /// When it was decided.
        approved_at: Option<Time>,
        /// When the permission ends.
        expires_at: Option<Time>,
        /// The permission that it was decided under.
        grant_id: Option<Id>,
        /// The policy or rule that applied.
        policy: Option<Label>,
        /// The label of the credential that is used; never the credential.
        credential_label: Option<Label>,
        /// Why.
        reason: Option<Reason>,
    }
}

fields! {
    /// An instruction: what is asked, of whom, allowed by whom. Recorded before any network call.
    pub struct Action ("type" = "action") with check {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The action; the same for every repeat.
        action_id: Id,
        /// The run that asks.
        run_id: Option<Id>,
        /// The session that asks.
        session_id: Option<Id>,
        /// Who asks.
        actor: Id,
        /// For whose data.
        tenant: Option<Id>,
        /// What is asked.
        operation: Label,
        /// Where it goes.
        target: Target,
        /// The provider, as its ids will be scoped.
        provider: Option<Label>,
        /// How far the target reaches: environment, project, region.
        scope: Option<Label>,
        /// Who allowed it.
        authorization: Authorization,
        /// The key by which the provider recognises repeats.
        idempotency_ref: Option<Id>,
        /// The reference that the provider echoes; needs `provider`.
        client_reference: Option<Id>,
        /// The workflow whose state depends on it.
        workflow_id: Option<Id>,
        /// The business object that it serves.
        business_object: Option<BusinessObject>,
        /// The effect that must happen only once.
        business_key: Option<BusinessKey>,
        /// The delivery that led to it; gives no permission.
        caused_by_receipt_id: Option<Id>,
        /// How many objects the provider should end up with.
        expected_remote_objects: Option<u64>,
        /// The digest of the arguments.
        arguments: Option<Fingerprint>,
        /// The prompt, as digest and length.
        prompt: Option<Fingerprint>,
        /// When the action was made, by our clock.
        requested_at: Time,
        /// Why it is asked.
        reason: Option<Reason>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

names! {
    /// Who repeated, or that nobody did.
    pub enum Cause {
        /// The first transmission.
        Initial = "initial",
        /// The agent asked again.
        AgentRetry = "agent_retry",
        /// The HTTP client sent again.
        ClientRetry = "client_retry",
        /// A queue handed the work out again.
        QueueRedelivery = "queue_redelivery",
        /// A person sent again.
        Operator = "operator",
    }
}

fields! {
    /// A request as it can be shown: no body, no credential.
    pub struct RequestShape {
        /// The digest of the exact body.
        digest: Option<Digest>,
        /// The length of the body in bytes.
        length: Option<u64>,
        /// Its media type.
        content_type: Option<Label>,
        /// Selected headers.
        headers: Vec<Header>,
        /// The query, sensitive values left out.
        query: Vec<QueryParameter>,
        /// The body's members by name, without values.
        body_fields: Vec<Label>,
    }
}

fields! {
    /// Nothing is known yet: written before the bytes leave.
    pub struct Pending ("kind" = "pending") {
        /// When the client will give up waiting, by its clock.
        deadline: Option<Time>,
    }
}

fields! {
    /// The provider answered. A status in the 200s settles the exchange, not the work.
    pub struct Response ("kind" = "response") {
        /// The HTTP status, or the command's exit status.
        status: u64,
        /// The digest of the answer's body.
        digest: Option<Digest>,
        /// The length of the answer's body in bytes.
        length: Option<u64>,
        /// Selected headers.
        headers: Vec<Header>,
        /// When the client heard it, by its clock.
        received_at: Time,
    }
}

fields! {
    /// No answer in time. It may or may not have been carried out.
    pub struct Timeout ("kind" = "timeout") {
        /// How long the client waited, in milliseconds.
        waited_ms: Option<u64>,
        /// When it gave up, by its clock.
        observed_at: Time,
    }
}

fields! {
    /// The connection failed. Whether bytes reached the provider may be unknown.
    pub struct TransportError ("kind" = "transport_error") {
        /// What failed, such as `connection_reset`.
        error: Code,
        /// True when it is certain that no byte of the request left.
        before_send: Option<bool>,
        /// When it failed, by the client's clock.
        observed_at: Time,
    }
}

tagged! {
    /// What became of one transmission.
    pub enum AttemptOutcome by "kind" {
        /// Not known yet.
        Pending(Pending) = "pending",
        /// Answered.
        Response(Response) = "response",
        /// Not answered in time.
        Timeout(Timeout) = "timeout",
        /// The connection failed.
        TransportError(TransportError) = "transport_error",
    }
}

fields! {
    /// One transmission of an action. Written `pending` before the bytes leave, and again with the outcome.
    pub struct Attempt ("type" = "attempt") {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The attempt; new for every transmission.
        attempt_id: Id,
        /// The action that it transmits.
        action_id: Id,
        /// The key that was sent with it. Does not prove that it arrived.
        idempotency_ref: Option<Id>,
        /// Who repeated.
        cause: Cause,
        /// The attempt that it repeats.
        retry_of: Option<Id>,
        /// Where it went, when the action does not say it.
        target: Option<Target>,
        /// What was sent, redacted.
        request: RequestShape,
        /// The label of the credential that was used; never the credential.
        credential_label: Option<Label>,
        /// When the client sent it, by its clock.
        sent_at: Time,
        /// What became of it.
        outcome: AttemptOutcome,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

fields! {
    /// An id that the provider returned, recorded beside what it came with.
    pub struct RemoteRef ("type" = "remote_ref") with check {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The action that it answers.
        action_id: Id,
        /// The attempt whose answer held it.
        attempt_id: Option<Id>,
        /// The status look-up whose answer held it, by its record id.
        status_lookup: Option<Id>,
        /// The provider.
        provider: Label,
        /// The account at the provider.
        account: Option<Id>,
        /// The provider's id of the work.
        remote_operation_id: Option<Id>,
        /// The provider's id of an object that came out of it.
        remote_object_id: Option<Id>,
        /// The kind of that object.
        object_type: Option<Label>,
        /// Where in the answer it stood, such as `body:/id`.
        found_in: Option<Label>,
        /// When we saw it, by our clock.
        observed_at: Time,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

names! {
    /// What the provider answers about the work.
    pub enum LookupResult {
        /// Accepted or running.
        InProgress = "in_progress",
        /// Done.
        Succeeded = "succeeded",
        /// Authoritatively failed.
        Failed = "failed",
        /// Cancelled at the provider.
        Cancelled = "cancelled",
        /// The provider knows no such work.
        NotFound = "not_found",
        /// Our credentials may not see it.
        Forbidden = "forbidden",
        /// No usable answer.
        Unavailable = "unavailable",
        /// An answer that the client cannot read.
        Unknown = "unknown",
    }
}

fields! {
    /// An authenticated question to the provider, and its answer.
    pub struct StatusLookup ("type" = "status_lookup") {
        /// This record's own id; remote references and correlations cite it.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The action that is asked about.
        action_id: Id,
        /// The attempt that is asked about.
        attempt_id: Option<Id>,
        /// The provider.
        provider: Label,
        /// The account at the provider.
        account: Option<Id>,
        /// Asked by the provider's id of the work.
        remote_operation_id: Option<Id>,
        /// Asked by our reference.
        client_reference: Option<Id>,
        /// Asked by the key of the repeats.
        idempotency_ref: Option<Id>,
        /// The object that the answer names.
        remote_object_id: Option<Id>,
        /// The version of that object.
        object_version: Option<Id>,
        /// True when the question went out under our own credentials over a connection that authenticates the provider.
        authenticated: bool,
        /// The label of the credential that was used; never the credential.
        credential_label: Option<Label>,
        /// Where the question went.
        target: Option<Target>,
        /// What the provider answers.
        result: LookupResult,
        /// The provider's own word for it.
        remote_state: Option<Label>,
        /// How many objects the answer counts.
        remote_objects: Option<u64>,
        /// The HTTP status.
        status: Option<u64>,
        /// The digest of the answer's body.
        digest: Option<Digest>,
        /// When we asked, by our clock.
        asked_at: Time,
        /// When the answer was there, by our clock.
        answered_at: Option<Time>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

impl Action {
    fn check(&self, cx: &mut Cx) {
        needs_provider(
            cx,
            self.provider.as_ref(),
            &[self.client_reference.as_ref()],
        );
    }
}

impl RemoteRef {
    fn check(&self, cx: &mut Cx) {
        if self.remote_operation_id.is_none() && self.remote_object_id.is_none() {
            cx.needs(
                "remote_operation_id",
                "name the id that the provider returned, here or as remote_object_id",
            );
        }
    }
}
