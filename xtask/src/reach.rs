//! Which packages the keyless verifier can reach, on any platform.
//!
//! The verifier must be unable to decrypt. That is proved here by the absence of every package that
//! could, not by what its code happens to call. Versions are left out of the list, so that a patch
//! release does not touch it.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace::{Outcome, Workspace, capture, refuse};

const LIST: &str = "xtask/data/ledger-verify.packages";

/// Packages that may never appear in the list, blessed or not: ciphers and AEADs, password and
/// extract-and-expand key derivation, key agreement, and libraries that bring all of these.
const BANNED: &[&str] = &[
    "aead",
    "aegis",
    "aes",
    "aes-gcm",
    "aes-gcm-siv",
    "aes-siv",
    "age",
    "age-core",
    "age-plugin",
    "argon2",
    "ascon-aead",
    "aws-lc-rs",
    "aws-lc-sys",
    "bcrypt",
    "boring",
    "ccm",
    "chacha20",
    "chacha20poly1305",
    "cipher",
    "concat-kdf",
    "crypto_box",
    "crypto_secretbox",
    "ecies",
    "elliptic-curve-hpke",
    "hkdf",
    "hpke",
    "ledger-vault",
    "libsodium-sys",
    "ml-kem",
    "native-tls",
    "ocb3",
    "openssl",
    "openssl-sys",
    "orion",
    "pbkdf2",
    "poly1305",
    "rage",
    "ring",
    "rsa",
    "rustls",
    "salsa20",
    "scrypt",
    "secrecy",
    "sodiumoxide",
    "x25519-dalek",
    "xsalsa20poly1305",
];

#[derive(Args)]
pub(crate) struct ReachArgs {
    /// Write the present list over the checked-in one. Banned packages stay refused.
    #[arg(long)]
    pub(crate) bless: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &ReachArgs) -> Result<Outcome> {
    let tree = capture(&mut workspace.cargo([
        "tree",
        "--locked",
        "-p",
        "ledger-verify",
        "-e",
        "normal,build",
        "--target",
        "all",
        "--prefix",
        "none",
        "--no-dedupe",
    ]))?;
    let reached = package_names(&tree);
    refuse(
        &banned(&reached),
        "the verifier must be unable to decrypt: remove the dependency that brings it (`cargo tree -p ledger-verify -i PACKAGE`)",
    )?;
    let path = workspace.root.join(LIST);
    if args.bless {
        let mut text = String::new();
        for name in &reached {
            text.push_str(name);
            text.push('\n');
        }
        fs::write(&path, text).with_context(|| format!("writing {LIST}"))?;
    }
    let listed = fs::read_to_string(&path)
        .with_context(|| format!("reading {LIST} (`cargo xtask reach --bless` writes it)"))?;
    refuse(
        &difference(&listed, &reached),
        "look at what came in, then `cargo xtask reach --bless`",
    )?;
    Ok(Outcome::Passed(format!(
        "{} packages, none that decrypts",
        reached.len()
    )))
}

fn package_names(tree: &str) -> BTreeSet<&str> {
    tree.lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

fn banned(reached: &BTreeSet<&str>) -> Vec<String> {
    reached
        .iter()
        .filter(|name| BANNED.contains(name))
        .map(|name| format!("ledger-verify reaches the banned package {name}"))
        .collect()
}

/// `+` is reached but not listed, `-` is listed but not reached. A list that is not in its one
/// exact form (sorted, each name once) is a finding too.
fn difference(listed: &str, reached: &BTreeSet<&str>) -> Vec<String> {
    let lines: Vec<&str> = listed.lines().collect();
    let set: BTreeSet<&str> = lines.iter().copied().collect();
    let added = reached.difference(&set).map(|name| format!("+ {name}"));
    let gone = set.difference(reached).map(|name| format!("- {name}"));
    let mut findings: Vec<String> = added.chain(gone).collect();
    if findings.is_empty() && lines != set.into_iter().collect::<Vec<_>>() {
        findings.push(format!("{LIST} is not sorted, or names a package twice"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
ledger-verify v0.1.0 (/src/crates/ledger-verify)
serde v1.0.229
serde_derive v1.0.229 (proc-macro)

ledger-format v0.1.0 (/src/crates/ledger-format)
serde v1.0.229
";

    #[test]
    fn names_are_unique_and_without_versions() {
        let names: Vec<_> = package_names(TREE).into_iter().collect();
        assert_eq!(
            names,
            ["ledger-format", "ledger-verify", "serde", "serde_derive"]
        );
    }

    #[test]
    fn differences_go_both_ways() {
        let reached = package_names(TREE);
        let found = difference(
            "ledger-format\nledger-verify\nlibc\nserde_derive\n",
            &reached,
        );
        assert_eq!(found, ["+ serde", "- libc"]);
    }

    #[test]
    fn an_unsorted_list_is_refused() {
        let reached = package_names(TREE);
        let list = "ledger-verify\nledger-format\nserde\nserde_derive\n";
        assert_eq!(difference(list, &reached).len(), 1);
        let list = "ledger-format\nledger-verify\nserde\nserde_derive\n";
        assert_eq!(difference(list, &reached), Vec::<String>::new());
    }

    #[test]
    fn a_cipher_is_banned_even_when_listed() {
        let reached = BTreeSet::from(["chacha20poly1305", "serde"]);
        assert_eq!(
            banned(&reached),
            ["ledger-verify reaches the banned package chacha20poly1305"]
        );
    }
}
