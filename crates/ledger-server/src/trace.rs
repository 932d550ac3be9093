//! `GET /v1/trace/{identifier}`, `POST /v1/trace`: the daemon asks a provider, which knows how to
//! read the ledger. Not what a story is: `ledger-trace`.

use ledger_format::Seq;
use ledger_records::IdKind;
use serde_json::Value;
use thiserror::Error;

/// What a search for an identifier came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceOutcome {
    /// There is one story.
    Found,
    /// No record names it.
    NotFound,
    /// Several entities have this value: the answer lists them.
    Ambiguous,
    /// There is one story, and it contradicts itself.
    Contradicted,
}

impl TraceOutcome {
    /// The name in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::NotFound => "not_found",
            Self::Ambiguous => "ambiguous",
            Self::Contradicted => "contradicted",
        }
    }
}

/// What is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// One value.
    Value(String),
    /// Whatever a text names: every word of it is tried.
    Text(String),
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceQuestion {
    /// What is looked for.
    pub asked: Asked,
    /// Only identifiers of this kind.
    pub kind: Option<IdKind>,
    /// Only identifiers within this scope.
    pub scope: Option<String>,
    /// The trust line that checkpoints are to be held against.
    pub trust: Option<String>,
}

/// An answer, in the published form of traces.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceAnswer {
    /// What it came to.
    pub outcome: TraceOutcome,
    /// The JSON document.
    pub document: Value,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// The question makes no sense.
    #[error("{0}")]
    Question(String),
    /// The index cannot be used at the moment. It is derived: asking again may help, rebuilding does.
    #[error("{0}")]
    NotNow(String),
    /// The ledger could not be read, or does not stand the check.
    #[error("{0}")]
    Failed(String),
}

/// Finds the story behind an identifier. Blocks.
pub trait TraceProvider: Send + Sync + 'static {
    /// The story, as far as the daemon's keys show it. `synced` says how many frames may be shown, and is asked
    /// once everything derived was read.
    ///
    /// # Errors
    /// [`TraceError`].
    fn trace(
        &self,
        question: &TraceQuestion,
        synced: &(dyn Fn() -> Seq + Send + Sync),
    ) -> Result<TraceAnswer, TraceError>;
}
