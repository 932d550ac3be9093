//! C2SP signed notes and verifier keys (`ledger-format.md`, section 9).
//!
//! A [`Note`] is parsed, not believed: [`Note::verify`] says which line a key made.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha256};
use std::fmt;
use thiserror::Error;

use crate::limits::NOTE_LEN_MAX;

/// First four bytes of the hash over name, type and key that names a key in a signature line.
pub type KeyIdBytes = [u8; 4];

/// The type byte of an Ed25519 key.
const ED25519: u8 = 0x01;
/// More lines than this are not read.
const SIGNATURE_LINES_MAX: usize = 16;

/// The hash over name, type and key of which a key id is the start.
pub(crate) fn key_hash(name: &str, public_key: &[u8; 32]) -> [u8; 32] {
    Sha256::new()
        .chain_update(name.as_bytes())
        .chain_update([b'\n', ED25519])
        .chain_update(public_key)
        .finalize()
        .into()
}

/// Key id of an Ed25519 key under a name.
#[must_use]
pub fn key_id(name: &str, public_key: &[u8; 32]) -> KeyIdBytes {
    let [a, b, c, d, ..] = key_hash(name, public_key);
    [a, b, c, d]
}

/// One signature line, newline included, as the signer writes it.
#[must_use]
pub fn signature_line(name: &str, public_key: &[u8; 32], signature: &[u8; 64]) -> String {
    let mut blob = key_id(name, public_key).to_vec();
    blob.extend_from_slice(signature);
    format!("\u{2014} {name} {}\n", STANDARD.encode(blob))
}

/// Whether a text may name a key: not empty, no white space, no `+`, no control characters.
pub(crate) fn is_key_name(name: &str) -> bool {
    !name.is_empty()
        && !name
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || c == '+')
}

/// Why a text is no signed note.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NoteError {
    /// Longer than the format allows.
    #[error("the note has {0} bytes, more than {NOTE_LEN_MAX}")]
    TooLong(usize),
    /// Not UTF-8, or a control character other than newline.
    #[error("the note holds bytes that no note may hold")]
    Text,
    /// No empty line, or no newline at the end.
    #[error("the note is not a text, an empty line and signature lines, each ended by a newline")]
    Shape,
    /// A signature line that is none, or none or too many of them.
    #[error("signature line {0} is malformed, or there are none or too many")]
    Line(usize),
    /// A line names this key, but its signature does not verify.
    #[error("the signature of key {0} does not verify")]
    BadSignature(String),
    /// No line is by the key asked for.
    #[error("no signature by key {0}")]
    NoSignature(String),
}

/// One parsed signature line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignatureLine<'a> {
    /// Key name.
    pub name: &'a str,
    /// Key id.
    pub key_id: KeyIdBytes,
    /// Base64 of key id and signature.
    encoded: &'a str,
}

impl<'a> SignatureLine<'a> {
    /// Parses a line without its newline.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix("\u{2014} ")?;
        let (name, encoded) = rest.split_once(' ')?;
        if !is_key_name(name) {
            return None;
        }
        let blob = STANDARD.decode(encoded).ok()?;
        let id = blob.get(..4)?;
        if blob.len() < 5 {
            return None;
        }
        Some(Self {
            name,
            key_id: id.try_into().ok()?,
            encoded,
        })
    }

    fn signature(&self) -> Option<[u8; 64]> {
        STANDARD
            .decode(self.encoded)
            .ok()?
            .get(4..)?
            .try_into()
            .ok()
    }
}

/// A signed note, parsed from text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note<'a> {
    /// The signed text, its last newline included.
    pub text: &'a str,
    /// The signature lines in order.
    pub lines: Vec<SignatureLine<'a>>,
}

impl<'a> Note<'a> {
    /// Splits a note at its last empty line and reads the signature lines.
    ///
    /// # Errors
    /// [`NoteError`], apart from the two about verification.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NoteError> {
        if bytes.len() > NOTE_LEN_MAX {
            return Err(NoteError::TooLong(bytes.len()));
        }
        let note = std::str::from_utf8(bytes).map_err(|_| NoteError::Text)?;
        if note.bytes().any(|b| (b < 0x20 && b != b'\n') || b == 0x7f) {
            return Err(NoteError::Text);
        }
        let split = note.rfind("\n\n").ok_or(NoteError::Shape)?;
        let (text, rest) = note.split_at(split + 1);
        let signatures = rest
            .strip_prefix('\n')
            .and_then(|s| s.strip_suffix('\n'))
            .ok_or(NoteError::Shape)?;
        let mut lines = Vec::new();
        for (i, line) in signatures.split('\n').enumerate() {
            if i == SIGNATURE_LINES_MAX {
                return Err(NoteError::Line(i + 1));
            }
            lines.push(SignatureLine::parse(line).ok_or(NoteError::Line(i + 1))?);
        }
        Ok(Self { text, lines })
    }

    /// Checks that the key signed this text.
    ///
    /// # Errors
    /// `BadSignature` if a line names the key and does not verify; `NoSignature` if none does.
    pub fn verify(&self, key: &VerifierKey) -> Result<(), NoteError> {
        let id = key.key_id();
        let mut found = false;
        for line in self
            .lines
            .iter()
            .filter(|l| l.name == key.name && l.key_id == id)
        {
            let good = line
                .signature()
                .is_some_and(|s| verify_signature(&key.public_key, self.text.as_bytes(), &s));
            if !good {
                return Err(NoteError::BadSignature(key.name.clone()));
            }
            found = true;
        }
        if found {
            Ok(())
        } else {
            Err(NoteError::NoSignature(key.name.clone()))
        }
    }
}

