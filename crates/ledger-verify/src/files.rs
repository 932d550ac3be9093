//! The files of a copy: which are segments, and reading them (`ledger-format.md`, section 2).
//!
//! Files are read with positioned reads, never mapped, never written. Only regular files are
//! opened; a pipe or device under a segment's name is reported, not waited for.

use ledger_format::{ReadAt, Seq, limits::SEGMENT_FILE_LEN_MAX};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// More files than this in one folder are refused: bounds the list that is held.
pub(crate) const SEGMENTS_MAX: usize = 1 << 20;
/// Names of ignored files that are kept for the report.
const IGNORED_LISTED_MAX: usize = 20;

/// One segment file by its name; nothing in it is believed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentFile {
    /// The number that its name promises for its first frame.
    pub first: Seq,
    /// Where it lies.
    pub path: PathBuf,
}

impl SegmentFile {
    /// The file's name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{:020}.frames", self.first.0)
    }
}

/// The segment files of a folder in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Folder {
    /// The segments.
    pub segments: Vec<SegmentFile>,
    /// Some names that were ignored.
    pub ignored: Vec<String>,
    /// How many were ignored.
    pub ignored_count: u64,
}

impl Folder {
    /// Lists `dir`, or `dir/segments` when that is a folder.
    ///
    /// # Errors
    /// Whatever the system says; `InvalidInput` when there are too many segments.
    pub fn list(dir: &Path) -> io::Result<Self> {
        let below = dir.join("segments");
        let dir = if below.is_dir() { below.as_path() } else { dir };
        let mut folder = Self::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(first) = name.to_str().and_then(number_of) else {
                folder.ignored_count = folder.ignored_count.saturating_add(1);
                if folder.ignored.len() < IGNORED_LISTED_MAX {
                    folder.ignored.push(name.to_string_lossy().into_owned());
                }
                continue;
            };
            if folder.segments.len() >= SEGMENTS_MAX {
                let text = format!("more than {SEGMENTS_MAX} segments in one folder");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            folder.segments.push(SegmentFile {
                first,
                path: entry.path(),
            });
        }
        folder.segments.sort_by_key(|s| s.first);
        folder.ignored.sort();
        Ok(folder)
    }
}

fn number_of(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(".frames")?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Seq)
}

/// An open segment file and the length it had when it was opened.
#[derive(Debug)]
pub struct SegmentBytes {
    file: File,
    len: u64,
}

impl SegmentBytes {
    /// Opens a regular file.
    ///
    /// # Errors
    /// The system's; `InvalidInput` with a clear text for anything but a regular file of a
    /// length that the format allows.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = Self::open_of_any_length(path)?;
        if opened.len > SEGMENT_FILE_LEN_MAX {
            return refuse("longer than any segment may be");
        }
        Ok(opened)
    }

    /// Opens a regular file for which the format knows no greatest length: a payload file.
    pub(crate) fn open_of_any_length(path: &Path) -> io::Result<Self> {
        let named = fs::symlink_metadata(path)?;
        if !named.is_file() {
            return refuse("not a regular file (a link, folder, pipe or device)");
        }
        let file = File::open(path)?;
        let opened = file.metadata()?;
        if !opened.is_file() || !same_file(&named, &opened) {
            return refuse("the file was exchanged while it was being opened");
        }
        Ok(Self {
            file,
            len: opened.len(),
        })
    }

    /// Length when it was opened.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it was empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn refuse<T>(text: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, text.to_owned()))
}

#[cfg(unix)]
fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    a.dev() == b.dev() && a.ino() == b.ino()
}

#[cfg(not(unix))]
fn same_file(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

impl ReadAt for SegmentBytes {
    #[cfg(unix)]
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buf, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        use std::os::windows::fs::FileExt;
        while !buf.is_empty() {
            let n = self.file.seek_read(buf, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset = offset.saturating_add(n as u64);
            buf = buf.get_mut(n..).ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        Ok(())
    }

    #[cfg(not(any(unix, windows)))]
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(buf)
    }
}

/// Bytes per read of a [`Window`].
const WINDOW_LEN: u64 = 4 << 20;

/// A window over a segment, so that a file of any length is walked in bounded memory.
pub(crate) struct Window<'s, S: ?Sized> {
    source: &'s S,
    len: u64,
    start: u64,
    buf: Vec<u8>,
}

impl<'s, S: ReadAt + ?Sized> Window<'s, S> {
    pub(crate) const fn new(source: &'s S, len: u64) -> Self {
        Self {
            source,
            len,
            start: 0,
            buf: Vec::new(),
        }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Up to `want` bytes from `at` on; fewer only at the end of the file.
    pub(crate) fn slice(&mut self, at: u64, want: u64) -> io::Result<&[u8]> {
        let end = at.saturating_add(want).min(self.len);
        if at >= end {
            return Ok(&[]);
        }
        let held_end = self.start.saturating_add(self.buf.len() as u64);
        if at < self.start || end > held_end {
            let fill = WINDOW_LEN.max(want).min(self.len.saturating_sub(at));
            let fill = usize::try_from(fill).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.buf.resize(fill, 0);
            self.start = u64::MAX; // nothing is held should the read fail
            self.source.read_exact_at(at, &mut self.buf)?;
            self.start = at;
        }
        let from = at.saturating_sub(self.start) as usize;
        let to = end.saturating_sub(self.start) as usize;
        Ok(self.buf.get(from..to).unwrap_or_default())
    }

    /// Whether everything from `from` to the end is zero.
    pub(crate) fn zero_until_end(&mut self, from: u64) -> io::Result<bool> {
        let mut at = from;
        while at < self.len {
            let part = self.slice(at, WINDOW_LEN)?;
            if part.is_empty() || part.iter().any(|b| *b != 0) {
                return Ok(false);
            }
            at = at.saturating_add(part.len() as u64);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_twenty_digits_are_a_segment() {
        assert_eq!(number_of("00000000000000000007.frames"), Some(Seq(7)));
        assert_eq!(
            number_of("18446744073709551615.frames"),
            Some(Seq(u64::MAX))
        );
        for other in [
            "18446744073709551616.frames",
            "7.frames",
            "._00000000000000000007.frames",
            "00000000000000000007.frames.new",
            "+0000000000000000007.frames",
            "00000000000000000007.body.age",
        ] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }

    #[test]
    fn folders_under_a_segment_name_are_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000000.frames");
        fs::create_dir(&path).unwrap();
        let error = SegmentBytes::open(&path).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn windows_slide_both_ways() {
        let bytes: Vec<u8> = (0..10_000_000_u32).map(|i| (i % 251) as u8).collect();
        let mut window = Window::new(&bytes[..], bytes.len() as u64);
        for at in [0_u64, 4_194_300, 9_999_990, 17, 5_000_000] {
            let want = &bytes[at as usize..(at as usize + 40).min(bytes.len())];
            assert_eq!(window.slice(at, 40).unwrap(), want);
        }
        assert!(window.slice(10_000_000, 5).unwrap().is_empty());
    }
}
