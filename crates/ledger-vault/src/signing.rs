//! The two Ed25519 signing keys of a writer and their files (sections 9 and 12).
//!
//! Not signed notes: what is signed comes from the caller, what verifies it is keyless and elsewhere.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use zeroize::Zeroizing;

use crate::keydir::{KeyDir, KeyFileError};
use crate::keys::{RandomError, SecretBytes};

/// Longest `log.key` or `epoch.key`, bytes; either has 63 to 65.
const SIGNING_KEY_FILE_LEN_MAX: usize = 4096;
/// Base64 of 32 bytes, with padding.
const SEED_BASE64_LEN: usize = 44;

const LOG_PREFIX: &str = "ledger-log-key v1 ";
const EPOCH_PREFIX: &str = "ledger-epoch-key v1 ";
const LOG_FILE: &str = "log.key";
const LOG_NEXT_FILE: &str = "log.next";

/// Which of the two names an epoch key has on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochKeyFile {
    /// `epoch.key`: signs the open segment's checkpoints.
    Current,
    /// `epoch.next`: written during rotation, before the close that names it.
    Next,
}

impl EpochKeyFile {
    /// The file's name in the state folder.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "epoch.key",
            Self::Next => "epoch.next",
        }
    }
}

/// Declares a signing key type; the two must not be confused.
macro_rules! signing_key {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        // Boxed, so that moves leave no copy; ed25519-dalek wipes it when dropped.
        pub struct $name(Box<SigningKey>);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(secret)"))
            }
        }

        impl $name {
            /// A new random key.
            ///
            /// # Errors
            /// The operating system gave no random bytes.
            pub fn generate() -> Result<Self, RandomError> {
                Ok(Self::from_seed(&SecretBytes::random()?))
            }

            fn from_seed(seed: &SecretBytes) -> Self {
                Self(Box::new(SigningKey::from_bytes(seed.expose())))
            }

            /// The raw public key.
            #[must_use]
            pub fn public(&self) -> [u8; 32] {
                self.0.verifying_key().to_bytes()
            }

            /// An Ed25519 signature over `message`.
            #[must_use]
            pub fn sign(&self, message: &[u8]) -> [u8; 64] {
                self.0.sign(message).to_bytes()
            }
        }
    };
}

signing_key! {
    /// The log key of a generation: signs genesis and every checkpoint; the trust line pins it.
    LogKey
}
signing_key! {
    /// The epoch key of one segment: signs its segment_open and its checkpoints, then is destroyed.
    EpochKey
}

impl LogKey {
    /// Creates `log.key`; an existing one is never overwritten.
    ///
    /// # Errors
    /// It exists, or the file system failed.
    pub fn create(&self, dir: KeyDir<'_>) -> Result<(), KeyFileError> {
        dir.create(LOG_FILE, &key_file_text(LOG_PREFIX, &self.0))
    }

    /// Creates `log.next`, the log key of the coming generation; an existing one is never overwritten.
    ///
    /// # Errors
    /// It exists, or the file system failed.
    pub fn create_next(&self, dir: KeyDir<'_>) -> Result<(), KeyFileError> {
        dir.create(LOG_NEXT_FILE, &key_file_text(LOG_PREFIX, &self.0))
    }

    /// Reads `log.key`.
    ///
    /// # Errors
    /// It is missing, open to others, not a regular file, too long or malformed.
    pub fn read(dir: KeyDir<'_>) -> Result<Self, KeyFileError> {
        read_seed(dir, LOG_FILE, LOG_PREFIX).map(|seed| Self::from_seed(&seed))
    }

    /// Reads `log.next`.
    ///
    /// # Errors
    /// As [`LogKey::read`].
    pub fn read_next(dir: KeyDir<'_>) -> Result<Self, KeyFileError> {
        read_seed(dir, LOG_NEXT_FILE, LOG_PREFIX).map(|seed| Self::from_seed(&seed))
    }

    /// Renames `log.next` over `log.key` and syncs the folder: the old key is gone from then on.
    ///
    /// # Errors
    /// The file system failed.
    pub fn promote_next(dir: KeyDir<'_>) -> Result<(), KeyFileError> {
        dir.rename(LOG_NEXT_FILE, LOG_FILE)
    }

    /// Deletes `log.next` and syncs the folder; a missing one is no error.
    ///
    /// # Errors
    /// The file system failed.
    pub fn discard_next(dir: KeyDir<'_>) -> Result<(), KeyFileError> {
        dir.remove(LOG_NEXT_FILE)
    }
}

