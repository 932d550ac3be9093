//! The table of constants against what `ledger inspect constants` prints.
//!
//! Values are compared as texts, digits without their grouping. Units and reasons are for people.

use std::collections::BTreeMap;

use super::markdown::{Finding, Table, plain};

/// Name to value and the line where the document says so.
pub(super) type Constants = BTreeMap<String, (String, usize)>;

/// Adds the rows of one table.
pub(super) fn collect(table: &Table, constants: &mut Constants) -> Vec<Finding> {
    let (Some(name), Some(value), Some(_), Some(reason)) = (
        table.column("name"),
        table.column("value"),
        table.column("unit"),
        table.column("reason"),
    ) else {
        return vec![Finding::new(
            table.line,
            "a table of constants has the columns name, value, unit, reason",
        )];
    };
    let mut findings = Vec::new();
    for row in &table.rows {
        let key = plain(&row.cells[name]);
        let text = normal(plain(&row.cells[value]));
        if key.is_empty() || key.contains(char::is_whitespace) || text.is_empty() {
            findings.push(Finding::new(
                row.line,
                "a constant needs a name of one word and a value",
            ));
        } else if constants.insert(key.to_owned(), (text, row.line)).is_some() {
            findings.push(Finding::new(row.line, format!("{key} stands here twice")));
        }
        if row.cells[reason].is_empty() {
            findings.push(Finding::new(row.line, format!("{key} gives no reason")));
        }
    }
    findings
}

/// `printed`: a line `name value` for each constant of the program.
pub(super) fn compare(document: &Constants, printed: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut program = BTreeMap::new();
    for line in printed.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if program.insert(name, normal(value.trim())).is_some() {
            findings.push(Finding::new(1, format!("the program prints {name} twice")));
        }
    }
    for (name, (value, line)) in document {
        match program.get(name.as_str()) {
            Some(found) if found == value => {}
            Some(found) => findings.push(Finding::new(
                *line,
                format!("{name} is {value} here and {found} in the program"),
            )),
            None => findings.push(Finding::new(
                *line,
                format!("{name} is {value} here and unknown to the program"),
            )),
        }
    }
    for (name, value) in &program {
        if !document.contains_key(*name) {
            findings.push(Finding::new(
                1,
                format!("{name} is {value} in the program and missing here"),
            ));
        }
    }
    findings
}

/// Digits without grouping marks; quotes around a text dropped.
fn normal(value: &str) -> String {
    let grouped = |c: char| c.is_ascii_digit() || "_,".contains(c) || c.is_whitespace();
    if value.starts_with(|c: char| c.is_ascii_digit()) && value.chars().all(grouped) {
        return value.chars().filter(char::is_ascii_digit).collect();
    }
    value
        .strip_prefix('"')
        .and_then(|inner| inner.strip_suffix('"'))
        .unwrap_or(value)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::markdown;
    use super::*;

    fn document(rows: &str) -> (Constants, Vec<String>) {
        let text = format!(
            "<!-- constants -->\n| name | value | unit | reason |\n|---|---|---|---|\n{rows}"
        );
        let (marked, problems) = markdown::parse(&text);
        assert_eq!(problems, []);
        let mut constants = Constants::new();
        let findings = collect(&marked[0].tables[0], &mut constants);
        (constants, messages(findings))
    }

    fn messages(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn equal_values_pass_whatever_their_grouping() {
        let (constants, findings) = document(
            "| `a_max` | 1,048,576 | bytes | r |\n| b | 16 384 | | r |\n| c | `\"ledger v1\"` | | r |\n",
        );
        assert_eq!(findings, Vec::<String>::new());
        let found = compare(&constants, "a_max 1048576\nb\t16384\n\nc ledger v1\n");
        assert_eq!(messages(found), Vec::<String>::new());
    }

    #[test]
    fn a_difference_or_a_name_on_one_side_is_a_finding() {
        let (constants, _) = document("| a | 1 | | r |\n| b | 2 | | r |\n");
        let found = compare(&constants, "a 3\nc 4\n");
        assert_eq!(
            messages(found),
            [
                "a is 1 here and 3 in the program",
                "b is 2 here and unknown to the program",
                "c is 4 in the program and missing here",
            ]
        );
    }

    #[test]
    fn repeated_names_are_findings_on_either_side() {
        let (constants, findings) = document("| a | 1 | | r |\n| a | 1 | | r |\n");
        assert_eq!(findings, ["a stands here twice"]);
        assert_eq!(
            messages(compare(&constants, "a 1\na 1\n")),
            ["the program prints a twice"]
        );
    }

    #[test]
    fn every_constant_has_a_value_and_a_reason() {
        let (_, findings) = document("| a | 1 | bytes | |\n| b | | | r |\n");
        assert_eq!(
            findings,
            [
                "a gives no reason",
                "a constant needs a name of one word and a value"
            ]
        );
    }

    #[test]
    fn a_printed_name_without_a_value_differs() {
        let (constants, _) = document("| a | 1 | | r |\n");
        assert_eq!(
            messages(compare(&constants, "a\n")),
            ["a is 1 here and  in the program"]
        );
    }
}
