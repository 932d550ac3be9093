//! What is concluded: joins, changes of state, and what could not be settled.
//! Whether the evidence supports a conclusion is judged by the rules, not by these types.

use super::{BusinessObject, DecidedBy, Ref, RuleRef, needs_provider};
use crate::field::Cx;
use crate::macros::{fields, names};
use crate::text::{Code, Digest, Id, Label, Reason, Time};

names! {
    /// What a join rests on. There is no basis for likeness.
    pub enum Basis {
        /// The provider's id of the work, as recorded when it was returned.
        RemoteOperationIdExact = "remote_operation_id_exact",
        /// Our reference, echoed by a provider that is known to echo it.
        ClientReferenceExact = "client_reference_exact",
        /// The answer to an authenticated question.
        AuthenticatedStatusLookup = "authenticated_status_lookup",
        /// A person looked and decided.
        ManualReview = "manual_review",
    }
}

fields! {
    /// A join between an action and what came back, as an event of its own.
    pub struct Correlation ("type" = "correlation") with check {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The join.
        correlation_id: Id,
        /// The action.
        action_id: Id,
        /// The attempt, where it is known.
        attempt_id: Option<Id>,
        /// The delivery.
        receipt_id: Option<Id>,
        /// The status look-up, by its record id.
        status_lookup: Option<Id>,
        /// The verification that accepted the delivery, by its record id.
        verification: Option<Id>,
        /// The provider; needed with any of its ids.
        provider: Option<Label>,
        /// The event.
        provider_event_id: Option<Id>,
        /// The provider's id of the work.
        remote_operation_id: Option<Id>,
        /// The provider's id of the object.
        remote_object_id: Option<Id>,
        /// Our reference.
        client_reference: Option<Id>,
        /// What the join rests on.
        basis: Basis,
        /// The names of the fields that were compared.
        fields_used: Vec<Label>,
        /// SHA-256 of the values of `fields_used` in that order, joined by a newline.
        fields_digest: Digest,
        /// Who decided.
        decided_by: DecidedBy,
        /// When, by our clock.
        decided_at: Time,
        /// Why.
        reason: Option<Reason>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

names! {
    /// A state of a workflow.
    pub enum State {
        /// The action passed authorization and a work item exists.
        Requested = "requested",
        /// The provider took it, or its taking is being checked.
        Submitted = "submitted",
        /// A verified event or an authenticated answer says that it is done.
        Confirmed = "confirmed",
        /// Authoritative evidence says that it failed.
        Failed = "failed",
        /// It cannot be established yet.
        Unknown = "unknown",
        /// It was called off.
        Cancelled = "cancelled",
    }
}

fields! {
    /// A change of a workflow's state.
    pub struct StateTransition ("type" = "state_transition") {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The workflow.
        workflow_id: Id,
        /// The action that it is about.
        action_id: Option<Id>,
        /// The state before; absent for the first one.
        from: Option<State>,
        /// The state after.
        to: State,
        /// The rule that allows the change.
        rule: Label,
        /// The rule set that holds it.
        rules: Option<RuleRef>,
        /// What it rests on.
        evidence: Vec<Ref>,
        /// The business object that changed.
        business_object: Option<BusinessObject>,
        /// True when evidence contradicts the change.
        conflict: Option<bool>,
        /// The exception that keeps the contradiction.
        exception_id: Option<Id>,
        /// Who decided.
        decided_by: DecidedBy,
        /// When, by our clock.
        decided_at: Time,
        /// Why.
        reason: Option<Reason>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

names! {
    /// Whether an exception still waits.
    pub enum ExceptionStatus {
        /// Nobody has decided.
        Open = "open",
        /// A person has decided.
        Resolved = "resolved",
    }
}

fields! {
    /// A person's decision about an exception.
    pub struct Resolution {
        /// What was decided, as a code.
        decision: Code,
        /// Who decided.
        decided_by: DecidedBy,
        /// When, by our clock.
        decided_at: Time,
    }
}

fields! {
    /// Something unpaired or contradictory. Never closed by itself.
    pub struct Exception ("type" = "exception") with check {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The exception.
        exception_id: Id,
        /// What is wrong, such as `contradiction`, `unpaired_action`, `unpaired_operation`, `unpaired_callback`.
        kind: Code,
        /// What it concerns.
        about: Vec<Ref>,
        /// Who noticed.
        detected_by: Label,
        /// When, by our clock.
        detected_at: Time,
        /// Whether it still waits.
        status: ExceptionStatus,
        /// A person's decision, in a later record of the same exception.
        resolution: Option<Resolution>,
        /// What it may come from, as a code, such as `wrong_endpoint` or `signature_rotation`.
        reason_code: Option<Code>,
        /// What is known.
        reason: Option<Reason>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

impl Correlation {
    fn check(&self, cx: &mut Cx) {
        let ids = [
            &self.provider_event_id,
            &self.remote_operation_id,
            &self.remote_object_id,
            &self.client_reference,
        ];
        needs_provider(cx, self.provider.as_ref(), &ids.map(Option::as_ref));
        if self.receipt_id.is_none() && self.status_lookup.is_none() {
            cx.needs(
                "receipt_id",
                "a join needs what came back: a receipt_id or a status_lookup",
            );
        }
    }
}

impl Exception {
    fn check(&self, cx: &mut Cx) {
        if (self.status == ExceptionStatus::Resolved) != self.resolution.is_some() {
            cx.needs(
                "resolution",
                "a resolved exception has a resolution, an open one has none",
            );
        }
    }
}
