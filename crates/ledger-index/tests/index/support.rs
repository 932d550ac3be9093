//! Records as the tests make them, and what a correct index says of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use ledger_format::{LedgerId, Link, Seq};
use ledger_index::{Covered, FoundRecord, IdentifierParts, Index, IndexError};
use ledger_records::IdKind;
use ledger_vault::{Identities, IndexKey, Recipients};

pub(crate) const LEDGER: LedgerId = LedgerId([7; 32]);
pub(crate) const ALL: Range<Seq> = Seq(0)..Seq(u64::MAX);

/// Makes as many handles of one key as a test needs.
pub(crate) struct Keys {
    identities: Identities,
    file: Vec<u8>,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let identities = Identities::generate();
        let recipients = identities.recipients().unwrap();
        let file = IndexKey::generate()
            .unwrap()
            .wrap(&recipients, &recipients)
            .unwrap();
        Self { identities, file }
    }

    pub(crate) fn key(&self) -> IndexKey {
        IndexKey::unwrap(&self.identities, &self.file).unwrap()
    }

    pub(crate) fn identities(&self) -> &Identities {
        &self.identities
    }

    pub(crate) fn recipients(&self) -> Recipients {
        self.identities.recipients().unwrap()
    }
}

/// The link of the frame before `next`, in the tests' only chain.
pub(crate) fn covered(next: u64) -> Covered {
    let mut link = [0; 32];
    link[..8].copy_from_slice(&next.to_be_bytes());
    Covered {
        next: Seq(next),
        link: Link(link),
    }
}

/// Whether it is of that chain, of so many frames.
pub(crate) fn holds(end: u64) -> impl FnOnce(&Covered) -> bool {
    move |found| found.next.0 <= end && *found == covered(found.next.0)
}

pub(crate) fn open(folder: &Path, keys: &Keys, end: u64) -> Index {
    Index::open(folder, keys.key(), LEDGER, holds(end)).unwrap()
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) kind: IdKind,
    pub(crate) scope: String,
    pub(crate) value: String,
}

impl Id {
    pub(crate) fn new(kind: IdKind, scope: &str, value: impl Into<String>) -> Self {
        Self {
            kind,
            scope: scope.to_owned(),
            value: value.into(),
        }
    }

    pub(crate) fn parts(&self) -> IdentifierParts<'_> {
        IdentifierParts {
            kind: self.kind,
            scope: &self.scope,
            value: &self.value,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TestRecord {
    pub(crate) id: String,
    pub(crate) digest: [u8; 16],
    pub(crate) ids: Vec<Id>,
}

impl TestRecord {
    pub(crate) fn add_to(&self, index: &Index, seq: u64) {
        let ids = self.ids.iter().map(Id::parts);
        index.add_parts(Seq(seq), &self.id, self.digest, ids);
    }
}

/// A correct index.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) records: Vec<TestRecord>,
    values: BTreeMap<String, Vec<u64>>,
    exact: BTreeMap<Id, Vec<u64>>,
    first: BTreeMap<String, (u64, [u8; 16])>,
}

impl Model {
    pub(crate) fn end(&self) -> u64 {
        self.records.len() as u64
    }

    pub(crate) fn add(&mut self, record: TestRecord) {
        let seq = self.end();
        let own = Id::new(IdKind::RecordId, "", record.id.as_str());
        for id in record.ids.iter().chain([&own]) {
            let lists = [
                self.values.entry(id.value.clone()).or_default(),
                self.exact.entry(id.clone()).or_default(),
            ];
            for list in lists {
                if list.last() != Some(&seq) {
                    list.push(seq);
                }
            }
        }
        let first = (seq, record.digest);
        self.first.entry(record.id.clone()).or_insert(first);
        self.records.push(record);
    }

    pub(crate) fn add_from(&self, index: &Index, from: u64) {
        for (seq, record) in self.records.iter().enumerate().skip(from as usize) {
            record.add_to(index, seq as u64);
        }
    }

    /// Asks everything, whole, in part, and what is not there. Panics on a wrong answer.
    pub(crate) fn check(
        &self,
        index: &Index,
        within: Range<u64>,
        limit: usize,
    ) -> Result<(), IndexError> {
        let expected = |list: &[u64]| -> (Vec<Seq>, bool) {
            let inside: Vec<Seq> = list
                .iter()
                .filter(|seq| within.contains(seq))
                .map(|seq| Seq(*seq))
                .collect();
            (
                inside[..inside.len().min(limit)].to_vec(),
                inside.len() > limit,
            )
        };
        let range = || Seq(within.start)..Seq(within.end);
        for (value, list) in &self.values {
            let found = index.lookup_value(value, range(), limit)?;
            assert_eq!((found.seqs, found.more), expected(list), "{value}");
        }
        for (id, list) in &self.exact {
            let found = index.lookup_exact(id.parts(), range(), limit)?;
            assert_eq!((found.seqs, found.more), expected(list), "{id:?}");
            let other = Id::new(id.kind, "elsewhere", id.value.as_str());
            if !self.exact.contains_key(&other) {
                let found = index.lookup_exact(other.parts(), range(), limit)?;
                assert!(found.seqs.is_empty() && !found.more);
            }
        }
        for (id, (seq, digest)) in &self.first {
            let expected = FoundRecord {
                seq: Seq(*seq),
                digest: *digest,
            };
            assert_eq!(index.find_record(id)?, Some(expected));
        }
        assert!(index.find_record("rec_nobody")?.is_none());
        assert!(index.lookup_value("nobody", ALL, 9)?.seqs.is_empty());
        Ok(())
    }
}

/// A story of so many records: a tenant in every one, actions of ten, values that several kinds share.
pub(crate) fn story(records: Range<u64>) -> Vec<TestRecord> {
    records
        .map(|n| TestRecord {
            id: format!("rec_{n}"),
            digest: [n as u8; 16],
            ids: vec![
                Id::new(IdKind::Tenant, "", "acme"),
                Id::new(IdKind::ActionId, "", format!("act_{}", n / 10)),
                Id::new(IdKind::ActionId, "", format!("act_{}", n / 10)),
                Id::new(IdKind::AttemptId, "", format!("out_{}", n / 3)),
                Id::new(
                    IdKind::RemoteOperationId,
                    "buildco",
                    format!("op_{}", n / 5),
                ),
                Id::new(
                    IdKind::ClientReference,
                    "buildco",
                    format!("act_{}", n / 10),
                ),
                Id::new(
                    IdKind::Ticket,
                    if n % 2 == 0 { "a" } else { "b" },
                    format!("{}", n % 50),
                ),
            ],
        })
        .collect()
}
