//! One table of one run: pages of sorted entries, the first entry of each page (*fences*), and a filter.
//!
//! Immutable once it is finished. Fences stay in memory; a filter too, within a budget, and else costs one
//! page read a look-up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ledger_vault::IndexKey;
use parking_lot::Mutex;

use crate::entry::{Entry, RECORD, TOKEN_LEN, Token, key_after, key_of, token_of};
use crate::error::IndexError;
use crate::filter::{BLOCK_LEN, Block, Filter, block_bytes, block_from, block_may_hold, block_of};
use crate::manifest::{SectionMeta, place};
use crate::page::{PAYLOAD_LEN_MAX, Page, PageBuilder, TAG_LEN};
use crate::store::{BlobId, Reader, Writer};

type Result<T> = std::result::Result<T, IndexError>;

const BLOCKS_PER_BLOB: usize = PAYLOAD_LEN_MAX / BLOCK_LEN;
/// Fences held for a section at most: 2^20 pages of 16 KiB.
const FENCES_MAX: usize = 1 << 20;

const fn fences_per_blob<const W: usize>() -> usize {
    PAYLOAD_LEN_MAX / (W + 8)
}

/// Bits of the filter for a token. Record ids are looked up with every append, nearly always in vain, so
/// that a wrong "perhaps" (1 in 800, else 1 in 200) costs more there.
const fn filter_bits<const W: usize>() -> u64 {
    if W == RECORD { 16 } else { 12 }
}

/// Reads pages, and checks that they are what was written there.
pub(crate) struct Pages {
    /// None once the index is closed.
    reader: Mutex<Option<Box<dyn Reader>>>,
    key: IndexKey,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Pages {
    pub(crate) fn new(reader: Box<dyn Reader>, key: IndexKey) -> Self {
        Self {
            reader: Mutex::new(Some(reader)),
            key,
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn into_key(self) -> IndexKey {
        self.key
    }

    /// Lets go of the file. Look-ups that go beyond memory fail from here on.
    pub(crate) fn close(&self) {
        self.reader.lock().take();
    }

    pub(crate) fn key(&self) -> &IndexKey {
        &self.key
    }

    /// Pages read since the start, and their bytes.
    pub(crate) fn read_so_far(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.reads), load(&self.bytes))
    }

    fn payload(&self, meta: &SectionMeta, blob: u32) -> Result<Vec<u8>> {
        let id = BlobId::new(meta.section, blob);
        let missing = || IndexError::damaged(format!("page {} is missing", id.0));
        let mut bytes = match &mut *self.reader.lock() {
            Some(reader) => reader.blob(id)?.ok_or_else(missing)?,
            None => {
                return Err(IndexError::Unusable {
                    reason: "it has been closed".to_owned(),
                });
            }
        };
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let sound = bytes
            .split_last_chunk::<TAG_LEN>()
            .is_some_and(|(payload, tag)| {
                self.key.page_tag_holds(&place(meta, blob), payload, tag)
            });
        if !sound {
            return Err(IndexError::damaged(format!("page {} was altered", id.0)));
        }
        bytes.truncate(bytes.len() - TAG_LEN);
        Ok(bytes)
    }
}

/// A finished table.
pub(crate) struct Section<const W: usize> {
    meta: SectionMeta,
    fences: Vec<Entry<W>>,
    filter: OnceLock<Filter>,
}

impl<const W: usize> Section<W> {
    /// Opens a table that the manifest names.
    pub(crate) fn open(meta: SectionMeta, pages: &Pages) -> Result<Self> {
        let malformed = || IndexError::damaged("a table's fences are not as many as its pages");
        let mut fences = Vec::new();
        for blob in 0..meta.fences {
            let payload = pages.payload(&meta, meta.pages.saturating_add(blob))?;
            for fence in payload.chunks_exact(W + 8) {
                let (key, seq) = fence.split_first_chunk::<W>().ok_or_else(malformed)?;
                let seq = seq.first_chunk().ok_or_else(malformed)?;
                fences.push(Entry {
                    key: *key,
                    seq: u64::from_be_bytes(*seq),
                });
            }
            if fences.len() > FENCES_MAX {
                return Err(malformed());
            }
        }
        if fences.len() != meta.pages as usize {
            return Err(malformed());
        }
        Ok(Self {
            meta,
            fences,
            filter: OnceLock::new(),
        })
    }

