//! Rows of the report, how they are judged and printed. Plain ASCII.

use serde::Serialize;

use super::stats::Stats;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    PerSecond,
    Seconds,
    MiB,
}

/// What the ratio, or the value where there is no peer, should be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast {
        bound: f64,
        aim: f64,
    },
    AtMost {
        bound: f64,
        aim: f64,
    },
    /// Shown, not judged.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The aim is reached.
    Aim,
    /// Within the bound.
    Pass,
    /// Worse than a lower bound allows.
    Below,
    /// Worse than an upper bound allows.
    Above,
    NotJudged,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Aim => "pass, aim",
            Self::Pass => "pass",
            Self::Below => "BELOW",
            Self::Above => "ABOVE",
            Self::NotJudged => "-",
        }
    }
}

impl Bound {
    fn judge(self, value: f64) -> Verdict {
        match self {
            Self::AtLeast { aim, .. } if value >= aim => Verdict::Aim,
            Self::AtLeast { bound, .. } if value >= bound => Verdict::Pass,
            Self::AtLeast { .. } => Verdict::Below,
            Self::AtMost { aim, .. } if value <= aim => Verdict::Aim,
            Self::AtMost { bound, .. } if value <= bound => Verdict::Pass,
            Self::AtMost { .. } => Verdict::Above,
            Self::None => Verdict::NotJudged,
        }
    }

    fn texts(self) -> (String, String) {
        match self {
            Self::AtLeast { bound, aim } => (format!(">= {bound}"), aim.to_string()),
            Self::AtMost { bound, aim } => (format!("<= {bound}"), aim.to_string()),
            Self::None => ("-".into(), "-".into()),
        }
    }
}

/// One measurement, against a peer or for itself.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) measured: Stats,
    /// Name of the peer, its values, and measured to peer round by round.
    pub(crate) against: Option<Against>,
    pub(crate) bound: Bound,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Against {
    pub(crate) name: String,
    pub(crate) peer: Stats,
    pub(crate) ratio: Stats,
}

impl Row {
    /// A row whose ratio to a peer is judged.
    ///
    /// # Errors
    /// As [`Stats::of`].
    pub(crate) fn against(
        name: impl Into<String>,
        unit: Unit,
        measured: Vec<f64>,
        (peer_name, peer): (&str, Vec<f64>),
        bound: Bound,
    ) -> anyhow::Result<Self> {
        let (measured, peer) = (Stats::of(measured)?, Stats::of(peer)?);
        let ratio = Stats::ratio(&measured, &peer)?;
        Ok(Self {
            name: name.into(),
            unit,
            measured,
            verdict: bound.judge(ratio.median),
            against: Some(Against {
                name: peer_name.into(),
                peer,
                ratio,
            }),
            bound,
        })
    }

    /// A row whose value is judged; the worst round counts.
    ///
    /// # Errors
    /// As [`Stats::of`].
    pub(crate) fn alone(
        name: impl Into<String>,
        unit: Unit,
        measured: Vec<f64>,
        bound: Bound,
    ) -> anyhow::Result<Self> {
        let measured = Stats::of(measured)?;
        let worst = match bound {
            Bound::AtLeast { .. } => measured.min,
            Bound::AtMost { .. } | Bound::None => measured.max,
        };
        Ok(Self {
            name: name.into(),
            unit,
            verdict: bound.judge(worst),
            measured,
            against: None,
            bound,
        })
    }

    fn cells(&self) -> [String; 8] {
        let (bound, aim) = self.bound.texts();
        let dash = || "-".to_owned();
        let (against, peer, ratio) = self.against.as_ref().map_or_else(
            || (dash(), dash(), dash()),
            |against| {
                (
                    against.name.clone(),
                    spread(&against.peer, |value| number(value, self.unit)),
                    spread(&against.ratio, |value| significant(value).to_string()),
                )
            },
        );
        let measured = spread(&self.measured, |value| number(value, self.unit));
        [
            self.name.clone(),
            measured,
            against,
            peer,
            ratio,
            bound,
            aim,
            self.verdict.word().to_owned(),
        ]
    }
}

const HEADINGS: [&str; 8] = [
    "measured", "ledger", "against", "peer", "ratio", "bound", "aim", "verdict",
];

/// The table, one line a row.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| lines.iter().map(|cells| cells[column].len()).max())
        .map(Option::unwrap_or_default)
        .collect();
    let rule = widths
        .iter()
        .map(|width| "-".repeat(*width))
        .collect::<Vec<_>>()
        .join("  ");
    let mut text = String::new();
    for (index, cells) in lines.iter().enumerate() {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
        if index == 0 {
            text.push_str(&rule);
            text.push('\n');
        }
    }
    text
}

