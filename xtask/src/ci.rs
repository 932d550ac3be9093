//! What CI runs, in its order. There is no other list: the CI job only calls this.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace::{Outcome, Workspace, run as run_command};
use crate::{bench, demo, deps, edges, fixtures, lines, python, reach, spec};

#[derive(Args)]
pub(crate) struct CiArgs {
    /// Only these steps, still in CI's order. Without any: all.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(STEPS.iter().map(|s| s.name)))]
    steps: Vec<String>,
}

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Workspace) -> Result<Outcome>,
}

/// Cheap checks first; what needs the binaries after what builds them.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "source is formatted",
        run: fmt,
    },
    Step {
        name: "edges",
        what: "crates depend on each other as the table says",
        run: edges::run,
    },
    Step {
        name: "reach",
        what: "the verifier reaches the listed packages and none that decrypts",
        run: |workspace| reach::run(workspace, &reach::ReachArgs { bless: false }),
    },
    Step {
        name: "deps",
        what: "licences, bans, sources",
        run: deps::run,
    },
    Step {
        name: "cargo-deny",
        what: "the same by cargo-deny, and security advisories",
        run: deps::cargo_deny,
    },
    Step {
        name: "clippy",
        what: "no warnings",
        run: clippy,
    },
    Step {
        name: "docs",
        what: "documentation builds without warnings",
        run: docs,
    },
    Step {
        name: "verifier",
        what: "ledger-verify builds on its own",
        run: verifier,
    },
    Step {
        name: "lines",
        what: "no source file is too long",
        run: lines::run,
    },
    Step {
        name: "spec",
        what: "ledger-format.md adds up and agrees with the program",
        run: spec::run,
    },
    Step {
        name: "python",
        what: "environment of the second implementation",
        run: python::prepare,
    },
    Step {
        name: "build",
        what: "all binaries, for the tests that run them",
        run: build,
    },
    Step {
        name: "tests",
        what: "all tests",
        run: tests,
    },
    Step {
        name: "fixtures",
        what: "fixtures made again are the same",
        run: |workspace| fixtures::run(workspace, &fixtures::FixturesArgs { bless: false }),
    },
    Step {
        name: "demo",
        what: "the end-to-end drill behaves",
        run: |workspace| demo::run(workspace, &demo::DemoArgs {}),
    },
    Step {
        name: "bench",
        what: "the benchmark runs",
        run: bench_smoke,
    },
];

pub(crate) fn run(workspace: &Workspace, args: &CiArgs) -> Result<Outcome> {
    let steps: Vec<&Step> = STEPS
        .iter()
        .filter(|step| args.steps.is_empty() || args.steps.iter().any(|name| name == step.name))
        .collect();
    let start = Instant::now();
    let mut summary = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!(
            "\n[{}/{}] {}: {}",
            index + 1,
            steps.len(),
            step.name,
            step.what
        );
        let began = Instant::now();
        let outcome = (step.run)(workspace).with_context(|| {
            format!(
                "step {} of {}, {}, failed after {} (alone: cargo xtask ci {})",
                index + 1,
                steps.len(),
                step.name,
                seconds(began.elapsed()),
                step.name
            )
        })?;
        let line = match outcome {
            Outcome::Passed(note) => format!("ok       {note}"),
            Outcome::Skipped(reason) => format!("skipped  {reason}"),
        };
        let took = seconds(began.elapsed());
        println!("{line} ({took})");
        summary.push(format!("{:<11}{took:>9}  {line}", step.name));
    }
    println!("\n{}", summary.join("\n"));
    Ok(Outcome::Passed(format!(
        "{} steps in {}",
        steps.len(),
        seconds(start.elapsed())
    )))
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn fmt(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Passed("formatted".into()))
}

fn clippy(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo([
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    Ok(Outcome::Passed("no warnings".into()))
}

fn docs(workspace: &Workspace) -> Result<Outcome> {
    run_command(
        workspace
            .cargo(["doc", "--locked", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    Ok(Outcome::Passed("no warnings".into()))
}

/// Alone, because a workspace build unifies features: what is missing here would be lent there.
fn verifier(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo(["build", "--locked", "-p", "ledger-verify"]))?;
    Ok(Outcome::Passed("built".into()))
}

fn build(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo(["build", "--locked", "--workspace", "--bins"]))?;
    Ok(Outcome::Passed("built".into()))
}

fn tests(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut workspace.cargo(["test", "--locked", "--workspace"]))?;
    Ok(Outcome::Passed("all tests pass".into()))
}

fn bench_smoke(workspace: &Workspace) -> Result<Outcome> {
    bench::run(workspace, &bench::BenchArgs::smoke())
}

#[cfg(test)]
mod tests_of_the_list {
    use std::collections::BTreeSet;

    use super::STEPS;

    #[test]
    fn step_names_are_unique() {
        let names: BTreeSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
    }

    #[test]
    fn binaries_are_built_before_the_tests_that_run_them() {
        let at = |name| STEPS.iter().position(|step| step.name == name).unwrap();
        assert!(at("python") < at("tests"));
        assert!(at("build") < at("tests"));
    }
}
