//! The client: one call, its tries, its time.
//!
//! A try that ended without an answer is repeated with the same bytes, for the ledger appends a
//! record id once; a refusal is never repeated, unless the daemon says that it is only busy.

use crate::answer::Appended;
use crate::error::{ClientError, Problem};
use crate::transport::{Answer, Transport, TryError};
use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue};
use ledger_records::Submission;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Records that one batch may hold, as the daemon's default has it.
pub const BATCH_RECORDS_MAX: usize = 1000;

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time for one try, from connecting to the whole answer.
    pub try_time: Duration,
    /// Time for a call, all tries and pauses together.
    pub call_time: Duration,
    /// Pause before the second try; doubled for each further one, up to a second.
    pub pause: Duration,
    /// Idle connections that are kept.
    pub connections: usize,
    /// How long an idle connection is kept; shorter than the daemon's own limit.
    pub idle_time: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            try_time: Duration::from_secs(10),
            call_time: Duration::from_secs(30),
            pause: Duration::from_millis(20),
            connections: 16,
            idle_time: Duration::from_secs(60),
        }
    }
}

/// What an answer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Wait {
    /// The sync that makes the records durable.
    #[default]
    Sync,
    /// That, and a checkpoint over them.
    Checkpoint,
}

/// What a trace is narrowed to, and held against.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceOptions {
    /// Only identifiers of this kind, such as `action_id`.
    pub kind: Option<String>,
    /// Only identifiers within this scope: a provider, a system.
    pub scope: Option<String>,
    /// The trust line that the daemon is to hold its checkpoints against.
    pub trust: Option<String>,
}

impl TraceOptions {
    fn query(&self) -> String {
        let given = [
            ("kind", &self.kind),
            ("scope", &self.scope),
            ("trust", &self.trust),
        ];
        let pairs: Vec<String> = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .map(|(name, value)| format!("{name}={}", percent_encoded(value)))
            .collect();
        if pairs.is_empty() {
            String::new()
        } else {
            format!("?{}", pairs.join("&"))
        }
    }
}

/// A client of one daemon. Cloning shares its connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    settings: Settings,
}

