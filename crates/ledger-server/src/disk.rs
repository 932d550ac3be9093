//! What the file system says of the ledger's folders. Reads only; never decides what is true.

use ledger_format::limits::NOTE_LEN_MAX;
use ledger_format::{Checkpoint, FRAMES_MAGIC, Frame, Seq, UnixMillis};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A segment's first frames fit here: genesis with the longest name, segment_open with its frontier.
const OPENING_LEN_MAX: usize = 8 << 10;

/// Longest list of recipients that is read, bytes.
const RECIPIENTS_LEN_MAX: u64 = 64 << 10;

/// Bytes that are free to us on the file system of `path`.
///
/// # Errors
/// The system call failed.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Whether two paths lie on different file systems.
///
/// # Errors
/// One of them cannot be looked at.
pub(crate) fn on_different_disks(a: &Path, b: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(a)?.dev() != std::fs::metadata(b)?.dev())
}

/// One segment file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SegmentFile {
    /// The first frame's number, from the name.
    pub first: Seq,
    /// Where it is.
    pub path: PathBuf,
}

/// The segments of a ledger, ascending.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn segments(ledger: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(ledger.join("segments"))? {
        let entry = entry?;
        let name = entry.file_name();
        let digits = name.to_str().and_then(|n| n.strip_suffix(".frames"));
        let first = digits
            .filter(|d| d.len() == 20 && d.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|d| d.parse().ok());
        if let Some(first) = first {
            let (first, path) = (Seq(first), entry.path());
            found.push(SegmentFile { first, path });
        }
    }
    found.sort_by_key(|s| s.first);
    Ok(found)
}

/// The last segment: where it begins, its bytes, when its first frame was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastSegment {
    /// The first frame's number.
    pub first: Seq,
    /// How many segments there are.
    pub count: usize,
    /// Bytes of the file, its zero fill included.
    pub bytes: u64,
    /// When it was opened.
    pub opened_at: Option<UnixMillis>,
}

/// Looks at the last segment.
///
/// # Errors
/// The folder cannot be read, or there is none.
pub(crate) fn last_segment(ledger: &Path) -> io::Result<LastSegment> {
    let all = segments(ledger)?;
    let last = all
        .last()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no segment"))?;
    let file = File::open(&last.path)?;
    let bytes = file.metadata()?.len();
    let mut start = vec![0; OPENING_LEN_MAX.min(usize::try_from(bytes).unwrap_or(OPENING_LEN_MAX))];
    file.read_exact_at(&mut start, 0)?;
    let opened_at = start
        .strip_prefix(&FRAMES_MAGIC[..])
        .and_then(|frames| Frame::parse(frames).ok())
        .map(|frame| frame.appended_at);
    Ok(LastSegment {
        first: last.first,
        count: all.len(),
        bytes,
        opened_at,
    })
}

/// Size of the floor in a ledger's state folder.
///
/// # Errors
/// It cannot be read or is no checkpoint.
pub(crate) fn floor_size(state: &Path) -> io::Result<u64> {
    let mut note = Vec::new();
    File::open(state.join("floor"))?
        .take(NOTE_LEN_MAX as u64)
        .read_to_end(&mut note)?;
    Checkpoint::parse(&note)
        .map(|c| c.size)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
}

/// Milliseconds since the newest checkpoint was cut, by the file that is written then.
pub(crate) fn checkpoint_age_ms(ledger: &Path) -> Option<u64> {
    let modified = std::fs::metadata(ledger.join("checkpoint"))
        .ok()?
        .modified()
        .ok()?;
    // A clock that was set back makes it newer than now.
    let age = modified.elapsed().unwrap_or_default();
    u64::try_from(age.as_millis()).ok()
}

/// Who can read the evidence, as the ledger's list of recipients names them: a label, else the key's ends.
pub(crate) fn readers(ledger: &Path) -> Vec<String> {
    let mut text = String::new();
    let read = File::open(ledger.join("recipients"))
        .and_then(|file| file.take(RECIPIENTS_LEN_MAX).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let (mut found, mut label) = (Vec::new(), None);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix('#') {
            Some(comment) => label = Some(comment.trim().to_owned()),
            None => {
                let name = label.take().filter(|label| !label.is_empty());
                found.push(name.unwrap_or_else(|| ends(line)));
            }
        }
    }
    found
}

/// The ends of a long key.
fn ends(key: &str) -> String {
    match (key.get(..8), key.get(key.len().saturating_sub(4)..)) {
        (Some(start), Some(end)) if key.len() > 16 => format!("{start}...{end}"),
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_named_by_their_labels() {
        let dir = tempfile::tempdir().unwrap();
        assert!(readers(dir.path()).is_empty());
        let key = "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa";
        std::fs::write(
            dir.path().join("recipients"),
            format!("# oncall\n{key}\n\n{key}\n"),
        )
        .unwrap();
        assert_eq!(readers(dir.path()), ["oncall", "age1t7rx...y7pa"]);
    }
}
