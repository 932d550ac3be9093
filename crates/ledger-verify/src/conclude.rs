//! Holds what is known from outside against the chain, and draws the verdict
//! (`ledger-format.md`, section 15, anchors).

use crate::anchors::{Anchors, OutsideCheckpoint};
use crate::chain::Chain;
use crate::code::Code;
use crate::finding::Finding;
use crate::report::{HeldCheckpoint, ReceiptsReport};
use crate::state::{GoodCheckpoint, Rules};
use ledger_format::{ByteOffset, Checkpoint, Generation, LedgerId, Origin, Seq};

/// What is asked of the conclusion beside the anchors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Now, in milliseconds since 1970.
    pub(crate) now: u64,
    pub(crate) max_age: Option<u64>,
    /// Only a part of the segments was read.
    pub(crate) partial: bool,
}

/// How the anchors came out.
#[derive(Debug, Default)]
pub(crate) struct Conclusion {
    pub(crate) findings: Vec<Finding>,
    pub(crate) anchored: bool,
    pub(crate) trust_matches: bool,
    pub(crate) reaches: Option<Generation>,
    pub(crate) held: Vec<HeldCheckpoint>,
    pub(crate) receipts: ReceiptsReport,
    /// Newest good checkpoint under the pin; without a pin, of the chain.
    pub(crate) newest: Option<GoodCheckpoint>,
    pub(crate) not_compared: Vec<String>,
}

struct Facts<'c, 'r> {
    chain: &'c Chain<'r>,
    ledger_id: Option<LedgerId>,
    last_segment: Seq,
    /// Frames in the chain, when its end could be read.
    size: Option<u64>,
}

impl Facts<'_, '_> {
    fn anchor(&self, code: Code, at: u64) -> Finding {
        Finding::new(code, self.last_segment, Seq(at), ByteOffset(0))
    }

    fn log_key(&self, generation: Generation) -> Option<[u8; 32]> {
        let known = &self.chain.total.identities;
        let found = known.iter().find(|i| i.generation == generation);
        found.map(|i| i.log_key)
    }

    fn is_this_ledger(&self, origin: &Origin) -> bool {
        let name = self.chain.total.name.as_ref();
        self.ledger_id.is_some_and(|id| origin.names(&id))
            && name.is_none_or(|n| n == origin.name())
    }
}

/// Draws the conclusion; chain findings stay in `chain`.
pub(crate) fn conclude(
    chain: &Chain<'_>,
    anchors: &Anchors,
    rules: &Rules,
    limits: Limits,
) -> Conclusion {
    let facts = Facts {
        chain,
        ledger_id: chain.total.identities.first().map(|i| i.ledger_id),
        last_segment: chain.segments.last().map_or(Seq(0), |s| s.first),
        size: chain
            .total
            .next_seq
            .filter(|_| !chain.halted())
            .map(|s| s.0),
    };
    let mut out = Conclusion::default();
    let mut pinned = trust(&facts, anchors, limits, &mut out);
    for checkpoint in &anchors.checkpoints {
        let held = hold(&facts, checkpoint, &mut out);
        if let (None, Some(generation)) = (&anchors.trust, held) {
            pinned = pinned.max(Some(generation));
        }
    }
    let promised = receipts(&facts, anchors, rules, &mut out);
    if anchors.trust.is_none() {
        pinned = pinned.max(promised);
    }
    coverage(&facts, pinned, limits, &mut out);
    out
}

/// The trust line; the generation it pins when it matches.
fn trust(
    facts: &Facts<'_, '_>,
    anchors: &Anchors,
    limits: Limits,
    out: &mut Conclusion,
) -> Option<Generation> {
    let line = anchors.trust.as_ref()?;
    let wanted = line.origin.generation();
    let identities = &facts.chain.total.identities;
    // Without any identity nothing can be compared, and the findings say why.
    if identities.is_empty() {
        return None;
    }
    let name = facts.chain.total.name.as_ref();
    let wrong_ledger = identities.iter().any(|i| !line.origin.names(&i.ledger_id))
        || name.is_some_and(|n| n != line.origin.name());
    let wrong_key = identities
        .iter()
        .any(|i| i.generation == wanted && i.log_key != *line.key.public_key());
    let present = identities.iter().any(|i| i.generation == wanted);
    let partial = limits.partial || facts.chain.halted();
    let detail = if wrong_ledger {
        "the chain is another ledger than the trust line names"
    } else if wrong_key {
        "the chain has another log key in that generation"
    } else if !present && !partial {
        "the chain has no such generation"
    } else {
        out.trust_matches = present;
        return present.then_some(wanted);
    };
    let first = facts.chain.segments.first().map_or(Seq(0), |s| s.first);
    let finding = Finding::new(Code::TrustMismatch, first, Seq(0), ByteOffset(0));
    let inside = inside_line(facts.chain);
    out.findings.push(
        finding
            .saying(detail)
            .between(line.key.to_string(), inside.unwrap_or_default()),
    );
    None
}

/// The trust line that the newest generation read would have.
pub(crate) fn inside_line(chain: &Chain<'_>) -> Option<String> {
    let identity = chain.total.identities.iter().max_by_key(|i| i.generation)?;
    let name = chain.total.name.as_ref()?;
    let origin = Origin::new(name, &identity.ledger_id, identity.generation).ok()?;
    Some(origin.log_verifier(identity.log_key).to_string())
}

