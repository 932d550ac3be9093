//! `ledger explain`: what a code of a report means. Offline; the texts are the verifier's and the daemon's.

use std::process::ExitCode;

use clap::Args;

/// Explain a finding, a verdict or a note of `ledger verify`, or what `ledger status` points out
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger explain frame_altered
  ledger explain W017

EXIT CODES
  0 explained   64 no such code")]
pub(crate) struct ExplainArgs {
    /// The code, as the report shows it
    code: String,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    if let Some(text) = ledger_server::explain(&args.code) {
        crate::print(&format!("{}\n{text}\n", args.code))?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ledger_verify::cli::explain(&args.code))
}
