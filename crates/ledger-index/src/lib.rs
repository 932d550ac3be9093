//! Derived data of a ledger: the identifier index, and the tiles of its tree.
//!
//! Both are made from the frames and can be made again; neither decides what is true. An index answers *which
//! frames may name this identifier*, and whoever asks looks into their envelopes. Tiles give the hashes of an
//! audit path, and whoever uses one holds it against a signed root. Implements section 18 of
//! `ledger-format.md`. Reads no frames: who has them adds them.
//!
//! # The index
//!
//! [`Index`] holds keyed tokens, never identifiers. New entries go into a table in memory
//! ([`Index::add`]); at checkpoints and when a segment closes they become an immutable sorted run
//! ([`Index::flush`]), and a thread of its own merges runs, eight of a level into one of the next, so that
//! their number grows with the logarithm. Nothing on the append path waits for a page.
//!
//! Every page and the list of runs carry a tag under the index key. What is altered, cut, mixed up, of another
//! ledger or of another chain is noticed, and then thrown away ([`Opening::Discarded`]); what a crash takes
//! away shows in [`Index::covered`].
//!
//! ```
//! use ledger_format::{LedgerId, Seq};
//! use ledger_index::{IdentifierParts, Index};
//! use ledger_records::IdKind;
//! use ledger_vault::IndexKey;
//!
//! let index = Index::in_memory(IndexKey::generate()?, LedgerId([7; 32]))?;
//! let action = IdentifierParts { kind: IdKind::ActionId, scope: "", value: "act_01" };
//! index.add_parts(Seq(12), "rec_01", [0; 16], [action]);
//!
//! let everything = Seq(0)..Seq(u64::MAX);
//! assert_eq!(index.lookup_value("act_01", everything, 10)?.seqs, [Seq(12)]);
//! assert_eq!(index.find_record("rec_01")?.map(|found| found.seq), Some(Seq(12)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tiles
//!
//! [`TileStore`] writes them at checkpoints, [`TileReader`] makes proofs of a few of them.

mod entry;
mod error;
mod filter;
mod index;
mod key_file;
mod manifest;
mod memory;
mod page;
mod run;
mod section;
mod shared;
mod sqlite;
mod store;
mod tile_files;
mod tiles;
mod worker;

pub use error::IndexError;
pub use index::{Found, FoundRecord, IdentifierParts, Index, Opening, RecordToken, Stats};
pub use key_file::{
    INDEX_KEY_FILE, IndexKeyError, IndexKeyFound, keep_key, load_key, load_or_create_key,
};
pub use manifest::Covered;
pub use tiles::{TileError, TileReader, TileStore};
