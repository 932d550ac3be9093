//! Bodies of control frames: one CBOR map each, fixed keys in fixed order (`ledger-format.md`, section 7).

use crate::cbor::{CborError, Encoder, Reader};
use crate::checkpoint::Origin;
use crate::context::{Context, derive};
use crate::frame::is_class;
use crate::limits::{ERASURE_SEGMENTS_MAX, FORMAT_VERSION, NOTE_LEN_MAX, UNUSED_RANGES_MAX};
use crate::note::SignatureLine;
use crate::tree::Hash;
use crate::types::{ByteOffset, Generation, LedgerId, Link, Seq};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a control body does not decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BodyError {
    /// Not the map that this kind has.
    #[error("the body is not this kind's map: {0}")]
    Cbor(#[from] CborError),
    /// A value outside what the specification allows for this key.
    #[error("the value of {0:?} is not allowed")]
    Value(&'static str),
}

type Decoded<T> = Result<T, BodyError>;

fn hash_of(r: &mut Reader<'_>) -> Result<Hash, CborError> {
    r.array_bytes::<32>().copied()
}

fn hashes_of(r: &mut Reader<'_>) -> Decoded<Vec<Hash>> {
    let n = r.array()?;
    if n > 64 {
        return Err(BodyError::Value("frontier"));
    }
    (0..n).map(|_| Ok(hash_of(r)?)).collect()
}

fn put_hashes(e: &mut Encoder<'_>, hashes: &[Hash]) {
    e.array(hashes.len());
    for h in hashes {
        e.bytes(h);
    }
}

fn encoded(write: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write(&mut Encoder::new(&mut out));
    out
}

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

/// The body of a checkpoint frame around its note.
#[must_use]
pub fn checkpoint_body(note: &[u8]) -> Vec<u8> {
    encoded(|e| {
        e.map(1).text("note").bytes(note);
    })
}

/// The note in the body of a checkpoint frame.
///
/// # Errors
/// [`BodyError`].
pub fn decode_checkpoint_body(body: &[u8]) -> Decoded<&[u8]> {
    let mut r = Reader::new(body);
    r.map_of(1)?;
    r.key("note")?;
    let note = r.bytes()?;
    r.finish()?;
    Ok(note)
}

/// Witnesses' signature lines for an earlier checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CosignatureBody {
    /// Signature lines, each ending in a newline.
    pub lines: String,
    /// Number of the checkpoint frame.
    pub checkpoint: Seq,
}

impl CosignatureBody {
    /// The encoded body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoded(|e| {
            e.map(2)
                .text("lines")
                .bytes(self.lines.as_bytes())
                .text("checkpoint")
                .uint(self.checkpoint.0);
        })
    }

    /// Decodes the body of the frame `seq`.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(body: &[u8], seq: Seq) -> Decoded<Self> {
        let mut r = Reader::new(body);
        r.map_of(2)?;
        r.key("lines")?;
        let lines = r.bytes()?;
        r.key("checkpoint")?;
        let checkpoint = Seq(r.uint()?);
        r.finish()?;
        let text = std::str::from_utf8(lines).map_err(|_| BodyError::Value("lines"))?;
        let stripped = text.strip_suffix('\n').ok_or(BodyError::Value("lines"))?;
        let count = stripped.split('\n').count();
        if text.len() > NOTE_LEN_MAX
            || count > crate::SIGNATURE_LINES_EXTRA_MAX
            || stripped
                .split('\n')
                .any(|l| SignatureLine::parse(l).is_none())
        {
            return Err(BodyError::Value("lines"));
        }
        if checkpoint >= seq {
            return Err(BodyError::Value("checkpoint"));
        }
        Ok(Self {
            lines: text.to_owned(),
            checkpoint,
        })
    }
}

/// Payload files whose keys are destroyed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Erasure {
    /// Why.
    pub rule: String,
    /// Retention class.
    pub class: String,
    /// First seq of each segment concerned, ascending.
    pub segments: Vec<Seq>,
}

impl Erasure {
    /// The encoded body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoded(|e| {
            e.map(3)
                .text("rule")
                .text(&self.rule)
                .text("class")
                .text(&self.class);
            e.text("segments").array(self.segments.len());
            for s in &self.segments {
                e.uint(s.0);
            }
        })
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        r.map_of(3)?;
        r.key("rule")?;
        let rule = r.text()?.to_owned();
        r.key("class")?;
        let class = r.text()?.to_owned();
        r.key("segments")?;
        let n = r.array()?;
        if n == 0 || n > ERASURE_SEGMENTS_MAX as u64 {
            return Err(BodyError::Value("segments"));
        }
        let segments = (0..n)
            .map(|_| Ok(Seq(r.uint()?)))
            .collect::<Decoded<Vec<_>>>()?;
        r.finish()?;
        if !(1..=1024).contains(&rule.len()) {
            return Err(BodyError::Value("rule"));
        }
        if !is_class(&class) {
            return Err(BodyError::Value("class"));
        }
        if !segments.is_sorted_by(|a, b| a < b) {
            return Err(BodyError::Value("segments"));
        }
        Ok(Self {
            rule,
            class,
            segments,
        })
    }
}

