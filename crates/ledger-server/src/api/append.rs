//! `POST /v1/records`: one record, or an array as one atomic batch, answered after the sync.
//!
//! Streams are in `stream`; here is also what both share: reading records, and the acknowledgement.

use super::App;
use crate::appender::AppendOutcome;
use crate::body::read_whole;
use crate::halves::map_halves;
use crate::peer::Peer;
use crate::problem::{Code, Problem};
use crate::proofs::prove_and_check;
use crate::split::{SplitError, cbor_array, is_cbor_array, is_json_array, json_array};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use ledger_format::AppendReceipt;
use ledger_records::Submission;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use utoipa::ToSchema;

/// One record that is on the disk.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Acknowledgement {
    /// The frame's number.
    pub seq: u64,
    /// The frame's link, 64 hex digits.
    pub link: String,
    /// The record's id.
    pub record_id: String,
    /// The writer's clock, RFC 3339.
    pub appended_at: String,
    /// True when the record was in the ledger already: `seq` and `link` are those of the first time.
    pub duplicate: bool,
    /// The append receipt, to be kept: one line of a receipts file.
    #[schema(value_type = Object)]
    pub receipt: AppendReceipt,
    /// With `Prefer: wait=checkpoint`: a `.tlog-proof` file of the frame under the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

impl Acknowledgement {
    fn new(receipt: &AppendReceipt, duplicate: bool) -> Self {
        Self {
            seq: receipt.seq.0,
            link: receipt.link.to_hex(),
            record_id: receipt.record_id.clone(),
            appended_at: receipt.appended_at.clone(),
            duplicate,
            receipt: receipt.clone(),
            proof: None,
        }
    }

    pub(super) fn of(outcome: &AppendOutcome) -> Vec<Self> {
        let records = outcome.records.iter();
        records
            .map(|r| Self::new(&r.receipt, r.duplicate))
            .collect()
    }
}

/// The answer to one record.
#[derive(Serialize, ToSchema)]
pub(super) struct OneAnswer {
    #[serde(flatten)]
    record: Acknowledgement,
    #[serde(flatten)]
    covered: Covered,
}

/// The answer to a batch: one acknowledgement a record, in its order.
#[derive(Serialize, ToSchema)]
pub(super) struct BatchAnswer {
    records: Vec<Acknowledgement>,
    #[serde(flatten)]
    covered: Covered,
}

/// What `Prefer: wait=checkpoint` adds.
#[derive(Default, Serialize, ToSchema)]
pub(super) struct Covered {
    /// The signed note that covers the records.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<String>,
    /// Why there is none. The records are in the ledger all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    checkpoint_problem: Option<serde_json::Value>,
}

/// How records are written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Media {
    Json,
    Cbor,
    Lines,
}

impl Media {
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let value = headers
            .get(header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok());
        let essence = value
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        match essence.trim().to_ascii_lowercase().as_str() {
            "application/json" => Ok(Self::Json),
            "application/cbor" => Ok(Self::Cbor),
            "application/x-ndjson" => Ok(Self::Lines),
            other => Err(Problem::new(
                Code::UnsupportedMediaType,
                format!(
                    "expected application/json, application/cbor or application/x-ndjson, found {other:?}"
                ),
            )),
        }
    }
}

