//! Records that are sent again: answered from where they are, never appended twice (section 17).
//!
//! The owner of the chain decides, against everything that was sealed so far. What is answered from a
//! frame waits for that frame's sync.

use crate::commit::Chain;
use crate::derived::Earlier;
use crate::error::{AppendError, Cause};
use crate::overlap::Commit;
use crate::queue::Shared;
use crate::request::{Acknowledged, Prepared, Refusal, Ticket};
use ledger_format::Seq;
use ledger_index::{FoundRecord, RecordToken};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What becomes of one record of a request.
pub(crate) enum Fate {
    /// It is appended.
    New,
    /// It was in the ledger before.
    Before(Acknowledged),
    /// It is the same as that new record of this write.
    Within(usize),
}

/// A request, and what becomes of its records; none if all are new.
pub(crate) struct Served {
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) fates: Option<Vec<Fate>>,
}

impl Served {
    pub(crate) fn fate_is_new(&self, index: usize) -> bool {
        self.fates
            .as_ref()
            .is_none_or(|fates| matches!(fates.get(index), Some(Fate::New)))
    }

    /// Its records that are appended.
    pub(crate) fn new_records(&self) -> impl Iterator<Item = &Prepared> {
        let records = self.ticket.records().iter().enumerate();
        records.filter_map(|(i, record)| self.fate_is_new(i).then_some(record))
    }
}

/// Requests that wait for one write.
#[derive(Default)]
pub(crate) struct Decided {
    pub(crate) served: Vec<Served>,
    pub(crate) refused: Vec<(Arc<Ticket>, Refusal)>,
    /// How many records are new.
    pub(crate) new: usize,
}

impl Decided {
    pub(crate) const fn is_empty(&self) -> bool {
        self.served.is_empty() && self.refused.is_empty()
    }

    /// Requests whose raw bodies were sealed into another segment than the open one seal them again, unless
    /// nothing of them is appended.
    pub(crate) fn refuse_strangers(&mut self, open: Option<Seq>) {
        let is_stranger = |served: &Served| {
            let bound_to = served.ticket.bound_to;
            bound_to.is_some() && bound_to != open && served.new_records().next().is_some()
        };
        if !self.served.iter().any(is_stranger) {
            return;
        }
        // Others may be answered from a record of theirs: all that share this write try again.
        let served = self.served.drain(..).map(|served| served.ticket);
        let refused = self.refused.drain(..).map(|(ticket, _)| ticket);
        for ticket in served.chain(refused) {
            ticket.complete(Err(Refusal::SegmentChanged));
        }
        self.new = 0;
    }

    /// Answers where nothing is appended, and all that was sealed before is on the disk.
    pub(crate) fn answer(self, poisoned: Option<AppendError>) {
        for Served { ticket, fates } in self.served {
            let before = fates.into_iter().flatten().filter_map(|fate| match fate {
                Fate::Before(before) => Some(before),
                Fate::New | Fate::Within(_) => None,
            });
            ticket.complete(match &poisoned {
                None => Ok(before.collect()),
                Some(error) => Err(error.clone().into()),
            });
        }
        for (ticket, refusal) in self.refused {
            ticket.complete(Err(poisoned.clone().map_or(refusal, Into::into)));
        }
    }
}

/// New records of one write by their token: place among them, and the record.
type Fresh<'t> = HashMap<RecordToken, (usize, &'t Prepared)>;

impl Shared {
    /// Decides what is new. The frames of earlier writes are all in the index.
    pub(crate) fn decide(
        &self,
        chain: &mut Chain,
        tickets: Vec<Arc<Ticket>>,
        lane: &mut dyn Commit,
    ) -> Result<Decided, Cause> {
        let records = || tickets.iter().flat_map(|t| t.records());
        let tokens: Vec<RecordToken> = records().filter_map(|r| r.token).collect();
        // A turn for a checkpoint alone has no records; without an index there are no tokens.
        if tokens.is_empty() || tokens.len() < records().count() {
            return Ok(all_new(tickets));
        }
        let found = match self.index().find_records(&tokens) {
            Ok(found) => found,
            Err(_) => {
                self.rebuild_index(chain, lane)?;
                self.index().find_records(&tokens)?
            }
        };
        if tokens.len() == 1 && found == [None] {
            return Ok(all_new(tickets));
        }
        let mut decided = Decided::default();
        let mut fresh = Fresh::with_capacity(tokens.len());
        let mut at = 0;
        for ticket in &tickets {
            let n = ticket.records().len();
            let found = found.get(at..at + n).unwrap_or_default();
            at += n;
            let before = decided.new;
            match self.decide_one(chain, ticket, found, &mut fresh, &mut decided.new, lane)? {
                Ok(fates) => decided.served.push(Served {
                    ticket: ticket.clone(),
                    fates,
                }),
                Err(refusal) => {
                    fresh.retain(|_, (place, _)| *place < before);
                    decided.new = before;
                    decided.refused.push((ticket.clone(), refusal));
                }
            }
        }
        Ok(decided)
    }

