//! The manifest: which runs the index has, and which frames they cover. One blob, under one tag, so that no
//! run can be taken out, put back or exchanged without being noticed.

use ledger_format::{LedgerId, Link, Seq};
use ledger_vault::IndexKey;

use crate::entry::{IDENTIFIER, RECORD};
use crate::page::TAG_LEN;
use crate::store::SECTIONS_MAX;

/// Layout of what follows; another one is made again.
const VERSION: u8 = 1;
/// More runs than any number of frames needs.
const RUNS_MAX: usize = 1 << 12;
/// Where the tag of a manifest belongs; pages have the number of their section there.
const PLACE: [u8; PLACE_LEN] = [0xff; PLACE_LEN];
/// What a tag covers beside the content: section, nonce, place in the section. Bytes.
pub(crate) const PLACE_LEN: usize = 8 + 16 + 4;

/// How far an index reaches: every frame below `next` is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Covered {
    /// The first frame that is not in it.
    pub next: Seq,
    /// The link of the frame before `next` (of none: zeros): says of which chain it is.
    pub link: Link,
}

impl Covered {
    /// Nothing.
    pub const NOTHING: Self = Self {
        next: Seq(0),
        link: Link::ZERO,
    };
}

/// One table of one run: which blobs, and how many of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectionMeta {
    pub(crate) section: u64,
    /// Random, so that blobs of one file do not fit into another, nor those of an earlier section.
    pub(crate) nonce: [u8; 16],
    pub(crate) entries: u64,
    /// Different tokens.
    pub(crate) tokens: u64,
    /// Blobs of entries, then of fences, then of the filter.
    pub(crate) pages: u32,
    pub(crate) fences: u32,
    pub(crate) filters: u32,
    /// Blocks of the filter.
    pub(crate) blocks: u64,
}

/// One run: both tables, over the frames from `first` to before `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunMeta {
    pub(crate) level: u8,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) identifiers: SectionMeta,
    pub(crate) records: SectionMeta,
}

/// What stands in the manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    pub(crate) ledger: LedgerId,
    pub(crate) covered: Covered,
    pub(crate) next_section: u64,
    /// Oldest first; their frames follow each other.
    pub(crate) runs: Vec<RunMeta>,
}

/// Why a manifest is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ManifestError {
    /// Its tag is not one of this key.
    Tag,
    /// It is of another ledger.
    Ledger,
    /// Its tag holds, but it is not what this program writes.
    Content,
}

impl Manifest {
    pub(crate) fn new(ledger: LedgerId) -> Self {
        Self {
            ledger,
            covered: Covered::NOTHING,
            next_section: 0,
            runs: Vec::new(),
        }
    }

