//! HTTP/1.1 over a unix socket, from a pool of connections. Not the retries: those are `client`'s.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixStream;

/// An answer longer than this is not read: 1,000 acknowledgements with their proofs fit four times.
const ANSWER_LEN_MAX: usize = 32 << 20;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// How one try failed.
#[derive(Debug)]
pub(crate) struct TryError {
    /// Whether the request may have reached the daemon.
    pub(crate) maybe_sent: bool,
    pub(crate) why: String,
}

/// A pool of connections to one socket.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pool: Client<Connector, Full<Bytes>>,
}

impl Transport {
    pub(crate) fn new(socket: &Path, connections: usize, idle: Duration) -> Self {
        let pool = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(connections)
            .pool_idle_timeout(idle)
            .build(Connector(socket.to_owned()));
        Self { pool }
    }

    /// Sends one request and reads its answer whole.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, TryError> {
        let not_sent = |why: String| TryError {
            maybe_sent: false,
            why,
        };
        let uri: Uri = format!("http://ledger{path}")
            .parse()
            .map_err(|_| not_sent(format!("{path:?} is no path")))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
            .headers_mut()
            .insert("accept", HeaderValue::from_static("*/*"));
        let response = self.pool.request(request).await.map_err(|e| TryError {
            maybe_sent: !e.is_connect(),
            why: chain(&e),
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX)
            .collect()
            .await;
        let body = body.map_err(|e| TryError {
            maybe_sent: true,
            why: e.to_string(),
        })?;
        Ok(Answer {
            status,
            body: body.to_bytes(),
        })
    }
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[derive(Clone, Debug)]
struct Connector(PathBuf);

impl tower_service::Service<Uri> for Connector {
    type Response = Pooled;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Pooled>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.0.clone();
        Box::pin(async move { Ok(Pooled(TokioIo::new(UnixStream::connect(path).await?))) })
    }
}

/// A connection as the pool wants it.
#[derive(Debug)]
struct Pooled(TokioIo<UnixStream>);

impl Connection for Pooled {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pooled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Pooled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }
}
