//! The command `ledger`: makes a ledger, appends to it, reads it, looks at it and verifies it.
//!
//! Here is only what the command line looks like and how it ends; each command is a file in `command/`,
//! and what it does is in the libraries.

mod checked;
mod command;
mod evidence;
mod exit;
mod folder;
mod frames;
mod secret;
mod skeleton;
mod socket;
mod terminal;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};
use crate::terminal::{is_closed_pipe, say, say_labelled};

/// An audit ledger: append-only, hash-chained, encrypted, verifiable without any key.
#[derive(Debug, Parser)]
#[command(
    name = "ledger",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = false,
    after_help = "\
EXIT CODES
  0   done
  1   it ran, and something was refused or does not hold
  2   it ran, and what was asked for is not all there
  3   it could not run
  64  the command line was wrong
`ledger verify` adds 4, self-consistent only, and `ledger trace` 5, contradicted: their help explains all of their codes.

EXAMPLE
  ledger vault-key new vault.key --passphrase > vault.pub           on the investigator's machine
  ledger init audit --origin audit.example.com/build --recipients-file vault.pub
  ledger append --ledger audit records.ndjson > receipts.ndjson
  ledger verify audit --trust trust-line.txt"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the key that opens evidence, on the investigator's machine
    #[command(subcommand)]
    VaultKey(command::vault_key::VaultKeyCommand),
    Init(command::init::InitArgs),
    Append(command::append::AppendArgs),
    Serve(command::serve::ServeArgs),
    /// A daemon's configuration
    #[command(subcommand)]
    Config(command::config::ConfigCommand),
    Status(command::status::StatusArgs),
    Healthcheck(command::healthcheck::HealthcheckArgs),
    Recover(command::recover::RecoverArgs),
    /// The identifier index
    #[command(subcommand)]
    Index(command::index::IndexCommand),
    /// Prove a ledger whole, offline and without any key; the same as the program `ledger-verify`
    Verify(ledger_verify::cli::VerifyArgs),
    Inspect(command::inspect::InspectArgs),
    Checkpoint(command::checkpoint::CheckpointArgs),
    Read(command::read::ReadArgs),
    Trace(command::trace::TraceArgs),
    /// Prove that a key does what it is kept for
    #[command(subcommand)]
    Key(command::key_test::KeyCommand),
    Explain(command::explain::ExplainArgs),
    Schema(command::schema::SchemaArgs),
    Completions(command::completions::CompletionsArgs),
    Man(command::man::ManArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed stream is nobody's concern here.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => end(&error).into(),
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let exit = match command {
        Command::VaultKey(args) => command::vault_key::run(&args),
        Command::Init(args) => command::init::run(&args),
        Command::Append(args) => command::append::run(&args),
        Command::Serve(args) => return command::serve::run(&args),
        Command::Config(args) => command::config::run(&args),
        Command::Status(args) => return command::status::run(&args),
        Command::Healthcheck(args) => command::healthcheck::run(&args),
        Command::Index(args) => command::index::run(&args),
        Command::Recover(args) => command::recover::run(&args),
        Command::Verify(args) => return Ok(ledger_verify::cli::run(&args)),
        Command::Inspect(args) => command::inspect::run(&args),
        Command::Checkpoint(args) => command::checkpoint::run(&args),
        Command::Read(args) => command::read::run(&args),
        Command::Trace(args) => command::trace::run(&args),
        Command::Key(args) => command::key_test::run(&args),
        Command::Explain(args) => return command::explain::run(&args),
        Command::Schema(args) => command::schema::run(&args),
        Command::Completions(args) => command::completions::run(&args),
        Command::Man(args) => command::man::run(&args),
    };
    exit.map(ExitCode::from)
}

/// Says what went wrong, and gives the exit code.
fn end(error: &anyhow::Error) -> Exit {
    if is_closed_pipe(error) {
        return Exit::Done;
    }
    // The whole chain on one line: where, then what.
    say_labelled("error", 31, format_args!("{error:#}"));
    let failure = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Failure>());
    if let Some(hint) = failure.and_then(Failure::next_step) {
        say(format_args!("  next: {hint}"));
    }
    match failure {
        Some(failure) => failure.exit,
        None => Exit::CouldNotRun,
    }
}

/// The command line as data: for completions and manual pages.
fn command_line() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Writes all of a text to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    use io::Write as _;
    let mut out = terminal::Out::new();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command_line().debug_assert();
    }
}
