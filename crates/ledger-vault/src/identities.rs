//! age identities: the operational key of a writer, the vault key of an investigator, and their files.
//!
//! An identity file is plain, encrypted with a passphrase, or encrypted to people's own recipients, as
//! `age-keygen` and `age` make them. No terminal is read here: whoever asks for a passphrase hands it over.

use std::fmt;
use std::io::Write;

use age::armor::{ArmoredWriter, Format};
use age::secrecy::ExposeSecret;
use zeroize::Zeroizing;

use crate::identity_file::IdentityFile;
use crate::keydir::{KeyDir, KeyFileError};
use crate::passphrase::Passphrase;
use crate::recipients::{Recipients, RecipientsError};
use crate::wrap::{UnwrapError, encrypt_into};

/// Longest identity file, bytes, encrypted or not.
pub(crate) const IDENTITY_FILE_LEN_MAX: usize = 65_536;
/// Most identities of a file.
const IDENTITIES_MAX: usize = 256;
/// scrypt work of a new passphrase file, log2 of N: stock age's choice, about a second and 256 MiB.
const WORK_FACTOR: u8 = 18;
/// scrypt work accepted from a file: 1 GiB of memory.
pub(crate) const WORK_FACTOR_MAX: u8 = 20;

const _: () = assert!(WORK_FACTOR <= WORK_FACTOR_MAX);

/// Why an identity file was refused. No variant carries its content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// No line holds an identity.
    #[error("there is no identity: expected a line `AGE-SECRET-KEY-1...`, as age-keygen writes it")]
    Empty,
    /// The file is too long.
    #[error("the identity file has more than {max} bytes: this is another file")]
    TooLong {
        /// The limit in bytes.
        max: usize,
    },
    /// Too many identities.
    #[error("the file has {found} identities, at most {max} are allowed")]
    TooMany {
        /// Their number.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A line is no identity.
    #[error(
        "line {line} is not an age identity: expected `AGE-SECRET-KEY-1...` with a sound checksum"
    )]
    Malformed {
        /// Counted from 1.
        line: usize,
    },
    /// An identity of a kind that is not built in.
    #[error(
        "line {line} is {found}, which is not supported: decrypt with stock `age` instead, or give the vault an X25519 identity that is encrypted to yours"
    )]
    Unsupported {
        /// Counted from 1.
        line: usize,
        /// The kind.
        found: &'static str,
    },
    /// A plain identity was expected.
    #[error("the identity file is encrypted; it has to be opened first")]
    Encrypted,
    /// The file is encrypted, but in another way.
    #[error("the identity file is encrypted {found}, not {expected}")]
    OtherLock {
        /// How it was to be opened.
        expected: &'static str,
        /// How it is encrypted.
        found: &'static str,
    },
    /// No age file, or a damaged one.
    #[error("the encrypted identity file is not a sound age v1 file: {0}")]
    NotAge(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It did not decrypt.
    #[error("wrong passphrase, or the identity file was altered")]
    WrongPassphrase,
    /// The file demands more work than is accepted.
    #[error(
        "the identity file demands 2^{found} of scrypt work, at most 2^{max} is accepted; encrypt it again with less"
    )]
    TooMuchWork {
        /// log2 of the demand.
        found: u8,
        /// log2 of the limit.
        max: u8,
    },
    /// The other identities do not open it.
    #[error("the identity file did not open: {0}")]
    Unwrap(#[from] UnwrapError),
    /// A passphrase was empty or too long.
    #[error("a passphrase has 1 to {max} bytes, UTF-8, on one line")]
    Passphrase {
        /// The limit in bytes.
        max: usize,
    },
    /// Encrypting or reading failed.
    #[error("{operation} failed: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// One or more X25519 identities, in the order in which they are tried.
pub struct Identities(Vec<age::x25519::Identity>);

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identities({} secret)", self.0.len())
    }
}

impl Identities {
    /// A new random identity.
    #[must_use]
    pub fn generate() -> Self {
        Self(vec![age::x25519::Identity::generate()])
    }

