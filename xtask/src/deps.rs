//! The dependency policy of `deny.toml`: licences, bans and sources, from `cargo metadata`.
//!
//! The same file is read by cargo-deny, which also knows security advisories. This check needs
//! nothing installed and no network, so the policy holds everywhere; it does not know advisories.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, anyhow, bail};
use cargo_metadata::{Metadata, Package, PackageId};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use crate::workspace::{Outcome, Workspace, capture, refuse, run as run_command, succeeds};

const POLICY: &str = "deny.toml";

/// What this check reads of `deny.toml`; cargo-deny reads the rest.
#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
    /// Packages that may depend on it directly all the same. Empty: nobody may.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    unknown_registry: String,
    unknown_git: String,
    allow_registry: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let text = fs::read_to_string(workspace.root.join(POLICY))
        .with_context(|| format!("reading {POLICY}"))?;
    let findings = check(&text, &workspace.metadata)?;
    refuse(&findings, &format!("the policy is in {POLICY}"))?;
    Ok(Outcome::Passed(format!(
        "{} packages: licences, bans, sources",
        workspace.metadata.packages.len()
    )))
}

/// Step `cargo-deny`: the same file read by cargo-deny, and the security advisories.
pub(crate) fn cargo_deny(workspace: &Workspace) -> Result<Outcome> {
    if !succeeds(&mut workspace.cargo(["deny", "--version"])) {
        return Ok(Outcome::Skipped(
            "cargo-deny is not installed, so no security advisories were looked up".into(),
        ));
    }
    run_command(&mut workspace.cargo([
        "deny",
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    // A machine without a way to the advisory database must not turn red for that, and must not
    // look as if advisories had been checked.
    if !succeeds(&mut workspace.cargo(["deny", "--locked", "fetch", "db"])) {
        return Ok(Outcome::Skipped(
            "bans, licences and sources are good; the advisory database could not be fetched, so no security advisories were looked up".into(),
        ));
    }
    run_command(&mut workspace.cargo([
        "deny",
        "--locked",
        "check",
        "--disable-fetch",
        "advisories",
    ]))?;
    let version = capture(&mut workspace.cargo(["deny", "--version"]))?;
    Ok(Outcome::Passed(format!(
        "{}, advisories too",
        version.trim()
    )))
}

fn check(policy: &str, metadata: &Metadata) -> Result<Vec<String>> {
    let policy: Policy = toml::from_str(policy).with_context(|| format!("parsing {POLICY}"))?;
    if policy.sources.unknown_registry != "deny" || policy.sources.unknown_git != "deny" {
        bail!("{POLICY}: sources must deny unknown registries and git");
    }
    let mut findings = licence_findings(&policy.licenses, &metadata.packages)?;
    findings.extend(ban_findings(&policy.bans, metadata)?);
    findings.extend(source_findings(&policy.sources, &metadata.packages));
    Ok(findings)
}

fn licence_findings(policy: &Licenses, packages: &[Package]) -> Result<Vec<String>> {
    let allowed = licensees(&policy.allow)?;
    let mut exceptions = BTreeMap::new();
    for exception in &policy.exceptions {
        exceptions.insert(exception.name.as_str(), licensees(&exception.allow)?);
    }
    let mut findings = Vec::new();
    for package in packages {
        let Some(text) = package.license.as_deref() else {
            findings.push(format!(
                "{} {} names no licence",
                package.name, package.version
            ));
            continue;
        };
        // Lax: older manifests write `MIT/Apache-2.0`.
        let expression = match Expression::parse_mode(text, ParseMode::LAX) {
            Ok(expression) => expression,
            Err(error) => {
                findings.push(format!(
                    "{} {}: the licence `{text}` is no SPDX expression: {}",
                    package.name, package.version, error.reason
                ));
                continue;
            }
        };
        let excepted = exceptions.get(package.name.as_str());
        let good = expression.evaluate(|requirement| {
            allowed
                .iter()
                .chain(excepted.into_iter().flatten())
                .any(|licensee| licensee.satisfies(requirement))
        });
        if !good {
            findings.push(format!(
                "{} {}: the licence `{text}` is not on the list",
                package.name, package.version
            ));
        }
    }
    Ok(findings)
}

fn licensees(names: &[String]) -> Result<Vec<Licensee>> {
    names
        .iter()
        .map(|name| {
            Licensee::parse(name)
                .map_err(|error| anyhow!("{POLICY}: `{name}` is no SPDX licence: {}", error.reason))
        })
        .collect()
}

fn ban_findings(policy: &Bans, metadata: &Metadata) -> Result<Vec<String>> {
    let names: BTreeMap<&PackageId, &str> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let nodes = &metadata
        .resolve
        .as_ref()
        .context("cargo metadata resolved no graph")?
        .nodes;
    let mut findings = Vec::new();
    for ban in &policy.deny {
        if ban.reason.trim().is_empty() {
            findings.push(format!("{POLICY}: the ban of {} gives no reason", ban.name));
        }
        for node in nodes {
            let from = names.get(&node.id).copied().unwrap_or_default();
            let depends = node
                .dependencies
                .iter()
                .any(|id| names.get(id).is_some_and(|name| *name == ban.name));
            if depends && !ban.wrappers.iter().any(|wrapper| wrapper == from) {
                findings.push(format!(
                    "{from} depends on the banned {}: {}",
                    ban.name, ban.reason
                ));
            }
        }
    }
    Ok(findings)
}

fn source_findings(policy: &Sources, packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .filter_map(|package| {
            // No source: a path in this workspace.
            let source = package.source.as_ref()?;
            let known = source
                .repr
                .strip_prefix("registry+")
                .is_some_and(|url| policy.allow_registry.iter().any(|allowed| allowed == url));
            (!known).then(|| {
                format!(
                    "{} {} comes from {}",
                    package.name, package.version, source.repr
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY_TEXT: &str = r#"
[licenses]
allow = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]
exceptions = [{ crate = "odd", allow = ["MPL-2.0"] }]
[bans]
deny = [
  { crate = "sealer", reason = "only the vault seals", wrappers = ["vault"] },
  { crate = "legacy", reason = "unpatched" },
]
[sources]
unknown-registry = "deny"
unknown-git = "deny"
allow-registry = ["https://example.com/index"]
"#;

    const REGISTRY: &str = "registry+https://example.com/index";

    /// (name, licence, source, direct dependencies)
    type Sample<'a> = (&'a str, Option<&'a str>, Option<&'a str>, &'a [&'a str]);

    fn graph(samples: &[Sample<'_>]) -> Metadata {
        let id = |name: &str| format!("{name} 1.0.0");
        let packages: Vec<_> = samples
            .iter()
            .map(|(name, license, source, _)| {
                serde_json::json!({
                    "name": name, "version": "1.0.0", "id": id(name), "license": license,
                    "source": source, "dependencies": [], "targets": [], "features": {},
                    "manifest_path": "/src/Cargo.toml",
                })
            })
            .collect();
        let nodes: Vec<_> = samples
            .iter()
            .map(|(name, _, _, to)| {
                let to: Vec<_> = to.iter().map(|name| id(name)).collect();
                serde_json::json!({ "id": id(name), "dependencies": to, "features": [] })
            })
            .collect();
        let metadata = serde_json::json!({
            "packages": packages, "workspace_members": [], "version": 1,
            "resolve": { "nodes": nodes, "root": null },
            "target_directory": "/src/target", "workspace_root": "/src",
        });
        serde_json::from_value(metadata).unwrap()
    }

    fn findings(samples: &[Sample<'_>]) -> Vec<String> {
        check(POLICY_TEXT, &graph(samples)).unwrap()
    }

    #[test]
    fn permitted_packages_pass() {
        let found = findings(&[
            ("a", Some("GPL-3.0-only OR MIT"), Some(REGISTRY), &[]),
            ("b", Some("MIT/Apache-2.0"), Some(REGISTRY), &["a"]),
            ("c", Some("(MIT OR Apache-2.0) AND Unicode-3.0"), None, &[]),
            ("d", Some("Apache-2.0 WITH LLVM-exception"), None, &[]),
            ("odd", Some("MPL-2.0"), Some(REGISTRY), &[]),
            ("sealer", Some("MIT"), Some(REGISTRY), &[]),
            ("vault", Some("MIT"), None, &["sealer"]),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn licences_off_the_list_are_refused() {
        let found = findings(&[
            ("a", Some("GPL-3.0-only"), None, &[]),
            ("b", None, None, &[]),
            ("c", Some("MIT AND MPL-2.0"), None, &[]),
            ("d", Some("the usual"), None, &[]),
            ("e", Some("Apache-2.0"), None, &[]),
        ]);
        let packages: Vec<_> = found.iter().map(|finding| &finding[..1]).collect();
        assert_eq!(packages, ["a", "b", "c", "d", "e"], "{found:?}");
    }

    #[test]
    fn bans_hold_except_for_wrappers() {
        let found = findings(&[
            ("sealer", Some("MIT"), None, &[]),
            ("legacy", Some("MIT"), None, &[]),
            ("vault", Some("MIT"), None, &["sealer", "legacy"]),
            ("tool", Some("MIT"), None, &["sealer"]),
        ]);
        assert_eq!(
            found,
            [
                "tool depends on the banned sealer: only the vault seals",
                "vault depends on the banned legacy: unpatched",
            ]
        );
    }

    #[test]
    fn only_the_named_registry_is_a_source() {
        let git = "git+https://example.com/index?rev=1#1";
        let other = "registry+https://example.com/index2";
        let found = findings(&[
            ("a", Some("MIT"), Some(git), &[]),
            ("b", Some("MIT"), Some(other), &[]),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_policy_that_tolerates_unknown_sources_is_an_error() {
        let policy = POLICY_TEXT.replace("unknown-git = \"deny\"", "unknown-git = \"warn\"");
        assert!(check(&policy, &graph(&[])).is_err());
    }

    #[test]
    fn a_misspelt_licence_is_an_error() {
        let policy = POLICY_TEXT.replace("\"MIT\"", "\"MITT\"");
        assert!(check(&policy, &graph(&[])).is_err());
    }
}
