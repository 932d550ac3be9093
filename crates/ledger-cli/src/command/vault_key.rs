//! `ledger vault-key`: the investigator's key. It never has to be on the ledger's host.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ledger_vault::Identities;
use zeroize::Zeroizing;

use super::read_recipients;
use crate::exit::Exit;
use crate::secret;
use crate::terminal::{now, say};

/// What can be done with a vault key.
#[derive(Debug, Subcommand)]
pub(crate) enum VaultKeyCommand {
    New(NewArgs),
}

/// Make a vault key and print its public part
///
/// The file is an age identity: stock `age -d -i FILE` opens with it whatever the ledger wrapped to it.
/// It is created with mode 0600 and never overwritten. Standard output gets the public part, which is
/// what `ledger init --recipients-file` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger vault-key new vault.key --recipients-file oncall.pub > vault.pub
  ledger vault-key new vault.key --passphrase > vault.pub

EXIT CODES
  0 made   3 not made   64 the command line was wrong")]
pub(crate) struct NewArgs {
    /// The file to make
    file: PathBuf,

    /// Encrypt it to these people's own age recipients, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase")]
    recipients_file: Option<PathBuf>,

    /// Encrypt it with a passphrase, typed on the terminal, or one line of standard input when that is none
    #[arg(long)]
    passphrase: bool,
}

pub(crate) fn run(command: &VaultKeyCommand) -> anyhow::Result<Exit> {
    let VaultKeyCommand::New(args) = command;
    secret::protect_process()?;
    let place = secret::Place::of(&args.file)?;
    let key = Identities::generate();
    let (content, protection) = protected(args, &key)?;
    place.keys().create(place.name, &content)?;

    let public = key.recipients()?.text().to_owned();
    say(format_args!(
        "Created vault key {}, mode 0600, {protection}",
        args.file.display()
    ));
    say(
        "WHO HAS IT CAN READ ALL EVIDENCE wrapped to it; without it nobody can. Keep a copy in a safe place.",
    );
    say(
        "NEXT  give the public part, which stands on standard output, to whoever runs `ledger init`",
    );
    crate::print(&public)?;
    Ok(Exit::Done)
}

fn protected(args: &NewArgs, key: &Identities) -> anyhow::Result<(Zeroizing<Vec<u8>>, String)> {
    let created = now();
    if let Some(path) = &args.recipients_file {
        let readers = read_recipients(path)?;
        let count = readers.entries().len();
        let content = key.to_recipients_file(&created, &readers)?;
        return Ok((
            content.into(),
            format!("encrypted to {count} recipients of {}", path.display()),
        ));
    }
    if args.passphrase {
        let passphrase = secret::ask_new(&args.file.display().to_string())?;
        let content = key.to_passphrase_file(&created, &passphrase)?;
        return Ok((content.into(), "encrypted with a passphrase".to_owned()));
    }
    let content = Zeroizing::new(key.to_file_text(&created).as_bytes().to_vec());
    Ok((
        content,
        "NOT encrypted: whoever reads the file has the key (--passphrase, --recipients-file)"
            .to_owned(),
    ))
}
