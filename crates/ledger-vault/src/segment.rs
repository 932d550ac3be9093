//! The keys of one segment and their wrapped files (sections 11.1 and 12).
//!
//! Not the segment itself, nor which retention classes it has: the caller names them.

use std::collections::BTreeMap;
use std::fmt;

use ledger_format::Seq;
use zeroize::Zeroizing;

use crate::identities::Identities;
use crate::keydir::{KeyDir, KeyFileError};
use crate::keys::{
    DataKey, EnvelopeKey, KeyCommitment, PayloadKey, RandomError, SecretBytes, TokenKey,
};
use crate::recipients::{Recipients, RecipientsError};
use crate::wrap::{UnwrapError, WrapError, unwrap, wrap};

/// A string that is no retention class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is not a retention class: expected 1 to 16 of a-z and 0-9, and neither `body` nor `envelope`"
)]
pub struct RetentionClassError {
    /// What was given, cut to its first 32 characters.
    pub found: String,
}

/// The name of a retention class: `[a-z0-9]{1,16}`, not `body` or `envelope` (section 13).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetentionClass(String);

impl RetentionClass {
    /// Checks a name.
    ///
    /// # Errors
    /// It is not one.
    pub fn new(name: &str) -> Result<Self, RetentionClassError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let taken = matches!(name, "body" | "envelope");
        if (1..=16).contains(&name.len()) && name.bytes().all(allowed) && !taken {
            return Ok(Self(name.to_owned()));
        }
        Err(RetentionClassError {
            found: name.chars().take(32).collect(),
        })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RetentionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All keys of an open segment.
#[derive(Debug, PartialEq, Eq)]
pub struct SegmentKeys {
    /// Seals bodies.
    pub data: DataKey,
    /// Seals envelopes.
    pub envelope: EnvelopeKey,
    /// Makes identifier tokens.
    pub token: TokenKey,
    /// Seals payloads, one key a retention class.
    pub payload: BTreeMap<RetentionClass, PayloadKey>,
}

/// What segment_open says of a segment's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCommitments {
    /// `data_key`.
    pub data: KeyCommitment,
    /// `envelope_key`.
    pub envelope: KeyCommitment,
    /// `token_key`.
    pub token: KeyCommitment,
    /// `payload_keys`.
    pub payload: BTreeMap<RetentionClass, KeyCommitment>,
}

/// The segment's keys could not be wrapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentKeysError {
    /// The recipients together are too many.
    #[error(transparent)]
    Recipients(#[from] RecipientsError),
    /// Wrapping failed.
    #[error(transparent)]
    Wrap(#[from] WrapError),
}

impl SegmentKeys {
    /// New random keys, with a payload key for each class.
    ///
    /// # Errors
    /// The operating system gave no random bytes.
    pub fn generate(
        classes: impl IntoIterator<Item = RetentionClass>,
    ) -> Result<Self, RandomError> {
        Ok(Self {
            data: DataKey::generate()?,
            envelope: EnvelopeKey::generate()?,
            token: TokenKey::generate()?,
            payload: classes
                .into_iter()
                .map(|class| Ok((class, PayloadKey::generate()?)))
                .collect::<Result<_, RandomError>>()?,
        })
    }

    /// What segment_open has to say of them.
    #[must_use]
    pub fn commitments(&self) -> KeyCommitments {
        KeyCommitments {
            data: self.data.commitment(),
            envelope: self.envelope.commitment(),
            token: self.token.commitment(),
            payload: self
                .payload
                .iter()
                .map(|(class, key)| (class.clone(), key.commitment()))
                .collect(),
        }
    }

    /// The key files: bodies and payloads for the vault only, envelopes for the operational identity too.
    ///
    /// # Errors
    /// Too many recipients together, or the age library failed.
    pub fn wrap(
        &self,
        vault: &Recipients,
        operational: &Recipients,
    ) -> Result<SegmentKeyFiles, SegmentKeysError> {
        let both = Recipients::union([operational, vault])?;
        let mut pair = Zeroizing::new([0; 64]);
        pair[..32].copy_from_slice(self.envelope.0.expose());
        pair[32..].copy_from_slice(self.token.0.expose());
        Ok(SegmentKeyFiles {
            body: wrap(vault, self.data.0.expose())?,
            envelope: wrap(&both, pair.as_ref())?,
            payload: self
                .payload
                .iter()
                .map(|(class, key)| Ok((class.clone(), wrap(vault, key.0.expose())?)))
                .collect::<Result<_, WrapError>>()?,
        })
    }
}

/// The wrapped key files of a segment. Nothing in them is readable without an identity.
#[derive(Clone, Debug)]
pub struct SegmentKeyFiles {
    /// `<F>.body.age`
    pub body: Vec<u8>,
    /// `<F>.envelope.age`
    pub envelope: Vec<u8>,
    /// `<F>.<class>.age`
    pub payload: BTreeMap<RetentionClass, Vec<u8>>,
}

impl SegmentKeyFiles {
    /// `<F>.body.age` of the segment whose first frame is `first_seq`.
    #[must_use]
    pub fn body_name(first_seq: Seq) -> String {
        format!("{:020}.body.age", first_seq.0)
    }

    /// `<F>.envelope.age`.
    #[must_use]
    pub fn envelope_name(first_seq: Seq) -> String {
        format!("{:020}.envelope.age", first_seq.0)
    }

    /// `<F>.<class>.age`.
    #[must_use]
    pub fn payload_name(first_seq: Seq, class: &RetentionClass) -> String {
        format!("{:020}.{class}.age", first_seq.0)
    }

    /// Names and contents.
    pub fn files(&self, first_seq: Seq) -> impl Iterator<Item = (String, &[u8])> {
        [
            (Self::body_name(first_seq), &self.body[..]),
            (Self::envelope_name(first_seq), &self.envelope[..]),
        ]
        .into_iter()
        .chain(
            self.payload
                .iter()
                .map(move |(class, file)| (Self::payload_name(first_seq, class), &file[..])),
        )
    }

    /// Writes all of them into the folder `segments`, mode 0600, synced, replacing leftovers of an opening that
    /// did not finish.
    ///
    /// # Errors
    /// The file system failed.
    pub fn write(&self, segments: KeyDir<'_>, first_seq: Seq) -> Result<(), KeyFileError> {
        segments.replace_all(self.files(first_seq))
    }
}

/// Why a segment key is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnwrapKeyError {
    /// The file did not open.
    #[error("the {key} did not unwrap: {source}")]
    Unwrap {
        /// Which key.
        key: &'static str,
        /// Why.
        source: UnwrapError,
    },
    /// It holds something of another length.
    #[error("the file of the {key} holds {found} bytes, expected {expected}: it is another file")]
    Length {
        /// Which key.
        key: &'static str,
        /// What a key has, bytes.
        expected: usize,
        /// What is there, bytes.
        found: usize,
    },
    /// It holds another key than the segment was opened with.
    #[error(
        "the {key} unwrapped, but segment_open commits to {expected} and this one makes {found}: the key file belongs to another segment or was exchanged"
    )]
    Commitment {
        /// Which key.
        key: &'static str,
        /// What segment_open says.
        expected: KeyCommitment,
        /// What the key makes.
        found: KeyCommitment,
    },
}

