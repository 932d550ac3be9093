//! The role of the chain's owner: sealing batches, committing them, rotating (sections 6 and 11).
//!
//! One thread at a time has the [`Chain`]. What it seals becomes a [`Job`]; a job is written,
//! synced and only then answered. Whoever runs jobs keeps their order.

use crate::bodies::{AHEAD_FROM, Bodies, BodyKeys, SealedBody};
use crate::chain::{Recent, Signers, Tagger, Tip, WriteBuffer, now};
use crate::config::Config;
use crate::derived::{Batch, EarlierFrames, Envelopes};
use crate::error::{AppendError, Cause};
use crate::generation::new_keys;
use crate::places::Places;
use crate::request::{Acknowledged, Outcome, Prepared, Refusal, Ticket};
use crate::resume::Resume;
use crate::same::{Decided, Fate, Served};
use crate::segment::{
    Beginning, Closing, Newest, OpenSegment, Planned, SegmentFile, close_segment, open_segment,
    publish,
};
use ledger_format::limits::UNUSED_RANGES_MAX;
use ledger_format::{
    ByteOffset, Erasure, FrameBuilder, Generation, GenerationBody, Kind, Link, RecordParts,
    Recovery, Seq, UnixMillis, WriteNumbers,
};
use ledger_index::{Index, RecordToken};
use ledger_vault::SaltSource;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the owner of the chain has in hand.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) tip: Tip,
    pub(crate) signers: Signers,
    pub(crate) newest: Newest,
    pub(crate) segment: Option<OpenSegment>,
    pub(crate) owed: Vec<Recovery>,
    /// When the frames behind the newest checkpoint must be covered; none if there are none.
    pub(crate) checkpoint_due: Option<Instant>,
    pub(crate) last_checkpoint: Instant,
    /// Envelopes that nothing was derived from yet.
    pub(crate) envelopes: Envelopes,
    /// What to derive from frames whose checkpoint is on the disk.
    pub(crate) outbox: Vec<Arc<Batch>>,
    pub(crate) earlier: EarlierFrames,
    scratch: WriteBuffer,
    sealed: Sealed,
}

/// Bytes to be written at a place, and what follows once they are on the disk.
pub(crate) struct Job {
    file: Arc<SegmentFile>,
    at: u64,
    bytes: Vec<u8>,
    zero_fill: u64,
    pub(crate) then: Then,
}

pub(crate) enum Then {
    /// Answer these requests; the chain then ends here.
    Answer {
        requests: Vec<(Arc<Ticket>, Outcome)>,
        next: Seq,
        link: Link,
    },
    /// Make this note the floor, then answer who waits for it.
    Checkpoint {
        note: String,
        resume: Option<Resume>,
        waiting: Vec<Arc<Ticket>>,
        derive: Arc<Batch>,
    },
}

impl Job {
    /// How many requests wait for it.
    pub(crate) fn requests(&self) -> usize {
        match &self.then {
            Then::Answer { requests, .. } => requests.len(),
            Then::Checkpoint { waiting, .. } => waiting.len(),
        }
    }

    /// Writes and syncs, then what comes before any answer.
    pub(crate) fn run(&self, places: &Places) -> Result<(), Cause> {
        self.file.commit(&self.bytes, self.at, self.zero_fill)?;
        if let Then::Checkpoint { note, resume, .. } = &self.then {
            publish(places, note)?;
            match resume {
                Some(resume) => resume.save(places)?,
                None => Resume::remove(places)?,
            }
        }
        Ok(())
    }

    /// Tells all who wait.
    pub(crate) fn answer(self, outcome: &Result<(), AppendError>) {
        match self.then {
            Then::Answer { requests, .. } => {
                Ticket::complete_all(requests.into_iter().map(|(ticket, answer)| match outcome {
                    Ok(()) => (ticket, answer),
                    Err(error) => (ticket, Err(error.clone().into())),
                }));
            }
            Then::Checkpoint { note, waiting, .. } => {
                for ticket in waiting {
                    let done = outcome
                        .clone()
                        .map(|()| vec![Acknowledged::checkpoint(note.clone())]);
                    ticket.complete(done.map_err(Into::into));
                }
            }
        }
    }
}

/// Whether a segment must close before the next write.
pub(crate) fn must_rotate(chain: &Chain, config: &Config) -> bool {
    chain.segment.as_ref().is_some_and(|s| {
        s.len >= config.segment_len
            || s.opened.elapsed() >= config.segment_age
            || s.payloads.undeclared() >= UNUSED_RANGES_MAX / 2
    })
}

