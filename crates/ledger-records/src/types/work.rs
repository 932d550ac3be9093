//! What is done with a delivery behind the receiver, what an agent keeps of it, and the rules in force.

use super::{BusinessKey, Ref, needs_provider};
use crate::error::ErrorCode;
use crate::field::Cx;
use crate::macros::{fields, names};
use crate::text::{Code, Digest, Id, Label, Reason, RulesText, Time};

names! {
    /// What became of one try.
    pub enum ProcessingOutcome {
        /// It is in the queue.
        Scheduled = "scheduled",
        /// A worker has it.
        Leased = "leased",
        /// The effect is there.
        Completed = "completed",
        /// The object has moved on.
        Stale = "stale",
        /// The object does not exist any more.
        ObjectGone = "object_gone",
        /// Our credentials may not see the object.
        ObjectForbidden = "object_forbidden",
        /// The right to do it has ended meanwhile.
        PermissionRevoked = "permission_revoked",
        /// It is put off.
        Deferred = "deferred",
        /// It waits for a person.
        Parked = "parked",
        /// It failed.
        Failed = "failed",
        /// Whether the effect is there cannot be established yet.
        Unknown = "unknown",
    }
}

fields! {
    /// One try of one receipt by one worker. Written before the hand-out, and again with the outcome.
    pub struct Processing ("type" = "processing") with check {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The queued work; the same for every try.
        job_id: Id,
        /// The delivery.
        receipt_id: Option<Id>,
        /// The provider; needed with `provider_event_id`.
        provider: Option<Label>,
        /// The event of the delivery, where it holds several.
        provider_event_id: Option<Id>,
        /// The agent run that does it.
        run_id: Option<Id>,
        /// The action that it led to.
        action_id: Option<Id>,
        /// The workflow that it serves.
        workflow_id: Option<Id>,
        /// For whose data.
        tenant: Option<Id>,
        /// The subject that the route fixes; never one from the body.
        actor: Option<Id>,
        /// The limited permission that it works under.
        grant_id: Option<Id>,
        /// The worker.
        worker: Option<Label>,
        /// Which try it is, from 1.
        try_no: u64,
        /// The effect that must happen only once.
        business_key: Option<BusinessKey>,
        /// The object's version as read by the worker.
        object_version: Option<Id>,
        /// The job that took this one's work over, when changes were merged.
        merged_into_job_id: Option<Id>,
        /// What became of it.
        outcome: ProcessingOutcome,
        /// Why, as a code.
        reason_code: Option<Code>,
        /// Why, in words.
        reason: Option<Reason>,
        /// When it was so, by our clock.
        observed_at: Time,
        /// When the worker's hold ends.
        lease_expires_at: Option<Time>,
        /// When it may be tried again.
        not_before: Option<Time>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

names! {
    /// Whether an agent may act on a remembered fact.
    pub enum MemoryLabel {
        /// From a source that may instruct.
        Trusted = "trusted",
        /// From outside: material only.
        Untrusted = "untrusted",
    }
}

fields! {
    /// A fact that an agent keeps, by digest, and where it came from.
    pub struct Memory ("type" = "memory") {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The remembered fact.
        memory_id: Id,
        /// The digest of its text.
        digest: Digest,
        /// The length of its text in bytes.
        length: Option<u64>,
        /// Whether it may be acted on.
        label: MemoryLabel,
        /// Where it came from: events, deliveries, other memories.
        derived_from: Vec<Ref>,
        /// The run that keeps it.
        run_id: Option<Id>,
        /// The session that keeps it.
        session_id: Option<Id>,
        /// Who keeps it.
        actor: Option<Id>,
        /// For whose data.
        tenant: Option<Id>,
        /// When it was kept, by our clock.
        stored_at: Time,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

fields! {
    /// The rule set that is in force from here on.
    pub struct Rules ("type" = "rules") with check {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The rule set.
        name: Label,
        /// Its version.
        version: Label,
        /// Its text.
        text: RulesText,
        /// The digest of the text's bytes, SHA-256.
        digest: Digest,
        /// Who put it in force.
        actor: Option<Id>,
        /// Who allowed it.
        approver: Option<Id>,
        /// When it was put in force, by our clock.
        declared_at: Time,
        /// Why.
        reason: Option<Reason>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

impl Processing {
    fn check(&self, cx: &mut Cx) {
        needs_provider(
            cx,
            self.provider.as_ref(),
            &[self.provider_event_id.as_ref()],
        );
    }
}

impl Rules {
    fn check(&self, cx: &mut Cx) {
        let digest = Digest::sha256(self.text.as_str().as_bytes());
        if digest != self.digest {
            cx.fail_at(
                Some("digest"),
                ErrorCode::Mismatch,
                digest.as_str(),
                self.digest.to_string(),
                "",
            );
        }
    }
}