/// A torn tail that was set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// BLAKE3 of the bytes.
    pub hash: Hash,
    /// Their number.
    pub length: u64,
    /// Where in the file they began.
    pub offset: ByteOffset,
    /// First seq of the segment.
    pub segment: Seq,
}

impl Recovery {
    /// The encoded body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoded(|e| {
            e.map(4)
                .text("hash")
                .bytes(&self.hash)
                .text("length")
                .uint(self.length);
            e.text("offset")
                .uint(self.offset.0)
                .text("segment")
                .uint(self.segment.0);
        })
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        r.map_of(4)?;
        r.key("hash")?;
        let hash = hash_of(&mut r)?;
        r.key("length")?;
        let length = r.uint()?;
        r.key("offset")?;
        let offset = ByteOffset(r.uint()?);
        r.key("segment")?;
        let segment = Seq(r.uint()?);
        r.finish()?;
        Ok(Self {
            hash,
            length,
            offset,
            segment,
        })
    }

    /// Name of the file below `recovered/` that holds the bytes.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!(
            "{:020}-{}-{}",
            self.segment.0,
            self.offset,
            crate::types::hex(&self.hash)
        )
    }
}

/// Size and root of the newest checkpoint known when a generation was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor {
    /// Number of leaves.
    pub size: u64,
    /// Root at that size.
    pub root: Hash,
}

/// What a generation with reason `damage` set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetAside {
    /// First seq of the segment in which it began.
    pub segment: Seq,
    /// Where in that file.
    pub offset: ByteOffset,
    /// Bytes in all.
    pub length: u64,
    /// BLAKE3 over them in chain order.
    pub hash: Hash,
}

/// New log and epoch keys (section 10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GenerationBody {
    /// The floor, when there was one.
    pub floor: Option<Floor>,
    /// `rotate_log_key`, `lost_epoch_key`, `roll_back` or `damage`.
    pub reason: String,
    /// The new log key.
    pub log_key: [u8; 32],
    /// None when planned, else the frontier at the first seq of the segment.
    pub frontier: Option<Vec<Hash>>,
    /// The new epoch key.
    pub epoch_key: [u8; 32],
    /// With `damage`: what was set aside.
    pub set_aside: Option<SetAside>,
    /// The new number.
    pub generation: Generation,
}

/// Reasons a generation may give.
const REASONS: [&str; 4] = ["rotate_log_key", "lost_epoch_key", "roll_back", "damage"];

impl GenerationBody {
    /// The encoded body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoded(|e| {
            e.map(7).text("floor");
            match &self.floor {
                None => e.null(),
                Some(f) => e.array(2).uint(f.size).bytes(&f.root),
            };
            e.text("reason")
                .text(&self.reason)
                .text("log_key")
                .bytes(&self.log_key)
                .text("frontier");
            match &self.frontier {
                None => {
                    e.null();
                }
                Some(hashes) => put_hashes(e, hashes),
            }
            e.text("epoch_key").bytes(&self.epoch_key).text("set_aside");
            match &self.set_aside {
                None => e.null(),
                Some(s) => e
                    .array(4)
                    .uint(s.segment.0)
                    .uint(s.offset.0)
                    .uint(s.length)
                    .bytes(&s.hash),
            };
            e.text("generation").uint(self.generation.0);
        })
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        r.map_of(7)?;
        r.key("floor")?;
        let floor = if r.take_null() {
            None
        } else {
            r.array_of(2)?;
            Some(Floor {
                size: r.uint()?,
                root: hash_of(&mut r)?,
            })
        };
        r.key("reason")?;
        let reason = r.text()?.to_owned();
        r.key("log_key")?;
        let log_key = hash_of(&mut r)?;
        r.key("frontier")?;
        let frontier = if r.take_null() {
            None
        } else {
            Some(hashes_of(&mut r)?)
        };
        r.key("epoch_key")?;
        let epoch_key = hash_of(&mut r)?;
        r.key("set_aside")?;
        let set_aside = if r.take_null() {
            None
        } else {
            Some(set_aside(&mut r)?)
        };
        r.key("generation")?;
        let generation = Generation(r.uint()?);
        r.finish()?;
        if !REASONS.contains(&reason.as_str()) {
            return Err(BodyError::Value("reason"));
        }
        if set_aside.is_some() != (reason == "damage") {
            return Err(BodyError::Value("set_aside"));
        }
        Ok(Self {
            floor,
            reason,
            log_key,
            frontier,
            epoch_key,
            set_aside,
            generation,
        })
    }
}