    fn decide_one<'t>(
        &self,
        chain: &mut Chain,
        ticket: &'t Ticket,
        found: &[Option<FoundRecord>],
        fresh: &mut Fresh<'t>,
        new: &mut usize,
        lane: &mut dyn Commit,
    ) -> Result<Result<Option<Vec<Fate>>, Refusal>, Cause> {
        let mut fates = Vec::with_capacity(ticket.records().len());
        for (index, (record, found)) in ticket.records().iter().zip(found).enumerate() {
            let fate = match found {
                Some(found) => match self.before(chain, index, record, found, lane)? {
                    Ok(before) => Fate::Before(before),
                    Err(error) => return Ok(Err(error.into())),
                },
                None => match record.token.map(|token| fresh.entry(token)) {
                    Some(Entry::Occupied(first)) => {
                        let (place, other) = first.get();
                        if other.canonical() != record.canonical() {
                            let first_seq = Seq(chain.tip.next.0 + *place as u64);
                            return Ok(Err(conflict(index, record, first_seq).into()));
                        }
                        Fate::Within(*place)
                    }
                    vacant => {
                        // Its raw body was left unsealed for a record that is not there after all.
                        if record.unsealed {
                            return Ok(Err(Refusal::SegmentChanged));
                        }
                        if let Some(Entry::Vacant(vacant)) = vacant {
                            vacant.insert((*new, record));
                        }
                        *new += 1;
                        Fate::New
                    }
                },
            };
            fates.push(fate);
        }
        let all_new = fates.iter().all(|fate| matches!(fate, Fate::New));
        Ok(Ok((!all_new).then_some(fates)))
    }

    /// The answer for a record whose id the index has.
    fn before(
        &self,
        chain: &mut Chain,
        index: usize,
        record: &Prepared,
        found: &FoundRecord,
        lane: &mut dyn Commit,
    ) -> Result<Result<Acknowledged, AppendError>, Cause> {
        // A receipt names the generation in which the frame was appended (section 17).
        let in_force = chain.signers.origin.clone();
        let acknowledged = |generation, link, appended_at| Acknowledged {
            origin: in_force.with_generation(generation).to_string().into(),
            seq: found.seq,
            link,
            appended_at,
            record_id: record.record_id.clone(),
            duplicate: true,
            note: None,
        };
        if let (Some((link, at)), Some(segment)) = (chain.tip.recent.get(found.seq), &chain.segment)
        {
            let digest = segment.digest_key.record_digest(record.canonical());
            return Ok(if digest.0 == found.digest {
                Ok(acknowledged(chain.signers.generation(), link, at))
            } else {
                Err(conflict(index, record, found.seq))
            });
        }
        lane.settle();
        let earlier = match chain.earlier.read(&self.places, found.seq) {
            Ok(earlier) if earlier.record_id == record.record_id => earlier,
            Ok(_) => {
                return Ok(Err(unreadable(
                    index,
                    record,
                    found.seq,
                    &"it holds another record",
                )));
            }
            Err(why) => return Ok(Err(unreadable(index, record, found.seq, &why))),
        };
        let digest = chain.earlier.digest_in(earlier.segment, record.canonical());
        Ok(if digest == Some(earlier.digest) {
            let Earlier {
                generation,
                link,
                appended_at,
                ..
            } = earlier;
            Ok(acknowledged(generation, link, appended_at))
        } else {
            Err(conflict(index, record, found.seq))
        })
    }
}

fn all_new(tickets: Vec<Arc<Ticket>>) -> Decided {
    Decided {
        new: tickets.iter().map(|t| t.records().len()).sum(),
        served: tickets
            .into_iter()
            .map(|ticket| Served {
                ticket,
                fates: None,
            })
            .collect(),
        refused: Vec::new(),
    }
}

fn conflict(index: usize, record: &Prepared, first_seq: Seq) -> AppendError {
    AppendError::Conflict {
        index,
        record_id: record.record_id.clone(),
        first_seq,
    }
}

fn unreadable(
    index: usize,
    record: &Prepared,
    seq: Seq,
    why: &dyn std::fmt::Display,
) -> AppendError {
    AppendError::Unreadable {
        index,
        record_id: record.record_id.clone(),
        seq,
        why: why.to_string(),
    }
}
