//! `ledger recover`: opens a ledger, says what was found and done, and closes it again.
//!
//! The only command that makes an unplanned generation, and only when told why.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use ledger_format::short_form;
use ledger_writer::{Config, GenerationReason, OpenMode, Opened, Writer, state_root};

use crate::exit::Exit;
use crate::secret;

/// Open a ledger after a crash or a loss, and say what was found and done
///
/// Without an option this is what `ledger append` does too: the torn tail of an interrupted write is set aside in
/// `recovered/`, declared in the chain, and nothing acknowledged is dropped. What cannot be decided that way is refused;
/// the options go on from there in a new generation, and THE TRUST LINE CHANGES: auditors need the new one.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger recover audit
  ledger recover audit --accept-roll-back

EXIT CODES
  0 the ledger can be appended to   3 it did not open   64 the command line was wrong")]
pub(crate) struct RecoverArgs {
    /// The ledger
    dir: PathBuf,

    /// Where keys and floor are [default: $STATE_DIRECTORY, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// Set aside everything from the first damaged write on, and go on before it
    #[arg(long, conflicts_with_all = ["accept_roll_back", "lost_epoch_key"])]
    past_damage: bool,

    /// Accept that this is an old copy, or that its end is lost: go on from what is here
    #[arg(long, conflicts_with = "lost_epoch_key")]
    accept_roll_back: bool,

    /// Go on although the epoch key is gone
    #[arg(long)]
    lost_epoch_key: bool,
}

impl RecoverArgs {
    const fn mode(&self) -> OpenMode {
        if self.past_damage {
            OpenMode::NewGeneration(GenerationReason::Damage)
        } else if self.accept_roll_back {
            OpenMode::NewGeneration(GenerationReason::RollBack)
        } else if self.lost_epoch_key {
            OpenMode::NewGeneration(GenerationReason::LostEpochKey)
        } else {
            OpenMode::Normal
        }
    }
}

pub(crate) fn run(args: &RecoverArgs) -> anyhow::Result<Exit> {
    secret::protect_process()?;
    let state = state_root(args.state.as_deref())?;
    let (writer, opened) = Writer::open(&args.dir, &state, Config::default(), args.mode())?;
    let text = text(args, &opened);
    writer.close()?;
    crate::print(&text?)?;
    Ok(Exit::Done)
}

fn text(args: &RecoverArgs, opened: &Opened) -> Result<String, std::fmt::Error> {
    let mut t = String::new();
    let (dir, frames) = (args.dir.display(), opened.frames);
    match (&opened.new_generation, opened.unclean) {
        (Some(generation), _) => writeln!(
            t,
            "RECOVERED, IN A NEW GENERATION ({generation})  {dir}, {frames} frames"
        )?,
        (None, true) => writeln!(
            t,
            "RECOVERED  {dir}, {frames} frames: the last writer had not closed its segment"
        )?,
        (None, false) => writeln!(t, "NOTHING TO RECOVER  {dir}, {frames} frames")?,
    }
    for file in &opened.set_aside {
        let (length, segment, offset) = (file.length, file.segment, file.offset);
        writeln!(
            t,
            "  {length} bytes of segment {segment} from byte {offset} on set aside in {}",
            file.path.display()
        )?;
    }
    if opened.unclean && opened.set_aside.is_empty() {
        writeln!(t, "  no byte had to be set aside")?;
    }
    if opened.new_generation.is_some() {
        writeln!(
            t,
            "\nNEW TRUST LINE. The old one ends where this generation begins. Give the new one to every auditor"
        )?;
        writeln!(
            t,
            "today, by a road that does not pass this machine, and say why:"
        )?;
        writeln!(t, "  {}", opened.trust_line)?;
        writeln!(t, "  read aloud: {}", short_form(&opened.trust_line))?;
    }
    Ok(t)
}
