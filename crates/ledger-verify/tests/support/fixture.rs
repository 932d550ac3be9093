//! The text header and blocks of a fixture (`fixtures/README.md`).

#[derive(Default)]
pub struct Fixture {
    pub expect: String,
    pub exit: u8,
    pub findings: Vec<String>,
    pub trust: Option<String>,
    pub checkpoints: Vec<Vec<u8>>,
    pub receipts: Option<Vec<u8>>,
    pub files: Vec<(String, Vec<u8>)>,
    pub payloads: Vec<(String, Vec<u8>)>,
    /// Payload files are to be checked.
    pub read_payloads: bool,
    pub counts: Option<String>,
}

pub fn parse(bytes: &[u8]) -> Fixture {
    let split = bytes
        .windows(2)
        .position(|w| w == b"\n\n")
        .expect("a header and an empty line");
    let header = std::str::from_utf8(&bytes[..split]).expect("a text header");
    let mut rest = &bytes[split + 2..];
    let mut block = |len: &str| {
        let (part, tail) = rest.split_at(len.trim().parse().expect("a length"));
        rest = tail;
        part.to_vec()
    };
    let mut lines = header.lines();
    assert_eq!(lines.next(), Some("ledger-fixture v1"));
    let mut f = Fixture::default();
    for line in lines {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        match key {
            "expect" => f.expect = value.to_owned(),
            "exit" => f.exit = value.parse().expect("an exit code"),
            "finding" => f.findings.push(value.to_owned()),
            "trust" => f.trust = Some(value.to_owned()),
            "checkpoint" => f.checkpoints.push(block(value)),
            "receipts" => f.receipts = Some(block(value)),
            "file" | "payload" => {
                let (name, len) = value.rsplit_once(' ').expect("name and length");
                let file = (name.to_owned(), block(len));
                if key == "file" {
                    f.files.push(file);
                } else {
                    f.payloads.push(file);
                }
            }
            "option" => {
                assert_eq!(value, "payloads", "unknown option");
                f.read_payloads = true;
            }
            "counts" => f.counts = Some(value.to_owned()),
            "comment" | "keys" => {}
            other => panic!("unknown header line {other}"),
        }
    }
    assert!(rest.is_empty(), "bytes behind the blocks");
    f
}