impl Chain {
    pub(crate) fn new(
        tip: Tip,
        signers: Signers,
        newest: Newest,
        segment: Option<OpenSegment>,
        owed: Vec<Recovery>,
    ) -> Self {
        Self {
            tip,
            signers,
            newest,
            segment,
            owed,
            checkpoint_due: None,
            last_checkpoint: Instant::now(),
            envelopes: Envelopes::default(),
            outbox: Vec::new(),
            earlier: EarlierFrames::default(),
            scratch: WriteBuffer::default(),
            sealed: Sealed::default(),
        }
    }

    /// The open segment; made when there is none.
    pub(crate) fn ensure_open(
        &mut self,
        places: &Places,
        config: &Config,
    ) -> Result<&mut OpenSegment, Cause> {
        if self.segment.is_none() {
            let beginning = Beginning {
                generation: None,
                owed: std::mem::take(&mut self.owed),
            };
            let opened = open_segment(
                places,
                config,
                &mut self.tip,
                &self.signers,
                Some(&self.newest),
                beginning,
            )?;
            self.segment = Some(opened);
            self.arm(config);
        }
        Ok(self
            .segment
            .as_mut()
            .unwrap_or_else(|| unreachable!("opened above")))
    }

    fn arm(&mut self, config: &Config) {
        self.checkpoint_due
            .get_or_insert_with(|| Instant::now() + config.checkpoint_delay);
    }

    /// Frames behind the newest checkpoint.
    pub(crate) fn uncovered(&self) -> u64 {
        self.tip.next.0 - self.newest.size
    }

    /// Seals the new records of whole requests into one write, of which there is at least one. All requests
    /// must belong to the open segment.
    ///
    /// `alone` says that no other request waits: a second thread then helps with large ones.
    pub(crate) fn seal(
        &mut self,
        decided: Decided,
        index: Option<&Index>,
        config: &Config,
        alone: bool,
    ) -> Result<Job, Cause> {
        let Decided {
            served, refused, ..
        } = decided;
        let salts = SaltSource::fresh()?;
        let records: Vec<&Prepared> = served.iter().flat_map(Served::new_records).collect();
        let len = records.iter().map(|r| r.frame_len_max()).sum();
        self.scratch.bytes = Vec::with_capacity(len);
        let first = self.tip.next;
        let origin = self.signers.origin_text();
        let segment = self
            .segment
            .as_ref()
            .unwrap_or_else(|| unreachable!("frames are sealed into an open segment"));
        let keys = BodyKeys {
            data: &segment.data_key,
            digest: &segment.digest_key,
            salts: &salts,
        };
        let mut push = Push {
            at: now(),
            count: u32::try_from(records.len()).unwrap_or(u32::MAX),
            origin,
            tip: &mut self.tip,
            scratch: &mut self.scratch,
            segment,
            sealed: &mut self.sealed,
            envelopes: index.map(|_| &mut self.envelopes),
            indexed: Vec::with_capacity(if index.is_some() { records.len() } else { 0 }),
        };
        let acknowledged: Result<Vec<Acknowledged>, Cause> = if alone && records.len() >= AHEAD_FROM
        {
            let bodies = Bodies::new(keys, first, &records);
            std::thread::scope(|scope| {
                scope.spawn(|| bodies.run_ahead());
                let each = records.iter().enumerate();
                each.map(|(i, record)| push.record(record, i, bodies.take(i)?))
                    .collect()
            })
        } else {
            let each = records.iter().enumerate();
            each.map(|(i, record)| {
                let body = keys.seal(record, push.tip.next)?;
                push.record(record, i, body)
            })
            .collect()
        };
        if let Some(index) = index {
            index.add_records(push.indexed);
        }
        let requests = answers(served, refused, acknowledged?);
        self.arm(config);
        let (next, link) = (self.tip.next, self.tip.link);
        let then = Then::Answer {
            requests,
            next,
            link,
        };
        Ok(self.job(config.zero_fill, then))
    }

    /// The scratch buffer becomes a job at the end of the segment.
    fn job(&mut self, zero_fill: u64, then: Then) -> Job {
        let bytes = std::mem::take(&mut self.scratch.bytes);
        let segment = self
            .segment
            .as_mut()
            .unwrap_or_else(|| unreachable!("frames are sealed into an open segment"));
        let at = segment.len;
        segment.len += bytes.len() as u64;
        Job {
            file: segment.file.clone(),
            at,
            bytes,
            zero_fill,
            then,
        }
    }

