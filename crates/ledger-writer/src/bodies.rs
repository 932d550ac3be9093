//! Sealing of bodies: the part of a batch that does not hang on the chain.
//!
//! A body's key, salt and digest need only its number; the envelope and the link need the frame
//! before. So a second thread seals bodies ahead while the owner of the chain pushes frames.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ledger_format::Seq;
use ledger_vault::{Commitment, DataKey, DigestKey, RecordDigest, Salt, SaltSource, SealError};

use parking_lot::Mutex;

use crate::request::Prepared;

/// Batches of fewer records are sealed before a second thread would have started.
pub(crate) const AHEAD_FROM: usize = 48;
/// How far the second thread keeps away from the owner: what is nearer is done before it would be.
const DISTANCE: usize = 2;

/// Keys and randomness that seal the bodies of one write.
#[derive(Clone, Copy)]
pub(crate) struct BodyKeys<'k> {
    pub(crate) data: &'k DataKey,
    pub(crate) digest: &'k DigestKey,
    pub(crate) salts: &'k SaltSource,
}

/// A sealed body and what its frame says of it.
pub(crate) struct SealedBody {
    pub(crate) salt: Salt,
    pub(crate) commitment: Commitment,
    pub(crate) digest: RecordDigest,
    pub(crate) sealed: Vec<u8>,
}

impl BodyKeys<'_> {
    /// Seals the body of the frame `seq`.
    pub(crate) fn seal(&self, record: &Prepared, seq: Seq) -> Result<SealedBody, SealError> {
        let salt = self.salts.record_salt_of(seq, record.body_digest());
        let sealer = self.data.body_sealer(seq, &salt);
        let commitment = sealer.commitment();
        let mut sealed = Vec::with_capacity(record.sealed_body_len());
        sealer.seal(record.body(), &mut sealed)?;
        let digest = self.digest.record_digest(record.canonical());
        Ok(SealedBody {
            salt,
            commitment,
            digest,
            sealed,
        })
    }
}

/// One body of a write: free, claimed by a thread, or done.
#[derive(Default)]
struct Slot {
    claimed: AtomicBool,
    done: AtomicBool,
    body: Mutex<Option<Result<SealedBody, SealError>>>,
}

/// The bodies of one write, each sealed by whichever thread comes first.
pub(crate) struct Bodies<'b> {
    keys: BodyKeys<'b>,
    first: Seq,
    records: &'b [&'b Prepared],
    slots: Vec<Slot>,
    /// Where the owner is.
    owner_at: AtomicUsize,
}

impl<'b> Bodies<'b> {
    pub(crate) fn new(keys: BodyKeys<'b>, first: Seq, records: &'b [&'b Prepared]) -> Self {
        Self {
            keys,
            first,
            records,
            slots: records.iter().map(|_| Slot::default()).collect(),
            owner_at: AtomicUsize::new(0),
        }
    }

    fn seal(&self, index: usize) -> Result<SealedBody, SealError> {
        self.keys
            .seal(self.records[index], Seq(self.first.0 + index as u64))
    }

    /// The second thread: seals from ahead of the owner to the end.
    pub(crate) fn run_ahead(&self) {
        let mut index = 0;
        loop {
            index = index.max(self.owner_at.load(Ordering::Relaxed) + DISTANCE);
            let Some(slot) = self.slots.get(index) else {
                return;
            };
            if !slot.claimed.swap(true, Ordering::AcqRel) {
                *slot.body.lock() = Some(self.seal(index));
                slot.done.store(true, Ordering::Release);
            }
            index += 1;
        }
    }

    /// The owner: the body of this index, sealed here unless the second thread has it.
    pub(crate) fn take(&self, index: usize) -> Result<SealedBody, SealError> {
        self.owner_at.store(index, Ordering::Relaxed);
        let slot = &self.slots[index];
        if !slot.claimed.swap(true, Ordering::AcqRel) {
            return self.seal(index);
        }
        let mut spins = 0_u32;
        while !slot.done.load(Ordering::Acquire) {
            spins += 1;
            // Two microseconds of work are under way; unless that thread was put to sleep.
            if spins < 500 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let body = slot.body.lock().take();
        body.unwrap_or_else(|| unreachable!("a body is taken once, after it was sealed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_records::Submission;
    use ledger_vault::EnvelopeKey;

    #[test]
    fn every_body_is_sealed_once_by_either_thread() {
        let (data, envelope) = (
            DataKey::generate().unwrap(),
            EnvelopeKey::generate().unwrap(),
        );
        let (digest, salts) = (envelope.digest_key(), SaltSource::fresh().unwrap());
        let prepared: Vec<Prepared> = (0..300)
            .map(|n| {
                let line = format!(
                    r#"{{"type":"remote_ref","record_id":"rec_{n}","action_id":"act_1","attempt_id":"out_1","provider":"p","remote_operation_id":"op_1","observed_at":"2026-11-30T14:03:07Z"}}"#
                );
                Prepared::new(Submission::from_json(line.as_bytes()).unwrap(), None, None).unwrap()
            })
            .collect();
        let records: Vec<&Prepared> = prepared.iter().collect();
        let keys = BodyKeys {
            data: &data,
            digest: &digest,
            salts: &salts,
        };
        let bodies = Bodies::new(keys, Seq(7), &records);
        std::thread::scope(|scope| {
            scope.spawn(|| bodies.run_ahead());
            for (i, record) in records.iter().enumerate() {
                let seq = Seq(7 + i as u64);
                let body = bodies.take(i).unwrap();
                let opened = data.open_body(seq, &body.salt, &body.commitment, &body.sealed);
                assert_eq!(&*opened.unwrap(), record.body());
                assert_eq!(body.salt, salts.record_salt(seq, record.body()));
            }
        });
    }
}
