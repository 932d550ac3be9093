//! What a client hands in, and the slip on which it waits.

use crate::error::{AppendError, PrepareError};
use crate::payloads::SealedPayload;
use ledger_format::limits::FRAME_LEN_MAX;
use ledger_format::{AppendReceipt, Link, Reader, Seq, UnixMillis};
use ledger_index::{Index, RecordToken};
use ledger_records::{Attested, Record, Submission, encode_body};
use ledger_vault::{body_sealed_len, envelope_sealed_len};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, OnceLock, PoisonError};

/// Bytes of a record frame besides its sealed sections, at most.
const FRAME_OVERHEAD_MAX: usize = 320;

/// A record made ready by the thread that brings it: encoded, bounded, its raw body apart.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) record_id: String,
    /// What the id is looked up by; none where there is no index.
    pub(crate) token: Option<RecordToken>,
    body: Vec<u8>,
    /// Plain BLAKE3 of the body.
    body_digest: [u8; 32],
    canonical: std::ops::Range<usize>,
    envelope: Vec<u8>,
    digest_at: usize,
    pub(crate) sealed_envelope_len: usize,
    sealed_body_len: usize,
    pub(crate) raw: Option<RawBody>,
    pub(crate) payload: Option<SealedPayload>,
    /// The raw body was not sealed, as the record seemed to be in the ledger already.
    pub(crate) unsealed: bool,
}

/// The raw body of a delivery, before it is sealed.
#[derive(Clone, Debug)]
pub(crate) struct RawBody {
    pub(crate) class: String,
    pub(crate) bytes: Vec<u8>,
}

impl Prepared {
    /// Encodes a submission. Its meaning was checked when it was read.
    pub(crate) fn new(
        submission: Submission,
        attested: Option<&Attested>,
        index: Option<&Index>,
    ) -> Result<Self, PrepareError> {
        let (record, raw) = submission.into_parts();
        let class = match &record {
            Record::Receipt(receipt) => receipt
                .payload_class
                .as_ref()
                .map(|c| c.as_str().to_owned()),
            _ => None,
        };
        let canonical_bytes = record.to_canonical_cbor();
        let body = encode_body(&canonical_bytes, attested);
        // The body is an array of two items, of which the canonical record is the first.
        let canonical = 1..1 + canonical_bytes.len();
        debug_assert_eq!(body.get(canonical.clone()), Some(&canonical_bytes[..]));
        // The digest is keyed by the segment that will be open when the record is sealed.
        let envelope = record.to_envelope_cbor([0; 16]);
        let digest_at = digest_offset(&envelope);
        Ok(Self {
            record_id: record.record_id().as_str().to_owned(),
            token: index.map(|index| index.record_token(record.record_id().as_str())),
            sealed_body_len: body_sealed_len(body.len())?,
            sealed_envelope_len: envelope_sealed_len(envelope.len())?,
            body_digest: *blake3::hash(&body).as_bytes(),
            body,
            canonical,
            envelope,
            digest_at,
            raw: raw
                .zip(class)
                .map(|(bytes, class)| RawBody { class, bytes }),
            payload: None,
            unsealed: false,
        })
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) const fn body_digest(&self) -> &[u8; 32] {
        &self.body_digest
    }

    pub(crate) const fn sealed_body_len(&self) -> usize {
        self.sealed_body_len
    }

    pub(crate) fn canonical(&self) -> &[u8] {
        self.body.get(self.canonical.clone()).unwrap_or_default()
    }

    /// Fills `out` with the envelope, the digest under the open segment's key in its place.
    pub(crate) fn envelope_with(&self, digest: &[u8; 16], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.envelope);
        out[self.digest_at..self.digest_at + 16].copy_from_slice(digest);
    }

    /// Length of the frame, at most.
    pub(crate) fn frame_len_max(&self) -> usize {
        let len = FRAME_OVERHEAD_MAX + self.sealed_body_len + self.sealed_envelope_len;
        debug_assert!(len <= FRAME_LEN_MAX as usize);
        len
    }

    /// The record's id.
    #[must_use]
    pub fn record_id(&self) -> &str {
        &self.record_id
    }
}

/// Where the 16 bytes of the digest stand in an envelope: behind version, type and record id.
fn digest_offset(envelope: &[u8]) -> usize {
    let mut r = Reader::new(envelope);
    let before = r
        .array()
        .and_then(|_| r.uint())
        .and_then(|_| r.uint())
        .and_then(|_| r.text())
        .map(|_| r.position());
    before
        .map(|p| p + 1)
        .unwrap_or_else(|e| unreachable!("an envelope begins with version, type and id: {e}"))
}

