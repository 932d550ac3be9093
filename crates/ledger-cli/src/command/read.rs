//! `ledger read`: the evidence, decrypted, each record checked to a checkpoint before it is shown.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use ledger_format::{Frame, Link, SegmentOpen, Seq, Tail, short_form};
use ledger_vault::Identities;

use super::read_text;
use crate::checked::{ChainRecord, Outcome, Pin, Range, Visitor, Walk};
use crate::evidence::{SegmentSecrets, check_envelope, check_tag, open_body};
use crate::exit::{Exit, Failure};
use crate::folder::{LedgerFolder, frames_name};
use crate::secret::{self, VaultKeyArgs};
use crate::terminal::{Out, Progress, json_line, say, say_labelled, warn};

/// Decrypt records, each checked to a checkpoint
///
/// One JSON line a record: seq, appended_at, link, the checkpoint that covers it, what the server attested of the
/// sender, the record. A record is shown only after links, tree, hand-over and the signatures of a later checkpoint
/// were checked; its body is held against its commitment and, where the key allows it, against its envelope.
/// What is wrong with the chain ends the reading; a single body that does not open is reported and left out.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger read audit --vault-key vault.key --trust trust-line.txt --from 1000 --until 1999

EXIT CODES
  0   all that was asked for was shown
  1   the chain does not hold, or a body does not open or differs from its envelope
  2   not all is there: the range goes beyond the last checkpoint or into an unfinished write,
      damaged evidence was set aside, or another trust line holds
  3   it could not run
  64  the command line was wrong")]
pub(crate) struct ReadArgs {
    /// The ledger, or a copy of it
    dir: PathBuf,

    #[command(flatten)]
    key: VaultKeyArgs,

    /// Begin with this frame
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,

    /// End with this frame
    #[arg(long, value_name = "SEQ")]
    until: Option<u64>,

    /// The trust line from outside, or a file that holds it; without it the key in the copy is believed
    #[arg(long, value_name = "LINE|FILE")]
    trust: Option<String>,

    /// Show the records behind the last checkpoint too, marked by `"checkpoint":null`
    #[arg(long)]
    uncovered: bool,
}

pub(crate) fn run(args: &ReadArgs) -> anyhow::Result<Exit> {
    let range = Range {
        from: Seq(args.from),
        until: Seq(args.until.unwrap_or(u64::MAX)),
        uncovered: args.uncovered,
    };
    if range.until < range.from {
        return Err(Failure::usage(format!(
            "--until {} lies before --from {}",
            range.until, range.from
        ))
        .into());
    }
    secret::protect_process()?;
    let mut folder = LedgerFolder::open(&args.dir)?;
    let pin = args
        .trust
        .as_deref()
        .map(|trust| read_pin(trust, &args.dir))
        .transpose()?;
    let identities = args.key.open()?;
    let start = folder
        .segments()
        .iter()
        .rev()
        .find(|seq| **seq <= range.from)
        .copied();
    let progress = Progress::new(
        "checked",
        Some(folder.bytes_from(start.unwrap_or_default())),
    );

    let keys_from = LedgerFolder::open(&args.dir)?;
    let mut printer = Printer {
        folder: &keys_from,
        identities: &identities,
        opens: BTreeMap::new(),
        out: Out::new(),
        progress: &progress,
        exit: Exit::Done,
        shown: 0,
        envelope_unseen: false,
    };
    let result = Walk::new(&mut folder, range, pin.clone(), &progress).run(&mut printer);
    printer.out.flush()?;
    let Printer {
        exit,
        shown,
        envelope_unseen,
        ..
    } = printer;
    drop(progress);
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => {
            if shown > 0 {
                say(format_args!(
                    "{shown} records before this were checked and shown"
                ));
            }
            return Err(error);
        }
    };
    if envelope_unseen {
        warn("some envelopes do not open with this key: bodies were not compared with them");
    }
    Ok(exit.worse(summary(&range, pin.is_some(), &outcome, shown)))
}

/// A trust line, or the first line of a file that is not a part of the copy.
fn read_pin(trust: &str, dir: &Path) -> anyhow::Result<Pin> {
    if trust.contains('+') && !Path::new(trust).exists() {
        return Pin::parse(trust).map_err(|e| Failure::usage(format!("--trust: {e}")).into());
    }
    let path = Path::new(trust);
    if let (Ok(file), Ok(copy)) = (path.canonicalize(), dir.canonicalize())
        && file.starts_with(copy)
    {
        return Err(Failure::usage(format!(
            "--trust {trust}: a file inside the copy proves nothing about it"
        ))
        .hint("use the trust line that you got by another road")
        .into());
    }
    let text = read_text(path)?;
    let is_line = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let line = text.lines().find(is_line).unwrap_or_default();
    Pin::parse(line).map_err(|e| Failure::usage(format!("--trust {trust}: {e}")).into())
}

/// Decrypts and prints what the walk shows.
struct Printer<'a> {
    folder: &'a LedgerFolder,
    identities: &'a Identities,
    opens: BTreeMap<Seq, SegmentSecrets>,
    out: Out,
    progress: &'a Progress,
    exit: Exit,
    shown: u64,
    envelope_unseen: bool,
}

impl Printer<'_> {
    fn fault(&mut self, seq: Seq, segment: Seq, what: &str) {
        self.exit = Exit::Refused;
        let text = format!("frame {seq}, {}: {what}", frames_name(segment));
        self.progress.aside(|| say_labelled("error", 31, text));
    }
}

