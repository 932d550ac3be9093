//! `ledger status`: how a daemon is doing.
//!
//! The figures and their text are `ledger-server`'s.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ledger_server::{Health, StatusReport};

use crate::exit::Failure;
use crate::socket::{self, OPERATOR};
use crate::terminal::{Shown, json_line};

/// Between two looks of --watch.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Show how the daemon of a ledger is doing, and what needs a look
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger status audit
  ledger status --socket /run/ledger/build-agent/operator.sock --json

EXIT CODES
  0   ready
  1   degraded: appends are taken, and something needs a look
  2   not accepting appends
  3   not reachable
  64  the command line was wrong")]
pub(crate) struct StatusArgs {
    /// The ledger, whose daemon has its sockets in the default place
    #[arg(required_unless_present = "socket", conflicts_with = "socket")]
    dir: Option<PathBuf>,

    /// An operator or reader socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// The figures as JSON
    #[arg(long)]
    json: bool,

    /// Look again every 2 seconds, until interrupted
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let socket = match (&args.socket, &args.dir) {
        (Some(socket), _) => socket.clone(),
        (None, dir) => socket::socket_of(dir.as_deref().unwrap_or("".as_ref()), OPERATOR)?,
    };
    if args.watch {
        loop {
            let shown = look(&socket).map(|(report, _)| text(&report));
            // Home and clear, where somebody sees it.
            let clear = if std::io::stdout().is_terminal() {
                "\u{1b}[H\u{1b}[2J"
            } else {
                ""
            };
            let shown = shown.unwrap_or_else(|error| format!("{error:#}\n"));
            crate::print(&format!("{clear}{shown}"))?;
            std::thread::sleep(WATCH_EVERY);
        }
    }
    let (report, value) = look(&socket)?;
    if args.json {
        crate::print(&(json_line(&value.to_string()) + "\n"))?;
    } else {
        crate::print(&text(&report))?;
    }
    Ok(ExitCode::from(report.health.exit_code()))
}

/// The figures, typed and as they came.
fn look(socket: &std::path::Path) -> anyhow::Result<(StatusReport, serde_json::Value)> {
    let answer = socket::call(socket, true, |client| async move { client.status().await })?;
    let value = answer.map_err(|error| socket::failure(socket, &error))?;
    let report = serde_json::from_value(value.clone()).map_err(|e| {
        Failure::could_not_run(format!("the daemon's status was not understood: {e}"))
            .hint("--json shows it as it is; is the daemon of another version?")
    })?;
    Ok((report, value))
}

fn text(report: &StatusReport) -> String {
    let lines = report.render();
    // Paths and reasons are the world's.
    let mut text: String = lines
        .lines()
        .map(|line| format!("{}\n", Shown(line)))
        .collect();
    let word = match report.health {
        Health::Ready => "ready",
        Health::Degraded => "degraded",
        Health::NotAccepting => "not accepting appends",
    };
    let others: Vec<&str> = [
        (Health::Ready, "0 ready"),
        (Health::Degraded, "1 degraded"),
        (Health::NotAccepting, "2 not accepting appends"),
    ]
    .into_iter()
    .filter(|(health, _)| *health != report.health)
    .map(|(_, text)| text)
    .collect();
    text.push_str(&format!(
        "exit {} ({word}; {}, 3 not reachable)      --json  --watch\n",
        report.health.exit_code(),
        others.join(", ")
    ));
    text
}
