//! The build helper: what CI runs, and the checks that no compiler makes.
//!
//! It is not shipped and nothing in the product may depend on it. `cargo xtask ci` is exactly what
//! CI runs; every check can also be run alone.

mod bench;
mod ci;
mod demo;
mod deps;
mod edges;
mod fixtures;
mod lines;
mod python;
mod reach;
mod spec;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::{Outcome, Workspace};

/// Build helper of the ledger workspace.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run what CI runs, in its order; stop at the first failure.
    Ci(ci::CiArgs),
    /// Check the crate edges of the workspace against the table in edges.rs.
    Edges,
    /// Check which packages the keyless verifier can reach.
    Reach(reach::ReachArgs),
    /// Check licences, bans and sources of all dependencies against deny.toml.
    Deps,
    /// Check the length of tracked source files.
    Lines,
    /// Check the tables of ledger-format.md and compare its constants with the program's.
    Spec,
    /// Make the fixtures again with the second implementation and compare them.
    Fixtures(fixtures::FixturesArgs),
    /// Play the end-to-end drill on a new ledger.
    Demo(demo::DemoArgs),
    /// Measure appending, also over the socket, verifying and tracing.
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = Workspace::open().and_then(|workspace| match cli.command {
        Command::Ci(args) => ci::run(&workspace, &args),
        Command::Edges => edges::run(&workspace),
        Command::Reach(args) => reach::run(&workspace, &args),
        Command::Deps => deps::run(&workspace),
        Command::Lines => lines::run(&workspace),
        Command::Spec => spec::run(&workspace),
        Command::Fixtures(args) => fixtures::run(&workspace, &args),
        Command::Demo(args) => demo::run(&workspace, &args),
        Command::Bench(args) => bench::run(&workspace, &args),
    });
    match result {
        Ok(Outcome::Passed(note)) => {
            println!("ok: {note}");
            ExitCode::SUCCESS
        }
        Ok(Outcome::Skipped(reason)) => {
            println!("skipped: {reason}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