    /// Seals a checkpoint over everything sealed so far. Its job must run behind all before it.
    pub(crate) fn seal_checkpoint(&mut self, waiting: Vec<Arc<Ticket>>) -> Job {
        let (size, frontier) = (self.tip.next.0, self.tip.tree.hashes());
        let segment = self
            .segment
            .as_ref()
            .unwrap_or_else(|| unreachable!("a checkpoint needs an open segment"));
        let resume = (segment.plain && segment.payloads.is_empty()).then(|| Resume {
            segment: segment.first,
            offset: ByteOffset(segment.len),
            tip: self.tip.place(),
        });
        let note = self
            .scratch
            .checkpoint(&mut self.tip, &self.signers, &segment.tag_key);
        self.newest = Newest {
            note: note.clone(),
            size,
            frontier,
        };
        self.checkpoint_due = None;
        self.last_checkpoint = Instant::now();
        let derive = self.take_covered(false);
        self.job(
            0,
            Then::Checkpoint {
                note,
                resume,
                waiting,
                derive,
            },
        )
    }

    /// Takes what is to be derived from the frames under the newest checkpoint.
    fn take_covered(&mut self, closing: bool) -> Arc<Batch> {
        let Recent { first, frames } = self.tip.recent.take_below(Seq(self.newest.size));
        Arc::new(Batch {
            first,
            frames,
            envelopes: std::mem::take(&mut self.envelopes),
            closing,
        })
    }

    /// Seals one control frame as a write of its own; nobody waits for it alone.
    fn seal_control(&mut self, kind: Kind, body: &[u8]) -> Job {
        let segment = self
            .segment
            .as_mut()
            .unwrap_or_else(|| unreachable!("control frames need an open segment"));
        segment.plain = false;
        let by = Tagger::Tag(&segment.tag_key);
        self.scratch
            .control(&mut self.tip, kind, WriteNumbers::ALONE, body, &by);
        let (next, link) = (self.tip.next, self.tip.link);
        let requests = Vec::new();
        self.job(
            0,
            Then::Answer {
                requests,
                next,
                link,
            },
        )
    }

    /// Closes the open segment, if there is one. No job may be under way.
    pub(crate) fn close(&mut self, places: &Places, planned: Option<Planned>) -> Result<(), Cause> {
        let Some(mut segment) = self.segment.take() else {
            return Ok(());
        };
        let resume =
            (segment.plain && segment.payloads.is_empty() && planned.is_none()).then(|| Resume {
                segment: segment.first,
                offset: ByteOffset(segment.len),
                tip: self.tip.place(),
            });
        let closing = Closing {
            file: &segment.file,
            len: &mut segment.len,
            tag_key: &segment.tag_key,
            payloads: segment.payloads.close()?,
            planned,
        };
        self.newest = close_segment(places, &mut self.tip, &mut self.signers, closing)?;
        match resume {
            Some(resume) => resume.save(places)?,
            None => Resume::remove(places)?,
        }
        self.checkpoint_due = None;
        self.last_checkpoint = Instant::now();
        let batch = self.take_covered(true);
        self.outbox.push(batch);
        Ok(())
    }

    /// Replaces the log key: generation frame, close, final checkpoint by the old key, new keys.
    pub(crate) fn rotate_log_key(
        &mut self,
        places: &Places,
        config: &Config,
    ) -> Result<Generation, Cause> {
        self.ensure_open(places, config)?;
        let (log_key, epoch_key) = new_keys(places)?;
        let generation = Generation(self.signers.generation().0 + 1);
        let floor = crate::floor::read(places)?;
        let body = GenerationBody {
            floor,
            reason: crate::GenerationReason::RotateLogKey.text().to_owned(),
            log_key: log_key.public(),
            frontier: None,
            epoch_key: epoch_key.public(),
            set_aside: None,
            generation,
        };
        self.seal_control(Kind::Generation, &body.encode())
            .run(places)?;
        self.close(
            places,
            Some(Planned {
                generation,
                epoch_key,
            }),
        )?;
        Ok(generation)
    }

    /// Erases a class in closed segments: the frame, a checkpoint over it, then key and file.
    pub(crate) fn erase(
        &mut self,
        erasure: &Erasure,
        places: &Places,
        config: &Config,
    ) -> Result<u64, Cause> {
        self.ensure_open(places, config)?;
        self.seal_control(Kind::Erasure, &erasure.encode())
            .run(places)?;
        let checkpoint = self.seal_checkpoint(Vec::new());
        checkpoint.run(places)?;
        if let Then::Checkpoint { derive, .. } = checkpoint.then {
            self.outbox.push(derive);
        }
        Ok(crate::erase::unlink_all(places, erasure)?)
    }

