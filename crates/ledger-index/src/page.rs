//! The payload of a page: sorted groups, each a key and the ascending frames it leads to.
//!
//! ```text
//! u16 groups | u64 base | groups x key | groups x u16 end of its list | lists
//! list: LEB128 of (first seq - base), then LEB128 of each step
//! ```
//!
//! All big-endian. A common value costs a byte or two a frame, not a key. A group may go on in the next page.
//! The tag behind the payload is the caller's; a payload is read only when its tag holds, and even so nothing
//! here trusts it.

use crate::entry::Entry;

/// What fits into one SQLite page of 16 KiB without an overflow page, tag included, bytes.
pub(crate) const BLOB_LEN_MAX: usize = 16_320;
/// The tag behind every payload, bytes.
pub(crate) const TAG_LEN: usize = 16;
/// Greatest payload, bytes.
pub(crate) const PAYLOAD_LEN_MAX: usize = BLOB_LEN_MAX - TAG_LEN;

const HEADER_LEN: usize = 2 + 8;
const END_LEN: usize = 2;

// Offsets within a page are u16.
const _: () = assert!(PAYLOAD_LEN_MAX <= u16::MAX as usize);

/// Gathers sorted entries until the page is full.
pub(crate) struct PageBuilder<const W: usize> {
    base: u64,
    keys: Vec<u8>,
    ends: Vec<u16>,
    lists: Vec<u8>,
    first: Option<Entry<W>>,
    last: Option<Entry<W>>,
}

impl<const W: usize> PageBuilder<W> {
    /// `base`: at most every frame number that follows.
    pub(crate) fn new(base: u64) -> Self {
        Self {
            base,
            keys: Vec::new(),
            ends: Vec::new(),
            lists: Vec::new(),
            first: None,
            last: None,
        }
    }

    /// The first entry, if there is one.
    pub(crate) fn first(&self) -> Option<&Entry<W>> {
        self.first.as_ref()
    }

    /// Adds an entry above the last one; the same again is left out. False when the page is full.
    pub(crate) fn push(&mut self, entry: &Entry<W>) -> bool {
        let same_group = match &self.last {
            Some(last) if last == entry => return true,
            Some(last) => last.same_key(entry),
            None => false,
        };
        let before = match &self.last {
            Some(last) if same_group => last.seq,
            _ => self.base,
        };
        let mut varint = [0; 10];
        let varint = encode(entry.seq.saturating_sub(before), &mut varint);
        let more = varint.len() + if same_group { 0 } else { W + END_LEN };
        if self.payload_len() + more > PAYLOAD_LEN_MAX {
            return false;
        }
        self.lists.extend_from_slice(varint);
        // At most PAYLOAD_LEN_MAX, so it fits.
        let end = u16::try_from(self.lists.len()).unwrap_or(u16::MAX);
        match self.ends.last_mut() {
            Some(last) if same_group => *last = end,
            _ => {
                self.keys.extend_from_slice(&entry.key);
                self.ends.push(end);
            }
        }
        self.first.get_or_insert(*entry);
        self.last = Some(*entry);
        true
    }

    fn payload_len(&self) -> usize {
        HEADER_LEN + self.keys.len() + self.ends.len() * END_LEN + self.lists.len()
    }

    /// Appends the payload to `out` and begins an empty page.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        let groups = u16::try_from(self.ends.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&groups.to_be_bytes());
        out.extend_from_slice(&self.base.to_be_bytes());
        out.extend_from_slice(&self.keys);
        self.ends
            .iter()
            .for_each(|end| out.extend_from_slice(&end.to_be_bytes()));
        out.extend_from_slice(&self.lists);
        self.keys.clear();
        self.ends.clear();
        self.lists.clear();
        (self.first, self.last) = (None, None);
    }
}

/// A payload that was read, its structure checked.
pub(crate) struct Page<const W: usize> {
    payload: Vec<u8>,
    groups: usize,
    base: u64,
}

