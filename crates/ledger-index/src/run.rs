//! A run: both tables over a range of frames. Written once, from memory or from older runs.

use std::sync::Arc;

use crate::entry::{Entry, IDENTIFIER, RECORD};
use crate::error::IndexError;
use crate::manifest::{Covered, RunMeta};
use crate::memory::Table;
use crate::section::{Cursor, Output, Pages, Section, SectionBuilder};

type Result<T> = std::result::Result<T, IndexError>;

/// Both tables of the newest frames, in memory.
pub(crate) struct Memory {
    pub(crate) identifiers: Table<IDENTIFIER>,
    pub(crate) records: Table<RECORD>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            identifiers: Table::new(),
            records: Table::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.identifiers.len() + self.records.len()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.identifiers.len_bytes() + self.records.len_bytes()
    }

    pub(crate) fn split_below(&mut self, seq: u64) -> Self {
        Self {
            identifiers: self.identifiers.split_below(seq),
            records: self.records.split_below(seq),
        }
    }
}

/// Entries that no longer change, on their way to the disk.
pub(crate) struct Frozen {
    pub(crate) memory: Memory,
    /// The first frame that may be in it.
    pub(crate) first: u64,
    /// How far the index reaches once it is written.
    pub(crate) covered: Covered,
}

/// A run that look-ups read.
pub(crate) struct Run {
    pub(crate) level: u8,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) identifiers: Section<IDENTIFIER>,
    pub(crate) records: Section<RECORD>,
}

impl Run {
    pub(crate) fn open(meta: &RunMeta, pages: &Pages) -> Result<Self> {
        Ok(Self {
            level: meta.level,
            first: meta.first,
            end: meta.end,
            identifiers: Section::open(meta.identifiers, pages)?,
            records: Section::open(meta.records, pages)?,
        })
    }

    pub(crate) fn meta(&self) -> RunMeta {
        RunMeta {
            level: self.level,
            first: self.first,
            end: self.end,
            identifiers: *self.identifiers.meta(),
            records: *self.records.meta(),
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.identifiers.len_bytes() + self.records.len_bytes()
    }

    /// Length of the filters on disk, bytes.
    pub(crate) fn filter_len_stored(&self) -> u64 {
        self.identifiers
            .filter_len_stored()
            .saturating_add(self.records.filter_len_stored())
    }

    pub(crate) fn load_filters(&self, pages: &Pages) -> Result<()> {
        self.identifiers.load_filter(pages)?;
        self.records.load_filter(pages)
    }

    pub(crate) fn drop_filters(&mut self) {
        self.identifiers.drop_filter();
        self.records.drop_filter();
    }

    /// Memory that the filters hold, bytes.
    pub(crate) fn filter_len(&self) -> usize {
        self.identifiers.filter_len() + self.records.filter_len()
    }
}

/// Writes what was in memory as a run of level 0. `section` and the one behind it are its tables.
pub(crate) fn write_frozen(frozen: &Frozen, section: u64, out: &mut Output<'_>) -> Result<Run> {
    Ok(Run {
        level: 0,
        first: frozen.first,
        end: frozen.covered.next.0,
        identifiers: write_table(&frozen.memory.identifiers, section, frozen.first, out)?,
        records: write_table(&frozen.memory.records, section + 1, frozen.first, out)?,
    })
}

fn write_table<const W: usize>(
    table: &Table<W>,
    section: u64,
    base: u64,
    out: &mut Output<'_>,
) -> Result<Section<W>> {
    let mut entries = table.entries().to_vec();
    entries.sort_unstable();
    let tokens = entries.chunk_by(|a, b| a.token() == b.token()).count() as u64;
    let mut builder = SectionBuilder::new(section, base, tokens)?;
    for entry in &entries {
        builder.push(entry, out)?;
    }
    builder.finish(out)
}

/// One table of several runs on its way into one.
struct TableMerge<const W: usize> {
    cursors: Vec<Cursor<W>>,
    /// The next entry of each input; None behind its last.
    heads: Vec<Option<Entry<W>>>,
    /// Their first bytes, side by side for a fast search; the greatest number behind the last.
    leading: Vec<u64>,
    builder: SectionBuilder<W>,
}

impl<const W: usize> TableMerge<W> {
    fn new(inputs: &[&Section<W>], section: u64, base: u64, pages: &Pages) -> Result<Self> {
        let tokens = inputs.iter().map(|input| input.meta().tokens).sum();
        let mut cursors: Vec<Cursor<W>> = inputs.iter().map(|_| Cursor::new()).collect();
        let heads = cursors
            .iter_mut()
            .zip(inputs)
            .map(|(cursor, input)| cursor.next(input, pages))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            leading: heads.iter().map(leading).collect(),
            cursors,
            heads,
            builder: SectionBuilder::new(section, base, tokens)?,
        })
    }

    /// The least of the next entries, and whose it is.
    fn least(&self) -> Option<(usize, Entry<W>)> {
        let least = *self.leading.iter().min()?;
        self.leading
            .iter()
            .zip(&self.heads)
            .enumerate()
            .filter(|(_, (leading, _))| **leading == least)
            .filter_map(|(at, (_, head))| head.map(|head| (at, head)))
            .min_by_key(|(_, head)| *head)
    }

    /// Goes on until so many more pages were written. True when everything was read.
    fn step(
        &mut self,
        inputs: &[&Section<W>],
        pages: &Pages,
        pages_max: u32,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let stop = self.builder.pages().saturating_add(pages_max);
        while self.builder.pages() < stop {
            let Some((at, entry)) = self.least() else {
                return Ok(true);
            };
            self.builder.push(&entry, out)?;
            if let (Some(cursor), Some(input)) = (self.cursors.get_mut(at), inputs.get(at)) {
                let next = cursor.next(input, pages)?;
                // Out of order, a table would lose entries in silence.
                if next.is_some_and(|next| next < entry) {
                    return Err(IndexError::damaged("a table is not sorted"));
                }
                self.leading[at] = leading(&next);
                self.heads[at] = next;
            }
        }
        Ok(false)
    }
}

