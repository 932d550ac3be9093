//! Keyless, offline verification of ledgers: files in, report out.
//!
//! Here is the reading side of `ledger-format.md`, sections 14 and 15: which bytes are whole,
//! where and how they are not, and how far anything from outside the copy vouches for them. Here
//! is **nothing** that decrypts, signs, or writes below a ledger.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::panic
    )
)]

mod anchors;
mod bodies;
mod chain;
mod chunk;
pub mod cli;
mod code;
mod compare;
mod conclude;
mod coverage;
mod escape;
mod files;
mod finding;
mod judge;
mod outside;
mod pages;
mod payload_files;
mod payloads;
mod pipeline;
mod reader;
mod report;
mod state;
mod summary;
mod text;
mod verify;
mod walk;

pub use anchors::{AnchorError, Anchors, OutsideCheckpoint, Receipts, TrustLine};
pub use code::{Class, Code, WORDS, explanation};
pub use compare::{Difference, compare};
pub use files::{Folder, SegmentBytes, SegmentFile};
pub use finding::{Bounded, FINDINGS_LISTED_MAX, Finding, Note, Place};
pub use pages::{render_html, render_markdown};
pub use report::{
    Continuity, CountsReport, FileDigest, Freshness, GenerationReport, HeldCheckpoint,
    PayloadsReport, ReadReport, ReceiptsReport, Report, TailReport, TrustReport, Verdict,
};
pub use text::{TextStyle, render_text};
pub use verify::{Request, Verification, verify};
