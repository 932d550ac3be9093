//! The program `crash-writer` as a child: what it acknowledged, step by step, until it ended.

use crate::ledger::TestLedger;
use ledger_format::AppendReceipt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a child said before it ended.
#[derive(Clone, Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// Acknowledged records: digest of the record, receipt.
    pub acknowledged: Vec<(String, AppendReceipt)>,
    /// Records that were acknowledged as having been there before.
    pub again: Vec<AppendReceipt>,
    /// Whether it said that it had opened the ledger.
    pub opened: bool,
    /// Steps that succeeded.
    pub done: Vec<String>,
    /// Steps that failed, with the error.
    pub failed: Vec<(String, String)>,
    /// Trust lines of planned generations.
    pub trust_lines: Vec<String>,
}

impl Said {
    /// Receipts only.
    #[must_use]
    pub fn receipts(&self) -> Vec<AppendReceipt> {
        self.acknowledged.iter().map(|(_, r)| r.clone()).collect()
    }
}

/// A running child.
#[derive(Debug)]
pub struct Running {
    child: Child,
    reader: JoinHandle<String>,
    opened: Receiver<()>,
}

/// Starts `command`, which ends in the arguments of `crash-writer`.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn start(mut command: Command) -> Running {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the child starts");
    let pipe = child.stdout.take().expect("piped");
    let (tell, opened) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let mut pipe = BufReader::new(pipe);
        while pipe.read_line(&mut text).expect("the pipe") > 0 {
            // Nobody listens unless the kill waits for it.
            let _ = tell.send(());
        }
        text
    });
    Running {
        child,
        reader,
        opened,
    }
}

impl Running {
    /// Sends SIGKILL after a while; waits for the end.
    ///
    /// # Panics
    /// The child cannot be waited for.
    #[must_use]
    pub fn kill_after(mut self, while_: Duration) -> Said {
        std::thread::sleep(while_);
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait()
    }

    /// Waits until it says something: that it opened the ledger, or that it did not.
    #[must_use]
    pub fn heard(self) -> Self {
        // It may have ended without a word.
        let _ = self.opened.recv_timeout(Duration::from_secs(60));
        self
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// The child cannot be waited for, or says something that is not understood.
    #[must_use]
    pub fn wait(mut self) -> Said {
        let status = self.child.wait().expect("the child ends");
        let text = self.reader.join().expect("the reader");
        let mut said = Said {
            status,
            acknowledged: Vec::new(),
            again: Vec::new(),
            opened: false,
            done: Vec::new(),
            failed: Vec::new(),
            trust_lines: Vec::new(),
        };
        // A line without its end was cut by the kill: what it says was not heard.
        for line in text
            .split_inclusive('\n')
            .filter_map(|l| l.strip_suffix('\n'))
        {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "ack" => {
                    let (digest, receipt) = rest.split_once(' ').expect("digest and receipt");
                    said.acknowledged.push((
                        digest.to_owned(),
                        AppendReceipt::parse(receipt).expect("a receipt"),
                    ));
                }
                "again" => said
                    .again
                    .push(AppendReceipt::parse(rest).expect("a receipt")),
                "opened" => said.opened = true,
                "done" => said.done.push(rest.to_owned()),
                "trust" => said.trust_lines.push(rest.to_owned()),
                "failed" => {
                    let (step, error) = rest.split_once(' ').expect("step and error");
                    said.failed.push((step.to_owned(), error.to_owned()));
                }
                _ => panic!("not understood: {line}"),
            }
        }
        said
    }
}

/// `crash-writer` on a ledger: `program` is its path, `args` what follows the folders.
#[must_use]
pub fn command(program: &str, test: &TestLedger, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    arguments(&mut command, test, args);
    command
}

fn arguments(command: &mut Command, test: &TestLedger, args: &[&str]) {
    command.arg(test.ledger()).arg(test.state()).args(args);
}

/// The same under strace, which injects `injection` (as its `-e inject=`).
#[must_use]
pub fn traced(injection: &str, program: &str, test: &TestLedger, args: &[&str]) -> Command {
    traced_to(Path::new("/dev/null"), injection, program, test, args)
}

/// The same; strace writes to `log` what it saw and did.
#[must_use]
pub fn traced_to(
    log: &Path,
    injection: &str,
    program: &str,
    test: &TestLedger,
    args: &[&str],
) -> Command {
    let syscall = injection.split(':').next().unwrap_or_default();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log);
    command
        .arg("-e")
        .arg(format!("trace={syscall}"))
        .arg("-e")
        .arg(format!("inject={injection}"))
        .arg(program);
    arguments(&mut command, test, args);
    command
}
