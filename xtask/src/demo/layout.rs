//! Lines in the columns there are: what a program printed, what the drill says, command lines.
//!
//! Text only; nothing is printed here.

/// Columns where nobody looks through a terminal; programs lay out their own output for them.
pub(super) const WIDTH: usize = 100;

/// Stands for lines that are not shown.
pub(super) const LEFT_OUT: &str = "[...]";

/// Printed lines in the columns there are. What a program wrapped itself is wrapped anew where it is too wide.
pub(super) fn reflow(lines: &[&str], width: usize) -> Vec<String> {
    let mut out = Vec::new();
    for parts in paragraphs(lines) {
        if let [only] = parts[..] {
            out.extend(fit(only, width));
        } else if parts.iter().all(|part| part.chars().count() <= width) {
            out.extend(parts.into_iter().map(str::to_owned));
        } else {
            out.extend(hang(&joined(&parts), width, indent(parts[1])));
        }
    }
    out
}

/// Lines together with those in which a program went on, below the text of the first.
pub(super) fn paragraphs<'a>(lines: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut out = Vec::new();
    let mut lines = lines.iter().copied().peekable();
    while let Some(first) = lines.next() {
        let column = column_of_text(first, WIDTH);
        let goes_on =
            |line: &&str| column >= CONTINUED_FROM && (column..=column + 2).contains(&indent(line));
        let mut parts = vec![first];
        while let Some(part) = lines.next_if(goes_on) {
            parts.push(part);
        }
        out.push(parts);
    }
    out
}

pub(super) fn joined(parts: &[&str]) -> String {
    let mut whole = parts.first().copied().unwrap_or_default().to_owned();
    for part in parts.iter().skip(1) {
        whole.push(' ');
        whole.push_str(part.trim_start());
    }
    whole
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Least column in which a program's wrapped line goes on; less is an indented line of its own.
const CONTINUED_FROM: usize = 9;

/// Stands for a space where a line should not be broken.
pub(super) const GLUE: char = '\u{a0}';

/// A command line whose options stay together with their values.
pub(super) fn glued(line: &str) -> String {
    let mut out = String::new();
    let mut words = line.split(' ').peekable();
    while let Some(word) = words.next() {
        out.push_str(word);
        let option =
            word.starts_with("--") && words.peek().is_some_and(|next| !next.starts_with('-'));
        if words.peek().is_some() {
            let redirects = matches!(word, ">" | ">>" | "#");
            out.push(if option || redirects { GLUE } else { ' ' });
        }
    }
    out
}

/// A printed line in the columns there are.
fn fit(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        vec![line.to_owned()]
    } else if line.starts_with('{') {
        let head: String = line.chars().take(width - 4).collect();
        vec![format!("{head} ...")]
    } else {
        hang(line, width, column_of_text(line, width))
    }
}

/// Where the text of a line of a table begins: behind the last wide gap of its first half.
pub(super) fn column_of_text(line: &str, width: usize) -> usize {
    let chars: Vec<char> = line.chars().collect();
    let gap = |at: &usize| matches!(chars.get(at - 2..=*at), Some([' ', ' ', c]) if *c != ' ');
    (2..=width / 2).rfind(gap).unwrap_or(0)
}

/// Breaks a line at spaces; further lines begin at a column. A word that is too long stays whole.
pub(super) fn hang(line: &str, width: usize, column: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = line.trim_end().chars().collect();
    let (mut indent, mut from) = (0, column + 1);
    loop {
        let room = width - indent;
        let is_space = |at: &usize| rest.get(*at) == Some(&' ');
        let at = (from..=room).rev().find(is_space);
        let at = at.or_else(|| (room + 1..rest.len()).find(is_space));
        let at = at.filter(|_| rest.len() > room).unwrap_or(rest.len());
        let head: String = rest.drain(..at).collect();
        lines.push(format!("{:indent$}{}", "", head.trim_end()));
        let spaces = rest.iter().take_while(|c| **c == ' ').count();
        rest.drain(..spaces);
        if rest.is_empty() {
            return lines;
        }
        (indent, from) = (column, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_of_json_are_cut() {
        assert_eq!(fit("  short", 40), ["  short"]);
        let long = fit(&format!("{{{}", "x".repeat(40)), 40);
        assert!(long[0].ends_with(" ...") && long[0].len() == 40);
    }

    #[test]
    fn long_lines_of_a_table_go_on_below_their_text() {
        let line = "  12  +0.1 s  agent   one two three four five six seven eight nine";
        assert_eq!(column_of_text(line, 60), 22);
        let indent = " ".repeat(22);
        let below = ["five six seven eight", "nine"].map(|text| format!("{indent}{text}"));
        let lines = fit(line, 44);
        assert_eq!(lines[0], "  12  +0.1 s  agent   one two three four");
        assert_eq!(lines[1..], below);
    }

    #[test]
    fn what_a_program_wrapped_is_wrapped_anew_only_where_it_is_too_wide() {
        let lines = ["STATE    one two three four", "         five", "  other"];
        assert_eq!(reflow(&lines, 30), lines);
        let narrow = ["STATE    one two three", "         four five", "  other"];
        assert_eq!(reflow(&lines, 24), narrow);
    }

    #[test]
    fn no_line_is_longer_than_the_columns_unless_a_word_is() {
        let text = "word ".repeat(60);
        for column in [0, 9, 20] {
            let lines = hang(text.trim_end(), 50, column);
            assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= 50));
            let words: Vec<_> = lines.iter().flat_map(|l| l.split_whitespace()).collect();
            assert_eq!(words.len(), 60);
        }
        assert_eq!(hang(&"x".repeat(60), 50, 9), ["x".repeat(60)]);
    }

    #[test]
    fn options_stay_with_their_values() {
        let line = glued("curl --silent --max-time 30 @file > out");
        let parts = hang(&line, 18, 0).join("/").replace(GLUE, " ");
        assert_eq!(parts, "curl --silent/--max-time 30/@file > out");
    }
}
