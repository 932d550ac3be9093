//! Holds two copies of a ledger side by side and names the first frame that differs in each
//! segment, and which copy agrees with the chain there.
//!
//! Bytes are compared as read. Neither copy is written to.

use crate::files::{Folder, SegmentBytes, SegmentFile, Window};
use crate::walk::FIRST_FRAME;
use ledger_format::limits::FRAME_LEN_MAX;
use ledger_format::{Frame, HEAD_PREFIX_LEN_MAX, HeadPrefix, Link};
use serde::Serialize;
use std::io;

/// Bytes compared at a time.
const STEP: u64 = 1 << 20;

/// How one segment differs between two copies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// First seq of the segment.
    pub segment: u64,
    /// First byte that differs, or the length of the shorter file.
    pub offset: Option<u64>,
    /// Number of the frame that holds it, when its head can be read.
    pub seq: Option<u64>,
    /// Offset of that frame.
    pub frame_offset: Option<u64>,
    /// Which copy agrees with the chain at that frame: `this`, `other`, `both`, `neither`.
    pub agrees: Option<&'static str>,
    /// One sentence.
    pub text: String,
}

impl Difference {
    fn whole(segment: u64, text: &str) -> Self {
        Self {
            segment,
            offset: None,
            seq: None,
            frame_offset: None,
            agrees: None,
            text: text.to_owned(),
        }
    }
}

/// Compares two folders segment by segment.
///
/// # Errors
/// When one of them cannot be read.
pub fn compare(this: &Folder, other: &Folder) -> io::Result<Vec<Difference>> {
    let mut out = Vec::new();
    let mut theirs = other.segments.iter().peekable();
    for ours in &this.segments {
        while let Some(missing) = theirs.next_if(|t| t.first < ours.first) {
            let text = "only the other copy has this segment";
            out.push(Difference::whole(missing.first.0, text));
        }
        match theirs.next_if(|t| t.first == ours.first) {
            Some(same) => out.extend(compare_files(ours, same)?),
            None => out.push(Difference::whole(
                ours.first.0,
                "only this copy has this segment",
            )),
        }
    }
    for rest in theirs {
        let text = "only the other copy has this segment";
        out.push(Difference::whole(rest.first.0, text));
    }
    Ok(out)
}

fn compare_files(this: &SegmentFile, other: &SegmentFile) -> io::Result<Option<Difference>> {
    let (ours, theirs) = (
        SegmentBytes::open(&this.path)?,
        SegmentBytes::open(&other.path)?,
    );
    let mut a = Window::new(&ours, ours.len());
    let mut b = Window::new(&theirs, theirs.len());
    let Some(offset) = first_difference(&mut a, &mut b)? else {
        return Ok(None);
    };
    let frame_offset = frame_around(&mut a, offset)?;
    let (here, there) = (intact(&mut a, frame_offset)?, intact(&mut b, frame_offset)?);
    let good = |s: &Option<Seen>| s.as_ref().is_some_and(|s| s.good);
    let agrees = match (good(&here), good(&there)) {
        (true, true) => "both",
        (true, false) => "this",
        (false, true) => "other",
        (false, false) => "neither",
    };
    let seq = here.or(there).map(|s| s.seq);
    let text = if offset >= ours.len().min(theirs.len()) {
        let (shorter, longer) = if ours.len() < theirs.len() {
            ("this copy", "the other")
        } else {
            ("the other copy", "this one")
        };
        format!("{shorter} ends here, {longer} goes on; all before is the same")
    } else {
        match agrees {
            "both" => "both copies hold an intact frame here, and not the same one: two histories",
            "this" => "this copy's frame is intact, the other's is not",
            "other" => "the other copy's frame is intact, this one's is not",
            _ => "neither copy holds an intact frame here",
        }
        .to_owned()
    };
    Ok(Some(Difference {
        segment: this.first.0,
        offset: Some(offset),
        seq,
        frame_offset: Some(frame_offset),
        agrees: Some(agrees),
        text,
    }))
}

type Bytes<'s> = Window<'s, SegmentBytes>;

fn first_difference(a: &mut Bytes<'_>, b: &mut Bytes<'_>) -> io::Result<Option<u64>> {
    let mut at = 0_u64;
    loop {
        let (left, right) = (a.slice(at, STEP)?, b.slice(at, STEP)?);
        let different = left.iter().zip(right).position(|(x, y)| x != y);
        if let Some(position) = different {
            return Ok(Some(at.saturating_add(position as u64)));
        }
        let common = left.len().min(right.len()) as u64;
        if left.len() != right.len() {
            return Ok(Some(at.saturating_add(common)));
        }
        if common == 0 {
            return Ok(None);
        }
        at = at.saturating_add(common);
    }
}

/// Start of the frame that holds `offset`, hopping from head to head over bytes that are the same
/// in both copies.
fn frame_around(bytes: &mut Bytes<'_>, offset: u64) -> io::Result<u64> {
    let mut at = FIRST_FRAME;
    while at < offset {
        let head = bytes.slice(at, HEAD_PREFIX_LEN_MAX as u64)?;
        let Ok((prefix, _)) = HeadPrefix::parse(head) else {
            break;
        };
        let end = at.saturating_add(prefix.frame_len.into());
        if end > offset {
            break;
        }
        at = end;
    }
    Ok(at)
}

struct Seen {
    seq: u64,
    good: bool,
}

/// Whether the frame at `at` and the link of the one behind it check.
fn intact(bytes: &mut Bytes<'_>, at: u64) -> io::Result<Option<Seen>> {
    let Some((seq, good, end)) = links(bytes, at)? else {
        return Ok(None);
    };
    // A frame whose link was recomputed is betrayed by the next one.
    let next = links(bytes, end)?;
    let good = good && next.is_none_or(|(_, good, _)| good);
    Ok(Some(Seen { seq, good }))
}

fn links(bytes: &mut Bytes<'_>, at: u64) -> io::Result<Option<(u64, bool, u64)>> {
    let lead = 32_u64.min(at);
    let part = bytes.slice(
        at.saturating_sub(lead),
        lead.saturating_add(FRAME_LEN_MAX.into()),
    )?;
    let Some((before, rest)) = part.split_at_checked(lead as usize) else {
        return Ok(None);
    };
    let Ok((prefix, _)) = HeadPrefix::parse(rest) else {
        return Ok(None);
    };
    let end = at.saturating_add(prefix.frame_len.into());
    let good = Frame::parse(rest).is_ok_and(|frame| {
        // The predecessor of a file's first frame is not in the file.
        at == FIRST_FRAME
            || before
                .try_into()
                .is_ok_and(|b| frame.compute_link(&Link(b)) == frame.link)
    });
    Ok(Some((prefix.seq.0, good, end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_the_first_byte_and_the_absent_segments() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = |n: u64| format!("{n:020}.frames");
        fs::write(a.path().join(name(0)), b"same and more").unwrap();
        fs::write(b.path().join(name(0)), b"same").unwrap();
        fs::write(a.path().join(name(7)), b"x").unwrap();
        fs::write(b.path().join(name(9)), b"y").unwrap();
        let found = compare(
            &Folder::list(a.path()).unwrap(),
            &Folder::list(b.path()).unwrap(),
        )
        .unwrap();
        let places: Vec<_> = found.iter().map(|d| (d.segment, d.offset)).collect();
        assert_eq!(places, [(0, Some(4)), (7, None), (9, None)]);
        assert!(found[0].text.starts_with("the other copy ends here"));
    }
}
