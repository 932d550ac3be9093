//! `ledger trace`: the story behind an identifier, from a ledger's folder or from the daemon that serves it.
//!
//! What a story is and how it is found is `ledger-trace`'s.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use ledger_client::{ClientError, TraceOptions};
use ledger_format::limits::PAYLOAD_LEN_MAX;
use ledger_records::{IdKind, Sha256Hex};
use ledger_trace::{
    Answer, Derived, FolderOptions, FolderSource, JSON_VERSION, Limits, Query, SourceError,
    TextOptions, TraceExit, TrustLine,
};
use ledger_vault::Identities;
use serde_json::Value;

use crate::command::read_text;
use crate::exit::{Exit, Failure};
use crate::secret::{self, OptionalVaultKeyArgs};
use crate::skeleton::operational_identity;
use crate::socket;

/// Longest text that is searched for identifiers, bytes.
const PASTED_LEN_MAX: u64 = 1 << 20;

/// How often it is looked again where the ledger changed meanwhile.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(20);

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
/// one may start. Every frame is checked to a signed checkpoint first, and the answer says how. The search is for whole
/// values: the ledger's identifiers are not readable without a key, and no part of one can be looked up. A daemon
/// (--socket) has no vault key: it tells the skeleton, and the checks are its word.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger trace act_01 --ledger audit --vault-key vault.key --trust trust-line.txt
  ledger trace act_01 --socket /run/ledger/build-agent/operator.sock
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
    #[arg(long, value_name = "DIR", required_unless_present = "socket")]
    ledger: Option<PathBuf>,

    /// A reader or operator socket of the daemon that serves the ledger
    #[arg(long, value_name = "PATH", conflicts_with_all = ["ledger", "vault_key", "state", "no_index"])]
    socket: Option<PathBuf>,

    #[command(flatten)]
    key: OptionalVaultKeyArgs,

    /// Where the operational identity is, without --vault-key [default: $STATE_DIRECTORY, else the user's state folder]
    #[arg(long, value_name = "DIR", conflicts_with = "vault_key")]
    state: Option<PathBuf>,

    /// The trust line, or a file with it: says that the checkpoints are by the right key
    #[arg(long, value_name = "LINE|FILE")]
    trust: Option<String>,

    /// Only identifiers of this kind (`ledger schema identifiers` lists them)
    #[arg(long)]
    kind: Option<String>,

    /// Only identifiers within this scope: a provider, a system
    #[arg(long)]
    scope: Option<String>,

    /// Read the whole chain instead of asking the index: finds also what a wrong index would hide
    #[arg(long)]
    no_index: bool,

    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    /// Zone of the times
    #[arg(long, value_enum, default_value = "utc")]
    tz: Zone,
}

/// What is looked for.
enum Asked {
    Value(String),
    /// The SHA-256 of a body.
    Body(Vec<u8>),
    Text(String),
}

impl TraceArgs {
    fn asked(&self) -> anyhow::Result<Asked> {
        match (&self.body, self.identifier.as_deref()) {
            (Some(path), _) => {
                let file = std::fs::File::open(path)
                    .with_context(|| format!("opening {}", path.display()))?;
                let mut bytes = Vec::new();
                file.take(PAYLOAD_LEN_MAX as u64 + 1)
                    .read_to_end(&mut bytes)
                    .with_context(|| format!("reading {}", path.display()))?;
                Ok(Asked::Body(bytes))
            }
            (None, Some("-")) => {
                let mut text = String::new();
                std::io::stdin()
                    .take(PASTED_LEN_MAX)
                    .read_to_string(&mut text)
                    .context("reading standard input")?;
                Ok(Asked::Text(text))
            }
            (None, value) => Ok(Asked::Value(value.unwrap_or_default().to_owned())),
        }
    }

    fn kind(&self) -> anyhow::Result<Option<IdKind>> {
        let Some(name) = &self.kind else {
            return Ok(None);
        };
        let kind = IdKind::from_name(name).ok_or_else(|| {
            Failure::usage(format!("--kind {name}: no such kind of identifier"))
                .hint("`ledger schema identifiers` lists them")
        })?;
        Ok(Some(kind))
    }

    /// The trust line's text, which is one.
    fn trust(&self) -> anyhow::Result<Option<String>> {
        let Some(given) = &self.trust else {
            return Ok(None);
        };
        let text = if given.contains('+') {
            given.clone()
        } else {
            read_text(given.as_ref())?
        };
        let line = text.trim();
        TrustLine::parse(line).map_err(|e| Failure::usage(format!("--trust: {e}")))?;
        Ok(Some(line.to_owned()))
    }
}

pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<Exit> {
    secret::protect_process()?;
    let answer = match (&args.socket, &args.ledger) {
        (Some(socket), _) => of_daemon(args, socket)?,
        (None, ledger) => of_folder(args, ledger.as_deref().unwrap_or("".as_ref()))?,
    };
    let text = match args.format {
        // ASCII already: no character of it steers a terminal.
        Format::Json => answer.to_json(),
        Format::Text => {
            let local = TimeZone::system();
            let name = local
                .iana_name()
                .filter(|name| !matches!(*name, "UTC" | "Etc/UTC"));
            let name = name.map(str::to_owned);
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

fn of_folder(args: &TraceArgs, ledger: &Path) -> anyhow::Result<Answer> {
    let mut query = match args.asked()? {
        Asked::Value(value) => Query::value(value),
        Asked::Body(bytes) => Query::body(&bytes),
        Asked::Text(text) => Query::pasted(&text),
    };
    if let Some(kind) = args.kind()? {
        query = query.of_kind(kind);
    }
    if let Some(scope) = &args.scope {
        query = query.within(scope);
    }
    let trust = args.trust()?.as_deref().map(TrustLine::parse).transpose();
    let trust = trust.map_err(|e| Failure::usage(format!("--trust: {e}")))?;
    let vault = args.key.open()?;
    let evidence = vault.is_some();
    let identities = match vault {
        Some(identities) => identities,
        None => operational(ledger, args.state.as_deref())?,
    };
    let ask = |with_index: bool, remarks: &[String]| {
        let derived = with_index.then(|| Derived::of_folder(ledger, &identities));
        let derived = derived
            .transpose()
            .map_err(|why| SourceError::NoIndex(why.to_string()))?;
        let options = FolderOptions {
            trust: trust.clone(),
            evidence,
            never_scan: derived.is_some(),
            derived,
            remarks: remarks.to_vec(),
            ..FolderOptions::default()
        };
        FolderSource::open(ledger, identities.again(), options)
            .and_then(|source| ledger_trace::trace(&source, &query, Limits::default()))
    };
    let (mut with_index, mut remarks, mut tries) = (!args.no_index, Vec::new(), 0);
    loop {
        tries += 1;
        match ask(with_index, &remarks) {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_passing() && tries < TRIES => std::thread::sleep(PAUSE),
            // The index decides nothing: without it the chain says the same, only later.
            Err(why @ SourceError::NoIndex(_)) if with_index => {
                remarks.push(format!("the whole chain was read: {why}"));
                (with_index, tries) = (false, 0);
            }
            Err(error) => return Err(failure(&error).into()),
        }
    }
}

/// The operational identity, on the host that appends.
fn operational(ledger: &Path, state: Option<&Path>) -> anyhow::Result<Identities> {
    let id = socket::ledger_id(ledger)?;
    let folder = ledger_writer::state_root(state)?.join(id);
    let identities = operational_identity(&folder).map_err(|why| {
        Failure::could_not_run(format!("no key to look up identifiers with: {why}"))
            .hint("--vault-key FILE on an investigator's machine, --state DIR on the ledger's host")
    })?;
    Ok(identities)
}

fn of_daemon(args: &TraceArgs, socket: &Path) -> anyhow::Result<Answer> {
    let asked = args.asked()?;
    let mut options = TraceOptions {
        kind: args.kind()?.map(|kind| kind.as_str().to_owned()),
        scope: args.scope.clone(),
        trust: args.trust()?,
    };
    if matches!(asked, Asked::Body(_)) {
        options.kind = Some(IdKind::RawBodySha256.as_str().to_owned());
    }
    let told = socket::call(socket, false, |client| async move {
        match asked {
            Asked::Value(value) => client.trace_with(&value, &options).await,
            Asked::Body(bytes) => {
                let digest = Sha256Hex::of(&bytes);
                client.trace_with(digest.as_str(), &options).await
            }
            Asked::Text(text) => client.trace_text(&text, &options).await,
        }
    })?;
    let document = match told {
        Ok(document) => document,
        Err(error) => not_found(&error).ok_or_else(|| socket::failure(socket, &error))?,
    };
    // A later version of the form may hold what this program would leave out.
    let known = document.get("version").and_then(Value::as_u64) == Some(JSON_VERSION.into());
    let answer = serde_json::from_value(document).ok().filter(|_| known);
    let answer = answer.ok_or_else(|| {
        let text = "the daemon's answer is of a form that this program does not know";
        Failure::could_not_run(text).hint("use the `ledger` of the daemon's version")
    })?;
    Ok(answer)
}

/// What was searched, where nothing was found.
fn not_found(error: &ClientError) -> Option<Value> {
    match error {
        ClientError::Refused(problem) if problem.code == "identifier_not_found" => {
            problem.members.get("trace").cloned()
        }
        _ => None,
    }
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
