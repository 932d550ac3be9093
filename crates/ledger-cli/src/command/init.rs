//! `ledger init`: a new ledger, and the line that every auditor needs.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use ledger_format::limits::FORMAT_VERSION;
use ledger_vault::{Recipients, RetentionClass};
use ledger_writer::{InitOptions, Initialized};

use super::read_recipients;
use crate::exit::{Exit, Failure};
use crate::folder::named;
use crate::secret;
use crate::terminal::Shown;

/// Make a ledger
///
/// DIR must be absent or empty: nothing is ever overwritten. Keys and floor go to the state folder, outside of
/// the ledger and its backups. Who can read the evidence is fixed by the recipients; this host cannot.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger init audit --origin audit.example.com/build-agent --recipients-file vault.pub

EXIT CODES
  0 made   3 not made   64 the command line was wrong")]
pub(crate) struct InitArgs {
    /// The folder to make
    dir: PathBuf,

    /// NAME of the ledger: what its checkpoints are signed under, such as a host name and a path
    #[arg(long, value_name = "NAME")]
    origin: String,

    /// A public key that opens the evidence; may be given several times
    #[arg(
        long,
        value_name = "AGE1...",
        required_unless_present = "recipients_file"
    )]
    vault_recipient: Vec<String>,

    /// A file of such keys, one a line; a comment above a key is its label
    #[arg(long, value_name = "FILE")]
    recipients_file: Option<PathBuf>,

    /// Where keys and floor go [default: $STATE_DIRECTORY, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl InitArgs {
    fn recipients(&self) -> anyhow::Result<Recipients> {
        let mut lists = Vec::new();
        if let Some(path) = &self.recipients_file {
            lists.push(read_recipients(path)?);
        }
        if !self.vault_recipient.is_empty() {
            let text = self.vault_recipient.join("\n");
            lists.push(
                Recipients::parse(&text)
                    .map_err(|e| Failure::usage(format!("--vault-recipient: {e}")))?,
            );
        }
        Ok(Recipients::union(&lists)?)
    }
}

pub(crate) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    secret::protect_process()?;
    ledger_format::Origin::check_name(&args.origin)
        .map_err(|e| Failure::usage(format!("--origin {}: {e}", Shown(&args.origin))))?;
    let recipients = args.recipients()?;
    let state_root = ledger_writer::state_root(args.state.as_deref())?;
    let options = InitOptions {
        name: args.origin.clone(),
        vault_recipients: recipients.clone(),
        payload_classes: RetentionClass::new("30d").into_iter().collect(),
    };
    let made = ledger_writer::init(&args.dir, &state_root, &options)?;
    crate::print(&text(args, &made, &recipients)?)?;
    Ok(Exit::Done)
}

fn text(
    args: &InitArgs,
    made: &Initialized,
    recipients: &Recipients,
) -> Result<String, std::fmt::Error> {
    let mut t = String::new();
    writeln!(
        t,
        "Created ledger {} in {}  (format {FORMAT_VERSION})",
        args.origin,
        args.dir.display()
    )?;
    writeln!(
        t,
        "\nTRUST LINE. Give it to every auditor today, by a road that does not pass this machine:"
    )?;
    writeln!(t, "  {}", made.trust_line)?;
    writeln!(
        t,
        "  read aloud: {}        (a copy beside the data proves nothing)",
        made.short_form
    )?;
    writeln!(t, "\nWHO CAN READ EVIDENCE (not this host):")?;
    for recipient in recipients.entries() {
        writeln!(t, "  {}", named(recipient))?;
    }
    writeln!(
        t,
        "\nSECRETS MADE HERE in {}, 0600:",
        made.state_dir.display()
    )?;
    writeln!(
        t,
        "  log.key          signs checkpoints      back up, encrypted to the readers above"
    )?;
    writeln!(
        t,
        "  operational.key  opens envelopes        need not be backed up: the readers above can do all it can"
    )?;
    writeln!(
        t,
        "  epoch.key        one segment only       never back up, destroyed when the segment closes"
    )?;
    writeln!(
        t,
        "FLOOR, the newest checkpoint issued, beside them, outside the ledger and its backups"
    )?;
    let dir = args.dir.display();
    let state = args
        .state
        .as_deref()
        .map_or_else(String::new, |state| format!(" --state {}", state.display()));
    writeln!(t, "\nNEXT")?;
    writeln!(
        t,
        "  1  on a reader's machine:    ledger key test {dir} --vault-key vault.key   proves that evidence opens"
    )?;
    writeln!(
        t,
        "  2  on an auditor's machine:  ledger verify {dir} --trust LINE"
    )?;
    writeln!(
        t,
        "  3  ledger serve {dir}{state}, then ledger status {dir}"
    )?;
    writeln!(
        t,
        "     or without a daemon: ledger append --ledger {dir}{state} records.ndjson > receipts.ndjson"
    )?;
    Ok(t)
}
