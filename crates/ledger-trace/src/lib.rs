//! The read side: the story behind an identifier, told from frames that were checked one by one.
//!
//! [`trace`] asks a [`Source`] what a value means, follows what records share, and answers with one assertion a line in
//! chain order, what state the work is in, who allowed it, on what evidence, and what is missing or contradicts. With
//! the operational identity it tells the skeleton, with the vault key everything; the same code for both, because the
//! rules read an envelope's facts. [`FolderSource`] is the source over the files of a ledger.
//!
//! Not here: the network, the command line, index and tiles (`ledger-index`; [`Derived`] is how they come in), the verdict
//! over a whole chain (`ledger-verify`).

mod ask;
mod closure;
mod facts;
mod finding;
mod folder;
mod judge;
mod model;
mod query;
mod schema;
mod sentence;
mod shown;
mod source;
mod story;
mod text;

pub use ask::trace;
pub use closure::{Cut, Limits};
pub use finding::{Class, Finding, FindingCode};
pub use folder::{Derived, FolderOptions, FolderSource, Lookup, Proofs, TrustLine};
pub use model::{
    ActionView, Ambiguous, Answer, AttestedView, CandidateView, CheckView, Depth, EvidenceView,
    FactView, IdentifierView, JSON_VERSION, Line, NotFound, RangeView, RelatedView, Role,
    StateView, Trace, TraceExit,
};
pub use query::Query;
pub use schema::schema;
pub use source::{Check, Evidence, Extent, FrameView, Hits, How, Opened, Source, SourceError};
pub use text::TextOptions;
