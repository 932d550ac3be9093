//! The shared fixtures, read as `ledger read` does: what a fixture calls sound is read to its end, and nothing else is.

use std::path::Path;

use ledger_format::{Frame, Link, SegmentOpen, Seq, Tail};

use super::{ChainRecord, Outcome, Pin, Range, Visitor, Walk};
use crate::folder::LedgerFolder;
use crate::terminal::Progress;

/// A fixture's header and files.
struct Fixture {
    name: String,
    expect: String,
    findings: Vec<String>,
    trust: Option<String>,
    anchors: bool,
    files: Vec<(String, Vec<u8>)>,
}

impl Fixture {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let split = bytes.windows(2).position(|two| two == b"\n\n").unwrap();
        let header = std::str::from_utf8(&bytes[..split]).unwrap();
        let mut rest = &bytes[split + 2..];
        let mut fixture = Self {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            expect: String::new(),
            findings: Vec::new(),
            trust: None,
            anchors: false,
            files: Vec::new(),
        };
        let mut take = |len: &str| {
            let (block, behind) = rest.split_at(len.parse().unwrap());
            rest = behind;
            block.to_vec()
        };
        for line in header.lines().skip(1) {
            let (name, value) = line.split_once(": ").unwrap();
            match name {
                "comment" | "exit" | "keys" => {}
                "expect" => fixture.expect = value.to_owned(),
                "finding" => fixture.findings.push(value.to_owned()),
                "trust" => fixture.trust = Some(value.to_owned()),
                "checkpoint" | "receipts" => {
                    take(value);
                    fixture.anchors = true;
                }
                "file" => {
                    let (name, len) = value.rsplit_once(' ').unwrap();
                    fixture.files.push((name.to_owned(), take(len)));
                }
                other => panic!("{other}"),
            }
        }
        fixture
    }

    /// The first finding that concerns the chain itself and what reading meets of it.
    fn first(&self) -> Option<&str> {
        let outside = [
            "anchor_signature",
            "checkpoint_absent",
            "rolled_back",
            "receipt_absent",
            "receipt_mismatch",
        ];
        self.findings
            .iter()
            .map(String::as_str)
            .find(|finding| !outside.iter().any(|code| finding.starts_with(code)))
    }

    /// ` segment=4 seq=5 offset=1000` as the message of an error has it.
    fn place(&self) -> Option<String> {
        let finding = self.first()?;
        let number = |name: &str| {
            let (_, rest) = finding.split_once(name)?;
            rest.split(' ').next()?.parse::<u64>().ok()
        };
        let (segment, seq, offset) = (number("segment=")?, number("seq=")?, number("offset=")?);
        Some(format!("frame {seq}, {segment:020}.frames byte {offset}: "))
    }
}

/// Counts what it is shown.
#[derive(Default)]
struct Counter {
    covered: u64,
    uncovered: u64,
}

impl Visitor for Counter {
    fn segment(&mut self, _: Seq, _: &SegmentOpen, _: Seq) {}

    fn control(&mut self, _: Seq, _: &Frame<'_>, _: &Link) -> anyhow::Result<()> {
        Ok(())
    }

    fn record(&mut self, record: &ChainRecord<'_>) -> anyhow::Result<()> {
        match record.cover {
            Some(cover) if cover.checkpoint > record.frame.prefix.seq => self.covered += 1,
            Some(_) => panic!("covered by an earlier checkpoint"),
            None => self.uncovered += 1,
        }
        Ok(())
    }
}

fn read(fixture: &Fixture, from: u64) -> (anyhow::Result<Outcome>, Counter) {
    let dir = tempfile::tempdir().unwrap();
    let segments = dir.path().join("segments");
    std::fs::create_dir(&segments).unwrap();
    for (name, content) in &fixture.files {
        std::fs::write(segments.join(name), content).unwrap();
    }
    let mut counter = Counter::default();
    let result = LedgerFolder::open(dir.path()).and_then(|mut folder| {
        let pin = fixture
            .trust
            .as_deref()
            .map(|line| Pin::parse(line).unwrap());
        let range = Range {
            from: Seq(from),
            until: Seq(u64::MAX),
            uncovered: true,
        };
        let progress = Progress::new("test", None);
        Walk::new(&mut folder, range, pin, &progress).run(&mut counter)
    });
    (result, counter)
}

fn all(folder: &str) -> Vec<Fixture> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| Fixture::read(path)).collect()
}

