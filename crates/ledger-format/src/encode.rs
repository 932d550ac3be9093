//! Building frames at the end of a write buffer (`ledger-format.md`, sections 3 to 5).
//!
//! A frame is built in two strokes, because its last section authenticates all bytes before it:
//! begin, let the caller seal or tag over [`FrameBuilder::authenticated_bytes`], then finish.

use crate::cbor::{Encoder, head_len};
use crate::frame::{LINK_ITEM_LEN, PayloadRef, link_of};
use crate::head::{CONTROL_ITEMS, HeadPrefix, RECORD_ITEMS};
use crate::types::{Kind, Link, Seq, UnixMillis, WriteNumbers};

/// What a record frame is built from; the envelope is sealed later, its length is known before.
#[derive(Clone, Copy, Debug)]
pub struct RecordParts<'a> {
    /// The frame's number.
    pub seq: Seq,
    /// Its place in the write.
    pub write: WriteNumbers,
    /// The writer's clock.
    pub appended_at: UnixMillis,
    /// Salt of body and envelope.
    pub salt: [u8; 16],
    /// Commitment of the body.
    pub commitment: [u8; 32],
    /// Sealed body.
    pub body: &'a [u8],
    /// Where the raw body lies, if it is kept.
    pub payload: Option<PayloadRef<'a>>,
    /// Length of the sealed envelope that will follow.
    pub envelope_len: usize,
}

/// What a control frame is built from; the tag follows.
#[derive(Clone, Copy, Debug)]
pub struct ControlParts<'a> {
    /// The frame's number.
    pub seq: Seq,
    /// The frame's kind, not `Record`.
    pub kind: Kind,
    /// Its place in the write.
    pub write: WriteNumbers,
    /// The writer's clock.
    pub appended_at: UnixMillis,
    /// The encoded control body.
    pub body: &'a [u8],
}

/// A frame under construction at the end of a buffer.
#[derive(Debug)]
pub struct FrameBuilder<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    frame_len: usize,
}

impl<'v> FrameBuilder<'v> {
    /// Writes a record frame up to its envelope.
    pub fn record(out: &'v mut Vec<u8>, p: &RecordParts<'_>) -> Self {
        let payload_len = p.payload.as_ref().map_or(1, |r| {
            1 + head_len(r.class.len() as u64)
                + r.class.len()
                + head_len(r.offset)
                + head_len(r.length)
                + 17
                + 34
        });
        let rest = head_len(p.appended_at.0)
            + 17
            + 34
            + head_len(p.body.len() as u64)
            + p.body.len()
            + payload_len
            + head_len(p.envelope_len as u64)
            + p.envelope_len
            + LINK_ITEM_LEN;
        let b = Self::begin(out, RECORD_ITEMS, p.seq, Kind::Record, p.write, rest);
        let mut e = Encoder::new(b.out);
        e.uint(p.appended_at.0)
            .bytes(&p.salt)
            .bytes(&p.commitment)
            .bytes(p.body);
        match &p.payload {
            None => e.null(),
            Some(r) => e
                .array(5)
                .text(r.class)
                .uint(r.offset)
                .uint(r.length)
                .bytes(r.salt)
                .bytes(r.hash),
        };
        b
    }

    /// Writes a control frame up to its tag.
    pub fn control(out: &'v mut Vec<u8>, p: &ControlParts<'_>) -> Self {
        debug_assert!(p.kind != Kind::Record, "records have another shape");
        let tag_len = p.kind.tag_len();
        let rest = head_len(p.appended_at.0)
            + head_len(p.body.len() as u64)
            + p.body.len()
            + head_len(tag_len as u64)
            + tag_len
            + LINK_ITEM_LEN;
        let b = Self::begin(out, CONTROL_ITEMS, p.seq, p.kind, p.write, rest);
        Encoder::new(b.out).uint(p.appended_at.0).bytes(p.body);
        b
    }

    fn begin(
        out: &'v mut Vec<u8>,
        items: u64,
        seq: Seq,
        kind: Kind,
        write: WriteNumbers,
        rest: usize,
    ) -> Self {
        let start = out.len();
        let prefix_len = 1
            + 9
            + head_len(seq.0)
            + 1
            + 1
            + head_len(write.index.into())
            + head_len(write.count.into());
        let frame_len = prefix_len + rest;
        let prefix = HeadPrefix {
            frame_len: u32::try_from(frame_len)
                .expect("sections are bounded before a frame is built"),
            seq,
            kind,
            write,
        };
        out.reserve(frame_len);
        Encoder::new(out)
            .array(if items == RECORD_ITEMS { 11 } else { 8 })
            .bytes(&prefix.head())
            .uint(seq.0)
            .uint(kind.number().into())
            .array(2)
            .uint(write.index.into())
            .uint(write.count.into());
        Self {
            out,
            start,
            frame_len,
        }
    }

