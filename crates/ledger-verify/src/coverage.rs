//! Which bytes of a file are accounted for: half-open ranges that merge as they come.
//!
//! Only arithmetic. What the ranges mean, and what a gap or a meeting means, is in `payloads`.

use std::collections::BTreeMap;

/// More separate ranges than this at one time are refused: bounds memory. A close lists at most
/// 4,096 gaps for a file, so a ledger in order stays far below.
const RANGES_MAX: usize = 1 << 20;

/// Why a range was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// It meets a range that is there already.
    Meets,
    /// There are [`RANGES_MAX`] ranges.
    TooMany,
}

/// Ranges that do not touch each other, by their start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    ends: BTreeMap<u64, u64>,
}

impl Coverage {
    /// Whether any byte of the range is covered.
    pub(crate) fn meets(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        let before = self.ends.range(..end).next_back();
        length > 0 && before.is_some_and(|(_, covered_to)| *covered_to > offset)
    }

    /// Adds a range of which no byte may be covered yet.
    pub(crate) fn declare(&mut self, offset: u64, length: u64) -> Result<(), Refused> {
        if self.meets(offset, length) {
            return Err(Refused::Meets);
        }
        if self.ends.len() >= RANGES_MAX {
            return Err(Refused::TooMany);
        }
        self.cover(offset, length);
        Ok(())
    }

    /// Adds a range, covered or not.
    pub(crate) fn cover(&mut self, offset: u64, length: u64) {
        let (mut start, mut end) = (offset, offset.saturating_add(length));
        // Every range that meets or touches the new one becomes part of it.
        while let Some((s, e)) = self.ends.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if e < start {
                break;
            }
            self.ends.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ends.insert(start, end);
    }

    /// Forgets everything from `at` on.
    pub(crate) fn cut(&mut self, at: u64) {
        self.ends.split_off(&at);
        if let Some(mut last) = self.ends.last_entry() {
            let end = last.get_mut();
            *end = at.min(*end);
        }
    }

    /// Ranges `(start, end)` in `[from, to)` that are not covered, ascending.
    pub(crate) fn gaps(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = from;
        let borders = self.ends.iter().map(|(s, e)| (*s, *e));
        borders
            .chain([(to, to)])
            .map(move |(start, end)| {
                let gap = (at, start.min(to));
                at = at.max(end);
                gap
            })
            .filter(|(start, end)| start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn touching_ranges_are_one_and_meeting_ones_are_refused() {
        let mut c = Coverage::default();
        assert_eq!(c.declare(100, 50), Ok(()));
        assert_eq!(c.declare(19, 81), Ok(()));
        assert_eq!(c.ends.len(), 1);
        for (offset, length) in [(149, 1), (0, 20), (0, 1000), (50, 10), (19, 131)] {
            assert_eq!(
                c.declare(offset, length),
                Err(Refused::Meets),
                "{offset} {length}"
            );
        }
        assert_eq!(c.declare(200, 10), Ok(()));
        assert_eq!(
            c.gaps(19, 300).collect::<Vec<_>>(),
            [(150, 200), (210, 300)]
        );
        c.cut(205);
        assert_eq!(
            c.gaps(0, 210).collect::<Vec<_>>(),
            [(0, 19), (150, 200), (205, 210)]
        );
        c.cut(120);
        assert_eq!(c.gaps(19, 130).collect::<Vec<_>>(), [(120, 130)]);
    }

    #[test]
    fn the_end_of_the_numbers_is_no_trap() {
        let mut c = Coverage::default();
        assert_eq!(c.declare(u64::MAX - 16, 16), Ok(()));
        assert_eq!(c.declare(u64::MAX - 1, 1), Err(Refused::Meets));
        assert_eq!(c.gaps(19, 20).collect::<Vec<_>>(), [(19, 20)]);
    }

    proptest! {
        #[test]
        fn as_a_row_of_marked_bytes(ranges in prop::collection::vec((0_u64..60, 1_u64..12, any::<bool>()), 0..20), cut in 0_u64..80) {
            let mut c = Coverage::default();
            let mut marked = [false; 80];
            for (offset, length, forced) in ranges {
                let bytes = &mut marked[offset as usize..(offset + length) as usize];
                let met = bytes.iter().any(|b| *b);
                prop_assert_eq!(c.meets(offset, length), met);
                if forced {
                    c.cover(offset, length);
                } else {
                    prop_assert_eq!(c.declare(offset, length).is_err(), met);
                }
                if forced || !met {
                    bytes.fill(true);
                }
            }
            c.cut(cut);
            marked[cut as usize..].fill(false);
            let mut free = [false; 80];
            let mut end_before = None;
            for (start, end) in c.gaps(5, 80) {
                prop_assert!(start < end && end_before.is_none_or(|e| e < start));
                end_before = Some(end);
                free[start as usize..end as usize].fill(true);
            }
            for (at, (free, marked)) in free.iter().zip(marked).enumerate() {
                prop_assert_eq!(*free, at >= 5 && !marked, "byte {}", at);
            }
        }
    }
}
