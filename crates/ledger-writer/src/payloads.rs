//! Payload files of the open segment: sealed raw bodies outside the chain (section 13).
//!
//! A body is sealed and synced here, by the thread that brings it, before its request queues. What
//! is sealed and then not declared by a frame is listed as unused when the segment closes.

use crate::durable::{DataFile, DiskError, Folder};
use crate::error::{Cause, Damage};
use crate::places::payloads_name;
use crate::scan::DeclaredPayload;
use ledger_format::{ByteOffset, ClosedPayloads, PAYLOADS_MAGIC, PayloadRef, Seq};
use ledger_vault::{PayloadKey, RetentionClass, SaltSource, body_sealed_len};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sealed and synced raw body, not yet declared by a frame.
#[derive(Clone, Debug)]
pub(crate) struct SealedPayload {
    pub(crate) segment: Seq,
    pub(crate) class: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) salt: [u8; 16],
    pub(crate) hash: [u8; 32],
}

impl SealedPayload {
    pub(crate) fn as_ref(&self) -> PayloadRef<'_> {
        PayloadRef {
            class: &self.class,
            offset: self.offset,
            length: self.length,
            salt: &self.salt,
            hash: &self.hash,
        }
    }
}

/// What became of a raw body.
#[derive(Debug)]
pub(crate) enum Sealing {
    /// It is on the disk.
    Done(SealedPayload),
    /// The class has no key in this segment.
    NoKey,
    /// The segment has closed: its close says how long its files are, and nothing may be added.
    Closed,
}

/// One class' file: how far it is allotted and what frames declared.
#[derive(Debug)]
struct ClassFile {
    file: Arc<DataFile>,
    allotted: u64,
    /// Messages sealed so far, declared or not.
    sealed: usize,
    declared: Vec<(u64, u64)>,
}

/// The payload files of one open segment.
#[derive(Debug)]
pub(crate) struct PayloadStore {
    segment: Seq,
    keys: BTreeMap<RetentionClass, PayloadKey>,
    /// None once the segment closes.
    files: Mutex<Option<BTreeMap<String, ClassFile>>>,
}

impl PayloadStore {
    pub(crate) fn new(segment: Seq, keys: BTreeMap<RetentionClass, PayloadKey>) -> Self {
        Self {
            segment,
            keys,
            files: Mutex::new(Some(BTreeMap::new())),
        }
    }

    /// Seals a raw body into its class' file and syncs it.
    pub(crate) fn seal(&self, folder: &Folder, class: &str, raw: &[u8]) -> Result<Sealing, Cause> {
        let Some((_, key)) = self.keys.iter().find(|(c, _)| c.as_str() == class) else {
            return Ok(Sealing::NoKey);
        };
        let length = body_sealed_len(raw.len())? as u64;
        let Some((file, offset)) = self.allot(folder, class, length)? else {
            return Ok(Sealing::Closed);
        };
        let salt = SaltSource::fresh()?.payload_salt(ByteOffset(offset), raw);
        let mut message = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        key.seal_payload(ByteOffset(offset), &salt, raw, &mut message)?;
        assert_eq!(
            message.len() as u64,
            length,
            "allotted length of a sealed payload"
        );
        file.write_at(&message, offset)?;
        file.sync()?;
        Ok(Sealing::Done(SealedPayload {
            segment: self.segment,
            class: class.to_owned(),
            offset,
            length,
            salt: salt.0,
            hash: *blake3::hash(&message).as_bytes(),
        }))
    }

    /// Reserves a range of the class' file, which is made when absent. None once the segment closes:
    /// what was reserved before is part of the length that the close names.
    fn allot(
        &self,
        folder: &Folder,
        class: &str,
        length: u64,
    ) -> Result<Option<(Arc<DataFile>, u64)>, DiskError> {
        let mut files = self.files.lock();
        let Some(files) = files.as_mut() else {
            return Ok(None);
        };
        if !files.contains_key(class) {
            let file = folder.create(&payloads_name(self.segment, class))?;
            file.write_at(PAYLOADS_MAGIC, 0)?;
            file.sync()?;
            folder.sync()?;
            let fresh = ClassFile {
                file: Arc::new(file),
                allotted: PAYLOADS_MAGIC.len() as u64,
                sealed: 0,
                declared: Vec::new(),
            };
            files.insert(class.to_owned(), fresh);
        }
        let entry = files
            .get_mut(class)
            .unwrap_or_else(|| unreachable!("inserted above"));
        let offset = entry.allotted;
        entry.allotted += length;
        entry.sealed += 1;
        Ok(Some((entry.file.clone(), offset)))
    }

    /// Notes that a frame declares this payload.
    pub(crate) fn declare(&self, payload: &SealedPayload) {
        let mut files = self.files.lock();
        if let Some(entry) = files.as_mut().and_then(|f| f.get_mut(&payload.class)) {
            entry.declared.push((payload.offset, payload.length));
        }
    }

