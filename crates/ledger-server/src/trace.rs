//! `GET /v1/trace/{identifier}`: the daemon asks a provider, which knows how to read the ledger.

use serde_json::Value;

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

/// An answer, in the published form of traces.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceAnswer {
    /// What it came to.
    pub outcome: TraceOutcome,
    /// The JSON document.
    pub document: Value,
}

/// Finds the story behind an identifier. Blocks.
pub trait TraceProvider: Send + Sync + 'static {
    /// The story, as far as the daemon's keys show it.
    ///
    /// # Errors
    /// It could not be read; the text says why.
    fn trace(&self, identifier: &str) -> Result<TraceAnswer, String>;
}
