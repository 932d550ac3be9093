//! The client processes of the month, and who tells them what happened.
//!
//! Each is a process of its own with records on its standard input and receipts on its standard output. The next record
//! of a story is handed out when the one before is acknowledged, as services behave that wait for each other; stories
//! go on beside each other. Sending again is the processes' own business.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::story::{Event, Who};

/// A record that is not answered after this time never will be; clients give up earlier.
const ANSWER_TIME: Duration = Duration::from_secs(90);

struct Player {
    child: Child,
    input: Option<ChildStdin>,
    /// Story and record id of what it has not answered, in order.
    waiting: VecDeque<(String, String)>,
}

/// Who answered, and what; none when its output ended.
type Answer = (Who, Option<String>);

/// Dropped, its processes are killed.
pub(super) struct Cast {
    players: BTreeMap<Who, Player>,
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    /// Stories with a record that is not acknowledged.
    busy: BTreeSet<String>,
    /// Acknowledgements as they were printed, in the order in which they were heard.
    pub(super) receipts: Vec<String>,
    /// Record ids that were acknowledged as being there already.
    pub(super) duplicates: Vec<String>,
    /// What the processes say on standard error.
    log: PathBuf,
}

impl Cast {
    pub(super) fn new(log: PathBuf) -> Self {
        let (sender, answers) = mpsc::channel();
        Self {
            players: BTreeMap::new(),
            sender,
            answers,
            busy: BTreeSet::new(),
            receipts: Vec::new(),
            duplicates: Vec::new(),
            log,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Starts the process that plays a part.
    pub(super) fn enter(&mut self, who: Who, mut command: Command) -> Result<u32> {
        let mut options = File::options();
        let log = options.create(true).append(true).open(&self.log)?;
        let mut child = command
            .stderr(log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting the process of {}", who.source()))?;
        let pid = child.id();
        let output = child.stdout.take().context("its output")?;
        let input = child.stdin.take();
        let sender = self.sender.clone();
        std::thread::spawn(move || listen(who, output, &sender));
        let player = Player {
            child,
            input,
            waiting: VecDeque::new(),
        };
        self.players.insert(who, player);
        Ok(pid)
    }

    /// Hands out events in their order. `heard` is called after each acknowledgement.
    pub(super) fn tell(
        &mut self,
        events: &[Event],
        mut heard: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        for event in events {
            while self.busy.contains(&event.story) {
                self.hear()?;
                heard(self)?;
            }
            let player = self.players.get_mut(&event.who);
            let player = player.with_context(|| format!("nobody plays {}", event.who.source()))?;
            let input = player.input.as_mut().context("its input is closed")?;
            input
                .write_all(format!("{}\n", event.line).as_bytes())
                .with_context(|| format!("{} takes no more records", event.who.source()))?;
            let waits = (event.story.clone(), event.record_id.clone());
            player.waiting.push_back(waits);
            self.busy.insert(event.story.clone());
        }
        while self.unanswered() > 0 {
            self.hear()?;
            heard(self)?;
        }
        Ok(())
    }

    /// Records that were handed out and not acknowledged.
    pub(super) fn unanswered(&self) -> usize {
        self.players.values().map(|p| p.waiting.len()).sum()
    }

    fn hear(&mut self) -> Result<()> {
        let (who, answer) = self
            .answers
            .recv_timeout(ANSWER_TIME)
            .context("no client has an answer")?;
        let source = who.source();
        let Some(line) = answer else {
            bail!(
                "the process of {source} ended while its records were not all answered\n{}",
                self.log()
            );
        };
        let player = self.players.get_mut(&who).context("nobody plays that")?;
        let (story, record_id) = player
            .waiting
            .pop_front()
            .with_context(|| format!("{source} answers what was not sent: {line}"))?;
        let answer: Value = serde_json::from_str(&line).context("an answer as JSON")?;
        ensure!(
            answer["record_id"] == record_id.as_str(),
            "{source} answers {record_id} with {line}"
        );
        self.busy.remove(&story);
        if answer["duplicate"] == true {
            self.duplicates.push(record_id);
        }
        self.receipts.push(line);
        Ok(())
    }

    /// Ends all processes: there is nothing more to append. Each must end well.
    pub(super) fn leave(mut self) -> Result<()> {
        for (who, player) in &mut self.players {
            drop(player.input.take());
            let status = player.child.wait()?;
            ensure!(
                status.success(),
                "the process of {} ended with {status}",
                who.source()
            );
        }
        self.players.clear();
        Ok(())
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for player in self.players.values_mut() {
            // A drill that failed leaves no process behind.
            _ = player.child.kill();
            _ = player.child.wait();
        }
    }
}

fn listen(who: Who, output: ChildStdout, sender: &Sender<Answer>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { break };
        if sender.send((who, Some(line))).is_err() {
            return;
        }
    }
    _ = sender.send((who, None));
}

#[cfg(test)]
mod tests {
    use super::super::story::{BUILD, Moment, Teller};
    use super::*;

    fn events() -> Vec<Event> {
        let mut events = Vec::new();
        Teller::new(&BUILD, "1105_01", Moment::new(5, 9, 0), &mut events)
            .asks()
            .is_taken(1);
        events
    }

    /// A player that runs a small program of `sh`.
    fn cast(program: &str) -> Cast {
        let mut cast = Cast::new("/dev/null".into());
        for who in Who::ALL {
            let mut command = Command::new("sh");
            command.args(["-c", program]);
            cast.enter(who, command).unwrap();
        }
        cast
    }

    #[test]
    fn every_record_is_answered_before_the_next_of_its_story() {
        // Input is its own answer: a record has a record_id.
        let mut cast = cast("cat");
        let events = events();
        let mut most = 0;
        let told = cast.tell(&events, |cast| {
            most = most.max(cast.unanswered());
            Ok(())
        });
        told.unwrap();
        assert_eq!((cast.receipts.len(), cast.unanswered()), (events.len(), 0));
        assert_eq!((most, cast.duplicates.len()), (0, 0));
        cast.leave().unwrap();
    }

    #[test]
    fn a_refusal_and_a_process_that_ends_are_errors() {
        let refuses = r#"while read line; do echo '{"error":{}}'; done"#;
        assert!(cast(refuses).tell(&events(), |_| Ok(())).is_err());
        assert!(cast("exit 0").tell(&events(), |_| Ok(())).is_err());
        let mut ends = cast("cat; exit 3");
        ends.tell(&events(), |_| Ok(())).unwrap();
        assert!(ends.leave().is_err());
    }
}
