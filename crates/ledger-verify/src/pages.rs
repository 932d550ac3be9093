//! A report as a file that can be kept and shown: HTML, Markdown.
//!
//! The HTML needs nothing from anywhere, runs nothing, and prints.

use crate::escape::{html, markdown};
use crate::finding::Finding;
use crate::report::{Report, Verdict};
use crate::text::{TextStyle, render_text};
use std::fmt::Write as _;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#111;background:#fff}\
h1{font-size:1.3rem;border-left:.6rem solid;padding-left:.6rem}h2{font-size:1.05rem;margin-top:1.6rem}\
.verified{border-color:#17803d}.violation,.could_not_judge{border-color:#b3261e}.other{border-color:#a05a00}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;border-bottom:1px solid #ccc}\
td,pre{overflow-wrap:anywhere}pre{white-space:pre-wrap;background:#f4f4f4;padding:.8rem}\
@media print{body{margin:0;max-width:none;font-size:11px}tr{break-inside:avoid}pre{background:none;border:1px solid #999}}";

/// The report as one HTML page.
#[must_use]
pub fn render_html(report: &Report) -> String {
    let mut out = String::new();
    let class = match report.verdict {
        Verdict::Verified => "verified",
        Verdict::Violation | Verdict::CouldNotJudge => "violation",
        _ => "other",
    };
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1 class=\"{class}\">{title}</h1>\n<p>{sentence}</p>\n",
        title = html(&report.headline),
        sentence = html(&report.sentence),
    );
    if !report.findings.is_empty() {
        out.push_str("<h2>Findings</h2>\n<table><tr><th>code</th><th>frame</th><th>where</th><th>what</th></tr>\n");
        for finding in &report.findings {
            finding_row(&mut out, finding);
        }
        out.push_str("</table>\n");
    }
    out.push_str("<h2>Report</h2>\n<pre>");
    let style = TextStyle {
        color: false,
        all: false,
    };
    // The text is plain ASCII already; only markup is left to escape, line by line.
    for line in render_text(report, style).lines() {
        out.push_str(&html(line));
        out.push('\n');
    }
    out.push_str("</pre>\n");
    if !report.read.files.is_empty() {
        out.push_str(
            "<h2>Files read</h2>\n<table><tr><th>file</th><th>bytes</th><th>SHA-256</th></tr>\n",
        );
        for file in &report.read.files {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                html(&file.name),
                file.bytes,
                html(&file.sha256)
            );
        }
        out.push_str("</table>\n");
    }
    let _ = write!(
        out,
        "<p>Checked {} by {}.</p>\n</body></html>\n",
        html(&report.checked_at),
        html(&report.tool)
    );
    out
}

fn finding_row(out: &mut String, finding: &Finding) {
    let between = match (&finding.expected, &finding.found) {
        (Some(e), Some(f)) => format!("expected {e}, found {f}. "),
        _ => String::new(),
    };
    let _ = writeln!(
        out,
        "<tr><td>{}</td><td>{}</td><td>{}, byte {}</td><td>{}<br>{}</td></tr>",
        html(finding.code.name()),
        finding.place.seq,
        html(&finding.file_name()),
        finding.place.offset,
        html(&format!("{between}{}", finding.detail)),
        html(finding.code.explanation()),
    );
}

/// The report as Markdown.
#[must_use]
pub fn render_markdown(report: &Report) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "# {}\n\n{}\n\n",
        markdown(&report.headline),
        markdown(&report.sentence)
    );
    if !report.findings.is_empty() {
        out.push_str("| code | frame | file | byte | what |\n|---|---|---|---|---|\n");
        for f in &report.findings {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                markdown(f.code.name()),
                f.place.seq,
                markdown(&f.file_name()),
                f.place.offset,
                markdown(&f.detail)
            );
        }
        out.push('\n');
    }
    for line in render_text(report, TextStyle::default()).lines() {
        let _ = writeln!(out, "    {line}");
    }
    if !report.read.files.is_empty() {
        out.push_str("\n| file | bytes | SHA-256 |\n|---|---|---|\n");
        for f in &report.read.files {
            let _ = writeln!(
                out,
                "| {} | {} | {} |",
                markdown(&f.name),
                f.bytes,
                f.sha256
            );
        }
    }
    let _ = write!(
        out,
        "\nChecked {} by {}.\n",
        markdown(&report.checked_at),
        markdown(&report.tool)
    );
    out
}