    /// Reads a plain identity file, or an encrypted one with what `ask` answers when a passphrase is needed.
    ///
    /// # Errors
    /// Not an identity file, a wrong passphrase, an answer of None ([`IdentityError::Encrypted`]), or a file
    /// that is encrypted to recipients.
    pub fn open(
        file: &[u8],
        ask: impl FnOnce() -> Option<Passphrase>,
    ) -> Result<Self, IdentityError> {
        match IdentityFile::parse(file)? {
            IdentityFile::Plain(identities) => Ok(identities),
            IdentityFile::Passphrase(encrypted) => {
                encrypted.open_with_passphrase(&ask().ok_or(IdentityError::Encrypted)?)
            }
            IdentityFile::Recipients(_) => Err(IdentityError::OtherLock {
                expected: "with a passphrase",
                found: "to recipients",
            }),
        }
    }

    /// Reads a plain identity file that only its owner can read, such as `operational.key`.
    ///
    /// # Errors
    /// The file is missing, open to others, not a regular file, too long, or holds no plain identities.
    pub fn read(dir: KeyDir<'_>, name: &str) -> Result<Self, KeyFileError> {
        let file = dir.read_private(name, IDENTITY_FILE_LEN_MAX)?;
        match IdentityFile::parse(&file) {
            Ok(IdentityFile::Plain(identities)) => Ok(identities),
            Ok(_) => Err("an encrypted file"),
            Err(_) => Err("something else"),
        }
        .map_err(|found| KeyFileError::Malformed {
            path: dir.path_of(name),
            expected: "an age identity file: lines `AGE-SECRET-KEY-1...`".to_owned(),
            found,
        })
    }

    /// These identities behind a newer one: how `operational.key` is rotated.
    ///
    /// # Errors
    /// There would be too many.
    pub fn with_newest(mut self, newest: Self) -> Result<Self, IdentityError> {
        let mut all = newest.0;
        all.append(&mut self.0);
        checked(all)
    }

    /// The same identities again, for a second reader. Not `Clone`: every copy of a secret is asked for.
    #[must_use]
    pub fn again(&self) -> Self {
        Self(self.0.clone())
    }

    /// How many there are; at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The public keys of all of them.
    ///
    /// # Errors
    /// An identity whose public key nothing may be encrypted to; no generated one is.
    pub fn recipients(&self) -> Result<Recipients, RecipientsError> {
        let text: String = self
            .0
            .iter()
            .map(|key| format!("{}\n", key.to_public()))
            .collect();
        Recipients::parse(&text)
    }

    /// The public key of the newest one: new files are wrapped to it and to no retired one.
    ///
    /// # Errors
    /// As [`recipients`](Self::recipients).
    pub fn newest_recipient(&self) -> Result<Recipients, RecipientsError> {
        let text: String = self
            .0
            .iter()
            .take(1)
            .map(|key| format!("{}\n", key.to_public()))
            .collect();
        Recipients::parse(&text)
    }

    /// The text of an identity file, **in clear**, as age-keygen writes it. `created` is an RFC 3339 time; line
    /// breaks in it are dropped.
    #[must_use]
    pub fn to_file_text(&self, created: &str) -> Zeroizing<String> {
        let created: String = created.chars().filter(|c| !c.is_control()).collect();
        // 62 + 74 bytes and line ends an entry; room for all, so that no copy is left behind by growth.
        let capacity = created.len() + 32 + self.0.len() * 192;
        let mut text = Zeroizing::new(String::with_capacity(capacity));
        text.push_str("# created: ");
        text.push_str(&created);
        text.push('\n');
        for key in &self.0 {
            text.push_str("# public key: ");
            text.push_str(&key.to_public().to_string());
            text.push('\n');
            text.push_str(key.to_string().expose_secret());
            text.push('\n');
        }
        text
    }

    /// An armored identity file that opens with a passphrase, here and with `age -d`. Takes about a second.
    ///
    /// # Errors
    /// The age library failed.
    pub fn to_passphrase_file(
        &self,
        created: &str,
        passphrase: &Passphrase,
    ) -> Result<Vec<u8>, IdentityError> {
        self.to_passphrase_file_at(created, passphrase, WORK_FACTOR)
    }

    fn to_passphrase_file_at(
        &self,
        created: &str,
        passphrase: &Passphrase,
        work_factor: u8,
    ) -> Result<Vec<u8>, IdentityError> {
        let mut key = age::scrypt::Recipient::new(passphrase.0.clone());
        key.set_work_factor(work_factor);
        armored(|out| {
            let key = std::iter::once(&key as &dyn age::Recipient);
            let mut writer = age::Encryptor::with_recipients(key)?.wrap_output(out)?;
            writer.write_all(self.to_file_text(created).as_bytes())?;
            Ok(writer.finish()?)
        })
    }

