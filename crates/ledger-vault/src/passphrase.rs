//! A passphrase in memory. Not the prompt: whoever asks for it hands it over.

use std::fmt;
use std::io::BufRead;

use age::secrecy::SecretString;
use zeroize::{Zeroize, Zeroizing};

use crate::identities::IdentityError;

/// Longest passphrase, bytes.
const PASSPHRASE_LEN_MAX: usize = 1024;

/// A passphrase; wiped when dropped.
pub struct Passphrase(pub(crate) SecretString);

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(secret)")
    }
}

impl Passphrase {
    /// Takes over what somebody typed.
    ///
    /// # Errors
    /// It is empty, too long or has a line break.
    pub fn new(mut text: String) -> Result<Self, IdentityError> {
        if text.is_empty() || text.len() > PASSPHRASE_LEN_MAX || text.contains(['\n', '\r']) {
            text.zeroize();
            return Err(IdentityError::Passphrase {
                max: PASSPHRASE_LEN_MAX,
            });
        }
        // A boxed str of its exact length; the string it came from is wiped.
        let boxed: Box<str> = text.as_str().into();
        text.zeroize();
        Ok(Self(SecretString::from(boxed)))
    }

    /// Reads one line, without its line break: from a pipe, a file descriptor or a credential file.
    ///
    /// # Errors
    /// The reader failed, or the line is no passphrase.
    pub fn read_line(reader: impl BufRead) -> Result<Self, IdentityError> {
        let mut line = Zeroizing::new(Vec::with_capacity(PASSPHRASE_LEN_MAX + 3));
        reader
            .take(PASSPHRASE_LEN_MAX as u64 + 2)
            .read_until(b'\n', &mut line)
            .map_err(|error| IdentityError::Io {
                operation: "reading the passphrase",
                source: error.into(),
            })?;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let text = std::str::from_utf8(text).map_err(|_| IdentityError::Passphrase {
            max: PASSPHRASE_LEN_MAX,
        })?;
        Self::new(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use age::secrecy::ExposeSecret;

    #[test]
    fn passphrase_lines() {
        let read =
            |bytes: &[u8]| Passphrase::read_line(bytes).map(|p| p.0.expose_secret().to_owned());
        assert_eq!(read(b"one two\r\nnext").unwrap(), "one two");
        assert_eq!(read(b"x").unwrap(), "x");
        assert!(read(b"\n").is_err());
        assert!(read(&[0xff, b'\n']).is_err());
        assert!(read(&[b'a'; PASSPHRASE_LEN_MAX]).is_ok());
        assert!(read(&[b'a'; PASSPHRASE_LEN_MAX + 1]).is_err());
    }
}
