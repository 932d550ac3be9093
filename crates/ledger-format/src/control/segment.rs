//! Bodies that begin and end: genesis, segment_open, segment_close (section 7).

use super::{BodyError, Decoded, encoded, hash_of, hashes_of, put_hashes};
use crate::cbor::Reader;
use crate::checkpoint::Origin;
use crate::context::{Context, derive};
use crate::frame::is_class;
use crate::limits::{FORMAT_VERSION, NOTE_LEN_MAX, UNUSED_RANGES_MAX};
use crate::tree::Hash;
use crate::types::{Generation, LedgerId, Link};
use std::collections::BTreeMap;

/// Identity of a ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Genesis {
    /// NAME.
    pub name: String,
    /// 32 random bytes.
    pub random: [u8; 32],
    /// Ed25519 public key of generation 0.
    pub log_key: [u8; 32],
    /// Ed25519 public key of segment 0.
    pub epoch_key: [u8; 32],
}

impl Genesis {
    /// The encoded body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoded(|e| {
            e.map(6)
                .text("name")
                .text(&self.name)
                .text("suite")
                .uint(crate::SUITE.into());
            e.text("format")
                .uint(FORMAT_VERSION)
                .text("random")
                .bytes(&self.random);
            e.text("log_key")
                .bytes(&self.log_key)
                .text("epoch_key")
                .bytes(&self.epoch_key);
        })
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        r.map_of(6)?;
        r.key("name")?;
        let name = r.text()?.to_owned();
        r.key("suite")?;
        let suite = r.uint()?;
        r.key("format")?;
        let format = r.uint()?;
        r.key("random")?;
        let random = hash_of(&mut r)?;
        r.key("log_key")?;
        let log_key = hash_of(&mut r)?;
        r.key("epoch_key")?;
        let epoch_key = hash_of(&mut r)?;
        r.finish()?;
        Origin::check_name(&name).map_err(|_| BodyError::Value("name"))?;
        if suite != u64::from(crate::SUITE) {
            return Err(BodyError::Value("suite"));
        }
        if format != FORMAT_VERSION {
            return Err(BodyError::Value("format"));
        }
        Ok(Self {
            name,
            random,
            log_key,
            epoch_key,
        })
    }

    /// The ledger id that an encoded body gives.
    #[must_use]
    pub fn ledger_id(body: &[u8]) -> LedgerId {
        LedgerId(derive(Context::LedgerId, body))
    }
}

/// First frame of a segment: all that the reader of one segment needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentOpen {
    /// Suite of the segment's frames; another than 1 is decoded, for the caller to refuse.
    pub suite: u64,
    /// Log key in force.
    pub log_key: [u8; 32],
    /// Commitment to the data key.
    pub data_key: Hash,
    /// Frontier at the size of `previous`.
    pub frontier: Vec<Hash>,
    /// The newest checkpoint note before this segment.
    pub previous: Option<Vec<u8>>,
    /// Epoch key of this segment.
    pub epoch_key: [u8; 32],
    /// The ledger.
    pub ledger_id: LedgerId,
    /// Commitment to the token key.
    pub token_key: Hash,
    /// The generation.
    pub generation: Generation,
    /// Link of the frame before this one.
    pub predecessor: Link,
    /// Commitment to the envelope key.
    pub envelope_key: Hash,
    /// Commitment to the payload key of each retention class.
    pub payload_keys: BTreeMap<String, Hash>,
}

impl SegmentOpen {
    /// The encoded body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoded(|e| {
            e.map(13)
                .text("suite")
                .uint(self.suite)
                .text("format")
                .uint(FORMAT_VERSION);
            e.text("log_key")
                .bytes(&self.log_key)
                .text("data_key")
                .bytes(&self.data_key)
                .text("frontier");
            put_hashes(e, &self.frontier);
            e.text("previous");
            match &self.previous {
                None => e.null(),
                Some(note) => e.bytes(note),
            };
            e.text("epoch_key")
                .bytes(&self.epoch_key)
                .text("ledger_id")
                .bytes(&self.ledger_id.0);
            e.text("token_key")
                .bytes(&self.token_key)
                .text("generation")
                .uint(self.generation.0);
            e.text("predecessor")
                .bytes(&self.predecessor.0)
                .text("envelope_key")
                .bytes(&self.envelope_key);
            e.text("payload_keys").map(self.payload_keys.len());
            for (class, commitment) in by_encoded_key(&self.payload_keys) {
                e.text(class).bytes(commitment);
            }
        })
    }

    /// Decodes a body. A suite other than 1 is the caller's to refuse.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        r.map_of(13)?;
        r.key("suite")?;
        let suite = r.uint()?;
        r.key("format")?;
        let format = r.uint()?;
        r.key("log_key")?;
        let log_key = hash_of(&mut r)?;
        r.key("data_key")?;
        let data_key = hash_of(&mut r)?;
        r.key("frontier")?;
        let frontier = hashes_of(&mut r)?;
        r.key("previous")?;
        let previous = if r.take_null() {
            None
        } else {
            Some(r.bytes()?.to_vec())
        };
        r.key("epoch_key")?;
        let epoch_key = hash_of(&mut r)?;
        r.key("ledger_id")?;
        let ledger_id = LedgerId(hash_of(&mut r)?);
        r.key("token_key")?;
        let token_key = hash_of(&mut r)?;
        r.key("generation")?;
        let generation = Generation(r.uint()?);
        r.key("predecessor")?;
        let predecessor = Link(hash_of(&mut r)?);
        r.key("envelope_key")?;
        let envelope_key = hash_of(&mut r)?;
        r.key("payload_keys")?;
        let payload_keys = class_map(&mut r, "payload_keys", |r| Ok(hash_of(r)?))?;
        r.finish()?;
        if format != FORMAT_VERSION {
            return Err(BodyError::Value("format"));
        }
        if previous.as_ref().is_some_and(|n| n.len() > NOTE_LEN_MAX) {
            return Err(BodyError::Value("previous"));
        }
        Ok(Self {
            suite,
            log_key,
            data_key,
            frontier,
            previous,
            epoch_key,
            ledger_id,
            token_key,
            generation,
            predecessor,
            envelope_key,
            payload_keys,
        })
    }
}