/// Opens `<F>.body.age` and holds the key against segment_open.
///
/// # Errors
/// See [`UnwrapKeyError`].
pub fn unwrap_data_key(
    identities: &Identities,
    file: &[u8],
    expected: &KeyCommitment,
) -> Result<DataKey, UnwrapKeyError> {
    let [key] = unwrap_keys(identities, file, "data key")?;
    let key = DataKey(key);
    check("data key", expected, key.commitment())?;
    Ok(key)
}

/// Opens `<F>.envelope.age` and holds both keys against segment_open.
///
/// # Errors
/// See [`UnwrapKeyError`].
pub fn unwrap_envelope_keys(
    identities: &Identities,
    file: &[u8],
    expected_envelope: &KeyCommitment,
    expected_token: &KeyCommitment,
) -> Result<(EnvelopeKey, TokenKey), UnwrapKeyError> {
    let [envelope, token] = unwrap_keys(identities, file, "envelope key")?;
    let (envelope, token) = (EnvelopeKey(envelope), TokenKey(token));
    check("envelope key", expected_envelope, envelope.commitment())?;
    check("token key", expected_token, token.commitment())?;
    Ok((envelope, token))
}

/// Opens `<F>.<class>.age` and holds the key against segment_open.
///
/// # Errors
/// See [`UnwrapKeyError`].
pub fn unwrap_payload_key(
    identities: &Identities,
    file: &[u8],
    expected: &KeyCommitment,
) -> Result<PayloadKey, UnwrapKeyError> {
    let [key] = unwrap_keys(identities, file, "payload key")?;
    let key = PayloadKey(key);
    check("payload key", expected, key.commitment())?;
    Ok(key)
}

pub(crate) fn unwrap_keys<const N: usize>(
    identities: &Identities,
    file: &[u8],
    key: &'static str,
) -> Result<[SecretBytes; N], UnwrapKeyError> {
    let content =
        unwrap(identities, file).map_err(|source| UnwrapKeyError::Unwrap { key, source })?;
    if content.len() != 32 * N {
        return Err(UnwrapKeyError::Length {
            key,
            expected: 32 * N,
            found: content.len(),
        });
    }
    let mut keys = std::array::from_fn(|_| SecretBytes::zeroed());
    for (key, bytes) in keys.iter_mut().zip(content.chunks_exact(32)) {
        key.expose_mut().copy_from_slice(bytes);
    }
    Ok(keys)
}

fn check(
    key: &'static str,
    expected: &KeyCommitment,
    found: KeyCommitment,
) -> Result<(), UnwrapKeyError> {
    if found == *expected {
        return Ok(());
    }
    Err(UnwrapKeyError::Commitment {
        key,
        expected: *expected,
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_class_names() {
        for good in ["30d", "a", "0123456789abcdef"] {
            assert_eq!(RetentionClass::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "body",
            "envelope",
            "30D",
            "a.b",
            "../x",
            "0123456789abcdefg",
            "é",
        ] {
            assert!(RetentionClass::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn file_names() {
        assert_eq!(
            SegmentKeyFiles::body_name(Seq(4)),
            "00000000000000000004.body.age"
        );
        assert_eq!(
            SegmentKeyFiles::payload_name(Seq(u64::MAX), &RetentionClass::new("30d").unwrap()),
            "18446744073709551615.30d.age"
        );
    }
}
