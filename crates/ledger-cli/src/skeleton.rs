//! What the daemon can tell of a ledger with the operational identity: the skeleton, never evidence.
//!
//! Every question opens index, tiles and the newest frames anew: that costs milliseconds, does not grow with the
//! ledger, and keeps nothing in memory between questions. Stories are `ledger-trace`'s, the sockets `ledger-server`'s.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use ledger_format::Seq;
use ledger_server::{
    Asked, KeylessRecords, ReadError, RecordProvider, RecordView, TraceAnswer, TraceError,
    TraceOutcome, TraceProvider, TraceQuestion,
};
use ledger_trace::{
    Derived, FactView, FolderOptions, FolderSource, Limits, Query, RelatedView, Source as _,
    SourceError, TraceExit, TrustLine,
};
use ledger_vault::{Identities, KeyDir};
use rustix::fs::{Mode, OFlags};
use serde_json::json;

/// The operational identity's file in a ledger's state folder.
pub(crate) const OPERATIONAL_KEY: &str = "operational.key";
/// Questions that are answered at once; more wait. Each may hold the newest frames in memory.
const AT_ONCE_MAX: usize = 4;
/// How often it is looked again where the ledger changed meanwhile.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// Reads the operational identity of a ledger's state folder, the one that the ledger id names.
pub(crate) fn operational_identity(state: &Path) -> Result<Identities, String> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(state, flags, Mode::empty())
        .map_err(|e| format!("{}: {}", state.display(), std::io::Error::from(e)))?;
    Identities::read(KeyDir::new(folder.as_fd(), state), OPERATIONAL_KEY).map_err(|e| e.to_string())
}

/// Answers the daemon's reads from the ledger's folder.
pub(crate) struct Skeleton {
    ledger: PathBuf,
    state: PathBuf,
    under_way: Mutex<usize>,
    done: Condvar,
}

impl Skeleton {
    /// Of a ledger's folder, and its state folder, the one that the ledger id names.
    pub(crate) fn new(ledger: PathBuf, state: PathBuf) -> Self {
        Self {
            ledger,
            state,
            under_way: Mutex::new(0),
            done: Condvar::new(),
        }
    }

    /// Waits for one's turn. The count is right whatever became of a thread that held it.
    fn turn(&self) -> Turn<'_> {
        let under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut under_way = self
            .done
            .wait_while(under_way, |count| *count >= AT_ONCE_MAX)
            .unwrap_or_else(PoisonError::into_inner);
        *under_way += 1;
        Turn(self)
    }

    /// Asks the ledger as its index, its tiles and its newest frames show it, again where it changed meanwhile.
    fn ask<T>(
        &self,
        trust: Option<&TrustLine>,
        synced: &(dyn Fn() -> Seq + Send + Sync),
        ask: impl Fn(&FolderSource<'_>) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let _turn = self.turn();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.source(trust, synced).and_then(|source| ask(&source)) {
                Err(error) if error.is_passing() && tries < TRIES => std::thread::sleep(PAUSE),
                other => return other,
            }
        }
    }

    fn source<'s>(
        &self,
        trust: Option<&TrustLine>,
        synced: &'s (dyn Fn() -> Seq + Send + Sync),
    ) -> Result<FolderSource<'s>, SourceError> {
        let identities = || operational_identity(&self.state).map_err(SourceError::Keys);
        let derived = Derived::of_folder(&self.ledger, &identities()?)
            .map_err(|error| SourceError::NoIndex(error.to_string()))?;
        let options = FolderOptions {
            trust: trust.cloned(),
            evidence: false,
            derived: Some(derived),
            remarks: Vec::new(),
            synced: Some(Box::new(synced)),
            never_scan: true,
        };
        FolderSource::open(&self.ledger, identities()?, options)
    }
}

struct Turn<'s>(&'s Skeleton);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut under_way = self
            .0
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *under_way -= 1;
        self.0.done.notify_one();
    }
}

impl TraceProvider for Skeleton {
    fn trace(
        &self,
        question: &TraceQuestion,
        synced: &(dyn Fn() -> Seq + Send + Sync),
    ) -> Result<TraceAnswer, TraceError> {
        let mut query = match &question.asked {
            Asked::Value(value) => Query::value(value.as_str()),
            Asked::Text(text) => Query::pasted(text),
        };
        if let Some(kind) = question.kind {
            query = query.of_kind(kind);
        }
        if let Some(scope) = &question.scope {
            query = query.within(scope.as_str());
        }
        let trust = question.trust.as_deref().map(TrustLine::parse);
        let trust = trust
            .transpose()
            .map_err(|e| TraceError::Question(e.to_string()))?;
        let answer = self
            .ask(trust.as_ref(), synced, |source| {
                ledger_trace::trace(source, &query, Limits::default())
            })
            .map_err(|error| match error {
                SourceError::NoIndex(_) => TraceError::NotNow(error.to_string()),
                other => TraceError::Failed(other.to_string()),
            })?;
        let outcome = match answer.exit() {
            TraceExit::Found => TraceOutcome::Found,
            TraceExit::NotFound => TraceOutcome::NotFound,
            TraceExit::Ambiguous => TraceOutcome::Ambiguous,
            TraceExit::Contradicted => TraceOutcome::Contradicted,
        };
        // Text, numbers, booleans and maps with text keys: there is nothing that can fail.
        let document = serde_json::to_value(&answer).unwrap_or_default();
        Ok(TraceAnswer { outcome, document })
    }
}

impl RecordProvider for Skeleton {
    fn record(
        &self,
        seq: Seq,
        synced: &(dyn Fn() -> Seq + Send + Sync),
    ) -> Result<Option<RecordView>, ReadError> {
        let keyless = KeylessRecords {
            ledger: self.ledger.clone(),
        };
        let Some(mut view) = keyless.record(seq, synced)? else {
            return Ok(None);
        };
        if view.kind == "record" {
            let frame = self.ask(None, synced, |source| source.frame(seq));
            let frame = frame.map_err(|e| ReadError::Io(std::io::Error::other(e.to_string())))?;
            let facts: BTreeMap<&str, FactView> = frame
                .envelope
                .facts()
                .iter()
                .map(|(name, fact)| (name.as_str(), FactView::from(fact)))
                .collect();
            let identifiers = frame.envelope.identifiers.iter();
            view.skeleton = Some(json!({
                "type": frame.envelope.record_type.as_str(),
                "record_id": frame.envelope.record_id,
                "identifiers": identifiers.map(RelatedView::from).collect::<Vec<_>>(),
                "facts": facts,
                "checkpoint": frame.check.checkpoint,
                "how": frame.check.how,
            }));
        }
        Ok(Some(view))
    }
}
