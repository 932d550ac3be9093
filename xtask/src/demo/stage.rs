//! Runs commands as a person would, shows them with the lines of their output that matter, and
//! checks how they end.
//!
//! `$` is a command that was run, `|` a line that it printed, `=` what the drill itself concludes.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::layout::{
    GLUE, LEFT_OUT, WIDTH, column_of_text, glued, hang, joined, paragraphs, reflow,
};
use super::programs::Programs;

/// Bounds of the columns that are made use of.
const WIDTH_MIN: usize = 72;
const WIDTH_MAX: usize = 120;
/// What stands before a line: `   | `.
const MARGIN: usize = 5;

pub(super) struct Stage {
    dir: PathBuf,
    programs: Programs,
    color: bool,
    width: usize,
    step: usize,
}

/// What a command did.
pub(super) struct Ran {
    line: String,
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Stage {
    pub(super) fn new(dir: PathBuf, programs: Programs) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let columns = rustix::termios::tcgetwinsize(stdout()).map(|size| size.ws_col);
        let columns = columns.map_or(WIDTH, usize::from);
        Self {
            dir,
            programs,
            color: wanted && stdout().is_terminal(),
            width: columns.clamp(WIDTH_MIN, WIDTH_MAX) - MARGIN,
            step: 0,
        }
    }

    pub(super) fn intro(&self, shown_dir: &str) {
        println!();
        let told = "A month in which agents asked remote services for work, and later somebody called back. What can \
                    be shown of it afterwards, by whom, and to whom?";
        self.wrapped(told)
            .iter()
            .for_each(|line| println!("{line}"));
        println!(
            "\nAll of it happens in {shown_dir}, which stands for three machines:\n  \
             host/          where the services run and the ledger grows\n  \
             investigator/  where the only key is that opens evidence\n  \
             auditor/       where there is no secret at all\n\
             $ a command that is run there\n| a line that it printed\n= what this drill makes of it"
        );
    }

    pub(super) const fn steps(&self) -> usize {
        self.step
    }

    /// Begins a step: what is shown, and why it matters.
    pub(super) fn step(&mut self, title: &str, why: &str) {
        self.step += 1;
        let head = format!("{}. {title}", self.step);
        println!("\n{}", self.paint("1", &head));
        self.wrapped(why)
            .iter()
            .for_each(|line| println!("   {line}"));
    }

    /// What the drill itself concludes.
    pub(super) fn note(&self, text: &str) {
        for (index, line) in self.wrapped(text).iter().enumerate() {
            let mark = if index == 0 { "=" } else { " " };
            println!("   {}", self.paint("32", &format!("{mark} {line}")));
        }
    }

    /// What leads over to the next command of a step.
    pub(super) fn say(&self, text: &str) {
        for line in self.wrapped(text) {
            println!("   {line}");
        }
    }

    /// A file of the drill.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Shows a command that is run.
    pub(super) fn show_command(&self, line: &str) {
        let parts = hang(&glued(line), self.width - 2, 0);
        for (index, part) in parts.iter().enumerate() {
            let mark = if index == 0 { "$ " } else { "    " };
            let part = part.replace(GLUE, " ");
            println!("   {}", self.paint("36", &format!("{mark}{part}")));
        }
    }