/// Appends records.
#[utoipa::path(
    post, path = "/v1/records", tag = "records",
    description = "One record, or an array as one atomic and contiguous batch (application/json, application/cbor), answered once it is synced; or a stream of records, one a line (application/x-ndjson), each acknowledged by a line of the answer.",
    params(("Prefer" = Option<String>, Header, description = "`wait=checkpoint`: answer with a checkpoint over the records, and a proof for each")),
    request_body(content((serde_json::Value = "application/json"), (serde_json::Value = "application/cbor"), (String = "application/x-ndjson"))),
    responses(
        (status = 201, description = "The records are on the disk", body = BatchAnswer),
        (status = 200, description = "They were in the ledger already, or the stream was begun", body = OneAnswer),
        (status = 409, description = "record_conflict: another record has this record_id"),
        (status = 413, description = "too_large, too_many_records"),
        (status = 422, description = "invalid_record, secret_refused, unknown_retention_class"),
        (status = 503, description = "ledger_stopped, stopping, busy"),
        (status = 507, description = "disk_full"),
    )
)]
pub(super) async fn append(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Arc<Peer>>().cloned();
    let peer = peer.ok_or_else(|| Problem::new(Code::Internal, "a connection without its peer"))?;
    let media = Media::of(&parts.headers)?;
    if media == Media::Lines {
        return Ok(super::stream::answer(app, peer, body));
    }
    let (bytes, room) = read_whole(&parts.headers, body, &app.budget, &app.limits).await?;
    // Signals of a stop come between requests: what has arrived whole is still served.
    let (records, batch) = read_records(media, &bytes, &app)?;
    for (i, record) in records.iter().enumerate() {
        permit(&peer, record, batch.then_some(i))?;
    }
    drop(bytes);
    let wait = waits_for_checkpoint(&parts.headers);
    let answer = (|| {
        let outcome = submit(&app, &peer, vec![records], started).pop();
        let outcome = outcome.unwrap_or(Err(crate::appender::AppendRefusal::Closing));
        let outcome = outcome.map_err(|refusal| refusal.to_problem(batch))?;
        Ok::<_, Problem>(acknowledge(&app, &outcome, wait))
    })();
    drop(room);
    let (duplicate, mut records, covered) = answer?;
    let status = if duplicate {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let applied = covered.checkpoint.is_some();
    let location = records.first().map(|r| format!("/v1/records/{}", r.seq));
    let json = match (batch, records.pop()) {
        (false, Some(record)) => serde_json::to_vec(&OneAnswer { record, covered }),
        (_, last) => {
            records.extend(last);
            serde_json::to_vec(&BatchAnswer { records, covered })
        }
    };
    let json = json.map_err(|e| Problem::new(Code::Internal, e.to_string()))?;
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Some(Ok(location)) = location.map(HeaderValue::try_from) {
        headers.insert(header::LOCATION, location);
    }
    if applied {
        headers.insert(
            "preference-applied",
            HeaderValue::from_static("wait=checkpoint"),
        );
    }
    Ok(response)
}

/// Whether `wait=checkpoint` is among the preferences (RFC 7240).
fn waits_for_checkpoint(headers: &HeaderMap) -> bool {
    let values = headers
        .get_all("prefer")
        .into_iter()
        .filter_map(|v| v.to_str().ok());
    values
        .flat_map(|v| v.split(','))
        .filter_map(|p| p.split(';').next()?.split_once('='))
        .any(|(name, value)| {
            name.trim().eq_ignore_ascii_case("wait")
                && value
                    .trim()
                    .trim_matches('"')
                    .eq_ignore_ascii_case("checkpoint")
        })
}

/// All records of a body, and whether they came as a batch.
fn read_records(media: Media, body: &[u8], app: &App) -> Result<(Vec<Submission>, bool), Problem> {
    let max = app.limits.batch_records;
    let batch = match media {
        Media::Cbor => is_cbor_array(body),
        _ => is_json_array(body),
    };
    let read = |bytes: &[u8]| match media {
        Media::Cbor => Submission::from_cbor(bytes),
        _ => Submission::from_json(bytes),
    };
    if !batch {
        let record = read(body).map_err(|errors| Problem::of_record(&errors, None))?;
        return Ok((vec![record], false));
    }
    let parts = match media {
        Media::Cbor => cbor_array(body, max),
        _ => json_array(body, max),
    };
    let parts = parts.map_err(|e| match e {
        SplitError::Malformed(why) => Problem::new(Code::Malformed, why),
        SplitError::TooMany { max } => {
            let detail = format!("a batch holds at most {max} records");
            Problem::new(Code::TooManyRecords, detail).with("max", max)
        }
    })?;
    if parts.is_empty() {
        return Err(Problem::new(
            Code::Malformed,
            "a batch holds at least 1 record",
        ));
    }
    let alone = app.metrics.queue.load(Relaxed) == 0;
    let records = map_halves(parts, alone, |i, part| {
        read(part).map_err(|errors| Problem::of_record(&errors, Some(i)))
    });
    Ok((records.into_iter().collect::<Result<_, _>>()?, true))
}

/// Refuses a record whose type the peer may not append.
pub(super) fn permit(peer: &Peer, record: &Submission, at: Option<usize>) -> Result<(), Problem> {
    let record_type = record.record().record_type();
    if peer.permitted.allows(record_type) {
        return Ok(());
    }
    let uid = peer.attested.uid;
    let detail = format!(
        "uid {uid} may not append records of type {}",
        record_type.as_str()
    );
    let problem =
        Problem::new(Code::RecordTypeForbidden, detail).with("record_type", record_type.as_str());
    Err(match at {
        Some(i) => problem.with("index", i),
        None => problem,
    })
}

/// Hands requests to the writer, and counts. Blocks.
pub(super) fn submit(
    app: &App,
    peer: &Peer,
    requests: Vec<Vec<Submission>>,
    started: Instant,
) -> Vec<Result<AppendOutcome, crate::appender::AppendRefusal>> {
    let m = &app.metrics;
    let count = i64::try_from(requests.len()).unwrap_or(i64::MAX);
    m.queue.fetch_add(count, Relaxed);
    let outcomes = app.appender.append_each(requests, peer.attested);
    m.queue.fetch_sub(count, Relaxed);
    let took = started.elapsed();
    for outcome in &outcomes {
        match outcome {
            Ok(done) => {
                m.appends.fetch_add(1, Relaxed);
                m.ack.observe(took);
                m.last_append_ms.store(ledger_writer::clock().0, Relaxed);
                let before = done.records.iter().filter(|r| r.duplicate).count();
                let new = done.records.len() - before;
                m.duplicates.fetch_add(before as u64, Relaxed);
                m.records.fetch_add(new as u64, Relaxed);
            }
            Err(crate::appender::AppendRefusal::Conflict { .. }) => {
                m.conflicts.fetch_add(1, Relaxed);
            }
            Err(_) => {}
        }
    }
    outcomes
}

/// The acknowledgements of a request, with checkpoint and proofs where they are waited for. Blocks.
fn acknowledge(
    app: &App,
    outcome: &AppendOutcome,
    wait: bool,
) -> (bool, Vec<Acknowledgement>, Covered) {
    let mut records = Acknowledgement::of(outcome);
    if !wait {
        return (outcome.is_duplicate(), records, Covered::default());
    }
    let covered = match app.appender.checkpoint() {
        Ok(note) => prove_all(app, outcome, &mut records, &note).map(|()| Covered {
            checkpoint: Some(note),
            checkpoint_problem: None,
        }),
        Err(refusal) => Err(refusal.to_problem(false)),
    };
    let covered = covered.unwrap_or_else(|problem| {
        app.metrics.refusals.count(problem.code);
        Covered {
            checkpoint: None,
            checkpoint_problem: Some(problem.to_value()),
        }
    });
    (outcome.is_duplicate(), records, covered)
}

fn prove_all(
    app: &App,
    outcome: &AppendOutcome,
    records: &mut [Acknowledgement],
    note: &str,
) -> Result<(), Problem> {
    app.metrics.checkpoints.fetch_add(1, Relaxed);
    for (appended, record) in outcome.records.iter().zip(records) {
        let receipt = &appended.receipt;
        let proof = prove_and_check(&*app.proofs, receipt.seq, &receipt.link, note)
            .map_err(|e| Problem::new(Code::Internal, e.to_string()))?;
        record.proof = Some(proof.to_text());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.append("prefer", HeaderValue::from_static("respond-async"));
            headers.append("prefer", value.parse().unwrap());
            waits_for_checkpoint(&headers)
        };
        for yes in [
            "wait=checkpoint",
            "return=minimal, Wait = \"checkpoint\"; x=1",
        ] {
            assert!(with(yes), "{yes}");
        }
        for no in ["wait=10", "checkpoint", "wait", "xwait=checkpoint"] {
            assert!(!with(no), "{no}");
        }
    }

    #[test]
    fn media_types() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            Media::of(&headers).map_err(|p| p.code)
        };
        assert_eq!(of("Application/JSON; charset=utf-8"), Ok(Media::Json));
        assert_eq!(of("application/cbor"), Ok(Media::Cbor));
        assert_eq!(of("application/x-ndjson"), Ok(Media::Lines));
        assert_eq!(of("text/plain"), Err(Code::UnsupportedMediaType));
    }
}
