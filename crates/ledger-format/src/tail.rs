//! What lies behind the last complete write of the last segment (`ledger-format.md`, section 14).
//!
//! One rule for recovery and verifier: torn or damaged, decided from the bytes alone. Nothing
//! here reads files; the caller lends its bytes through [`ReadAt`], and only a window is held.

use crate::control::SegmentOpen;
use crate::frame::Frame;
use crate::head::{HEAD_PREFIX_LEN_MAX, HeadError, HeadPrefix, can_begin_head};
use crate::limits::{FRAME_LEN_MAX, SECTOR_LEN};
use crate::types::{ByteOffset, Kind, Link, Seq};
use std::io;

/// Bytes at positions: a file, or a slice in tests.
pub trait ReadAt {
    /// Fills `buf` from `offset` on; the caller never asks for bytes behind the length it gave.
    ///
    /// # Errors
    /// Whatever the source says; a source that has shrunk must fail.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let part = self.get(start..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Where the rule starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailStart {
    /// E: end of the last complete write.
    pub end: ByteOffset,
    /// W: the number that stands next.
    pub next: Seq,
    /// Link of the frame before E.
    pub link: Link,
    /// Whether a segment_close stands before E.
    pub closed: bool,
}

/// Whether an anchor from outside covers the frames behind E.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutsideCover {
    /// None does: a copy made while the ledger was writing is possible.
    None,
    /// One does: what it covers was complete.
    Covered,
}

/// Verdict on the bytes behind E.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// Nothing, or zeros.
    Clean,
    /// A write that was never completed.
    Torn,
    /// A copy made while the ledger was writing.
    CopiedWhileWritten,
    /// Anything else.
    Damaged,
}

/// How the walk over the next write ended.
enum Walk {
    Torn,
    Damaged,
}

/// Classifies the bytes `[start.end, len)` of the last segment.
///
/// # Errors
/// Only those of `source`.
pub fn classify_tail<S: ReadAt + ?Sized>(
    source: &S,
    len: u64,
    start: TailStart,
    cover: OutsideCover,
) -> io::Result<Tail> {
    let mut bytes = Window::new(source, len);
    let e = start.end.0;
    if bytes.all_zero(e, len)? {
        return Ok(Tail::Clean);
    }
    match bytes.first_foreign(start)? {
        Foreign::At(y) => {
            let hole = (bytes.byte(e)? == Some(0) && bytes.sector_is_hole(e, e, y)?)
                || bytes.zero_sector_within(e, y)?;
            let copied = hole && !start.closed && cover == OutsideCover::None;
            Ok(if copied {
                Tail::CopiedWhileWritten
            } else {
                Tail::Damaged
            })
        }
        Foreign::TooMany => Ok(Tail::Damaged),
        Foreign::None => Ok(match bytes.walk(start)? {
            Walk::Torn => Tail::Torn,
            Walk::Damaged => Tail::Damaged,
        }),
    }
}

enum Foreign {
    None,
    At(u64),
    /// More bytes hashed than any honest tail needs: hostile, so damaged.
    TooMany,
}

/// A window over the source, so that any length is judged in bounded memory.
struct Window<'s, S: ?Sized> {
    source: &'s S,
    len: u64,
    start: u64,
    buf: Vec<u8>,
}

const WINDOW_LEN: u64 = 4 * FRAME_LEN_MAX as u64;

impl<'s, S: ReadAt + ?Sized> Window<'s, S> {
    const fn new(source: &'s S, len: u64) -> Self {
        Self {
            source,
            len,
            start: 0,
            buf: Vec::new(),
        }
    }

