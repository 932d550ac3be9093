//! Errors as people and programs read them: RFC 9457 problems with stable codes.
//!
//! Not where errors are found. A code never changes its meaning or its status once released; the
//! table [`TABLE`] is what the documentation and the OpenAPI document list.

use crate::metrics::Refusals;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ledger_records::{ErrorCode, RecordErrors};
use serde_json::{Map, Value, json};

/// What the `type` member of every problem begins with; the code follows.
pub const TYPE_PREFIX: &str = "urn:ledger:problem:";

/// Seconds after which a client may try again what was refused for want of room or time.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $status:literal, $title:literal;)*) => {
        /// Why a request was refused.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            /// The HTTP status that goes with it.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status),* }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }
        }

        /// Code, status, meaning: as documented.
        pub const TABLE: &[(&str, u16, &str)] = &[$(($code, $status, $title)),*];
    };
}

codes! {
    /// Not JSON, not CBOR, or not an array where one was begun.
    Malformed = "malformed", 400, "The body is not what its media type says";
    /// A header of the request makes no sense.
    BadRequest = "bad_request", 400, "The request cannot be understood";
    /// The uid and gid have no entry in the listener's map.
    PeerNotMapped = "peer_not_mapped", 403, "This user may not use this socket";
    /// The listener's role does not include the operation.
    RoleForbidden = "role_forbidden", 403, "This socket does not offer this operation";
    /// The peer's entry does not include the record type.
    RecordTypeForbidden = "record_type_forbidden", 403, "This user may not append records of this type";
    /// No such path.
    NotFound = "not_found", 404, "There is nothing at this path";
    /// No frame of this number is synced.
    RecordNotFound = "record_not_found", 404, "The ledger has no frame of this number";
    /// No record has the identifier.
    IdentifierNotFound = "identifier_not_found", 404, "No record names this identifier";
    /// The path exists for other methods.
    MethodNotAllowed = "method_not_allowed", 405, "This path does not take this method";
    /// The body did not arrive in time.
    RequestTimeout = "request_timeout", 408, "The body took too long to arrive";
    /// The same record id is in the ledger with other content.
    RecordConflict = "record_conflict", 409, "Another record has this record_id";
    /// The body is longer than the limit.
    TooLarge = "too_large", 413, "The request is larger than this socket takes";
    /// More records than one request may hold.
    TooManyRecords = "too_many_records", 413, "The request holds too many records";
    /// None of the three media types.
    UnsupportedMediaType = "unsupported_media_type", 415, "This media type is not taken here";
    /// A record breaks its rules.
    InvalidRecord = "invalid_record", 422, "A record breaks its rules";
    /// A record holds what looks like a credential.
    SecretRefused = "secret_refused", 422, "A record holds what looks like a credential";
    /// A raw body names a retention class without a key.
    UnknownRetentionClass = "unknown_retention_class", 422, "This ledger does not keep that retention class";
    /// A fault of the server.
    Internal = "internal", 500, "The server failed";
    /// The daemon was started without what answers this.
    NotAvailable = "not_available", 501, "This daemon does not offer this operation";
    /// Index or tiles cannot be used at the moment.
    IndexUnavailable = "index_unavailable", 503, "The identifier index cannot be used now; if it stays so, stop the daemon and run `ledger index rebuild`";
    /// As much is under way as fits.
    Busy = "busy", 503, "The server is at its limits; try again";
    /// The daemon is being stopped.
    Stopping = "stopping", 503, "The server is stopping";
    /// A write or sync failed: nothing is accepted until the ledger is opened anew.
    LedgerStopped = "ledger_stopped", 503, "The ledger takes no appends until an operator has looked";
    /// The disk is full, or down to its reserve.
    DiskFull = "disk_full", 507, "The ledger's disk is full; appends go on by themselves once there is space";
}

/// One refusal, ready to be sent.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Why.
    pub code: Code,
    /// What exactly, for a person.
    pub detail: String,
    /// Further members, by code.
    pub members: Map<String, Value>,
}

impl Problem {
    /// A problem without further members.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (detail, members) = (detail.into(), Map::new());
        Self {
            code,
            detail,
            members,
        }
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// The faults of a record; `at` is its place in the batch, if it came in one.
    #[must_use]
    pub fn of_record(errors: &RecordErrors, at: Option<usize>) -> Self {
        let is = |code| errors.errors().iter().any(|e| e.code == code);
        let code = if is(ErrorCode::Secret) {
            Code::SecretRefused
        } else if is(ErrorCode::Malformed) {
            Code::Malformed
        } else {
            Code::InvalidRecord
        };
        let prefix = at.map(|i| format!("/{i}")).unwrap_or_default();
        let list: Vec<Value> = errors
            .errors()
            .iter()
            .map(|e| {
                let mut value = json!(e);
                value["pointer"] = format!("{prefix}{}", e.pointer).into();
                value
            })
            .collect();
        let first = errors.errors().first().map(ToString::to_string);
        let more = list.len().saturating_sub(1) + errors.more();
        let mut detail = first.unwrap_or_default();
        if let Some(i) = at {
            detail = format!("record {i}: {detail}");
        }
        if more > 0 {
            detail = format!("{detail}; and {more} more");
        }
        let problem = Self::new(code, detail).with("errors", list);
        if errors.more() > 0 {
            problem.with("errors_left_out", errors.more())
        } else {
            problem
        }
    }

    /// The JSON object.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert(
            "type".into(),
            format!("{TYPE_PREFIX}{}", self.code.name()).into(),
        );
        object.insert("title".into(), self.code.title().into());
        object.insert("status".into(), self.code.status().into());
        object.insert("code".into(), self.code.name().into());
        object.insert("detail".into(), self.detail.clone().into());
        object.extend(self.members.clone());
        Value::Object(object)
    }

    /// Whether the same request may succeed a little later, without anybody's help.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self.code, Code::Busy | Code::Stopping)
    }

    /// Counts it under its code.
    #[must_use]
    pub fn counted(self, refusals: &Refusals) -> Self {
        refusals.count(self.code);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Body::from(self.to_value().to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let media_type = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, media_type);
        if self.is_transient() || self.code == Code::DiskFull {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        // What is left of a body that was not read would be taken for the next request.
        if matches!(
            self.code,
            Code::TooLarge
                | Code::RequestTimeout
                | Code::PeerNotMapped
                | Code::UnsupportedMediaType
        ) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(self.code);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_statuses_are_errors() {
        let names: std::collections::BTreeSet<_> = TABLE.iter().map(|row| row.0).collect();
        assert_eq!(names.len(), TABLE.len());
        assert!(
            TABLE
                .iter()
                .all(|(_, status, _)| (400..600).contains(status))
        );
        assert_eq!(Code::ALL.len(), TABLE.len());
    }

    #[test]
    fn a_record_in_a_batch_is_named_by_its_place() {
        let errors =
            ledger_records::Record::from_json(br#"{"type":"run","record_id":"r"}"#).unwrap_err();
        let problem = Problem::of_record(&errors, Some(3));
        assert_eq!(problem.code, Code::InvalidRecord);
        let pointer = problem.to_value()["errors"][0]["pointer"].clone();
        assert!(pointer.as_str().unwrap().starts_with("/3/"), "{pointer}");
        assert!(
            problem.detail.starts_with("record 3: "),
            "{}",
            problem.detail
        );
        let alone = Problem::of_record(&errors, None).to_value();
        assert_eq!(alone["status"], 422);
        assert_eq!(alone["type"], "urn:ledger:problem:invalid_record");
    }
}
