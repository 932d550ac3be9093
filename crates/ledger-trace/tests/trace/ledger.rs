//! Stories out of ledgers that the writer wrote: what is opened, what is checked, and that the tiles say the same.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ledger_format::{
    FRAMES_MAGIC, Frame, Frontier, Hash, InclusionPath, LedgerId, Link, Seq, leaf_hash, node_hash,
};
use ledger_index::{Covered, Index, TileStore, load_or_create_key};
use ledger_records::Submission;
use ledger_trace::{
    Answer, Depth, Derived, FolderOptions, FolderSource, Hits, How, Limits, Lookup, Proofs, Query,
    Source, SourceError, TextOptions, Trace, TraceExit, TrustLine, trace,
};
use ledger_vault::{Identities, KeyDir, RetentionClass};
use ledger_writer::{Config, InitOptions, OpenMode, Writer, init};

struct Ledger {
    dir: tempfile::TempDir,
    vault: Identities,
    state: PathBuf,
    trust: String,
    id: LedgerId,
}

impl Ledger {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vault = Identities::generate();
        let options = InitOptions {
            name: "audit.example.com/trace".into(),
            vault_recipients: vault.recipients().unwrap(),
            payload_classes: RetentionClass::new("30d").into_iter().collect(),
        };
        let made = init(
            &dir.path().join("audit"),
            &dir.path().join("state"),
            &options,
        )
        .unwrap();
        Self {
            state: made.state_dir,
            trust: made.trust_line,
            id: made.ledger_id,
            dir,
            vault,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("audit")
    }

    fn writer(&self) -> Writer {
        let state = self.dir.path().join("state");
        Writer::open(&self.path(), &state, Config::default(), OpenMode::Normal)
            .unwrap()
            .0
    }

    /// The documents' story, told to a writer.
    fn story() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/story");
        let files = [
            "01-agent",
            "02-outbound",
            "03-intake",
            "04-workflow",
            "05-late",
            "06-review",
        ];
        let texts = files
            .iter()
            .map(|name| fs::read_to_string(folder.join(format!("{name}.ndjson"))).unwrap());
        texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    fn told() -> Self {
        let ledger = Self::new();
        let writer = ledger.writer();
        for (i, line) in Self::story().iter().enumerate() {
            append(&writer, &[line]);
            if i == 7 {
                writer.rotate().unwrap();
            }
        }
        writer.close().unwrap();
        ledger
    }

    fn operational(&self) -> Identities {
        Identities::open(
            &fs::read(self.state.join("operational.key")).unwrap(),
            || None,
        )
        .unwrap()
    }

    fn vault(&self) -> Identities {
        let text = self.vault.to_file_text("2026-11-30T00:00:00Z");
        Identities::open(text.as_bytes(), || None).unwrap()
    }

    fn options(&self, evidence: bool) -> FolderOptions<'static> {
        FolderOptions {
            trust: Some(TrustLine::parse(&self.trust).unwrap()),
            evidence,
            ..FolderOptions::default()
        }
    }

    fn with_vault(&self) -> FolderSource<'static> {
        FolderSource::open(&self.path(), self.vault(), self.options(true)).unwrap()
    }

    /// With an index that reaches to a frame.
    fn indexed(&self, covered: u64) -> Result<FolderSource<'static>, SourceError> {
        let options = FolderOptions {
            derived: Some(Derived {
                lookup: Box::new(Named::of(self.with_vault(), covered)),
                proofs: Box::new(Tiles(links(&self.path()).iter().map(leaf_hash).collect())),
            }),
            ..self.options(true)
        };
        FolderSource::open(&self.path(), self.vault(), options)
    }

    /// The segment that holds a frame, and its file.
    fn segments(&self) -> Vec<PathBuf> {
        segments(&self.path())
    }
}

fn append(writer: &Writer, lines: &[&String]) {
    let prepare = |line: &&String| {
        writer
            .prepare(Submission::from_json(line.as_bytes()).unwrap(), None)
            .unwrap()
    };
    writer.append(lines.iter().map(prepare).collect()).unwrap();
}

fn segments(ledger: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(ledger.join("segments"))
        .unwrap()
        .map(|e| e.unwrap().path());
    let mut found: Vec<_> = entries
        .filter(|p| p.extension().is_some_and(|e| e == "frames"))
        .collect();
    found.sort();
    found
}

