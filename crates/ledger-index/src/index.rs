//! The index as its users see it: add, flush, look up, open, throw away.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use ledger_format::{LedgerId, Seq};
use ledger_records::{Envelope, IdKind};
use ledger_vault::IndexKey;
use parking_lot::Mutex;

use crate::entry::{Entry, IDENTIFIER, RECORD, TOKEN_LEN, key_of};
use crate::error::IndexError;
use crate::manifest::{Covered, Manifest, ManifestError};
use crate::run::{Frozen, Memory, Run};
use crate::section::{Pages, Wanted};
use crate::shared::{Query, Shared, Stop};
use crate::sqlite::{self, SqliteReader, SqliteStore};
use crate::store::{BlobId, MemoryStore, Writer};
use crate::worker::Worker;

type Result<T> = std::result::Result<T, IndexError>;

/// Memory for filters, bytes: about 30 million tokens. Beyond, a look-up reads one page more a run.
const FILTER_BYTES_MAX: u64 = 64 << 20;
/// A table this large is worth a run of its own: 2 MiB.
const FLUSH_ENTRIES_MIN: usize = 1 << 16;
/// Tables that may wait for the worker.
const FROZEN_MAX: usize = 4;
/// Above this the append path waits for the worker: 80 MiB.
const ACTIVE_ENTRIES_MAX: usize = 1 << 21;
/// Entries made before the lock is taken.
const BATCH: usize = 16;

/// How an index was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// The file was used.
    Used,
    /// There was none.
    Created,
    /// There was one that could not be used. It was thrown away, and made anew: empty.
    Discarded {
        /// Why.
        reason: String,
    },
}

/// The frames that a look-up leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Ascending.
    pub seqs: Vec<Seq>,
    /// Whether there are more behind the last one.
    pub more: bool,
}

/// What the index remembers of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundRecord {
    /// The frame of the first record with this id.
    pub seq: Seq,
    /// Its digest, from its envelope.
    pub digest: [u8; 16],
}

/// What a record id is looked up by: made where there is time, used where the chain is waiting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecordToken([u8; TOKEN_LEN]);

/// One identifier of a record, as the index wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentifierParts<'a> {
    /// What it identifies.
    pub kind: IdKind,
    /// Within what it is unique.
    pub scope: &'a str,
    /// The value.
    pub value: &'a str,
}

/// Sizes and counts, for status and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Runs on disk.
    pub runs: usize,
    /// Entries in them.
    pub entries: u64,
    /// Tables that wait to be written.
    pub waiting: usize,
    /// Entries in memory, waiting tables included.
    pub memory_entries: usize,
    /// Memory held by tables, fences and filters, bytes.
    pub memory_bytes: usize,
    /// Pages read since the start.
    pub pages_read: u64,
    /// Bytes of them.
    pub bytes_read: u64,
}

/// The identifier index of one ledger. Shared between threads; see the crate's description.
pub struct Index {
    shared: Arc<Shared>,
    opening: Opening,
    /// Whether there is a worker, or was one.
    writes: bool,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Index {
    /// Opens `index.sqlite` in the ledger's folder, for the one process that holds the ledger's lock. A file
    /// that cannot be used (damaged, of another key, ledger or chain) is thrown away and made anew.
    ///
    /// `holds` says whether the chain has that link before that frame; it is asked once, if the file claims
    /// to cover anything. The caller then adds every frame from [`covered`](Self::covered) on.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn open(
        folder: &Path,
        key: IndexKey,
        ledger: LedgerId,
        holds: impl FnOnce(&Covered) -> bool,
    ) -> Result<Self> {
        let reason = match SqliteStore::open(folder) {
            Ok((store, found)) => match found.manifest {
                None => {
                    // A table that reads as empty may be a damaged one: nothing is built on the file that is here.
                    drop(store);
                    sqlite::remove(folder)?;
                    let (store, _) = SqliteStore::open(folder)?;
                    return Self::start(store, key, Manifest::new(ledger), Opening::Created);
                }
                Some(bytes) => match usable(&bytes, &key, ledger, found.last, holds) {
                    Ok(manifest) => {
                        return match open_runs(store, key, manifest)? {
                            Ok(opened) => Self::spawn(opened, Opening::Used),
                            Err((key, reason)) => Self::anew(folder, key, ledger, reason),
                        };
                    }
                    Err(reason) => reason,
                },
            },
            Err(IndexError::Damaged { what }) => what,
            Err(error) => return Err(error),
        };
        Self::anew(folder, key, ledger, reason)
    }

