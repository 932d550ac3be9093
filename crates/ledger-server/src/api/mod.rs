//! The HTTP interface: which paths there are, and who may use which.
//!
//! What each does is in the files below; connections are `connection`, bytes of bodies are `body`.

mod append;
mod openapi;
mod read;
mod stream;
mod trace;

pub use append::Acknowledgement;
pub use openapi::openapi;

use crate::appender::Appender;
use crate::body::Budget;
use crate::config::{Limits, Role};
use crate::metrics::{Metrics, SocketFigures};
use crate::peer::{Peer, Permitted};
use crate::problem::{Code, Problem};
use crate::proofs::ProofProvider;
use crate::records::RecordProvider;
use crate::status::Facts;
use crate::trace::TraceProvider;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::sync::watch;

/// What the daemon answers with.
pub struct App {
    /// The writer.
    pub appender: Arc<dyn Appender>,
    /// Single frames.
    pub records: Arc<dyn RecordProvider>,
    /// Stories; none if the daemon was started without.
    pub trace: Option<Arc<dyn TraceProvider>>,
    /// Audit paths.
    pub proofs: Arc<dyn ProofProvider>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The sockets' figures.
    pub sockets: Vec<Arc<SocketFigures>>,
    /// What the status says that does not change.
    pub facts: Facts,
    /// Bounds.
    pub limits: Limits,
    /// Turns true at a stop.
    pub stop: watch::Receiver<bool>,
    pub(crate) budget: Budget,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "App({})", self.facts.ledger.display())
    }
}

/// One operation and the roles that have it.
type Operation = (&'static str, &'static str, &'static [Role]);

/// All operations, as documented.
pub const OPERATIONS: &[Operation] = {
    use Role::{Metrics, Operator, Reader, Writer};
    &[
        ("POST", "/v1/records", &[Writer, Operator]),
        ("GET", "/v1/records/{seq}", &[Reader, Operator]),
        ("GET", "/v1/trace/{identifier}", &[Reader, Operator]),
        ("POST", "/v1/trace", &[Reader, Operator]),
        ("GET", "/v1/checkpoint", &[Writer, Reader, Operator]),
        ("POST", "/v1/checkpoint", &[Writer, Operator]),
        ("GET", "/v1/status", &[Reader, Operator]),
        ("GET", "/healthz", &[Writer, Reader, Operator, Metrics]),
        ("GET", "/readyz", &[Writer, Reader, Operator, Metrics]),
        ("GET", "/metrics", &[Reader, Operator, Metrics]),
        ("GET", "/openapi.json", &[Writer, Reader, Operator]),
    ]
};

/// The routes, over one daemon's state. Requests carry their [`Peer`] as an extension.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/records", post(append::append))
        .route("/v1/records/{seq}", get(read::record))
        .route("/v1/trace/{identifier}", get(trace::of_value))
        .route("/v1/trace", post(trace::of_text))
        .route(
            "/v1/checkpoint",
            get(read::checkpoint).post(read::cut_checkpoint),
        )
        .route("/v1/status", get(read::status))
        .route("/healthz", get(read::healthz))
        .route("/readyz", get(read::readyz))
        .route("/metrics", get(read::metrics))
        .route("/openapi.json", get(openapi::document))
        .method_not_allowed_fallback(|| async {
            Problem::new(
                Code::MethodNotAllowed,
                "see /openapi.json for what this path takes",
            )
        })
        .fallback(|| async { Problem::new(Code::NotFound, "see /openapi.json for what there is") })
        .layer(from_fn_with_state(app.clone(), admit))
        .with_state(app)
}

/// Who may do what; what was refused is counted, what was read is logged.
async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let peer = request.extensions().get::<Arc<Peer>>().cloned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let Some(peer) = peer else {
        return Problem::new(Code::Internal, "a connection without its peer").into_response();
    };
    let route = route.as_ref().map(MatchedPath::as_str);
    let response = match refusal(&app, &peer, &method, route) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    };
    let code = response.extensions().get::<Code>().copied();
    if let Some(code) = code {
        app.metrics.refusals.count(code);
    }
    crate::access::log(&crate::access::Access {
        peer: &peer,
        method: &method,
        route,
        path: uri.path(),
        status: response.status().as_u16(),
        code,
        took: started.elapsed(),
    });
    response
}

fn refusal(app: &App, peer: &Peer, method: &Method, route: Option<&str>) -> Option<Problem> {
    if peer.permitted == Permitted::Unmapped {
        let uid = peer.attested.uid;
        app.metrics.last_unmapped_uid.store(u64::from(uid), Relaxed);
        app.metrics
            .last_unmapped_ms
            .store(ledger_writer::clock().0, Relaxed);
        let detail = format!("uid {uid} has no entry in the map of {}", peer.socket);
        return Some(Problem::new(Code::PeerNotMapped, detail).with("uid", uid));
    }
    // HEAD is served by GET's handler.
    let method = if method == Method::HEAD {
        "GET"
    } else {
        method.as_str()
    };
    let (_, _, roles) = OPERATIONS
        .iter()
        .find(|(m, r, _)| *m == method && Some(*r) == route)?;
    if roles.contains(&peer.role) {
        return None;
    }
    let role = peer.role.name();
    let detail = format!("{} is a {role} socket", peer.socket);
    Some(Problem::new(Code::RoleForbidden, detail).with("role", role))
}
