//! Lists of age recipients: who can open a wrapped key.
//!
//! Only native `age1...` recipients. SSH keys and plugins are named in the error, with the way around:
//! one reader identity, itself encrypted with stock `age` to any kind of recipient.

use std::fmt;

/// Longest recipients file, bytes.
const TEXT_LEN_MAX: usize = 65_536;
/// Most recipients of a file: their stanzas stay within the 64 KiB of header that `unwrap` reads.
const RECIPIENTS_MAX: usize = 256;

/// The public keys on which X25519 yields zero whatever the secret: wrapping to one protects nothing,
/// and the age library panics on it. Points of order 1, 2, 4 and 8 of curve and twist with their
/// unreduced encodings, with and without the ignored top bit.
const LOW_ORDER: [&str; 14] = [
    "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq5cu47z",
    "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqzqqsuwj9m",
    "age1qyqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqj7vrya",
    "age1qyqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqzqqk67yly",
    "age1anlllllllllllllllllllllllllllllllllllllllllllllllals4n2t7m",
    "age1anllllllllllllllllllllllllllllllllllllllllllllllllls3hcv9z",
    "age1ahlllllllllllllllllllllllllllllllllllllllllllllllalsn46ayy",
    "age1ahlllllllllllllllllllllllllllllllllllllllllllllllllsh3g6la",
    "age1amlllllllllllllllllllllllllllllllllllllllllllllllalselrwrv",
    "age1amlllllllllllllllllllllllllllllllllllllllllllllllllsam3fc4",
    "age1ur4h5lpmgxu2u9jku0a0r87ydtdqnr0tnsetrlvxvgz3vh6fhqqqzyt4v9",
    "age1ur4h5lpmgxu2u9jku0a0r87ydtdqnr0tnsetrlvxvgz3vh6fhzqqxqejhu",
    "age1t7wft09r2zxzfvwsk92eeql0tvzyghxytqwgapkcyf8dm5ylz9ts6wm9s8",
    "age1t7wft09r2zxzfvwsk92eeql0tvzyghxytqwgapkcyf8dm5ylz8ts72fzt7",
];

/// One reader.
#[derive(Clone)]
pub struct Recipient {
    key: age::x25519::Recipient,
    label: Option<String>,
}

impl Recipient {
    /// What the comment line directly above says, for people. Not authenticated.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    pub(crate) fn key(&self) -> &age::x25519::Recipient {
        &self.key
    }
}

impl fmt::Display for Recipient {
    /// The recipient as `age1...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient({self})")
    }
}

/// Why a list of recipients was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipientsError {
    /// No line holds a recipient.
    #[error("there is no recipient: expected lines like `age1...`, as `age-keygen -y` prints")]
    Empty,
    /// The text is too long.
    #[error("the list has {found} bytes, at most {max} are allowed")]
    TooLong {
        /// Its length in bytes.
        found: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// Too many recipients.
    #[error("the list has {found} recipients, at most {max} are allowed")]
    TooMany {
        /// Their number.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A line is a secret key, not a public one.
    #[error(
        "line {line} is a secret identity: only public recipients belong here; replace it with the output of `age-keygen -y`, and treat that identity as exposed if this file was shared"
    )]
    Secret {
        /// Counted from 1.
        line: usize,
    },
    /// A recipient of a kind that is not built in.
    #[error(
        "line {line} is {found}: only `age1...` X25519 recipients are supported; make an identity of that kind and encrypt its file to this recipient with `age`"
    )]
    Unsupported {
        /// Counted from 1.
        line: usize,
        /// The kind.
        found: &'static str,
    },
    /// A line is no recipient, or a mistyped one.
    #[error("line {line} is not a recipient: expected `age1...` with a sound checksum")]
    Malformed {
        /// Counted from 1.
        line: usize,
    },
    /// A public key on which every agreement fails.
    #[error("line {line} is a degenerate public key: nothing encrypted to it is secret")]
    Degenerate {
        /// Counted from 1.
        line: usize,
    },
}

/// A list of recipients and the text it came from.
#[derive(Clone, Debug)]
pub struct Recipients {
    text: String,
    entries: Vec<Recipient>,
}

impl Recipients {
    /// Reads one recipient a line; blank lines and `#` comments are skipped, a recipient that was already
    /// there is dropped.
    ///
    /// # Errors
    /// There is none, too many, or a line is something else.
    pub fn parse(text: &str) -> Result<Self, RecipientsError> {
        if text.len() > TEXT_LEN_MAX {
            return Err(RecipientsError::TooLong {
                found: text.len(),
                max: TEXT_LEN_MAX,
            });
        }
        let mut entries: Vec<Recipient> = Vec::new();
        let mut label = None;
        for (index, line) in text.lines().enumerate() {
            let line_text = line.trim();
            if let Some(comment) = line_text.strip_prefix('#') {
                label = Some(comment.trim().to_owned()).filter(|comment| !comment.is_empty());
                continue;
            }
            let label = label.take();
            if !line_text.is_empty() {
                let key = parse_line(line_text, index + 1)?;
                entries.push(Recipient { key, label });
            }
        }
        Self::from_entries(text.to_owned(), entries)
    }

