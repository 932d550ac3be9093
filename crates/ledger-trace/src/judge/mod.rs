//! What is missing in a story, and what contradicts: one small rule a finding, over the frames in chain order.
//!
//! The rules read facts, so that they say the same with the skeleton and with the evidence. They do not decide what is
//! true: they name the frames that a person has to look at.

mod conclusions;
mod inbound;
mod outbound;

pub(crate) use conclusions::is_terminal;

use std::collections::BTreeSet;

use ledger_records::{IdKind as K, RecordType};

use crate::facts::{Facts, Frames};
use crate::finding::{Finding, FindingCode as C};
use crate::source::Evidence;

/// All findings of a story, contradictions first, otherwise in the order of the frames that show them.
pub(crate) fn judge(frames: Frames<'_>) -> Vec<Finding> {
    let mut out = Vec::new();
    outbound::judge(frames, &mut out);
    inbound::judge(frames, &mut out);
    conclusions::judge(frames, &mut out);
    whole(frames, &mut out);
    out.sort_by(|a, b| {
        let key = |f: &Finding| (f.class as u8, f.frames.first().copied(), f.code);
        key(a).cmp(&key(b)).then_with(|| a.text.cmp(&b.text))
    });
    out.dedup();
    out
}

/// What concerns frames whatever they say.
fn whole(frames: Frames<'_>, out: &mut Vec<Finding>) {
    for frame in frames.0 {
        let id = &frame.envelope.record_id;
        match &frame.evidence {
            Evidence::Opened(opened) => {
                if let Some(what) = &opened.envelope_differs {
                    let text = format!(
                        "record {id}: {what}; the record is shown, the search used the other"
                    );
                    out.push(Finding::new(C::EnvelopeDiffers, text, [frame.seq]));
                }
            }
            Evidence::Failed(why) => {
                let text = format!("the body of record {id} does not open: {why}");
                out.push(Finding::new(C::BodyUnopened, text, [frame.seq]));
            }
            Evidence::Sealed => {}
        }
    }
    let uncovered: Vec<_> = frames
        .0
        .iter()
        .filter(|f| f.check.checkpoint.is_none())
        .map(|f| f.seq)
        .collect();
    if let (Some(first), count) = (uncovered.first(), uncovered.len()) {
        let text =
            format!("{count} of these frames, from {first} on, no signed checkpoint covers yet");
        out.push(Finding::new(C::NotCovered, text, uncovered));
    }
    let mut tenants = BTreeSet::new();
    let mut shown = Vec::new();
    for frame in frames.0 {
        for item in &frame.envelope.identifiers {
            if item.identifier.kind == K::Tenant && tenants.insert(&item.identifier.value) {
                shown.push(frame.seq);
            }
        }
    }
    if tenants.len() > 1 {
        let names: Vec<_> = tenants.iter().take(6).map(|t| t.as_str()).collect();
        let text = format!(
            "the story spans {} tenants: {}",
            tenants.len(),
            names.join(", ")
        );
        out.push(Finding::new(C::TenantsMixed, text, shown));
    }
}

/// Whether an exception is about this.
fn is_kept(frames: Frames<'_>, kind: K, value: &str) -> bool {
    frames
        .of(RecordType::Exception)
        .any(|(_, f)| cites(f, kind, value))
}

/// Whether a record rests on this.
fn cites(f: Facts<'_>, kind: K, value: &str) -> bool {
    f.ids(ledger_records::Relation::Evidence, kind)
        .any(|id| id == value)
}

/// Milliseconds of a time of RFC 3339.
fn millis(time: &str) -> Option<i64> {
    time.parse::<jiff::Timestamp>()
        .ok()
        .map(jiff::Timestamp::as_millisecond)
}
