//! Where the parts of a ledger lie, and the locks that keep a second writer out (sections 2 and 12).

use crate::durable::{DataFile, DiskError, Folder};
use crate::error::OpenError;
use ledger_format::{FRAMES_MAGIC, Frame, Genesis, LedgerId, Seq};
use ledger_vault::Recipients;
use std::path::{Path, PathBuf};
use thiserror::Error;

pub(crate) const SEGMENTS: &str = "segments";
pub(crate) const RECOVERED: &str = "recovered";
pub(crate) const CHECKPOINT: &str = "checkpoint";
pub(crate) const RECIPIENTS: &str = "recipients";
pub(crate) const LOCK: &str = "lock";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const OPERATIONAL_KEY: &str = "operational.key";

/// Genesis stands in the first bytes of the first segment, with room for the longest NAME.
const GENESIS_WITHIN: usize = 4096;

/// No folder to keep state in could be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no state folder: give --state DIR, or set STATE_DIRECTORY, XDG_STATE_HOME or HOME")]
pub struct StateRootError;

/// The folder below which each ledger has its state: `explicit`, else `$STATE_DIRECTORY` (its
/// first entry), else `$XDG_STATE_HOME/ledger`, else `~/.local/state/ledger`.
///
/// # Errors
/// None of them is known.
pub fn state_root(explicit: Option<&Path>) -> Result<PathBuf, StateRootError> {
    if let Some(path) = explicit {
        return Ok(path.to_owned());
    }
    let variable = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    if let Some(list) = variable("STATE_DIRECTORY") {
        let first = list.to_string_lossy().split(':').next().map(PathBuf::from);
        return first.ok_or(StateRootError);
    }
    if let Some(base) = variable("XDG_STATE_HOME") {
        return Ok(base.join("ledger"));
    }
    variable("HOME")
        .map(|home| home.join(".local/state/ledger"))
        .ok_or(StateRootError)
}

/// Name of a segment's frames file.
pub(crate) fn frames_name(first: Seq) -> String {
    format!("{:020}.frames", first.0)
}

/// Name of a segment's payload file of a class.
pub(crate) fn payloads_name(first: Seq, class: &str) -> String {
    format!("{:020}.{class}.payloads", first.0)
}

/// The first seq that a frames file's name gives, if it is exactly such a name.
pub(crate) fn parse_frames_name(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(".frames")?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Seq)
}

/// The held folders of one ledger and its state, locked.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) ledger: Folder,
    pub(crate) segments: Folder,
    pub(crate) recovered: Folder,
    pub(crate) state: Folder,
    _locks: [DataFile; 2],
}

impl Places {
    /// Opens and locks both folders of an existing ledger.
    pub(crate) fn open(
        ledger_path: &Path,
        state_root: &Path,
    ) -> Result<(Self, Identity), OpenError> {
        let missing = |missing| OpenError::NoLedger {
            path: ledger_path.to_owned(),
            missing,
        };
        let not_there = |e: DiskError, what| {
            if e.source.kind() == std::io::ErrorKind::NotFound {
                missing(what)
            } else {
                e.into()
            }
        };
        let ledger = Folder::open(ledger_path).map_err(|e| not_there(e, "the folder"))?;
        let segments = ledger
            .folder(SEGMENTS)
            .map_err(|e| not_there(e, "segments/"))?;
        let identity = Identity::read(&segments).map_err(|e| match e {
            IdentityError::Disk(e) => not_there(e, "segments/00000000000000000000.frames"),
            IdentityError::NoGenesis => missing("a readable genesis frame"),
        })?;
        let state_path = state_root.join(identity.id.short_hex());
        let state = Folder::open(&state_path).map_err(|e| {
            if e.source.kind() == std::io::ErrorKind::NotFound {
                OpenError::NoState {
                    path: state_path.clone(),
                }
            } else {
                e.into()
            }
        })?;
        let recovered = ledger.folder(RECOVERED)?;
        let locks = lock_both(&ledger, &state)?;
        Ok((
            Self {
                ledger,
                segments,
                recovered,
                state,
                _locks: locks,
            },
            identity,
        ))
    }

    /// Numbers of all segments, ascending.
    pub(crate) fn segment_numbers(&self) -> Result<Vec<Seq>, DiskError> {
        Ok(self
            .segments
            .names()?
            .iter()
            .filter_map(|n| parse_frames_name(n))
            .collect())
    }

    /// The vault recipients as the ledger lists them.
    pub(crate) fn recipients(&self) -> Result<Recipients, OpenError> {
        let text = self.ledger.open_read(RECIPIENTS)?.read_all(64 << 10)?;
        Ok(Recipients::parse(&String::from_utf8_lossy(&text))?)
    }

    /// Removes what an opening or a rotation left unfinished.
    pub(crate) fn remove_unfinished(&self) -> Result<(), DiskError> {
        for folder in [&self.segments, &self.state, &self.ledger] {
            let mut removed = false;
            for name in folder.names()?.iter().filter(|n| n.ends_with(".new")) {
                removed |= folder.unlink(name)?;
            }
            if removed {
                folder.sync()?;
            }
        }
        Ok(())
    }
}

pub(crate) fn lock_both(ledger: &Folder, state: &Folder) -> Result<[DataFile; 2], OpenError> {
    let take = |folder: &Folder| -> Result<DataFile, OpenError> {
        folder
            .lock(LOCK)?
            .ok_or_else(|| OpenError::Locked(folder.path().to_owned()))
    };
    Ok([take(ledger)?, take(state)?])
}

/// Which ledger a folder holds, as its genesis frame says.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) id: LedgerId,
}

pub(crate) enum IdentityError {
    Disk(DiskError),
    NoGenesis,
}

impl Identity {
    fn read(segments: &Folder) -> Result<Self, IdentityError> {
        let file = segments
            .open_read(&frames_name(Seq(0)))
            .map_err(IdentityError::Disk)?;
        let len = file
            .len()
            .map_err(IdentityError::Disk)?
            .min(GENESIS_WITHIN as u64);
        let mut start = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_at(&mut start, 0).map_err(IdentityError::Disk)?;
        Self::parse(&start).ok_or(IdentityError::NoGenesis)
    }

    fn parse(start: &[u8]) -> Option<Self> {
        let frame = Frame::parse(start.strip_prefix(FRAMES_MAGIC)?).ok()?;
        let body = frame.control()?.body;
        let genesis = Genesis::decode(body).ok()?;
        Some(Self {
            name: genesis.name,
            id: Genesis::ledger_id(body),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_segments() {
        assert_eq!(parse_frames_name(&frames_name(Seq(7))), Some(Seq(7)));
        for bad in [
            "7.frames",
            "._00000000000000000007.frames",
            "00000000000000000007.frames.new",
            "0000000000000000000a.frames",
            "99999999999999999999.frames",
        ] {
            assert_eq!(parse_frames_name(bad), None, "{bad}");
        }
    }
}
