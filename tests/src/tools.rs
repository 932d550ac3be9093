//! Tools of the system that some tests need, and random numbers that can be played again.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Says on standard error that a test is skipped, and why.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// Whether a program can be started.
#[must_use]
pub fn has(program: &str) -> bool {
    let quiet = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok()
}

/// Whether strace is there and may trace: containers often forbid it.
#[must_use]
pub fn can_trace() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let traced = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", "trace=exit_group", "true"])
            .stdin(Stdio::null())
            .output();
        traced.is_ok_and(|o| o.status.success())
    })
}

/// A generator of numbers that a seed gives again: `SplitMix64`, no secret depends on it.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From `LEDGER_TEST_SEED`, else from the clock; printed, so that a failure can be played again.
    #[must_use]
    pub fn from_environment(test: &str) -> Self {
        let clock = || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.unwrap_or_default().as_nanos() as u64
        };
        let seed = std::env::var("LEDGER_TEST_SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(clock);
        eprintln!("{test}: play again with LEDGER_TEST_SEED={seed}");
        Self(seed)
    }

    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The program `ledger`, built if need be.
///
/// # Panics
/// It does not build.
#[must_use]
pub fn ledger_program() -> PathBuf {
    program("ledger-cli", "ledger")
}

fn program(package: &str, name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let output = Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--message-format=json",
                "--package",
                package,
                "--bin",
                name,
            ])
            .args(["--manifest-path", manifest])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo starts");
        assert!(output.status.success(), "{name} does not build");
        let text = String::from_utf8_lossy(&output.stdout);
        let executable = text
            .lines()
            .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
            .find_map(|m| {
                (m["target"]["name"] == name)
                    .then(|| m["executable"].as_str().map(PathBuf::from))
                    .flatten()
            });
        executable.expect("cargo names the program it built")
    });
    built.clone()
}
