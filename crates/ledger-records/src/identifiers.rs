//! Identifiers: what kinds there are, what each is worth, and how a record relates to one.
//! Implements ledger-format.md, "Identifiers". The table is data, so that documents and tools print the same one.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// Whether a trace follows an identifier from one record to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Followed to closure: two records that share it are about the same work.
    Joining,
    /// Followed only when a search starts there: many works share it.
    Grouping,
}

/// Within what a value is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeRule {
    /// Within the ledger: no scope.
    Ledger,
    /// Within one provider: the scope is its name.
    Provider,
    /// Within a system that may be named: the scope is its name, or empty.
    System,
    /// Business keys: the scope is the operation.
    Operation,
    /// Kind `other`: the scope is the kind's own name, then, when there is a scope, a slash and the scope.
    OwnName,
}

/// Who makes the values of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    /// The service that calls out.
    Client,
    /// The provider.
    Provider,
    /// The receiver of webhooks.
    Receiver,
    /// The worker or workflow behind the receiver.
    Worker,
    /// The operator: configuration, people, business systems.
    Operator,
    /// Whoever appends the record.
    Writer,
    /// Computed from the bytes.
    Content,
}

/// A row of the table of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KindInfo {
    /// The kind.
    pub kind: IdKind,
    /// Its code in envelopes.
    pub code: u8,
    /// Its name in records.
    pub name: &'static str,
    /// Within what its values are unique.
    pub scope: ScopeRule,
    /// Whether a trace follows it.
    pub reach: Reach,
    /// Who makes its values.
    pub made_by: Maker,
    /// Whether a repeat of the same work carries the same value.
    pub stable_across_repeats: bool,
    /// The question that it answers.
    pub question: &'static str,
}

macro_rules! kinds {
    ($( $variant:ident = $code:literal $name:literal $scope:ident $reach:ident $maker:ident $stable:literal $question:literal; )*) => {
        /// The kind of an identifier. Codes are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum IdKind { $( #[doc = $question] $variant = $code, )* }

        /// Every kind, in the order of the codes.
        pub const TABLE: &[KindInfo] = &[$( KindInfo {
            kind: IdKind::$variant, code: $code, name: $name, scope: ScopeRule::$scope, reach: Reach::$reach,
            made_by: Maker::$maker, stable_across_repeats: $stable, question: $question,
        } ),*];

        impl IdKind {
            /// The kind of a code.
            #[must_use]
            pub const fn from_code(code: u64) -> Option<Self> {
                match code { $( $code => Some(Self::$variant), )* _ => None }
            }

            /// The kind of a name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$variant), )* _ => None }
            }

            /// The row of the table.
            #[must_use]
            pub const fn info(self) -> &'static KindInfo {
                match self { $( Self::$variant => &KindInfo {
                    kind: IdKind::$variant, code: $code, name: $name, scope: ScopeRule::$scope,
                    reach: Reach::$reach, made_by: Maker::$maker, stable_across_repeats: $stable, question: $question,
                }, )* }
            }
        }
    };
}

kinds! {
    RecordId = 1 "record_id" Ledger Joining Writer true "Which entry of the ledger is this?";
    RunId = 2 "run_id" Ledger Joining Client true "Which run of the agent was it?";
    SessionId = 3 "session_id" Ledger Grouping Client true "Which conversation or session did the run belong to?";
    Tenant = 4 "tenant" Ledger Grouping Operator true "Whose data and rights are these?";
    Actor = 5 "actor" Ledger Grouping Operator true "Which person, agent or process acted, decided or approved?";
    ActionId = 6 "action_id" Ledger Joining Client true "Which authorized instruction is this about?";
    AttemptId = 7 "attempt_id" Ledger Joining Client false "Which transmission was it?";
    IdempotencyRef = 8 "idempotency_ref" Ledger Joining Client true "Which transmissions should the provider treat as one?";
    WorkflowId = 9 "workflow_id" Ledger Joining Client true "Which workflow's state does it change?";
    BusinessObject = 10 "business_object" System Grouping Operator true "Which object of the business is concerned?";
    BusinessKey = 11 "business_key" Operation Joining Worker true "Which effect must happen only once?";
    RemoteOperationId = 12 "remote_operation_id" Provider Joining Provider true "Which work of the provider is it?";
    RemoteObjectId = 13 "remote_object_id" Provider Joining Provider true "Which object at the provider came out of it?";
    ClientReference = 14 "client_reference" Provider Joining Client true "Which reference of ours does the provider echo?";
    ProviderEventId = 15 "provider_event_id" Provider Joining Provider true "Which event did the sender announce?";
    ReceiptId = 16 "receipt_id" Ledger Joining Receiver false "Which exact delivery was it?";
    CorrelationId = 17 "correlation_id" Ledger Joining Worker true "Which decision joined them?";
    ExceptionId = 18 "exception_id" Ledger Joining Worker true "Which open contradiction or gap is it?";
    MemoryId = 19 "memory_id" Ledger Joining Worker true "Which remembered fact is it?";
    JobId = 20 "job_id" Ledger Joining Worker true "Which piece of queued work was it?";
    Connection = 21 "connection" Ledger Grouping Operator true "Through which configured connection did it come?";
    Account = 22 "account" Provider Grouping Provider true "Which account at the provider is concerned?";
    RawBodySha256 = 23 "raw_body_sha256" Ledger Grouping Content true "Were two bodies the same bytes?";
    Grant = 24 "grant" Ledger Grouping Operator true "Under which limited permission was it done?";
    RuleSet = 25 "rule_set" Ledger Grouping Operator true "Under which rules was it decided?";
    TraceId = 26 "trace_id" Ledger Joining Client true "Which distributed trace was it part of?";
    SpanId = 27 "span_id" Ledger Joining Client false "Which span of a trace was it?";
    RequestId = 28 "request_id" System Joining Provider false "Which HTTP exchange does the provider's support ask for?";
    DeliveryId = 29 "delivery_id" System Joining Provider false "Which delivery does the sender's log name?";
    Ticket = 30 "ticket" System Grouping Operator true "Which ticket or case asked for it?";
    McpCall = 31 "mcp_call" System Joining Client false "Which tool call of the agent was it?";
    MessageId = 32 "message_id" System Joining Provider true "Which message of a queue or mail system carried it?";
    Other = 255 "other" OwnName Joining Client true "A kind of your own: its name stands in the scope.";
}