impl<const W: usize> Page<W> {
    /// None when the bytes are no page.
    pub(crate) fn parse(payload: Vec<u8>) -> Option<Self> {
        let groups = usize::from(u16::from_be_bytes(*payload.first_chunk()?));
        let base = u64::from_be_bytes(*payload.get(2..)?.first_chunk()?);
        let page = Self {
            payload,
            groups,
            base,
        };
        let lists_len = page.payload.len().checked_sub(page.lists_start())?;
        let mut before = 0;
        for group in 0..groups {
            let end = page.end(group)?;
            // No list is empty.
            if end <= before || end > lists_len {
                return None;
            }
            before = end;
        }
        (groups > 0 && before == lists_len).then_some(page)
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    fn lists_start(&self) -> usize {
        HEADER_LEN + self.groups * (W + END_LEN)
    }

    fn end(&self, group: usize) -> Option<usize> {
        let at = HEADER_LEN + self.groups * W + group * END_LEN;
        let bytes = self.payload.get(at..)?.first_chunk()?;
        Some(usize::from(u16::from_be_bytes(*bytes)))
    }

    /// The key of a group.
    pub(crate) fn key(&self, group: usize) -> Option<[u8; W]> {
        if group >= self.groups {
            return None;
        }
        let at = HEADER_LEN + group * W;
        self.payload.get(at..)?.first_chunk().copied()
    }

    /// The first group whose key is at least this one; `groups()` when there is none.
    pub(crate) fn lower_bound(&self, key: &[u8; W]) -> usize {
        let (mut low, mut high) = (0, self.groups);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle) {
                Some(found) if found < *key => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The frames of a group, ascending. What does not decode ends the list.
    pub(crate) fn list(&self, group: usize) -> List<'_> {
        let start = self.lists_start();
        let from = match group.checked_sub(1) {
            Some(before) => self.end(before),
            None => Some(0),
        };
        let bytes = match (from, self.end(group)) {
            (Some(from), Some(to)) if group < self.groups => {
                self.payload.get(start + from..start + to)
            }
            _ => None,
        };
        List {
            bytes: bytes.unwrap_or(&[]),
            before: self.base,
        }
    }
}

/// The frames of one group.
pub(crate) struct List<'a> {
    bytes: &'a [u8],
    before: u64,
}

impl List<'_> {
    /// How much of the list is left, bytes.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a> List<'a> {
    /// Goes on where an earlier list stood: `remaining` bytes before its end, behind the frame `before`.
    pub(crate) fn resume(mut self, remaining: usize, before: u64) -> List<'a> {
        if let Some(skip) = self.bytes.len().checked_sub(remaining)
            && skip > 0
        {
            self.bytes = self.bytes.get(skip..).unwrap_or(&[]);
            self.before = before;
        }
        self
    }
}

impl Iterator for List<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let step = decode(&mut self.bytes)?;
        self.before = self.before.checked_add(step)?;
        Some(self.before)
    }
}

fn encode(mut value: u64, out: &mut [u8; 10]) -> &[u8] {
    let mut len = 0;
    for byte in out.iter_mut() {
        len += 1;
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    &out[..len]
}

fn decode(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(key: u8, seq: u64) -> Entry<20> {
        Entry {
            key: [key; 20],
            seq,
        }
    }

    fn built(entries: &[Entry<20>]) -> (Page<20>, usize) {
        let mut builder = PageBuilder::new(5);
        let taken = entries.iter().take_while(|e| builder.push(e)).count();
        let mut payload = Vec::new();
        builder.take(&mut payload);
        assert!(payload.len() <= PAYLOAD_LEN_MAX);
        (Page::parse(payload).unwrap(), taken)
    }

    fn read(page: &Page<20>) -> Vec<Entry<20>> {
        (0..page.groups())
            .flat_map(|group| {
                let key = page.key(group).unwrap();
                page.list(group).map(move |seq| Entry { key, seq })
            })
            .collect()
    }

    #[test]
    fn a_common_key_fills_a_page_with_steps_only() {
        let entries: Vec<_> = (5..40_000).map(|seq| entry(1, seq)).collect();
        let (page, taken) = built(&entries);
        assert!(taken > 16_000);
        assert_eq!(read(&page), entries[..taken]);
    }

    #[test]
    fn a_list_goes_on_where_it_stood() {
        let entries: Vec<_> = [5, 6, 300, 70_000].map(|seq| entry(1, seq)).to_vec();
        let (page, _) = built(&entries);
        let (mut list, mut found) = (page.list(0), Vec::new());
        while let Some(seq) = list.next() {
            found.push(seq);
            list = page.list(0).resume(list.remaining(), seq);
        }
        assert_eq!(found, [5, 6, 300, 70_000]);
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_read(raw in proptest::collection::btree_set((0_u8..40, 5_u64..1 << 40), 1..1500)) {
            let entries: Vec<_> = raw.into_iter().map(|(key, seq)| entry(key, seq)).collect();
            let (page, taken) = built(&entries);
            prop_assert_eq!(&read(&page)[..], &entries[..taken]);
            for key in 0..41 {
                let expected = (0..page.groups()).find(|g| page.key(*g).unwrap() >= [key; 20]);
                prop_assert_eq!(page.lower_bound(&[key; 20]), expected.unwrap_or(page.groups()));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = 0;
            }
            if let Some(page) = Page::<20>::parse(bytes) {
                read(&page);
                page.list(page.groups()).for_each(drop);
            }
        }
    }
}