    fn anew(folder: &Path, key: IndexKey, ledger: LedgerId, reason: String) -> Result<Self> {
        sqlite::remove(folder)?;
        let (store, _) = SqliteStore::open(folder)?;
        let opening = Opening::Discarded { reason };
        Self::start(store, key, Manifest::new(ledger), opening)
    }

    fn start(
        store: SqliteStore,
        key: IndexKey,
        manifest: Manifest,
        opening: Opening,
    ) -> Result<Self> {
        let pages = Pages::new(Box::new(store.reader), key);
        let opened = Opened {
            pages,
            writer: Some(Box::new(store.writer)),
            manifest,
            runs: Vec::new(),
        };
        Self::spawn(opened, opening)
    }

    /// Opens an existing file without writing. It keeps one view of it for as long as this lives, so keep it
    /// for one question only where a daemon writes. What lies behind [`covered`](Self::covered) may be added:
    /// it stays in memory.
    ///
    /// # Errors
    /// There is no file that can be used: make the index [`in_memory`](Self::in_memory).
    pub fn open_read_only(
        folder: &Path,
        key: IndexKey,
        ledger: LedgerId,
        holds: impl FnOnce(&Covered) -> bool,
    ) -> Result<Self> {
        let unusable = |error: IndexError| IndexError::Unusable {
            reason: error.to_string(),
        };
        let (reader, bytes) = SqliteReader::open_alone(folder).map_err(unusable)?;
        let manifest = usable(&bytes, &key, ledger, None, holds)
            .map_err(|reason| IndexError::Unusable { reason })?;
        let pages = Pages::new(Box::new(reader), key);
        let runs = read_runs(&manifest, &pages).map_err(unusable)?;
        let opened = Opened {
            pages,
            writer: None,
            manifest,
            runs,
        };
        Self::spawn(opened, Opening::Used)
    }

    /// An empty index without a file: packed as on disk, about 20 bytes an identifier.
    ///
    /// # Errors
    /// The operating system gave no thread.
    pub fn in_memory(key: IndexKey, ledger: LedgerId) -> Result<Self> {
        let store = MemoryStore::default();
        let opened = Opened {
            pages: Pages::new(Box::new(store.clone()), key),
            writer: Some(Box::new(store)),
            manifest: Manifest::new(ledger),
            runs: Vec::new(),
        };
        Self::spawn(opened, Opening::Created)
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Over any writer, with any room for filters.
    #[cfg(test)]
    pub(crate) fn over(store: MemoryStore, writer: Box<dyn Writer>, filter_bytes_max: u64) -> Self {
        let opened = Opened {
            pages: Pages::new(Box::new(store), IndexKey::generate().unwrap()),
            writer: Some(writer),
            manifest: Manifest::new(LedgerId([1; 32])),
            runs: Vec::new(),
        };
        Self::spawn_with(opened, Opening::Created, filter_bytes_max).unwrap()
    }

    fn spawn(opened: Opened, opening: Opening) -> Result<Self> {
        Self::spawn_with(opened, opening, FILTER_BYTES_MAX)
    }

    fn spawn_with(opened: Opened, opening: Opening, filter_bytes_max: u64) -> Result<Self> {
        let covered = opened.manifest.covered;
        let shared = Arc::new(Shared::new(opened.pages, covered, opened.runs));
        let worker = match opened.writer {
            None => None,
            Some(writer) => {
                let worker = Worker::new(
                    Arc::clone(&shared),
                    writer,
                    opened.manifest,
                    filter_bytes_max,
                );
                let thread = std::thread::Builder::new()
                    .name("ledger-index".to_owned())
                    .spawn(move || worker.run());
                Some(thread.map_err(|error| IndexError::System {
                    what: "a thread",
                    source: error.into(),
                })?)
            }
        };
        Ok(Self {
            shared,
            opening,
            writes: worker.is_some(),
            worker: Mutex::new(worker),
        })
    }

    /// Deletes the file. No handle may be open; what is lost is made again from the envelopes.
    ///
    /// # Errors
    /// The file system failed.
    pub fn discard(folder: &Path) -> Result<()> {
        sqlite::remove(folder)
    }

    /// How it was opened.
    #[must_use]
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// How far the file reaches. After a crash, what lies behind must be added again.
    #[must_use]
    pub fn covered(&self) -> Covered {
        self.shared.state.lock().covered
    }

    /// The key, for an index that replaces this one: tokens that were made for this one are then its own.
    #[must_use]
    pub fn key(&self) -> IndexKey {
        self.shared.pages.key().again()
    }

    /// The token of a record id under this index' key.
    #[must_use]
    pub fn record_token(&self, record_id: &str) -> RecordToken {
        RecordToken(self.shared.pages.key().local_token(record_id))
    }

    /// Adds a record, from its envelope. A frame that is covered already is left alone.
    ///
    /// Frames are added in their order. What was added is found at once: where only synced frames may be
    /// shown, the look-up is given that bound. After a failed write drop the index and open it anew.
    pub fn add(&self, seq: Seq, envelope: &Envelope) {
        self.add_parts(
            seq,
            &envelope.record_id,
            envelope.digest,
            parts_of(envelope),
        );
    }

    /// [`add`](Self::add) without a decoded envelope.
    pub fn add_parts<'a>(
        &self,
        seq: Seq,
        record_id: &str,
        digest: [u8; 16],
        identifiers: impl IntoIterator<Item = IdentifierParts<'a>>,
    ) {
        let key = self.shared.pages.key();
        let record = Entry {
            key: key_of(&key.local_token(record_id), &digest),
            seq: seq.0,
        };
        self.add_identifiers_and(seq, identifiers, Some(record));
    }

