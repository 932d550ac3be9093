//! Lines of a file or pipe in bounded memory: wait for the first, then take what is there already.
//!
//! Not JSON: lines are bytes here.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};

/// Bytes asked for at a time.
const CHUNK_LEN: usize = 64 << 10;

/// A line with its number, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Its bytes without the line break.
    Whole(u64, Vec<u8>),
    /// It is longer than the limit and was passed over.
    TooLong(u64),
    /// Nothing is there now, and waiting was not asked for.
    NotYet,
    /// The input ended.
    End,
}

/// Lines of one input.
pub(super) struct Lines {
    input: OwnedFd,
    len_max: usize,
    buffer: Vec<u8>,
    start: usize,
    /// Bytes of the buffer that hold no line break, from `start` on.
    searched: usize,
    number: u64,
    /// Inside a line that is too long.
    skipping: bool,
    ended: bool,
    read: u64,
}

impl Lines {
    pub(super) fn new(input: OwnedFd, len_max: usize) -> Self {
        Self {
            input,
            len_max,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            number: 0,
            skipping: false,
            ended: false,
            read: 0,
        }
    }

    /// Bytes read so far.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.read
    }

    /// The next line that is not blank.
    pub(super) fn next(&mut self, wait: bool) -> std::io::Result<Line> {
        loop {
            if let Some(line) = self.take() {
                match line {
                    Line::Whole(_, bytes) if bytes.trim_ascii().is_empty() => continue,
                    line => return Ok(line),
                }
            }
            if self.ended {
                return Ok(Line::End);
            }
            if !wait && !self.is_ready()? {
                return Ok(Line::NotYet);
            }
            self.fill()?;
        }
    }

    /// A line that is in the buffer.
    fn take(&mut self) -> Option<Line> {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        let found = rest
            .get(self.searched..)
            .unwrap_or_default()
            .iter()
            .position(|b| *b == b'\n');
        let (len, consumed) = match found {
            Some(at) => (self.searched + at, self.searched + at + 1),
            None if self.ended && (!rest.is_empty() || self.skipping) => (rest.len(), rest.len()),
            None => {
                self.searched = rest.len();
                if rest.len() > self.len_max {
                    self.skipping = true;
                    self.drop_buffer();
                }
                return None;
            }
        };
        self.number += 1;
        let too_long = std::mem::take(&mut self.skipping) || len > self.len_max;
        let line = match (too_long, rest.get(..len)) {
            (false, Some(bytes)) => Line::Whole(
                self.number,
                bytes.strip_suffix(b"\r").unwrap_or(bytes).to_vec(),
            ),
            _ => Line::TooLong(self.number),
        };
        self.start += consumed;
        self.searched = 0;
        if self.start == self.buffer.len() {
            self.drop_buffer();
        }
        Some(line)
    }

    fn drop_buffer(&mut self) {
        self.buffer.clear();
        // What a long line needed is given back.
        self.buffer.shrink_to(4 * CHUNK_LEN);
        (self.start, self.searched) = (0, 0);
    }

    fn is_ready(&self) -> std::io::Result<bool> {
        let mut set = [PollFd::new(&self.input, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut set, Some(&now)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn fill(&mut self) -> std::io::Result<()> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let len = self.buffer.len();
        self.buffer.resize(len + CHUNK_LEN, 0);
        let count = loop {
            match read(
                self.input.as_fd(),
                self.buffer.get_mut(len..).unwrap_or_default(),
            ) {
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.buffer.truncate(len);
                    return Err(errno.into());
                }
                Ok(count) => break count,
            }
        };
        self.buffer.truncate(len + count);
        self.read += count as u64;
        self.ended = count == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn lines(len_max: usize) -> (Lines, std::fs::File) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        (Lines::new(read, len_max), write.into())
    }

    #[test]
    fn lines_with_and_without_breaks() {
        let (mut lines, mut writer) = lines(10);
        writer.write_all(b"one\r\n\n  \ntwo").unwrap();
        assert_eq!(lines.next(true).unwrap(), Line::Whole(1, b"one".to_vec()));
        assert_eq!(lines.next(false).unwrap(), Line::NotYet);
        writer.write_all(b"2\nlast").unwrap();
        assert_eq!(lines.next(false).unwrap(), Line::Whole(4, b"two2".to_vec()));
        drop(writer);
        assert_eq!(lines.next(true).unwrap(), Line::Whole(5, b"last".to_vec()));
        assert_eq!(lines.next(true).unwrap(), Line::End);
    }

    #[test]
    fn long_lines_are_passed_over_and_counted() {
        let (mut lines, mut writer) = lines(4);
        let (long, longer) = (vec![b'x'; 5], vec![b'y'; 50_000]);
        writer.write_all(b"1234\n").unwrap();
        writer.write_all(&long).unwrap();
        writer.write_all(b"\nok\n").unwrap();
        writer.write_all(&longer).unwrap();
        assert_eq!(lines.next(true).unwrap(), Line::Whole(1, b"1234".to_vec()));
        assert_eq!(lines.next(true).unwrap(), Line::TooLong(2));
        assert_eq!(lines.next(true).unwrap(), Line::Whole(3, b"ok".to_vec()));
        assert_eq!(lines.next(false).unwrap(), Line::NotYet);
        writer.write_all(b"\nend\n").unwrap();
        assert_eq!(lines.next(true).unwrap(), Line::TooLong(4));
        assert_eq!(lines.next(true).unwrap(), Line::Whole(5, b"end".to_vec()));
        writer.write_all(&longer).unwrap();
        drop(writer);
        assert_eq!(lines.next(true).unwrap(), Line::TooLong(6));
        assert_eq!(lines.next(true).unwrap(), Line::End);
    }
}
