//! Where blobs lie: a numbered blob a page, and one manifest. What is in them is `section` and `manifest`.
//!
//! Here are the border and the store in memory, for readers that may not write. The file is `sqlite`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::IndexError;

/// Number of a blob: its section, then its place there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BlobId(pub(crate) i64);

/// Bits of a blob's place within its section.
const PLACE_BITS: u32 = 24;
/// Greatest number of sections, ever, in one file.
pub(crate) const SECTIONS_MAX: u64 = 1 << 39;

impl BlobId {
    /// Blob `place` of a section, both within their limits.
    pub(crate) fn new(section: u64, place: u32) -> Self {
        let number = (section.min(SECTIONS_MAX) << PLACE_BITS) | u64::from(place);
        Self(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// The section of a blob; None for a number that is none.
    pub(crate) fn section(self) -> Option<u64> {
        u64::try_from(self.0).ok().map(|id| id >> PLACE_BITS)
    }

    /// Every blob of these sections.
    pub(crate) fn of_sections(sections: Range<u64>) -> Range<Self> {
        Self::new(sections.start, 0)..Self::new(sections.end, 0)
    }
}

/// Reads blobs. Sees what was committed.
pub(crate) trait Reader: Send {
    /// None when there is no such blob.
    fn blob(&mut self, id: BlobId) -> Result<Option<Vec<u8>>, IndexError>;
}

/// Writes blobs and the manifest, in transactions.
pub(crate) trait Writer: Send {
    fn begin(&mut self) -> Result<(), IndexError>;
    fn put(&mut self, id: BlobId, blob: &[u8]) -> Result<(), IndexError>;
    fn put_manifest(&mut self, manifest: &[u8]) -> Result<(), IndexError>;
    fn commit(&mut self) -> Result<(), IndexError>;
    /// Undoes the transaction, if there is one.
    fn rollback(&mut self);
    /// Deletes at most `limit` blobs in a transaction of its own, and says how many.
    fn delete(&mut self, ids: Range<BlobId>, limit: u32) -> Result<usize, IndexError>;
}

/// Blobs in memory. Transactions are not undone: nothing fails here.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(Arc<Mutex<BTreeMap<BlobId, Box<[u8]>>>>);

#[cfg(test)]
impl MemoryStore {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Reader for MemoryStore {
    fn blob(&mut self, id: BlobId) -> Result<Option<Vec<u8>>, IndexError> {
        Ok(self.0.lock().get(&id).map(|blob| blob.to_vec()))
    }
}

impl Writer for MemoryStore {
    fn begin(&mut self) -> Result<(), IndexError> {
        Ok(())
    }

    fn put(&mut self, id: BlobId, blob: &[u8]) -> Result<(), IndexError> {
        self.0.lock().insert(id, blob.into());
        Ok(())
    }

    fn put_manifest(&mut self, _: &[u8]) -> Result<(), IndexError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), IndexError> {
        Ok(())
    }

    fn rollback(&mut self) {}

    fn delete(&mut self, ids: Range<BlobId>, limit: u32) -> Result<usize, IndexError> {
        let mut blobs = self.0.lock();
        let doomed: Vec<BlobId> = blobs
            .range(ids)
            .take(limit as usize)
            .map(|(id, _)| *id)
            .collect();
        doomed.iter().for_each(|id| {
            blobs.remove(id);
        });
        Ok(doomed.len())
    }
}