impl Visitor for Printer<'_> {
    fn segment(&mut self, first_seq: Seq, open: &SegmentOpen, oldest: Seq) {
        self.opens.retain(|seq, _| *seq >= oldest);
        let secrets = SegmentSecrets::open(self.folder, self.identities, first_seq, open);
        self.opens.insert(first_seq, secrets);
    }

    fn control(
        &mut self,
        segment: Seq,
        frame: &Frame<'_>,
        predecessor: &Link,
    ) -> anyhow::Result<()> {
        let secrets = self.opens.get(&segment);
        if let Some(Ok(key)) = secrets.map(|secrets| &secrets.envelope)
            && let Err(what) = check_tag(key, frame, predecessor)
        {
            self.fault(frame.prefix.seq, segment, &what);
        }
        Ok(())
    }

    fn record(&mut self, record: &ChainRecord<'_>) -> anyhow::Result<()> {
        let (seq, segment) = (record.frame.prefix.seq, record.segment);
        let Some(secrets) = self.opens.get(&segment) else {
            anyhow::bail!("frame {seq}: its segment was not opened");
        };
        let data = match &secrets.data {
            Ok(key) => key,
            Err(what) => return Err(wrong_key(self.folder, segment, what).into()),
        };
        let opened = match open_body(data, &record.frame) {
            Ok(opened) => opened,
            Err(what) => {
                self.fault(seq, segment, &what);
                return Ok(());
            }
        };
        match &secrets.envelope {
            Err(_) => self.envelope_unseen = true,
            Ok(key) => {
                if let Err(what) = check_envelope(key, &record.frame, &record.predecessor, &opened)
                {
                    self.fault(seq, segment, &what);
                }
            }
        }
        let attested = serde_json::to_string(&opened.attested)?;
        let json = opened.record.to_json();
        let line = format!(
            "{{\"seq\":{seq},\"appended_at\":\"{}\",\"link\":\"{}\",\"checkpoint\":{},\"attested\":{attested},\"record\":{}}}",
            record.frame.appended_at.to_rfc3339(),
            record.frame.link.to_hex(),
            record
                .cover
                .map_or("null".to_owned(), |cover| cover.checkpoint.to_string()),
            json_line(&String::from_utf8_lossy(&json)),
        );
        writeln!(self.out, "{line}")?;
        self.shown += 1;
        Ok(())
    }
}

/// The vault key is not among a segment's readers.
pub(crate) fn wrong_key(folder: &LedgerFolder, segment: Seq, what: &str) -> Failure {
    let readers = folder.recipients();
    let expected = match readers.is_empty() {
        true => "give the vault key of one of its readers".to_owned(),
        false => format!("its list of readers names {}", readers.join(", ")),
    };
    Failure::could_not_run(format!("segment {}: {what}", frames_name(segment))).hint(expected)
}

/// What was read and what it rests on, for people; and whether it is all.
fn summary(range: &Range, pinned: bool, outcome: &Outcome, shown: u64) -> Exit {
    let mut exit = Exit::Done;
    let rest = match &outcome.newest {
        Some(cover) => format!(
            "checked to checkpoint {} signed {}",
            cover.checkpoint,
            cover.appended_at.to_rfc3339()
        ),
        None => "no checkpoint was checked".to_owned(),
    };
    let key = match (&outcome.trust_line, outcome.pinned) {
        (Some(_), true) => "key pinned".to_owned(),
        (Some(line), false) => format!("key NOT PINNED, reads {}: give --trust", short_form(line)),
        (None, _) => "no key was met".to_owned(),
    };
    say(format_args!("{shown} records; {rest}; {key}"));
    if outcome.uncovered > 0 {
        let how = if range.uncovered {
            "shown with \"checkpoint\":null"
        } else {
            "not shown: --uncovered shows them"
        };
        warn(format_args!(
            "{} records stand behind the last checkpoint, {how}",
            outcome.uncovered
        ));
    }
    let reached = Seq(outcome.next.0.saturating_sub(1));
    if let Some(seq) = outcome.generation_at {
        warn(format_args!(
            "from frame {seq} on another trust line holds, which the one given does not cover: ask for it"
        ));
        exit = Exit::Incomplete;
    } else if outcome.pin_absent && outcome.newest.is_some() {
        say_labelled(
            "error",
            31,
            "the chain has not the generation that the trust line names: it is cut, or the line is another ledger's",
        );
        exit = Exit::Refused;
    } else if pinned && !outcome.pinned {
        warn(
            "no checkpoint under the trust line given covers these records: they rest on older keys of the copy alone",
        );
        exit = Exit::Incomplete;
    }
    for seq in &outcome.set_aside {
        warn(format_args!(
            "before frame {seq} damaged evidence was set aside: it is in `recovered/`, not here"
        ));
        exit = Exit::Incomplete;
    }
    match outcome.unfinished {
        Some(Tail::CopiedWhileWritten) => {
            warn(format_args!(
                "behind frame {reached} the copy was made while the ledger was writing"
            ));
            exit = Exit::Incomplete;
        }
        Some(_) => {
            warn(format_args!(
                "behind frame {reached} stands an unfinished write: a power cut, a crash, or a copy of a live ledger"
            ));
            exit = Exit::Incomplete;
        }
        None => {}
    }
    let covered = outcome
        .newest
        .is_some_and(|cover| cover.checkpoint > range.until);
    let open_end = range.until == Seq(u64::MAX) && range.from < outcome.next;
    if !covered && !open_end && exit == Exit::Done {
        warn(format_args!(
            "the range is not all covered by checkpoints: the last frame is {reached}"
        ));
        exit = Exit::Incomplete;
    }
    exit
}
