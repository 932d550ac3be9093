//! Go's `sumdb/note` and `sumdb/tlog`, the field's reference, accept our checkpoints and proofs.

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use ledger_format::{Checkpoint, Link, Seq, TlogProof, verify_consistency, verify_inclusion};
use ledger_tests::chain::links;
use ledger_tests::ledger::append;
use ledger_tests::record::{Shape, hex};
use ledger_tests::tools::has;
use ledger_tests::{TestLedger, skip, stored_frames};
use serde_json::{Value, json};
use sha2::Sha256;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Debian's copy of the Go module library, for machines that reach no proxy.
const DEBIAN: &str = "/usr/share/gocode";

/// Builds the Go program; `None` without Go or without its module library.
fn go_program(into: &Path) -> Option<PathBuf> {
    if !has("go") {
        return None;
    }
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/go"));
    let program = into.join("sumdb-check");
    let work = into.join("src");
    fs::create_dir_all(&work).expect("a folder");
    for name in ["main.go", "go.mod"] {
        fs::copy(source.join(name), work.join(name)).expect("copied");
    }
    let build = |settings: &[(&str, &str)]| {
        let mut go = Command::new("go");
        go.args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(&work)
            .envs(settings.iter().copied());
        let built = go.stdin(Stdio::null()).output().expect("go starts");
        if !built.status.success() {
            eprintln!(
                "go build {settings:?}: {}",
                String::from_utf8_lossy(&built.stderr)
            );
        }
        built.status.success()
    };
    let from_debian = Path::new(DEBIAN)
        .join("src/golang.org/x/mod/sumdb/tlog")
        .exists()
        && build(&[("GO111MODULE", "off"), ("GOPATH", DEBIAN)]);
    (from_debian || build(&[("GOFLAGS", "-mod=mod")])).then_some(program)
}

fn check(program: &Path, input: &Value) -> Output {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the Go program starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.to_string().as_bytes())
        .expect("the pipe");
    child.wait_with_output().expect("ends")
}

struct Tree(MemoryBackedTree<Sha256, [u8; 32]>);

impl Tree {
    fn over(links: &[Link]) -> Self {
        let mut tree = MemoryBackedTree::new();
        links.iter().for_each(|l| tree.push(l.0));
        Self(tree)
    }

    fn inclusion(&self, index: usize) -> Vec<[u8; 32]> {
        self.0
            .prove_inclusion(index)
            .as_bytes()
            .chunks(32)
            .map(|c| c.try_into().expect("32"))
            .collect()
    }

    fn consistency(&self, added: usize) -> Vec<[u8; 32]> {
        self.0
            .prove_consistency(added)
            .as_bytes()
            .chunks(32)
            .map(|c| c.try_into().expect("32"))
            .collect()
    }
}

/// Checkpoint notes of a ledger, and a proof file for each frame under the newest.
struct Material {
    trust: String,
    old: String,
    new: String,
    records: Vec<(usize, Link, Vec<[u8; 32]>)>,
    consistency: Vec<[u8; 32]>,
}

fn material() -> Material {
    let test = TestLedger::new();
    test.append("a", 5, Shape::Small);
    let old = fs::read_to_string(test.ledger().join("checkpoint")).expect("a checkpoint");
    let writer = test.open();
    append(&writer, "b", 9, Shape::Small);
    let new = writer.checkpoint().expect("a checkpoint");
    writer.close().expect("closes");
    let all = links(&stored_frames(&test.ledger()));
    let size = |note: &str| {
        usize::try_from(Checkpoint::parse(note.as_bytes()).expect("a note").size).expect("small")
    };
    let (old_size, new_size) = (size(&old), size(&new));
    let tree = Tree::over(&all[..new_size]);
    let records = (0..new_size)
        .map(|i| (i, all[i], tree.inclusion(i)))
        .collect();
    let consistency = tree.consistency(new_size - old_size);
    Material {
        trust: test.made.trust_line.clone(),
        old,
        new,
        records,
        consistency,
    }
}

impl Material {
    /// What the Go program reads; proofs go through their file format.
    fn json(&self) -> Value {
        let records: Vec<Value> = self
            .records
            .iter()
            .map(|(i, link, path)| {
                let proof = TlogProof {
                    index: Seq(*i as u64),
                    path: path.clone(),
                    checkpoint: self.new.clone(),
                }
                .to_text();
                json!({"link": hex(&link.0), "proof": proof})
            })
            .collect();
        let tree: Vec<String> = self.consistency.iter().map(|h| hex(h)).collect();
        json!({"trust": self.trust, "old": self.old, "new": self.new, "records": records, "tree": tree})
    }
}

#[test]
fn our_own_checks_accept_the_material() {
    let m = material();
    let (old, new) = (
        Checkpoint::parse(m.old.as_bytes()).expect("a note"),
        Checkpoint::parse(m.new.as_bytes()).expect("a note"),
    );
    for (i, link, path) in &m.records {
        assert_eq!(
            verify_inclusion(Seq(*i as u64), link, path, new.size, &new.root),
            Ok(())
        );
    }
    assert_eq!(
        verify_consistency(old.size, &old.root, new.size, &new.root, &m.consistency),
        Ok(())
    );
}

#[test]
fn go_accepts_checkpoints_and_proofs_and_refuses_altered_ones() {
    let name = "go_accepts_checkpoints_and_proofs_and_refuses_altered_ones";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(program) = go_program(folder.path()) else {
        return skip(name, "Go or its module library is not there");
    };
    let m = material();
    let good = m.json();
    let output = check(&program, &good);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), format!("ok {} records", m.records.len()));

    // Go refuses each of these, so that its acceptance means something.
    type Alteration = (&'static str, fn(&mut Value));
    let alterations: [Alteration; 5] = [
        ("a link", |v| {
            v["records"][3]["link"] = json!("00".repeat(32))
        }),
        ("a consistency proof", |v| {
            v["tree"][0] = json!("11".repeat(32))
        }),
        ("the old checkpoint", |v| {
            v["old"] = json!(
                v["old"]
                    .as_str()
                    .expect("text")
                    .replacen("\n11\n", "\n10\n", 1)
            )
        }),
        ("the signature", |v| {
            let note = v["new"].as_str().expect("text");
            let (text, signatures) = note.split_once("\n\n").expect("a note");
            let other = v["old"]
                .as_str()
                .expect("text")
                .split_once("\n\n")
                .expect("a note")
                .1;
            assert_ne!(signatures, other);
            v["new"] = json!(format!("{text}\n\n{other}"));
        }),
        ("the trust line", |v| {
            v["trust"] = json!(TestLedger::new().made.trust_line)
        }),
    ];
    for (what, alter) in alterations {
        let mut bad = good.clone();
        alter(&mut bad);
        assert_ne!(bad, good, "{what}");
        assert!(
            !check(&program, &bad).status.success(),
            "Go accepts another {what}"
        );
    }
}
