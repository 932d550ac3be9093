//! Checkpoints and the origins under which they are signed (`ledger-format.md`, section 9).

use crate::limits::NAME_LEN_MAX;
use crate::note::{Note, NoteError, VerifierKey, VerifierKeyError, is_key_name, signature_line};
use crate::tree::Hash;
use crate::types::{Generation, LedgerId};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;
use thiserror::Error;

/// Signature lines behind the first two that a checkpoint may carry and a verifier ignores.
pub const SIGNATURE_LINES_EXTRA_MAX: usize = 14;

/// Why a text is no origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OriginError {
    /// Not a key name, too long, or a slash at an end.
    #[error(
        "expected a name of 1 to {NAME_LEN_MAX} bytes without white space, '+' or control characters, not beginning or ending with '/'"
    )]
    Name,
    /// No `/` and 32 hex digits behind the name.
    #[error("expected NAME/32 hex digits of the ledger id, then /gN for a later generation")]
    Shape,
}

/// NAME, ledger id and generation: the first line of a ledger's checkpoints.
///
/// It names the genesis, so a key that signs under another history is seen at once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    name: String,
    id_hex: String,
    generation: Generation,
}

impl Origin {
    /// The origin of a generation of a ledger.
    ///
    /// # Errors
    /// `Name` if NAME breaks section 7.
    pub fn new(name: &str, id: &LedgerId, generation: Generation) -> Result<Self, OriginError> {
        Self::check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            id_hex: id.short_hex(),
            generation,
        })
    }

    /// Checks a NAME alone.
    ///
    /// # Errors
    /// `Name`.
    pub fn check_name(name: &str) -> Result<(), OriginError> {
        let good = is_key_name(name)
            && name.len() <= NAME_LEN_MAX
            && !name.starts_with('/')
            && !name.ends_with('/');
        if good { Ok(()) } else { Err(OriginError::Name) }
    }

    /// Parses an origin line.
    ///
    /// # Errors
    /// [`OriginError`].
    pub fn parse(text: &str) -> Result<Self, OriginError> {
        let is_id =
            |s: &str| s.len() == 32 && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let (rest, last) = text.rsplit_once('/').ok_or(OriginError::Shape)?;
        let (name, id_hex, generation) = if is_id(last) {
            (rest, last, 0)
        } else {
            let digits = last.strip_prefix('g').ok_or(OriginError::Shape)?;
            let n: u64 = digits.parse().map_err(|_| OriginError::Shape)?;
            let (name, id) = rest.rsplit_once('/').ok_or(OriginError::Shape)?;
            if n == 0 || n.to_string() != digits || !is_id(id) {
                return Err(OriginError::Shape);
            }
            (name, id, n)
        };
        Self::check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            id_hex: id_hex.to_owned(),
            generation: Generation(generation),
        })
    }

    /// NAME.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first 16 bytes of the ledger id, in hex.
    #[must_use]
    pub fn id_hex(&self) -> &str {
        &self.id_hex
    }

    /// The generation.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The same ledger's origin in another generation.
    #[must_use]
    pub fn with_generation(&self, generation: Generation) -> Self {
        Self {
            generation,
            ..self.clone()
        }
    }

    /// Whether this names that ledger, whatever the generation.
    #[must_use]
    pub fn names(&self, id: &LedgerId) -> bool {
        self.id_hex == id.short_hex()
    }

    /// Verifier key of a log key under this origin.
    #[must_use]
    pub fn log_verifier(&self, log_key: [u8; 32]) -> VerifierKey {
        verifier(&self.to_string(), log_key)
    }

    /// Verifier key of an epoch key under this origin (`origin/epoch`).
    #[must_use]
    pub fn epoch_verifier(&self, epoch_key: [u8; 32]) -> VerifierKey {
        verifier(&self.epoch_name(), epoch_key)
    }

    /// Name under which epoch keys sign.
    #[must_use]
    pub fn epoch_name(&self) -> String {
        format!("{self}/epoch")
    }
}

fn verifier(name: &str, key: [u8; 32]) -> VerifierKey {
    let made: Result<VerifierKey, VerifierKeyError> = VerifierKey::new(name, key);
    made.unwrap_or_else(|_| unreachable!("an origin is a key name"))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.id_hex)?;
        if self.generation.0 > 0 {
            write!(f, "/g{}", self.generation)
        } else {
            Ok(())
        }
    }
}

/// A trust line to read aloud: the first 8 bytes of the hash that the key id is made of, in four
/// groups of four digits. The first two groups are the key id, as it stands in the line.
///
/// The text is shown as it is when it is no trust line.
#[must_use]
pub fn short_form(trust_line: &str) -> String {
    let Ok(key) = VerifierKey::parse(trust_line) else {
        return trust_line.trim().to_owned();
    };
    let digest = crate::note::key_hash(key.name(), key.public_key());
    let groups: Vec<String> = digest.chunks(2).take(4).map(crate::types::hex).collect();
    groups.join(" ")
}

