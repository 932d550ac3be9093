//! The command line, for the binary `ledger-verify` and for `ledger verify` alike.
//!
//! Only here is anything printed. The check itself is [`crate::verify()`].

use crate::anchors::{AnchorError, OutsideCheckpoint, Receipts, TrustLine};
use crate::compare::compare;
use crate::files::Folder;
use crate::outside::{CopyRoot, digests, read_small, write_whole};
use crate::pages::{render_html, render_markdown};
use crate::payload_files::PayloadFolder;
use crate::report::{Report, Verdict};
use crate::text::{TextStyle, render_text};
use crate::verify::{Request, Verification, verify};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ledger_format::{Seq, UnixMillis};
use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The check could not run.
const COULD_NOT_RUN: u8 = 3;
/// The command line cannot be used.
const USAGE: u8 = 64;
/// A check that is done sooner shows no progress.
const PROGRESS_AFTER: Duration = Duration::from_millis(700);

/// Check a copy of a ledger, offline and without any secret.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// The ledger's folder, its folder `segments`, or a folder that holds .frames files
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Trust line of the ledger, or a file that holds it; from outside the copy
    #[arg(long, value_name = "LINE|FILE")]
    pub trust: Option<String>,

    /// Checkpoint that you kept, or that a witness signed (may be given several times)
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Vec<PathBuf>,

    /// Write the newest checkpoint here if the verdict is VERIFIED, for the next check
    #[arg(long, value_name = "FILE")]
    pub save_checkpoint: Option<PathBuf>,

    /// Append receipts, one line of JSON each
    #[arg(long, value_name = "FILE")]
    pub receipts: Option<PathBuf>,

    /// Check only the segments from the one that holds this frame
    #[arg(long, value_name = "SEQ")]
    pub from: Option<u64>,

    /// Check only the segments up to the one that holds this frame
    #[arg(long, value_name = "SEQ")]
    pub until: Option<u64>,

    /// Oldest age of the newest checkpoint that still passes, as 90m, 24h or 7d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_age: Option<Duration>,

    /// Look at heads, segment borders and checkpoint signatures only
    #[arg(long)]
    pub quick: bool,

    /// Check the payload files too, still without any key: each raw body that a frame declares is
    /// there, unaltered or erased, and nothing else is. DIR2: where they lie, if not in DIR
    #[arg(long, value_name = "DIR2", num_args = 0..=1, conflicts_with_all = ["until", "quick"])]
    pub payloads: Option<Option<PathBuf>>,

    /// Write the report here as well: .html, .md or .json
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Threads [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,

    /// List all findings, what follows from them, and all notes
    #[arg(long)]
    pub all: bool,

    /// Name the first frame that differs from this other copy, segment by segment
    #[arg(long, value_name = "DIR")]
    pub compare: Option<PathBuf>,
}

/// Shown below the help text.
pub const EXAMPLES: &str = "Examples:
  ledger-verify /mnt/audit --trust trust.txt --checkpoint 2026-08-31.ckpt --save-checkpoint 2026-11-30.ckpt
  ledger-verify /mnt/audit --trust trust.txt --max-age 24h --report audit.html
  ledger-verify /mnt/audit --trust trust.txt --payloads /mnt/payloads
  ledger-verify /mnt/audit --compare /mnt/other-copy

Exit codes: 0 verified, 1 violation, 2 incomplete, 3 could not run or judge, 4 self-consistent only, 64 usage";

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number and a unit: s, m, h, d or w, as in 24h".to_owned();
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = match text.get(digits.len()..).unwrap_or_default() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(wrong()),
    };
    let total = number.checked_mul(seconds).filter(|s| *s < 1 << 40);
    total.map(Duration::from_secs).ok_or_else(wrong)
}

/// Why no check took place.
struct Refusal {
    exit: u8,
    text: String,
}

impl Refusal {
    fn usage(text: impl Into<String>) -> Self {
        Self {
            exit: USAGE,
            text: text.into(),
        }
    }

    fn file(path: &Path, error: &dyn std::fmt::Display) -> Self {
        Self {
            exit: COULD_NOT_RUN,
            text: format!("{}: {error}", path.display()),
        }
    }
}

/// Runs a check as the command line asks, prints the report, and gives the exit code.
#[must_use]
pub fn run(args: &VerifyArgs) -> ExitCode {
    match checked(args) {
        Ok((report, more)) => {
            print(&if args.json {
                json(&report)
            } else {
                render_text(&report, style(args))
            });
            for line in more {
                complain(&line);
            }
            ExitCode::from(report.exit_code)
        }
        Err(refusal) => {
            complain(&format!("error: {}", refusal.text));
            ExitCode::from(refusal.exit)
        }
    }
}

