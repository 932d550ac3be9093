//! Connections: accepted, bounded in number and in time, served, drained at a stop.
//!
//! What a request means is the router's; what bytes may be waited for, and how long, is decided
//! here: hyper bounds the head's size, and [`Activity`] knows since when nothing has moved.

use crate::config::Limits;
use crate::metrics::SocketFigures;
use crate::peer::Peer;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_service::Service as _;

/// Pause after a failed accept: descriptors may be free again then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for a connection to end after the time of the stop: an append that waits for its sync.
const DRAIN_GRACE: Duration = Duration::from_secs(10);
/// Headers of one request.
const HEADERS_MAX: usize = 64;

/// What all connections of one socket share.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) router: Router,
    pub(crate) limits: Limits,
    pub(crate) figures: Arc<SocketFigures>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) drain_time: Duration,
}

/// How connections come in: what `accept` of a listener gives, and who is at the other end.
pub(crate) trait Accept: Send + Sync + 'static {
    /// A connection that belongs to no runtime.
    type Loose: io::Write + Send + 'static;
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Loose, Peer)>> + Send;
    /// The connection in the runtime of the calling thread.
    fn enter(loose: Self::Loose) -> io::Result<Self::Stream>;
}

/// Accepts until the stop, then drains.
pub(crate) async fn serve<A: Accept>(accept: A, socket: Arc<Socket>) {
    let all = u32::try_from(socket.limits.connections).unwrap_or(u32::MAX);
    let slots = Arc::new(Semaphore::new(all as usize));
    let mut stop = socket.stop.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = accept.accept() => accepted,
        };
        let begun = accepted.and_then(|(loose, peer)| match slots.clone().try_acquire_owned() {
            Ok(slot) => begin::<A>(loose, peer, socket.clone(), slot),
            Err(_) => turn_away(loose, &peer),
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
    drop(accept);
    // Connections end by themselves when the time of the stop is over; this waits for the last.
    let drained = slots.acquire_many(all);
    let limit = socket.drain_time + DRAIN_GRACE;
    if tokio::time::timeout(limit, drained).await.is_err() {
        tracing::warn!(socket = %socket.figures.name, "an append was still under way at the end of the stop");
    }
}

/// Serves a connection in a thread of its own. An append blocks that thread and nobody else: handing
/// it over to another one costs more than the append itself, and a connection has nothing to do
/// until it is answered.
fn begin<A: Accept>(
    loose: A::Loose,
    peer: Peer,
    socket: Arc<Socket>,
    slot: OwnedSemaphorePermit,
) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("connection".to_owned());
    thread.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let served = runtime.and_then(|runtime| {
            runtime.block_on(async {
                let stream = A::enter(loose)?;
                socket.figures.accepted.fetch_add(1, Relaxed);
                connection(stream, peer, &socket).await;
                Ok(())
            })
        });
        if let Err(error) = served {
            tracing::warn!(%error, "a connection could not be served");
        }
        drop(slot);
    })?;
    Ok(())
}

/// The answer to a connection beyond the limit, written without reading. It fits the empty buffer
/// of a new socket; whoever does not take it is not waited for.
fn turn_away(mut loose: impl io::Write, peer: &Peer) -> io::Result<()> {
    use crate::problem::{Code, Problem};
    tracing::warn!(socket = %peer.socket, uid = peer.attested.uid, "too many connections");
    let body = Problem::new(
        Code::Busy,
        "this socket has as many connections as it takes",
    )
    .to_value()
    .to_string();
    let text = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = loose.write_all(text.as_bytes());
    Ok(())
}

async fn connection<S>(stream: S, peer: Peer, socket: &Socket)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    socket.figures.open.fetch_add(1, Relaxed);
    let activity = Arc::new(Activity::default());
    let (router, requests) = (socket.router.clone(), activity.clone());
    let peer = Arc::new(peer);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        let (under_way, mut router) = (requests.begin(), router.clone());
        async move {
            let response = match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            Ok::<_, Infallible>(response.map(|body| Guarded {
                body,
                _under_way: under_way,
            }))
        }
    });
    let header_len = usize::try_from(socket.limits.header_len).unwrap_or(usize::MAX);
    let io = TokioIo::new(Watched {
        stream,
        activity: activity.clone(),
    });
    let served = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(header_len)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service);
    let mut served = pin!(served);
    let mut stop = socket.stop.clone();
    let mut stopping = false;
    let mut drained = pin!(tokio::time::sleep(Duration::MAX));
    loop {
        tokio::select! {
            _ = served.as_mut() => break,
            () = activity.stalled(&socket.limits) => break,
            () = drained.as_mut(), if stopping => break,
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                drained.as_mut().reset(tokio::time::Instant::now() + socket.drain_time);
                served.as_mut().graceful_shutdown();
            }
        }
    }
    socket.figures.open.fetch_sub(1, Relaxed);
}

/// Since when a connection waits for what.
#[derive(Debug)]
struct Activity(Mutex<Waits>);

#[derive(Debug)]
struct Waits {
    /// Requests whose response is not wholly sent.
    under_way: usize,
    /// Since the last response, or the accept.
    idle_since: Instant,
    /// Since the first byte of a head that is not whole.
    head_since: Option<Instant>,
    /// Since the client takes no more bytes of a response.
    blocked_since: Option<Instant>,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(Waits {
            under_way: 0,
            idle_since: Instant::now(),
            head_since: None,
            blocked_since: None,
        }))
    }
}

impl Activity {
    fn begin(self: &Arc<Self>) -> UnderWay {
        let mut waits = self.0.lock();
        waits.under_way += 1;
        waits.head_since = None;
        UnderWay(self.clone())
    }

    /// When the connection has waited too long, unless something moves; none while a request is
    /// served, whose body has its own time.
    fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let waits = self.0.lock();
        if let Some(since) = waits.blocked_since {
            return Some(since + limits.body_time);
        }
        if waits.under_way > 0 {
            return None;
        }
        Some(match waits.head_since {
            Some(since) => since + limits.header_time,
            None => waits.idle_since + limits.idle_time,
        })
    }

    /// Returns once the connection has waited too long for its client.
    async fn stalled(&self, limits: &Limits) {
        // Whatever begins to wait later is met at the next look.
        let look = limits
            .header_time
            .min(limits.body_time)
            .min(limits.idle_time)
            / 2;
        loop {
            let now = Instant::now();
            let deadline = self.deadline(limits);
            if deadline.is_some_and(|at| at <= now) {
                return;
            }
            let until = deadline.map_or(now + look, |at| at.min(now + look));
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

/// A request under way; dropped with its response's body.
#[derive(Debug)]
struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut waits = self.0.0.lock();
        waits.under_way = waits.under_way.saturating_sub(1);
        waits.idle_since = Instant::now();
        waits.head_since = None;
    }
}

/// A response's body that keeps its request under way until it is sent.
struct Guarded {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that tells what moves.
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            let mut waits = self.activity.0.lock();
            if waits.under_way == 0 {
                waits.head_since.get_or_insert_with(Instant::now);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        let mut waits = self.activity.0.lock();
        if written.is_pending() {
            waits.blocked_since.get_or_insert_with(Instant::now);
        } else {
            waits.blocked_since = None;
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
