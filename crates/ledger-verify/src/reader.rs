//! Cuts segments into chunks of whole frames by hopping from head to head.
//!
//! The hops are guesses that nobody believes: `chunk` checks every head again. Where hopping
//! fails, the segment goes to the slow path.

use crate::chunk::{Chunk, Claimed, LEAD};
use crate::files::{SegmentBytes, SegmentFile};
use crate::judge::Irregular;
use ledger_format::limits::{FRAME_LEN_MAX, FRAME_LEN_MIN};
use ledger_format::{FRAMES_MAGIC, Frame, Kind, ReadAt, SegmentOpen};

/// Bytes read at a time: bounds what a worker holds, and stays near the processor's caches.
const CHUNK_LEN: u64 = 256 << 10;

/// A piece of work, in the order of the chain.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) ordinal: u64,
    /// Index of the segment.
    pub(crate) segment: usize,
    pub(crate) chunk: Result<Chunk, Irregular>,
    /// With this chunk the segment ends; length of its file.
    pub(crate) end: Option<u64>,
}

struct Open {
    bytes: SegmentBytes,
    /// First byte that has not been read.
    unread: u64,
    /// Offset of the first frame that has not been handed out.
    offset: u64,
    /// [`LEAD`] bytes before that frame, and what of it has been read.
    rest: Vec<u8>,
    first: bool,
    claimed: Option<Claimed>,
}

/// Hands out chunks, segment after segment.
pub(crate) struct ChunkReader<'f> {
    files: &'f [SegmentFile],
    /// The last of `files` is the last segment of the ledger.
    to_end: bool,
    next_segment: usize,
    open: Option<Open>,
    ordinal: u64,
}

impl<'f> ChunkReader<'f> {
    pub(crate) const fn new(files: &'f [SegmentFile], to_end: bool) -> Self {
        Self {
            files,
            to_end,
            next_segment: 0,
            open: None,
            ordinal: 0,
        }
    }

    /// Chunks handed out so far.
    pub(crate) const fn handed_out(&self) -> u64 {
        self.ordinal
    }

    /// The next chunk, in the memory of an old one; None at the end.
    pub(crate) fn next(&mut self, buf: Vec<u8>) -> Option<Task> {
        let segment = match &self.open {
            Some(_) => self.next_segment.checked_sub(1)?,
            None => {
                let segment = self.next_segment;
                let file = self.files.get(segment)?;
                self.next_segment = segment.saturating_add(1);
                self.open = SegmentBytes::open(&file.path).ok().map(Open::new);
                segment
            }
        };
        let last = self.to_end && segment.saturating_add(1) == self.files.len();
        let ordinal = self.ordinal;
        self.ordinal = ordinal.saturating_add(1);
        let read = match &mut self.open {
            None => Err(Irregular),
            Some(open) => open.chunk(buf, last),
        };
        let (chunk, end) = match read {
            Ok((chunk, more)) => {
                let len = self.open.as_ref().map(|o| o.bytes.len());
                (Ok(chunk), if more { None } else { len })
            }
            Err(irregular) => (Err(irregular), None),
        };
        if chunk.is_err() || end.is_some() {
            self.open = None;
        }
        Some(Task {
            ordinal,
            segment,
            chunk,
            end,
        })
    }
}

/// Where hopping over a buffer ended.
enum Hop {
    /// Behind this byte stands the start of a frame that is not wholly here.
    Partial(usize),
    /// A zero byte where a frame would begin.
    Zero(usize),
}

impl Open {
    fn new(bytes: SegmentBytes) -> Self {
        Self {
            bytes,
            unread: 0,
            offset: FRAMES_MAGIC.len() as u64,
            // The magic is shorter than a link; the first frame's predecessor stands elsewhere.
            rest: vec![0; LEAD.saturating_sub(FRAMES_MAGIC.len())],
            first: true,
            claimed: None,
        }
    }

    /// The next chunk, and whether more follows.
    fn chunk(&mut self, mut buf: Vec<u8>, last: bool) -> Result<(Chunk, bool), Irregular> {
        let held = self.rest.len();
        let fill = CHUNK_LEN.min(self.bytes.len().saturating_sub(self.unread));
        let fill = usize::try_from(fill).map_err(|_| Irregular)?;
        buf.resize(held.saturating_add(fill), 0);
        let (old, new) = buf.split_at_mut(held);
        old.copy_from_slice(&self.rest);
        self.bytes
            .read_exact_at(self.unread, new)
            .map_err(|_| Irregular)?;
        self.unread = self.unread.saturating_add(fill as u64);
        let complete = self.unread >= self.bytes.len();
        if self.first {
            let magic = buf.get(LEAD.saturating_sub(FRAMES_MAGIC.len())..LEAD);
            if magic != Some(&FRAMES_MAGIC[..]) {
                return Err(Irregular);
            }
        }
        let (end, more) = match hop(&buf)? {
            Hop::Partial(at) if at == buf.len() => (at, !complete),
            Hop::Partial(_) if complete => return Err(Irregular),
            Hop::Partial(at) => (at, true),
            Hop::Zero(at) if last && self.zero_from(buf.get(at..).unwrap_or_default()) => {
                (at, false)
            }
            Hop::Zero(_) => return Err(Irregular),
        };
        self.rest.clear();
        self.rest
            .extend_from_slice(buf.get(end.saturating_sub(LEAD)..).ok_or(Irregular)?);
        buf.truncate(end);
        if self.first {
            self.claimed = claimed(buf.get(LEAD..).unwrap_or_default());
        }
        let chunk = Chunk {
            offset: self.offset,
            first: self.first,
            claimed: self.claimed,
            buf,
        };
        self.offset = self.offset.saturating_add(end.saturating_sub(LEAD) as u64);
        // A frame that is longer than a chunk takes several rounds.
        self.first &= end == LEAD;
        Ok((chunk, more))
    }

    fn zero_from(&self, here: &[u8]) -> bool {
        let mut window = crate::files::Window::new(&self.bytes, self.bytes.len());
        here.iter().all(|b| *b == 0) && window.zero_until_end(self.unread).unwrap_or(false)
    }
}

fn hop(buf: &[u8]) -> Result<Hop, Irregular> {
    let mut at = LEAD;
    loop {
        let rest = buf.get(at..).ok_or(Irregular)?;
        let len = match rest {
            [0, ..] => return Ok(Hop::Zero(at)),
            [0x88 | 0x8b, 0x48, a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]),
            [_, _, _, _, _, _, ..] => return Err(Irregular),
            _ => return Ok(Hop::Partial(at)),
        };
        if !(FRAME_LEN_MIN..=FRAME_LEN_MAX).contains(&len) {
            return Err(Irregular);
        }
        if len as usize > rest.len() {
            return Ok(Hop::Partial(at));
        }
        at = at.saturating_add(len as usize);
    }
}

/// The keys that the segment_open at the start of a segment names.
fn claimed(frames: &[u8]) -> Option<Claimed> {
    let first = Frame::parse(frames).ok()?;
    let open = if first.prefix.kind == Kind::Genesis {
        Frame::parse(frames.get(first.bytes().len()..)?).ok()?
    } else {
        first
    };
    let open = SegmentOpen::decode(open.control()?.body).ok()?;
    Some(Claimed {
        log_key: open.log_key,
        epoch_key: open.epoch_key,
    })
}