fn leading<const W: usize>(head: &Option<Entry<W>>) -> u64 {
    head.as_ref().map_or(u64::MAX, Entry::leading)
}

/// Several runs that follow each other on their way into one of the next level.
pub(crate) struct Merge {
    section: u64,
    inputs: Vec<Arc<Run>>,
    identifiers: Option<TableMerge<IDENTIFIER>>,
    identifiers_done: Option<Section<IDENTIFIER>>,
    records: Option<TableMerge<RECORD>>,
}

impl Merge {
    pub(crate) fn new(inputs: Vec<Arc<Run>>, section: u64, pages: &Pages) -> Result<Self> {
        let base = inputs.first().map_or(0, |run| run.first);
        let identifiers: Vec<_> = inputs.iter().map(|run| &run.identifiers).collect();
        let records: Vec<_> = inputs.iter().map(|run| &run.records).collect();
        Ok(Self {
            identifiers: Some(TableMerge::new(&identifiers, section, base, pages)?),
            records: Some(TableMerge::new(&records, section + 1, base, pages)?),
            identifiers_done: None,
            section,
            inputs,
        })
    }

    pub(crate) fn inputs(&self) -> &[Arc<Run>] {
        &self.inputs
    }

    /// The first of the two sections that it writes.
    pub(crate) fn section(&self) -> u64 {
        self.section
    }

    /// The level of the runs that are merged.
    pub(crate) fn level(&self) -> u8 {
        self.inputs.first().map_or(0, |run| run.level)
    }

    /// Writes about so many pages; the new run once it is whole.
    pub(crate) fn step(
        &mut self,
        pages: &Pages,
        pages_max: u32,
        out: &mut Output<'_>,
    ) -> Result<Option<Run>> {
        if let Some(table) = &mut self.identifiers {
            let inputs: Vec<_> = self.inputs.iter().map(|run| &run.identifiers).collect();
            if !table.step(&inputs, pages, pages_max, out)? {
                return Ok(None);
            }
        }
        if let Some(table) = self.identifiers.take() {
            self.identifiers_done = Some(table.builder.finish(out)?);
        }
        if let Some(table) = &mut self.records {
            let inputs: Vec<_> = self.inputs.iter().map(|run| &run.records).collect();
            if !table.step(&inputs, pages, pages_max, out)? {
                return Ok(None);
            }
        }
        let (Some(identifiers), Some(table)) = (self.identifiers_done.take(), self.records.take())
        else {
            return Ok(None);
        };
        Ok(Some(Run {
            level: self.level().saturating_add(1),
            first: self.inputs.first().map_or(0, |run| run.first),
            end: self.inputs.last().map_or(0, |run| run.end),
            identifiers,
            records: table.builder.finish(out)?,
        }))
    }
}