/// Whether reading ended as the first finding of the chain demands.
fn agrees(fixture: &Fixture, result: &anyhow::Result<Outcome>) -> Result<(), String> {
    let first = fixture.first();
    let code = first.and_then(|finding| finding.split(' ').next());
    let fits = match (result, code) {
        // A checkpoint or receipt from outside makes damage of what is torn without it; reading takes none.
        (Ok(_), _) if fixture.anchors => true,
        (Ok(o), None) => {
            o.unfinished.is_none() && o.generation_at.is_none() && o.set_aside.is_empty()
        }
        (Ok(o), Some("torn_tail")) => o.unfinished == Some(Tail::Torn),
        (Ok(o), Some("copied_while_written")) => o.unfinished == Some(Tail::CopiedWhileWritten),
        // Also when nothing in the chain is signed under the pinned generation.
        (Ok(o), Some("generation_uncovered")) => o.generation_at.is_some() || !o.pinned,
        (Ok(o), Some("evidence_set_aside")) => !o.set_aside.is_empty(),
        (Ok(o), Some("segment_missing")) => {
            fixture.findings[0].contains("seq=0 ") && o.newest.is_some()
        }
        (Ok(o), Some("trust_mismatch")) => o.pin_absent,
        (Ok(_), Some(_)) => false,
        (Err(_), None) => false,
        (Err(_), Some(_)) => true,
    };
    if fits {
        Ok(())
    } else {
        Err(format!("{}: {first:?}, but {result:?}", fixture.name))
    }
}

#[test]
fn fixtures_are_read_as_they_promise() {
    let mut wrong = Vec::new();
    let (mut violations, mut same_place) = (0, 0);
    let fixtures: Vec<Fixture> = all("accept").into_iter().chain(all("reject")).collect();
    assert!(fixtures.len() > 300, "fixtures are there");
    for fixture in &fixtures {
        let (result, _) = read(fixture, 0);
        wrong.extend(agrees(fixture, &result).err());
        if let (Err(error), Some(place)) = (&result, fixture.place()) {
            violations += 1;
            if error.to_string().starts_with(&place) {
                same_place += 1;
            } else {
                eprintln!("{}: expected {place}found {error}", fixture.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The rest differ in where they say it: reading judges a write as a whole before its meaning.
    assert!(
        same_place * 10 >= violations * 9,
        "{same_place} of {violations} at the same place"
    );
}

#[test]
fn reading_may_begin_in_any_segment() {
    for fixture in all("accept") {
        let (whole, all_records) = read(&fixture, 0);
        if whole.is_err() {
            continue;
        }
        for (name, _) in &fixture.files {
            let Some(first) = name
                .strip_suffix(".frames")
                .and_then(|digits| digits.parse::<u64>().ok())
            else {
                continue;
            };
            let (part, records) = read(&fixture, first);
            let part =
                part.unwrap_or_else(|error| panic!("{} from {first}: {error}", fixture.name));
            assert_eq!(
                part.next,
                whole.as_ref().unwrap().next,
                "{} from {first}",
                fixture.name
            );
            let same_pin = part.pinned == whole.as_ref().unwrap().pinned;
            // A segment without a checkpoint yet leaves nothing to hold the pinned key against.
            assert!(
                same_pin || part.newest.is_none(),
                "{} from {first}",
                fixture.name
            );
            assert!(
                records.covered <= all_records.covered
                    && records.uncovered == all_records.uncovered
            );
        }
    }
}

#[test]
fn no_flipped_bit_is_read_over() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/accept/all_closed.fixture");
    let mut fixture = Fixture::read(&path);
    assert!(read(&fixture, 0).0.is_ok());
    let mut tried = 0;
    for file in 0..fixture.files.len() {
        for at in (file..fixture.files[file].1.len()).step_by(29) {
            let bit = 1 << (at % 8);
            fixture.files[file].1[at] ^= bit;
            let (result, _) = read(&fixture, 0);
            assert!(
                result.is_err(),
                "{} byte {at}: {result:?}",
                fixture.files[file].0
            );
            fixture.files[file].1[at] ^= bit;
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried}");
}

#[test]
fn a_cut_file_is_never_read_as_whole() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/accept/all_closed.fixture");
    let mut fixture = Fixture::read(&path);
    let (whole, all_records) = read(&fixture, 0);
    let whole = whole.unwrap();
    let last = fixture.files.len() - 1;
    for len in (0..fixture.files[last].1.len()).step_by(41) {
        let full = fixture.files[last].1.clone();
        fixture.files[last].1.truncate(len);
        let (result, records) = read(&fixture, 0);
        // Behind a complete write a cut cannot be seen; then it is shorter, and covers no more.
        if let Ok(outcome) = result {
            assert!(outcome.next < whole.next, "{len}");
            assert!(records.covered <= all_records.covered, "{len}");
        }
        fixture.files[last].1 = full;
    }
}
