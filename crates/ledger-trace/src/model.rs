//! The answer as data: what a program reads of a trace. Its JSON Schema is `trace.schema.json`.
//! Not how it is found (`closure`), judged (`findings`) or shown to people (`text`).

use std::collections::BTreeMap;

use ledger_records::{EnvelopeIdentifier, Fact, Identifier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::closure::Cut;
use crate::finding::Finding;
use crate::source::{Extent, How};

/// Version of the JSON form; raised when a member is removed or changes its meaning.
pub const JSON_VERSION: u32 = 1;

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// One story.
    Found(Box<Trace>),
    /// Nothing that is searched mentions it.
    NotFound(NotFound),
    /// It means several things that have nothing to do with each other.
    Ambiguous(Ambiguous),
}

/// How a command that asked should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceExit {
    /// One story, and nothing in it contradicts something else.
    Found,
    /// Not found.
    NotFound,
    /// Several stories.
    Ambiguous,
    /// One story, and it holds a contradiction that nobody has resolved.
    Contradicted,
}

impl TraceExit {
    /// The exit code of `ledger trace`.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Found => 0,
            Self::NotFound => 1,
            Self::Ambiguous => 2,
            Self::Contradicted => 5,
        }
    }
}

impl Answer {
    /// How a command that asked should end.
    #[must_use]
    pub fn exit(&self) -> TraceExit {
        match self {
            Self::Found(trace) if trace.is_contradicted() => TraceExit::Contradicted,
            Self::Found(_) => TraceExit::Found,
            Self::NotFound(_) => TraceExit::NotFound,
            Self::Ambiguous(_) => TraceExit::Ambiguous,
        }
    }
}

/// A story: what happened, in chain order, and what it comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// Version of this form.
    pub version: u32,
    /// The values that were asked for and are in it.
    pub asked: Vec<String>,
    /// The identifiers that they turned out to be.
    pub start: Vec<IdentifierView>,
    /// How much the key at hand opened.
    pub depth: Depth,
    /// The actions in it, and who allowed them.
    pub actions: Vec<ActionView>,
    /// The workflows in it, and their last recorded states.
    pub states: Vec<StateView>,
    /// What is missing or contradicts.
    pub findings: Vec<Finding>,
    /// How far its frames were checked.
    pub check: CheckView,
    /// One assertion a line, in chain order.
    pub lines: Vec<Line>,
    /// Where following stopped, if it did not come to its end.
    pub cut: Option<Cut>,
    /// What was searched.
    pub range: RangeView,
}

impl Trace {
    /// Whether it holds a contradiction that nobody has resolved.
    #[must_use]
    pub fn is_contradicted(&self) -> bool {
        self.findings.iter().any(Finding::is_contradiction)
    }
}

/// How much was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Identifiers, relations and facts.
    Skeleton,
    /// Some bodies, not all.
    Partial,
    /// Every body.
    Evidence,
}

/// An identifier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdentifierView {
    /// Its kind, by the name of `ledger-format.md`, section 20.5.
    pub kind: String,
    /// Within what it is unique; empty for the whole ledger.
    pub scope: String,
    /// Its value.
    pub value: String,
}

impl From<&Identifier> for IdentifierView {
    fn from(id: &Identifier) -> Self {
        Self {
            kind: id.kind.as_str().to_owned(),
            scope: id.scope.clone(),
            value: id.value.clone(),
        }
    }
}

/// An identifier, and how a record relates to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelatedView {
    /// The relation, by the name of `ledger-format.md`, section 20.7.
    pub relation: String,
    /// The identifier.
    #[serde(flatten)]
    pub identifier: IdentifierView,
}

impl From<&EnvelopeIdentifier> for RelatedView {
    fn from(item: &EnvelopeIdentifier) -> Self {
        Self {
            relation: item.relation.as_str().to_owned(),
            identifier: IdentifierView::from(&item.identifier),
        }
    }
}

/// An action and its permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActionView {
    /// The action.
    pub action_id: String,
    /// The frame that says so.
    pub frame: u64,
    /// Who asked.
    pub actor: Option<String>,
    /// What was asked.
    pub operation: Option<String>,
    /// The object that it was asked for.
    pub target_id: Option<String>,
    /// The HTTP method and route, or the command, with names in braces for what varies.
    pub target: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// How far the target reaches, such as `production`.
    pub scope: Option<String>,
    /// `approved`, `denied`, `pending` or `exempt`.
    pub decision: Option<String>,
    /// Who allowed or refused it.
    pub approver: Option<String>,
    /// When.
    pub approved_at: Option<String>,
    /// When the permission ends.
    pub expires_at: Option<String>,
    /// Under which permission.
    pub grant: Option<String>,
    /// Under which policy.
    pub policy: Option<String>,
    /// The label of the credential.
    pub credential_label: Option<String>,
    /// Why, in the record's words; only with the evidence.
    pub reason: Option<String>,
}

/// A workflow's last recorded state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateView {
    /// The workflow.
    pub workflow_id: String,
    /// The state.
    pub state: String,
    /// Whether nothing is expected to change it any more.
    pub terminal: bool,
    /// When it was decided, by the decider's clock.
    pub since: Option<String>,
    /// The frame that says so.
    pub frame: u64,
    /// The rule.
    pub rule: Option<String>,
    /// Who decided.
    pub decided_by: Option<String>,
    /// Whether that is a person.
    pub by_person: bool,
    /// What the change rests on.
    pub evidence: Vec<EvidenceView>,
}

