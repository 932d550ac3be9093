//! Padding of sealed sections (section 11.3): a keyless reader learns sizes in steps only.
//!
//! Not the sealing itself, and no decision about what may be sealed beyond the length limits.

use ledger_format::limits::{ENVELOPE_LEN_MAX, FRAME_LEN_MAX, PAYLOAD_LEN_MAX};

use crate::seal::{OpenError, SealError, Section};

/// Bytes of the length in front of a padded message.
const LENGTH_LEN: usize = 4;
/// Up to [`PADME_ABOVE`], padded lengths are multiples of this.
const STEP_LEN: usize = 256;
/// Padme holds for bodies and payloads whose message and length exceed this.
const PADME_ABOVE: usize = 4096;
/// Bytes of a Poly1305 tag.
pub(crate) const AEAD_TAG_LEN: usize = 16;

/// Longest body plaintext, bytes: a body lives in a frame.
const BODY_LEN_MAX: usize = FRAME_LEN_MAX as usize;

const _: () = assert!(ENVELOPE_LEN_MAX < BODY_LEN_MAX && BODY_LEN_MAX < PAYLOAD_LEN_MAX);
const _: () = assert!(
    PAYLOAD_LEN_MAX < u32::MAX as usize / 2,
    "padded lengths fit a u32"
);

impl Section {
    pub(crate) const fn plaintext_len_max(self) -> usize {
        match self {
            Self::Body => BODY_LEN_MAX,
            Self::Envelope => ENVELOPE_LEN_MAX,
            Self::Payload => PAYLOAD_LEN_MAX,
        }
    }
}

/// Length of a sealed body or payload in bytes, tag included, for a plaintext of `plaintext_len` bytes.
///
/// # Errors
/// The plaintext is longer than any payload may be.
pub fn body_sealed_len(plaintext_len: usize) -> Result<usize, SealError> {
    Ok(padded_len(Section::Payload, plaintext_len)? + AEAD_TAG_LEN)
}

/// Length of a sealed envelope in bytes, tag included, for a plaintext of `plaintext_len` bytes.
///
/// # Errors
/// The plaintext is longer than an envelope may be.
pub fn envelope_sealed_len(plaintext_len: usize) -> Result<usize, SealError> {
    Ok(padded_len(Section::Envelope, plaintext_len)? + AEAD_TAG_LEN)
}

/// P of section 11.3 for a message of `len` bytes.
pub(crate) fn padded_len(section: Section, len: usize) -> Result<usize, SealError> {
    let max = section.plaintext_len_max();
    if len > max {
        return Err(SealError::TooLong { section, len, max });
    }
    let n = LENGTH_LEN + len;
    if matches!(section, Section::Envelope) || n <= PADME_ABOVE {
        return Ok(n.next_multiple_of(STEP_LEN));
    }
    let e = n.ilog2();
    let s = e.ilog2() + 1;
    Ok(n.next_multiple_of(1 << (e - s)))
}

/// Appends `pad(message)` to `out`.
pub(crate) fn pad_onto(
    section: Section,
    message: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), SealError> {
    let padded = padded_len(section, message.len())?;
    let end = out.len() + padded;
    // Tag included, so that the buffer does not move while it holds plaintext.
    out.reserve(padded + AEAD_TAG_LEN);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out.resize(end, 0);
    Ok(())
}

/// The range of the message within a padded one; the only accepted padding is the one [`pad_onto`] makes.
pub(crate) fn message_range(
    section: Section,
    padded: &[u8],
) -> Result<std::ops::Range<usize>, OpenError> {
    let bad = |what| OpenError::Padding { section, what };
    let (length, rest) = padded
        .split_first_chunk::<LENGTH_LEN>()
        .ok_or(bad("it is shorter than its length"))?;
    let len = u32::from_be_bytes(*length) as usize;
    let expected = padded_len(section, len).map_err(|_| bad("its length is above the limit"))?;
    if expected != padded.len() {
        return Err(bad("its padded length is not the one for its message"));
    }
    let filler = rest
        .get(len..)
        .ok_or(bad("it is shorter than its message"))?;
    if filler.iter().any(|&byte| byte != 0) {
        return Err(bad("its filler is not zero"));
    }
    Ok(LENGTH_LEN..LENGTH_LEN + len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn padded(section: Section, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        pad_onto(section, message, &mut out).unwrap();
        out
    }

    #[test]
    fn lengths_at_the_steps() {
        let body = |len| padded_len(Section::Body, len).unwrap();
        assert_eq!([body(0), body(252), body(253)], [256, 256, 512]);
        assert_eq!([body(4092), body(4093)], [4096, 4352]);
        assert_eq!(body(8188), 8192);
        assert_eq!(body(8189), 8704);
        assert_eq!(body(1_000_000), 1_015_808);
        let envelope = |len| padded_len(Section::Envelope, len).unwrap();
        assert_eq!([envelope(8189), envelope(65_536)], [8448, 65_792]);
    }

    #[test]
    fn too_long_is_refused() {
        assert!(padded_len(Section::Envelope, ENVELOPE_LEN_MAX + 1).is_err());
        assert!(padded_len(Section::Body, BODY_LEN_MAX + 1).is_err());
        assert!(padded_len(Section::Payload, PAYLOAD_LEN_MAX + 1).is_err());
        assert!(padded_len(Section::Payload, PAYLOAD_LEN_MAX).is_ok());
    }

    #[test]
    fn strict() {
        let good = padded(Section::Body, b"abc");
        assert_eq!(message_range(Section::Body, &good).unwrap(), 4..7);

        let mut longer = good.clone();
        longer.resize(512, 0);
        assert!(message_range(Section::Body, &longer).is_err());
        assert!(message_range(Section::Body, &good[..255]).is_err());
        assert!(message_range(Section::Body, &[]).is_err());
        assert!(message_range(Section::Body, &[0, 0, 0]).is_err());

        let mut filler = good.clone();
        filler[255] = 1;
        assert!(message_range(Section::Body, &filler).is_err());
        let mut length = good.clone();
        length[..4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(message_range(Section::Body, &length).is_err());
        let mut shorter = good;
        shorter[3] = 2;
        assert!(
            message_range(Section::Body, &shorter).is_err(),
            "c is no filler"
        );
    }

    #[test]
    fn envelopes_and_bodies_differ_above_4_kib() {
        let message = vec![1; 8189];
        let body = padded(Section::Body, &message);
        assert!(message_range(Section::Body, &body).is_ok());
        assert!(message_range(Section::Envelope, &body).is_err());
    }

    proptest! {
        #[test]
        fn round_trip_and_overhead(message in proptest::collection::vec(any::<u8>(), 0..20_000)) {
            for section in [Section::Body, Section::Envelope] {
                let padded = padded(section, &message);
                let range = message_range(section, &padded).unwrap();
                prop_assert_eq!(&padded[range], &message[..]);
                let n = message.len() + 4;
                prop_assert!(padded.len() >= n);
                prop_assert!(padded.len() - n < 256.max(n / 8));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(range) = message_range(Section::Body, &bytes) {
                prop_assert_eq!(padded(Section::Body, &bytes[range]), bytes);
            }
        }
    }
}