    /// Up to `want` bytes from `at` on; fewer only at the end of the file.
    fn slice(&mut self, at: u64, want: u64) -> io::Result<&[u8]> {
        let end = at.saturating_add(want).min(self.len);
        if at >= end {
            return Ok(&[]);
        }
        if at < self.start || end > self.start + self.buf.len() as u64 {
            let fill = WINDOW_LEN.max(want).min(self.len - at);
            self.buf.resize(
                usize::try_from(fill).map_err(|_| io::ErrorKind::OutOfMemory)?,
                0,
            );
            self.source.read_exact_at(at, &mut self.buf)?;
            self.start = at;
        }
        let (from, to) = ((at - self.start) as usize, (end - self.start) as usize);
        Ok(self.buf.get(from..to).unwrap_or_default())
    }

    fn byte(&mut self, at: u64) -> io::Result<Option<u8>> {
        Ok(self.slice(at, 1)?.first().copied())
    }

    fn all_zero(&mut self, from: u64, to: u64) -> io::Result<bool> {
        let mut at = from;
        while at < to {
            let part = self.slice(at, (to - at).min(WINDOW_LEN / 2))?;
            if part.is_empty() || part.iter().any(|b| *b != 0) {
                return Ok(false);
            }
            at += part.len() as u64;
        }
        Ok(true)
    }

    /// Whether the sector of `at` is a hole for `[e, x)`.
    fn sector_is_hole(&mut self, at: u64, e: u64, x: u64) -> io::Result<bool> {
        let sector = at - at % SECTOR_LEN;
        let (from, to) = (sector.max(e), (sector + SECTOR_LEN).min(x));
        Ok(from < to && self.all_zero(from, to)?)
    }

    /// Whether some sector is a hole for `[e, x)`.
    fn some_hole(&mut self, e: u64, x: u64) -> io::Result<bool> {
        let mut at = e;
        while at < x {
            if self.sector_is_hole(at, e, x)? {
                return Ok(true);
            }
            at = at - at % SECTOR_LEN + SECTOR_LEN;
        }
        Ok(false)
    }

    /// Whether a sector that lies wholly inside `[e, y)` is all zero.
    fn zero_sector_within(&mut self, e: u64, y: u64) -> io::Result<bool> {
        let mut at = e.next_multiple_of(SECTOR_LEN);
        while at + SECTOR_LEN <= y {
            if self.all_zero(at, at + SECTOR_LEN)? {
                return Ok(true);
            }
            at += SECTOR_LEN;
        }
        Ok(false)
    }

    /// The first intact frame that does not belong to the next write (step 2).
    fn first_foreign(&mut self, start: TailStart) -> io::Result<Foreign> {
        let e = start.end.0;
        // Candidates may overlap; an honest tail needs no more hashing than its own length.
        let mut budget = (self.len - e)
            .saturating_mul(4)
            .saturating_add(u64::from(FRAME_LEN_MAX));
        let mut at = e;
        while at < self.len {
            let part = self.slice(at, WINDOW_LEN / 2)?;
            let Some(step) = memchr::memchr2(0x88, 0x8b, part) else {
                at += part.len() as u64;
                continue;
            };
            at += step as u64;
            if let Some((prefix, link_good)) = self.candidate(at, &mut budget)? {
                if budget == 0 {
                    return Ok(Foreign::TooMany);
                }
                let write_start = prefix.seq.0.checked_sub(prefix.write.index.into());
                if link_good && write_start != Some(start.next.0) {
                    return Ok(Foreign::At(at));
                }
            }
            at += 1;
        }
        Ok(Foreign::None)
    }

    /// A frame with good head and structure at `at`, and whether its link checks.
    fn candidate(&mut self, at: u64, budget: &mut u64) -> io::Result<Option<(HeadPrefix, bool)>> {
        let lead = if at >= 32 { 32 } else { 0 };
        let part = self.slice(at - lead, lead + HEAD_PREFIX_LEN_MAX as u64)?;
        let Some(Ok((prefix, _))) = part.get(lead as usize..).map(HeadPrefix::parse) else {
            return Ok(None);
        };
        if at + u64::from(prefix.frame_len) > self.len {
            return Ok(None);
        }
        let part = self.slice(at - lead, lead + u64::from(prefix.frame_len))?;
        let (before, frame) = part.split_at(lead as usize);
        let Ok(frame) = Frame::parse(frame) else {
            return Ok(None);
        };
        *budget = budget.saturating_sub(u64::from(prefix.frame_len));
        let predecessor = if at == crate::FRAMES_MAGIC.len() as u64 {
            first_predecessor(&frame)
        } else {
            Some(Link(before.try_into().unwrap_or([0; 32])))
        };
        let link_good = predecessor.is_some_and(|p| frame.compute_link(&p) == frame.link);
        Ok(Some((prefix, link_good)))
    }

