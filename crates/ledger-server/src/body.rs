//! Bodies, read within their bounds: length, bytes under way in the whole daemon, time.
//!
//! Room is taken before bytes are waited for, so that many slow clients cannot fill the memory. Small
//! bodies need none, and an undeclared length takes room only as bytes come: clients that hold large
//! requests in their hands do not keep small ones out.

use crate::config::Limits;
use crate::problem::{Code, Problem};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// One permit of the budget.
const UNIT: u64 = 1 << 10;
/// A body up to this needs no room: the number of connections bounds these.
const SMALL_LEN: u64 = 64 << 10;

/// Room for bodies, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    free: Arc<Semaphore>,
}

/// Room that one request has.
#[derive(Debug)]
pub(crate) struct Room {
    budget: Budget,
    taken: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        let permits = usize::try_from(limits.inflight_len.div_ceil(UNIT)).unwrap_or(usize::MAX);
        let free = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self { free }
    }

    pub(crate) fn room(&self) -> Room {
        Room {
            budget: self.clone(),
            taken: None,
        }
    }
}

impl Room {
    /// Bytes that it holds.
    fn len(&self) -> u64 {
        let permits = self.taken.as_ref().map_or(0, |p| p.num_permits() as u64);
        permits * UNIT
    }

    /// Waits until there is room for `len` bytes in all.
    pub(crate) async fn reserve(&mut self, len: u64, limits: &Limits) -> Result<(), Problem> {
        if len <= SMALL_LEN {
            return Ok(());
        }
        let more = len.div_ceil(UNIT).saturating_sub(self.len() / UNIT);
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let waiting = self.budget.free.clone().acquire_many_owned(more);
        match timeout(limits.body_time, waiting).await {
            Ok(Ok(permit)) => {
                match &mut self.taken {
                    Some(taken) => taken.merge(permit),
                    none => *none = Some(permit),
                }
                Ok(())
            }
            _ => Err(Problem::new(
                Code::Busy,
                "there is no room for the body: too many bytes of other requests are under way",
            )),
        }
    }
}

/// The length that the request declares, if it does.
fn declared_len(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

fn too_large(found: &str, limits: &Limits) -> Problem {
    let max = limits.body_len;
    let detail = format!("the body has {found} bytes; at most {max} are taken");
    Problem::new(Code::TooLarge, detail).with("max", max)
}

fn too_slow(limits: &Limits) -> Problem {
    let seconds = limits.body_time.as_secs_f64();
    Problem::new(
        Code::RequestTimeout,
        format!("the body did not arrive within {seconds} s"),
    )
}

fn broken(error: &axum::Error) -> Problem {
    Problem::new(Code::Malformed, format!("the body ended early: {error}"))
}

/// The whole body, with the room it takes.
pub(crate) async fn read_whole(
    headers: &HeaderMap,
    mut body: Body,
    budget: &Budget,
    limits: &Limits,
) -> Result<(Bytes, Room), Problem> {
    let declared = declared_len(headers);
    if let Some(len) = declared.filter(|len| *len > limits.body_len) {
        return Err(too_large(&len.to_string(), limits));
    }
    let mut room = budget.room();
    room.reserve(declared.unwrap_or(0), limits).await?;
    let capacity = usize::try_from(declared.unwrap_or(0)).unwrap_or(0);
    let mut whole = BytesMut::with_capacity(capacity);
    // The client's time only: what is spent on waiting for room is not its fault.
    let mut left = limits.body_time;
    loop {
        let waiting = Instant::now();
        let frame = timeout(left, body.frame()).await;
        let Some(frame) = frame.map_err(|_| too_slow(limits))? else {
            return Ok((whole.freeze(), room));
        };
        left = left.saturating_sub(waiting.elapsed());
        let frame = frame.map_err(|e| broken(&e))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let needed = (whole.len() + data.len()) as u64;
        if needed > limits.body_len {
            return Err(too_large("more", limits));
        }
        if needed > room.len().max(SMALL_LEN) {
            // It grows by doubling, so that it does not queue at every piece.
            let more = needed.saturating_mul(2).min(limits.body_len);
            room.reserve(more, limits).await?;
        }
        whole.extend_from_slice(data);
    }
}

/// Lines of a body, as they arrive.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// Bytes from the start in which there is no line break.
    searched: usize,
    ended: bool,
    room: Room,
    /// Of the line taken last, counted from 1.
    number: u64,
}