    pub(crate) fn encode(&self, key: &IndexKey) -> Vec<u8> {
        let mut out = vec![0; TAG_LEN];
        out.push(VERSION);
        out.extend_from_slice(&self.ledger.0);
        out.extend_from_slice(&self.covered.next.0.to_be_bytes());
        out.extend_from_slice(&self.covered.link.0);
        out.extend_from_slice(&self.next_section.to_be_bytes());
        for run in &self.runs {
            out.push(run.level);
            out.extend_from_slice(&run.first.to_be_bytes());
            out.extend_from_slice(&run.end.to_be_bytes());
            for meta in [&run.identifiers, &run.records] {
                out.extend_from_slice(&meta.section.to_be_bytes());
                out.extend_from_slice(&meta.nonce);
                for number in [meta.entries, meta.tokens, meta.blocks] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
                for number in [meta.pages, meta.fences, meta.filters] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
        }
        let tag = key.page_tag(&PLACE, &out[TAG_LEN..]);
        out[..TAG_LEN].copy_from_slice(&tag);
        out
    }

    pub(crate) fn decode(
        bytes: &[u8],
        key: &IndexKey,
        ledger: LedgerId,
    ) -> Result<Self, ManifestError> {
        let (tag, body) = bytes
            .split_first_chunk::<TAG_LEN>()
            .ok_or(ManifestError::Tag)?;
        if !key.page_tag_holds(&PLACE, body, tag) {
            return Err(ManifestError::Tag);
        }
        let manifest = Self::read(&mut &*body).ok_or(ManifestError::Content)?;
        if manifest.ledger != ledger {
            return Err(ManifestError::Ledger);
        }
        if manifest.is_sound() {
            Ok(manifest)
        } else {
            Err(ManifestError::Content)
        }
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        let [version] = take(input)?;
        if version != VERSION {
            return None;
        }
        let mut manifest = Self::new(LedgerId(take(input)?));
        manifest.covered.next = Seq(number(input)?);
        manifest.covered.link = Link(take(input)?);
        manifest.next_section = number(input)?;
        while !input.is_empty() && manifest.runs.len() <= RUNS_MAX {
            let [level] = take(input)?;
            manifest.runs.push(RunMeta {
                level,
                first: number(input)?,
                end: number(input)?,
                identifiers: section(input)?,
                records: section(input)?,
            });
        }
        Some(manifest)
    }

    /// Whether look-ups may rely on what they rely on.
    fn is_sound(&self) -> bool {
        let mut end = 0;
        for run in &self.runs {
            let sections_known = [run.identifiers.section, run.records.section]
                .iter()
                .all(|section| *section < self.next_section);
            if run.first < end || run.end < run.first || !sections_known {
                return false;
            }
            end = run.end;
        }
        self.runs.len() <= RUNS_MAX
            && self.next_section <= SECTIONS_MAX
            && end <= self.covered.next.0
    }
}

fn section(input: &mut &[u8]) -> Option<SectionMeta> {
    Some(SectionMeta {
        section: number(input)?,
        nonce: take(input)?,
        entries: number(input)?,
        tokens: number(input)?,
        blocks: number(input)?,
        pages: u32::from_be_bytes(take(input)?),
        fences: u32::from_be_bytes(take(input)?),
        filters: u32::from_be_bytes(take(input)?),
    })
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*taken)
}

fn number(input: &mut &[u8]) -> Option<u64> {
    take(input).map(u64::from_be_bytes)
}

/// What the tag of a blob covers beside its content.
pub(crate) fn place(meta: &SectionMeta, blob: u32) -> [u8; PLACE_LEN] {
    let mut place = [0; PLACE_LEN];
    place[..8].copy_from_slice(&meta.section.to_be_bytes());
    place[8..24].copy_from_slice(&meta.nonce);
    place[24..].copy_from_slice(&blob.to_be_bytes());
    place
}

// The two tables are told apart by their sections; their widths must differ all the same, so that a page of
// one does not decode as one of the other.
const _: () = assert!(IDENTIFIER != RECORD);

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let meta = |section| SectionMeta {
            section,
            nonce: [9; 16],
            entries: 100,
            tokens: 50,
            pages: 3,
            fences: 1,
            filters: 1,
            blocks: 4,
        };
        let run = |level, first, end, section| RunMeta {
            level,
            first,
            end,
            identifiers: meta(section),
            records: meta(section + 1),
        };
        Manifest {
            ledger: LedgerId([3; 32]),
            covered: Covered {
                next: Seq(90),
                link: Link([4; 32]),
            },
            next_section: 5,
            runs: vec![run(1, 0, 80, 0), run(0, 80, 90, 2)],
        }
    }

    #[test]
    fn comes_back_for_its_key_and_ledger_only() {
        let (key, other) = (IndexKey::generate().unwrap(), IndexKey::generate().unwrap());
        let bytes = sample().encode(&key);
        let ledger = LedgerId([3; 32]);
        assert_eq!(Manifest::decode(&bytes, &key, ledger), Ok(sample()));
        let refused = Err(ManifestError::Tag);
        assert_eq!(Manifest::decode(&bytes, &other, ledger), refused);
        let refused = Err(ManifestError::Ledger);
        assert_eq!(Manifest::decode(&bytes, &key, LedgerId([4; 32])), refused);
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert!(Manifest::decode(&altered, &key, ledger).is_err());
            assert!(Manifest::decode(&bytes[..at], &key, ledger).is_err());
        }
    }

    #[test]
    fn runs_out_of_order_are_refused() {
        let key = IndexKey::generate().unwrap();
        let mut manifest = sample();
        manifest.runs.reverse();
        let bytes = manifest.encode(&key);
        let refused = Err(ManifestError::Content);
        assert_eq!(Manifest::decode(&bytes, &key, LedgerId([3; 32])), refused);
    }
}