    pub(crate) fn meta(&self) -> &SectionMeta {
        &self.meta
    }

    /// Memory held, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.fences.len() * size_of::<Entry<W>>() + self.filter_len()
    }

    /// Memory that the filter holds, bytes.
    pub(crate) fn filter_len(&self) -> usize {
        self.filter.get().map_or(0, Filter::len_bytes)
    }

    /// Length of the filter on disk, bytes.
    pub(crate) fn filter_len_stored(&self) -> u64 {
        self.meta.blocks.saturating_mul(BLOCK_LEN as u64)
    }

    /// Leaves the filter on disk.
    pub(crate) fn drop_filter(&mut self) {
        self.filter = OnceLock::new();
    }

    /// Reads the filter into memory.
    pub(crate) fn load_filter(&self, pages: &Pages) -> Result<()> {
        let mut blocks: Vec<Block> = Vec::new();
        for blob in 0..self.meta.filters {
            let payload = pages.payload(&self.meta, self.filter_start().saturating_add(blob))?;
            let (chunks, _) = payload.as_chunks::<BLOCK_LEN>();
            blocks.extend(chunks.iter().map(block_from));
        }
        if blocks.len() as u64 != self.meta.blocks {
            return Err(IndexError::damaged("a filter has another length"));
        }
        if let Some(filter) = Filter::from_blocks(blocks) {
            // Somebody else may have been faster, with the same filter.
            let _ = self.filter.set(filter);
        }
        Ok(())
    }

    fn filter_start(&self) -> u32 {
        self.meta.pages.saturating_add(self.meta.fences)
    }

    fn may_hold(&self, token: &Token, pages: &Pages) -> Result<bool> {
        if self.fences.is_empty() {
            return Ok(false);
        }
        if let Some(filter) = self.filter.get() {
            return Ok(filter.may_hold(token));
        }
        let blocks = usize::try_from(self.meta.blocks).unwrap_or(usize::MAX);
        let at = block_of(token, blocks);
        let blob = u32::try_from(at / BLOCKS_PER_BLOB).unwrap_or(u32::MAX);
        let payload = pages.payload(&self.meta, self.filter_start().saturating_add(blob))?;
        let (chunks, _) = payload.as_chunks::<BLOCK_LEN>();
        let block = chunks
            .get(at % BLOCKS_PER_BLOB)
            .ok_or_else(|| IndexError::damaged("a filter has another length"))?;
        Ok(block_may_hold(&block_from(block), token))
    }

    fn page(&self, number: usize, pages: &Pages) -> Result<Page<W>> {
        let blob = u32::try_from(number).unwrap_or(u32::MAX);
        Page::parse(pages.payload(&self.meta, blob)?)
            .ok_or_else(|| IndexError::damaged("a page does not decode"))
    }

    /// The entries of a token from `from` to before `to`: of each key at most `limit`, the first ones.
    pub(crate) fn of_token(
        &self,
        token: &Token,
        wanted: &Wanted,
        pages: &Pages,
        out: &mut Vec<Entry<W>>,
    ) -> Result<()> {
        if !self.may_hold(token, pages)? {
            return Ok(());
        }
        let mut scan = Scan::new(self, pages);
        let mut lower = Some(key_of(token, &[]));
        while let Some(at) = lower {
            let Some(key) = scan.key_from(&at)? else {
                break;
            };
            if token_of(&key) != *token {
                break;
            }
            scan.collect(&key, wanted, out)?;
            lower = key_after(key);
        }
        Ok(())
    }