impl Client {
    /// A client of the daemon behind this socket. Connects when first used.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self::with_settings(socket, Settings::default())
    }

    /// A client with settings of its own.
    #[must_use]
    pub fn with_settings(socket: &Path, settings: Settings) -> Self {
        let transport = Transport::new(socket, settings.connections, settings.idle_time);
        Self {
            transport,
            settings,
        }
    }

    /// Appends one record. Returns once it is on the daemon's disk.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::may_be_appended`] says what it means for the record.
    pub async fn append(&self, record: &Submission) -> Result<crate::Acknowledged, ClientError> {
        let appended = self
            .append_batch(std::slice::from_ref(record), Wait::Sync)
            .await?;
        let first = appended.records.into_iter().next();
        first.ok_or_else(|| ClientError::Answer("no acknowledgement".to_owned()))
    }

    /// Appends records as one batch: all of them, contiguous and in order, or none.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::may_be_appended`] says what it means for the records.
    pub async fn append_batch(
        &self,
        records: &[Submission],
        wait: Wait,
    ) -> Result<Appended, ClientError> {
        let (found, max) = (records.len(), BATCH_RECORDS_MAX);
        if found == 0 || found > max {
            return Err(ClientError::BatchSize { found, max });
        }
        let ids: Vec<String> = records
            .iter()
            .map(|r| r.record().record_id().as_str().to_owned())
            .collect();
        let mut headers = content("application/cbor");
        if wait == Wait::Checkpoint {
            headers.insert("prefer", HeaderValue::from_static("wait=checkpoint"));
        }
        let answer = self
            .call(Method::POST, "/v1/records", headers, cbor_batch(records))
            .await?;
        Appended::read(&answer.body, &ids)
    }

    /// The newest checkpoint, a signed note.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn checkpoint(&self) -> Result<String, ClientError> {
        self.text(Method::GET, "/v1/checkpoint").await
    }

    /// Cuts a checkpoint over everything that is in the ledger now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cut_checkpoint(&self) -> Result<String, ClientError> {
        self.text(Method::POST, "/v1/checkpoint").await
    }

    /// The daemon's status, as documented.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&self) -> Result<Value, ClientError> {
        self.json("/v1/status").await
    }

    /// One frame, as far as the daemon shows it.
    ///
    /// # Errors
    /// [`ClientError`]; code `record_not_found`.
    pub async fn record(&self, seq: ledger_format::Seq) -> Result<Value, ClientError> {
        self.json(&format!("/v1/records/{seq}")).await
    }

    /// The story behind an identifier.
    ///
    /// # Errors
    /// [`ClientError`]; code `identifier_not_found`.
    pub async fn trace(&self, identifier: &str) -> Result<Value, ClientError> {
        self.trace_with(identifier, &TraceOptions::default()).await
    }

    /// The same, narrowed.
    ///
    /// # Errors
    /// [`ClientError`]; code `identifier_not_found`, whose member `trace` says what was searched.
    pub async fn trace_with(
        &self,
        identifier: &str,
        options: &TraceOptions,
    ) -> Result<Value, ClientError> {
        let (value, query) = (percent_encoded(identifier), options.query());
        self.json(&format!("/v1/trace/{value}{query}")).await
    }

    /// The story behind any identifier in a text, of at most 1 MiB.
    ///
    /// # Errors
    /// [`ClientError`], as of [`Client::trace_with`].
    pub async fn trace_text(
        &self,
        text: &str,
        options: &TraceOptions,
    ) -> Result<Value, ClientError> {
        let path = format!("/v1/trace{}", options.query());
        let body = Bytes::copy_from_slice(text.as_bytes());
        let answer = self
            .call(Method::POST, &path, content("text/plain"), body)
            .await?;
        serde_json::from_slice(&answer.body).map_err(|e| ClientError::Answer(e.to_string()))
    }

    /// Whether the daemon answers and takes appends.
    ///
    /// # Errors
    /// [`ClientError`]: it is not reached, or refuses appends.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.json("/readyz").await.map(drop)
    }

    async fn text(&self, method: Method, path: &str) -> Result<String, ClientError> {
        let answer = self
            .call(method, path, HeaderMap::new(), Bytes::new())
            .await?;
        String::from_utf8(answer.body.to_vec()).map_err(|e| ClientError::Answer(e.to_string()))
    }

    async fn json(&self, path: &str) -> Result<Value, ClientError> {
        let answer = self
            .call(Method::GET, path, HeaderMap::new(), Bytes::new())
            .await?;
        serde_json::from_slice(&answer.body).map_err(|e| ClientError::Answer(e.to_string()))
    }

    /// One call with its tries. Whatever is sent may be sent twice: every path here is idempotent.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let end = Instant::now() + self.settings.call_time;
        let (mut pause, mut maybe_sent, mut tries) = (self.settings.pause, false, 0);
        loop {
            tries += 1;
            let try_end = end.min(Instant::now() + self.settings.try_time);
            let sending = self
                .transport
                .send(method.clone(), path, headers.clone(), body.clone());
            let last = match timeout_at(try_end, sending).await {
                Ok(Ok(answer)) if answer.status.is_success() => return Ok(answer),
                Ok(Ok(answer)) => match problem(&answer)? {
                    // A refusal after a try without an answer does not tell what became of that one.
                    problem if problem.is_transient() => problem.to_string(),
                    problem => return Err(ClientError::Refused(Box::new(problem))),
                },
                Ok(Err(TryError {
                    maybe_sent: sent,
                    why,
                })) => {
                    maybe_sent |= sent;
                    why
                }
                Err(_) => {
                    maybe_sent = true;
                    "the time was over".to_owned()
                }
            };
            if Instant::now() + pause >= end {
                return Err(if maybe_sent {
                    ClientError::Unanswered { tries, last }
                } else {
                    ClientError::NotReached { tries, last }
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

fn problem(answer: &Answer) -> Result<Problem, ClientError> {
    serde_json::from_slice(&answer.body)
        .map_err(|_| ClientError::Answer(format!("status {} without a problem", answer.status)))
}

pub(crate) fn content(media_type: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(media_type));
    headers
}

/// An array of submissions in CBOR.
fn cbor_batch(records: &[Submission]) -> Bytes {
    let items: Vec<Vec<u8>> = records.iter().map(Submission::to_cbor).collect();
    let mut body = Vec::with_capacity(5 + items.iter().map(Vec::len).sum::<usize>());
    // Core deterministic heads of arrays (RFC 8949, 4.2.1); a batch never has more than 65,535.
    match u8::try_from(items.len()) {
        Ok(n @ 0..=23) => body.push(0x80 | n),
        Ok(n) => body.extend([0x98, n]),
        Err(_) => {
            body.push(0x99);
            let n = u16::try_from(items.len()).unwrap_or(u16::MAX);
            body.extend(n.to_be_bytes());
        }
    }
    items.iter().for_each(|item| body.extend_from_slice(item));
    body.into()
}

/// A value as one segment of a path.
fn percent_encoded(value: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            out.push(byte.into());
        } else {
            // A String takes every write. Dots too: `.` and `..` would be steps in the path.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments() {
        assert_eq!(percent_encoded("act_01-x~"), "act_01-x~");
        assert_eq!(percent_encoded("a/b c.."), "a%2Fb%20c%2E%2E");
    }

    #[test]
    fn queries_of_traces() {
        assert_eq!(TraceOptions::default().query(), "");
        let options = TraceOptions {
            kind: Some("action_id".into()),
            trust: Some("a/b+12+x=".into()),
            ..TraceOptions::default()
        };
        assert_eq!(options.query(), "?kind=action_id&trust=a%2Fb%2B12%2Bx%3D");
    }

    #[test]
    fn heads_of_batches() {
        let record = br#"{"type":"run","record_id":"r","run_id":"u","initiator":"i","status":"started","started_at":"2026-11-30T14:02:41Z"}"#;
        let one = Submission::from_json(record).unwrap();
        for (n, head) in [
            (1, &[0x81][..]),
            (23, &[0x97]),
            (24, &[0x98, 24]),
            (300, &[0x99, 1, 44]),
        ] {
            let body = cbor_batch(&vec![one.clone(); n]);
            assert_eq!(body[..head.len()], *head, "{n}");
        }
    }
}