    /// Step 3: walks the next write.
    fn walk(&mut self, start: TailStart) -> io::Result<Walk> {
        let e = start.end.0;
        let (mut p, mut damaged, mut index, mut count) = (e, false, 0_u32, None);
        loop {
            if p >= self.len {
                return Ok(Walk::Torn);
            }
            if self.byte(p)? == Some(0) {
                let torn = self.sector_is_hole(p, e, self.len)? || self.all_zero(p, self.len)?;
                return Ok(if torn { Walk::Torn } else { Walk::Damaged });
            }
            let head = self.slice(p, HEAD_PREFIX_LEN_MAX as u64)?.to_vec();
            let prefix = match HeadPrefix::parse(&head) {
                Err(HeadError::Short) if can_begin_head(&head) => return Ok(Walk::Torn),
                parsed => {
                    if self.head_lost(p, &head, e)? {
                        return Ok(Walk::Torn);
                    }
                    match parsed {
                        Ok((prefix, _)) => prefix,
                        Err(_) => return Ok(Walk::Damaged),
                    }
                }
            };
            let expected_seq = start.next.0.checked_add(index.into());
            if Some(prefix.seq.0) != expected_seq
                || prefix.write.index != index
                || count.is_some_and(|c| c != prefix.write.count)
            {
                return Ok(Walk::Damaged);
            }
            count = Some(prefix.write.count);
            let end = p + u64::from(prefix.frame_len);
            if end > self.len {
                return Ok(Walk::Torn);
            }
            let mut unlimited = u64::MAX;
            damaged |= !matches!(self.candidate(p, &mut unlimited)?, Some((_, true)));
            p = end;
            index += 1;
            if index == prefix.write.count {
                let torn = damaged && self.some_hole(e, p)? && self.all_zero(p, self.len)?;
                return Ok(if torn { Walk::Torn } else { Walk::Damaged });
            }
        }
    }

    /// Step 3.4: the head prefix crosses into a sector that was never written.
    fn head_lost(&mut self, p: u64, head: &[u8], e: u64) -> io::Result<bool> {
        let border = p - p % SECTOR_LEN + SECTOR_LEN;
        let before = (border - p) as usize;
        let Some(kept) = head.get(..before) else {
            return Ok(false);
        };
        // A prefix that ends before the border does not cross it.
        if before >= HEAD_PREFIX_LEN_MAX
            || before >= head.len()
            || HeadPrefix::parse(kept) != Err(HeadError::Short)
        {
            return Ok(false);
        }
        Ok(can_begin_head(kept) && self.sector_is_hole(border, e, self.len)?)
    }
}

