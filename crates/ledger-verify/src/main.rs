//! `ledger-verify`: checks a copy of a ledger offline, without any key.
//!
//! Only the command line's shape is here; the work is the library's.

use clap::{Parser, Subcommand};
use ledger_verify::cli::{VerifyArgs, explain, run};
use std::process::ExitCode;

/// Check a copy of a ledger, offline and without any secret.
#[derive(Parser)]
#[command(
    name = "ledger-verify",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = ledger_verify::cli::EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    verify: Option<VerifyArgs>,
}

#[derive(Subcommand)]
enum Command {
    /// Say what a code, verdict or note of a report means
    #[command(after_help = "Example:\n  ledger-verify explain torn_tail")]
    Explain {
        /// As printed in a report, e.g. frame_altered
        code: String,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe must not turn help into a panic.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    match (cli.command, cli.verify) {
        (Some(Command::Explain { code }), _) => explain(&code),
        (None, Some(args)) => run(&args),
        (None, None) => ExitCode::from(64),
    }
}