    /// The entries of one key from `from` to before `to`: at most `limit`, the first ones.
    pub(crate) fn of_key(
        &self,
        key: &[u8; W],
        wanted: &Wanted,
        pages: &Pages,
        out: &mut Vec<Entry<W>>,
    ) -> Result<()> {
        if !self.may_hold(&token_of(key), pages)? {
            return Ok(());
        }
        Scan::new(self, pages).collect(key, wanted, out)
    }
}

/// Which frames are wanted, and how many of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) limit: usize,
}

impl Wanted {
    pub(crate) fn contains(&self, seq: u64) -> bool {
        (self.from..self.to).contains(&seq)
    }
}

/// A look-up in one table; keeps the page it read last.
struct Scan<'a, const W: usize> {
    section: &'a Section<W>,
    pages: &'a Pages,
    current: Option<(usize, Page<W>)>,
}

impl<'a, const W: usize> Scan<'a, W> {
    fn new(section: &'a Section<W>, pages: &'a Pages) -> Self {
        Self {
            section,
            pages,
            current: None,
        }
    }

    fn page(&mut self, number: usize) -> Result<&Page<W>> {
        let page = match self.current.take() {
            Some((held, page)) if held == number => page,
            _ => self.section.page(number, self.pages)?,
        };
        Ok(&self.current.insert((number, page)).1)
    }

    /// The first key that is at least this one.
    fn key_from(&mut self, lower: &[u8; W]) -> Result<Option<[u8; W]>> {
        let fences = &self.section.fences;
        let behind = fences.partition_point(|fence| fence.key <= *lower);
        if let Some(number) = behind.checked_sub(1) {
            let page = self.page(number)?;
            if let Some(key) = page.key(page.lower_bound(lower)) {
                return Ok(Some(key));
            }
        }
        Ok(fences.get(behind).map(|fence| fence.key))
    }

    fn collect(&mut self, key: &[u8; W], wanted: &Wanted, out: &mut Vec<Entry<W>>) -> Result<()> {
        let fences = &self.section.fences;
        let lower = Entry {
            key: *key,
            seq: wanted.from,
        };
        let behind = fences.partition_point(|fence| *fence <= lower);
        let mut left = wanted.limit;
        for (number, fence) in fences.iter().enumerate().skip(behind.saturating_sub(1)) {
            if fence.key > *key {
                break;
            }
            let page = self.page(number)?;
            let group = page.lower_bound(key);
            if page.key(group) == Some(*key) {
                for seq in page.list(group) {
                    if seq >= wanted.to || left == 0 {
                        return Ok(());
                    }
                    if seq >= wanted.from {
                        out.push(Entry { key: *key, seq });
                        left -= 1;
                    }
                }
            }
            if group + 1 < page.groups() {
                break;
            }
        }
        Ok(())
    }
}

/// Where a builder's pages go.
pub(crate) struct Output<'a> {
    pub(crate) writer: &'a mut dyn Writer,
    pub(crate) key: &'a IndexKey,
}

/// Builds a table from entries in ascending order, a page at a time.
pub(crate) struct SectionBuilder<const W: usize> {
    meta: SectionMeta,
    page: PageBuilder<W>,
    fences: Vec<Entry<W>>,
    filter: Filter,
    last_token: Option<Token>,
    last: Option<Entry<W>>,
}