    /// All recipients of several lists, each once; the text is made anew.
    ///
    /// # Errors
    /// There is none, or too many.
    pub fn union<'a>(lists: impl IntoIterator<Item = &'a Self>) -> Result<Self, RecipientsError> {
        let entries = lists
            .into_iter()
            .flat_map(|list| list.entries.clone())
            .collect();
        let mut union = Self::from_entries(String::new(), entries)?;
        union.text = union.entries.iter().fold(String::new(), |text, entry| {
            let label = entry
                .label()
                .map_or_else(String::new, |label| format!("# {label}\n"));
            format!("{text}{label}{entry}\n")
        });
        Ok(union)
    }

    fn from_entries(text: String, mut entries: Vec<Recipient>) -> Result<Self, RecipientsError> {
        let mut seen = std::collections::HashSet::new();
        entries.retain(|entry| seen.insert(entry.key.clone()));
        match entries.len() {
            0 => Err(RecipientsError::Empty),
            found if found > RECIPIENTS_MAX => Err(RecipientsError::TooMany {
                found,
                max: RECIPIENTS_MAX,
            }),
            _ => Ok(Self { text, entries }),
        }
    }

    /// The text as it was given: what the file `recipients` of a ledger holds.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The recipients, in order; there is at least one.
    #[must_use]
    pub fn entries(&self) -> &[Recipient] {
        &self.entries
    }
}

fn parse_line(line: &str, number: usize) -> Result<age::x25519::Recipient, RecipientsError> {
    let upper = line.get(..4).map(str::to_ascii_uppercase);
    if upper.as_deref() == Some("AGE-") {
        return Err(RecipientsError::Secret { line: number });
    }
    if line.starts_with("ssh-") || line.starts_with("ecdsa-") {
        return Err(RecipientsError::Unsupported {
            line: number,
            found: "an SSH key",
        });
    }
    let key: age::x25519::Recipient = line.parse().map_err(|_| {
        // A native recipient has one `1`, as separator, and 58 characters behind it.
        let plugin = line
            .strip_prefix("age1")
            .is_some_and(|rest| rest.contains('1'));
        if plugin {
            RecipientsError::Unsupported {
                line: number,
                found: "a plugin or post-quantum recipient",
            }
        } else {
            RecipientsError::Malformed { line: number }
        }
    })?;
    if LOW_ORDER.contains(&key.to_string().as_str()) {
        return Err(RecipientsError::Degenerate { line: number });
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa";

    #[test]
    fn text_labels_and_repetitions() {
        let text = format!("# on call\n{A}\r\n\n  {A}  \n# tail\n");
        let list = Recipients::parse(&text).unwrap();
        assert_eq!(list.text(), text);
        assert_eq!(list.entries().len(), 1);
        assert_eq!(list.entries()[0].label(), Some("on call"));
        assert_eq!(list.entries()[0].to_string(), A);
        let union = Recipients::union([&list, &list]).unwrap();
        assert_eq!(union.text(), format!("# on call\n{A}\n"));
    }

    #[test]
    fn what_is_refused() {
        use RecipientsError as E;
        let parse = |text: &str| Recipients::parse(text).unwrap_err();
        assert_eq!(parse("# nothing\n\n"), E::Empty);
        assert_eq!(parse("\nage1qqqq\n"), E::Malformed { line: 2 });
        assert_eq!(parse("hello"), E::Malformed { line: 1 });
        assert_eq!(parse(&A.replace("svpy", "svpz")), E::Malformed { line: 1 });
        assert_eq!(parse("é€"), E::Malformed { line: 1 });
        assert!(matches!(
            parse("age1yubikey1qfoo"),
            E::Unsupported { line: 1, .. }
        ));
        assert!(matches!(
            parse("ssh-ed25519 AAAA x"),
            E::Unsupported { line: 1, .. }
        ));
        assert_eq!(
            parse("AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33"),
            E::Secret { line: 1 }
        );
        assert!(matches!(
            parse(&"#".repeat(TEXT_LEN_MAX + 1)),
            E::TooLong { .. }
        ));
    }

    #[test]
    fn degenerate_keys_are_refused_and_the_list_holds_only_such() {
        let mut seen = std::collections::HashSet::new();
        for text in LOW_ORDER {
            assert!(seen.insert(text));
            assert_eq!(
                Recipients::parse(text).unwrap_err(),
                RecipientsError::Degenerate { line: 1 }
            );
            // The library itself panics on each: the list names no sound key.
            let key: age::x25519::Recipient = text.parse().unwrap();
            let wrapped = std::panic::catch_unwind(|| age::encrypt(&key, b"x").map(|_| ()));
            assert!(wrapped.is_err(), "{text}");
        }
    }
}
