//! `ledger-format.md` against itself and against the program.
//!
//! Bytes are drawn once, in that document. Its byte tables must add up, and every limit it names
//! must be the one the program was built with, and the other way round. Prose is not read.

mod bytes;
mod constants;
mod markdown;

use std::fs;

use anyhow::{Context, Result};

use crate::spec::markdown::{Finding, Marker};
use crate::workspace::{Outcome, Workspace, capture, refuse};

const DOCUMENT: &str = "ledger-format.md";

pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let text = fs::read_to_string(workspace.root.join(DOCUMENT))
        .with_context(|| format!("reading {DOCUMENT}"))?;
    let (checked, findings) = check_document(&text);
    refuse(&show(&findings), "the document does not add up")?;

    let printed = capture(&mut workspace.cargo([
        "run",
        "--locked",
        "--quiet",
        "-p",
        "ledger-cli",
        "--",
        "inspect",
        "constants",
    ]))?;
    refuse(
        &show(&constants::compare(&checked.constants, &printed)),
        &format!("one of {DOCUMENT} and the program is wrong: the document decides"),
    )?;
    Ok(Outcome::Passed(format!(
        "{} byte tables add up, {} constants agree",
        checked.byte_tables,
        checked.constants.len()
    )))
}

struct Checked {
    byte_tables: usize,
    constants: constants::Constants,
}

fn check_document(text: &str) -> (Checked, Vec<Finding>) {
    let (marked, mut findings) = markdown::parse(text);
    let mut checked = Checked {
        byte_tables: 0,
        constants: constants::Constants::new(),
    };
    for section in &marked {
        for table in &section.tables {
            match &section.marker {
                Marker::Bytes(name) => {
                    checked.byte_tables += 1;
                    findings.extend(bytes::check(name, table));
                }
                Marker::Constants => {
                    findings.extend(constants::collect(table, &mut checked.constants));
                }
            }
        }
    }
    // A document without any is a parser that no longer finds them.
    if checked.byte_tables == 0 {
        findings.push(Finding::new(1, "no byte table is marked"));
    }
    if checked.constants.is_empty() {
        findings.push(Finding::new(1, "no table of constants is marked"));
    }
    (checked, findings)
}

/// In the order of the document.
fn show(findings: &[Finding]) -> Vec<String> {
    let mut findings: Vec<_> = findings.iter().collect();
    findings.sort_by_key(|finding| finding.line);
    findings
        .into_iter()
        .map(|finding| format!("{DOCUMENT}:{}: {}", finding.line, finding.message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# Format

<!-- bytes: magic -->
| offset | size | field |
|---|---|---|
| 0 | 1 | head |
| 1 | 16 | text |
| 17 | | first frame |

## Limits

<!-- constants -->
| name | value | unit | reason |
|---|---|---|---|
| frame_len_max | 1048576 | bytes | bounds memory |
";

    #[test]
    fn a_sound_document_passes() {
        let (checked, findings) = check_document(SAMPLE);
        assert_eq!(show(&findings), Vec::<String>::new());
        assert_eq!(checked.byte_tables, 1);
        assert_eq!(checked.constants.len(), 1);
    }

    #[test]
    fn findings_carry_the_line() {
        let (_, findings) = check_document(&SAMPLE.replace("| 1 | 16 |", "| 2 | 16 |"));
        assert_eq!(
            show(&findings),
            [
                "ledger-format.md:7: magic: `text` is at offset 2, but what stands before it ends at 1"
            ]
        );
    }

    #[test]
    fn a_document_without_marks_is_refused() {
        let text = SAMPLE
            .replace("<!--", "<!-- was")
            .replace("was bytes", "was");
        let (_, findings) = check_document(&text);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