/// One checkpoint from outside; its generation when the chain has it.
fn hold(
    facts: &Facts<'_, '_>,
    checkpoint: &OutsideCheckpoint,
    out: &mut Conclusion,
) -> Option<Generation> {
    let parsed = Checkpoint::parse(&checkpoint.note).ok()?;
    let origin = &parsed.origin;
    let size = parsed.size;
    let verifies = facts.is_this_ledger(origin)
        && facts
            .log_key(origin.generation())
            .is_some_and(|key| parsed.verify_standalone(&origin.log_verifier(key)).is_ok());
    let root = facts.chain.total.roots.iter().find(|(s, _)| *s == size);
    let result = if !verifies {
        let finding = facts.anchor(Code::AnchorSignature, size);
        out.findings.push(finding.saying(checkpoint.source.clone()));
        Code::AnchorSignature.name()
    } else if facts.size.is_some_and(|have| size > have) {
        let have = facts.size.unwrap_or(0);
        let finding = facts.anchor(Code::RolledBack, size);
        out.findings.push(
            finding
                .between(format!("at least {size} frames"), format!("{have} frames"))
                .saying(checkpoint.source.clone()),
        );
        Code::RolledBack.name()
    } else if let Some((_, root)) = root {
        if *root == parsed.root {
            out.anchored = true;
            "unchanged"
        } else {
            let finding = facts.anchor(Code::CheckpointAbsent, size);
            out.findings.push(
                finding
                    .between(
                        crate::bodies::short(&parsed.root),
                        crate::bodies::short(root),
                    )
                    .saying(checkpoint.source.clone()),
            );
            Code::CheckpointAbsent.name()
        }
    } else {
        let text = format!("checkpoint {} of {size} frames", checkpoint.source);
        out.not_compared.push(text);
        "not_compared"
    };
    out.held.push(HeldCheckpoint {
        source: checkpoint.source.clone(),
        size,
        result,
    });
    (result == "unchanged").then(|| origin.generation())
}

/// The receipts; the newest generation of those that were kept.
fn receipts(
    facts: &Facts<'_, '_>,
    anchors: &Anchors,
    rules: &Rules,
    out: &mut Conclusion,
) -> Option<Generation> {
    let total = &facts.chain.total;
    let given = rules.promises.len() as u64;
    let mut broken = total.promises_broken.listed.clone();
    for (origin, seq) in &anchors.receipts.origins {
        if facts.ledger_id.is_some() && !facts.is_this_ledger(origin) {
            broken.push(*seq);
        }
    }
    broken.sort_unstable();
    broken.dedup();
    let end = facts.size.unwrap_or(u64::MAX);
    for seq in broken.iter().filter(|seq| **seq < end) {
        out.findings.push(facts.anchor(Code::ReceiptMismatch, *seq));
    }
    let absent = rules.promises_in(end, u64::MAX);
    for promise in absent.iter().take(crate::finding::FINDINGS_LISTED_MAX) {
        out.findings
            .push(facts.anchor(Code::ReceiptAbsent, promise.seq));
    }
    let compared = total
        .promises_kept
        .saturating_add(total.promises_broken.total())
        .saturating_add(absent.len() as u64);
    out.receipts = ReceiptsReport {
        given,
        kept: total.promises_kept,
        not_compared: given.saturating_sub(compared),
    };
    if out.receipts.not_compared > 0 {
        let text = format!("{} receipts", out.receipts.not_compared);
        out.not_compared.push(text);
    }
    if total.promises_kept == 0 {
        return None;
    }
    out.anchored = true;
    let kept = rules.promises_in(0, end);
    kept.iter().map(|p| Generation(p.generation)).max()
}

/// How far the pin reaches: generations followed, newest checkpoint, age.
fn coverage(
    facts: &Facts<'_, '_>,
    pinned: Option<Generation>,
    limits: Limits,
    out: &mut Conclusion,
) {
    let mut reaches = pinned;
    if let Some(pin) = pinned {
        let mut current = pin;
        for seen in facts
            .chain
            .total
            .generations
            .iter()
            .filter(|g| g.number > pin)
        {
            let follows = current.0.checked_add(1) == Some(seen.number.0);
            if follows && seen.planned && seen.covered {
                current = seen.number;
                continue;
            }
            let finding = Finding::new(
                Code::GenerationUncovered,
                seen.segment,
                seen.seq,
                seen.offset,
            );
            let text = format!("generation {}, reason {}", seen.number, seen.reason);
            out.findings.push(finding.saying(text));
            break;
        }
        reaches = Some(current);
    }
    out.reaches = reaches;
    let covering = facts.chain.newest.iter();
    out.newest = covering
        .filter(|c| reaches.is_none_or(|r| c.generation <= r))
        .max_by_key(|c| c.size)
        .cloned();
    // A key that has signed nothing here vouches for nothing.
    out.anchored |= out.trust_matches && out.newest.is_some();
    if let (Some(limit), Some(newest)) = (limits.max_age, &out.newest)
        && limits.now.saturating_sub(newest.time.0) > limit
    {
        let place = (newest.segment, Seq(newest.size), newest.offset);
        let finding = Finding::new(Code::Stale, place.0, place.1, place.2);
        out.findings
            .push(finding.saying(format!("signed {}", newest.time.to_rfc3339())));
    }
}