impl IdKind {
    /// The code in envelopes.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.info().name
    }

    /// True when a trace follows it to closure.
    #[must_use]
    pub const fn is_joining(self) -> bool {
        matches!(self.info().reach, Reach::Joining)
    }
}

impl Serialize for IdKind {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! relations {
    ($( $(#[doc = $doc:expr])* $variant:ident = $code:literal $name:literal; )*) => {
        /// How a record relates to an identifier. Codes are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[repr(u8)]
        pub enum Relation { $( $(#[doc = $doc])* #[serde(rename = $name)] $variant = $code, )* }

        impl Relation {
            /// Every relation, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The relation of a code.
            #[must_use]
            pub const fn from_code(code: u64) -> Option<Self> {
                match code { $( $code => Some(Self::$variant), )* _ => None }
            }

            /// Its name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }
        }
    };
}

relations! {
    /// The record tells of this very thing.
    Subject = 1 "subject";
    /// The thing that the record tells of belongs to this.
    PartOf = 2 "part_of";
    /// This set it going.
    CausedBy = 3 "caused_by";
    /// It repeats this attempt.
    RetryOf = 4 "retry_of";
    /// It rests on this.
    Evidence = 5 "evidence";
    /// It waits for, or promises, this.
    Expects = 6 "expects";
    /// It binds this to its subject, as our own observation.
    Names = 7 "names";
    /// The same event or content as this.
    DuplicateOf = 8 "duplicate_of";
    /// Made out of this.
    DerivedFrom = 9 "derived_from";
    /// A further identifier that its author added.
    Refs = 10 "refs";
    /// Done or decided by this actor.
    By = 11 "by";
    /// Done under this permission or these rules.
    Under = 12 "under";
    /// The sender says so; nobody has verified it in this record.
    Claims = 13 "claims";
    /// Allowed by this actor.
    ApprovedBy = 14 "approved_by";
}

impl Relation {
    /// The code in envelopes.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An identifier: equal only when kind, scope and value are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Identifier {
    /// What it identifies.
    pub kind: IdKind,
    /// Within what it is unique; empty for kinds of ledger scope.
    pub scope: String,
    /// The value.
    pub value: String,
}

/// An identifier as a record mentions it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdentifierRef<'a> {
    /// What it identifies.
    pub kind: IdKind,
    /// How the record relates to it.
    pub relation: Relation,
    /// Within what it is unique.
    pub scope: Cow<'a, str>,
    /// The value.
    pub value: Cow<'a, str>,
}

impl IdentifierRef<'_> {
    /// The identifier without the relation.
    #[must_use]
    pub fn to_identifier(&self) -> Identifier {
        Identifier {
            kind: self.kind,
            scope: self.scope.to_string(),
            value: self.value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_unique_and_lead_back() {
        for row in TABLE {
            assert_eq!(IdKind::from_code(u64::from(row.code)), Some(row.kind));
            assert_eq!(IdKind::from_name(row.name), Some(row.kind));
            assert_eq!((row.kind.code(), row.kind.info()), (row.code, row));
        }
        assert!(TABLE.windows(2).all(|rows| rows[0].code < rows[1].code));
        for (i, relation) in Relation::ALL.iter().enumerate() {
            assert_eq!(Relation::from_code(i as u64 + 1), Some(*relation));
        }
        assert_eq!((IdKind::from_code(0), Relation::from_code(0)), (None, None));
    }

    #[test]
    fn session_tenant_and_actor_only_group() {
        for kind in [
            IdKind::SessionId,
            IdKind::Tenant,
            IdKind::Actor,
            IdKind::Connection,
            IdKind::Account,
        ] {
            assert!(!kind.is_joining());
        }
        assert!(IdKind::ActionId.is_joining() && IdKind::RemoteOperationId.is_joining());
    }
}
