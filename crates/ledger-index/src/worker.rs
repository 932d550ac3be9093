//! The thread that writes: what was frozen first, then merges, smallest first, then what they left behind.
//!
//! It alone writes the file. The append path hands over and goes on; look-ups see the state before or after
//! a step, and both hold the same entries.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::error::IndexError;
use crate::manifest::{Covered, Manifest};
use crate::run::{Frozen, Merge, Run, write_frozen};
use crate::section::Output;
use crate::shared::{FANOUT, Shared, Stop};
use crate::store::{BlobId, SECTIONS_MAX, Writer};

type Result<T> = std::result::Result<T, IndexError>;

/// Pages a merge writes before the worker looks for something more urgent: 1 MiB.
const STEP_PAGES: u32 = 64;
/// Pages deleted in one transaction.
const DELETE_PAGES: u32 = 256;
/// How often it looks whether the last look-up has let go of a merged run.
const RELEASE_POLL: Duration = Duration::from_millis(20);

pub(crate) struct Worker {
    shared: Arc<Shared>,
    writer: Box<dyn Writer>,
    manifest: Manifest,
    merges: Vec<Merge>,
    /// Merged runs that a look-up may still read.
    retired: Vec<Arc<Run>>,
    /// Sections that nothing leads to.
    garbage: VecDeque<Range<u64>>,
    /// Runs whose filters are on disk only.
    unloaded: Vec<Arc<Run>>,
    /// Memory for filters, bytes.
    filter_bytes_max: u64,
}

/// Tells whoever waits for the worker that it has gone, for whatever reason.
struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.state.lock().gone = true;
        self.0.done.notify_all();
    }
}

enum Task {
    Write(Arc<Frozen>),
    Merge,
    Load,
    Sweep,
    Stop,
}

impl Worker {
    /// `manifest` is what the file says, its `next_section` above every blob in it.
    pub(crate) fn new(
        shared: Arc<Shared>,
        writer: Box<dyn Writer>,
        manifest: Manifest,
        filter_bytes_max: u64,
    ) -> Self {
        let mut garbage = VecDeque::new();
        let mut live: Vec<u64> = manifest
            .runs
            .iter()
            .flat_map(|run| [run.identifiers.section, run.records.section])
            .collect();
        live.sort_unstable();
        let mut next = 0;
        for section in live.into_iter().chain([manifest.next_section]) {
            if section > next {
                garbage.push_back(next..section);
            }
            next = section.saturating_add(1);
        }
        let unloaded = shared.state.lock().runs.to_vec();
        Self {
            shared,
            writer,
            manifest,
            merges: Vec::new(),
            retired: Vec::new(),
            garbage,
            unloaded,
            filter_bytes_max,
        }
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        let _gone = Gone(Arc::clone(&self.shared));
        loop {
            let done = match self.next_task() {
                Task::Write(frozen) => self.write(&frozen),
                Task::Merge => self.merge(),
                Task::Load => self.load(),
                Task::Sweep => self.sweep(),
                Task::Stop => break,
            };
            if let Err(error) = done {
                self.fail(error);
            }
            self.shared.done.notify_all();
        }
        // The writing connection goes last: it then copies the log back and removes it.
        self.shared.pages.close();
        drop(self.writer);
    }

    fn next_task(&mut self) -> Task {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        loop {
            let able = state.fault.is_none() && !state.damaged;
            if state.stop == Stop::Now || (state.stop == Stop::Written && !able) {
                return Task::Stop;
            }
            if able {
                if let Some(frozen) = state.frozen.front() {
                    return Task::Write(Arc::clone(frozen));
                }
                if state.stop == Stop::Written {
                    return Task::Stop;
                }
                if !self.unloaded.is_empty() {
                    return Task::Load;
                }
                if !self.merges.is_empty() || self.due(&state.runs).is_some() {
                    return Task::Merge;
                }
                self.retire();
                if !self.garbage.is_empty() {
                    return Task::Sweep;
                }
            }
            state.idle = self.retired.is_empty() || !able;
            shared.done.notify_all();
            if self.retired.is_empty() || !able {
                shared.work.wait(&mut state);
            } else {
                shared.work.wait_for(&mut state, RELEASE_POLL);
            }
            state.idle = false;
        }
    }

