//! `ledger schema`: what records look like, for programs and for people.

use std::fmt::Write as _;

use clap::Args;
use ledger_records::RecordType;
use ledger_records::identifiers::TABLE;

use crate::exit::{Exit, Failure};

/// Print the JSON Schema of records, or the table of identifiers
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger schema                 any record
  ledger schema attempt         one type
  ledger schema identifiers     which identifiers exist, and what each is worth

EXIT CODES
  0 printed   64 no such type")]
pub(crate) struct SchemaArgs {
    /// A record type, or `identifiers`
    what: Option<String>,

    /// The table of identifiers as JSON; schemas always are
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &SchemaArgs) -> anyhow::Result<Exit> {
    let text = match args.what.as_deref() {
        None => pretty(&ledger_records::schema_all())?,
        Some("identifiers") if args.json => pretty(&serde_json::to_value(TABLE)?)?,
        Some("identifiers") => identifiers()?,
        Some(name) => pretty(&ledger_records::schema(record_type(name)?))?,
    };
    crate::print(&text)?;
    Ok(Exit::Done)
}

fn pretty(value: &serde_json::Value) -> anyhow::Result<String> {
    Ok(format!("{value:#}\n"))
}

fn record_type(name: &str) -> anyhow::Result<RecordType> {
    let names: Vec<&str> = RecordType::ALL.iter().map(|t| t.as_str()).collect();
    let found = RecordType::ALL.iter().find(|t| t.as_str() == name);
    found.copied().ok_or_else(|| {
        let name = crate::terminal::Shown(name);
        Failure::usage(format!(
            "expected a record type or `identifiers`, found {name}"
        ))
        .hint(format!("one of {}", names.join(", ")))
        .into()
    })
}

fn identifiers() -> anyhow::Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "{:<20} {:<10} {:<9} {:<9} {:<7} QUESTION",
        "KIND", "SCOPE", "REACH", "MADE BY", "REPEATS"
    )?;
    for row in TABLE {
        let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let (scope, reach, maker) = (
            word(serde_json::to_value(row.scope)?),
            word(serde_json::to_value(row.reach)?),
            word(serde_json::to_value(row.made_by)?),
        );
        let repeats = if row.stable_across_repeats {
            "same"
        } else {
            "new"
        };
        writeln!(
            text,
            "{:<20} {scope:<10} {reach:<9} {maker:<9} {repeats:<7} {}",
            row.name, row.question
        )?;
    }
    text.push_str(
        "\nREACH    joining: followed from record to record; grouping: only where a search starts there\n\
         REPEATS  whether a repeat of the same work carries the same value\n",
    );
    Ok(text)
}
