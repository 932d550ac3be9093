//! What reaches a screen: standard output that may be closed, messages, colour, progress, hostile text.
//!
//! Nothing here decides what is said.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Buffered standard output. Rust ignores SIGPIPE, so a closed pipe comes back as an error of this
/// writer; [`is_closed_pipe`] recognises it, and the command ends quietly.
pub(crate) struct Out(BufWriter<StdoutLock<'static>>);

impl Out {
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }
}

impl Write for Out {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// Says where it happened; the kind stays.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("writing to standard output: {error}"))
}

/// Whether an error says only that whoever read our output has gone. No other file that a command
/// writes is a pipe.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Writes a line to standard error; that it is closed is nobody's concern.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes `label: text` to standard error, the label in colour where people see it.
pub(crate) fn say_labelled(label: &str, colour: u8, text: impl fmt::Display) {
    if colours(&io::stderr()) {
        say(format_args!("\u{1b}[1;{colour}m{label}:\u{1b}[0m {text}"));
    } else {
        say(format_args!("{label}: {text}"));
    }
}

pub(crate) fn warn(text: impl fmt::Display) {
    say_labelled("warning", 33, text);
}

/// Whether a stream shows colour: it is a terminal, `NO_COLOR` is unset or empty, and `TERM` is not `dumb`.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    let unset = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    unset && stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text of a ledger or a user, safe to show: characters that steer a terminal or turn the reading
/// direction are written as `\u{..}`.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if steers(c) || c == '\\' {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                fmt::Write::write_char(f, c)?;
            }
        }
        Ok(())
    }
}

fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line of JSON with the same meaning, in which no character steers a terminal.
pub(crate) fn json_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) {
            // Outside of strings JSON has no such characters, apart from white space that we never write.
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                line.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            line.push(c);
        }
    }
    line
}

/// Progress over bytes or, where their number is unknown, over records: on a terminal only.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// `total`: bytes to come, if that is known.
    pub(crate) fn new(what: &'static str, total: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        // Templates are fixed and valid; the default style is what remains if one were not.
        let style = |template: &str| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        let bar = match total {
            Some(total) => ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
                .with_style(style(
                    "{msg} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
                )),
            None => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
                .with_style(style("{msg} {human_pos} records, {per_sec}")),
        };
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(Some(bar))
    }

    pub(crate) fn advance(&self, by: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(by);
        }
    }

    /// Runs something that writes to the terminal, with the progress line out of its way.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The time now, RFC 3339, UTC, whole seconds.
pub(crate) fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_shown_escaped() {
        let text = "a\u{1b}[2Jb\u{202e}c\u{7f}\u{9b}\\ \u{e4}\n";
        assert_eq!(
            Shown(text).to_string(),
            "a\\u{1b}[2Jb\\u{202e}c\\u{7f}\\u{9b}\\u{5c} \u{e4}\\u{a}"
        );
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "a\u{202e}": "x\u{9b}\u{e0001}\u{e4}" });
        let line = json_line(&value.to_string());
        assert!(
            !line.contains(['\u{202e}', '\u{9b}', '\u{e0001}']),
            "{line}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).unwrap(),
            value
        );
    }
}