/// Prints the offline explanation of a code, verdict or note.
#[must_use]
pub fn explain(word: &str) -> ExitCode {
    if let Some(text) = crate::code::explanation(word) {
        print(&format!("{}\n{text}\n", word.trim()));
        return ExitCode::SUCCESS;
    }
    let codes = crate::code::Code::ALL.iter().map(|c| c.name());
    let words = crate::code::WORDS.iter().map(|(word, _)| *word);
    let known: Vec<&str> = codes.chain(words).collect();
    complain(&format!(
        "error: no such code; there are:\n  {}",
        known.join("\n  ")
    ));
    ExitCode::from(USAGE)
}

/// A closed pipe ends quietly: whoever reads has what they wanted.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn complain(text: &str) {
    let safe: Vec<String> = text.lines().map(crate::escape::plain).collect();
    let _ = writeln!(io::stderr().lock(), "{}", safe.join("\n"));
}

fn style(args: &VerifyArgs) -> TextStyle {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    TextStyle {
        color: wanted && io::stdout().is_terminal(),
        all: args.all,
    }
}

/// ASCII only: a hostile file name must not reach a terminal in JSON either.
fn json(report: &Report) -> String {
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    let mut out = String::with_capacity(text.len().saturating_add(1));
    for c in text.chars() {
        if c == '\n' || matches!(c, ' '..='~') {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out.push('\n');
    out
}

/// The report, and what is to be said beside it.
fn checked(args: &VerifyArgs) -> Result<(Report, Vec<String>), Refusal> {
    let root_of = |dir: &PathBuf| CopyRoot::of(dir).map_err(|e| Refusal::file(dir, &e));
    let root = root_of(&args.dir)?;
    let payloads = args.payloads.as_ref().and_then(Option::as_ref);
    let payloads = payloads.map(root_of).transpose()?;
    for target in [&args.report, &args.save_checkpoint].into_iter().flatten() {
        let held = |root: &CopyRoot| root.would_hold(target);
        if held(&root) || payloads.as_ref().is_some_and(held) {
            let text = "lies inside the copy that is checked, and nothing is written there";
            return Err(Refusal::usage(format!("{}: {text}", target.display())));
        }
    }
    let kind = args.report.as_deref().map(report_kind).transpose()?;
    let request = request(args, &root)?;
    let Verification {
        mut report,
        newest_checkpoint,
        files,
        payload_files,
    } = with_progress(args, &request)?;
    if let Some(other) = &args.compare {
        let list = |dir: &Path| Folder::list(dir).map_err(|e| Refusal::file(dir, &e));
        let differences = compare(&list(&args.dir)?, &list(other)?);
        report.comparison = Some(differences.map_err(|e| Refusal::file(other, &e))?);
    }
    let mut more = Vec::new();
    if let (Some(path), Some(kind)) = (&args.report, kind) {
        report.read.files = digests(&files, &payload_files);
        let text = match kind {
            ReportKind::Html => render_html(&report),
            ReportKind::Markdown => render_markdown(&report),
            ReportKind::Json => json(&report),
        };
        write_whole(path, text.as_bytes()).map_err(|e| Refusal::file(path, &e))?;
    }
    if let Some(path) = &args.save_checkpoint {
        match newest_checkpoint.filter(|_| report.verdict == Verdict::Verified) {
            Some(note) => write_whole(path, &note).map_err(|e| Refusal::file(path, &e))?,
            None => more.push(format!(
                "{} was not written: the verdict is not VERIFIED",
                path.display()
            )),
        }
    }
    Ok((report, more))
}

#[derive(Clone, Copy)]
enum ReportKind {
    Html,
    Markdown,
    Json,
}

fn report_kind(path: &Path) -> Result<ReportKind, Refusal> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "htm") => Ok(ReportKind::Html),
        Some("md") => Ok(ReportKind::Markdown),
        Some("json") => Ok(ReportKind::Json),
        _ => Err(Refusal::usage(format!(
            "{}: a report ends in .html, .md or .json",
            path.display()
        ))),
    }
}