    /// Runs a command line: words apart by single spaces, at its end perhaps `> FILE` or `>> FILE`.
    pub(super) fn run(&self, line: &str) -> Result<Ran> {
        self.show_command(line);
        let (command, target) = match line.split_once(" > ") {
            Some((command, file)) => (command, Some((file, false))),
            None => match line.split_once(" >> ") {
                Some((command, file)) => (command, Some((file, true))),
                None => (line, None),
            },
        };
        let output = self
            .command(command)
            .output()
            .with_context(|| format!("starting `{command}`"))?;
        let ran = Ran {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).context("output that is no UTF-8")?,
            stderr: String::from_utf8(output.stderr).context("output that is no UTF-8")?,
        };
        if let Some((file, append)) = target {
            let mut options = OpenOptions::new();
            options.create(true).append(append).write(true);
            let mut file = options.truncate(!append).open(self.path(file))?;
            file.write_all(ran.stdout.as_bytes())?;
        }
        Ok(ran)
    }

    /// A command, to be started by the caller.
    pub(super) fn command(&self, line: &str) -> Command {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let mut command = Command::new(self.programs.path(name));
        command
            .args(words)
            .current_dir(&self.dir)
            .stdin(Stdio::null());
        command
    }

    /// Shows the paragraphs of a text that matter, and where others were left out. A long line of JSON is cut, which
    /// ` ...` says; others go on below.
    pub(super) fn show(&self, text: &str, matters: impl Fn(&str) -> bool) {
        let lines: Vec<&str> = text.lines().collect();
        let mut shown: Vec<&str> = Vec::new();
        for paragraph in paragraphs(&lines) {
            if matters(&joined(&paragraph)) {
                shown.extend(paragraph);
            } else if shown.last() != Some(&LEFT_OUT) {
                shown.push(LEFT_OUT);
            }
        }
        self.print(&shown);
    }

    /// The same without a mark for each gap, where the step says that it shows an extract.
    pub(super) fn show_extract(&self, text: &str, matters: impl Fn(&str) -> bool) {
        let lines: Vec<&str> = text.lines().collect();
        let mut shown = paragraphs(&lines);
        shown.retain(|paragraph| matters(&joined(paragraph)));
        self.print(&shown.concat());
    }

    fn print(&self, lines: &[&str]) {
        for line in reflow(lines, self.width) {
            println!("   {}", format!("| {line}").trim_end());
        }
    }

    /// Shows a line of JSON laid out for reading.
    pub(super) fn show_json(&self, value: &serde_json::Value) -> Result<()> {
        self.show(&serde_json::to_string_pretty(value)?, all);
        self.note("Laid out here for reading: it is one line.");
        Ok(())
    }

    /// Shows a report from its first line through the one that begins so, and its last line.
    pub(super) fn show_report(&self, text: &str, through: &str) {
        let last = text.lines().last().unwrap_or_default();
        let end = text.lines().position(|line| line.starts_with(through));
        let head: Vec<&str> = text.lines().take(end.map_or(0, |at| at + 1)).collect();
        self.show(&head.join("\n"), all);
        println!("   | {LEFT_OUT}");
        self.show(last, all);
    }

    fn wrapped(&self, text: &str) -> Vec<String> {
        hang(text, self.width, column_of_text(text, self.width))
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Ran {
    /// Ended with this code, or the drill ends.
    pub(super) fn ends_with(self, code: i32) -> Result<Self> {
        if self.code != Some(code) {
            bail!(
                "`{}` ended with {:?}, expected {code}\n{}{}",
                self.line,
                self.code,
                self.stdout,
                self.stderr
            );
        }
        Ok(self)
    }

    /// Printed this, or the drill ends. Where lines break does not matter.
    pub(super) fn says(&self, text: &str) -> Result<()> {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = plain(text);
        ensure!(
            [&self.stdout, &self.stderr]
                .iter()
                .any(|said| plain(said).contains(&wanted)),
            "`{}` did not say {text:?}\n{}{}",
            self.line,
            self.stdout,
            self.stderr
        );
        Ok(())
    }
}

/// Every line.
pub(super) fn all(_line: &str) -> bool {
    true
}

/// All regular files below a folder.
pub(super) fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file holds a word in clear.
pub(super) fn holds(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_in_bytes() {
        assert!(holds(b"xxabyy", "ab") && !holds(b"xxaby", "abz"));
    }

    #[test]
    fn a_step_that_does_not_behave_is_an_error() {
        let ran = || Ran {
            line: "false".into(),
            code: Some(1),
            stdout: "out  and\n   in".into(),
            stderr: "err".into(),
        };
        assert!(ran().ends_with(0).is_err());
        assert!(ran().ends_with(1).is_ok());
        assert!(ran().says("err").is_ok());
        assert!(ran().says("out and in").is_ok());
        assert!(ran().says("other").is_err());
    }
}
