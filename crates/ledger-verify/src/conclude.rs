//! Holds what is known from outside against the chain, and draws the verdict
//! (`ledger-format.md`, section 15, anchors).

use crate::anchors::{Anchors, OutsideCheckpoint};
use crate::chain::Chain;
use crate::code::Code;
use crate::finding::{FINDINGS_LISTED_MAX, Finding};
use crate::report::{HeldCheckpoint, ReceiptsReport};
use crate::state::{GenerationSeen, GoodCheckpoint, Promise, Rules};
use ledger_format::{ByteOffset, Checkpoint, Generation, Origin, Seq};

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
    last_segment: Seq,
    /// Frames in the chain, when its end could be read.
    size: Option<u64>,
}

impl Facts<'_, '_> {
    fn anchor(&self, code: Code, at: u64) -> Finding {
        Finding::new(code, self.last_segment, Seq(at), ByteOffset(0))
    }

    /// The log key of one of the chain's origins; None for every other origin.
    fn log_key(&self, origin: &Origin) -> Option<[u8; 32]> {
        let named = self.chain.total.name.as_deref() == Some(origin.name());
        let mut known = self.chain.total.identities.iter();
        let found =
            known.find(|i| i.generation == origin.generation() && origin.names(&i.ledger_id));
        found.filter(|_| named).map(|i| i.log_key)
    }

    /// Nothing could be read that says whose chain this is.
    fn is_nameless(&self) -> bool {
        self.chain.total.identities.is_empty() || self.chain.total.name.is_none()
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
    coverage(&facts, pinned, anchors, limits, &mut out);
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
    if facts.is_nameless() {
        out.not_compared.push("the trust line".to_owned());
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
    let size = checkpoint.size;
    let parsed = match Checkpoint::parse(&checkpoint.note) {
        Ok(parsed) => parsed,
        Err(error) => {
            out.held
                .push(as_held(checkpoint, Code::AnchorSignature.name()));
            let detail = format!("{}: {error}", checkpoint.source);
            let finding = facts.anchor(Code::AnchorSignature, 0).saying(detail);
            out.findings.push(finding);
            return None;
        }
    };
    if facts.is_nameless() {
        out.held.push(as_held(checkpoint, "not_compared"));
        let text = format!("checkpoint {}", checkpoint.source);
        out.not_compared.push(text);
        return None;
    }
    let origin = &parsed.origin;
    let key = facts.log_key(origin);
    let verifies = key.is_some_and(|key| {
        let log = origin.log_verifier(key);
        parsed.verify_standalone(&log).is_ok()
    });
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
    out.held.push(as_held(checkpoint, result));
    (result == "unchanged").then(|| origin.generation())
}

fn as_held(checkpoint: &OutsideCheckpoint, result: &'static str) -> HeldCheckpoint {
    HeldCheckpoint {
        source: checkpoint.source.clone(),
        size: checkpoint.size,
        result,
    }
}

/// The receipts; the newest generation of those that agree.
fn receipts(
    facts: &Facts<'_, '_>,
    anchors: &Anchors,
    rules: &Rules,
    out: &mut Conclusion,
) -> Option<Generation> {
    let given = rules.promises.len() as u64;
    out.receipts.given = given;
    if given == 0 {
        return None;
    }
    let mut compared = 0_u64;
    let mut agrees = None;
    if !facts.is_nameless() {
        let total = &facts.chain.total;
        let end = facts.size.unwrap_or(u64::MAX);
        let origins = &anchors.receipts.origins;
        let known: Vec<bool> = origins.iter().map(|o| facts.log_key(o).is_some()).collect();
        let foreign = |p: &&Promise| known.get(p.origin) != Some(&true);
        let mut broken = total.promises_broken.listed.clone();
        let strangers = rules.promises_in(0, end).iter().filter(foreign);
        broken.extend(strangers.map(|p| p.seq).take(FINDINGS_LISTED_MAX));
        broken.sort_unstable();
        broken.dedup();
        for seq in &broken {
            out.findings.push(facts.anchor(Code::ReceiptMismatch, *seq));
        }
        let absent = rules.promises_in(end, u64::MAX);
        for promise in absent.iter().take(FINDINGS_LISTED_MAX) {
            let finding = facts.anchor(Code::ReceiptAbsent, promise.seq);
            out.findings.push(finding);
        }
        for ((origin, known), kept) in origins.iter().zip(&known).zip(total.promises_kept) {
            if *known && kept > 0 {
                out.receipts.kept = out.receipts.kept.saturating_add(kept);
                agrees = agrees.max(Some(origin.generation()));
            }
        }
        compared = out
            .receipts
            .kept
            .saturating_add(broken.len() as u64)
            .saturating_add(total.promises_broken.more)
            .saturating_add(absent.len() as u64);
    }
    out.receipts.not_compared = given.saturating_sub(compared);
    if out.receipts.not_compared > 0 {
        let text = format!("{} receipts", out.receipts.not_compared);
        out.not_compared.push(text);
    }
    out.anchored |= agrees.is_some();
    agrees
}

/// How far the pin reaches: generations followed, newest checkpoint, age.
fn coverage(
    facts: &Facts<'_, '_>,
    pinned: Option<Generation>,
    anchors: &Anchors,
    limits: Limits,
    out: &mut Conclusion,
) {
    let reaches = pinned.map(|pin| followed(facts, pin, anchors, limits, out));
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

/// The last generation that `pin` vouches for.
fn followed(
    facts: &Facts<'_, '_>,
    pin: Generation,
    anchors: &Anchors,
    limits: Limits,
    out: &mut Conclusion,
) -> Generation {
    let seen = &facts.chain.total.generations;
    let uncovered = |g: &GenerationSeen| {
        let finding = Finding::new(Code::GenerationUncovered, g.segment, g.seq, g.offset);
        finding.saying(format!("generation {}, reason {}", g.number, g.reason))
    };
    let signed = facts.chain.newest.iter().any(|c| c.generation == pin);
    if anchors.trust.is_some() && pin.0 != 0 && !signed && !limits.partial {
        let began = seen.iter().find(|g| g.number == pin);
        out.findings.extend(began.map(uncovered));
        return pin;
    }
    let mut current = pin;
    for generation in seen.iter().filter(|g| g.number > pin) {
        let next = current.0.checked_add(1) == Some(generation.number.0);
        if next && generation.covered {
            current = generation.number;
        } else if !generation.planned || opened_under(facts, generation) {
            out.findings.push(uncovered(generation));
            break;
        }
    }
    current
}

/// Whether a segment behind a planned generation opens under it.
fn opened_under(facts: &Facts<'_, '_>, generation: &GenerationSeen) -> bool {
    let segments = facts.chain.segments.iter();
    segments.into_iter().any(|s| s.first > generation.segment)
}
