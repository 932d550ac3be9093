//! Wrapping and unwrapping small secrets in age v1 files, which stock `age` opens too.
//!
//! The only place, with `identities`, that touches the age library: its API moves, the file format does not.

use std::io::{Read, Write};

use age::DecryptError;
use zeroize::Zeroizing;

use crate::identities::Identities;
use crate::recipients::Recipients;

/// Longest secret that is wrapped, bytes: two keys.
const PLAINTEXT_LEN_MAX: usize = 64;
/// Longest age file that is read, bytes: the header's bound and the sealed secret behind it.
pub(crate) const AGE_FILE_LEN_MAX: usize = 65_536 + 256;
/// Most lines of it: the library parses a header again for each of its lines.
const AGE_LINES_MAX: usize = 2048;

/// Why nothing was wrapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapError {
    /// Only keys are wrapped.
    #[error("a wrapped secret has at most {max} bytes, this one has {found}")]
    TooLong {
        /// Its length in bytes.
        found: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The age library failed.
    #[error("the key could not be wrapped: {0}")]
    Age(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a wrapped file did not open. No variant carries its content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnwrapError {
    /// The file is too long to be a wrapped key.
    #[error(
        "the file is too large for a wrapped key: {found} bytes, at most {max} on few lines are read"
    )]
    TooLarge {
        /// Its length in bytes.
        found: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// It is no age v1 file, or its header is damaged.
    #[error("the file is not a sound age v1 file: {0}")]
    NotAge(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is an age file for a passphrase.
    #[error(
        "the file is encrypted with a passphrase; wrapped keys never are: this is another file"
    )]
    Passphrase,
    /// No identity given is among its recipients.
    #[error(
        "none of the {identities} identities given can open the file: it is wrapped to other recipients"
    )]
    NoMatch {
        /// How many were tried.
        identities: usize,
    },
    /// An identity fits, but header or content were altered or cut.
    #[error("an identity fits, but the file was altered or cut: {0}")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It holds more than keys.
    #[error("the file holds more than {max} bytes: it is not a wrapped key")]
    ContentTooLong {
        /// The limit in bytes.
        max: usize,
    },
}

/// Encrypts `secret` (at most 64 bytes) to all recipients as a binary age v1 file.
///
/// About 0.1 ms a recipient.
///
/// # Errors
/// The secret is too long, or the age library failed.
pub fn wrap(recipients: &Recipients, secret: &[u8]) -> Result<Vec<u8>, WrapError> {
    if secret.len() > PLAINTEXT_LEN_MAX {
        return Err(WrapError::TooLong {
            found: secret.len(),
            max: PLAINTEXT_LEN_MAX,
        });
    }
    let mut out = Vec::new();
    encrypt_into(recipients, secret, &mut out).map_err(WrapError::Age)?;
    Ok(out)
}

/// Encrypts `content` of any length to all recipients.
pub(crate) fn encrypt_into(
    recipients: &Recipients,
    content: &[u8],
    out: impl Write,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let keys = recipients.entries().iter().map(|entry| entry.key() as _);
    let mut writer = age::Encryptor::with_recipients(keys)?.wrap_output(out)?;
    writer.write_all(content)?;
    writer.finish()?.flush()?;
    Ok(())
}

/// Opens what [`wrap`] or `age -r ...` made, with the first identity that fits. At most 64 KiB of header
/// and 64 bytes of content.
///
/// # Errors
/// See [`UnwrapError`].
pub fn unwrap(identities: &Identities, file: &[u8]) -> Result<Zeroizing<Vec<u8>>, UnwrapError> {
    decrypt(identities, file, PLAINTEXT_LEN_MAX)
}

/// Parses the header, within bounds.
pub(crate) fn decryptor(file: &[u8]) -> Result<age::Decryptor<&[u8]>, UnwrapError> {
    let lines = file.iter().filter(|&&byte| byte == b'\n').count();
    if file.len() > AGE_FILE_LEN_MAX || lines > AGE_LINES_MAX {
        return Err(UnwrapError::TooLarge {
            found: file.len(),
            max: AGE_FILE_LEN_MAX,
        });
    }
    age::Decryptor::new_buffered(file).map_err(|error| UnwrapError::NotAge(error.into()))
}

/// [`unwrap`] with another bound on the content.
pub(crate) fn decrypt(
    identities: &Identities,
    file: &[u8],
    content_len_max: usize,
) -> Result<Zeroizing<Vec<u8>>, UnwrapError> {
    let decryptor = decryptor(file)?;
    if decryptor.is_scrypt() {
        return Err(UnwrapError::Passphrase);
    }
    let reader = decryptor
        .decrypt(identities.keys())
        .map_err(|error| match error {
            DecryptError::NoMatchingKeys => UnwrapError::NoMatch {
                identities: identities.len(),
            },
            other => UnwrapError::Damaged(other.into()),
        })?;
    read_bounded(reader, content_len_max)
        .map_err(|error| UnwrapError::Damaged(error.into()))?
        .ok_or(UnwrapError::ContentTooLong {
            max: content_len_max,
        })
}

/// Everything the reader has, or None when that is more than `len_max` bytes.
pub(crate) fn read_bounded(
    reader: impl Read,
    len_max: usize,
) -> std::io::Result<Option<Zeroizing<Vec<u8>>>> {
    // The full capacity at once: a growing vector would leave copies of the secret behind.
    let mut content = Zeroizing::new(Vec::with_capacity(len_max + 1));
    reader.take(len_max as u64 + 1).read_to_end(&mut content)?;
    Ok((content.len() <= len_max).then_some(content))
}
