//! `POST /v1/records` with `application/x-ndjson`: each line is a request of its own, acknowledged
//! by one line of the answer, in order.
//!
//! Lines that are there together share one sync. A line that is refused for what it says does not
//! end the stream; a ledger that takes no appends does. The last line may have no line break, if
//! the body ends properly behind it; what a broken connection leaves of a line is not appended.

use super::App;
use super::append::{Acknowledgement, permit, submit};
use crate::appender::{AppendOutcome, AppendRefusal};
use crate::body::Lines;
use crate::peer::Peer;
use crate::problem::{Code, Problem};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use ledger_records::Submission;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Lines that share a sync.
const GROUP_LINES_MAX: usize = 256;
/// Bytes of lines that share a sync, about.
const GROUP_LEN_MAX: usize = 4 << 20;
/// Bytes of answers that wait for a client that only writes. About 8,000 acknowledgements: a simple
/// client may send that many lines before it reads.
const UNREAD_LEN_MAX: usize = 4 << 20;

/// Begins the answer; lines are read and appended by a task of their own.
pub(super) fn answer(app: Arc<App>, peer: Arc<Peer>, body: Body) -> Response {
    let (send, receive) = mpsc::channel(1024);
    let lines = Lines::new(body, &app.budget);
    tokio::spawn(run(app, peer, lines, send));
    let mut response = Response::new(Body::new(Answers(receive)));
    let media_type = HeaderValue::from_static("application/x-ndjson");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// A piece of the answer, and the room it takes until it is sent.
type Piece = (Bytes, OwnedSemaphorePermit);

struct Answers(mpsc::Receiver<Piece>);

impl HttpBody for Answers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(cx);
        next.map(|piece| piece.map(|(bytes, _room)| Ok(Frame::data(bytes))))
    }
}

async fn run(app: Arc<App>, peer: Arc<Peer>, mut lines: Lines, send: mpsc::Sender<Piece>) {
    let unread = Arc::new(Semaphore::new(UNREAD_LEN_MAX));
    let mut stop = app.stop.clone();
    loop {
        let group = tokio::select! {
            biased;
            group = lines.group(GROUP_LINES_MAX, GROUP_LEN_MAX, &app.limits) => group,
            _ = stop.wait_for(|stop| *stop) => Err(Problem::new(Code::Stopping, "the server is stopping")),
            () = send.closed() => return,
        };
        let (answers, go_on) = match group {
            Ok(group) if group.is_empty() => return,
            Ok(group) => append_group(&app, &peer, group),
            Err(problem) => {
                let problem = problem.counted(&app.metrics.refusals);
                (line(&json!({ "problem": problem.to_value() })), false)
            }
        };
        let room = u32::try_from(answers.len().min(UNREAD_LEN_MAX)).unwrap_or(u32::MAX);
        let Ok(room) = unread.clone().acquire_many_owned(room).await else {
            return;
        };
        // Nobody reads the answer any more: what is appended stays, nothing further is read.
        if send.send((answers.into(), room)).await.is_err() || !go_on {
            return;
        }
    }
}

fn line(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// Appends a group and answers each of its lines; false if the stream must end. Blocks.
fn append_group(app: &App, peer: &Peer, group: Vec<(u64, Bytes)>) -> (Vec<u8>, bool) {
    let started = Instant::now();
    let mut numbers = Vec::with_capacity(group.len());
    let mut requests = Vec::with_capacity(group.len());
    for (number, bytes) in group {
        let read = Submission::from_json(&bytes)
            .map_err(|errors| Problem::of_record(&errors, None))
            .and_then(|record| permit(peer, &record, None).map(|()| record));
        match read {
            Ok(record) => {
                requests.push(vec![record]);
                numbers.push((number, None));
            }
            Err(problem) => numbers.push((number, Some(problem))),
        }
    }
    let mut outcomes = if requests.is_empty() {
        Vec::new().into_iter()
    } else {
        submit(app, peer, requests, started).into_iter()
    };
    let (mut answers, mut go_on) = (Vec::new(), true);
    for (number, problem) in numbers {
        let outcome = match problem {
            Some(problem) => Err(problem),
            None => outcomes
                .next()
                .unwrap_or(Err(AppendRefusal::Closing))
                .map_err(|refusal| {
                    go_on &= !ends_stream(&refusal);
                    refusal.to_problem(false)
                }),
        };
        answers.extend(line(&answer_of(number, outcome, app)));
    }
    (answers, go_on)
}

/// Whether the lines behind would be refused for the same reason.
const fn ends_stream(refusal: &AppendRefusal) -> bool {
    matches!(
        refusal,
        AppendRefusal::DiskFull(_) | AppendRefusal::Stopped(_) | AppendRefusal::Closing
    )
}

fn answer_of(number: u64, outcome: Result<AppendOutcome, Problem>, app: &App) -> Value {
    match outcome {
        Ok(outcome) => {
            let acknowledged = Acknowledgement::of(&outcome).into_iter().next();
            let mut value = json!(acknowledged);
            value["line"] = number.into();
            value
        }
        Err(problem) => {
            let problem = problem.counted(&app.metrics.refusals);
            json!({ "line": number, "problem": problem.to_value() })
        }
    }
}
