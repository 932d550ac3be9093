//! The daemon without the `ledger` command: `serve LEDGER STATE_ROOT [CONFIG]`; used by the tests.

use ledger_server::{Config, Options, Providers, init_logging, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (ledger, state_root, config) = match &arguments[..] {
        [ledger, state] => (ledger, state, String::new()),
        [ledger, state, path] => match std::fs::read_to_string(path) {
            Ok(text) => (ledger, state, text),
            Err(e) => {
                eprintln!("{path}: {e}");
                return ExitCode::from(3);
            }
        },
        _ => {
            eprintln!("usage: serve LEDGER STATE_ROOT [CONFIG]");
            return ExitCode::from(64);
        }
    };
    let config = match Config::parse(&config) {
        Ok(config) => config,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(3);
        }
    };
    if let Err(e) = init_logging(config.log) {
        eprintln!("{e}");
    }
    let options = Options {
        ledger: ledger.into(),
        state_root: state_root.into(),
        config,
    };
    match run(options, |_| Providers::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(e.exit_code())
        }
    }
}
