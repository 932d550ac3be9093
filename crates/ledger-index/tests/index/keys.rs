//! `index.age`: kept, made, replaced.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use ledger_index::{INDEX_KEY_FILE, IndexKeyError, IndexKeyFound, load_key, load_or_create_key};
use ledger_vault::KeyDir;

use crate::support::Keys;

#[test]
fn a_key_is_kept_and_one_that_does_not_open_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let held = File::open(folder.path()).unwrap();
    let dir = KeyDir::new(held.as_fd(), folder.path());
    let (operational, vault, stranger) = (Keys::new(), Keys::new(), Keys::new());
    let file = folder.path().join(INDEX_KEY_FILE);
    let load = || {
        load_or_create_key(
            dir,
            operational.identities(),
            &vault.recipients(),
            &operational.recipients(),
        )
        .unwrap()
    };

    assert!(matches!(
        load_key(dir, vault.identities()),
        Err(IndexKeyError::File(_))
    ));
    let (key, found) = load();
    assert!(matches!(found, IndexKeyFound::New));
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let (again, found) = load();
    assert!(matches!(found, IndexKeyFound::Kept));
    assert_eq!(key, again);
    assert_eq!(load_key(dir, vault.identities()).unwrap(), key);
    assert!(matches!(
        load_key(dir, stranger.identities()),
        Err(IndexKeyError::Unwrap(_))
    ));

    fs::write(&file, b"age-encryption.org/v1\n").unwrap();
    let (other, found) = load();
    assert!(matches!(found, IndexKeyFound::Replaced(_)));
    assert_ne!(key, other);
    assert_eq!(load_key(dir, vault.identities()).unwrap(), other);
}
