//! The command line as people meet it: output, exit codes, files it writes and refuses to write.

#[allow(dead_code, unreachable_pub)]
mod support;

#[allow(dead_code, unreachable_pub)]
#[path = "support/fixture.rs"]
mod fixture;

use assert_cmd::Command;
use std::fs;
use std::path::Path;
use support::{Maker, Shape};
use tempfile::TempDir;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn ran(args: &[&str], dir: &Path) -> Ran {
    let output = Command::cargo_bin("ledger-verify")
        .unwrap()
        .args(args)
        .current_dir(dir)
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Without what depends on the clock of the machine.
fn steady(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = match line.trim_start() {
            l if l.starts_with("freshness") => "  freshness    (by the clock)".to_owned(),
            l if l.starts_with("read  ") => {
                let (what, _) = line.rsplit_once(" in ").unwrap();
                let ignored = line.split_once("; ").map_or("", |(_, i)| i);
                format!("{what} in (time) {ignored}").trim_end().to_owned()
            }
            _ => line.to_owned(),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn ledger() -> (TempDir, Maker) {
    let mut maker = Maker::ledger(Shape {
        closed: true,
        ..Shape::SMALL
    });
    maker.open();
    maker.recovery();
    maker.write(2, 300, 272);
    maker.checkpoint();
    maker.write(1, 300, 272);
    maker.end_file();
    let dir = tempfile::tempdir().unwrap();
    let segments = dir.path().join("copy/segments");
    fs::create_dir_all(&segments).unwrap();
    maker.save(&segments);
    fs::write(segments.join("._00000000000000000000.frames"), "x").unwrap();
    let trust = format!("# from the contract\n{}\n", maker.trust_line());
    fs::write(dir.path().join("trust.txt"), &trust).unwrap();
    fs::write(dir.path().join("copy/trust.txt"), &trust).unwrap();
    fs::write(dir.path().join("old.ckpt"), maker.newest()).unwrap();
    (dir, maker)
}

const GOOD: [&str; 3] = ["copy", "--trust", "trust.txt"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&GOOD[..], more].concat()
}

#[test]
fn a_good_copy() {
    let (dir, maker) = ledger();
    let r = ran(
        &with(&["--checkpoint", "old.ckpt", "--save-checkpoint", "new.ckpt"]),
        dir.path(),
    );
    assert_eq!((r.code, r.err.as_str()), (0, ""));
    insta::assert_snapshot!("good", steady(&r.out));
    assert_eq!(
        fs::read(dir.path().join("new.ckpt")).unwrap(),
        maker.newest()
    );
}

#[test]
fn an_altered_copy() {
    let (dir, maker) = ledger();
    let path = dir
        .path()
        .join("copy/segments")
        .join(format!("{:020}.frames", maker.segments[1].0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[3000] ^= 4;
    fs::write(&path, bytes).unwrap();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    maker.save(&other);
    let r = ran(
        &with(&["--compare", "other", "--save-checkpoint", "new.ckpt"]),
        dir.path(),
    );
    assert_eq!(r.code, 1);
    assert!(r.err.contains("new.ckpt was not written"), "{}", r.err);
    assert!(!dir.path().join("new.ckpt").exists());
    insta::assert_snapshot!("altered", steady(&r.out));
}

#[test]
fn a_torn_copy() {
    let (dir, maker) = ledger();
    let (first, bytes) = maker.segments.last().unwrap();
    let path = dir.path().join(format!("copy/segments/{first:020}.frames"));
    fs::write(&path, &bytes[..bytes.len() - 500]).unwrap();
    let r = ran(&GOOD, dir.path());
    assert_eq!(r.code, 2);
    insta::assert_snapshot!("torn", steady(&r.out));
}

#[test]
fn without_a_pin_and_with_one_from_inside_the_copy() {
    let (dir, _) = ledger();
    let r = ran(&["copy", "--trust", "copy/trust.txt"], dir.path());
    assert_eq!(r.code, 4);
    assert!(!r.out.contains("VERIFIED"));
    insta::assert_snapshot!("no_pin", steady(&r.out));
}

#[test]
fn help_and_explanations() {
    let dir = tempfile::tempdir().unwrap();
    let r = ran(&["--help"], dir.path());
    assert_eq!(r.code, 0);
    insta::assert_snapshot!("help", r.out);
    let r = ran(&["explain", "--help"], dir.path());
    assert_eq!(r.code, 0);
    insta::assert_snapshot!("help_explain", r.out);
    let r = ran(&["explain", "torn_tail"], dir.path());
    assert!(r.code == 0 && r.out.contains("never completed"));
}

#[test]
fn what_cannot_be_used_is_refused_in_words() {
    let (dir, maker) = ledger();
    let mut wrong = maker.trust_line();
    let at = wrong.find('+').unwrap() + 1;
    wrong.replace_range(
        at..=at,
        if wrong[at..].starts_with('0') {
            "1"
        } else {
            "0"
        },
    );
    for (args, code, said) in [
        (vec!["--nonsense"], 64, "unexpected argument"),
        (vec![], 64, "Usage"),
        (vec!["explain", "nonsense"], 64, "frame_altered"),
        (vec!["copy", "--trust", &wrong], 64, "copied whole"),
        (vec!["copy", "--trust", "absent.txt"], 3, "no such file"),
        (
            vec!["copy", "--checkpoint", "absent.ckpt"],
            3,
            "absent.ckpt",
        ),
        (
            vec!["copy", "--receipts", "trust.txt"],
            3,
            "line 1 is no receipt",
        ),
        (vec!["copy", "--max-age", "soon"], 64, "unit"),
        (vec!["copy", "--from", "9", "--until", "3"], 64, "behind"),
        (vec!["copy", "--report", "report.pdf"], 64, ".html"),
        (
            vec!["copy", "--report", "copy/report.html"],
            64,
            "inside the copy",
        ),
        (
            vec!["copy", "--save-checkpoint", "copy/segments/x"],
            64,
            "inside the copy",
        ),
        (vec!["absent"], 3, "absent"),
    ] {
        let r = ran(&args, dir.path());
        assert_eq!(r.code, code, "{args:?} {}", r.err);
        assert!(r.err.contains(said), "{args:?} said {}", r.err);
    }
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let r = ran(&["empty"], dir.path());
    assert_eq!(r.code, 3);
    assert!(r.out.contains("no_segments"), "{}", r.out);
}

#[test]
fn reports_are_written_beside_the_copy() {
    let (dir, _) = ledger();
    for (name, begins) in [
        ("r.html", "<!doctype html>"),
        ("r.md", "# VERIFIED"),
        ("r.json", "{\n"),
    ] {
        let r = ran(&with(&["--report", name]), dir.path());
        assert_eq!(r.code, 0, "{}", r.err);
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text.starts_with(begins), "{name}: {text}");
        // The digest of each of the four files; JSON also lists the name that was ignored.
        let names = 4 + usize::from(name == "r.json");
        assert_eq!(text.matches(".frames").count(), names, "{name}: {text}");
        assert!(text.is_ascii() && !text.contains("http"));
    }
}

#[test]
fn json_is_as_its_schema_says() {
    let (dir, maker) = ledger();
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../report.schema.json")).unwrap();
    let path = dir
        .path()
        .join(format!("copy/segments/{:020}.frames", maker.segments[1].0));
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[3000] ^= 4;
    let runs: [(&[u8], Vec<&str>); 4] = [
        (&good, vec!["copy", "--json"]),
        (
            &good,
            with(&[
                "--json",
                "--checkpoint",
                "old.ckpt",
                "--max-age",
                "1s",
                "--compare",
                "copy",
            ]),
        ),
        (
            &bad,
            with(&["--json", "--compare", "copy", "--report", "r.json"]),
        ),
        (&bad[..2000], with(&["--json", "--from", "1"])),
    ];
    for (bytes, args) in runs {
        fs::write(&path, bytes).unwrap();
        let r = ran(&args, dir.path());
        let report: serde_json::Value = serde_json::from_str(&r.out).unwrap();
        assert_eq!(report["exit_code"], r.code);
        check(&schema, &schema, &report, "report");
    }
    let file = fs::read_to_string(dir.path().join("r.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&file).unwrap();
    check(&schema, &schema, &report, "report file");
}

/// The part of JSON Schema that `report.schema.json` uses.
fn check(
    root: &serde_json::Value,
    schema: &serde_json::Value,
    value: &serde_json::Value,
    at: &str,
) {
    for key in schema.as_object().unwrap().keys() {
        let known = [
            "$schema",
            "$id",
            "$defs",
            "$ref",
            "title",
            "description",
            "type",
            "enum",
            "const",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "prefixItems",
        ];
        assert!(
            known.contains(&key.as_str()),
            "{at}: this test does not know {key}"
        );
    }
    if let Some(name) = schema["$ref"].as_str() {
        let target = &root["$defs"][name.strip_prefix("#/$defs/").unwrap()];
        return check(root, target, value, at);
    }
    let kind = match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "boolean",
        serde_json::Value::Number(_) => "integer",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        serde_json::Value::Array(kinds) => kinds.iter().any(|k| k == kind),
        one => one == kind,
    };
    assert!(allowed, "{at} is {kind}, not {}", schema["type"]);
    if let Some(values) = schema["enum"].as_array() {
        assert!(
            values.contains(value),
            "{at}: {value} is none of {values:?}"
        );
    }
    if let Some(only) = schema.get("const") {
        assert_eq!(only, value, "{at}");
    }
    if let Some(object) = value.as_object() {
        let properties = schema["properties"].as_object().unwrap();
        for name in schema["required"].as_array().unwrap() {
            assert!(
                object.contains_key(name.as_str().unwrap()),
                "{at} lacks {name}"
            );
        }
        for (name, part) in object {
            let part_schema = properties
                .get(name)
                .unwrap_or_else(|| panic!("{at}: {name} is not in the schema"));
            check(root, part_schema, part, &format!("{at}.{name}"));
        }
    }
    for (i, part) in value.as_array().into_iter().flatten().enumerate() {
        let of = schema["prefixItems"].get(i).unwrap_or(&schema["items"]);
        check(root, of, part, &format!("{at}[{i}]"));
    }
}

/// A fixture of payload files as a copy, its payload files apart when `apart`.
fn payload_copy(name: &str, apart: bool) -> TempDir {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/payloads");
    let bytes = fs::read(path.join(format!("{name}.fixture"))).unwrap();
    let fixture = fixture::parse(&bytes);
    let dir = tempfile::tempdir().unwrap();
    let segments = dir.path().join("copy/segments");
    let payloads = if apart {
        dir.path().join("raw")
    } else {
        segments.clone()
    };
    for folder in [&segments, &payloads] {
        fs::create_dir_all(folder).unwrap();
    }
    for (folder, files) in [(segments, fixture.files), (payloads, fixture.payloads)] {
        for (name, bytes) in files {
            fs::write(folder.join(name), bytes).unwrap();
        }
    }
    fs::write(dir.path().join("trust.txt"), fixture.trust.unwrap()).unwrap();
    dir
}

#[test]
fn payload_files_in_every_form_of_report() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../report.schema.json")).unwrap();
    for (name, code) in [
        ("open_trailing", 0),
        ("erased_still_present", 0),
        ("undeclared_bytes", 1),
        ("flip_second", 1),
        ("missing_all", 1),
        ("beside_damage", 1),
    ] {
        let dir = payload_copy(name, false);
        let r = ran(&with(&["--payloads"]), dir.path());
        assert_eq!(r.code, code, "{name}: {}", r.out);
        insta::assert_snapshot!(format!("payloads_{name}"), steady(&r.out));
        let r = ran(
            &with(&["--payloads", "--json", "--report", "r.html"]),
            dir.path(),
        );
        let report: serde_json::Value = serde_json::from_str(&r.out).unwrap();
        check(&schema, &schema, &report, name);
        let html = fs::read_to_string(dir.path().join("r.html")).unwrap();
        let r = ran(&with(&["--payloads", "--report", "r.md"]), dir.path());
        assert_eq!(r.code, code, "{}", r.err);
        let markdown = fs::read_to_string(dir.path().join("r.md")).unwrap();
        for finding in report["findings"].as_array().unwrap() {
            let frames = format!("{:020}.frames", finding["segment"].as_u64().unwrap());
            let file = finding["file"].as_str().unwrap_or(&frames);
            let at = finding["offset"].as_u64().unwrap();
            let row = format!("<td>{file}, byte {at}</td>");
            assert!(html.contains(&row), "{name} lacks {row}: {html}");
            let row = format!("| {} | {file} | {at} |", finding["seq"].as_u64().unwrap());
            assert!(
                markdown.replace('\\', "").contains(&row),
                "{name} lacks {row}: {markdown}"
            );
        }
        // Digests of the payload files that were read stand beside those of the frames.
        if name == "open_trailing" {
            assert_eq!(html.matches(".payloads</td>").count(), 3, "{html}");
        }
        // Frames only: what lies beside them changes nothing.
        let r = ran(&GOOD, dir.path());
        let damaged = i32::from(name == "beside_damage");
        assert_eq!(r.code, damaged, "{name}: {}", r.out);
        assert!(r.out.contains("payload files not read (--payloads)"));
    }
}

#[test]
fn payload_files_may_lie_elsewhere_and_nothing_is_written_there() {
    let dir = payload_copy("good", true);
    let r = ran(&with(&["--payloads", "raw"]), dir.path());
    assert_eq!(r.code, 0, "{}", r.out);
    assert!(r.out.contains("4 of 4 messages"), "{}", r.out);
    let r = ran(&with(&["--payloads"]), dir.path());
    assert_eq!(r.code, 1);
    assert!(r.out.contains("payload_missing"), "{}", r.out);
    for (more, code, said) in [
        (
            vec!["--payloads", "raw", "--report", "raw/r.md"],
            64,
            "inside the copy",
        ),
        (vec!["--payloads", "absent"], 3, "absent"),
        (
            vec!["--payloads", "raw", "--until", "5"],
            64,
            "cannot be used",
        ),
        (vec!["--payloads", "raw", "--quick"], 64, "cannot be used"),
    ] {
        let r = ran(&with(&more), dir.path());
        assert_eq!(r.code, code, "{more:?} {}", r.err);
        assert!(r.err.contains(said), "{more:?} said {}", r.err);
    }
    assert_eq!(fs::read_dir(dir.path().join("raw")).unwrap().count(), 3);
    // A part up to the end is judged; what lies before it is not held against it.
    let r = ran(&with(&["--payloads", "raw", "--from", "11"]), dir.path());
    assert_eq!(r.code, 0, "{}", r.out);
    assert!(r.out.contains("1 of 1 messages"), "{}", r.out);
}

#[cfg(unix)]
#[test]
fn links_and_folders_under_a_payload_name_are_not_judged() {
    let dir = payload_copy("good", false);
    let path = dir
        .path()
        .join("copy/segments/00000000000000000004.30d.payloads");
    let kept = dir.path().join("kept");
    fs::rename(&path, &kept).unwrap();
    std::os::unix::fs::symlink(&kept, &path).unwrap();
    let r = ran(&with(&["--payloads"]), dir.path());
    assert_eq!(r.code, 3, "{}", r.out);
    assert!(
        r.out.contains("unreadable") && r.out.contains("30d.payloads, byte 0"),
        "{}",
        r.out
    );
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(ran(&with(&["--payloads"]), dir.path()).code, 3);
}

#[cfg(unix)]
#[test]
fn pipes_and_links_under_a_segment_name_are_not_waited_for() {
    let (dir, maker) = ledger();
    let path = dir
        .path()
        .join(format!("copy/segments/{:020}.frames", maker.segments[1].0));
    let kept = dir.path().join("kept.frames");
    fs::rename(&path, &kept).unwrap();
    std::os::unix::fs::symlink(&kept, &path).unwrap();
    let r = ran(&GOOD, dir.path());
    assert_eq!(r.code, 3, "{}", r.out);
    assert!(
        r.out.contains("unreadable") && r.out.contains("not a regular file"),
        "{}",
        r.out
    );
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if made.is_ok_and(|s| s.success()) {
        assert_eq!(ran(&GOOD, dir.path()).code, 3);
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_quietly() {
    let (dir, _) = ledger();
    let program = assert_cmd::cargo::cargo_bin("ledger-verify");
    let script = format!(
        "{} copy --trust trust.txt --json | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}",
        program.display()
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