/// Strict Ed25519 verification: canonical encodings, no keys of small order.
#[must_use]
pub fn verify_signature(public_key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    VerifyingKey::from_bytes(public_key).is_ok_and(|key| {
        key.verify_strict(message, &Signature::from_bytes(signature))
            .is_ok()
    })
}

/// Why a text is no verifier key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum VerifierKeyError {
    /// Not `name+8 hex digits+base64`.
    #[error("expected NAME+8 hex digits+base64 of the key, on one line")]
    Shape,
    /// A key type other than Ed25519.
    #[error("expected an Ed25519 key (type byte 01 and 32 bytes)")]
    Type,
    /// The id does not belong to name and key: a typing or copying mistake.
    #[error("the 8 hex digits do not belong to this name and key: was it copied whole?")]
    Id,
}

/// A public key under a name: a trust line (section 9).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VerifierKey {
    name: String,
    public_key: [u8; 32],
}

impl VerifierKey {
    /// A key under a name.
    ///
    /// # Errors
    /// `Shape` if the name cannot name a key.
    pub fn new(name: &str, public_key: [u8; 32]) -> Result<Self, VerifierKeyError> {
        if is_key_name(name) {
            Ok(Self {
                name: name.to_owned(),
                public_key,
            })
        } else {
            Err(VerifierKeyError::Shape)
        }
    }

    /// Parses a trust line; white space around it is ignored.
    ///
    /// # Errors
    /// [`VerifierKeyError`].
    pub fn parse(line: &str) -> Result<Self, VerifierKeyError> {
        let mut parts = line.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(VerifierKeyError::Shape);
        };
        if id.len() != 8 || !id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(VerifierKeyError::Shape);
        }
        let blob = STANDARD
            .decode(encoded)
            .map_err(|_| VerifierKeyError::Shape)?;
        let Some((&ED25519, key)) = blob.split_first() else {
            return Err(VerifierKeyError::Type);
        };
        let key = Self::new(name, key.try_into().map_err(|_| VerifierKeyError::Type)?)?;
        if crate::types::hex(&key.key_id()) == id {
            Ok(key)
        } else {
            Err(VerifierKeyError::Id)
        }
    }

    /// The key's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The raw public key.
    #[must_use]
    pub const fn public_key(&self) -> &[u8; 32] {
        &self.public_key
    }

    /// The key's id under its name.
    #[must_use]
    pub fn key_id(&self) -> KeyIdBytes {
        key_id(&self.name, &self.public_key)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut blob = vec![ED25519];
        blob.extend_from_slice(&self.public_key);
        write!(
            f,
            "{}+{}+{}",
            self.name,
            crate::types::hex(&self.key_id()),
            STANDARD.encode(blob)
        )
    }
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifierKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VKEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
    const LINE: &str = "\u{2014} example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

    #[test]
    fn published_vector_verifies_and_nothing_near_it_does() {
        let key = VerifierKey::parse(VKEY).unwrap();
        assert_eq!(key.to_string(), VKEY);
        let text = format!("This is an example message.\n\n{LINE}");
        let note = Note::parse(text.as_bytes()).unwrap();
        assert_eq!(note.verify(&key), Ok(()));
        let other = text.replace("message", "massage");
        assert!(matches!(
            Note::parse(other.as_bytes()).unwrap().verify(&key),
            Err(NoteError::BadSignature(_))
        ));
        let stranger = VerifierKey::new("example.com/foo", [7; 32]).unwrap();
        assert!(matches!(
            note.verify(&stranger),
            Err(NoteError::NoSignature(_))
        ));
    }

    #[test]
    fn a_plus_sign_in_the_base64_stays_with_the_key() {
        let key = VerifierKey::parse(
            "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
        )
        .unwrap();
        assert_eq!(key.name(), "sum.golang.org");
    }

    #[test]
    fn malformed_notes_are_refused() {
        let good = format!("text\n\n{LINE}");
        for bad in [
            "text\n".to_owned(),
            good.trim_end().to_owned(),
            good.replace("text", "te\txt"),
            good.replace('\u{2014}', "-"),
            format!("{good}junk\n"),
            format!("text\n\n{}", LINE.repeat(17)),
        ] {
            assert!(Note::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(
            VerifierKey::parse(&VKEY.replace("530d903a", "530d903b")),
            Err(VerifierKeyError::Id)
        );
    }
}
