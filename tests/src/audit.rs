//! The verifier as oracle.

use ledger_format::AppendReceipt;
use ledger_verify::{Anchors, Code, OutsideCheckpoint, Receipts, Report, TrustLine, Verdict};
use std::path::Path;

/// What the auditor holds.
#[derive(Clone, Debug, Default)]
pub struct Anchored<'a> {
    /// Trust line.
    pub trust: Option<&'a str>,
    /// Earlier checkpoints.
    pub checkpoints: Vec<String>,
    /// Receipts.
    pub receipts: Vec<AppendReceipt>,
}

impl<'a> Anchored<'a> {
    /// A trust line only.
    #[must_use]
    pub fn by(trust: &'a str) -> Self {
        Self {
            trust: Some(trust),
            ..Self::default()
        }
    }

    /// With receipts.
    #[must_use]
    pub fn holding(mut self, receipts: &[AppendReceipt]) -> Self {
        self.receipts.extend_from_slice(receipts);
        self
    }

    /// With an earlier checkpoint.
    #[must_use]
    pub fn pinning(mut self, note: &str) -> Self {
        self.checkpoints.push(note.to_owned());
        self
    }
}

/// Verifies a ledger folder.
///
/// # Panics
/// The check cannot run, or trust line or receipts do not parse.
#[must_use]
pub fn verify(ledger: &Path, anchored: &Anchored<'_>) -> Report {
    let lines: String = anchored
        .receipts
        .iter()
        .map(|r| r.to_json() + "\n")
        .collect();
    let anchors = Anchors {
        trust: anchored
            .trust
            .map(|t| TrustLine::parse(t, "test").expect("a trust line")),
        checkpoints: anchored
            .checkpoints
            .iter()
            .map(|c| OutsideCheckpoint::new(c.clone().into_bytes(), "test"))
            .collect(),
        receipts: Receipts::read(lines.as_bytes()).expect("receipts"),
    };
    let mut request = ledger_verify::Request::new(ledger);
    request.anchors = anchors;
    request.now = ledger_writer::clock();
    request.threads = 2;
    let report = ledger_verify::verify(&request, &|_| {})
        .expect("the check runs")
        .report;
    let receipts = &report.continuity.receipts;
    if report.verdict == Verdict::Verified {
        assert_eq!(
            receipts.kept,
            anchored.receipts.len() as u64,
            "verified, but not all receipts kept: {receipts:?}"
        );
    }
    report
}

/// Asserts a verdict, showing the findings if it is another.
///
/// # Panics
/// It is another.
#[track_caller]
pub fn expect_verdict(report: &Report, verdict: Verdict) {
    assert_eq!(
        report.verdict, verdict,
        "{}: {:#?}",
        report.headline, report.findings
    );
}

/// Asserts that a finding with this code is there.
///
/// # Panics
/// It is not.
#[track_caller]
pub fn expect_finding(report: &Report, code: Code) {
    assert!(
        report.findings.iter().any(|f| f.code == code),
        "no {code} in {:#?}",
        report.findings
    );
}
