//! The record types, and the objects that several of them hold. Fields only: what they mean for each other is judged
//! elsewhere, so nothing here refuses evidence for being late, contradictory or without a known parent.
//! Implements ledger-format.md, "Records".

mod conclusions;
mod inbound;
mod outbound;
mod work;

pub use conclusions::{
    Basis, Correlation, Exception, ExceptionStatus, Resolution, State, StateTransition,
};
pub use inbound::{
    AccountCheck, Assurance, Claim, ClaimedEvent, ClaimedTime, Covered, Decision, Deduplication,
    Freshness, PolicyCheck, PolicyOutcome, Receipt, SignatureResult, Verification,
};
pub use outbound::{
    Action, Attempt, AttemptOutcome, Authorization, AuthorizationDecision, Cause, CommandTarget,
    HttpTarget, LookupResult, Pending, RemoteRef, RequestShape, Response, Run, RunStatus,
    StatusLookup, Target, Timeout, TransportError,
};
pub use work::{Memory, MemoryLabel, Processing, ProcessingOutcome, Rules};

use crate::error::ErrorCode;
use crate::field::{Cx, Field};
use crate::guard;
use crate::identifiers::{IdKind, ScopeRule};
use crate::macros::fields;
use crate::node::Node;
use crate::text::{Code, Digest, HeaderName, HeaderValue, Id, KindName, Label, Time};

fields! {
    /// A further identifier, of a kind of the table or of one of the author's own.
    pub struct Ref with check {
        /// The name of a kind; a name outside the table becomes kind `other` under that name.
        kind: KindName,
        /// Within what the value is unique: the provider's name for kinds made by a provider.
        scope: Option<Label>,
        /// The value.
        value: Id,
    }
}

impl Ref {
    /// The kind of the table, `other` for a name outside it.
    #[must_use]
    pub fn id_kind(&self) -> IdKind {
        IdKind::from_name(self.kind.as_str()).unwrap_or(IdKind::Other)
    }

    /// A scope that is missing or too much: such an identifier would never meet its equal.
    fn check(&self, cx: &mut Cx) {
        let rule = self.id_kind().info().scope;
        let (expected, hint) = match (rule, &self.scope) {
            (ScopeRule::Provider, None) => (
                "a scope",
                "name the provider: its ids are unique only within it",
            ),
            (ScopeRule::Operation, None) => ("a scope", "name the operation of the business key"),
            (ScopeRule::Ledger, Some(_)) => ("no scope", "this kind is unique within the ledger"),
            _ => return,
        };
        let found = if self.scope.is_some() { "one" } else { "none" };
        cx.fail_at(
            Some("scope"),
            ErrorCode::Inconsistent,
            expected,
            found.into(),
            hint,
        );
    }
}

fields! {
    /// What must take effect only once: the same object, version and operation.
    pub struct BusinessKey {
        /// The business object.
        object: Id,
        /// Its version or sequence number, as its owner writes it.
        version: Option<Id>,
        /// What is done to it.
        operation: Label,
    }
}

fields! {
    /// An object of the business.
    pub struct BusinessObject {
        /// The system that owns it.
        system: Option<Label>,
        /// Its id there.
        id: Id,
        /// Its version or sequence number when this was recorded.
        version: Option<Id>,
    }
}

fields! {
    /// A text that has no room here, such as a prompt: its digest and length.
    pub struct Fingerprint {
        /// Its digest.
        digest: Digest,
        /// Its length in bytes.
        length: u64,
    }
}

fields! {
    /// A limited permission that one run or job works under.
    pub struct Grant {
        /// Its id.
        grant_id: Id,
        /// The one tenant that it is for.
        tenant: Option<Id>,
        /// The operations that it allows: the tools of the run.
        operations: Vec<Label>,
        /// When it ends.
        expires_at: Option<Time>,
        /// The label of the credential that carries it; never the credential.
        credential_label: Option<Label>,
    }
}

fields! {
    /// The rule set that something was decided under.
    pub struct RuleRef {
        /// Its name.
        name: Label,
        /// Its version.
        version: Label,
    }
}

fields! {
    /// A query parameter of a request, its value left out or harmless.
    pub struct QueryParameter with check {
        /// Its name.
        name: Label,
        /// Its value, left out when it may be sensitive.
        value: Option<Label>,
    }
}

impl QueryParameter {
    fn check(&self, cx: &mut Cx) {
        if cx.guarded()
            && let Some(value) = &self.value
            && let Some(kind) = guard::scan_parameter(self.name.as_str(), value.as_str())
        {
            cx.within("value", |cx| cx.secret(kind));
        }
    }
}

/// A header of a request or delivery, its name as received.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Header {
    name: HeaderName,
    value: HeaderValue,
}

impl Header {
    /// A header that carries no credential.
    ///
    /// # Errors
    /// The name is that of a credential header, such as `Authorization` or `Cookie`.
    pub fn new(name: HeaderName, value: HeaderValue) -> Result<Self, guard::SecretKind> {
        match guard::scan_header(name.as_str()) {
            Some(kind) => Err(kind),
            None => Ok(Self { name, value }),
        }
    }

    /// Its name, as received.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &str {
        self.value.as_str()
    }
}

fields! {
    /// A header before its name has been looked at.
    struct RawHeader {
        /// Its name.
        name: HeaderName,
        /// Its value.
        value: HeaderValue,
    }
}

impl Field for Header {
    fn decode(mut node: Node<'_>, cx: &mut Cx) -> Option<Self> {
        // By name first: the value of a credential header is not even looked at.
        if cx.guarded()
            && let Node::Map(map) = &mut node
            && let Some((_, Node::Text(name))) = map.iter().find(|(key, _)| key == "name")
            && let Some(kind) = guard::scan_header(name)
        {
            cx.within("value", |cx| cx.secret(kind));
            return None;
        }
        RawHeader::decode(node, cx).map(|RawHeader { name, value }| Self { name, value })
    }
    fn encode(&self, out: &mut Vec<u8>) {
        crate::cbor::map(out, 2);
        crate::cbor::text(out, "name");
        self.name.encode(out);
        crate::cbor::text(out, "value");
        self.value.encode(out);
    }
}

fields! {
    /// An actor's decision, as the records of conclusions carry it.
    pub struct DecidedBy {
        /// The person, process or worker.
        actor: Id,
        /// True when it is a person.
        person: bool,
        /// A code for what the actor is or used, such as the worker's build.
        via: Option<Code>,
    }
}

/// A provider's ids need the provider's name: without it they would never meet their equals.
fn needs_provider(cx: &mut Cx, provider: Option<&Label>, ids: &[Option<&Id>]) {
    if provider.is_none() && ids.iter().any(Option::is_some) {
        cx.needs(
            "provider",
            "ids made by a provider are unique only within it: name the provider",
        );
    }
}