    /// An armored identity file that each of `readers` opens, here and with `age -d`: one reader identity for
    /// the vault, handed to people. A change of staff rewraps this file only.
    ///
    /// # Errors
    /// The age library failed.
    pub fn to_recipients_file(
        &self,
        created: &str,
        readers: &Recipients,
    ) -> Result<Vec<u8>, IdentityError> {
        armored(|mut out| {
            encrypt_into(readers, self.to_file_text(created).as_bytes(), &mut out)?;
            Ok(out)
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &dyn age::Identity> {
        self.0.iter().map(|key| key as &dyn age::Identity)
    }
}

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Runs `encrypt` on an armored writer that it gives back.
fn armored(
    encrypt: impl FnOnce(ArmoredWriter<Vec<u8>>) -> Result<ArmoredWriter<Vec<u8>>, BoxedError>,
) -> Result<Vec<u8>, IdentityError> {
    ArmoredWriter::wrap_output(Vec::new(), Format::AsciiArmor)
        .map_err(BoxedError::from)
        .and_then(encrypt)
        .and_then(|writer| Ok(writer.finish()?))
        .map_err(|source| IdentityError::Io {
            operation: "encrypting the identity file",
            source,
        })
}

fn checked(keys: Vec<age::x25519::Identity>) -> Result<Identities, IdentityError> {
    match keys.len() {
        0 => Err(IdentityError::Empty),
        found if found > IDENTITIES_MAX => Err(IdentityError::TooMany {
            found,
            max: IDENTITIES_MAX,
        }),
        _ => Ok(Identities(keys)),
    }
}

pub(crate) fn parse_plain(file: &[u8]) -> Result<Identities, IdentityError> {
    let mut keys = Vec::new();
    for (index, line) in file.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        let line = std::str::from_utf8(line.trim_ascii())
            .map_err(|_| IdentityError::Malformed { line: number })?;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(found) = unsupported_kind(line) {
            return Err(IdentityError::Unsupported {
                line: number,
                found,
            });
        }
        keys.push(
            line.parse()
                .map_err(|_| IdentityError::Malformed { line: number })?,
        );
    }
    checked(keys)
}

fn unsupported_kind(line: &str) -> Option<&'static str> {
    if line.starts_with("AGE-PLUGIN-") {
        Some("a plugin identity")
    } else if line.starts_with("AGE-SECRET-KEY-PQ-") {
        Some("a post-quantum identity")
    } else if line.starts_with("-----BEGIN OPENSSH PRIVATE KEY")
        || line.starts_with("-----BEGIN RSA")
    {
        Some("an SSH key")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use age::armor::ArmoredReader;
    use std::io::Read;

    const SECRET: &str =
        "AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33";
    const PUBLIC: &str = "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa";

    fn one() -> Identities {
        parse_plain(SECRET.as_bytes()).unwrap()
    }

    #[test]
    fn file_text_is_what_age_keygen_writes() {
        assert_eq!(
            *one().to_file_text("2026-11-30T12:00:00Z"),
            format!("# created: 2026-11-30T12:00:00Z\n# public key: {PUBLIC}\n{SECRET}\n")
        );
    }

    #[test]
    fn file_text_never_outgrows_its_buffer_and_keeps_to_its_lines() {
        let many = checked((0..3).map(|_| age::x25519::Identity::generate()).collect()).unwrap();
        let created = "2026\nAGE-SECRET-KEY-1";
        let text = many.to_file_text(created);
        assert!(text.len() <= created.len() + 32 + 3 * 192);
        assert_eq!(parse_plain(text.as_bytes()).unwrap().len(), 3);
    }

    #[test]
    fn newest_comes_first_and_is_the_recipient() {
        let both = Identities::generate().with_newest(one()).unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(
            both.newest_recipient().unwrap().text(),
            format!("{PUBLIC}\n")
        );
        assert_eq!(both.recipients().unwrap().entries().len(), 2);
    }

    #[test]
    fn plain_files_and_what_is_refused() {
        let parse = |text: &str| IdentityFile::parse(text.as_bytes());
        assert!(matches!(
            parse(&format!("# c\r\n\r\n{SECRET}\r\n")),
            Ok(IdentityFile::Plain(_))
        ));
        assert!(matches!(parse(""), Err(IdentityError::Empty)));
        assert!(matches!(
            parse("x"),
            Err(IdentityError::Malformed { line: 1 })
        ));
        assert!(matches!(
            parse(&SECRET.replace("Y5J33", "Y5J34")),
            Err(IdentityError::Malformed { line: 1 })
        ));
        assert!(matches!(
            parse("#\nAGE-PLUGIN-YUBIKEY-1QQQ"),
            Err(IdentityError::Unsupported { line: 2, .. })
        ));
        assert!(matches!(
            parse(&"#".repeat(70_000)),
            Err(IdentityError::TooLong { .. })
        ));
        assert!(matches!(
            parse("age-encryption.org/v1\nx, and no header follows"),
            Err(IdentityError::Unwrap(UnwrapError::NotAge(_)))
        ));
        assert!(IdentityFile::parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn no_secret_in_debug_or_errors() {
        let mistyped = SECRET.replace("Y5J33", "Y5J34");
        let error = IdentityFile::parse(mistyped.as_bytes()).unwrap_err();
        for text in [
            format!("{error:?} {error}"),
            format!("{:?}", one()),
            format!("{:?}", Passphrase::new("hunter2".into()).unwrap()),
        ] {
            assert!(
                !text.contains("1GQ9778") && !text.contains("hunter2"),
                "{text}"
            );
        }
    }

    #[test]
    fn passphrase_file_opens_with_the_passphrase_only() {
        let passphrase = Passphrase::new("correct horse".into()).unwrap();
        let file = one().to_passphrase_file_at("now", &passphrase, 8).unwrap();
        assert!(file.starts_with(b"-----BEGIN AGE ENCRYPTED FILE-----\n"));

        let opened = Identities::open(&file, || Some(passphrase)).unwrap();
        assert_eq!(opened.recipients().unwrap().text(), format!("{PUBLIC}\n"));
        let wrong = Identities::open(&file, || Passphrase::new("wrong".into()).ok());
        assert!(matches!(wrong, Err(IdentityError::WrongPassphrase)));
        assert!(matches!(
            Identities::open(&file, || None),
            Err(IdentityError::Encrypted)
        ));
        let IdentityFile::Passphrase(encrypted) = IdentityFile::parse(&file).unwrap() else {
            panic!("recognised");
        };
        assert!(matches!(
            encrypted.open_with(&one()),
            Err(IdentityError::OtherLock { .. })
        ));
    }

    #[test]
    fn too_much_work_is_refused_before_it_is_done() {
        let passphrase = Passphrase::new("correct horse".into()).unwrap();
        let file = one().to_passphrase_file_at("now", &passphrase, 8).unwrap();
        let mut binary = Vec::new();
        ArmoredReader::new(&file[..])
            .read_to_end(&mut binary)
            .unwrap();
        let line_end = binary.iter().skip(22).position(|&b| b == b'\n').unwrap() + 22;
        binary.splice(line_end - 1..line_end, *b"40");
        let result = Identities::open(&binary, || Some(passphrase));
        assert!(matches!(
            result,
            Err(IdentityError::TooMuchWork { found: 40, .. })
        ));
    }

    #[test]
    fn recipients_file_opens_for_each_reader_and_nobody_else() {
        let (alice, bob, eve) = (
            Identities::generate(),
            Identities::generate(),
            Identities::generate(),
        );
        let readers =
            Recipients::union([&alice.recipients().unwrap(), &bob.recipients().unwrap()]).unwrap();
        let file = one().to_recipients_file("now", &readers).unwrap();
        let IdentityFile::Recipients(encrypted) = IdentityFile::parse(&file).unwrap() else {
            panic!("recognised");
        };
        for reader in [&alice, &bob] {
            let opened = encrypted.open_with(reader).unwrap();
            assert_eq!(opened.recipients().unwrap().text(), format!("{PUBLIC}\n"));
        }
        assert!(matches!(
            encrypted.open_with(&eve),
            Err(IdentityError::Unwrap(UnwrapError::NoMatch {
                identities: 1
            }))
        ));
        assert!(matches!(
            Identities::open(&file, || None),
            Err(IdentityError::OtherLock { .. })
        ));
    }
}