impl<const W: usize> SectionBuilder<W> {
    /// `base`: at most every frame number that follows; `tokens_max`: at least the number of tokens.
    pub(crate) fn new(section: u64, base: u64, tokens_max: u64) -> Result<Self> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| IndexError::System {
            what: "random bytes",
            source: error.into(),
        })?;
        Ok(Self {
            meta: SectionMeta {
                section,
                nonce,
                entries: 0,
                tokens: 0,
                pages: 0,
                fences: 0,
                filters: 0,
                blocks: 0,
            },
            page: PageBuilder::new(base),
            fences: Vec::new(),
            filter: Filter::with_room(tokens_max, filter_bits::<W>()),
            last_token: None,
            last: None,
        })
    }

    /// Pages written so far.
    pub(crate) fn pages(&self) -> u32 {
        self.meta.pages
    }

    /// Adds the next entry; the same one again counts once.
    pub(crate) fn push(&mut self, entry: &Entry<W>, out: &mut Output<'_>) -> Result<()> {
        if self.last.as_ref() == Some(entry) {
            return Ok(());
        }
        if !self.page.push(entry) {
            self.write_page(out)?;
            // An empty page takes any entry.
            self.page.push(entry);
        }
        let token = entry.token();
        if self.last_token != Some(token) {
            self.filter.insert(&token);
            self.last_token = Some(token);
            self.meta.tokens += 1;
        }
        self.meta.entries += 1;
        self.last = Some(*entry);
        Ok(())
    }

    fn write_page(&mut self, out: &mut Output<'_>) -> Result<()> {
        let Some(first) = self.page.first() else {
            return Ok(());
        };
        self.fences.push(*first);
        let mut payload = Vec::with_capacity(PAYLOAD_LEN_MAX + TAG_LEN);
        self.page.take(&mut payload);
        self.meta.pages += 1;
        self.write(self.meta.pages - 1, payload, out)
    }

    fn write(&self, blob: u32, mut payload: Vec<u8>, out: &mut Output<'_>) -> Result<()> {
        let tag = out.key.page_tag(&place(&self.meta, blob), &payload);
        payload.extend_from_slice(&tag);
        out.writer
            .put(BlobId::new(self.meta.section, blob), &payload)
    }

    /// Writes what is left, fences and filter.
    pub(crate) fn finish(mut self, out: &mut Output<'_>) -> Result<Section<W>> {
        self.write_page(out)?;
        let mut blob = self.meta.pages;
        for fences in self.fences.chunks(fences_per_blob::<W>()) {
            let mut payload = Vec::with_capacity(PAYLOAD_LEN_MAX + TAG_LEN);
            for fence in fences {
                payload.extend_from_slice(&fence.key);
                payload.extend_from_slice(&fence.seq.to_be_bytes());
            }
            self.write(blob, payload, out)?;
            blob += 1;
        }
        self.meta.fences = blob - self.meta.pages;
        self.filter.fold_to(self.meta.tokens, filter_bits::<W>());
        self.meta.blocks = self.filter.blocks().len() as u64;
        for blocks in self.filter.blocks().chunks(BLOCKS_PER_BLOB) {
            let payload = blocks.iter().flat_map(block_bytes).collect();
            self.write(blob, payload, out)?;
            blob += 1;
        }
        self.meta.filters = blob - self.meta.pages - self.meta.fences;
        Ok(Section {
            meta: self.meta,
            fences: self.fences,
            filter: OnceLock::from(self.filter),
        })
    }
}

/// Reads a whole table in order, one page in memory.
pub(crate) struct Cursor<const W: usize> {
    number: usize,
    page: Option<Page<W>>,
    group: usize,
    /// Where the list of the group stands: bytes left, and the frame before.
    list: Option<(usize, u64)>,
}

impl<const W: usize> Cursor<W> {
    pub(crate) fn new() -> Self {
        Self {
            number: 0,
            page: None,
            group: 0,
            list: None,
        }
    }

    /// The next entry, or None behind the last one.
    pub(crate) fn next(&mut self, section: &Section<W>, pages: &Pages) -> Result<Option<Entry<W>>> {
        loop {
            let page = match &self.page {
                Some(page) => page,
                None if self.number < section.fences.len() => {
                    self.page.insert(section.page(self.number, pages)?)
                }
                None => return Ok(None),
            };
            let mut list = page.list(self.group);
            if let Some((remaining, before)) = self.list {
                list = list.resume(remaining, before);
            }
            if let (Some(seq), Some(key)) = (list.next(), page.key(self.group)) {
                self.list = Some((list.remaining(), seq));
                return Ok(Some(Entry { key, seq }));
            }
            self.list = None;
            self.group += 1;
            if self.group >= page.groups() {
                (self.page, self.group) = (None, 0);
                self.number += 1;
            }
        }
    }
}

const _: () = assert!(TOKEN_LEN == 16 && TAG_LEN == 16);