    /// The oldest runs of a level that has enough of them and is not being merged.
    fn due(&self, runs: &[Arc<Run>]) -> Option<Vec<Arc<Run>>> {
        runs.chunk_by(|a, b| a.level == b.level)
            .filter(|level| level.len() >= FANOUT)
            .map(|level| &level[..FANOUT])
            .rfind(|inputs| {
                let level = inputs.first().map(|run| run.level);
                self.merges.iter().all(|merge| Some(merge.level()) != level)
            })
            .map(<[Arc<Run>]>::to_vec)
    }

    fn write(&mut self, frozen: &Frozen) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut runs = shared.state.lock().runs.to_vec();
        let section = self.new_sections()?;
        self.writer.begin()?;
        let mut run = None;
        if frozen.memory.len() > 0 {
            let mut out = Output {
                writer: &mut *self.writer,
                key: shared.pages.key(),
            };
            let mut written = write_frozen(frozen, section, &mut out)?;
            self.fit_filters(&mut written, &[]);
            run = Some(Arc::new(written));
        }
        runs.extend(run);
        self.commit(&runs, frozen.covered)?;
        let mut state = shared.state.lock();
        state.runs = Arc::new(runs);
        state.covered = frozen.covered;
        state.frozen.pop_front();
        Ok(())
    }

    fn merge(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let runs = Arc::clone(&shared.state.lock().runs);
        if let Some(inputs) = self.due(&runs) {
            let section = self.new_sections()?;
            self.merges
                .push(Merge::new(inputs, section, &shared.pages)?);
        }
        let smallest = (0..self.merges.len()).min_by_key(|at| self.merges[*at].level());
        let Some(at) = smallest else {
            return Ok(());
        };
        self.writer.begin()?;
        let mut out = Output {
            writer: &mut *self.writer,
            key: shared.pages.key(),
        };
        let Some(mut merged) = self.merges[at].step(&shared.pages, STEP_PAGES, &mut out)? else {
            return self.writer.commit();
        };
        let inputs = self.merges[at].inputs().to_vec();
        self.fit_filters(&mut merged, &inputs);
        let mut runs = runs.to_vec();
        let is_input = |run: &Arc<Run>| inputs.iter().any(|input| Arc::ptr_eq(input, run));
        let place = runs.iter().position(is_input).unwrap_or(0);
        runs.retain(|run| !is_input(run));
        runs.insert(place, Arc::new(merged));
        let covered = shared.state.lock().covered;
        self.commit(&runs, covered)?;
        shared.state.lock().runs = Arc::new(runs);
        self.merges.remove(at);
        self.retired.extend(inputs);
        Ok(())
    }

    /// Writes the manifest and ends the transaction.
    fn commit(&mut self, runs: &[Arc<Run>], covered: Covered) -> Result<()> {
        let manifest = Manifest {
            covered,
            runs: runs.iter().map(|run| run.meta()).collect(),
            ..self.manifest
        };
        let encoded = manifest.encode(self.shared.pages.key());
        self.writer.put_manifest(&encoded)?;
        self.writer.commit()?;
        self.manifest = manifest;
        Ok(())
    }

    fn new_sections(&mut self) -> Result<u64> {
        let section = self.manifest.next_section;
        if section.saturating_add(2) > SECTIONS_MAX {
            return Err(IndexError::damaged("its section numbers are used up"));
        }
        self.manifest.next_section = section + 2;
        Ok(section)
    }

    /// Leaves a new run's filters on disk when there is no room for them.
    fn fit_filters(&self, run: &mut Run, replaced: &[Arc<Run>]) {
        let held = |runs: &[Arc<Run>]| runs.iter().map(|run| run.filter_len()).sum::<usize>();
        let others = held(&self.shared.state.lock().runs).saturating_sub(held(replaced));
        if (others + run.filter_len()) as u64 > self.filter_bytes_max {
            run.drop_filters();
        }
    }

    /// Reads the filters of one run of an opened file, newest first.
    fn load(&mut self) -> Result<()> {
        let Some(run) = self.unloaded.pop() else {
            return Ok(());
        };
        let held: usize = {
            let state = self.shared.state.lock();
            state.runs.iter().map(|run| run.filter_len()).sum()
        };
        if run.filter_len_stored().saturating_add(held as u64) > self.filter_bytes_max {
            self.unloaded.clear();
            return Ok(());
        }
        run.load_filters(&self.shared.pages)
    }

    /// Merged runs that nobody reads any more become garbage.
    fn retire(&mut self) {
        let garbage = &mut self.garbage;
        self.retired.retain(|run| {
            let read = Arc::strong_count(run) > 1;
            if !read {
                let meta = run.meta();
                for section in [meta.identifiers.section, meta.records.section] {
                    garbage.push_back(section..section + 1);
                }
            }
            read
        });
    }

    fn sweep(&mut self) -> Result<()> {
        let Some(sections) = self.garbage.front() else {
            return Ok(());
        };
        let ids = BlobId::of_sections(sections.clone());
        if self.writer.delete(ids, DELETE_PAGES)? < DELETE_PAGES as usize {
            self.garbage.pop_front();
        }
        Ok(())
    }

    fn fail(&mut self, error: IndexError) {
        self.writer.rollback();
        // What a merge holds in memory is ahead of what was just undone: it begins anew. No manifest names
        // the pages of its earlier steps.
        for merge in self.merges.drain(..) {
            let section = merge.section();
            self.garbage.push_back(section..section + 2);
        }
        let mut state = self.shared.state.lock();
        state.damaged |= error.is_damage();
        state.fault = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use ledger_format::{Link, Seq};
    use ledger_records::IdKind;

    use super::*;
    use crate::index::{IdentifierParts, Index};
    use crate::store::MemoryStore;

    /// Fails one call, counted from when it was told to; a full disk if `damage` is false.
    #[derive(Clone)]
    struct Faulty {
        store: MemoryStore,
        left: Arc<AtomicI64>,
        damage: bool,
        pending: Vec<(BlobId, Vec<u8>)>,
    }

    impl Faulty {
        fn call(&self) -> Result<()> {
            if self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
                return Ok(());
            }
            if self.damage {
                return Err(IndexError::damaged("as told"));
            }
            Err(IndexError::Database {
                operation: "write",
                full: true,
                source: "as told".into(),
            })
        }
    }

    impl Writer for Faulty {
        fn begin(&mut self) -> Result<()> {
            self.pending.clear();
            self.call()
        }
        fn put(&mut self, id: BlobId, blob: &[u8]) -> Result<()> {
            self.pending.push((id, blob.to_vec()));
            self.call()
        }
        fn put_manifest(&mut self, _: &[u8]) -> Result<()> {
            self.call()
        }
        fn commit(&mut self) -> Result<()> {
            self.call()?;
            for (id, blob) in self.pending.drain(..) {
                self.store.put(id, &blob)?;
            }
            Ok(())
        }
        fn rollback(&mut self) {
            self.pending.clear();
        }
        fn delete(&mut self, ids: Range<BlobId>, limit: u32) -> Result<usize> {
            self.call()?;
            self.store.delete(ids, limit)
        }
    }

    fn covered(next: u64) -> Covered {
        Covered {
            next: Seq(next),
            link: Link([next as u8; 32]),
        }
    }

    /// 300 records in each of as many flushes; every value leads to every 100th frame.
    fn fill(index: &Index, flushes: Range<u64>, mut faults: impl FnMut(IndexError)) {
        for flush in flushes {
            for seq in flush * 300..(flush + 1) * 300 {
                let value = format!("act_{}", seq % 100);
                let action = IdentifierParts {
                    kind: IdKind::ActionId,
                    scope: "",
                    value: &value,
                };
                index.add_parts(Seq(seq), &format!("rec_{seq}"), [seq as u8; 16], [action]);
            }
            while let Err(error) = index.flush(covered((flush + 1) * 300)) {
                faults(error);
            }
            if let Err(error) = index.settle() {
                faults(error);
            }
            check(index, (flush + 1) * 300);
        }
    }

    fn check(index: &Index, end: u64) {
        for value in [0, 7, 99] {
            let all = Seq(0)..Seq(u64::MAX);
            let found = index.lookup_value(&format!("act_{value}"), all, 10_000);
            let expected: Vec<Seq> = (value..end).step_by(100).map(Seq).collect();
            assert_eq!(found.unwrap().seqs, expected);
        }
        for seq in [0, 1, end / 2, end - 1] {
            let found = index.find_record(&format!("rec_{seq}")).unwrap().unwrap();
            assert_eq!((found.seq, found.digest), (Seq(seq), [seq as u8; 16]));
        }
        assert_eq!(index.find_record("rec_none").unwrap(), None);
    }

    #[test]
    fn any_write_may_fail_and_nothing_is_lost() {
        for call in 1..120 {
            let store = MemoryStore::default();
            let left = Arc::new(AtomicI64::new(0));
            let writer = Faulty {
                store: store.clone(),
                left: Arc::clone(&left),
                damage: false,
                pending: Vec::new(),
            };
            let index = Index::over(store.clone(), Box::new(writer), u64::MAX);
            fill(&index, 0..3, |error| panic!("{error}"));
            left.store(call, Ordering::SeqCst);
            let mut faults = 0;
            fill(&index, 3..18, |error| {
                assert!(error.is_full());
                faults += 1;
            });
            while index.settle().is_err() {
                faults += 1;
            }
            assert_eq!(faults, 1, "call {call}");
            let stats = index.stats();
            assert_eq!((stats.waiting, stats.memory_entries), (0, 0));
            assert_eq!((stats.runs, stats.entries), (2 + 2, 18 * 600));
            check(&index, 18 * 300);
            // What the runs need, and no more, is left.
            let needed: u32 = {
                let runs = Arc::clone(&index_runs(&index));
                let metas = runs.iter().flat_map(|run| {
                    let meta = run.meta();
                    [meta.identifiers, meta.records]
                });
                metas.map(|m| m.pages + m.fences + m.filters).sum()
            };
            assert_eq!(store.len(), needed as usize, "call {call}");
        }
    }

    fn index_runs(index: &Index) -> Arc<Vec<Arc<Run>>> {
        Arc::clone(&index.shared().state.lock().runs)
    }

    #[test]
    fn a_merged_run_stays_while_a_look_up_reads_it() {
        let store = MemoryStore::default();
        let index = Index::over(store.clone(), Box::new(store.clone()), 0);
        fill(&index, 0..7, |error| panic!("{error}"));
        // As a look-up holds them, from before the merge to after it.
        let held = index_runs(&index);
        index.add_parts(Seq(2100), "rec_2100", [0; 16], []);
        assert!(index.flush(covered(2101)).unwrap());
        while index_runs(&index).len() != 1 {
            std::thread::sleep(RELEASE_POLL);
        }
        std::thread::sleep(RELEASE_POLL * 4);
        for run in held.iter() {
            let pages = &index.shared().pages;
            let meta = run.records.meta();
            let (mut cursor, mut read) = (crate::section::Cursor::new(), 0);
            while cursor.next(&run.records, pages).unwrap().is_some() {
                read += 1;
            }
            assert_eq!(read, meta.entries);
        }
        let before = store.len();
        drop(held);
        index.settle().unwrap();
        assert!(store.len() < before);
    }

    #[test]
    fn damage_stops_writing_and_says_so() {
        let store = MemoryStore::default();
        let writer = Faulty {
            store: store.clone(),
            left: Arc::new(AtomicI64::new(2)),
            damage: true,
            pending: Vec::new(),
        };
        let index = Index::over(store, Box::new(writer), u64::MAX);
        index.add_parts(Seq(1), "rec_1", [0; 16], []);
        assert!(index.flush(covered(2)).unwrap());
        assert!(index.settle().unwrap_err().is_damage());
        assert!(index.flush(covered(3)).unwrap_err().is_damage());
        assert!(index.settle().unwrap_err().is_damage());
        assert!(index.find_record("rec_1").unwrap().is_some());
        assert_eq!(index.covered(), Covered::NOTHING);
        assert!(index.close().unwrap_err().is_damage());
        assert!(index.flush(covered(4)).is_err() && index.settle().is_err());
    }

    #[test]
    fn without_room_for_filters_the_answers_are_the_same() {
        for room in [0, 4_000, u64::MAX] {
            let store = MemoryStore::default();
            let index = Index::over(store.clone(), Box::new(store), room);
            fill(&index, 0..18, |error| panic!("{error}"));
            let held: usize = index_runs(&index).iter().map(|run| run.filter_len()).sum();
            assert!(held as u64 <= room);
            assert_eq!(held == 0, room == 0);
        }
    }
}
