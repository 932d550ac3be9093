//! The little Markdown that the specification's marked tables use.
//!
//! A mark is an HTML comment, `<!-- bytes: NAME -->` or `<!-- constants -->`. Directly above a table
//! it marks that table; on a heading's line, or directly above or below a heading, it marks all
//! tables up to the next heading. Fenced code is passed over. Anything else is prose.

use std::iter::Peekable;
use std::str::Lines;

/// Something wrong at a line of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Marker {
    /// A table of bytes, with the name of the structure.
    Bytes(String),
    /// A table of limits and other constants.
    Constants,
}

/// A mark and the tables it covers.
#[derive(Debug)]
pub(super) struct Marked {
    pub(super) marker: Marker,
    pub(super) line: usize,
    pub(super) tables: Vec<Table>,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) line: usize,
    columns: Vec<String>,
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// The index of a column by its heading.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

/// A row has exactly as many cells as its table has columns.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) cells: Vec<String>,
}

/// Finds the marks and their tables.
pub(super) fn parse(text: &str) -> (Vec<Marked>, Vec<Finding>) {
    let mut parser = Parser {
        lines: Numbered {
            lines: text.lines().peekable(),
            next: 1,
        },
        marked: Vec::new(),
        findings: Vec::new(),
        reach: Reach::None,
    };
    parser.document();
    parser.finish()
}

/// How far the newest mark covers what follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    None,
    /// Nothing has followed the mark yet: what comes next decides.
    Undecided,
    /// All tables up to the next heading.
    Section,
}

struct Numbered<'a> {
    lines: Peekable<Lines<'a>>,
    next: usize,
}

impl<'a> Numbered<'a> {
    fn take(&mut self) -> Option<(usize, &'a str)> {
        let line = self.lines.next()?.trim();
        self.next += 1;
        Some((self.next - 1, line))
    }

    fn next_is(&mut self, test: impl Fn(&str) -> bool) -> bool {
        self.lines.peek().is_some_and(|line| test(line.trim()))
    }
}

struct Parser<'a> {
    lines: Numbered<'a>,
    marked: Vec<Marked>,
    findings: Vec<Finding>,
    reach: Reach,
}

impl Parser<'_> {
    fn document(&mut self) {
        let mut after_heading = false;
        while let Some((number, line)) = self.lines.take() {
            if line.is_empty() {
                continue;
            }
            let mark = self.mark(number, line);
            if is_heading(line) {
                self.reach = match (mark, self.reach) {
                    (true, _) | (false, Reach::Undecided) => Reach::Section,
                    (false, _) => Reach::None,
                };
                after_heading = !mark;
                continue;
            }
            if mark {
                self.reach = if after_heading && !self.table_follows() {
                    Reach::Section
                } else {
                    Reach::Undecided
                };
            } else if let Some(fence) = fence(line) {
                self.skip_fence(fence);
                self.leave_undecided();
            } else if line.starts_with('|') && self.lines.next_is(is_delimiter) {
                let table = self.table(number, line);
                if let (Some(marked), true) = (self.marked.last_mut(), self.reach != Reach::None) {
                    marked.tables.push(table);
                }
                self.leave_undecided();
            } else {
                self.leave_undecided();
            }
            after_heading = false;
        }
    }

    /// A mark that something followed covers that and no more.
    fn leave_undecided(&mut self) {
        if self.reach == Reach::Undecided {
            self.reach = Reach::None;
        }
    }

    fn table_follows(&mut self) -> bool {
        self.lines.next_is(|line| line.starts_with('|'))
    }

    /// Whether the line holds a mark; a new one is opened then.
    fn mark(&mut self, number: usize, line: &str) -> bool {
        let Some((_, rest)) = line.split_once("<!--") else {
            return false;
        };
        let Some((comment, _)) = rest.split_once("-->") else {
            return false;
        };
        let comment = comment.trim();
        let marker = if comment == "constants" {
            Marker::Constants
        } else if let Some(name) = comment.strip_prefix("bytes:") {
            Marker::Bytes(name.trim().to_owned())
        } else {
            if comment.starts_with("bytes") || comment.starts_with("constants") {
                self.findings.push(Finding::new(
                    number,
                    format!("`{comment}` is no mark: write `bytes: NAME` or `constants`"),
                ));
            }
            return false;
        };
        if matches!(&marker, Marker::Bytes(name) if name.is_empty()) {
            self.findings
                .push(Finding::new(number, "a byte table has no name"));
        }
        if marker != Marker::Constants && self.marked.iter().any(|other| other.marker == marker) {
            self.findings
                .push(Finding::new(number, format!("{marker:?} is marked twice")));
        }
        self.marked.push(Marked {
            marker,
            line: number,
            tables: Vec::new(),
        });
        true
    }

    fn skip_fence(&mut self, fence: &str) {
        while let Some((_, line)) = self.lines.take() {
            if line.starts_with(fence) {
                return;
            }
        }
    }

    fn table(&mut self, number: usize, header: &str) -> Table {
        let columns: Vec<String> = cells(header)
            .into_iter()
            .map(|cell| cell.to_lowercase())
            .collect();
        self.lines.take();
        let mut rows = Vec::new();
        while self.lines.next_is(|line| line.starts_with('|')) {
            let Some((line, text)) = self.lines.take() else {
                break;
            };
            let cells = cells(text);
            if cells.len() == columns.len() {
                rows.push(Row { line, cells });
            } else if self.reach != Reach::None {
                self.findings.push(Finding::new(
                    line,
                    format!(
                        "{} cells in a table of {} columns (a bar inside a cell is written `\\|`)",
                        cells.len(),
                        columns.len()
                    ),
                ));
            }
        }
        Table {
            line: number,
            columns,
            rows,
        }
    }

    fn finish(mut self) -> (Vec<Marked>, Vec<Finding>) {
        for marked in &self.marked {
            if marked.tables.is_empty() {
                self.findings.push(Finding::new(
                    marked.line,
                    format!("{:?} marks no table", marked.marker),
                ));
            }
        }
        (self.marked, self.findings)
    }
}