impl EpochKey {
    /// Creates the file; an existing one is never overwritten.
    ///
    /// # Errors
    /// It exists, or the file system failed.
    pub fn create(&self, dir: KeyDir<'_>, file: EpochKeyFile) -> Result<(), KeyFileError> {
        dir.create(file.name(), &key_file_text(EPOCH_PREFIX, &self.0))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It is missing, open to others, not a regular file, too long or malformed.
    pub fn read(dir: KeyDir<'_>, file: EpochKeyFile) -> Result<Self, KeyFileError> {
        read_seed(dir, file.name(), EPOCH_PREFIX).map(|seed| Self::from_seed(&seed))
    }

    /// Renames `epoch.next` over `epoch.key` and syncs the folder: the old key is gone from then on.
    ///
    /// # Errors
    /// The file system failed.
    pub fn promote_next(dir: KeyDir<'_>) -> Result<(), KeyFileError> {
        dir.rename(EpochKeyFile::Next.name(), EpochKeyFile::Current.name())
    }

    /// Deletes `epoch.next` and syncs the folder; a missing one is no error.
    ///
    /// # Errors
    /// The file system failed.
    pub fn discard_next(dir: KeyDir<'_>) -> Result<(), KeyFileError> {
        dir.remove(EpochKeyFile::Next.name())
    }
}

fn key_file_text(prefix: &str, key: &SigningKey) -> Zeroizing<Vec<u8>> {
    let encoded = Zeroizing::new(STANDARD.encode(key.as_bytes()));
    let mut text = Zeroizing::new(Vec::with_capacity(prefix.len() + encoded.len() + 1));
    text.extend_from_slice(prefix.as_bytes());
    text.extend_from_slice(encoded.as_bytes());
    text.push(b'\n');
    text
}

fn read_seed(
    dir: KeyDir<'_>,
    name: &str,
    prefix: &'static str,
) -> Result<SecretBytes, KeyFileError> {
    let text = dir.read_private(name, SIGNING_KEY_FILE_LEN_MAX)?;
    parse_seed(&text, prefix).map_err(|found| KeyFileError::Malformed {
        path: dir.path_of(name),
        expected: format!("`{prefix}`, base64 of 32 bytes and a newline"),
        found,
    })
}

/// The seed in a key file's text; the error says what is there without its content.
fn parse_seed(text: &[u8], prefix: &str) -> Result<SecretBytes, &'static str> {
    let encoded = text
        .strip_prefix(prefix.as_bytes())
        .ok_or("another beginning")?
        .strip_suffix(b"\n")
        .ok_or("no newline at the end")?;
    // One byte more than fits, as the decoder estimates its output from the padded length.
    let mut decoded = Zeroizing::new([0; 33]);
    if encoded.len() != SEED_BASE64_LEN {
        return Err("a key of another length");
    }
    match STANDARD.decode_slice(encoded, decoded.as_mut()) {
        Ok(32) => {}
        Ok(_) => return Err("a key of another length"),
        Err(_) => return Err("something that is not canonical base64"),
    }
    let mut seed = SecretBytes::zeroed();
    seed.expose_mut().copy_from_slice(&decoded[..32]);
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_text_is_the_specified_one() {
        let mut seed = SecretBytes::zeroed();
        seed.expose_mut()
            .copy_from_slice(&std::array::from_fn::<u8, 32, _>(|i| i as u8));
        let key = LogKey::from_seed(&seed);
        let text = key_file_text(LOG_PREFIX, &key.0);
        assert_eq!(
            std::str::from_utf8(&text).unwrap(),
            "ledger-log-key v1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
        );
        assert!(parse_seed(&text, LOG_PREFIX).unwrap() == seed);
        assert!(parse_seed(&text, EPOCH_PREFIX).is_err());
    }

    #[test]
    fn malformed_key_texts_are_refused() {
        let good = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        for bad in [
            String::new(),
            format!("ledger-log-key v1 {good}"),
            format!("ledger-log-key v1 {good}\n\n"),
            format!("ledger-log-key v1 {good} \n"),
            format!("ledger-log-key v1  {good}\n"),
            format!("ledger-log-key v2 {good}\n"),
            format!("ledger-log-key v1 {}\n", &good[..43]),
            // Not canonical: the last character has bits that mean nothing.
            "ledger-log-key v1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=\n".into(),
            "ledger-log-key v1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8B\n".into(),
        ] {
            assert!(parse_seed(bad.as_bytes(), LOG_PREFIX).is_err(), "{bad:?}");
        }
    }
}
