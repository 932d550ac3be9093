//! Wrapped keys: who opens them, what is refused, and that stock `age` is the rescue path.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ledger_vault::{
    Identities, KeyCommitment, Recipients, RetentionClass, SegmentKeys, UnwrapError,
    UnwrapKeyError, unwrap, unwrap_data_key, unwrap_envelope_keys, unwrap_payload_key, wrap,
};
use proptest::prelude::*;

#[test]
fn segment_keys_go_to_their_readers_and_no_further() {
    let class = RetentionClass::new("30d").unwrap();
    let keys = SegmentKeys::generate([class.clone()]).unwrap();
    let (vault, operational) = (Identities::generate(), Identities::generate());
    let files = keys
        .wrap(
            &vault.recipients().unwrap(),
            &operational.recipients().unwrap(),
        )
        .unwrap();
    let said = keys.commitments();

    let data = unwrap_data_key(&vault, &files.body, &said.data).unwrap();
    assert_eq!(data, keys.data);
    let payload = unwrap_payload_key(&vault, &files.payload[&class], &said.payload[&class]);
    assert_eq!(payload.unwrap(), keys.payload[&class]);
    for reader in [&vault, &operational] {
        let pair = unwrap_envelope_keys(reader, &files.envelope, &said.envelope, &said.token);
        let (envelope, token) = pair.unwrap();
        assert!(envelope == keys.envelope && token == keys.token);
    }
    assert!(matches!(
        unwrap_data_key(&operational, &files.body, &said.data),
        Err(UnwrapKeyError::Unwrap {
            source: UnwrapError::NoMatch { identities: 1 },
            ..
        })
    ));
    assert!(
        unwrap_payload_key(&operational, &files.payload[&class], &said.payload[&class]).is_err()
    );
}

#[test]
fn a_key_that_segment_open_does_not_name_is_refused() {
    let keys = SegmentKeys::generate([]).unwrap();
    let vault = Identities::generate();
    let recipients = vault.recipients().unwrap();
    let files = keys.wrap(&recipients, &recipients).unwrap();
    let said = keys.commitments();
    let none = KeyCommitment([0; 32]);
    let refused = |key: &str, error: UnwrapKeyError| match error {
        UnwrapKeyError::Commitment { key: found, .. } => assert_eq!(found, key),
        other => panic!("{other}"),
    };
    refused(
        "data key",
        unwrap_data_key(&vault, &files.body, &none).unwrap_err(),
    );
    let pair = |envelope, token| {
        unwrap_envelope_keys(&vault, &files.envelope, envelope, token).unwrap_err()
    };
    refused("envelope key", pair(&none, &said.token));
    refused("token key", pair(&said.envelope, &none));
    refused(
        "payload key",
        unwrap_payload_key(&vault, &files.body, &said.data).unwrap_err(),
    );
    assert!(matches!(
        unwrap_data_key(&vault, &files.envelope, &said.data),
        Err(UnwrapKeyError::Length {
            expected: 32,
            found: 64,
            ..
        })
    ));
}

#[test]
fn every_altered_or_cut_file_is_refused() {
    let vault = Identities::generate();
    let file = wrap(&vault.recipients().unwrap(), &[7; 32]).unwrap();
    assert_eq!(*unwrap(&vault, &file).unwrap(), [7; 32]);
    for at in 0..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 1;
        assert!(unwrap(&vault, &bad).is_err(), "byte {at}");
        assert!(unwrap(&vault, &file[..at]).is_err(), "cut at {at}");
    }
    let mut longer = file;
    longer.push(0);
    assert!(unwrap(&vault, &longer).is_err());
}