/// Classes in the order of their encoded keys: shorter first, then bytewise.
fn by_encoded_key<V>(map: &BTreeMap<String, V>) -> Vec<(&String, &V)> {
    let mut pairs: Vec<_> = map.iter().collect();
    pairs.sort_by(|a, b| (a.0.len(), a.0).cmp(&(b.0.len(), b.0)));
    pairs
}

fn class_map<V>(
    r: &mut Reader<'_>,
    name: &'static str,
    mut value: impl FnMut(&mut Reader<'_>) -> Decoded<V>,
) -> Decoded<BTreeMap<String, V>> {
    let n = r.map()?;
    let mut out = BTreeMap::new();
    let mut last: Option<&str> = None;
    for _ in 0..n {
        let class = r.text()?;
        let ascending = last.is_none_or(|l| (l.len(), l) < (class.len(), class));
        if !ascending || !is_class(class) {
            return Err(BodyError::Value(name));
        }
        last = Some(class);
        out.insert(class.to_owned(), value(r)?);
    }
    Ok(out)
}

/// What a close says of one class' payload file (section 13).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClosedPayloads {
    /// Final length of the file.
    pub file_len: u64,
    /// Ranges `(offset, length)` that no frame declares, ascending, not touching.
    pub unused: Vec<(u64, u64)>,
}

/// End of a segment: names the next epoch key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Close {
    /// Payload files of the segment.
    pub payloads: BTreeMap<String, ClosedPayloads>,
    /// Epoch key of the next segment.
    pub epoch_key: [u8; 32],
    /// Root of the segment's identifier set (section 18), or none.
    pub index_root: Option<Hash>,
}

impl Close {
    /// The encoded body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoded(|e| {
            e.map(3).text("payloads").map(self.payloads.len());
            for (class, p) in by_encoded_key(&self.payloads) {
                e.text(class)
                    .array(2)
                    .uint(p.file_len)
                    .array(p.unused.len());
                for (offset, length) in &p.unused {
                    e.array(2).uint(*offset).uint(*length);
                }
            }
            e.text("epoch_key")
                .bytes(&self.epoch_key)
                .text("index_root");
            match &self.index_root {
                None => e.null(),
                Some(root) => e.bytes(root),
            };
        })
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        r.map_of(3)?;
        r.key("payloads")?;
        let payloads = class_map(&mut r, "payloads", closed_payloads)?;
        r.key("epoch_key")?;
        let epoch_key = hash_of(&mut r)?;
        r.key("index_root")?;
        let index_root = if r.take_null() {
            None
        } else {
            Some(hash_of(&mut r)?)
        };
        r.finish()?;
        Ok(Self {
            payloads,
            epoch_key,
            index_root,
        })
    }
}

fn closed_payloads(r: &mut Reader<'_>) -> Decoded<ClosedPayloads> {
    r.array_of(2)?;
    let file_len = r.uint()?;
    let n = r.array()?;
    if n > UNUSED_RANGES_MAX as u64 {
        return Err(BodyError::Value("payloads"));
    }
    let mut unused = Vec::new();
    let mut end = None;
    for _ in 0..n {
        r.array_of(2)?;
        let (offset, length) = (r.uint()?, r.uint()?);
        let range_end = offset
            .checked_add(length)
            .filter(|e| *e <= file_len && length > 0);
        if range_end.is_none() || end.is_some_and(|e| offset <= e) {
            return Err(BodyError::Value("payloads"));
        }
        end = range_end;
        unused.push((offset, length));
    }
    Ok(ClosedPayloads { file_len, unused })
}
