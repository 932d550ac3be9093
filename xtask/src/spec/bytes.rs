//! Byte tables: do the sizes add up to the offsets?
//!
//! Columns `offset | size | field` or `size | field`, further ones are free. A size is a number, a
//! sum of numbers, or words for a variable length; behind a variable one no offset is a number. The
//! last row may leave the size empty: its offset is then the whole length.

use super::markdown::{Finding, Row, Table, plain};

/// A size that stands in the table.
#[derive(Debug, PartialEq, Eq)]
enum Size {
    Fixed(u64),
    Variable,
    /// No bytes of this structure: the end mark.
    End,
}

pub(super) fn check(name: &str, table: &Table) -> Vec<Finding> {
    let (Some(size), Some(field)) = (table.column("size"), table.column("field")) else {
        return vec![Finding::new(
            table.line,
            format!("{name}: a byte table has the columns offset (or none), size, field"),
        )];
    };
    let offset = table.column("offset");
    let mut findings = Vec::new();
    if table.rows.is_empty() {
        findings.push(Finding::new(table.line, format!("{name}: no rows")));
    }
    // Where the next field begins; `None` behind a variable length.
    let mut next = Some(0u64);
    for (index, row) in table.rows.iter().enumerate() {
        let last = index + 1 == table.rows.len();
        let shown = shown(row, field, last);
        if let Some(offset) = offset
            && let Some(message) = offset_problem(plain(&row.cells[offset]), next)
        {
            findings.push(Finding::new(row.line, format!("{name}: {shown} {message}")));
        }
        match parse_size(plain(&row.cells[size])) {
            Some(Size::Fixed(0)) | None => findings.push(Finding::new(
                row.line,
                format!("{name}: {shown} has the size `{}`", row.cells[size]),
            )),
            Some(Size::Fixed(bytes)) => {
                if let Some(width) = integer_width(&row.cells[field])
                    && width != bytes
                {
                    findings.push(Finding::new(
                        row.line,
                        format!("{name}: {shown} has {bytes} bytes, its type {width}"),
                    ));
                }
                next = next.and_then(|next| next.checked_add(bytes));
            }
            Some(Size::Variable) => next = None,
            Some(Size::End) if last && index > 0 && offset.is_some() => {}
            Some(Size::End) => findings.push(Finding::new(
                row.line,
                format!("{name}: {shown} has no size (only a last row with an offset may)"),
            )),
        }
    }
    findings
}

fn shown(row: &Row, field: usize, last: bool) -> String {
    match plain(&row.cells[field]) {
        "" if last => "the end".into(),
        "" => "a field without a name".into(),
        name => format!("`{name}`"),
    }
}

fn offset_problem(cell: &str, next: Option<u64>) -> Option<String> {
    match (cell.parse::<u64>(), next) {
        (Ok(at), Some(next)) if at == next => None,
        (Ok(at), Some(next)) => Some(format!(
            "is at offset {at}, but what stands before it ends at {next}"
        )),
        (Ok(at), None) => Some(format!(
            "is at offset {at}, though a variable length stands before it"
        )),
        (Err(_), Some(next)) => Some(format!("has the offset `{cell}`, but is always at {next}")),
        (Err(_), None) => None,
    }
}

/// `None`: digits that make no sum.
fn parse_size(cell: &str) -> Option<Size> {
    if cell.is_empty() {
        return Some(Size::End);
    }
    let numeric = cell.chars().all(|c| c.is_ascii_digit() || "+ ".contains(c));
    if !numeric {
        return Some(Size::Variable);
    }
    cell.split('+')
        .map(|part| part.trim().parse::<u64>().ok())
        .try_fold(0u64, |sum, part| sum.checked_add(part?))
        .map(Size::Fixed)
}

/// The width of the one integer type that a field's text names.
fn integer_width(field: &str) -> Option<u64> {
    let mut widths = field
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter_map(|word| match word {
            "u8" => Some(1),
            "u16" => Some(2),
            "u32" => Some(4),
            "u64" => Some(8),
            _ => None,
        });
    match (widths.next(), widths.next()) {
        (Some(width), None) => Some(width),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::markdown;
    use super::*;

    fn findings(columns: &str, rows: &[&str]) -> Vec<String> {
        let bars = columns.matches('|').count();
        let text = format!(
            "<!-- bytes: t -->\n{columns}\n{}|\n{}\n",
            "|-".repeat(bars - 1),
            rows.join("\n")
        );
        let (marked, problems) = markdown::parse(&text);
        assert_eq!(problems, []);
        check("t", &marked[0].tables[0])
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    fn with_offsets(rows: &[&str]) -> Vec<String> {
        findings("| Offset | Size | Field | note |", rows)
    }

    #[test]
    fn sums_and_end_marks_pass() {
        let found = with_offsets(&[
            "| 0 | 4 | frame_len, u32 | |",
            "| `4` | 8 | seq | x |",
            "| 12 | 2 + 3 | odd | |",
            "| 17 | | | |",
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_wrong_offset_is_named_once() {
        // The sum goes on from the sizes, so that one slip is one finding.
        let found = with_offsets(&["| 0 | 4 | a | |", "| 5 | 4 | b | |", "| 8 | 1 | c | |"]);
        assert_eq!(
            found,
            ["t: `b` is at offset 5, but what stands before it ends at 4"]
        );
    }

    #[test]
    fn a_wrong_size_shows_at_the_next_offset() {
        let found = with_offsets(&["| 0 | 3 | a | |", "| 4 | | | |"]);
        assert_eq!(
            found,
            ["t: the end is at offset 4, but what stands before it ends at 3"]
        );
    }

    #[test]
    fn nothing_is_fixed_behind_a_variable_length() {
        let good = with_offsets(&[
            "| 0 | 1 | a | |",
            "| 1 | n | b | |",
            "| 1 + n | 4 | c | |",
            "| | | | |",
        ]);
        assert_eq!(good, Vec::<String>::new());
        let bad = with_offsets(&["| 0 | n | a | |", "| 4 | 1 | b | |"]);
        assert_eq!(
            bad,
            ["t: `b` is at offset 4, though a variable length stands before it"]
        );
        let bad = with_offsets(&["| 0 | 1 | a | |", "| x | 1 | b | |"]);
        assert_eq!(bad, ["t: `b` has the offset `x`, but is always at 1"]);
    }

    #[test]
    fn sizes_must_be_there_and_make_sense() {
        assert_eq!(with_offsets(&["| 0 | | a | |", "| 0 | 1 | b | |"]).len(), 1);
        assert_eq!(with_offsets(&["| 0 | 0 | a | |"]).len(), 1);
        assert_eq!(with_offsets(&["| 0 | 1 + | a | |"]).len(), 1);
        assert_eq!(with_offsets(&[]), ["t: no rows"]);
    }

    #[test]
    fn an_integer_type_has_its_width() {
        let found = with_offsets(&["| 0 | 8 | seq, u32 | |", "| 8 | 4 | `index`: u32 | |"]);
        assert_eq!(found, ["t: `seq, u32` has 8 bytes, its type 4"]);
    }

    #[test]
    fn tables_without_offsets_need_sizes() {
        let columns = "| size | field |";
        assert_eq!(
            findings(columns, &["| 4 | a |", "| var | b |"]),
            Vec::<String>::new()
        );
        assert_eq!(findings(columns, &["| 4 | a |", "| | b |"]).len(), 1);
        assert_eq!(findings("| length | field |", &["| 4 | a |"]).len(), 1);
    }
}
