//! One file a command: its arguments, whose documentation is its help, and what it says.

pub(crate) mod append;
pub(crate) mod checkpoint;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod explain;
pub(crate) mod healthcheck;
pub(crate) mod index;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod key_test;
pub(crate) mod man;
pub(crate) mod read;
pub(crate) mod recover;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod vault_key;

use std::path::Path;

use anyhow::Context;
use ledger_vault::Recipients;

use crate::exit::Failure;

/// Longest list of recipients or trust line that is read from a file, bytes.
const TEXT_FILE_LEN_MAX: u64 = 65_536;

/// Reads a small text file.
fn read_text(path: &Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut text = String::new();
    let read = file.take(TEXT_FILE_LEN_MAX + 1).read_to_string(&mut text);
    read.with_context(|| format!("reading {}", path.display()))?;
    if text.len() as u64 > TEXT_FILE_LEN_MAX {
        return Err(Failure::could_not_run(format!(
            "{}: expected at most {TEXT_FILE_LEN_MAX} bytes, found more",
            path.display()
        ))
        .into());
    }
    Ok(text)
}

/// Reads a list of recipients from a file.
fn read_recipients(path: &Path) -> anyhow::Result<Recipients> {
    Recipients::parse(&read_text(path)?)
        .with_context(|| format!("recipients file {}", path.display()))
}