/// Predecessor that the first frame of a file names in its body.
fn first_predecessor(frame: &Frame<'_>) -> Option<Link> {
    match frame.prefix.kind {
        Kind::Genesis => Some(Link::ZERO),
        Kind::SegmentOpen => SegmentOpen::decode(frame.control()?.body)
            .ok()
            .map(|b| b.predecessor),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{FrameBuilder, RecordParts};
    use crate::types::{UnixMillis, WriteNumbers};

    /// A file image of `writes` (frames a write), and for each write its start offset.
    fn image(writes: &[u32], body_len: usize) -> (Vec<u8>, Vec<(u64, Link)>) {
        let mut out = vec![0x55; 1000];
        let mut link = Link([0x55; 32]);
        let mut starts = Vec::new();
        let mut seq = 100;
        for count in writes {
            starts.push((out.len() as u64, link));
            for index in 0..*count {
                let parts = RecordParts {
                    seq: Seq(seq),
                    write: WriteNumbers {
                        index,
                        count: *count,
                    },
                    appended_at: UnixMillis(1),
                    salt: [0x61; 16],
                    commitment: [0x62; 32],
                    body: &vec![0x63; body_len],
                    payload: None,
                    envelope_len: 32,
                };
                link = FrameBuilder::record(&mut out, &parts).finish(&[0x64; 32], &link);
                seq += 1;
            }
        }
        (out, starts)
    }

    fn judge(file: &[u8], end: u64, next: u64, link: Link) -> Tail {
        let start = TailStart {
            end: ByteOffset(end),
            next: Seq(next),
            link,
            closed: false,
        };
        classify_tail(file, file.len() as u64, start, OutsideCover::None).unwrap()
    }

    #[test]
    fn every_cut_of_the_next_write_is_torn() {
        let (file, starts) = image(&[1, 3], 300);
        let (e, link) = starts[1];
        for n in e as usize + 1..file.len() {
            assert_eq!(judge(&file[..n], e, 101, link), Tail::Torn, "cut at {n}");
        }
        assert_eq!(judge(&file[..e as usize], e, 101, link), Tail::Clean);
    }

    #[test]
    fn every_lost_set_of_sectors_is_torn() {
        let (mut file, starts) = image(&[1, 3], 300);
        let (e, link) = starts[1];
        let written = file.len();
        file.resize(written.next_multiple_of(512) + 2048, 0);
        let sectors: Vec<usize> = (e as usize / 512..=(written - 1) / 512).collect();
        for lost in 1..1_u32 << sectors.len() {
            let mut bad = file.clone();
            for (i, s) in sectors.iter().enumerate() {
                if lost >> i & 1 == 1 {
                    bad[(s * 512).max(e as usize)..(s + 1) * 512].fill(0);
                }
            }
            let verdict = judge(&bad, e, 101, link);
            let nothing_left = bad[e as usize..].iter().all(|b| *b == 0);
            assert_eq!(
                verdict,
                if nothing_left {
                    Tail::Clean
                } else {
                    Tail::Torn
                },
                "sectors {lost:b}"
            );
        }
    }

    #[test]
    fn a_flipped_bit_in_the_last_write_is_never_torn() {
        let (mut file, starts) = image(&[1, 2], 200);
        let (e, link) = starts[1];
        let written = file.len();
        file.resize(written + 4096, 0);
        for bit in e as usize * 8..written * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                judge(&bad, e, 101, link),
                Tail::Damaged,
                "byte {} bit {}",
                bit / 8,
                bit % 8
            );
        }
    }

    #[test]
    fn later_writes_behind_a_hole_are_a_live_copy_unless_covered_or_closed() {
        let (mut file, starts) = image(&[1, 3, 2], 600);
        let (e, link) = starts[1];
        let later = starts[2].0 as usize;
        file[e as usize..later].fill(0);
        assert_eq!(judge(&file, e, 101, link), Tail::CopiedWhileWritten);
        let start = TailStart {
            end: ByteOffset(e),
            next: Seq(101),
            link,
            closed: false,
        };
        let len = file.len() as u64;
        let covered = classify_tail(&file[..], len, start, OutsideCover::Covered).unwrap();
        let closed = classify_tail(
            &file[..],
            len,
            TailStart {
                closed: true,
                ..start
            },
            OutsideCover::None,
        )
        .unwrap();
        assert_eq!((covered, closed), (Tail::Damaged, Tail::Damaged));
    }

    #[test]
    fn junk_behind_the_data_is_damage() {
        let (mut file, starts) = image(&[1, 1], 200);
        let (e, link) = starts[1];
        file.truncate(e as usize);
        file.extend_from_slice(b"xyz");
        assert_eq!(judge(&file, e, 101, link), Tail::Damaged);
    }
}
