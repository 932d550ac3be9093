//! `GET /v1/trace/{identifier}` and `POST /v1/trace`: the question taken apart and the answer wrapped.
//!
//! Who finds the story is the provider; a text goes in a body because it may be long and holds what
//! nobody wants in a log.

use super::App;
use crate::body::read_whole;
use crate::problem::{Code, Problem};
use crate::trace::{Asked, TraceError, TraceOutcome, TraceQuestion};
use axum::Json;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse as _, Response};
use ledger_format::Seq;
use ledger_records::IdKind;
use std::sync::Arc;

/// Longest text that is searched for identifiers, bytes.
const TEXT_LEN_MAX: u64 = 1 << 20;

/// Tells the story behind an identifier.
#[utoipa::path(
    get, path = "/v1/trace/{identifier}", tag = "traces",
    params(
        ("identifier" = String, Path, description = "The value of any identifier, percent-encoded; the SHA-256 of a body in hex"),
        ("kind" = Option<String>, Query, description = "Only identifiers of this kind"),
        ("scope" = Option<String>, Query, description = "Only identifiers within this scope: a provider, a system"),
        ("trust" = Option<String>, Query, description = "The trust line that checkpoints are to be held against"),
    ),
    responses(
        (status = 200, description = "The story, or the candidates if several entities have this value", body = serde_json::Value),
        (status = 400, description = "bad_request: no such kind, or no trust line of this ledger"),
        (status = 404, description = "identifier_not_found; `trace` says what was searched"),
        (status = 501, description = "not_available"),
        (status = 503, description = "index_unavailable"),
    )
)]
pub(super) async fn of_value(
    State(app): State<Arc<App>>,
    Path(identifier): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    answer(&app, Asked::Value(identifier), query.as_deref())
}

/// Tells the story behind any identifier in a text: a log line, a mail, a ticket.
#[utoipa::path(
    post, path = "/v1/trace", tag = "traces",
    params(
        ("kind" = Option<String>, Query, description = "Only identifiers of this kind"),
        ("scope" = Option<String>, Query, description = "Only identifiers within this scope: a provider, a system"),
        ("trust" = Option<String>, Query, description = "The trust line that checkpoints are to be held against"),
    ),
    request_body(content = String, content_type = "text/plain", description = "At most 1 MiB of UTF-8; every word of it is tried"),
    responses(
        (status = 200, description = "The story, or the candidates if several entities are named", body = serde_json::Value),
        (status = 400, description = "bad_request, malformed"),
        (status = 404, description = "identifier_not_found; `trace` says what was searched"),
        (status = 413, description = "too_large"),
        (status = 415, description = "unsupported_media_type"),
        (status = 501, description = "not_available"),
        (status = 503, description = "index_unavailable"),
    )
)]
pub(super) async fn of_text(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let media_type = parts.headers.get("content-type");
    let essence = media_type.and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = essence.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("text/plain") {
        let detail = format!("expected text/plain, found {essence:?}");
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let limits = crate::config::Limits {
        body_len: TEXT_LEN_MAX.min(app.limits.body_len),
        ..app.limits.clone()
    };
    let (bytes, _room) = read_whole(&parts.headers, body, &app.budget, &limits).await?;
    let text = String::from_utf8(bytes.to_vec());
    let text = text.map_err(|e| Problem::new(Code::Malformed, e.to_string()))?;
    answer(&app, Asked::Text(text), parts.uri.query())
}

/// Asks, and wraps the answer. Blocks.
fn answer(app: &App, asked: Asked, query: Option<&str>) -> Result<Response, Problem> {
    let Some(provider) = &app.trace else {
        let detail = "this daemon was started without the identifier index";
        return Err(Problem::new(Code::NotAvailable, detail));
    };
    let question = question(asked, query.unwrap_or_default())?;
    let appender = app.appender.clone();
    let synced = move || Seq(appender.state().frames);
    let answer = provider
        .trace(&question, &synced)
        .map_err(|error| match &error {
            TraceError::Question(_) => Problem::new(Code::BadRequest, error.to_string()),
            TraceError::NotNow(_) => Problem::new(Code::IndexUnavailable, error.to_string()),
            TraceError::Failed(_) => Problem::new(Code::Internal, error.to_string()),
        })?;
    if answer.outcome == TraceOutcome::NotFound {
        let problem = Problem::new(Code::IdentifierNotFound, "no record names this identifier");
        return Err(problem.with("trace", answer.document));
    }
    Ok(Json(answer.document).into_response())
}

/// A question with what its query string asks.
fn question(asked: Asked, query: &str) -> Result<TraceQuestion, Problem> {
    let mut question = TraceQuestion {
        asked,
        kind: None,
        scope: None,
        trust: None,
    };
    let bad = |detail: String| Problem::new(Code::BadRequest, detail);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = crate::access::percent_decoded(&value.replace('+', " "));
        match name {
            "kind" => {
                let kind = IdKind::from_name(&value);
                let kind =
                    kind.ok_or_else(|| bad(format!("{value:?} is no kind of identifier")))?;
                question.kind = Some(kind);
            }
            "scope" => question.scope = Some(value),
            "trust" => question.trust = Some(value),
            _ => return Err(bad(format!("the query does not take {name:?}"))),
        }
    }
    Ok(question)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_string() {
        let ask = |query| question(Asked::Value("v".into()), query);
        let whole = ask("kind=action_id&scope=a%20b+c&trust=n%2Bk%2bd&").unwrap();
        assert_eq!(whole.kind, IdKind::from_name("action_id"));
        assert_eq!(whole.scope.as_deref(), Some("a b c"));
        assert_eq!(whole.trust.as_deref(), Some("n+k+d"));
        for bad in ["kind=nothing", "limit=5", "kind"] {
            assert_eq!(ask(bad).unwrap_err().code, Code::BadRequest, "{bad}");
        }
        assert_eq!(ask("").unwrap().kind, None);
    }
}