/// Why a note is no checkpoint of a ledger.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CheckpointError {
    /// Not a signed note.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// Not three lines of origin, size and root.
    #[error("expected three lines: origin, size, base64 of the root")]
    Shape,
    /// The first line is no origin.
    #[error("first line: {0}")]
    Origin(#[from] OriginError),
}

/// Origin, size and root as a note claims them; its signatures are checked apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint<'a> {
    /// Under whose name.
    pub origin: Origin,
    /// Number of leaves.
    pub size: u64,
    /// The root at that size.
    pub root: Hash,
    /// The note it came in.
    pub note: Note<'a>,
}

impl<'a> Checkpoint<'a> {
    /// Reads a checkpoint note.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CheckpointError> {
        let note = Note::parse(bytes)?;
        let mut lines = note.text.split('\n');
        let (Some(origin), Some(size), Some(root), Some(""), None) = (
            lines.next(),
            lines.next(),
            lines.next(),
            lines.next(),
            lines.next(),
        ) else {
            return Err(CheckpointError::Shape);
        };
        let number: u64 = size.parse().map_err(|_| CheckpointError::Shape)?;
        if number.to_string() != size {
            return Err(CheckpointError::Shape);
        }
        let root = STANDARD
            .decode(root)
            .ok()
            .and_then(|r| Hash::try_from(r).ok())
            .ok_or(CheckpointError::Shape)?;
        Ok(Self {
            origin: Origin::parse(origin)?,
            size: number,
            root,
            note,
        })
    }

    /// Checks both signatures of a checkpoint frame: the log key's line first, the epoch key's second.
    ///
    /// # Errors
    /// [`NoteError`] of the line that fails.
    pub fn verify_in_chain(&self, log: &VerifierKey, epoch: &VerifierKey) -> Result<(), NoteError> {
        for (i, key) in [log, epoch].into_iter().enumerate() {
            let named = self
                .note
                .lines
                .get(i)
                .is_some_and(|l| l.name == key.name() && l.key_id == key.key_id());
            if !named {
                return Err(NoteError::NoSignature(key.name().to_owned()));
            }
            self.note.verify(key)?;
        }
        Ok(())
    }

    /// Checks the log key's signature alone: how a checkpoint proves outside its chain.
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn verify_standalone(&self, log: &VerifierKey) -> Result<(), NoteError> {
        self.note.verify(log)
    }
}

/// The text that checkpoint signatures cover.
#[must_use]
pub fn checkpoint_text(origin: &Origin, size: u64, root: &Hash) -> String {
    format!("{origin}\n{size}\n{}\n", STANDARD.encode(root))
}

/// The whole note from its text, both public keys and both signatures.
#[must_use]
pub fn signed_checkpoint(
    origin: &Origin,
    text: &str,
    log: (&[u8; 32], &[u8; 64]),
    epoch: (&[u8; 32], &[u8; 64]),
) -> String {
    let log_line = signature_line(&origin.to_string(), log.0, log.1);
    let epoch_line = signature_line(&origin.epoch_name(), epoch.0, epoch.1);
    format!("{text}\n{log_line}{epoch_line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_round_trip_and_near_misses_fail() {
        let id = LedgerId([0xab; 32]);
        for generation in [0, 1, 12] {
            let o =
                Origin::new("audit.example.com/build-agent", &id, Generation(generation)).unwrap();
            assert_eq!(Origin::parse(&o.to_string()), Ok(o.clone()));
            assert!(o.names(&id));
        }
        let hex = id.short_hex();
        for bad in [
            hex.clone(),
            format!("/{hex}"),
            format!("a/{hex}/g0"),
            format!("a/{hex}/g01"),
            format!("a/{hex}/x1"),
            format!("a b/{hex}"),
            format!("a/{}", &hex[1..]),
            format!("a/{}", hex.to_uppercase()),
            format!("a/{hex}/epoch"),
        ] {
            assert!(Origin::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_short_form_begins_with_the_key_id() {
        let origin = Origin::new("a", &LedgerId([1; 32]), Generation(0)).unwrap();
        let line = origin.log_verifier([7; 32]).to_string();
        let id = line.split('+').nth(1).unwrap();
        let short = short_form(&format!(" {line}\n"));
        assert_eq!(short.len(), 19);
        assert!(short.replace(' ', "").starts_with(id), "{short} and {id}");
        assert_eq!(short_form("no line"), "no line");
    }

    #[test]
    fn sizes_have_one_spelling() {
        let origin = Origin::new("a", &LedgerId([1; 32]), Generation(0)).unwrap();
        let text = checkpoint_text(&origin, 7, &[0; 32]);
        let line = signature_line("a", &[3; 32], &[4; 64]);
        assert_eq!(
            Checkpoint::parse(format!("{text}\n{line}").as_bytes())
                .unwrap()
                .size,
            7
        );
        for (from, to) in [
            ("\n7\n", "\n07\n"),
            ("\n7\n", "\n+7\n"),
            ("\n7\n", "\n-7\n"),
            ("=\n", "=\nextension\n"),
            ("AA=\n", "AB=\n"),
        ] {
            let bad = format!("{}\n{line}", text.replacen(from, to, 1));
            assert!(Checkpoint::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
