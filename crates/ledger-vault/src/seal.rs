//! Sealing and opening the three sections of a record (sections 11.2 to 11.4 and 13).
//!
//! Every section has a secret R of its own; key and commitment are the two halves of one derivation
//! from it, so that a disclosed R cannot be exchanged for another. Not here: where the bytes stand in a frame.

use std::fmt;

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce, Tag};
use ledger_format::{ByteOffset, Seq};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::context;
use crate::keys::{DataKey, EnvelopeKey, PayloadKey, RandomError, first_16};
use crate::pad::{AEAD_TAG_LEN, message_range, pad_onto};
use crate::tags::AssociatedData;

/// An opened section; wiped when dropped.
pub type Plaintext = Zeroizing<Vec<u8>>;

/// Which of the three sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The whole record, under the segment's data key.
    Body,
    /// What the writer needs to run, under the envelope key.
    Envelope,
    /// A raw delivery, outside the chain, under its retention class' key.
    Payload,
}

impl Section {
    const fn label(self) -> [u8; 8] {
        match self {
            Self::Body => *b"body\0\0\0\0",
            Self::Envelope => *b"envelope",
            Self::Payload => *b"payload\0",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Body => "body",
            Self::Envelope => "envelope",
            Self::Payload => "payload",
        })
    }
}

/// Why nothing was sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The plaintext is above the limit of section 21.
    #[error("the {section} has {len} bytes, at most {max} are allowed: make it smaller")]
    TooLong {
        /// Which section.
        section: Section,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The cipher refused its input; it does so beyond 256 GiB only.
    #[error("the cipher refused the {section}")]
    Cipher {
        /// Which section.
        section: Section,
    },
}

/// Why a section did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The secret does not belong to this frame.
    #[error(
        "the secret makes commitment {computed}, the frame says {expected}: it belongs to another record"
    )]
    CommitmentMismatch {
        /// What the frame says.
        expected: Commitment,
        /// What the secret makes.
        computed: Commitment,
    },
    /// The ciphertext is shorter than a tag.
    #[error("the sealed {section} has {len} bytes, fewer than a tag")]
    TooShort {
        /// Which section.
        section: Section,
        /// Its length in bytes.
        len: usize,
    },
    /// The ciphertext is longer than any plaintext of that section makes.
    #[error("the sealed {section} has {len} bytes, more than any {section} has")]
    TooLong {
        /// Which section.
        section: Section,
        /// Its length in bytes.
        len: usize,
    },
    /// Wrong key, salt, place or surrounding bytes, or an altered ciphertext.
    #[error(
        "the {section} does not authenticate: it was altered, or key, salt, place or the bytes before it are not its own"
    )]
    NotAuthentic {
        /// Which section.
        section: Section,
    },
    /// It authenticates, but its writer padded it in another way than the format demands.
    #[error("the {section} is authentic but wrongly padded: {what}")]
    Padding {
        /// Which section.
        section: Section,
        /// What is wrong.
        what: &'static str,
    },
}

/// The half of a section's derivation that the frame carries. Public; compared in constant time.
#[derive(Clone, Copy)]
pub struct Commitment(pub [u8; 32]);

impl PartialEq for Commitment {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Commitment {}

impl fmt::Display for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commitment({self})")
    }
}

/// The salt of a section: makes R unlike that of any other message, a cloned machine's included. Public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Salt(pub [u8; 16]);

/// 32 random bytes, fresh for every write, from which the salts of its messages are made.
pub struct SaltSource(Zeroizing<[u8; 32]>);

impl fmt::Debug for SaltSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SaltSource(secret)")
    }
}

impl SaltSource {
    /// Draws a new one; once a write.
    ///
    /// # Errors
    /// The operating system gave no random bytes.
    pub fn fresh() -> Result<Self, RandomError> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut())?;
        Ok(Self(bytes))
    }

    /// The salt of body and envelope of frame `seq`: `K(r, u64 seq ‖ BLAKE3(body))[..16]`, of the unpadded body.
    #[must_use]
    pub fn record_salt(&self, seq: Seq, body: &[u8]) -> Salt {
        self.salt(seq.0, body)
    }

    /// The salt of the payload at file offset `offset`, made in the same way.
    #[must_use]
    pub fn payload_salt(&self, offset: ByteOffset, payload: &[u8]) -> Salt {
        self.salt(offset.0, payload)
    }

    /// The salt of body and envelope of frame `seq`, for a body whose plain BLAKE3 is known already.
    #[must_use]
    pub fn record_salt_of(&self, seq: Seq, body_digest: &[u8; 32]) -> Salt {
        self.salt_of(seq.0, body_digest)
    }

    fn salt(&self, number: u64, content: &[u8]) -> Salt {
        self.salt_of(number, blake3::hash(content).as_bytes())
    }

    fn salt_of(&self, number: u64, content_digest: &[u8; 32]) -> Salt {
        let mut input = [0; 40];
        input[..8].copy_from_slice(&number.to_be_bytes());
        input[8..].copy_from_slice(content_digest);
        Salt(first_16(blake3::keyed_hash(&self.0, &input)))
    }
}