    /// The first half of [`add`](Self::add), for the one who seals: record ids are found from then on.
    pub fn add_records(&self, records: impl IntoIterator<Item = (Seq, RecordToken, [u8; 16])>) {
        let mut state = self.shared.state.lock();
        let end = state.end;
        for (seq, token, digest) in records {
            if seq.0 >= end {
                state.active.records.push(Entry {
                    key: key_of(&token.0, &digest),
                    seq: seq.0,
                });
            }
        }
    }

    /// The other half, which may come later, but before a flush that covers the frame.
    pub fn add_identifiers(&self, seq: Seq, envelope: &Envelope) {
        self.add_identifiers_and(seq, parts_of(envelope), None);
    }

    fn add_identifiers_and<'a>(
        &self,
        seq: Seq,
        identifiers: impl IntoIterator<Item = IdentifierParts<'a>>,
        record: Option<Entry<RECORD>>,
    ) {
        let key = self.shared.pages.key();
        let mut batch = [Entry::<IDENTIFIER>::ZERO; BATCH];
        let mut filled = 0;
        for identifier in identifiers {
            let IdentifierParts { kind, scope, value } = identifier;
            let detail = key.exact_token(kind.code(), scope, value);
            batch[filled] = Entry {
                key: key_of(&key.local_token(value), &detail),
                seq: seq.0,
            };
            filled += 1;
            if filled == BATCH {
                self.push(&batch, None);
                filled = 0;
            }
        }
        self.push(&batch[..filled], record);
    }

    fn push(&self, identifiers: &[Entry<IDENTIFIER>], record: Option<Entry<RECORD>>) {
        let mut state = self.shared.state.lock();
        let end = state.end;
        let behind = |seq: u64| seq >= end;
        for entry in identifiers.iter().filter(|entry| behind(entry.seq)) {
            state.active.identifiers.push(*entry);
        }
        if let Some(record) = record.filter(|record| behind(record.seq)) {
            state.active.records.push(record);
        }
    }

    /// Hands everything below `covered` to the worker, to be written as a run. Every record below it must
    /// have been added and synced. Returns at once: true when it was handed over, false when it was put off
    /// because earlier ones still wait, or because this index has no file.
    ///
    /// # Errors
    /// Why the worker stopped; unless it is damage, it tries again.
    pub fn flush(&self, covered: Covered) -> Result<bool> {
        self.hand_over(covered, 0)
    }

    /// [`flush`](Self::flush), put off while a run would be small: for every checkpoint.
    ///
    /// # Errors
    /// As there.
    pub fn flush_if_large(&self, covered: Covered) -> Result<bool> {
        self.hand_over(covered, FLUSH_ENTRIES_MIN)
    }

    fn hand_over(&self, covered: Covered, entries_min: usize) -> Result<bool> {
        if !self.writes {
            return Ok(false);
        }
        let mut state = self.shared.state.lock();
        self.take_fault(&mut state)?;
        if covered.next.0 <= state.end || state.active.len() < entries_min {
            return Ok(false);
        }
        while state.frozen.len() >= FROZEN_MAX {
            if state.active.len() < ACTIVE_ENTRIES_MAX {
                return Ok(false);
            }
            self.shared.done.wait(&mut state);
            self.take_fault(&mut state)?;
        }
        let frozen = Frozen {
            memory: state.active.split_below(covered.next.0),
            first: state.end,
            covered,
        };
        state.frozen.push_back(Arc::new(frozen));
        state.end = covered.next.0;
        state.idle = false;
        self.shared.work.notify_all();
        Ok(true)
    }

    fn take_fault(&self, state: &mut crate::shared::State) -> Result<()> {
        if let Some(fault) = state.fault.take() {
            self.shared.work.notify_all();
            return Err(fault);
        }
        if state.gone {
            return Err(IndexError::Unusable {
                reason: "it has been closed".to_owned(),
            });
        }
        if state.damaged {
            return Err(IndexError::damaged("it was found damaged before"));
        }
        Ok(())
    }

    /// Waits until everything handed over is written and nothing is left to merge.
    ///
    /// # Errors
    /// Why the worker stopped.
    pub fn settle(&self) -> Result<()> {
        if !self.writes {
            return Ok(());
        }
        let mut state = self.shared.state.lock();
        loop {
            self.take_fault(&mut state)?;
            if state.idle && state.frozen.is_empty() {
                return Ok(());
            }
            self.shared.done.wait(&mut state);
        }
    }

    /// Writes what was handed over, and lets go of the file. Merges go on after the next start. Look-ups
    /// fail from here on.
    ///
    /// # Errors
    /// Something was not written; it must be added again after the next start.
    pub fn close(&self) -> Result<()> {
        self.stop(Stop::Written);
        let mut state = self.shared.state.lock();
        match state.fault.take() {
            Some(fault) => Err(fault),
            None if state.frozen.is_empty() => Ok(()),
            None => Err(IndexError::damaged("it was found damaged before")),
        }
    }

    fn stop(&self, how: Stop) {
        let Some(worker) = self.worker.lock().take() else {
            return;
        };
        self.shared.state.lock().stop = how;
        self.shared.work.notify_all();
        // It panics only where this crate has a bug, and then the file is as a crash leaves it.
        let _ = worker.join();
    }

    /// The frames in `within` that name this value, whatever its kind: the first `limit` of them.
    ///
    /// The answer may hold a frame that does not name it (two values with one token; nobody can make them
    /// without the key): whoever needs to know looks into the envelope. It never lacks one that was added.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn lookup_value(&self, value: &str, within: Range<Seq>, limit: usize) -> Result<Found> {
        self.lookup(Query {
            token: self.shared.pages.key().local_token(value),
            detail: None,
            records: true,
            wanted: wanted(within, limit),
        })
    }

    /// The frames in `within` that name this identifier: the first `limit` of them. What else has the same
    /// value costs nothing.
    ///
    /// # Errors
    /// As [`lookup_value`](Self::lookup_value), and the same holds of the answer.
    pub fn lookup_exact(
        &self,
        identifier: IdentifierParts<'_>,
        within: Range<Seq>,
        limit: usize,
    ) -> Result<Found> {
        let IdentifierParts { kind, scope, value } = identifier;
        let key = self.shared.pages.key();
        let exact = key.exact_token(kind.code(), scope, value);
        self.lookup(Query {
            token: key.local_token(value),
            detail: exact.first_chunk().copied(),
            records: kind == IdKind::RecordId && scope.is_empty(),
            wanted: wanted(within, limit),
        })
    }

    fn lookup(&self, query: Query) -> Result<Found> {
        let mut seqs = self.shared.search(&query)?;
        let more = seqs.len() > query.wanted.limit;
        seqs.truncate(query.wanted.limit);
        Ok(Found {
            seqs: seqs.into_iter().map(Seq).collect(),
            more,
        })
    }

    /// The first record with this id.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn find_record(&self, record_id: &str) -> Result<Option<FoundRecord>> {
        let token = self.shared.pages.key().local_token(record_id);
        Ok(self.shared.first_record(&token)?.map(FoundRecord::of))
    }

    /// [`find_record`](Self::find_record) for several ids at once, in their order: for the one who appends.
    ///
    /// # Errors
    /// As there; also when damage was found before, be it elsewhere in the file: nothing is written there any
    /// more, so the index has to be made again.
    pub fn find_records(&self, tokens: &[RecordToken]) -> Result<Vec<Option<FoundRecord>>> {
        let tokens: Vec<_> = tokens.iter().map(|token| token.0).collect();
        let found = self.shared.first_records(&tokens)?;
        Ok(found
            .into_iter()
            .map(|entry| entry.map(FoundRecord::of))
            .collect())
    }

    /// Sizes and counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.shared.state.lock();
        let (pages_read, bytes_read) = self.shared.pages.read_so_far();
        let waiting = || state.frozen.iter().map(|frozen| &frozen.memory);
        let tables = || std::iter::once(&state.active).chain(waiting());
        let entries = |run: &Arc<Run>| {
            let meta = run.meta();
            meta.identifiers.entries + meta.records.entries
        };
        Stats {
            runs: state.runs.len(),
            entries: state.runs.iter().map(entries).sum(),
            waiting: state.frozen.len(),
            memory_entries: tables().map(Memory::len).sum(),
            memory_bytes: tables().map(Memory::len_bytes).sum::<usize>()
                + state.runs.iter().map(|run| run.len_bytes()).sum::<usize>(),
            pages_read,
            bytes_read,
        }
    }
}

