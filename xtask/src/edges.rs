//! Which crate of the workspace may depend on which.
//!
//! A boundary is a crate edge, never a feature: features unify across a workspace build. This file
//! holds the table; what external packages a crate reaches is `reach.rs`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use cargo_metadata::DependencyKind;

use crate::workspace::{Outcome, Workspace, refuse};

/// Crate, and the crates of the workspace that it may depend on (normal and build dependencies).
/// A crate that is not built yet may already stand here; a crate that is not here may not be built.
const EDGES: &[(&str, &[&str])] = &[
    ("ledger-format", &[]),
    ("ledger-records", &["ledger-format"]),
    ("ledger-vault", &["ledger-format"]),
    (
        "ledger-index",
        &["ledger-format", "ledger-records", "ledger-vault"],
    ),
    (
        "ledger-writer",
        &[
            "ledger-format",
            "ledger-records",
            "ledger-vault",
            "ledger-index",
        ],
    ),
    ("ledger-verify", &["ledger-format"]),
    (
        "ledger-trace",
        &[
            "ledger-format",
            "ledger-records",
            "ledger-vault",
            "ledger-index",
        ],
    ),
    ("ledger-client", &["ledger-format", "ledger-records"]),
    (
        "ledger-server",
        &[
            "ledger-format",
            "ledger-records",
            "ledger-writer",
            "ledger-index",
            "ledger-trace",
        ],
    ),
    ("ledger-intake", &["ledger-records", "ledger-client"]),
];

/// Binaries that gather the others: they may depend on every crate of the table, and none of it on
/// them.
const TOPS: &[&str] = &["ledger-cli", "ledger-tests", "xtask"];

/// The keyless crate, and the crate that holds every secret byte. Not even the former's tests may
/// link the latter: they would prove nothing about a machine that never saw a secret.
const KEYLESS: &str = "ledger-verify";
const SECRETS: &str = "ledger-vault";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Normal and build dependencies: they are in, or make, what is shipped.
    Shipped,
    Dev,
}

#[derive(Debug, Clone)]
struct Edge {
    from: String,
    to: String,
    kind: Kind,
}

pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let members: Vec<_> = workspace.metadata.workspace_packages();
    let names: BTreeSet<String> = members.iter().map(|p| p.name.to_string()).collect();
    // Declared dependencies, so that optional and platform-specific ones count as well.
    let edges: Vec<Edge> = members
        .iter()
        .flat_map(|package| package.dependencies.iter().map(move |d| (package, d)))
        .filter(|(_, dependency)| names.contains(&dependency.name))
        .map(|(package, dependency)| Edge {
            from: package.name.to_string(),
            to: dependency.name.clone(),
            kind: match dependency.kind {
                DependencyKind::Development => Kind::Dev,
                _ => Kind::Shipped,
            },
        })
        .collect();
    refuse(
        &findings(&names, &edges),
        "the table of permitted edges is in xtask/src/edges.rs; a change to it is a design decision",
    )?;
    let shipped = edges.iter().filter(|e| e.kind == Kind::Shipped).count();
    Ok(Outcome::Passed(format!(
        "{} crates, {shipped} edges",
        names.len()
    )))
}

fn findings(members: &BTreeSet<String>, edges: &[Edge]) -> Vec<String> {
    let table: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut findings = Vec::new();
    for member in members {
        if !table.contains_key(member.as_str()) && !TOPS.contains(&member.as_str()) {
            findings.push(format!("{member} is not in the table"));
        }
    }
    for edge in edges.iter().filter(|edge| edge.kind == Kind::Shipped) {
        let permitted = match table.get(edge.from.as_str()) {
            Some(targets) => targets.contains(&edge.to.as_str()),
            None => table.contains_key(edge.to.as_str()),
        };
        if !permitted {
            findings.push(format!("{} may not depend on {}", edge.from, edge.to));
        }
    }
    for edge in edges.iter().filter(|edge| edge.kind == Kind::Dev) {
        if edge.from == KEYLESS && reaches(&edge.to, SECRETS, edges) {
            findings.push(format!(
                "{KEYLESS} has the dev-dependency {}, which links {SECRETS} (cross-crate tests belong to tests/)",
                edge.to
            ));
        }
    }
    findings
}

/// Whether `goal` is linked when `start` is.
fn reaches(start: &str, goal: &str, edges: &[Edge]) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(crate_name) = open.pop() {
        if crate_name == goal {
            return true;
        }
        if seen.insert(crate_name) {
            open.extend(
                edges
                    .iter()
                    .filter(|e| e.kind == Kind::Shipped && e.from == crate_name)
                    .map(|e| e.to.as_str()),
            );
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(edges: &[(&str, &str, Kind)]) -> Vec<String> {
        let members = edges
            .iter()
            .flat_map(|(from, to, _)| [(*from).to_owned(), (*to).to_owned()])
            .collect();
        let edges: Vec<Edge> = edges
            .iter()
            .map(|(from, to, kind)| Edge {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
                kind: *kind,
            })
            .collect();
        findings(&members, &edges)
    }

    #[test]
    fn permitted_edges_pass() {
        let found = check(&[
            ("ledger-records", "ledger-format", Kind::Shipped),
            ("ledger-vault", "ledger-records", Kind::Dev),
            ("ledger-cli", "ledger-vault", Kind::Shipped),
            ("xtask", "ledger-writer", Kind::Shipped),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_forbidden_edge_is_named() {
        let found = check(&[("ledger-verify", "ledger-vault", Kind::Shipped)]);
        assert_eq!(found, ["ledger-verify may not depend on ledger-vault"]);
    }

    #[test]
    fn nothing_depends_on_a_top() {
        let found = check(&[
            ("ledger-tests", "ledger-cli", Kind::Shipped),
            ("ledger-format", "xtask", Kind::Shipped),
        ]);
        assert_eq!(
            found,
            [
                "ledger-tests may not depend on ledger-cli",
                "ledger-format may not depend on xtask"
            ]
        );
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        let found = check(&[("ledger-new", "ledger-format", Kind::Dev)]);
        assert_eq!(found, ["ledger-new is not in the table"]);
    }

    #[test]
    fn the_tests_of_the_verifier_do_not_link_the_vault() {
        let found = check(&[
            ("ledger-verify", "ledger-writer", Kind::Dev),
            ("ledger-writer", "ledger-vault", Kind::Shipped),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("ledger-writer, which links ledger-vault"),
            "{found:?}"
        );
    }

    #[test]
    fn the_table_has_no_cycle_and_names_only_itself() {
        let names: Vec<&str> = EDGES.iter().map(|(name, _)| *name).collect();
        let edges: Vec<Edge> = EDGES
            .iter()
            .flat_map(|(from, targets)| targets.iter().map(|to| (*from, *to)))
            .map(|(from, to)| Edge {
                from: from.to_owned(),
                to: to.to_owned(),
                kind: Kind::Shipped,
            })
            .collect();
        for edge in &edges {
            assert!(names.contains(&edge.to.as_str()), "{edge:?}");
            assert!(!reaches(&edge.to, &edge.from, &edges), "{edge:?}");
        }
    }
}
