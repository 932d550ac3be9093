//! Payload files of a copy: which there are, by name, and opening them (`ledger-format.md`,
//! sections 2 and 13).
//!
//! Nothing here opens a message: whether a file holds what the chain declares is for `payloads`.

use crate::files::{SEGMENTS_MAX, SegmentBytes};
use ledger_format::Seq;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A payload file's segment and retention class.
pub(crate) type PayloadName = (Seq, String);

/// The payload files of a folder at one moment.
#[derive(Debug)]
pub(crate) struct PayloadFolder {
    pub(crate) dir: PathBuf,
    pub(crate) present: BTreeSet<PayloadName>,
}

impl PayloadFolder {
    /// Lists `dir`, or `dir/segments` when that is a folder.
    pub(crate) fn list(dir: &Path) -> io::Result<Self> {
        let below = dir.join("segments");
        let dir = if below.is_dir() {
            below
        } else {
            dir.to_path_buf()
        };
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", dir.display()));
        let mut present = BTreeSet::new();
        for entry in fs::read_dir(&dir).map_err(named)? {
            let name = entry?.file_name();
            present.extend(name.to_str().and_then(parse));
            if present.len() > SEGMENTS_MAX {
                let text = format!("more than {SEGMENTS_MAX} payload files in one folder");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        Ok(Self { dir, present })
    }

    /// Bytes of all of them, as far as they can be seen.
    pub(crate) fn total_len(&self) -> u64 {
        let names = self.present.iter();
        let lens =
            names.map(|(s, c)| fs::symlink_metadata(self.path(*s, c)).map_or(0, |m| m.len()));
        lens.fold(0, u64::saturating_add)
    }

    pub(crate) fn path(&self, segment: Seq, class: &str) -> PathBuf {
        self.dir.join(file_name(segment, class))
    }

    /// Opens a payload file; None when there is none.
    pub(crate) fn open(&self, segment: Seq, class: &str) -> io::Result<Option<SegmentBytes>> {
        match SegmentBytes::open_of_any_length(&self.path(segment, class)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The names among payload file and key file that are there now.
    pub(crate) fn still_present(&self, segment: Seq, class: &str) -> Vec<String> {
        let key = format!("{:020}.{class}.age", segment.0);
        let names = [file_name(segment, class), key];
        let there = |name: &String| fs::symlink_metadata(self.dir.join(name)).is_ok();
        names.into_iter().filter(there).collect()
    }
}

/// Name of a payload file.
pub(crate) fn file_name(segment: Seq, class: &str) -> String {
    format!("{:020}.{class}.payloads", segment.0)
}

/// Whether a name is a payload file's.
pub(crate) fn is_payload_file(name: &str) -> bool {
    parse(name).is_some()
}

/// Segment and class of a name that is exactly a payload file's; all others are ignored.
fn parse(name: &str) -> Option<PayloadName> {
    let (digits, class) = name.strip_suffix(".payloads")?.split_once('.')?;
    let is_class = (1..=16).contains(&class.len())
        && class
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && class != "body"
        && class != "envelope";
    let is_number = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_class || !is_number {
        return None;
    }
    Some((Seq(digits.parse().ok()?), class.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_payload_files() {
        assert_eq!(
            parse("00000000000000000004.30d.payloads"),
            Some((Seq(4), "30d".to_owned()))
        );
        for other in [
            "4.30d.payloads",
            "00000000000000000004.payloads",
            "00000000000000000004..payloads",
            "00000000000000000004.30D.payloads",
            "00000000000000000004.body.payloads",
            "00000000000000000004.30d.x.payloads",
            "00000000000000000004.12345678901234567.payloads",
            "99999999999999999999.30d.payloads",
            "._00000000000000000004.30d.payloads",
            "00000000000000000004.30d.payloads.new",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_folder_under_a_payload_name_is_no_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("segments").join(file_name(Seq(4), "30d"))).unwrap();
        let folder = PayloadFolder::list(dir.path()).unwrap();
        assert_eq!(folder.present.len(), 1);
        assert!(folder.open(Seq(4), "7d").unwrap().is_none());
        let error = folder.open(Seq(4), "30d").unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert_eq!(
            folder.still_present(Seq(4), "30d"),
            [file_name(Seq(4), "30d")]
        );
    }
}
