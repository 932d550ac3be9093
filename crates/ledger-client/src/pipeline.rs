//! A pipeline: records handed in one by one, sent in groups, acknowledged one by one.
//!
//! Records gather while the groups before them are under way, so a group holds what came meanwhile
//! and nothing waits for a clock. Each record is a request of its own to the ledger: one that is
//! refused takes no other with it. For all or nothing use [`Client::append_batch`].

use crate::answer::Acknowledged;
use crate::client::{Client, content};
use crate::error::{ClientError, Problem};
use bytes::Bytes;
use hyper::Method;
use ledger_records::Submission;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};

/// Records of one group.
const GROUP_RECORDS_MAX: usize = 256;
/// Bytes of one group, about.
const GROUP_LEN_MAX: usize = 1 << 20;

/// One record on its way.
struct Item {
    record_id: String,
    line: Vec<u8>,
    done: oneshot::Sender<Result<Acknowledged, ClientError>>,
}

/// Appends records in groups. Dropping it sends what was handed in.
#[derive(Clone, Debug)]
pub struct Pipeline {
    send: mpsc::Sender<Item>,
}

/// A record handed in. Waiting for it tells what became of it; dropping it changes nothing.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Acknowledged, ClientError>>);

impl Pending {
    /// Waits until the record is on the daemon's disk.
    ///
    /// # Errors
    /// [`ClientError`], as of [`Client::append`].
    pub async fn acknowledged(self) -> Result<Acknowledged, ClientError> {
        self.0.await.unwrap_or(Err(ClientError::Closed))
    }
}

impl Pipeline {
    /// A pipeline with this many groups under way at once, at least 1. Must be called in a tokio
    /// runtime. With 1 the ledger's order is the order of [`append`](Self::append); with more,
    /// groups may overtake each other.
    #[must_use]
    pub fn new(client: &Client, under_way: usize) -> Self {
        let (send, receive) = mpsc::channel(4 * GROUP_RECORDS_MAX);
        let receive = Arc::new(Mutex::new(receive));
        for _ in 0..under_way.max(1) {
            tokio::spawn(work(client.clone(), receive.clone()));
        }
        Self { send }
    }

    /// Hands a record in; waits only while the pipeline is full.
    ///
    /// # Errors
    /// `Closed` if the runtime is going down.
    pub async fn append(&self, record: &Submission) -> Result<Pending, ClientError> {
        let (done, pending) = oneshot::channel();
        let mut line = record.to_json();
        line.push(b'\n');
        let item = Item {
            record_id: record.record().record_id().as_str().to_owned(),
            line,
            done,
        };
        self.send
            .send(item)
            .await
            .map_err(|_| ClientError::Closed)?;
        Ok(Pending(pending))
    }
}

async fn work(client: Client, receive: Arc<Mutex<mpsc::Receiver<Item>>>) {
    loop {
        let mut group = Vec::new();
        {
            let mut receive = receive.lock().await;
            let Some(first) = receive.recv().await else {
                return;
            };
            let mut len = first.line.len();
            group.push(first);
            while group.len() < GROUP_RECORDS_MAX && len < GROUP_LEN_MAX {
                let Ok(item) = receive.try_recv() else { break };
                len += item.line.len();
                group.push(item);
            }
        }
        send_group(&client, group).await;
    }
}

async fn send_group(client: &Client, group: Vec<Item>) {
    let body: Bytes = group.iter().flat_map(|i| i.line.iter().copied()).collect();
    let answer = client
        .call(
            Method::POST,
            "/v1/records",
            content("application/x-ndjson"),
            body,
        )
        .await;
    let mut lines = match &answer {
        Ok(answer) => answer.body.split(|b| *b == b'\n'),
        Err(error) => {
            for item in group {
                let _ = item.done.send(Err(error.clone()));
            }
            return;
        }
    };
    // A stream that ended early says why in its last line, which has no number.
    let mut end = None;
    for (i, item) in group.into_iter().enumerate() {
        let outcome = match &end {
            Some(error) => Err(ClientError::clone(error)),
            None => match read_line(
                lines.next().unwrap_or_default(),
                i as u64 + 1,
                &item.record_id,
            ) {
                Line::Of(outcome) => outcome,
                Line::End(error) => Err(end.insert(error).clone()),
            },
        };
        // Who handed it in may have gone; the record is in the ledger all the same.
        let _ = item.done.send(outcome);
    }
}

enum Line {
    /// What became of the record.
    Of(Result<Acknowledged, ClientError>),
    /// The stream ended before it.
    End(ClientError),
}

#[derive(Deserialize)]
struct Wire {
    line: Option<u64>,
    problem: Option<Problem>,
}

fn read_line(line: &[u8], number: u64, record_id: &str) -> Line {
    if line.is_empty() {
        // The records behind were not read, or their answer was lost.
        let why = "the answer ended before this record";
        return Line::End(ClientError::Answer(why.to_owned()));
    }
    let value: Result<Value, _> = serde_json::from_slice(line);
    let wire = value.and_then(|v| Ok((Wire::deserialize(&v)?, v)));
    match wire {
        Err(e) => Line::End(ClientError::Answer(e.to_string())),
        Ok((
            Wire {
                line: None,
                problem: Some(problem),
            },
            _,
        )) => Line::End(ClientError::Refused(Box::new(problem))),
        Ok((Wire { line: Some(n), .. }, _)) if n != number => {
            let why = format!("line {n} where {number} was due");
            Line::End(ClientError::Answer(why))
        }
        Ok((
            Wire {
                problem: Some(problem),
                ..
            },
            _,
        )) => Line::Of(Err(ClientError::Refused(Box::new(problem)))),
        Ok((_, value)) => Line::Of(Acknowledged::read(value, record_id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_their_record_or_end_the_answer() {
        let refused = br#"{"line":1,"problem":{"code":"invalid_record","status":422}}"#;
        let Line::Of(Err(ClientError::Refused(problem))) = read_line(refused, 1, "r") else {
            panic!("a refusal is the record's own")
        };
        assert_eq!(problem.code, "invalid_record");
        let end = br#"{"problem":{"code":"stopping","status":503}}"#;
        let Line::End(error) = read_line(end, 3, "r") else {
            panic!("a problem without a line ends the answer")
        };
        assert_eq!(error.code(), Some("stopping"));
        for bad in [&b""[..], b"{", br#"{"line":2}"#] {
            let Line::End(error) = read_line(bad, 1, "r") else {
                panic!("{bad:?}")
            };
            assert!(error.may_be_appended());
        }
        let empty = read_line(br#"{"line":1}"#, 1, "r");
        assert!(matches!(empty, Line::Of(Err(ClientError::Answer(_)))));
    }
}
