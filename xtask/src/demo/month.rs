//! What happens in November 2026, as events in the order of their time: ordinary work, and what goes wrong in it.
//!
//! Not how it is appended: that is `cast`'s.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::story::{BUILD, Event, Judged, Moment, PUBLICATION, Teller, Who, sha256};

/// Stories of an ordinary day.
const STORIES_A_DAY: u64 = 10;
/// When an agent starts many builds at once, and the daemon is killed meanwhile.
pub(super) const BURST_DAY: u64 = 16;
const BURST_STORIES: u64 = 40;

/// How a story goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Plain,
    /// The connection is refused; sent again.
    Retried,
    /// The answer did not come; looked up instead of sent twice.
    Ambiguous,
    /// The same event is delivered twice, byte by byte.
    TwiceDelivered,
    /// Somebody else posts a result first.
    BadSignature,
    /// Called off by a person; then the provider says that it is done.
    LateAfterCancel,
    /// Taken with 202, and failed later.
    FailedPublication,
}

/// A story that the drill shows: its day, its number there, its turn.
pub(super) struct Plot {
    pub(super) day: u64,
    number: u64,
    turn: Turn,
    /// What happened, in a sentence.
    pub(super) told: &'static str,
}

impl Plot {
    /// The story's name, which its ids end with.
    pub(super) fn name(&self) -> String {
        name(self.day, self.number)
    }
}

pub(super) const FORGED: Plot = Plot {
    day: 5,
    number: 3,
    turn: Turn::BadSignature,
    told: "somebody posts a result with a bad signature: kept as evidence, refused as a reason",
};
pub(super) const TWICE: Plot = Plot {
    day: 10,
    number: 4,
    turn: Turn::TwiceDelivered,
    told: "two identical callbacks: both kept, the second one a duplicate of the first",
};
pub(super) const AMBIGUOUS: Plot = Plot {
    day: 12,
    number: 2,
    turn: Turn::Ambiguous,
    told: "no answer in 30 s, so nobody knows whether it arrived: looked up, not sent twice",
};
pub(super) const LATE: Plot = Plot {
    day: 19,
    number: 5,
    turn: Turn::LateAfterCancel,
    told: "cancelled by a person; 41 minutes later a signed callback says that it is done",
};
pub(super) const UNPUBLISHED: Plot = Plot {
    day: 24,
    number: 1,
    turn: Turn::FailedPublication,
    told: "a publication was taken with 202; its callback says that it failed",
};
const PLOTS: [&Plot; 5] = [&FORGED, &TWICE, &AMBIGUOUS, &LATE, &UNPUBLISHED];

fn name(day: u64, number: u64) -> String {
    format!("11{day:02}_{number:02}")
}