fn is_heading(line: &str) -> bool {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    (1..=6).contains(&level) && line[level..].starts_with(' ')
}

fn is_delimiter(line: &str) -> bool {
    line.starts_with('|') && line.contains('-') && line.chars().all(|c| "|-: ".contains(c))
}

fn fence(line: &str) -> Option<&'static str> {
    ["```", "~~~"]
        .into_iter()
        .find(|fence| line.starts_with(fence))
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for c in inner.chars() {
        match c {
            '|' if !escaped => cells.push(String::new()),
            _ => {
                if let Some(cell) = cells.last_mut() {
                    if c == '|' {
                        cell.pop();
                    }
                    cell.push(c);
                }
            }
        }
        escaped = c == '\\' && !escaped;
    }
    // What follows the closing bar is no cell.
    if cells.last().is_some_and(|cell| cell.trim().is_empty()) {
        cells.pop();
    }
    cells
        .into_iter()
        .map(|cell| cell.trim().to_owned())
        .collect()
}

/// A cell without the marks of code and emphasis around it.
pub(super) fn plain(cell: &str) -> &str {
    cell.trim_matches(|c: char| c == '`' || c == '*' || c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(Marker, Vec<usize>)> {
        let (marked, findings) = parse(text);
        assert_eq!(findings, []);
        marked
            .into_iter()
            .map(|m| (m.marker, m.tables.iter().map(|t| t.line).collect()))
            .collect()
    }

    fn messages(text: &str) -> Vec<String> {
        parse(text).1.into_iter().map(|f| f.message).collect()
    }

    const TABLE: &str = "| size | field |\n|---|:-:|\n| 1 | a |\n";

    #[test]
    fn a_mark_above_a_table_covers_that_table_only() {
        let text = format!("<!-- bytes: a -->\n{TABLE}\nprose\n\n{TABLE}");
        assert_eq!(names(&text), [(Marker::Bytes("a".into()), vec![2])]);
        let text = format!("# H\n\n<!-- bytes: a -->\n{TABLE}\nprose\n\n{TABLE}");
        assert_eq!(names(&text), [(Marker::Bytes("a".into()), vec![4])]);
    }

    #[test]
    fn a_mark_at_a_heading_covers_its_section() {
        let rest = format!("prose\n\n{TABLE}\nprose\n\n{TABLE}\n# Next\n\n{TABLE}");
        for head in ["<!-- constants -->\n# H\n\n", "# H\n<!-- constants -->\n\n"] {
            let text = format!("{head}{rest}");
            assert_eq!(names(&text), [(Marker::Constants, vec![6, 12])], "{head}");
        }
        let text = format!("## H <!-- constants -->\n\n{rest}");
        assert_eq!(names(&text), [(Marker::Constants, vec![5, 11])]);
    }

    #[test]
    fn unmarked_tables_and_fenced_code_are_passed_over() {
        let text = format!("{TABLE}\n```\n<!-- bytes: no -->\n{TABLE}```\n");
        assert_eq!(names(&text), []);
    }

    #[test]
    fn a_mark_without_a_table_is_a_finding() {
        assert_eq!(
            messages("<!-- bytes: a -->\nprose\n"),
            ["Bytes(\"a\") marks no table"]
        );
        let text = format!("<!-- constants -->\nprose\n\n{TABLE}");
        assert_eq!(messages(&text), ["Constants marks no table"]);
    }

    #[test]
    fn misspelt_and_repeated_marks_are_findings() {
        let text = format!("<!-- bytes a -->\n{TABLE}");
        assert!(messages(&text)[0].contains("is no mark"));
        let text = format!("<!-- bytes: a -->\n{TABLE}\n<!-- bytes: a -->\n{TABLE}");
        assert_eq!(messages(&text), ["Bytes(\"a\") is marked twice"]);
        let text = format!("<!-- bytes: -->\n{TABLE}");
        assert_eq!(messages(&text), ["a byte table has no name"]);
    }

    #[test]
    fn a_ragged_row_is_a_finding() {
        let text = format!("<!-- bytes: a -->\n{TABLE}| 1 | a | b |\n");
        assert!(messages(&text)[0].starts_with("3 cells in a table of 2 columns"));
    }

    #[test]
    fn cells_keep_escaped_bars_and_empty_cells() {
        assert_eq!(cells(r"| `a \| b` | | c |"), ["`a | b`", "", "c"]);
        assert_eq!(cells("| 32 | | |"), ["32", "", ""]);
        assert_eq!(cells("| a | b"), ["a", "b"]);
    }

    #[test]
    fn plain_drops_code_and_emphasis() {
        assert_eq!(plain("**`head_len`** "), "head_len");
    }
}
