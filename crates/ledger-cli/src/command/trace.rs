//! `ledger trace`: the story behind an identifier, for whoever holds the vault key.
//!
//! What a story is and how it is found is `ledger-trace`'s.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use ledger_format::limits::PAYLOAD_LEN_MAX;
use ledger_records::IdKind;
use ledger_trace::{
    FolderOptions, FolderSource, Limits, Query, SourceError, TextOptions, TraceExit, TrustLine,
};

use crate::command::read_text;
use crate::exit::{Exit, Failure};
use crate::secret::{self, VaultKeyArgs};

/// Longest text that is searched for identifiers, bytes.
const PASTED_LEN_MAX: u64 = 1 << 20;

/// How the answer is printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// In which zone times are shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Zone {
    Utc,
    Local,
}

/// Tell the story behind an identifier: what was asked, who allowed it, what came of it
///
/// From any identifier: an action, an attempt, a provider's event or operation, an order number, a request id, the
/// SHA-256 of a body. Identifiers that join records are followed; what only groups them (a session, a tenant) is where
/// one may start. Every frame is checked to a signed checkpoint first. The search is for whole values: the ledger's
/// identifiers are not readable without the key, and no part of one can be looked up.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger trace act_01 --ledger audit --vault-key vault.key --trust trust-line.txt
  ledger trace - --ledger audit --vault-key vault.key < mail.txt

EXIT CODES
  0   found
  1   not found
  2   ambiguous: the candidates are listed
  3   it could not run, or the chain does not hold
  5   found, and the story contradicts itself
  64  the command line was wrong")]
pub(crate) struct TraceArgs {
    /// The identifier; - reads text from standard input and tries every word of it
    #[arg(required_unless_present = "body")]
    identifier: Option<String>,

    /// Start from the delivery with this very body instead
    #[arg(long, value_name = "FILE", conflicts_with = "identifier")]
    body: Option<PathBuf>,

    /// The ledger, or a copy of it with its key files
    #[arg(long, value_name = "DIR")]
    ledger: PathBuf,

    #[command(flatten)]
    key: VaultKeyArgs,

    /// The trust line, or a file with it: says that the checkpoints are by the right key
    #[arg(long, value_name = "LINE|FILE")]
    trust: Option<String>,

    /// Only identifiers of this kind (`ledger schema identifiers` lists them)
    #[arg(long)]
    kind: Option<String>,

    /// Only identifiers within this scope: a provider, a system
    #[arg(long)]
    scope: Option<String>,

    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    /// Zone of the times
    #[arg(long, value_enum, default_value = "utc")]
    tz: Zone,
}

impl TraceArgs {
    fn query(&self) -> anyhow::Result<Query> {
        let mut query = match (&self.body, self.identifier.as_deref()) {
            (Some(path), _) => {
                let file = std::fs::File::open(path)
                    .with_context(|| format!("opening {}", path.display()))?;
                let mut bytes = Vec::new();
                file.take(PAYLOAD_LEN_MAX as u64 + 1)
                    .read_to_end(&mut bytes)
                    .with_context(|| format!("reading {}", path.display()))?;
                Query::body(&bytes)
            }
            (None, Some("-")) => {
                let mut text = String::new();
                std::io::stdin()
                    .take(PASTED_LEN_MAX)
                    .read_to_string(&mut text)
                    .context("reading standard input")?;
                Query::pasted(&text)
            }
            (None, value) => Query::value(value.unwrap_or_default()),
        };
        if let Some(name) = &self.kind {
            let kind = IdKind::from_name(name).ok_or_else(|| {
                Failure::usage(format!("--kind {name}: no such kind of identifier"))
                    .hint("`ledger schema identifiers` lists them")
            })?;
            query = query.of_kind(kind);
        }
        if let Some(scope) = &self.scope {
            query = query.within(scope);
        }
        Ok(query)
    }

    fn trust(&self) -> anyhow::Result<Option<TrustLine>> {
        let Some(given) = &self.trust else {
            return Ok(None);
        };
        let text = if given.contains('+') {
            given.clone()
        } else {
            read_text(given.as_ref())?
        };
        let line =
            TrustLine::parse(text.trim()).map_err(|e| Failure::usage(format!("--trust: {e}")))?;
        Ok(Some(line))
    }
}

pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<Exit> {
    secret::protect_process()?;
    let (query, trust) = (args.query()?, args.trust()?);
    let identities = args.key.open()?;
    let options = FolderOptions {
        trust,
        evidence: true,
        ..FolderOptions::default()
    };
    let answer = FolderSource::open(&args.ledger, identities, options)
        .and_then(|source| ledger_trace::trace(&source, &query, Limits::default()))
        .map_err(|error| failure(&error))?;
    let text = match args.format {
        // ASCII already: no character of it steers a terminal.
        Format::Json => answer.to_json(),
        Format::Text => {
            let local = TimeZone::system();
            let name = local.iana_name().map(str::to_owned);
            let shown = match args.tz {
                Zone::Utc => TextOptions {
                    other_zone: name,
                    ..TextOptions::default()
                },
                Zone::Local => TextOptions {
                    zone: local,
                    ..TextOptions::default()
                },
            };
            answer.to_text(&shown)
        }
    };
    crate::print(&text)?;
    Ok(match answer.exit() {
        TraceExit::Found => Exit::Done,
        TraceExit::NotFound => Exit::Refused,
        TraceExit::Ambiguous => Exit::Incomplete,
        TraceExit::Contradicted => Exit::Contradicted,
    })
}

fn failure(error: &SourceError) -> Failure {
    let failure = Failure::could_not_run(error.to_string());
    match error {
        SourceError::Violation { .. } => {
            failure.hint("keep this copy as it is and run `ledger verify` on it")
        }
        _ => failure,
    }
}