impl Lines {
    pub(crate) fn new(body: Body, budget: &Budget) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            searched: 0,
            ended: false,
            room: budget.room(),
            number: 0,
        }
    }

    /// Waits for a line, then takes what is there already, up to `lines_max` lines or about
    /// `len_max` bytes. Blank lines are counted and passed over. Empty at the end of the body.
    pub(crate) async fn group(
        &mut self,
        lines_max: usize,
        len_max: usize,
        limits: &Limits,
    ) -> Result<Vec<(u64, Bytes)>, Problem> {
        let mut group = Vec::new();
        let mut len = 0;
        loop {
            while group.len() < lines_max && len < len_max {
                let Some(line) = self.take() else { break };
                if line.len() as u64 > limits.body_len {
                    return Err(too_large(&line.len().to_string(), limits));
                }
                if !line.trim_ascii().is_empty() {
                    len += line.len();
                    group.push((self.number, line));
                }
            }
            if self.ended || group.len() >= lines_max || len >= len_max {
                return Ok(group);
            }
            if self.buffer.len() as u64 > limits.body_len {
                return Err(too_large("more", limits));
            }
            if group.is_empty() {
                let frame = timeout(limits.body_time, self.body.frame()).await;
                let frame = frame.map_err(|_| too_slow(limits))?;
                self.note(frame.transpose().map_err(|e| broken(&e))?);
                self.room.reserve(self.buffer.len() as u64, limits).await?;
            } else {
                match self.ready().await {
                    Some(frame) => self.note(frame.transpose().map_err(|e| broken(&e))?),
                    None => return Ok(group),
                }
            }
        }
    }

    /// A frame that is there already; none if it would have to be waited for.
    async fn ready(&mut self) -> Option<Option<Result<Frame<Bytes>, axum::Error>>> {
        std::future::poll_fn(|cx| {
            Poll::Ready(match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(frame) => Some(frame),
                Poll::Pending => None,
            })
        })
        .await
    }

    fn note(&mut self, frame: Option<Frame<Bytes>>) {
        match frame {
            Some(frame) => {
                if let Some(data) = frame.data_ref() {
                    self.buffer.extend_from_slice(data);
                }
            }
            None => self.ended = true,
        }
    }

    /// A line that is there: up to a line break, or what the body ends with.
    fn take(&mut self) -> Option<Bytes> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let line = match rest.iter().position(|b| *b == b'\n') {
            Some(at) => {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                line.truncate(line.len() - 1);
                line
            }
            None if self.ended && !self.buffer.is_empty() => self.buffer.split(),
            None => {
                self.searched = self.buffer.len();
                return None;
            }
        };
        self.searched = 0;
        self.number += 1;
        Some(line.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    static NO_HEADERS: std::sync::LazyLock<HeaderMap> = std::sync::LazyLock::new(HeaderMap::new);

    fn limits() -> Limits {
        Limits {
            body_len: 4096,
            inflight_len: 8192,
            body_time: Duration::from_millis(50),
            ..Limits::default()
        }
    }

    #[tokio::test]
    async fn lines_are_grouped_and_numbered() {
        let limits = limits();
        let body = Body::from("a\n\n bb \nccc\nno end");
        let mut lines = Lines::new(body, &Budget::new(&limits));
        let first = lines.group(2, 100, &limits).await.unwrap();
        assert_eq!(first, [(1, Bytes::from("a")), (3, Bytes::from(" bb "))]);
        let second = lines.group(9, 100, &limits).await.unwrap();
        assert_eq!(
            second,
            [(4, Bytes::from("ccc")), (5, Bytes::from("no end"))]
        );
        assert_eq!(lines.group(9, 100, &limits).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_refused() {
        let limits = limits();
        for end in ["", "\n"] {
            let body = Body::from("x".repeat(5000) + end);
            let mut lines = Lines::new(body, &Budget::new(&limits));
            let refused = lines.group(9, 100, &limits).await.unwrap_err();
            assert_eq!(refused.code, Code::TooLarge);
        }
    }

    #[tokio::test]
    async fn room_is_given_back_and_waited_for() {
        let limits = Limits {
            body_len: 4 * SMALL_LEN,
            inflight_len: 4 * SMALL_LEN,
            ..limits()
        };
        let budget = Budget::new(&limits);
        let mut room = budget.room();
        room.reserve(4 * SMALL_LEN, &limits).await.unwrap();
        let refused = budget.room().reserve(SMALL_LEN + 1, &limits).await;
        assert_eq!(refused.unwrap_err().code, Code::Busy);
        let undeclared = |len: u64| Body::from(vec![b' '; usize::try_from(len).unwrap()]);
        let read = |body| read_whole(&NO_HEADERS, body, &budget, &limits);
        let refused = read(undeclared(SMALL_LEN + 1)).await.unwrap_err();
        assert_eq!(refused.code, Code::Busy);
        let (small, _) = read(undeclared(SMALL_LEN)).await.unwrap();
        assert_eq!(small.len() as u64, SMALL_LEN, "small ones come through");
        drop(room);
        let (large, held) = read(undeclared(2 * SMALL_LEN)).await.unwrap();
        assert!(
            held.len() >= large.len() as u64,
            "what is held has its room"
        );
        drop(held);
        let whole = budget.room().reserve(4 * SMALL_LEN, &limits).await;
        whole.unwrap();
    }

    #[tokio::test]
    async fn lengths_are_refused_before_reading() {
        let limits = limits();
        let budget = Budget::new(&limits);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, "4097".parse().unwrap());
        let refused = read_whole(&headers, Body::empty(), &budget, &limits)
            .await
            .unwrap_err();
        assert_eq!(refused.code, Code::TooLarge);
        let unsaid = read_whole(
            &HeaderMap::new(),
            Body::from(vec![0; 4097]),
            &budget,
            &limits,
        )
        .await;
        assert_eq!(unsaid.unwrap_err().code, Code::TooLarge);
    }
}
