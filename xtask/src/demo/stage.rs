//! Runs commands as a person would, shows them with the lines of their output that matter, and
//! checks how they end.
//!
//! `$` is a command that was run, `|` a line that it printed, `=` what the drill itself concludes.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::programs::Programs;

/// Columns of a terminal that nobody made wider.
const WIDTH: usize = 112;

pub(super) struct Stage {
    dir: PathBuf,
    programs: Programs,
    color: bool,
    step: usize,
}

/// What a command did.
pub(super) struct Ran {
    line: String,
    code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Stage {
    pub(super) fn new(dir: PathBuf, programs: Programs) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            dir,
            programs,
            color: wanted && stdout().is_terminal(),
            step: 0,
        }
    }

    pub(super) fn intro(&self, shown_dir: &str) {
        println!(
            "\nAn agent asked a build service for work. Later somebody called back. What can be shown of it?\n\n\
             All of it happens in {shown_dir}, which stands for three machines:\n  \
             host/          where the services run and the ledger grows\n  \
             investigator/  where the only key is that opens evidence\n  \
             auditor/       where there is no secret at all\n\
             $ is a command that is run there, | a line that it printed, = what this drill makes of it."
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
        wrap(why).iter().for_each(|line| println!("   {line}"));
    }

    /// What the drill itself concludes.
    pub(super) fn note(&self, text: &str) {
        for (index, line) in wrap(text).iter().enumerate() {
            let mark = if index == 0 { "=" } else { " " };
            println!("   {}", self.paint("32", &format!("{mark} {line}")));
        }
    }

    /// A file of the drill.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Runs a command line: words apart by single spaces, at its end perhaps `> FILE` or `>> FILE`.
    pub(super) fn run(&self, line: &str) -> Result<Ran> {
        println!("   {}", self.paint("36", &format!("$ {line}")));
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

    /// Starts a command whose output the caller reads while it runs, and puts where the line says.
    pub(super) fn start(&self, line: &str) -> Result<Child> {
        println!("   {}", self.paint("36", &format!("$ {line}")));
        let (command, _) = line.split_once(" >> ").unwrap_or((line, ""));
        self.command(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting `{line}`"))
    }

    fn command(&self, line: &str) -> Command {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let mut command = Command::new(self.programs.path(name));
        command
            .args(words)
            .current_dir(&self.dir)
            .stdin(Stdio::null());
        command
    }

    /// Shows the lines of a text that matter. A long line of JSON is cut, which ` ...` says; others go on below.
    pub(super) fn show(&self, text: &str, matters: impl Fn(&str) -> bool) {
        let mut left_out = false;
        for line in text.lines() {
            if !matters(line) {
                left_out = true;
            } else {
                if left_out {
                    println!("   | [...]");
                }
                left_out = false;
                for line in fit(line) {
                    println!("   {}", format!("| {line}").trim_end());
                }
            }
        }
        if left_out {
            println!("   | [...]");
        }
    }

    /// Shows a report from its first line through the one that begins so, and its last line.
    pub(super) fn show_report(&self, text: &str, through: &str) {
        let last = text.lines().last().unwrap_or_default();
        let end = text.lines().position(|line| line.starts_with(through));
        let head: Vec<&str> = text.lines().take(end.map_or(0, |at| at + 1)).collect();
        self.show(&head.join("\n"), all);
        println!("   | [...]");
        self.show(last, all);
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

    /// Printed this, or the drill ends.
    pub(super) fn says(&self, text: &str) -> Result<()> {
        ensure!(
            self.stdout.contains(text) || self.stderr.contains(text),
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

/// A printed line in the columns there are.
fn fit(line: &str) -> Vec<String> {
    if line.chars().count() <= WIDTH {
        vec![line.to_owned()]
    } else if line.starts_with('{') {
        let head: String = line.chars().take(WIDTH - 4).collect();
        vec![format!("{head} ...")]
    } else {
        let mut lines = wrap(line);
        let indent = line.len() - line.trim_start().len();
        for (index, part) in lines.iter_mut().enumerate() {
            part.insert_str(0, &" ".repeat(indent + usize::from(index > 0) * 2));
        }
        lines
    }
}

fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// All files below a folder.
pub(super) fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_long_texts_wrapped() {
        assert_eq!(fit("  short"), ["  short"]);
        let long = fit(&format!("{{{}", "x".repeat(WIDTH)));
        assert!(long[0].ends_with(" ...") && long[0].len() == WIDTH);
        let long = fit(&format!("  {}", "word ".repeat(40)));
        assert!(long[0].starts_with("  word") && long[1].starts_with("    word"));
        let lines = wrap(&"word ".repeat(60));
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn a_step_that_does_not_behave_is_an_error() {
        let ran = || Ran {
            line: "false".into(),
            code: Some(1),
            stdout: "out".into(),
            stderr: "err".into(),
        };
        assert!(ran().ends_with(0).is_err());
        assert!(ran().ends_with(1).is_ok());
        assert!(ran().says("err").is_ok());
        assert!(ran().says("other").is_err());
    }
}