    /// The bytes that the envelope or the tag authenticates, apart from suite and predecessor.
    #[must_use]
    pub fn authenticated_bytes(&self) -> &[u8] {
        &self.out[self.start..]
    }

    /// Length of the whole frame.
    #[must_use]
    pub const fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Appends the sealed envelope or the tag, then the link, which is returned.
    ///
    /// # Panics
    /// If the section has another length than announced: a mistake of the caller.
    pub fn finish(self, section: &[u8], predecessor: &Link) -> Link {
        Encoder::new(self.out).bytes(section).bytes_head(32);
        let link = {
            // `link_of` leaves out the whole link item; its 32 bytes are not there yet.
            let linked_end = self.out.len() - 2;
            let linked = &self.out[self.start..linked_end];
            Link(crate::context::derive_parts(
                crate::Context::Link,
                &[&predecessor.0, linked],
            ))
        };
        self.out.extend_from_slice(&link.0);
        assert_eq!(
            self.out.len() - self.start,
            self.frame_len,
            "announced length of the last section"
        );
        debug_assert_eq!(link, link_of(predecessor, &self.out[self.start..]));
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Content, Frame, FrameError};
    use proptest::prelude::*;

    fn record(
        seq: u64,
        body: &[u8],
        envelope: &[u8],
        payload: Option<PayloadRef<'_>>,
    ) -> (Vec<u8>, Link) {
        let mut out = b"before".to_vec();
        let parts = RecordParts {
            seq: Seq(seq),
            write: WriteNumbers {
                index: 2,
                count: 700,
            },
            appended_at: UnixMillis(1_796_000_000_000),
            salt: [3; 16],
            commitment: [4; 32],
            body,
            payload,
            envelope_len: envelope.len(),
        };
        let link = FrameBuilder::record(&mut out, &parts).finish(envelope, &Link([9; 32]));
        (out.split_off(6), link)
    }

    #[test]
    fn any_flipped_bit_fails_structure_or_link() {
        let payload = PayloadRef {
            class: "30d",
            offset: 19,
            length: 272,
            salt: &[1; 16],
            hash: &[2; 32],
        };
        let (good, link) = record(5, &[7; 272], &[8; 272], Some(payload));
        let frame = Frame::parse(&good).unwrap();
        assert_eq!(frame.compute_link(&Link([9; 32])), link);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(f) = Frame::parse(&bad) {
                assert_ne!(f.compute_link(&Link([9; 32])), f.link, "bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn record_round_trip(seq: u64, body in proptest::collection::vec(any::<u8>(), 16..600), envelope in proptest::collection::vec(any::<u8>(), 16..600)) {
            let (bytes, link) = record(seq, &body, &envelope, None);
            let frame = Frame::parse(&bytes).unwrap();
            prop_assert_eq!(frame.prefix.seq, Seq(seq));
            prop_assert_eq!(frame.bytes().len(), bytes.len());
            prop_assert_eq!(frame.link, link);
            match frame.content {
                Content::Record(c) => { prop_assert_eq!(c.body, &body[..]); prop_assert_eq!(c.envelope, &envelope[..]); }
                Content::Control(_) => prop_assert!(false),
            }
        }

        #[test]
        fn control_round_trip(seq: u64, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            let parts = ControlParts { seq: Seq(seq), kind: Kind::Recovery, write: WriteNumbers::ALONE, appended_at: UnixMillis(7), body: &body };
            let b = FrameBuilder::control(&mut out, &parts);
            let authenticated = b.authenticated_bytes().to_vec();
            let link = b.finish(&[1; 16], &Link::ZERO);
            let frame = match Frame::parse(&out) {
                Err(FrameError::Head(crate::HeadError::Value("frame length"))) => return Ok(()),
                other => other.unwrap(),
            };
            prop_assert_eq!(frame.authenticated_bytes(), &authenticated[..]);
            prop_assert_eq!(frame.link, link);
        }
    }
}
