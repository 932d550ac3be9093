//! What opening refuses, and by which rule: the reason decides what a person does next.

use std::fs;
use std::path::Path;

use ledger_records::Submission;
use ledger_vault::{Identities, RetentionClass};
use ledger_writer::{
    Config, GenerationReason, InitOptions, OpenError, OpenMode, Opened, Writer, init,
};

fn open(dir: &Path, ledger: &str, mode: OpenMode) -> Result<(Writer, Opened), OpenError> {
    Writer::open(
        &dir.join(ledger),
        &dir.join("state"),
        Config::default(),
        mode,
    )
}

fn append(dir: &Path, ledger: &str, id: &str) {
    let line = format!(
        r#"{{"type":"remote_ref","record_id":"{id}","action_id":"act_1","provider":"p","remote_operation_id":"op_1","observed_at":"2026-11-30T14:03:07Z"}}"#
    );
    let (writer, _) = open(dir, ledger, OpenMode::Normal).unwrap();
    let record = writer
        .prepare(Submission::from_json(line.as_bytes()).unwrap(), None)
        .unwrap();
    writer.append(vec![record]).unwrap();
    writer.close().unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// An old copy ends in a close that names an old epoch key: the floor has to speak first, and the
/// way past a lost key must not become a way past the floor.
#[test]
fn an_old_copy_is_a_roll_back_and_no_lost_key() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let options = InitOptions {
        name: "audit.example.com/opening".into(),
        vault_recipients: Identities::generate().recipients().unwrap(),
        payload_classes: RetentionClass::new("30d").into_iter().collect(),
    };
    init(&dir.join("audit"), &dir.join("state"), &options).unwrap();
    append(dir, "audit", "rec_1");
    copy(&dir.join("audit"), &dir.join("old"));
    append(dir, "audit", "rec_2");

    let lost = OpenMode::NewGeneration(GenerationReason::LostEpochKey);
    for mode in [OpenMode::Normal, lost] {
        let refused = open(dir, "old", mode).unwrap_err();
        assert!(
            matches!(refused, OpenError::BelowFloor { floor, found } if floor > found),
            "{refused}"
        );
    }
    // Nothing was changed by that: the newer copy still opens.
    append(dir, "audit", "rec_3");

    let accepted = OpenMode::NewGeneration(GenerationReason::RollBack);
    let (writer, opened) = open(dir, "old", accepted).unwrap();
    assert!(opened.new_generation.is_some());
    writer.close().unwrap();
}

/// A kill between the creation of a coming key's file and its content leaves a file that is no key.
#[test]
fn a_key_file_that_was_never_finished_is_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let options = InitOptions {
        name: "audit.example.com/opening".into(),
        vault_recipients: Identities::generate().recipients().unwrap(),
        payload_classes: RetentionClass::new("30d").into_iter().collect(),
    };
    let made = init(&dir.join("audit"), &dir.join("state"), &options).unwrap();
    append(dir, "audit", "rec_1");
    for (name, content) in [
        ("epoch.next", ""),
        ("log.next", ""),
        ("epoch.next", "ledger-epoch-key v1 AAAA"),
    ] {
        let unfinished = made.state_dir.join(name);
        fs::write(&unfinished, content).unwrap();
        fs::set_permissions(
            &unfinished,
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .unwrap();
        append(dir, "audit", "rec_2");
        assert!(!unfinished.exists(), "{name} {content:?}");
    }
}