fn request(args: &VerifyArgs, root: &CopyRoot) -> Result<Request, Refusal> {
    let mut request = Request::new(&args.dir);
    request.from = args.from.map(Seq);
    request.until = args.until.map(Seq);
    if let (Some(from), Some(until)) = (args.from, args.until)
        && from > until
    {
        return Err(Refusal::usage("--from lies behind --until"));
    }
    let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    request.max_age = args.max_age.map(millis);
    request.quick = args.quick;
    let payloads = args.payloads.as_ref();
    request.payloads = payloads.map(|p| p.as_ref().unwrap_or(&args.dir).clone());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    request.threads = args.threads.map_or(processors, usize::from);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    request.now = UnixMillis(now.map_or(0, millis));
    // The copy could have been made to hold whatever would be believed.
    let inside = |path: &Path, request: &mut Request| {
        let held = root.holds(path);
        if held {
            let text = format!("{}: it lies inside the copy being checked", path.display());
            request.not_used.push(text);
        }
        held
    };
    if let Some(trust) = &args.trust {
        match trust_source(trust)? {
            TrustSource::Line(line) => request.anchors.trust = Some(line),
            TrustSource::File(path) if inside(&path, &mut request) => {}
            TrustSource::File(path) => request.anchors.trust = Some(trust_file(&path)?),
        }
    }
    for path in &args.checkpoint {
        if !inside(path, &mut request) {
            let note = read_small(path).map_err(|e| Refusal::file(path, &e))?;
            let checkpoint = OutsideCheckpoint::new(note, path.display().to_string());
            request.anchors.checkpoints.push(checkpoint);
        }
    }
    if let Some(path) = &args.receipts
        && !inside(path, &mut request)
    {
        let file = File::open(path).map_err(|e| Refusal::file(path, &e))?;
        let receipts = Receipts::read(BufReader::with_capacity(1 << 16, file));
        request.anchors.receipts = receipts.map_err(|e| Refusal::file(path, &e))?;
    }
    Ok(request)
}

enum TrustSource {
    Line(TrustLine),
    File(PathBuf),
}

/// A trust line stands for itself; anything else names a file.
fn trust_source(given: &str) -> Result<TrustSource, Refusal> {
    let path = PathBuf::from(given);
    match TrustLine::parse(given, "the command line") {
        Ok(line) => Ok(TrustSource::Line(line)),
        Err(_) if path.exists() => Ok(TrustSource::File(path)),
        Err(error) if given.contains('+') => Err(Refusal::usage(format!("--trust: {error}"))),
        Err(_) => Err(Refusal::file(
            &path,
            &"no such file, and no trust line either",
        )),
    }
}

fn trust_file(path: &Path) -> Result<TrustLine, Refusal> {
    let bytes = read_small(path).map_err(|e| Refusal::file(path, &e))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|l| !l.is_empty() && !l.starts_with('#'));
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(Refusal::usage(format!(
            "{}: expected one trust line",
            path.display()
        )));
    };
    let name = path.file_name().unwrap_or(path.as_os_str());
    TrustLine::parse(line, name.to_string_lossy())
        .map_err(|e: AnchorError| Refusal::usage(format!("{}: {e}", path.display())))
}

fn with_progress(args: &VerifyArgs, request: &Request) -> Result<Verification, Refusal> {
    let bar = progress_bar(args, request);
    let done = verify(request, &|bytes| {
        if let Some(bar) = &bar {
            bar.inc(bytes);
        }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    done.map_err(|e| Refusal::file(&args.dir, &e))
}

/// Rate and time left on a terminal; nothing anywhere else.
fn progress_bar(args: &VerifyArgs, request: &Request) -> Option<ProgressBar> {
    if args.json || !io::stderr().is_terminal() {
        return None;
    }
    let folder = Folder::list(&request.dir).ok()?;
    let lens = folder
        .segments
        .iter()
        .map(|s| fs::metadata(&s.path).map_or(0, |m| m.len()));
    let payloads = request.payloads.as_ref();
    let payloads = payloads.and_then(|dir| PayloadFolder::list(dir).ok());
    let payloads = payloads.map_or(0, |p| p.total_len());
    let total = lens.fold(payloads, u64::saturating_add);
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    let template = "{percent:>3}%  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
    bar.set_style(ProgressStyle::with_template(template).ok()?);
    let shown = bar.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PROGRESS_AFTER);
        if !shown.is_finished() {
            shown.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        }
    });
    Some(bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_ascii_and_still_says_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = verify(&Request::new(dir.path()), &|_| {}).unwrap().report;
        report.sentence = "a\u{202e}\u{1f512}\u{7f}\u{1b}".to_owned();
        let text = json(&report);
        assert!(
            text.chars().all(|c| c == '\n' || matches!(c, ' '..='~')),
            "{text}"
        );
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["sentence"], report.sentence);
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration(" 7d "), Ok(Duration::from_secs(604_800)));
        for bad in ["", "7", "d", "1y", "-1h", "99999999999999999w", "1.5h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
