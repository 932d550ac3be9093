//! Bodies of what is appended between a segment's beginning and end (section 7): checkpoints,
//! cosignatures, erasures, recoveries, generations.

use super::{BodyError, Decoded, encoded, hash_of, hashes_of, put_hashes};
use crate::cbor::Reader;
use crate::frame::is_class;
use crate::limits::{ERASURE_SEGMENTS_MAX, NOTE_LEN_MAX};
use crate::note::SignatureLine;
use crate::tree::Hash;
use crate::types::{ByteOffset, Generation, Seq};

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