/// `median (min..max)`; the median alone where there was one round.
pub(crate) fn spread(stats: &Stats, show: impl Fn(f64) -> String) -> String {
    if stats.values.len() == 1 {
        return show(stats.median);
    }
    format!(
        "{} ({}..{})",
        show(stats.median),
        show(stats.min),
        show(stats.max)
    )
}

/// Three significant digits with the unit.
pub(crate) fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond if value >= 999_500.0 => format!("{} M/s", significant(value / 1e6)),
        Unit::PerSecond if value >= 999.5 => format!("{} k/s", significant(value / 1e3)),
        Unit::PerSecond => format!("{} /s", significant(value)),
        Unit::Seconds if value >= 0.9995 => format!("{} s", significant(value)),
        Unit::Seconds if value >= 0.000_999_5 => format!("{} ms", significant(value * 1e3)),
        Unit::Seconds => format!("{} us", significant(value * 1e6)),
        Unit::MiB => format!("{} MiB", significant(value)),
    }
}

/// Three significant digits, never in scientific notation.
pub(crate) fn significant(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = if magnitude >= 99.95 {
        0
    } else if magnitude >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Bound = Bound::AtLeast {
        bound: 0.75,
        aim: 0.9,
    };
    const MOST: Bound = Bound::AtMost {
        bound: 1.5,
        aim: 1.1,
    };

    #[test]
    fn bounds_include_their_edge() {
        assert_eq!(LEAST.judge(0.9), Verdict::Aim);
        assert_eq!(LEAST.judge(0.75), Verdict::Pass);
        assert_eq!(LEAST.judge(0.749), Verdict::Below);
        assert_eq!(MOST.judge(1.1), Verdict::Aim);
        assert_eq!(MOST.judge(1.5), Verdict::Pass);
        assert_eq!(MOST.judge(1.501), Verdict::Above);
        assert_eq!(Bound::None.judge(1e9), Verdict::NotJudged);
    }

    #[test]
    fn the_ratio_is_judged_by_its_median_and_a_value_by_its_worst_round() {
        let peer = ("peer", vec![10.0, 10.0, 10.0]);
        let rates = vec![9.0, 8.0, 1.0];
        let row = Row::against("a", Unit::PerSecond, rates, peer, LEAST).unwrap();
        assert_eq!(row.verdict, Verdict::Pass);
        assert_eq!(row.against.unwrap().ratio.median, 0.8);
        let row = Row::alone("b", Unit::MiB, vec![1.0, 1.6, 1.0], MOST).unwrap();
        assert_eq!(row.verdict, Verdict::Above);
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let shown = |value| number(value, Unit::PerSecond);
        assert_eq!(shown(0.5), "0.50 /s");
        assert_eq!(shown(999.4), "999 /s");
        assert_eq!(shown(999.6), "1.00 k/s");
        assert_eq!(shown(12_345.0), "12.3 k/s");
        assert_eq!(shown(999_600.0), "1.00 M/s");
        assert_eq!(number(0.000_25, Unit::Seconds), "250 us");
        assert_eq!(number(0.0123, Unit::Seconds), "12.3 ms");
        assert_eq!(number(61.0, Unit::Seconds), "61.0 s");
        assert_eq!(number(31.44, Unit::MiB), "31.4 MiB");
        assert_eq!(significant(9.996), "10.0");
        assert_eq!(significant(99.96), "100");
    }

    #[test]
    fn columns_line_up_and_all_is_ascii() {
        let peer = ("fdatasync", vec![1_000.0, 2_000.0, 4_000.0]);
        let rates = vec![900.0, 1_900.0, 3_900.0];
        let rows = [
            Row::against("append", Unit::PerSecond, rates, peer, LEAST).unwrap(),
            Row::alone("memory", Unit::MiB, vec![20.0], Bound::None).unwrap(),
        ];
        let text = render(&rows);
        assert!(text.is_ascii());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        let column = lines[0].find("against").unwrap();
        assert!(lines[2][column..].starts_with("fdatasync"), "{text}");
        assert!(lines[3][column..].starts_with('-'), "{text}");
        assert!(lines[2].contains("1.90 k/s (900 /s..3.90 k/s)"), "{text}");
        assert!(lines[2].contains("0.95 (0.90..0.97)"), "{text}");
        assert!(lines[2].ends_with(">= 0.75  0.9  pass, aim"), "{text}");
        assert!(lines[3].contains("20.0 MiB"), "{text}");
    }
}
