//! Passphrases and identity files: how secrets come in. They never do so by the command line or the environment.
//!
//! Not key material itself: that is `ledger-vault`'s.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ledger_vault::{Identities, IdentityError, IdentityFile, KeyDir, Passphrase};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

use crate::exit::Failure;
use crate::terminal::say;

/// What the interrupt key sends.
const CTRL_C: u8 = 3;
/// Longest line that is read: above any passphrase.
const LINE_LEN_MAX: usize = 2048;
/// Longest identity file, bytes; the vault judges the rest.
const IDENTITY_FILE_LEN_MAX: usize = 65_536;

/// Makes the process leave no core dump and refuse debuggers. Called before the first secret.
pub(crate) fn protect_process() -> anyhow::Result<()> {
    ledger_vault::harden_process().context("nothing was opened")
}

/// Asks for a passphrase: on the terminal without echo, or as one line of standard input when that is none.
pub(crate) fn ask(prompt: &str) -> anyhow::Result<Passphrase> {
    if io::stdin().is_terminal() {
        ask_terminal(prompt)
    } else {
        Ok(Passphrase::read_line(&read_line()?[..])?)
    }
}

/// Asks for a new passphrase; twice where a typing mistake would stay unseen.
pub(crate) fn ask_new(what: &str) -> anyhow::Result<Passphrase> {
    if !io::stdin().is_terminal() {
        return ask("");
    }
    let first = Zeroizing::new(type_unseen(&format!("New passphrase for {what}: "))?);
    let second = Zeroizing::new(type_unseen("The same again: ")?);
    if *first != *second {
        return Err(
            Failure::could_not_run("the two passphrases differ; nothing was written").into(),
        );
    }
    Ok(Passphrase::read_line(&first[..])?)
}

fn ask_terminal(prompt: &str) -> anyhow::Result<Passphrase> {
    Ok(Passphrase::read_line(
        &Zeroizing::new(type_unseen(prompt)?)[..],
    )?)
}

/// A line typed on the terminal, without echo.
fn type_unseen(prompt: &str) -> anyhow::Result<Vec<u8>> {
    let _echo = EchoOff::new()?;
    eprint!("{prompt}");
    let line = read_line()?;
    say("");
    if line.last() == Some(&CTRL_C) {
        return Err(Failure::could_not_run("interrupted; nothing was done").into());
    }
    Ok(line.to_vec())
}

/// Reads up to the end of a line and not a byte further, so that what follows on standard input stays there.
fn read_line() -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let stdin = io::stdin();
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_LEN_MAX));
    while line.len() < LINE_LEN_MAX {
        let mut byte = [0];
        let count = match rustix::io::read(stdin.as_fd(), &mut byte) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.context("reading the passphrase from standard input failed")?,
        };
        if count == 0 {
            break;
        }
        line.push(byte[0]);
        if matches!(byte[0], b'\n' | CTRL_C) {
            break;
        }
    }
    Ok(line)
}

/// Switches the terminal's echo off until dropped.
///
/// The interrupt key would end the process here and leave the terminal mute, so it ends the line instead.
struct EchoOff(Termios);

impl EchoOff {
    fn new() -> anyhow::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).context("the terminal's echo cannot be switched off")?;
        let mut mute = before.clone();
        mute.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        mute.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
        tcsetattr(&stdin, OptionalActions::Flush, &mute)
            .context("the terminal's echo cannot be switched off")?;
        Ok(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Which files open the evidence.
#[derive(Debug, clap::Args)]
pub(crate) struct VaultKeyArgs {
    /// The vault key: an age identity file, plain, with a passphrase, or encrypted to recipients
    ///
    /// For a passphrase the terminal is asked, or standard input when it is no terminal.
    #[arg(long, value_name = "FILE")]
    vault_key: PathBuf,

    /// Your own age identity, when the vault key is encrypted to it
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

/// The same, for a command that can do without.
#[derive(Debug, clap::Args)]
pub(crate) struct OptionalVaultKeyArgs {
    /// The vault key, which opens the evidence; without it only the skeleton is told, by the operational identity
    ///
    /// An age identity file, plain, with a passphrase, or encrypted to recipients. For a passphrase the terminal is
    /// asked, or standard input when it is no terminal.
    #[arg(long, value_name = "FILE")]
    vault_key: Option<PathBuf>,

    /// Your own age identity, when the vault key is encrypted to it
    #[arg(long, value_name = "FILE", requires = "vault_key")]
    identity: Option<PathBuf>,
}

impl OptionalVaultKeyArgs {
    /// Opens the vault key, if one is given.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Identities>> {
        let Some(vault_key) = self.vault_key.clone() else {
            return Ok(None);
        };
        let given = VaultKeyArgs {
            vault_key,
            identity: self.identity.clone(),
        };
        given.open().map(Some)
    }
}

impl VaultKeyArgs {
    /// Opens the vault key.
    pub(crate) fn open(&self) -> anyhow::Result<Identities> {
        let place = || format!("vault key {}", self.vault_key.display());
        match parse(&self.vault_key).context("vault key")? {
            IdentityFile::Recipients(encrypted) => {
                let Some(path) = &self.identity else {
                    return Err(Failure::could_not_run(format!(
                        "vault key {} is encrypted to people's own recipients",
                        self.vault_key.display()
                    ))
                    .hint("add --identity FILE with the identity of one of them")
                    .into());
                };
                let own = match parse(path)
                    .with_context(|| format!("identity {}", path.display()))?
                {
                    IdentityFile::Recipients(_) => {
                        return Err(Failure::could_not_run(format!(
                            "identity {} is itself encrypted to recipients: expected a plain one or one with a passphrase",
                            path.display()
                        ))
                        .into());
                    }
                    other => open_own(other, path)?,
                };
                encrypted.open_with(&own).with_context(place)
            }
            other => open_own(other, &self.vault_key),
        }
    }
}

fn open_own(file: IdentityFile, path: &Path) -> anyhow::Result<Identities> {
    match file {
        IdentityFile::Plain(identities) => Ok(identities),
        IdentityFile::Passphrase(encrypted) => {
            let passphrase = ask(&format!("Passphrase of {}: ", path.display()))?;
            encrypted
                .open_with_passphrase(&passphrase)
                .with_context(|| path.display().to_string())
        }
        IdentityFile::Recipients(_) => Err(IdentityError::Encrypted.into()),
    }
}

/// Reads an identity file that nobody but its owner can reach.
fn parse(path: &Path) -> anyhow::Result<IdentityFile> {
    let place = Place::of(path)?;
    let content = place
        .keys()
        .read_private(place.name, IDENTITY_FILE_LEN_MAX)?;
    Ok(IdentityFile::parse(&content)?)
}

/// A file that is to be read or made: its folder, held, and its name.
pub(crate) struct Place<'p> {
    folder: OwnedFd,
    parent: &'p Path,
    pub(crate) name: &'p str,
}

impl<'p> Place<'p> {
    /// Opens the folder of a file.
    pub(crate) fn of(path: &'p Path) -> anyhow::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
        else {
            let what = format!("expected the name of a file, found {}", path.display());
            return Err(Failure::usage(what).into());
        };
        let here = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(here, flags, Mode::empty())
            .with_context(|| format!("opening folder {}", here.display()))?;
        Ok(Self {
            folder,
            parent,
            name,
        })
    }

    /// The folder as a place of key files.
    pub(crate) fn keys(&self) -> KeyDir<'_> {
        KeyDir::new(self.folder.as_fd(), self.parent)
    }
}