/// A piece of evidence that a change of state cites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceView {
    /// What is cited.
    pub identifier: IdentifierView,
    /// What the ledger says about it; none if it says nothing.
    pub says: Option<String>,
    /// The frames that say so.
    pub frames: Vec<u64>,
}

/// How far the frames of a story were checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckView {
    /// Frames of the story.
    pub frames: u64,
    /// Those that a verified checkpoint covers.
    pub covered: u64,
    /// Size of the greatest checkpoint that covers some of them.
    pub checkpoint: Option<u64>,
    /// Whether all covered frames are covered under the key that was given from outside.
    pub pinned: bool,
    /// By what means.
    pub how: Vec<How>,
}

/// What was searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RangeView {
    /// The ledger, as its checkpoints name it.
    pub origin: Option<String>,
    /// The first frame.
    pub first: u64,
    /// The number behind the last frame.
    pub next: u64,
    /// Size of the newest verified checkpoint.
    pub checkpoint: Option<u64>,
    /// When it was appended.
    pub checkpoint_at: Option<String>,
    /// The trust line that it verifies under.
    pub trust_line: Option<String>,
    /// Whether a trust line was given from outside.
    pub pin_given: bool,
    /// What could not be searched, or what else to know.
    pub remarks: Vec<String>,
}

impl From<Extent> for RangeView {
    fn from(extent: Extent) -> Self {
        Self {
            origin: extent.origin,
            first: extent.first.0,
            next: extent.next.0,
            checkpoint: extent.checkpoint,
            checkpoint_at: extent.checkpoint_at.map(|at| at.to_rfc3339()),
            trust_line: extent.trust_line,
            pin_given: extent.pin_given,
            remarks: extent.remarks,
        }
    }
}

/// Who a line is about: whose doing it tells, not who recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agent.
    Agent,
    /// The service that calls out.
    Service,
    /// The provider, as we heard it.
    Provider,
    /// The receiver of deliveries.
    Receiver,
    /// The workflow behind it.
    Workflow,
    /// A worker.
    Worker,
    /// A person.
    Person,
    /// Whoever keeps the rules.
    Operator,
}

impl Role {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Service => "service",
            Self::Provider => "provider",
            Self::Receiver => "receiver",
            Self::Workflow => "workflow",
            Self::Worker => "worker",
            Self::Person => "person",
            Self::Operator => "operator",
        }
    }
}

/// What the kernel said of the process that sent a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttestedView {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process; 0 where it is not attested.
    pub pid: u32,
}

/// The value of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FactView {
    /// An unsigned integer.
    Uint(u64),
    /// A negative integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
}

impl From<&Fact> for FactView {
    fn from(fact: &Fact) -> Self {
        match fact {
            Fact::Uint(value) => Self::Uint(*value),
            Fact::Int(value) => Self::Int(*value),
            Fact::Bool(value) => Self::Bool(*value),
            Fact::Text(value) => Self::Text(value.clone()),
            Fact::Texts(values) => Self::Texts(values.clone()),
        }
    }
}

/// One assertion: one record, with its own source and its own time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// The frame that holds it.
    pub frame: u64,
    /// Its chain value, in hex.
    pub link: String,
    /// When the writer appended it.
    pub appended_at: String,
    /// Size of the checkpoint that covers it, if one does.
    pub checkpoint: Option<u64>,
    /// Whether that checkpoint is signed by the key that was given from outside.
    pub pinned: bool,
    /// How it was tied to the checkpoint.
    pub how: How,
    /// The type of the record.
    pub record_type: String,
    /// The record's own id.
    pub record_id: String,
    /// When it happened, by the clock of whoever says so.
    pub time: Option<String>,
    /// The component that says so.
    pub source: Option<String>,
    /// Whose doing it tells.
    pub by: Role,
    /// The process that sent it; only with the evidence.
    pub attested: Option<AttestedView>,
    /// The assertion as a sentence.
    pub text: String,
    /// Whether this very record keeps a contradiction that nobody has resolved.
    pub contradicts: bool,
    /// What brought it into the story.
    pub joined_by: RelatedView,
    /// All that it mentions.
    pub identifiers: Vec<RelatedView>,
    /// Its facts.
    pub facts: BTreeMap<String, FactView>,
    /// The record; only with the evidence.
    pub record: Option<serde_json::Value>,
    /// Why its body did not open, when it should have.
    pub unopened: Option<String>,
}

/// Nothing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotFound {
    /// Version of this form.
    pub version: u32,
    /// The values that were tried.
    pub tried: Vec<String>,
    /// The kinds of identifier that they were tried as.
    pub kinds: Vec<String>,
    /// The scope that was asked for, if one was.
    pub scope: Option<String>,
    /// What was searched.
    pub range: RangeView,
}

/// Several stories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ambiguous {
    /// Version of this form.
    pub version: u32,
    /// The values that were tried and mean something.
    pub tried: Vec<String>,
    /// What they may mean, each with a story of its own.
    pub candidates: Vec<CandidateView>,
    /// Whether there are more than were looked into.
    pub more: bool,
    /// What was searched.
    pub range: RangeView,
}

/// One meaning of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateView {
    /// The identifier.
    pub identifier: IdentifierView,
    /// Frames that mention it.
    pub frames: u64,
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// What its first line says.
    pub about: String,
}
