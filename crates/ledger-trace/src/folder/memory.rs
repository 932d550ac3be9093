//! Which frames mention a value, in memory: 8 bytes a mention. For readers without an index, and for what an index does
//! not hold yet. A hash may collide: whoever asks looks into the envelopes.

use std::hash::{BuildHasher, RandomState};

use ledger_format::Seq;
use ledger_records::Envelope;

/// Mentions, by hash and frame. The hash is keyed anew each time, so that nobody can choose values that collide.
#[derive(Debug)]
pub(super) struct Memory {
    hasher: RandomState,
    first: Seq,
    mentions: Vec<u64>,
}

impl Memory {
    /// For frames from `first` on.
    pub(super) fn new(first: Seq) -> Self {
        Self {
            hasher: RandomState::new(),
            first,
            mentions: Vec::new(),
        }
    }

    fn key(&self, value: &str) -> u64 {
        self.hasher.hash_one(value) & !u64::from(u32::MAX)
    }

    /// Takes in a frame; false when it lies too far behind the first one.
    pub(super) fn add(&mut self, seq: Seq, envelope: &Envelope) -> bool {
        let Ok(place) = u32::try_from(seq.0.saturating_sub(self.first.0)) else {
            return false;
        };
        let values = envelope
            .identifiers
            .iter()
            .map(|item| item.identifier.value.as_str());
        for value in values.chain([envelope.record_id.as_str()]) {
            let mention = self.key(value) | u64::from(place);
            self.mentions.push(mention);
        }
        true
    }

    /// Ends the taking in.
    pub(super) fn sort(&mut self) {
        self.mentions.sort_unstable();
        self.mentions.dedup();
        self.mentions.shrink_to_fit();
    }

    /// The frames that may mention a value, ascending.
    pub(super) fn lookup(&self, value: &str) -> impl Iterator<Item = Seq> {
        let key = self.key(value);
        let from = self.mentions.partition_point(|mention| *mention < key);
        let first = self.first;
        let same = self
            .mentions
            .iter()
            .skip(from)
            .take_while(move |m| **m & !u64::from(u32::MAX) == key);
        same.map(move |mention| Seq(first.0.saturating_add(mention & u64::from(u32::MAX))))
    }
}