/// All links, and at the same time where each frame stands: (segment, offset, length, is a record).
fn frames(ledger: &Path) -> Vec<(PathBuf, usize, usize, bool, Link)> {
    let mut found = Vec::new();
    for path in segments(ledger) {
        let bytes = fs::read(&path).unwrap();
        let mut at = FRAMES_MAGIC.len();
        while let Ok(frame) = Frame::parse(&bytes[at..]) {
            let len = frame.bytes().len();
            found.push((path.clone(), at, len, frame.record().is_some(), frame.link));
            at += len;
        }
    }
    found
}

fn links(ledger: &Path) -> Vec<Link> {
    frames(ledger).iter().map(|f| f.4).collect()
}

/// An index made from what a scan finds, up to a frame.
struct Named {
    frames: BTreeMap<String, Vec<Seq>>,
    covered: u64,
}

impl Named {
    fn of(source: FolderSource<'_>, covered: u64) -> Self {
        let mut frames: BTreeMap<String, Vec<Seq>> = BTreeMap::new();
        for seq in (0..source.extent().next.0)
            .map(Seq)
            .filter(|seq| seq.0 < covered)
        {
            let Ok(view) = source.frame(seq) else {
                continue;
            };
            let ids = view
                .envelope
                .identifiers
                .iter()
                .map(|item| item.identifier.value.clone());
            for value in ids.chain([view.envelope.record_id.clone()]) {
                let of = frames.entry(value).or_default();
                if of.last() != Some(&seq) {
                    of.push(seq);
                }
            }
        }
        Self { frames, covered }
    }
}

impl Lookup for Named {
    fn lookup(&self, value: &str, below: Seq, limit: usize) -> Result<Hits, SourceError> {
        let mut seqs = self.frames.get(value).cloned().unwrap_or_default();
        seqs.retain(|seq| *seq < below);
        let more = seqs.len() > limit;
        seqs.truncate(limit);
        Ok(Hits { seqs, more })
    }

    fn covered(&self) -> Seq {
        Seq(self.covered)
    }
}

/// Every leaf hash, and paths computed as RFC 6962 defines them.
struct Tiles(Vec<Hash>);

impl Proofs for Tiles {
    fn inclusion_path(&self, seq: Seq, size: u64) -> Result<Option<InclusionPath>, SourceError> {
        let leaves = self.0.get(..size as usize);
        Ok(leaves.map(|leaves| path(seq.0 as usize, leaves)))
    }
}

/// The greatest power of two below a number.
fn half(n: usize) -> usize {
    n.next_power_of_two() / 2
}

fn path(at: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() <= 1 {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(half(leaves.len()));
    let (mut below, beside) = if at < left.len() {
        (path(at, left), root(right))
    } else {
        (path(at - left.len(), right), root(left))
    };
    below.push(beside);
    below
}

fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [leaf] => *leaf,
        leaves => {
            let (left, right) = leaves.split_at(half(leaves.len()));
            node_hash(&root(left), &root(right))
        }
    }
}

fn ask(source: &FolderSource<'_>, value: &str) -> Result<Answer, SourceError> {
    trace(source, &Query::value(value), Limits::default())
}

