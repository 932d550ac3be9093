//! Median and spread of a few rounds. Not a statistics library: no means, no outlier removal.

use anyhow::{Result, ensure};
use serde::Serialize;

/// What several rounds of one measurement came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Stats {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// In the order of the rounds.
    pub(crate) values: Vec<f64>,
}

impl Stats {
    /// # Errors
    /// Without values, or with one that is no number: nothing was measured then.
    pub(crate) fn of(values: Vec<f64>) -> Result<Self> {
        ensure!(!values.is_empty(), "no round was measured");
        ensure!(
            values.iter().all(|value| value.is_finite()),
            "a round measured nothing: {values:?}"
        );
        let mut sorted = values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Ok(Self {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            values,
        })
    }

    /// Ratios of rounds that stood beside each other in time; the median is taken of them, so that
    /// a machine that slows down in between slows down both.
    pub(crate) fn ratio(measured: &Self, peer: &Self) -> Result<Self> {
        ensure!(
            measured.values.len() == peer.values.len(),
            "{} rounds against {}",
            measured.values.len(),
            peer.values.len()
        );
        let pairs = measured.values.iter().zip(&peer.values);
        Self::of(pairs.map(|(a, b)| a / b).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_the_rounds_keep_their_order() {
        let odd = Stats::of(vec![9.0, 1.0, 5.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (5.0, 1.0, 9.0));
        assert_eq!(odd.values, [9.0, 1.0, 5.0]);
        let even = Stats::of(vec![4.0, 1.0, 2.0, 100.0]).unwrap();
        assert_eq!((even.median, even.min, even.max), (3.0, 1.0, 100.0));
        assert_eq!(Stats::of(vec![7.0]).unwrap().median, 7.0);
    }

    #[test]
    fn what_was_not_measured_is_an_error() {
        assert!(Stats::of(Vec::new()).is_err());
        assert!(Stats::of(vec![1.0, f64::NAN]).is_err());
        let (one, none) = (Stats::of(vec![1.0]).unwrap(), Stats::of(vec![0.0]).unwrap());
        assert!(Stats::ratio(&one, &none).is_err());
        let two = Stats::of(vec![1.0, 2.0]).unwrap();
        assert!(Stats::ratio(&one, &two).is_err());
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine halves its speed in the last round: the ratio must not see it.
        let measured = Stats::of(vec![10.0, 12.0, 5.0]).unwrap();
        let peer = Stats::of(vec![10.0, 10.0, 5.0]).unwrap();
        let ratio = Stats::ratio(&measured, &peer).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (1.0, 1.0, 1.2));
    }
}
