//! What look-ups, the append path and the worker share. One lock, held for moments only: never while a page
//! is read or written.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::entry::{Entry, IDENTIFIER, RECORD, Token, key_of};
use crate::error::IndexError;
use crate::manifest::Covered;
use crate::run::{Frozen, Memory, Run};
use crate::section::{Pages, Wanted};

type Result<T> = std::result::Result<T, IndexError>;

/// Runs of a level that are merged into one of the next: their number grows with the logarithm.
pub(crate) const FANOUT: usize = 8;

pub(crate) struct State {
    pub(crate) active: Memory,
    /// Frames below are in `frozen` or `runs`, or hold nothing that is looked up.
    pub(crate) end: u64,
    /// Oldest first.
    pub(crate) frozen: VecDeque<Arc<Frozen>>,
    /// Oldest first; their frames follow each other.
    pub(crate) runs: Arc<Vec<Arc<Run>>>,
    /// How far the file reaches.
    pub(crate) covered: Covered,
    /// What stopped the worker; it goes on once this has been taken.
    pub(crate) fault: Option<IndexError>,
    /// Nothing is written any more.
    pub(crate) damaged: bool,
    pub(crate) idle: bool,
    /// There is no worker any more.
    pub(crate) gone: bool,
    pub(crate) stop: Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Never,
    /// Once everything frozen has been written.
    Written,
    Now,
}

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// There is something to do.
    pub(crate) work: Condvar,
    /// Something was done.
    pub(crate) done: Condvar,
    pub(crate) pages: Pages,
}

/// What is looked up.
pub(crate) struct Query {
    pub(crate) token: Token,
    /// In the identifier table: None asks for every kind and scope.
    pub(crate) detail: Option<[u8; IDENTIFIER - 16]>,
    /// Whether record ids are asked for too.
    pub(crate) records: bool,
    pub(crate) wanted: Wanted,
}

impl Shared {
    pub(crate) fn new(pages: Pages, covered: Covered, runs: Vec<Arc<Run>>) -> Self {
        Self {
            state: Mutex::new(State {
                active: Memory::new(),
                end: covered.next.0,
                frozen: VecDeque::new(),
                runs: Arc::new(runs),
                covered,
                fault: None,
                damaged: false,
                idle: false,
                gone: false,
                stop: Stop::Never,
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            pages,
        }
    }

    /// The first frames that a query leads to: one more than its limit at most, ascending.
    pub(crate) fn search(&self, query: &Query) -> Result<Vec<u64>> {
        let wanted = Wanted {
            limit: query.wanted.limit.saturating_add(1),
            ..query.wanted
        };
        // One moment for all three: nothing is missed while a table moves from one to the next.
        let (newest, frozen, runs) = {
            let state = self.state.lock();
            let mut newest = Vec::new();
            of_memory(&state.active, query, &wanted, &mut newest);
            (newest, state.frozen.clone(), Arc::clone(&state.runs))
        };
        let mut found = Vec::new();
        for run in runs.iter() {
            if found.len() >= wanted.limit {
                // Everything further on is of later frames.
                return Ok(found);
            }
            if run.end > wanted.from && run.first < wanted.to {
                self.of_run(run, query, &wanted, &mut found)?;
                keep_first(&mut found, wanted.limit);
            }
        }
        for table in &frozen {
            of_memory(&table.memory, query, &wanted, &mut found);
        }
        found.extend(newest);
        keep_first(&mut found, wanted.limit);
        Ok(found)
    }

    fn of_run(&self, run: &Run, query: &Query, wanted: &Wanted, out: &mut Vec<u64>) -> Result<()> {
        let mut entries = Vec::new();
        match &query.detail {
            Some(detail) => {
                let key = key_of(&query.token, detail);
                run.identifiers
                    .of_key(&key, wanted, &self.pages, &mut entries)?;
            }
            None => {
                run.identifiers
                    .of_token(&query.token, wanted, &self.pages, &mut entries)?;
            }
        }
        out.extend(entries.iter().map(|entry| entry.seq));
        if query.records {
            let mut entries = Vec::new();
            run.records
                .of_token(&query.token, wanted, &self.pages, &mut entries)?;
            out.extend(entries.iter().map(|entry| entry.seq));
        }
        Ok(())
    }

    /// The first record of each token, in their order: its frame and digest. One look at what is in memory
    /// serves all of them.
    pub(crate) fn first_records(&self, tokens: &[Token]) -> Result<Vec<Option<Entry<RECORD>>>> {
        let (mut found, frozen, runs) = {
            let state = self.state.lock();
            if state.damaged {
                return Err(IndexError::damaged("it was found damaged before"));
            }
            let newest = |token| state.active.records.find(token).min_by_key(|e| e.seq);
            let found: Vec<_> = tokens.iter().map(|token| newest(token).copied()).collect();
            (found, state.frozen.clone(), Arc::clone(&state.runs))
        };
        for (token, first) in tokens.iter().zip(&mut found) {
            if let Some(older) = self.first_older(token, &frozen, &runs)? {
                *first = Some(older);
            }
        }
        Ok(found)
    }

    /// The first record with this id: its frame and digest.
    pub(crate) fn first_record(&self, token: &Token) -> Result<Option<Entry<RECORD>>> {
        let (newest, frozen, runs) = {
            let state = self.state.lock();
            let newest = state
                .active
                .records
                .find(token)
                .min_by_key(|e| e.seq)
                .copied();
            (newest, state.frozen.clone(), Arc::clone(&state.runs))
        };
        Ok(self.first_older(token, &frozen, &runs)?.or(newest))
    }

    /// The first record with this id in what is written or waits to be.
    fn first_older(
        &self,
        token: &Token,
        frozen: &VecDeque<Arc<Frozen>>,
        runs: &[Arc<Run>],
    ) -> Result<Option<Entry<RECORD>>> {
        let wanted = Wanted {
            from: 0,
            to: u64::MAX,
            limit: 1,
        };
        let mut entries = Vec::new();
        for run in runs {
            run.records
                .of_token(token, &wanted, &self.pages, &mut entries)?;
            if let Some(first) = entries.iter().min_by_key(|entry| entry.seq) {
                return Ok(Some(*first));
            }
        }
        let frozen = frozen
            .iter()
            .find_map(|table| table.memory.records.find(token).min_by_key(|e| e.seq));
        Ok(frozen.copied())
    }
}

fn of_memory(memory: &Memory, query: &Query, wanted: &Wanted, out: &mut Vec<u64>) {
    let fits = |key: &[u8; IDENTIFIER]| query.detail.is_none_or(|detail| key[16..] == detail);
    let identifiers = memory.identifiers.find(&query.token);
    out.extend(
        identifiers
            .filter(|entry| wanted.contains(entry.seq) && fits(&entry.key))
            .map(|entry| entry.seq),
    );
    if query.records {
        let records = memory.records.find(&query.token);
        out.extend(
            records
                .filter(|entry| wanted.contains(entry.seq))
                .map(|entry| entry.seq),
        );
    }
}

fn keep_first(found: &mut Vec<u64>, limit: usize) {
    found.sort_unstable();
    found.dedup();
    found.truncate(limit);
}
