//! What is read: frames, checkpoints, status, health, metrics; traces are in `trace`. What blocks on
//! the disk blocks the connection's own thread.

use super::App;
use crate::appender::Condition;
use crate::problem::{Code, Problem};
use crate::records::RecordView;
use crate::status::{self, StatusReport};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use ledger_format::Seq;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

fn text(media_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// Shows one frame's skeleton.
#[utoipa::path(
    get, path = "/v1/records/{seq}", tag = "records",
    params(("seq" = u64, Path, description = "The frame's number")),
    responses(
        (status = 200, description = "The frame, as far as the daemon's keys show it", body = RecordView),
        (status = 404, description = "record_not_found"),
    )
)]
pub(super) async fn record(
    State(app): State<Arc<App>>,
    Path(seq): Path<String>,
) -> Result<Response, Problem> {
    let frames = app.appender.state().frames;
    let missing = || {
        let detail = format!("there is no synced frame {seq:?}: expected a number below {frames}");
        Problem::new(Code::RecordNotFound, detail)
    };
    let number: u64 = seq.parse().map_err(|_| missing())?;
    // Frames behind the last sync are not in the ledger yet.
    if number >= frames {
        return Err(missing());
    }
    let appender = app.appender.clone();
    let synced = move || Seq(appender.state().frames);
    let found = app.records.record(Seq(number), &synced);
    let found = found.map_err(|e| Problem::new(Code::Internal, e.to_string()))?;
    let view = found.ok_or_else(missing)?;
    Ok(Json(view).into_response())
}

/// The newest checkpoint.
#[utoipa::path(
    get, path = "/v1/checkpoint", tag = "checkpoints",
    responses((status = 200, description = "A signed note (C2SP tlog-checkpoint)", body = String, content_type = "text/plain"))
)]
pub(super) async fn checkpoint(State(app): State<Arc<App>>) -> Response {
    text("text/plain; charset=utf-8", app.appender.state().checkpoint)
}

/// Cuts a checkpoint over everything that is synced.
#[utoipa::path(
    post, path = "/v1/checkpoint", tag = "checkpoints",
    responses(
        (status = 200, description = "A signed note; the newest one if nothing was appended since", body = String, content_type = "text/plain"),
        (status = 503, description = "ledger_stopped, stopping"),
        (status = 507, description = "disk_full"),
    )
)]
pub(super) async fn cut_checkpoint(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let note = app
        .appender
        .checkpoint()
        .map_err(|refusal| refusal.to_problem(false))?;
    app.metrics.checkpoints.fetch_add(1, Relaxed);
    Ok(text("text/plain; charset=utf-8", note))
}

/// How the daemon is doing.
#[utoipa::path(
    get, path = "/v1/status", tag = "operation",
    responses((status = 200, description = "All figures that `ledger status` shows", body = StatusReport))
)]
pub(super) async fn status(State(app): State<Arc<App>>) -> Response {
    Json(status::report(&app)).into_response()
}

/// Whether the process answers.
#[utoipa::path(
    get, path = "/healthz", tag = "operation",
    responses((status = 200, description = "It does", body = serde_json::Value))
)]
pub(super) async fn healthz() -> Response {
    Json(json!({ "healthy": true })).into_response()
}

/// Whether appends are taken.
#[utoipa::path(
    get, path = "/readyz", tag = "operation",
    responses(
        (status = 200, description = "They are", body = serde_json::Value),
        (status = 503, description = "ledger_stopped, stopping"),
        (status = 507, description = "disk_full"),
    )
)]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    if *app.stop.borrow() {
        return Err(Problem::new(Code::Stopping, "the server is stopping"));
    }
    match app.appender.state().condition {
        Condition::Accepting => Ok(Json(json!({ "ready": true })).into_response()),
        Condition::DiskFull(why) => Err(Problem::new(Code::DiskFull, why)),
        Condition::Stopped(why) => Err(Problem::new(Code::LedgerStopped, why)),
        Condition::Closed => Err(Problem::new(Code::Stopping, "the ledger is closed")),
    }
}

/// All figures, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "operation",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"))
)]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let readings = status::readings(&app);
    let scraped = crate::metrics::scrape(&app.metrics, &app.sockets, readings);
    text(
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        scraped,
    )
}