impl FoundRecord {
    fn of(entry: Entry<RECORD>) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&entry.key[TOKEN_LEN..]);
        Self {
            seq: Seq(entry.seq),
            digest,
        }
    }
}

fn parts_of(envelope: &Envelope) -> impl Iterator<Item = IdentifierParts<'_>> {
    envelope.identifiers.iter().map(|item| IdentifierParts {
        kind: item.identifier.kind,
        scope: &item.identifier.scope,
        value: &item.identifier.value,
    })
}

impl Drop for Index {
    fn drop(&mut self) {
        self.stop(Stop::Now);
    }
}

fn wanted(within: Range<Seq>, limit: usize) -> Wanted {
    Wanted {
        from: within.start.0,
        to: within.end.0,
        limit,
    }
}

/// An index before its worker runs.
struct Opened {
    pages: Pages,
    writer: Option<Box<dyn Writer>>,
    manifest: Manifest,
    runs: Vec<Arc<Run>>,
}

/// The manifest, or why the file cannot be used.
fn usable(
    bytes: &[u8],
    key: &IndexKey,
    ledger: LedgerId,
    last: Option<i64>,
    holds: impl FnOnce(&Covered) -> bool,
) -> std::result::Result<Manifest, String> {
    let mut manifest = Manifest::decode(bytes, key, ledger).map_err(|error| match error {
        ManifestError::Tag => "it was altered, or made with another index key".to_owned(),
        ManifestError::Ledger => "it is of another ledger".to_owned(),
        ManifestError::Content => "its manifest is not one of this version".to_owned(),
    })?;
    if manifest.covered != Covered::NOTHING && !holds(&manifest.covered) {
        let next = manifest.covered.next;
        return Err(format!(
            "it covers the frames before {next} of another chain"
        ));
    }
    // A merge that did not finish has left pages that no manifest names.
    if let Some(last) = last {
        let section = BlobId(last)
            .section()
            .filter(|section| *section < crate::store::SECTIONS_MAX)
            .ok_or("it has a page with an impossible number")?;
        manifest.next_section = manifest.next_section.max(section + 1);
    }
    Ok(manifest)
}

fn read_runs(manifest: &Manifest, pages: &Pages) -> Result<Vec<Arc<Run>>> {
    let runs = manifest.runs.iter();
    runs.map(|run| Run::open(run, pages).map(Arc::new))
        .collect()
}

/// The index, or its key and why the file cannot be used.
fn open_runs(
    store: SqliteStore,
    key: IndexKey,
    manifest: Manifest,
) -> Result<std::result::Result<Opened, (IndexKey, String)>> {
    let pages = Pages::new(Box::new(store.reader), key);
    match read_runs(&manifest, &pages) {
        Ok(runs) => Ok(Ok(Opened {
            pages,
            writer: Some(Box::new(store.writer)),
            manifest,
            runs,
        })),
        Err(IndexError::Damaged { what }) => Ok(Err((pages.into_key(), what))),
        Err(error) => Err(error),
    }
}
