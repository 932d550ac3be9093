//! Large batches are read and made ready by two threads. Not for small ones, nor under load: then the
//! other cores have work of their own.

/// Fewer items are done before a second thread would have started.
const TWO_FROM: usize = 48;

/// What `map` makes of each item, in their order; `alone` says that nobody else needs the cores.
pub(crate) fn map_halves<T: Send, R: Send>(
    mut items: Vec<T>,
    alone: bool,
    map: impl Fn(usize, T) -> R + Sync,
) -> Vec<R> {
    let each = |from: usize, items: Vec<T>| -> Vec<R> {
        let numbered = items.into_iter().enumerate();
        numbered.map(|(i, item)| map(from + i, item)).collect()
    };
    if !alone || items.len() < TWO_FROM {
        return each(0, items);
    }
    // The other thread starts a little later.
    let at = items.len().div_ceil(2) + TWO_FROM / 8;
    let behind = items.split_off(at);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| each(at, behind));
        let mut done = each(0, items);
        match other.join() {
            Ok(behind) => done.extend(behind),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_numbers_hold_in_any_split() {
        for len in [0, 1, TWO_FROM - 1, TWO_FROM, 1000] {
            for alone in [false, true] {
                let items: Vec<usize> = (0..len).collect();
                let done = map_halves(items, alone, |at, item| (at, item * 2));
                assert!(done.iter().enumerate().all(|(i, d)| *d == (i, i * 2)));
                assert_eq!(done.len(), len);
            }
        }
    }
}
