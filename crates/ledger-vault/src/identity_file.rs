//! Opening files of identities: plain, encrypted with a passphrase, or encrypted to people's own recipients.
//!
//! Not their making: that is with [`Identities`].

use std::fmt;

use age::armor::ArmoredReader;

use crate::identities::{
    IDENTITY_FILE_LEN_MAX, Identities, IdentityError, WORK_FACTOR_MAX, parse_plain,
};
use crate::passphrase::Passphrase;
use crate::wrap::{AGE_FILE_LEN_MAX, decrypt, decryptor, read_bounded};

/// What a file of identities turned out to be.
#[derive(Debug)]
pub enum IdentityFile {
    /// Readable as it is.
    Plain(Identities),
    /// Needs [`EncryptedIdentities::open_with_passphrase`].
    Passphrase(EncryptedIdentities),
    /// Needs [`EncryptedIdentities::open_with`] an identity of one of its readers.
    Recipients(EncryptedIdentities),
}

impl IdentityFile {
    /// Looks at the bytes of an identity file: plain, or age-encrypted, binary or armored.
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse(file: &[u8]) -> Result<Self, IdentityError> {
        if file.len() > IDENTITY_FILE_LEN_MAX {
            return Err(IdentityError::TooLong {
                max: IDENTITY_FILE_LEN_MAX,
            });
        }
        let trimmed = file.trim_ascii_start();
        if trimmed.starts_with(b"-----BEGIN AGE ENCRYPTED FILE-----")
            || file.starts_with(b"age-encryption.org/")
        {
            let binary = read_bounded(ArmoredReader::new(trimmed), AGE_FILE_LEN_MAX)
                .map_err(|error| IdentityError::NotAge(error.into()))?
                .ok_or(IdentityError::TooLong {
                    max: AGE_FILE_LEN_MAX,
                })?;
            let is_passphrase = decryptor(&binary)?.is_scrypt();
            let encrypted = EncryptedIdentities {
                file: binary.to_vec(),
                is_passphrase,
            };
            return Ok(if is_passphrase {
                Self::Passphrase(encrypted)
            } else {
                Self::Recipients(encrypted)
            });
        }
        parse_plain(file).map(Self::Plain)
    }
}

/// An age-encrypted identity file.
pub struct EncryptedIdentities {
    file: Vec<u8>,
    is_passphrase: bool,
}

impl fmt::Debug for EncryptedIdentities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptedIdentities({} bytes)", self.file.len())
    }
}

impl EncryptedIdentities {
    /// Opens a file that is encrypted with a passphrase; takes about a second and up to 1 GiB.
    ///
    /// # Errors
    /// Another kind of file, a wrong passphrase, too much work, or no identities within.
    pub fn open_with_passphrase(
        &self,
        passphrase: &Passphrase,
    ) -> Result<Identities, IdentityError> {
        if !self.is_passphrase {
            return Err(IdentityError::OtherLock {
                expected: "with a passphrase",
                found: "to recipients",
            });
        }
        let mut key = age::scrypt::Identity::new(passphrase.0.clone());
        key.set_max_work_factor(WORK_FACTOR_MAX);
        let reader = decryptor(&self.file)?
            .decrypt(std::iter::once(&key as &dyn age::Identity))
            .map_err(|error| match error {
                age::DecryptError::ExcessiveWork { required, .. } => IdentityError::TooMuchWork {
                    found: required,
                    max: WORK_FACTOR_MAX,
                },
                age::DecryptError::DecryptionFailed
                | age::DecryptError::KeyDecryptionFailed
                | age::DecryptError::NoMatchingKeys
                | age::DecryptError::InvalidMac => IdentityError::WrongPassphrase,
                other => IdentityError::NotAge(other.into()),
            })?;
        let content = read_bounded(reader, IDENTITY_FILE_LEN_MAX)
            .map_err(|error| IdentityError::NotAge(error.into()))?
            .ok_or(IdentityError::TooLong {
                max: IDENTITY_FILE_LEN_MAX,
            })?;
        parse_plain(&content)
    }

    /// Opens a file that is encrypted to people, with the identity of one of them.
    ///
    /// # Errors
    /// Another kind of file, none of the identities fits, or no identities within.
    pub fn open_with(&self, readers: &Identities) -> Result<Identities, IdentityError> {
        if self.is_passphrase {
            return Err(IdentityError::OtherLock {
                expected: "to recipients",
                found: "with a passphrase",
            });
        }
        parse_plain(&decrypt(readers, &self.file, IDENTITY_FILE_LEN_MAX)?)
    }
}
