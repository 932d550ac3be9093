//! Key files on disk: format, modes, what is refused and what the refusal says.

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};

use ledger_format::{Link, Seq};
use ledger_vault::{
    AssociatedData, EpochKey, EpochKeyFile, FoundKind, Identities, KeyDir, KeyFileError, LogKey,
    RetentionClass, SegmentKeyFiles, SegmentKeys,
};
use tempfile::TempDir;

use crate::{hex_array, vectors};

/// The seed 00 01 .. 1f, for which `vectors.py` signs.
const SEED: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

struct Folder {
    temp: TempDir,
    dir: File,
}

impl Folder {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = File::open(temp.path()).unwrap();
        Self { temp, dir }
    }

    fn keys(&self) -> KeyDir<'_> {
        KeyDir::new(self.dir.as_fd(), self.temp.path())
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) {
        let path = self.temp.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.temp.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn signing_keys_sign_as_the_reference_does() {
    let folder = Folder::new();
    folder.put("log.key", format!("ledger-log-key v1 {SEED}\n"), 0o600);
    folder.put("epoch.key", format!("ledger-epoch-key v1 {SEED}\n"), 0o600);
    let log_key = LogKey::read(folder.keys()).unwrap();
    let epoch_key = EpochKey::read(folder.keys(), EpochKeyFile::Current).unwrap();
    assert_eq!(log_key.public(), hex_array(vectors::PUBLIC_KEY));
    assert_eq!(
        log_key.sign(b"checkpoint text"),
        hex_array(vectors::MESSAGE_SIGNATURE)
    );
    let mut associated = AssociatedData::new();
    associated.set(&Link([9; 32]), b"frame prefix");
    assert_eq!(
        log_key.sign_genesis(&associated),
        hex_array(vectors::GENESIS_SIGNATURE)
    );
    assert_eq!(
        epoch_key.sign_segment_open(&associated),
        hex_array(vectors::OPEN_SIGNATURE)
    );
    assert_eq!(
        format!("{log_key:?}{epoch_key:?}"),
        "LogKey(secret)EpochKey(secret)"
    );
}

#[test]
fn written_keys_are_private_read_back_and_never_overwritten() {
    let folder = Folder::new();
    let key = LogKey::generate().unwrap();
    key.create(folder.keys()).unwrap();
    let mode = fs::metadata(folder.temp.path().join("log.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(LogKey::read(folder.keys()).unwrap().public(), key.public());

    let other = LogKey::generate().unwrap();
    assert!(matches!(
        other.create(folder.keys()),
        Err(KeyFileError::Exists { .. })
    ));
    assert_eq!(LogKey::read(folder.keys()).unwrap().public(), key.public());
    assert!(matches!(
        LogKey::read_next(folder.keys()),
        Err(KeyFileError::Missing { .. })
    ));
    other.create_next(folder.keys()).unwrap();
    assert!(key.create_next(folder.keys()).is_err());
    let next = LogKey::read_next(folder.keys()).unwrap();
    assert_eq!(next.public(), other.public());
    LogKey::promote_next(folder.keys()).unwrap();
    assert_eq!(
        LogKey::read(folder.keys()).unwrap().public(),
        other.public()
    );
    key.create_next(folder.keys()).unwrap();
    LogKey::discard_next(folder.keys()).unwrap();
    LogKey::discard_next(folder.keys()).unwrap();
    assert_eq!(folder.names(), ["log.key"]);
}

#[test]
fn epoch_rotation() {
    let folder = Folder::new();
    let read = |file| EpochKey::read(folder.keys(), file).map(|key| key.public());
    let (old, new) = (EpochKey::generate().unwrap(), EpochKey::generate().unwrap());
    old.create(folder.keys(), EpochKeyFile::Current).unwrap();
    new.create(folder.keys(), EpochKeyFile::Next).unwrap();
    assert_eq!(read(EpochKeyFile::Current).unwrap(), old.public());
    EpochKey::promote_next(folder.keys()).unwrap();
    assert_eq!(read(EpochKeyFile::Current).unwrap(), new.public());
    assert!(matches!(
        read(EpochKeyFile::Next),
        Err(KeyFileError::Missing { .. })
    ));
    assert!(EpochKey::promote_next(folder.keys()).is_err());
    EpochKey::discard_next(folder.keys()).unwrap();
    assert_eq!(folder.names(), ["epoch.key"]);
}

#[test]
fn what_is_not_a_private_regular_key_file_is_refused() {
    let folder = Folder::new();
    let path = folder.temp.path().join("log.key");
    let good = format!("ledger-log-key v1 {SEED}\n");
    let read = || LogKey::read(folder.keys()).map(|_| ()).unwrap_err();

    assert!(matches!(read(), KeyFileError::Missing { .. }));
    for mode in [0o640, 0o604, 0o660, 0o602, 0o644, 0o610] {
        folder.put("log.key", &good, mode);
        let error = read();
        assert!(matches!(error, KeyFileError::OpenToOthers { mode: found, .. } if found == mode));
        assert!(error.to_string().contains(&format!("found {mode:04o}")));
    }
    folder.put("log.key", vec![b'x'; 4097], 0o600);
    assert!(matches!(
        read(),
        KeyFileError::TooLong {
            found: 4097,
            max: 4096,
            ..
        }
    ));
    folder.put("log.key", format!("ledger-epoch-key v1 {SEED}\n"), 0o600);
    assert!(matches!(read(), KeyFileError::Malformed { .. }));

    fs::remove_file(&path).unwrap();
    folder.put("elsewhere", &good, 0o600);
    symlink("elsewhere", &path).unwrap();
    let kind = |error| match error {
        KeyFileError::NotRegular { found, .. } => found,
        other => panic!("{other}"),
    };
    assert_eq!(kind(read()), FoundKind::SymbolicLink);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(kind(read()), FoundKind::Folder);
    fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(
        &folder.dir,
        "log.key",
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(kind(read()), FoundKind::Special, "and opening did not hang");
}

#[test]
fn a_refusal_names_the_file_and_not_the_key() {
    let folder = Folder::new();
    folder.put("log.key", format!("ledger-log-key v1 {SEED}"), 0o600);
    let error = LogKey::read(folder.keys()).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains(folder.temp.path().join("log.key").to_str().unwrap()));
    assert!(!text.contains("AAECAw"), "{text}");
}

#[test]
fn creation_does_not_follow_links_and_names_stay_in_the_folder() {
    let folder = Folder::new();
    symlink("target", folder.temp.path().join("log.key")).unwrap();
    assert!(LogKey::generate().unwrap().create(folder.keys()).is_err());
    assert!(!folder.temp.path().join("target").exists());
    for name in ["../out", "a/b", "", ".", "..", "a\0b"] {
        assert!(folder.keys().create(name, b"x").is_err(), "{name:?}");
        assert!(folder.keys().read_private(name, 10).is_err(), "{name:?}");
    }
}

#[test]
fn segment_key_files_replace_leftovers() {
    let folder = Folder::new();
    let class = RetentionClass::new("30d").unwrap();
    let keys = SegmentKeys::generate([class.clone()]).unwrap();
    let reader = Identities::generate().recipients().unwrap();
    folder.put("00000000000000000004.body.age", "leftover", 0o644);
    folder.put("00000000000000000004.30d.age.new", "leftover", 0o644);
    let files = keys.wrap(&reader, &reader).unwrap();
    files.write(folder.keys(), Seq(4)).unwrap();
    assert_eq!(
        folder.names(),
        [
            "00000000000000000004.30d.age",
            "00000000000000000004.body.age",
            "00000000000000000004.envelope.age"
        ]
    );
    let stored = folder
        .keys()
        .read_private(&SegmentKeyFiles::payload_name(Seq(4), &class), 4096)
        .unwrap();
    assert_eq!(*stored, files.payload[&class]);
}

#[test]
fn operational_identities_are_read_from_a_private_file_only() {
    let folder = Folder::new();
    let identities = Identities::generate()
        .with_newest(Identities::generate())
        .unwrap();
    let text = identities.to_file_text("2026-11-30T12:00:00Z");
    folder
        .keys()
        .create("operational.key", text.as_bytes())
        .unwrap();
    let read = Identities::read(folder.keys(), "operational.key").unwrap();
    assert_eq!(
        read.recipients().unwrap().text(),
        identities.recipients().unwrap().text()
    );
    folder.put("operational.key", text.as_bytes(), 0o640);
    assert!(matches!(
        Identities::read(folder.keys(), "operational.key"),
        Err(KeyFileError::OpenToOthers { .. })
    ));
    folder.put("operational.key", "rubbish", 0o600);
    assert!(matches!(
        Identities::read(folder.keys(), "operational.key"),
        Err(KeyFileError::Malformed { .. })
    ));
}