fn found(source: &FolderSource<'_>, value: &str) -> Trace {
    match ask(source, value).unwrap() {
        Answer::Found(trace) => *trace,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_story_from_three_identifiers_with_the_vault_key() {
    let ledger = Ledger::told();
    let source = ledger.with_vault();
    let told = found(&source, "act_01");
    assert_eq!(told.depth, Depth::Evidence);
    assert!(told.check.pinned && told.check.covered == told.check.frames);
    for start in [
        "evt_88",
        "op_9f2",
        "CR-1207",
        "dlv-5512",
        "4bf92f3577b34da6a3ce929d0e0e4736",
    ] {
        let other = found(&source, start);
        assert_eq!(other.lines.len(), told.lines.len(), "{start}");
    }
    let answer = ask(&source, "act_01").unwrap();
    assert_eq!(
        answer.exit(),
        TraceExit::Found,
        "a person has decided the contradiction"
    );
    let origin = source.extent().origin.unwrap();
    insta::assert_snapshot!(
        answer
            .to_text(&TextOptions::default())
            .replace(&origin, "ORIGIN")
    );
}

#[test]
fn the_writer_itself_can_tell_the_skeleton() {
    let ledger = Ledger::told();
    let options = ledger.options(false);
    let skeleton = FolderSource::open(&ledger.path(), ledger.operational(), options).unwrap();
    let bare = found(&skeleton, "act_01");
    let full = found(&ledger.with_vault(), "act_01");
    assert_eq!(bare.depth, Depth::Skeleton);
    assert!(bare.lines.iter().all(|line| line.record.is_none()));
    assert_eq!(
        (&bare.states, &bare.findings),
        (&full.states, &full.findings)
    );
    let frames = |t: &Trace| {
        t.lines
            .iter()
            .map(|l| (l.frame, l.link.clone(), l.facts.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(frames(&bare), frames(&full));
    // The operational identity opens no body, and that is said, not hidden.
    let options = ledger.options(true);
    let tried = FolderSource::open(&ledger.path(), ledger.operational(), options).unwrap();
    let tried = found(&tried, "act_01");
    assert!(tried.lines.iter().all(|line| line.unopened.is_some()));
    assert!(
        tried
            .findings
            .iter()
            .any(|f| f.code.as_str() == "body_unopened")
    );
    let stranger = FolderSource::open(&ledger.path(), Identities::generate(), ledger.options(true));
    assert!(matches!(stranger.err(), Some(SourceError::Keys(_))));
}

#[test]
fn the_trust_line_decides_what_is_pinned() {
    let (ledger, other) = (Ledger::told(), Ledger::new());
    let options = FolderOptions {
        trust: None,
        ..ledger.options(true)
    };
    let source = FolderSource::open(&ledger.path(), ledger.vault(), options).unwrap();
    let told = found(&source, "act_01");
    assert!(!told.check.pinned && told.check.checkpoint.is_some());
    assert_eq!(
        told.range.trust_line.as_deref(),
        Some(ledger.trust.as_str())
    );
    let wrong = FolderSource::open(&ledger.path(), ledger.vault(), other.options(true));
    assert!(matches!(wrong.err(), Some(SourceError::Violation { .. })));
    assert!(TrustLine::parse("no trust line").is_err());
}

#[test]
fn a_planned_generation_is_followed_and_said() {
    let ledger = Ledger::new();
    let writer = ledger.writer();
    let story = Ledger::story();
    append(&writer, &story[..6].iter().collect::<Vec<_>>());
    writer.rotate_log_key().unwrap();
    append(&writer, &story[6..].iter().collect::<Vec<_>>());
    writer.close().unwrap();
    let source = ledger.with_vault();
    let told = found(&source, "act_01");
    assert!(told.check.pinned && told.check.covered == told.check.frames);
    assert!(told.range.origin.unwrap().ends_with("/g1"));
}

#[test]
fn a_live_ledger_shows_what_no_checkpoint_covers_yet() {
    let ledger = Ledger::new();
    let writer = ledger.writer();
    let story = Ledger::story();
    append(&writer, &story[..6].iter().collect::<Vec<_>>());
    writer.checkpoint().unwrap();
    append(&writer, &story[6..].iter().collect::<Vec<_>>());
    let told = found(&ledger.with_vault(), "act_01");
    assert_eq!(
        told.check.frames - told.check.covered,
        story.len() as u64 - 6
    );
    assert!(
        told.lines
            .iter()
            .any(|line| line.how == How::ChainOnly && !line.pinned)
    );
    let by_proofs = found(&ledger.indexed(0).unwrap(), "act_01");
    assert_eq!(by_proofs.check.covered, told.check.covered);
    assert_eq!(by_proofs.lines.len(), told.lines.len());
    writer.close().unwrap();
}

#[test]
fn an_unfinished_write_is_no_damage_and_damage_is_none_the_less() {
    let ledger = Ledger::new();
    let writer = ledger.writer();
    let story = Ledger::story();
    append(&writer, &story[..19].iter().collect::<Vec<_>>());
    writer.checkpoint().unwrap();
    append(&writer, &[&story[19]]);
    // What a crash leaves: the last write cut short.
    let copy = ledger.dir.path().join("copy");
    copy_all(&ledger.path(), &copy);
    writer.close().unwrap();
    let (path, at, len, ..) = frames(&copy).last().unwrap().clone();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..at + len - 9]).unwrap();
    let source = FolderSource::open(&copy, ledger.vault(), ledger.options(true)).unwrap();
    assert!(
        source
            .extent()
            .remarks
            .iter()
            .any(|r| r.contains("unfinished write")),
        "{:?}",
        source.extent()
    );
    assert!(found(&source, "act_01").check.pinned);
    // Cut inside what a checkpoint covers, with whole frames behind: missing, not torn.
    let (_, at, len, ..) = frames(&copy)[8].clone();
    let cut = [&bytes[..at + len / 2], &bytes[at + len..]].concat();
    fs::write(&path, cut).unwrap();
    let damaged = FolderSource::open(&copy, ledger.vault(), ledger.options(true));
    assert!(matches!(damaged.err(), Some(SourceError::Violation { .. })));
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn no_flipped_byte_changes_an_answer_unseen() {
    let ledger = Ledger::told();
    let want = ask(&ledger.with_vault(), "act_01").unwrap().to_json();
    let next = ledger.with_vault().extent().next.0;
    let mut refused = 0;
    for path in ledger.segments() {
        let good = fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(331) {
            let by_proofs = ledger.indexed(next).unwrap();
            let open = ledger.with_vault();
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            fs::write(&path, &bad).unwrap();
            // Whoever opens it now, and whoever had it open already.
            let answers = [
                FolderSource::open(&ledger.path(), ledger.vault(), ledger.options(true))
                    .and_then(|s| ask(&s, "act_01")),
                ask(&open, "act_01"),
                ask(&by_proofs, "act_01"),
            ];
            assert!(answers[0].is_err(), "byte {at} of {}", path.display());
            for answer in answers {
                match answer {
                    Ok(answer) => assert_eq!(
                        answer.to_json().replace("audit_path", "tree"),
                        want,
                        "byte {at}"
                    ),
                    Err(_) => refused += 1,
                }
            }
            fs::write(&path, &good).unwrap();
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn index_and_tiles_say_what_a_scan_says() {
    let ledger = Ledger::told();
    let scanned = ledger.with_vault();
    let next = scanned.extent().next.0;
    let starts = ["act_01", "evt_88", "wf_7", "ses_5", "rcp_03", "nothing"];
    for covered in [0, 1, 5, 9, next - 3, next] {
        let indexed = ledger.indexed(covered).unwrap();
        assert_eq!(indexed.extent().remarks, Vec::<String>::new());
        for start in starts {
            let json = |source: &FolderSource<'_>| {
                ask(source, start)
                    .unwrap()
                    .to_json()
                    .replace("audit_path", "tree")
            };
            assert_eq!(
                json(&indexed),
                json(&scanned),
                "{start}, index to {covered}"
            );
        }
    }
    let future = ledger.indexed(next + 100).unwrap();
    assert!(future.extent().remarks[0].contains("frames that the chain does not have"));
    assert_eq!(
        found(&future, "act_01").lines.len(),
        found(&scanned, "act_01").lines.len()
    );
    // Lost tiles: the chain is read instead, and the answer says so.
    let options = FolderOptions {
        derived: Some(Derived {
            lookup: Box::new(Named::of(ledger.with_vault(), next)),
            proofs: Box::new(Tiles(Vec::new())),
        }),
        ..ledger.options(true)
    };
    let without = FolderSource::open(&ledger.path(), ledger.vault(), options).unwrap();
    assert_eq!(
        found(&without, "act_01").lines.len(),
        found(&scanned, "act_01").lines.len()
    );
    assert!(without.extent().remarks[0].contains("whole chain was read"));
    // Wrong tiles prove nothing.
    let mut leaves: Vec<Hash> = links(&ledger.path()).iter().map(leaf_hash).collect();
    leaves[6] = [7; 32];
    let options = FolderOptions {
        derived: Some(Derived {
            lookup: Box::new(Named::of(ledger.with_vault(), next)),
            proofs: Box::new(Tiles(leaves)),
        }),
        ..ledger.options(true)
    };
    let wrong =
        FolderSource::open(&ledger.path(), ledger.vault(), options).and_then(|s| ask(&s, "act_01"));
    assert!(matches!(wrong, Err(SourceError::Violation { .. })));
}

#[test]
fn every_frame_is_found_by_bisection() {
    let ledger = Ledger::new();
    let writer = ledger.writer();
    for n in 0..40 {
        let lines: Vec<String> = (0..1 + n * 3)
            .map(|i| {
                let reason = "x".repeat((i * 37) % 900);
                format!(
                    r#"{{"type":"run","record_id":"rec_{n}_{i}","run_id":"run_{n}_{i}","status":"failed","reason":"-{reason}","started_at":"2026-11-30T14:03:07Z"}}"#
                )
            })
            .collect();
        append(&writer, &lines.iter().collect::<Vec<_>>());
        if n % 16 == 9 {
            writer.rotate().unwrap();
        }
    }
    writer.close().unwrap();
    let scanned = ledger.with_vault();
    let all = frames(&ledger.path());
    let indexed = ledger.indexed(all.len() as u64).unwrap();
    assert!(all.len() > 2_000 && ledger.segments().len() > 3);
    for (seq, (.., is_record, link)) in all.iter().enumerate() {
        let seq = Seq(seq as u64);
        match indexed.frame(seq) {
            Ok(view) => {
                assert!(*is_record && view.link == *link && view.check.how == How::AuditPath);
                assert_eq!(view.envelope, scanned.frame(seq).unwrap().envelope);
            }
            Err(SourceError::NoRecord(_)) => assert!(!is_record),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(matches!(
        indexed.frame(Seq(all.len() as u64)),
        Err(SourceError::NoRecord(_) | SourceError::Violation { .. })
    ));
}

#[test]
fn the_ledgers_own_index_and_tiles_serve() {
    let ledger = Ledger::told();
    let scanned = ledger.with_vault();
    let links = links(&ledger.path());
    let dir = fs::File::open(ledger.path()).unwrap();
    let path = ledger.path();
    let folder = KeyDir::new(dir.as_fd(), &path);
    let (vault, operational) = (
        ledger.vault.recipients().unwrap(),
        ledger.operational().recipients().unwrap(),
    );
    let (key, _) = load_or_create_key(folder, &ledger.vault(), &vault, &operational).unwrap();
    let index = Index::open(&path, key, ledger.id, |_| true).unwrap();
    for seq in (0..links.len() as u64).map(Seq) {
        if let Ok(view) = scanned.frame(seq) {
            index.add(seq, &view.envelope);
        }
    }
    let covered = Covered {
        next: Seq(links.len() as u64),
        link: *links.last().unwrap(),
    };
    index.flush(covered).unwrap();
    index.settle().unwrap();
    index.close().unwrap();
    drop(index);
    let leaves: Vec<Hash> = links.iter().map(leaf_hash).collect();
    TileStore::open(&path, &Frontier::empty())
        .unwrap()
        .append(&leaves)
        .unwrap();
    for identities in [ledger.vault(), ledger.operational()] {
        let derived = Derived::of_folder(&path, &identities).unwrap();
        assert_eq!(derived.lookup.covered(), covered.next);
        let options = FolderOptions {
            derived: Some(derived),
            ..ledger.options(true)
        };
        let source = FolderSource::open(&path, ledger.vault(), options).unwrap();
        let json = |source: &FolderSource<'_>| {
            ask(source, "act_01")
                .unwrap()
                .to_json()
                .replace("audit_path", "tree")
        };
        assert_eq!(json(&source), json(&scanned));
    }
    let file = path.join("index.sqlite");
    let mut bytes = fs::read(&file).unwrap();
    bytes.truncate(2_000);
    fs::write(&file, bytes).unwrap();
    assert!(matches!(
        Derived::of_folder(&path, &ledger.vault()),
        Err(SourceError::Unusable(_))
    ));
}

#[test]
fn a_source_can_be_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<FolderSource<'static>>();
    is_shared::<Answer>();
}

#[test]
fn frames_that_are_not_synced_are_not_looked_at() {
    let ledger = Ledger::new();
    let writer = ledger.writer();
    let story = Ledger::story();
    append(&writer, &[&story[0]]);
    let synced = Seq(writer.status().frames);
    append(&writer, &[&story[1], &story[2]]);
    let all = Seq(writer.status().frames);
    let open = |synced: Seq, derived: Option<Derived<'static>>| {
        let options = FolderOptions {
            never_scan: derived.is_some(),
            derived,
            synced: Some(Box::new(move || synced)),
            ..ledger.options(true)
        };
        FolderSource::open(&ledger.path(), ledger.vault(), options)
    };
    assert_eq!(open(synced, None).unwrap().extent().next, synced);
    assert_eq!(open(all, None).unwrap().extent().next, all);
    // A write is looked at as a whole or not at all.
    let inside = open(synced.next(), None).unwrap();
    assert_eq!(inside.extent().next, synced);
    let derived = || Derived::of_folder(&ledger.path(), &ledger.vault()).unwrap();
    let some = open(synced, Some(derived())).unwrap();
    assert_eq!(some.extent().next, synced);
    assert!(matches!(some.frame(all), Err(SourceError::NoRecord(_))));
    writer.checkpoint().unwrap();
    writer.settle_derived();
    // What a checkpoint covers is synced, whatever was known a moment before.
    let covered = open(synced, Some(derived())).unwrap();
    assert!(covered.extent().next >= all);
    let options = FolderOptions {
        never_scan: true,
        ..ledger.options(true)
    };
    let refused = FolderSource::open(&ledger.path(), ledger.vault(), options);
    assert!(matches!(refused.err(), Some(SourceError::NoIndex(_))));
}
