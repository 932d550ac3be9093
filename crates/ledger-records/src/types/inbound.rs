//! What comes in: deliveries before any processing, and why each was accepted or not.

use super::{Header, Ref, RuleRef, needs_provider};
use crate::field::Cx;
use crate::macros::{fields, names};
use crate::text::{
    Code, Host, Id, Label, Method, PayloadClass, Reason, RouteTemplate, Sha256Hex, SourceAddress,
    Time,
};

fields! {
    /// Something that the sender claims, and whether the signature covers it.
    pub struct Claim {
        /// The claimed value.
        value: Id,
        /// True when the scheme's signature covers the place that it was read from.
        covered: bool,
    }
}

fields! {
    /// A time that the sender claims: never one of ours.
    pub struct ClaimedTime {
        /// The time as written by the sender, if it is one of RFC 3339; else rewritten as one.
        value: Time,
        /// True when the scheme's signature covers it.
        covered: bool,
    }
}

fields! {
    /// One event of a delivery, as claimed by its sender. Nothing of it is verified here.
    pub struct ClaimedEvent {
        /// The sender's id of the event.
        provider_event_id: Option<Claim>,
        /// Its type.
        event_type: Option<Claim>,
        /// The action within the type.
        event_action: Option<Claim>,
        /// The version of the type's schema.
        event_version: Option<Claim>,
        /// The context in which it happened, the `source` of CloudEvents.
        event_source: Option<Claim>,
        /// The object that it is about.
        object_id: Option<Claim>,
        /// The kind of that object.
        object_type: Option<Claim>,
        /// Its version or sequence number.
        object_version: Option<Claim>,
        /// The account at the provider.
        account: Option<Claim>,
        /// Our reference, echoed.
        client_reference: Option<Claim>,
        /// The provider's id of the work.
        remote_operation_id: Option<Claim>,
        /// What the sender says became of it.
        result: Option<Claim>,
        /// The sender's time.
        sender_time: Option<ClaimedTime>,
    }
}