/// All of it. The last story is the one of `fixtures/story`, in whose folder it is looked for.
pub(super) fn month(story: &Path) -> Result<Vec<Event>> {
    let mut events = vec![rules()];
    for day in (2..=30).filter(|day| is_workday(*day)) {
        for number in 1..=STORIES_A_DAY {
            let begins = Moment::new(day, 8 + number / 2, number * 37 % 60);
            tell(
                turn(day, number),
                &name(day, number),
                begins,
                number,
                &mut events,
            );
        }
    }
    for number in 1..=BURST_STORIES {
        let begins = Moment::new(BURST_DAY, 14, 30).later(number);
        let name = name(BURST_DAY, 100 + number);
        tell(Turn::Plain, &name, begins, 1, &mut events);
    }
    events.extend(last_story(story)?);
    // Stable: what one story says at the same moment stays in its order.
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// 1 November 2026 is a Sunday.
const fn is_workday(day: u64) -> bool {
    !matches!(day % 7, 0 | 1)
}

fn turn(day: u64, number: u64) -> Turn {
    let plotted = PLOTS
        .iter()
        .find(|plot| (plot.day, plot.number) == (day, number));
    match (plotted, (day * 7 + number) % 13) {
        (Some(plot), _) => plot.turn,
        (None, 3 | 8) => Turn::Retried,
        (None, 5) => Turn::TwiceDelivered,
        (None, _) => Turn::Plain,
    }
}

fn tell(turn: Turn, name: &str, begins: Moment, number: u64, out: &mut Vec<Event>) {
    let publishes =
        turn == Turn::FailedPublication || (turn != Turn::Plain && number.is_multiple_of(3));
    let work = if publishes { &PUBLICATION } else { &BUILD };
    let mut story = Teller::new(work, name, begins, out);
    story.asks();
    match turn {
        Turn::Retried => story.connection_fails(1).is_taken(2),
        Turn::Ambiguous => story.times_out(1).is_looked_up(),
        _ => story.is_taken(1),
    };
    let result = if turn == Turn::FailedPublication {
        "failed"
    } else {
        "succeeded"
    };
    match turn {
        Turn::BadSignature => {
            story
                .wait(30_000)
                .called_back(1, 1, result, Judged::BadSignature)
                .wait(200_000)
                .called_back(2, 2, result, Judged::Accepted)
                .settles(2, "confirmed");
        }
        Turn::LateAfterCancel => {
            story
                .wait(300_000)
                .is_cancelled()
                .wait(41 * 60_000)
                .called_back(1, 1, result, Judged::Accepted)
                .is_kept(
                    1,
                    "late_callback",
                    "the provider went on after the cancellation",
                );
        }
        Turn::FailedPublication => {
            story
                .wait(190_000)
                .called_back(1, 1, result, Judged::Accepted)
                .settles(1, "failed");
        }
        Turn::TwiceDelivered => {
            story
                .wait(240_000)
                .called_back(1, 1, result, Judged::Accepted)
                .settles(1, "confirmed")
                .wait(30_000)
                .called_back(2, 1, result, Judged::DuplicateOf(1));
        }
        Turn::Plain | Turn::Retried | Turn::Ambiguous => {
            story
                .wait(180_000 + number * 9_000)
                .called_back(1, 1, result, Judged::Accepted)
                .settles(1, "confirmed");
        }
    }
}

/// The rules that the month's conclusions cite.
fn rules() -> Event {
    let text = "[[rule]]\nname = \"build.finished\"\nfrom = [\"submitted\", \"unknown\"]\nto = \"confirmed\"\n";
    let record_id = "rec_1102_rules";
    let record = json!({
        "type": "rules", "record_id": record_id, "source": "agent/build", "name": "workflow", "version": "2",
        "text": text, "digest": format!("sha256:{}", sha256(text)), "actor": "oncall@example.com",
        "declared_at": "2026-11-02T07:30:00Z",
    });
    Event {
        at: Moment::new(2, 7, 30),
        who: Who::Builder,
        story: "rules".to_owned(),
        record_id: record_id.to_owned(),
        line: record.to_string(),
    }
}

/// The story of `fixtures/story` up to its open contradiction.
fn last_story(folder: &Path) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for file in [
        "01-agent",
        "02-outbound",
        "03-intake",
        "04-workflow",
        "05-late",
    ] {
        let path = folder.join(format!("{file}.ndjson"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        for line in text.lines() {
            let record: Value = serde_json::from_str(line).context("a record of the story")?;
            let source = record["source"].as_str().unwrap_or_default();
            let who = match source {
                "ledger rules" => Some(Who::Builder),
                source => Who::ALL.into_iter().find(|who| who.source() == source),
            };
            let Some(who) = who else {
                bail!("{}: nobody plays {source:?}", path.display());
            };
            let record_id = record["record_id"].as_str().context("a record_id")?;
            events.push(Event {
                at: Moment::new(30, 14, 3).later(events.len() as u64),
                who,
                story: "act_01".to_owned(),
                record_id: record_id.to_owned(),
                line: line.to_owned(),
            });
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn events() -> Vec<Event> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        month(&root.join("../fixtures/story")).unwrap()
    }

    #[test]
    fn a_month_of_workdays_in_order_and_every_record_once() {
        let events = events();
        assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let ids: BTreeSet<_> = events.iter().map(|event| &event.record_id).collect();
        assert_eq!(ids.len(), events.len());
        let days: BTreeSet<_> = events.iter().map(|event| event.at.day()).collect();
        assert_eq!(days.len(), 21);
        assert!(!days.contains(&7) && !days.contains(&8), "a weekend");
    }

    #[test]
    fn what_the_drill_shows_happens() {
        let events = events();
        for plot in PLOTS {
            let records: Vec<_> = events.iter().filter(|e| e.story == plot.name()).collect();
            let says = |text: &str| records.iter().any(|e| e.line.contains(text));
            assert!(records.iter().all(|e| e.at.day() == plot.day));
            let sign = match plot.turn {
                Turn::BadSignature => "bad_signature",
                Turn::TwiceDelivered => "seen_before",
                Turn::Ambiguous => "status_lookup",
                Turn::LateAfterCancel => "late_callback",
                Turn::FailedPublication => r#""to":"failed""#,
                Turn::Plain | Turn::Retried => panic!("nothing to show"),
            };
            assert!(says(sign), "{:?}", plot.turn);
        }
        assert!(
            Who::ALL
                .iter()
                .all(|who| events.iter().any(|e| e.who == *who))
        );
    }
}
