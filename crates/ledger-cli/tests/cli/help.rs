//! Help, usage errors, exit codes, and the commands that need no ledger.

use crate::bench::Bench;

const COMMANDS: [&[&str]; 23] = [
    &[],
    &["vault-key"],
    &["vault-key", "new"],
    &["init"],
    &["append"],
    &["serve"],
    &["config"],
    &["config", "check"],
    &["status"],
    &["healthcheck"],
    &["recover"],
    &["index"],
    &["index", "rebuild"],
    &["inspect"],
    &["checkpoint"],
    &["read"],
    &["trace"],
    &["key"],
    &["key", "test"],
    &["explain"],
    &["schema"],
    &["completions"],
    &["man"],
];

#[test]
fn help_of_every_command() {
    let bench = Bench::new();
    for command in COMMANDS {
        let ended = bench.run(command.iter().chain(&["--help"]), "");
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{command:?}");
        insta::assert_snapshot!(format!("help {}", command.join(" ")).trim(), ended.out);
    }
    // The verifier's own help is tested with the verifier; here only that it is reached.
    let ended = bench.run(["verify", "--help"], "");
    assert!(
        ended.code == 0 && ended.out.contains("ledger verify"),
        "{}",
        ended.out
    );
}

#[test]
fn every_command_that_does_something_has_an_example() {
    let bench = Bench::new();
    for command in COMMANDS
        .iter()
        .filter(|c| !matches!(c, [] | ["vault-key"] | ["key"] | ["config"] | ["index"]))
    {
        let ended = bench.run(command.iter().chain(&["--help"]), "");
        assert!(ended.out.contains("EXAMPLE\n  ledger "), "{command:?}");
    }
}

#[test]
fn usage_errors_end_with_64() {
    let bench = Bench::new();
    let cases: [&[&str]; 14] = [
        &[],
        &["no-such-command"],
        &["init"],
        &["init", "audit", "--origin", "a.example/b"],
        &[
            "init",
            "audit",
            "--origin",
            "white space",
            "--vault-recipient",
            "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa",
        ],
        &[
            "init",
            "audit",
            "--origin",
            "a.example/b",
            "--vault-recipient",
            "age1nonsense",
        ],
        &[
            "vault-key",
            "new",
            "k",
            "--passphrase",
            "--recipients-file",
            "x",
        ],
        &["append"],
        &["append", "--ledger", "audit", "--max-batch", "0"],
        &["append", "--ledger", "audit", "--payload-class", "body"],
        &["recover", "audit", "--past-damage", "--lost-epoch-key"],
        &[
            "read",
            "audit",
            "--vault-key",
            "k",
            "--from",
            "5",
            "--until",
            "4",
        ],
        &["inspect", "audit", "--segments", "--checkpoints"],
        &["schema", "nothing"],
    ];
    for case in cases {
        let ended = bench.run(case, "");
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (64, ""),
            "{case:?}: {}",
            ended.err
        );
        assert!(!ended.err.is_empty(), "{case:?}");
    }
    assert!(
        std::fs::read_dir(bench.path("")).unwrap().next().is_none(),
        "nothing was written"
    );
}

#[test]
fn what_cannot_run_ends_with_3() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("empty")).unwrap();
    std::fs::write(bench.path("file"), "x").unwrap();
    let cases: [&[&str]; 9] = [
        &["inspect", "missing"],
        &["inspect", "empty"],
        &["checkpoint", "file"],
        &["read", "empty", "--vault-key", "k"],
        &["key", "test", "missing", "--vault-key", "k"],
        &["append", "--ledger", "empty"],
        &["append", "--ledger", "missing", "nothing.ndjson"],
        &["recover", "missing"],
        &[
            "init",
            "audit",
            "--origin",
            "a.example/b",
            "--recipients-file",
            "missing",
        ],
    ];
    for case in cases {
        let ended = bench.run(case, "");
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (3, ""),
            "{case:?}: {}",
            ended.err
        );
        assert!(ended.err.starts_with("error: "), "{case:?}: {}", ended.err);
    }
    let ended = bench.run(["inspect", "empty"], "");
    insta::assert_snapshot!("no ledger", ended.shown(&bench));
}

#[test]
fn version_goes_to_standard_output() {
    let bench = Bench::new();
    let ended = bench.run(["--version"], "");
    assert_eq!(
        (ended.code, ended.out),
        (0, format!("ledger {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn constants_are_lines_of_name_and_value() {
    let bench = Bench::new();
    let ended = bench.run(["inspect", "constants"], "");
    assert_eq!(ended.code, 0);
    let lines: Vec<_> = ended
        .out
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert_eq!(lines.len(), ledger_format::limits::TABLE.len());
    assert!(lines.contains(&("frame_len_max", "1048576")));
}

#[test]
fn schemas_are_json_and_name_every_type() {
    let bench = Bench::new();
    for record_type in ledger_records::RecordType::ALL {
        let ended = bench.run(["schema", record_type.as_str()], "");
        let schema: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(schema["properties"]["type"]["const"], record_type.as_str());
    }
    let all = bench.run(["schema"], "").out;
    assert!(serde_json::from_str::<serde_json::Value>(&all).is_ok());
    let table = bench.run(["schema", "identifiers"], "");
    insta::assert_snapshot!("identifiers", table.out);
    let json: serde_json::Value =
        serde_json::from_str(&bench.run(["schema", "identifiers", "--json"], "").out).unwrap();
    assert_eq!(
        json.as_array().unwrap().len(),
        ledger_records::identifiers::TABLE.len()
    );
    assert_eq!(json[0]["name"], "record_id");
}

#[test]
fn completions_and_manual_pages() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let ended = bench.run(["completions", shell], "");
        assert!(
            ended.code == 0 && ended.out.contains("vault-key") && ended.out.contains("healthcheck"),
            "{shell}"
        );
    }
    assert!(bench.run(["man"], "").out.starts_with(".ie"));
    std::fs::create_dir(bench.path("man")).unwrap();
    assert_eq!(bench.run(["man", "man"], "").code, 0);
    for page in [
        "ledger.1",
        "ledger-append.1",
        "ledger-key-test.1",
        "ledger-serve.1",
        "ledger-config-check.1",
    ] {
        let text = std::fs::read_to_string(bench.path("man").join(page)).unwrap();
        assert!(text.contains("EXAMPLE"), "{page}");
    }
}

#[test]
fn explain_knows_codes() {
    let bench = Bench::new();
    let known = bench.run(["explain", "frame_altered"], "");
    assert!(known.code == 0 && known.out.len() > 100, "{known:?}");
    assert_eq!(bench.run(["explain", "no_such_code"], "").code, 64);
}