fields! {
    /// One inbound delivery, recorded before any processing.
    pub struct Receipt ("type" = "receipt") {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The delivery; new even for the same event.
        receipt_id: Id,
        /// The configured connection that it came through.
        connection: Id,
        /// The provider that the connection expects.
        provider: Label,
        /// The identity that the connection expects as sender.
        expected_sender: Option<Label>,
        /// The tenant, from the way the delivery came, never from its content.
        tenant: Option<Id>,
        /// When the receiver had it whole, by its clock.
        received_at: Time,
        /// The method.
        method: Method,
        /// The host that it was sent to, from configuration.
        host: Option<Host>,
        /// The path, endpoint tokens as names in braces.
        route_template: RouteTemplate,
        /// Selected headers, as an ordered list.
        headers: Vec<Header>,
        /// The media type.
        content_type: Option<Label>,
        /// The sender's address, where it is kept.
        source_address: Option<SourceAddress>,
        /// The digest of the exact bytes received.
        raw_body_sha256: Sha256Hex,
        /// Their number.
        length: u64,
        /// The retention class of the kept body; only when one is kept.
        payload_class: Option<PayloadClass>,
        /// The verification scheme that the connection uses.
        scheme: Option<Code>,
        /// The events that it holds, as claimed.
        claimed: Vec<ClaimedEvent>,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

names! {
    /// What a scheme's good signature says about a delivery.
    pub enum Assurance {
        /// All that the decision rests on is signed.
        Signed = "signed",
        /// A part is signed.
        SignedPartial = "signed_partial",
        /// Only a shared token was equal.
        Token = "token",
        /// Nothing.
        None = "none",
    }
}

names! {
    /// A part of a delivery that a signature covers.
    pub enum Covered {
        /// The exact body.
        Body = "body",
        /// The event's id.
        EventId = "event_id",
        /// The event's type.
        EventType = "event_type",
        /// The timestamp that freshness is judged by.
        Timestamp = "timestamp",
        /// The account or tenant.
        Account = "account",
        /// The URL that it was sent to.
        Url = "url",
    }
}

names! {
    /// The result of checking the signature.
    pub enum SignatureResult {
        /// It fits a key of the connection.
        Good = "good",
        /// It fits none.
        Bad = "bad",
        /// There is none.
        Missing = "missing",
        /// It is not of the scheme's form.
        Malformed = "malformed",
        /// There are several where one is allowed.
        Ambiguous = "ambiguous",
        /// It was not checked.
        NotChecked = "not_checked",
    }
}

names! {
    /// How the signed time stands to the receiver's clock.
    pub enum Freshness {
        /// Within the window.
        Fresh = "fresh",
        /// Too old.
        Stale = "stale",
        /// Too far ahead.
        Future = "future",
        /// The scheme signs no time.
        NotProvable = "not_provable",
        /// It was not checked.
        NotChecked = "not_checked",
    }
}

names! {
    /// Whether the event was seen before.
    pub enum Deduplication {
        /// Not seen before.
        New = "new",
        /// The same event again.
        Duplicate = "duplicate",
        /// The same id with other content.
        Conflict = "conflict",
        /// Another unsigned id with the same content.
        PossibleReplay = "possible_replay",
        /// It was not checked.
        NotChecked = "not_checked",
    }
}

names! {
    /// Whether the account in the delivery is the connection's.
    pub enum AccountCheck {
        /// It is.
        Match = "match",
        /// It is not.
        Mismatch = "mismatch",
        /// The delivery names none.
        Absent = "absent",
        /// It was not checked.
        NotChecked = "not_checked",
    }
}

names! {
    /// What the policy table says about the event.
    pub enum PolicyOutcome {
        /// It may start the work that its row names.
        Permitted = "permitted",
        /// Its type, or the version of it, is in no row.
        NotInPolicy = "not_in_policy",
        /// A row refuses it.
        Denied = "denied",
        /// It was not checked.
        NotChecked = "not_checked",
    }
}

fields! {
    /// The check against the policy table.
    pub struct PolicyCheck {
        /// What it says.
        outcome: PolicyOutcome,
        /// The row that applied.
        row: Option<Label>,
        /// The rule set.
        rules: Option<RuleRef>,
    }
}

names! {
    /// What was decided about a delivery.
    pub enum Decision {
        /// It may be processed.
        Accepted = "accepted",
        /// It was accepted before.
        Duplicate = "duplicate",
        /// It is refused.
        Rejected = "rejected",
        /// It waits for a person.
        Quarantined = "quarantined",
    }
}

fields! {
    /// Why a delivery, or one event of it, was accepted or not.
    pub struct Verification ("type" = "verification") with check {
        /// This record's own id.
        record_id: Id,
        /// The component that says so.
        source: Option<Label>,
        /// The delivery.
        receipt_id: Id,
        /// The connection that it came through.
        connection: Option<Id>,
        /// The provider; needed with `provider_event_id` or `account`.
        provider: Option<Label>,
        /// The event of the delivery, where it holds several.
        provider_event_id: Option<Id>,
        /// The account that was checked.
        account: Option<Id>,
        /// The scheme that was applied.
        scheme: Code,
        /// The label of the key that fits; never the key.
        key_label: Option<Label>,
        /// What a good signature of this scheme is worth.
        assurance: Assurance,
        /// What the signature covers.
        covers: Vec<Covered>,
        /// The result of checking the signature.
        signature: SignatureResult,
        /// How its time stands to our clock.
        freshness: Freshness,
        /// The receiver's clock minus the signed time, in milliseconds.
        skew_ms: Option<i64>,
        /// Whether the event was seen before.
        deduplication: Deduplication,
        /// The delivery that brought it first.
        duplicate_of: Option<Id>,
        /// Whether the account is the connection's.
        account_check: AccountCheck,
        /// What the policy says.
        policy: Option<PolicyCheck>,
        /// What was decided.
        decision: Decision,
        /// Why, as a code.
        reason_code: Code,
        /// Why, in words.
        reason: Option<Reason>,
        /// When it was decided, by our clock.
        verified_at: Time,
        /// Further identifiers.
        refs: Vec<Ref>,
    }
}

impl ClaimedEvent {
    /// The names of the members that the signature covers, in the order of the specification's table.
    #[must_use]
    pub fn covered_members(&self) -> Vec<&'static str> {
        let claims = [
            ("provider_event_id", &self.provider_event_id),
            ("event_type", &self.event_type),
            ("event_action", &self.event_action),
            ("event_version", &self.event_version),
            ("event_source", &self.event_source),
            ("object_id", &self.object_id),
            ("object_type", &self.object_type),
            ("object_version", &self.object_version),
            ("account", &self.account),
            ("client_reference", &self.client_reference),
            ("remote_operation_id", &self.remote_operation_id),
            ("result", &self.result),
        ];
        let covered = |claim: &Option<Claim>| claim.as_ref().is_some_and(|claim| claim.covered);
        let mut names: Vec<_> = claims
            .iter()
            .filter(|(_, claim)| covered(claim))
            .map(|(name, _)| *name)
            .collect();
        // The only one that is a time; it stands last here as in the table.
        if self.sender_time.as_ref().is_some_and(|time| time.covered) {
            names.push("sender_time");
        }
        names
    }
}

impl Verification {
    fn check(&self, cx: &mut Cx) {
        needs_provider(
            cx,
            self.provider.as_ref(),
            &[self.provider_event_id.as_ref(), self.account.as_ref()],
        );
    }
}