#[test]
fn sizes_are_bounded() {
    let vault = Identities::generate();
    let recipients = vault.recipients().unwrap();
    assert!(wrap(&recipients, &[0; 64]).is_ok());
    assert!(wrap(&recipients, &[0; 65]).is_err());
    assert!(matches!(
        unwrap(&vault, &vec![b'a'; 70_000]),
        Err(UnwrapError::TooLarge { .. })
    ));
    let lines = [
        b"age-encryption.org/v1\n".to_vec(),
        b"-> x\n\n".repeat(2000),
    ]
    .concat();
    assert!(matches!(
        unwrap(&vault, &lines),
        Err(UnwrapError::TooLarge { .. })
    ));
    let whole: String = (0..256)
        .map(|_| {
            Identities::generate()
                .recipients()
                .unwrap()
                .text()
                .to_owned()
        })
        .collect();
    let with_reader = format!("{}{whole}", recipients.text());
    assert!(Recipients::parse(&with_reader).is_err(), "257 recipients");
    let last_line = with_reader.trim_end().rfind('\n').unwrap();
    let most = Recipients::parse(&with_reader[..last_line]).unwrap();
    assert_eq!(most.entries().len(), 256);
    let file = wrap(&most, &[7; 64]).unwrap();
    assert_eq!(
        *unwrap(&vault, &file).unwrap(),
        [7; 64],
        "{} bytes",
        file.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_files_never_panic(
        tail in proptest::collection::vec(any::<u8>(), 0..400),
        with_magic: bool,
    ) {
        let start: &[u8] = if with_magic { b"age-encryption.org/v1\n-> X25519 " } else { b"" };
        let file = [start, &tail].concat();
        prop_assert!(unwrap(&Identities::generate(), &file).is_err());
        let _ = ledger_vault::IdentityFile::parse(&file);
    }
}

/// None, with a printed line, where the program is not installed.
fn stock(program: &str, test: &str) -> Option<Command> {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if found.is_err() {
        println!("skipped: {test}: no `{program}` on this machine");
        return None;
    }
    Some(Command::new(program))
}

fn run(mut command: Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn write(dir: &Path, name: &str, content: &[u8]) -> std::path::PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn stock_age_opens_wrapped_keys() {
    let Some(mut age) = stock("age", "stock_age_opens_wrapped_keys") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let vault = Identities::generate();
    let identity = write(
        dir.path(),
        "vault.key",
        vault.to_file_text("2026-11-30T12:00:00Z").as_bytes(),
    );
    let others = Identities::generate().recipients().unwrap();
    let both = Recipients::union([&others, &vault.recipients().unwrap()]).unwrap();
    let file = wrap(&both, &[0xa5; 32]).unwrap();
    age.arg("-d").arg("-i").arg(identity);
    assert_eq!(run(age, &file).stdout, [0xa5; 32]);
}

#[test]
fn files_of_stock_age_open_here() {
    let test = "files_of_stock_age_open_here";
    let (Some(mut age), Some(keygen)) = (stock("age", test), stock("age-keygen", test)) else {
        return;
    };
    let text = run(keygen, b"").stdout;
    let identity = Identities::open(&text, || None).unwrap();
    let recipients = identity.recipients().unwrap();
    age.arg("-r").arg(recipients.text().trim());
    let file = run(age, &[0x5a; 32]).stdout;
    assert_eq!(*unwrap(&identity, &file).unwrap(), [0x5a; 32]);
    // And the other way: an identity file written here names the public key that age-keygen derives.
    let mut keygen = Command::new("age-keygen");
    keygen.arg("-y");
    let written = identity.to_file_text("2026-11-30T12:00:00Z");
    assert_eq!(
        run(keygen, written.as_bytes()).stdout,
        recipients.text().as_bytes()
    );
}

#[test]
fn stock_age_opens_an_identity_that_is_encrypted_to_people() {
    let test = "stock_age_opens_an_identity_that_is_encrypted_to_people";
    let Some(mut age) = stock("age", test) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (reader, person) = (Identities::generate(), Identities::generate());
    let file = reader
        .to_recipients_file("2026-11-30T12:00:00Z", &person.recipients().unwrap())
        .unwrap();
    let key = write(
        dir.path(),
        "person.key",
        person.to_file_text("now").as_bytes(),
    );
    age.arg("-d").arg("-i").arg(key);
    assert_eq!(
        run(age, &file).stdout,
        reader.to_file_text("2026-11-30T12:00:00Z").as_bytes()
    );
}