    /// Whether any raw body was sealed into this segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.lock().as_ref().is_none_or(BTreeMap::is_empty)
    }

    /// How many ranges a close might have to list as unused, at most.
    pub(crate) fn undeclared(&self) -> usize {
        self.files
            .lock()
            .iter()
            .flat_map(BTreeMap::values)
            .map(|f| f.sealed - f.declared.len())
            .sum()
    }

    /// Final lengths and unused ranges; sets the files to their lengths, synced. Nothing is reserved
    /// from here on.
    pub(crate) fn close(&self) -> Result<BTreeMap<String, ClosedPayloads>, DiskError> {
        let files = self.files.lock().take().unwrap_or_default();
        let mut closed = BTreeMap::new();
        for (class, entry) in files {
            entry.file.truncate(entry.allotted)?;
            entry.file.sync()?;
            closed.insert(class, closed_payloads(entry.allotted, entry.declared));
        }
        Ok(closed)
    }
}

/// Complement of the declared ranges behind the magic.
fn closed_payloads(file_len: u64, mut declared: Vec<(u64, u64)>) -> ClosedPayloads {
    declared.sort_unstable();
    let mut unused = Vec::new();
    let mut end = PAYLOADS_MAGIC.len() as u64;
    for (offset, length) in declared {
        if offset > end {
            unused.push((end, offset - end));
        }
        end = end.max(offset + length);
    }
    if file_len > end {
        unused.push((end, file_len - end));
    }
    ClosedPayloads { file_len, unused }
}

/// What a close after a crash says of the payload files, from the frames and the files themselves.
///
/// Bytes behind the last declared message are cut: nothing can name them any more.
pub(crate) fn close_after_crash(
    folder: &Folder,
    segment: Seq,
    declared: &[DeclaredPayload],
) -> Result<Result<BTreeMap<String, ClosedPayloads>, Damage>, DiskError> {
    let mut ranges: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for d in declared {
        ranges
            .entry(d.class.clone())
            .or_default()
            .push((d.offset, d.length));
    }
    // A file of which no frame declares anything is listed too, emptied.
    let prefix = format!("{:020}.", segment.0);
    for name in folder.names()? {
        if let Some(class) = name
            .strip_prefix(&prefix)
            .and_then(|n| n.strip_suffix(".payloads"))
        {
            ranges.entry(class.to_owned()).or_default();
        }
    }
    let mut closed = BTreeMap::new();
    for (class, ranges) in ranges {
        let name = payloads_name(segment, &class);
        let declared_end = ranges
            .iter()
            .map(|(o, l)| o + l)
            .max()
            .unwrap_or(0)
            .max(PAYLOADS_MAGIC.len() as u64);
        let file = folder.open_rw(&name)?;
        let found = file.len()?;
        if found < declared_end && !ranges.is_empty() {
            return Ok(Err(Damage::Payload {
                file: name,
                found,
                declared: declared_end,
            }));
        }
        if found < declared_end {
            // Created, and the power went before its first bytes were synced.
            file.write_at(PAYLOADS_MAGIC, 0)?;
        }
        file.truncate(declared_end)?;
        file.sync()?;
        closed.insert(class, closed_payloads(declared_end, ranges));
    }
    Ok(Ok(closed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_is_the_complement() {
        let c = closed_payloads(1000, vec![(500, 100), (19, 81), (100, 50)]);
        assert_eq!(c.unused, [(150, 350), (600, 400)]);
        assert_eq!(closed_payloads(19, vec![]).unused, []);
    }

    #[test]
    fn sealed_bodies_open_and_refused_ones_are_unused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let class = RetentionClass::new("30d").unwrap();
        let key = PayloadKey::generate().unwrap();
        let store = PayloadStore::new(Seq(4), [(class, key)].into());
        let seal = |raw: &[u8]| match store.seal(&folder, "30d", raw).unwrap() {
            Sealing::Done(sealed) => sealed,
            other => panic!("{other:?}"),
        };
        let kept = seal(b"raw body");
        let refused = seal(&[7; 5000]);
        let other = store.seal(&folder, "7d", b"x").unwrap();
        assert!(matches!(other, Sealing::NoKey));
        store.declare(&kept);
        let closed = store.close().unwrap();
        assert_eq!(closed["30d"].unused, [(refused.offset, refused.length)]);
        let bytes = std::fs::read(dir.path().join(payloads_name(Seq(4), "30d"))).unwrap();
        assert_eq!(bytes.len() as u64, closed["30d"].file_len);
        let message = &bytes[kept.offset as usize..(kept.offset + kept.length) as usize];
        assert_eq!(blake3::hash(message).as_bytes(), &kept.hash);
        assert!(!bytes.windows(8).any(|w| w == b"raw body"));
        // A thread that comes late adds nothing behind the length that the close names.
        let late = store.seal(&folder, "30d", b"late").unwrap();
        assert!(matches!(late, Sealing::Closed));
        let path = dir.path().join(payloads_name(Seq(4), "30d"));
        assert_eq!(std::fs::read(path).unwrap(), bytes);
    }
}