/// One record that is on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) origin: Arc<str>,
    pub(crate) seq: Seq,
    pub(crate) link: Link,
    pub(crate) appended_at: UnixMillis,
    pub(crate) record_id: String,
    /// Whether it was there before.
    pub(crate) duplicate: bool,
    /// For whoever asked for a checkpoint.
    pub(crate) note: Option<String>,
}

impl Acknowledged {
    pub(crate) fn checkpoint(note: String) -> Self {
        Self {
            origin: "".into(),
            seq: Seq(0),
            link: Link::ZERO,
            appended_at: UnixMillis(0),
            record_id: String::new(),
            duplicate: false,
            note: Some(note),
        }
    }
}

/// One record of a request that is on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The append receipt.
    pub receipt: AppendReceipt,
    /// Whether the record was in the ledger before: the receipt is of that time, and nothing was appended.
    pub duplicate: bool,
}

/// Why a ticket was not served.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// For the client to hear.
    Error(AppendError),
    /// The segment closed after the raw body was sealed into it: seal again.
    SegmentChanged,
}

impl From<AppendError> for Refusal {
    fn from(e: AppendError) -> Self {
        Self::Error(e)
    }
}

pub(crate) type Outcome = Result<Vec<Acknowledged>, Refusal>;

/// A request in the queue. Dropping the client neither cancels nor blocks it.
#[derive(Debug)]
pub(crate) struct Ticket {
    records: Vec<Prepared>,
    len_estimate: usize,
    /// Number of the first frame of the segment its payloads were sealed in.
    pub(crate) bound_to: Option<Seq>,
    done: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    /// Where it waits, once it has queued.
    round: OnceLock<Arc<Round>>,
}

/// Where the requests of one write wait together: one call to the kernel wakes all of them, which costs a
/// tenth of waking each.
#[derive(Debug, Default)]
pub(crate) struct Round {
    asleep: std::sync::Mutex<usize>,
    woken: Condvar,
}

impl Round {
    fn wait_until(&self, done: impl Fn() -> bool) {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        *asleep += 1;
        while !done() {
            asleep = self
                .woken
                .wait(asleep)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *asleep -= 1;
    }

    /// Wakes all who wait here, if anybody does; who is not done waits on.
    fn wake(&self) {
        let asleep = *self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if asleep > 0 {
            self.woken.notify_all();
        }
    }
}

impl Ticket {
    pub(crate) fn new(records: Vec<Prepared>) -> Self {
        Self {
            len_estimate: records.iter().map(Prepared::frame_len_max).sum(),
            bound_to: records
                .iter()
                .find_map(|r| r.payload.as_ref())
                .map(|p| p.segment),
            records,
            done: AtomicBool::new(false),
            outcome: Mutex::new(None),
            round: OnceLock::new(),
        }
    }

    pub(crate) fn records(&self) -> &[Prepared] {
        &self.records
    }

    pub(crate) const fn len_estimate(&self) -> usize {
        self.len_estimate
    }

    /// Queues where others do.
    pub(crate) fn join(&self, round: &Arc<Round>) {
        let _ = self.round.set(round.clone());
    }

    pub(crate) fn complete(&self, outcome: Outcome) {
        self.set(outcome);
        if let Some(round) = self.round.get() {
            round.wake();
        }
    }

    /// Answers many, then wakes all of them together.
    pub(crate) fn complete_all(answers: impl IntoIterator<Item = (Arc<Self>, Outcome)>) {
        let mut rounds: Vec<Arc<Round>> = Vec::with_capacity(1);
        for (ticket, outcome) in answers {
            ticket.set(outcome);
            if let Some(round) = ticket.round.get()
                && !rounds.last().is_some_and(|last| Arc::ptr_eq(last, round))
            {
                rounds.push(round.clone());
            }
        }
        rounds.iter().for_each(|round| round.wake());
    }

    fn set(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.done.store(true, Ordering::Release);
    }

    /// Answers, unless it was answered already.
    pub(crate) fn complete_if_open(&self, outcome: &Outcome) {
        if !self.done.load(Ordering::Acquire) {
            self.complete(outcome.clone());
        }
    }

    /// Waits for the outcome of a request that has queued, or was answered already.
    pub(crate) fn wait(&self) -> Outcome {
        let done = || self.done.load(Ordering::Acquire);
        match self.round.get() {
            Some(round) if !done() => round.wait_until(done),
            _ => debug_assert!(done(), "a request that did not queue was answered"),
        }
        let outcome = self.outcome.lock().take();
        outcome.unwrap_or_else(|| unreachable!("a ticket is waited for once"))
    }
}