fn set_aside(r: &mut Reader<'_>) -> Decoded<SetAside> {
    r.array_of(4)?;
    Ok(SetAside {
        segment: Seq(r.uint()?),
        offset: ByteOffset(r.uint()?),
        length: r.uint()?,
        hash: hash_of(r)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> SegmentOpen {
        SegmentOpen {
            suite: 1,
            log_key: [1; 32],
            data_key: [2; 32],
            frontier: vec![[3; 32], [4; 32]],
            previous: Some(b"note".to_vec()),
            epoch_key: [5; 32],
            ledger_id: LedgerId([6; 32]),
            token_key: [7; 32],
            generation: Generation(0),
            predecessor: Link([8; 32]),
            envelope_key: [9; 32],
            payload_keys: [("365d".to_owned(), [1; 32]), ("30d".to_owned(), [2; 32])].into(),
        }
    }

    #[test]
    fn bodies_round_trip_and_truncations_fail() {
        fn check<T: PartialEq + std::fmt::Debug>(
            value: &T,
            body: &[u8],
            decode: impl Fn(&[u8]) -> Decoded<T>,
        ) {
            assert_eq!(decode(body).as_ref(), Ok(value));
            for n in 0..body.len() {
                assert!(decode(&body[..n]).is_err(), "{n} of {} bytes", body.len());
            }
            assert!(decode(&[body, &[0]].concat()).is_err());
        }
        let genesis = Genesis {
            name: "a.example/b".into(),
            random: [1; 32],
            log_key: [2; 32],
            epoch_key: [3; 32],
        };
        check(&genesis, &genesis.encode(), Genesis::decode);
        check(&open(), &open().encode(), SegmentOpen::decode);
        let unused = ClosedPayloads {
            file_len: 900,
            unused: vec![(19, 100), (200, 700)],
        };
        let close = Close {
            payloads: [("30d".to_owned(), unused)].into(),
            epoch_key: [1; 32],
            index_root: None,
        };
        check(&close, &close.encode(), Close::decode);
        let erasure = Erasure {
            rule: "30 days".into(),
            class: "30d".into(),
            segments: vec![Seq(4), Seq(90)],
        };
        check(&erasure, &erasure.encode(), Erasure::decode);
        let recovery = Recovery {
            hash: [1; 32],
            length: 0,
            offset: ByteOffset(17),
            segment: Seq(4),
        };
        check(&recovery, &recovery.encode(), Recovery::decode);
        let generation = GenerationBody {
            floor: Some(Floor {
                size: 9,
                root: [1; 32],
            }),
            reason: "damage".into(),
            log_key: [2; 32],
            frontier: Some(vec![[3; 32]]),
            epoch_key: [4; 32],
            set_aside: Some(SetAside {
                segment: Seq(4),
                offset: ByteOffset(17),
                length: 5,
                hash: [5; 32],
            }),
            generation: Generation(1),
        };
        check(&generation, &generation.encode(), GenerationBody::decode);
        let lines = crate::note::signature_line("witness.example", &[1; 32], &[2; 64]);
        let cosignature = CosignatureBody {
            lines,
            checkpoint: Seq(3),
        };
        check(&cosignature, &cosignature.encode(), |b| {
            CosignatureBody::decode(b, Seq(4))
        });
        assert!(CosignatureBody::decode(&cosignature.encode(), Seq(3)).is_err());
        assert_eq!(
            decode_checkpoint_body(&checkpoint_body(b"note")),
            Ok(&b"note"[..])
        );
    }

    #[test]
    fn keys_stand_in_deterministic_order() {
        for body in [
            open().encode(),
            Genesis {
                name: "a".into(),
                random: [0; 32],
                log_key: [0; 32],
                epoch_key: [0; 32],
            }
            .encode(),
        ] {
            let mut r = Reader::new(&body);
            let n = r.map().unwrap();
            let mut last: Option<Vec<u8>> = None;
            for _ in 0..n {
                let start = r.position();
                r.text().unwrap();
                let key = body[start..r.position()].to_vec();
                assert!(last.as_ref().is_none_or(|l| *l < key));
                last = Some(key);
                skip(&mut r);
            }
        }
    }

    fn skip(r: &mut Reader<'_>) {
        let mut probe = r.clone();
        if probe.uint().is_ok() || probe.clone().take_null() {
            if !r.take_null() {
                r.uint().unwrap();
            }
        } else if r.clone().bytes().is_ok() {
            r.bytes().unwrap();
        } else if r.clone().text().is_ok() {
            r.text().unwrap();
        } else if let Ok(n) = r.clone().array() {
            r.array().unwrap();
            (0..n).for_each(|_| skip(r));
        } else {
            let n = r.map().unwrap();
            (0..2 * n).for_each(|_| skip(r));
        }
    }

    #[test]
    fn unused_ranges_ascend_and_do_not_touch() {
        for unused in [
            vec![(19, 0)],
            vec![(19, 10), (29, 5)],
            vec![(50, 5), (19, 5)],
            vec![(990, 20)],
            vec![(u64::MAX, 2)],
        ] {
            let close = Close {
                payloads: [(
                    "30d".to_owned(),
                    ClosedPayloads {
                        file_len: 1000,
                        unused,
                    },
                )]
                .into(),
                epoch_key: [0; 32],
                index_root: None,
            };
            assert_eq!(
                Close::decode(&close.encode()),
                Err(BodyError::Value("payloads"))
            );
        }
    }
}