/// R of section 11.2: whoever has it opens one section, and no other.
pub struct SectionSecret(Zeroizing<[u8; 32]>);

impl fmt::Debug for SectionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SectionSecret(secret)")
    }
}

impl SectionSecret {
    fn derive(key: &[u8; 32], section: Section, number: u64, salt: &Salt) -> Self {
        let mut input = [0; 32];
        input[..8].copy_from_slice(&section.label());
        input[8..16].copy_from_slice(&number.to_be_bytes());
        input[16..].copy_from_slice(&salt.0);
        let mut secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(blake3::keyed_hash(key, &input).as_bytes());
        Self(secret)
    }

    /// The secret itself, **in clear**, to hand one record to an outsider.
    #[must_use]
    pub fn reveal(&self) -> &[u8; 32] {
        &self.0
    }

    /// A body's secret that somebody revealed.
    #[must_use]
    pub fn from_revealed(secret: [u8; 32]) -> Self {
        Self(Zeroizing::new(secret))
    }

    /// The commitment this secret makes.
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        self.expand().commitment()
    }

    /// Opens a body, after the secret was found to be the one the frame commits to.
    ///
    /// # Errors
    /// Another record's secret, or the body is not authentic or wrongly padded.
    pub fn open_body(
        &self,
        commitment: &Commitment,
        sealed: &[u8],
    ) -> Result<Plaintext, OpenError> {
        let expanded = self.expand();
        let computed = expanded.commitment();
        if computed != *commitment {
            return Err(OpenError::CommitmentMismatch {
                expected: *commitment,
                computed,
            });
        }
        expanded.open(Section::Body, &[], sealed)
    }

    fn expand(&self) -> Expanded {
        let mut halves = Zeroizing::new([[0; 32]; 2]);
        context::SECTION.derive_into(&self.0, halves.as_flattened_mut());
        Expanded(halves)
    }
}

/// `H(section, R)` in XOF mode: AEAD key, then commitment. Seals one message.
struct Expanded(Zeroizing<[[u8; 32]; 2]>);

impl Expanded {
    fn commitment(&self) -> Commitment {
        Commitment(self.0[1])
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        let key: &Key = (&self.0[0]).into();
        ChaCha20Poly1305::new(key)
    }

    /// Appends the sealed section to `out`. Consumes the key: it seals one message.
    fn seal(
        self,
        section: Section,
        associated: &[u8],
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        let start = out.len();
        pad_onto(section, plaintext, out)?;
        let sealed = self.cipher().encrypt_inout_detached(
            &Nonce::default(),
            associated,
            (&mut out[start..]).into(),
        );
        match sealed {
            Ok(tag) => {
                out.extend_from_slice(&tag);
                Ok(())
            }
            Err(_) => {
                zeroize::Zeroize::zeroize(&mut out[start..]);
                out.truncate(start);
                Err(SealError::Cipher { section })
            }
        }
    }

    fn open(
        &self,
        section: Section,
        associated: &[u8],
        sealed: &[u8],
    ) -> Result<Plaintext, OpenError> {
        let len = sealed.len();
        // The greatest padding step of any section is below an eighth of its length.
        if len > section.plaintext_len_max() / 8 * 9 + 4096 {
            return Err(OpenError::TooLong { section, len });
        }
        let (ciphertext, tag) = sealed
            .split_last_chunk::<AEAD_TAG_LEN>()
            .ok_or(OpenError::TooShort { section, len })?;
        let mut padded = Zeroizing::new(ciphertext.to_vec());
        self.cipher()
            .decrypt_inout_detached(
                &Nonce::default(),
                associated,
                padded.as_mut_slice().into(),
                &Tag::from(*tag),
            )
            .map_err(|_| OpenError::NotAuthentic { section })?;
        let range = message_range(section, &padded)?;
        padded.truncate(range.end);
        padded.drain(..range.start);
        Ok(padded)
    }
}