    /// Time until the next checkpoint is due; it may be past.
    pub(crate) fn next_due(&self, config: &Config) -> Instant {
        let idle = self.last_checkpoint + config.checkpoint_idle;
        self.checkpoint_due.map_or(idle, |due| due.min(idle))
    }

    /// First number of the open segment.
    pub(crate) fn open_first(&self) -> Option<Seq> {
        self.segment.as_ref().map(|s| s.first)
    }
}

/// Pushes sealed records onto the chain, one write.
struct Push<'c> {
    at: UnixMillis,
    count: u32,
    tip: &'c mut Tip,
    scratch: &'c mut WriteBuffer,
    origin: Arc<str>,
    segment: &'c OpenSegment,
    sealed: &'c mut Sealed,
    /// Where there is an index: what it takes later, and what it takes once the write is sealed.
    envelopes: Option<&'c mut Envelopes>,
    indexed: Vec<(Seq, RecordToken, [u8; 16])>,
}

/// Buffers that are used again for every record.
#[derive(Debug, Default)]
pub(crate) struct Sealed {
    envelope: Vec<u8>,
    sealed_envelope: Vec<u8>,
}

impl Push<'_> {
    fn record(
        &mut self,
        record: &Prepared,
        index: usize,
        body: SealedBody,
    ) -> Result<Acknowledged, Cause> {
        let seq = self.tip.next;
        let payload = record.payload.as_ref();
        let parts = RecordParts {
            seq,
            write: WriteNumbers {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                count: self.count,
            },
            appended_at: self.at,
            salt: body.salt.0,
            commitment: body.commitment.0,
            body: &body.sealed,
            payload: payload.map(|p| p.as_ref()),
            envelope_len: record.sealed_envelope_len,
        };
        let Sealed {
            envelope,
            sealed_envelope,
        } = &mut *self.sealed;
        record.envelope_with(&body.digest.0, envelope);
        let (bytes, associated) = self.scratch.parts();
        let builder = FrameBuilder::record(bytes, &parts);
        associated.set(&self.tip.link, builder.authenticated_bytes());
        sealed_envelope.clear();
        self.segment.envelope_key.seal_envelope(
            seq,
            &body.salt,
            associated,
            envelope,
            sealed_envelope,
        )?;
        let link = builder.finish(sealed_envelope, &self.tip.link);
        if let Some(payload) = payload {
            self.segment.payloads.declare(payload);
        }
        self.tip.advance(link, self.at);
        if let (Some(envelopes), Some(token)) = (&mut self.envelopes, record.token) {
            envelopes.push(seq, envelope);
            self.indexed.push((seq, token, body.digest.0));
        }
        Ok(Acknowledged {
            origin: self.origin.clone(),
            seq,
            link,
            appended_at: self.at,
            record_id: record.record_id.clone(),
            duplicate: false,
            note: None,
        })
    }
}

/// The answers of a write: to each request its records in their order, wherever they are.
fn answers(
    served: Vec<Served>,
    refused: Vec<(Arc<Ticket>, Refusal)>,
    acknowledged: Vec<Acknowledged>,
) -> Vec<(Arc<Ticket>, Outcome)> {
    // Records of this write that were sent twice are answered twice.
    let twice = served.iter().any(|s| s.fates.is_some());
    let all = if twice {
        acknowledged.clone()
    } else {
        Vec::new()
    };
    let mut new = acknowledged.into_iter();
    let answered = served.into_iter().map(|Served { ticket, fates }| {
        let own = match fates {
            None => new.by_ref().take(ticket.records().len()).collect(),
            Some(fates) => {
                let each = fates.into_iter().filter_map(|fate| match fate {
                    Fate::New => new.next(),
                    Fate::Before(before) => Some(before),
                    Fate::Within(place) => all.get(place).cloned().map(|first| Acknowledged {
                        duplicate: true,
                        ..first
                    }),
                });
                each.collect()
            }
        };
        (ticket, Ok(own))
    });
    let refused = refused.into_iter().map(|(ticket, why)| (ticket, Err(why)));
    answered.chain(refused).collect()
}

/// How long the background thread sleeps at most: a clock that jumps must not stop checkpoints.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(60);