/// A body's key, ready for its one message.
pub struct BodySealer(Expanded);

impl fmt::Debug for BodySealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodySealer(secret)")
    }
}

impl BodySealer {
    /// The commitment, which stands in the frame before the body.
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        self.0.commitment()
    }

    /// Appends the sealed body to `out`: [`body_sealed_len`](crate::body_sealed_len) bytes.
    ///
    /// # Errors
    /// The body is above its limit; `out` is then unchanged.
    pub fn seal(self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        self.0.seal(Section::Body, &[], plaintext, out)
    }
}

impl DataKey {
    /// R of the body of frame `seq`: what disclosing that one record hands out.
    #[must_use]
    pub fn body_secret(&self, seq: Seq, salt: &Salt) -> SectionSecret {
        SectionSecret::derive(self.0.expose(), Section::Body, seq.0, salt)
    }

    /// Key and commitment for the body of frame `seq`.
    #[must_use]
    pub fn body_sealer(&self, seq: Seq, salt: &Salt) -> BodySealer {
        BodySealer(self.body_secret(seq, salt).expand())
    }

    /// Opens the body of frame `seq`, commitment checked first.
    ///
    /// # Errors
    /// As [`SectionSecret::open_body`].
    pub fn open_body(
        &self,
        seq: Seq,
        salt: &Salt,
        commitment: &Commitment,
        sealed: &[u8],
    ) -> Result<Plaintext, OpenError> {
        self.body_secret(seq, salt).open_body(commitment, sealed)
    }
}

impl EnvelopeKey {
    /// Appends the sealed envelope of frame `seq` to `out`: [`envelope_sealed_len`](crate::envelope_sealed_len)
    /// bytes. `associated` holds all bytes of the frame before the envelope item.
    ///
    /// # Errors
    /// The envelope is above its limit; `out` is then unchanged.
    pub fn seal_envelope(
        &self,
        seq: Seq,
        salt: &Salt,
        associated: &AssociatedData,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        SectionSecret::derive(self.0.expose(), Section::Envelope, seq.0, salt)
            .expand()
            .seal(Section::Envelope, associated.as_bytes(), plaintext, out)
    }

    /// Opens the envelope of frame `seq`; this authenticates the whole frame before it.
    ///
    /// # Errors
    /// Not authentic or wrongly padded.
    pub fn open_envelope(
        &self,
        seq: Seq,
        salt: &Salt,
        associated: &AssociatedData,
        sealed: &[u8],
    ) -> Result<Plaintext, OpenError> {
        SectionSecret::derive(self.0.expose(), Section::Envelope, seq.0, salt)
            .expand()
            .open(Section::Envelope, associated.as_bytes(), sealed)
    }
}

impl PayloadKey {
    /// Appends the sealed payload for file offset `offset` to `out`.
    ///
    /// # Errors
    /// The payload is above its limit; `out` is then unchanged.
    pub fn seal_payload(
        &self,
        offset: ByteOffset,
        salt: &Salt,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        SectionSecret::derive(self.0.expose(), Section::Payload, offset.0, salt)
            .expand()
            .seal(Section::Payload, &[], plaintext, out)
    }

    /// Opens the payload at file offset `offset`.
    ///
    /// # Errors
    /// Not authentic or wrongly padded.
    pub fn open_payload(
        &self,
        offset: ByteOffset,
        salt: &Salt,
        sealed: &[u8],
    ) -> Result<Plaintext, OpenError> {
        SectionSecret::derive(self.0.expose(), Section::Payload, offset.0, salt)
            .expand()
            .open(Section::Payload, &[], sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salt_known_answer() {
        // SALT of tests/vault/vectors.py.
        let salt = SaltSource(Zeroizing::new([5; 32]))
            .record_salt(Seq(0x0102_0304_0506_0708), b"body plaintext");
        let hex: String = salt.0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "f1a005b7d3a2336c9c6235f9301e37a8");
    }

    #[test]
    fn commitments_compare_by_content() {
        let mut other = [7; 32];
        other[31] ^= 1;
        assert_eq!(Commitment([7; 32]), Commitment([7; 32]));
        assert_ne!(Commitment([7; 32]), Commitment(other));
    }
}
