//! The access log: who read what, through which socket. Appends are logged when refused only, for
//! the ledger itself says what was appended.
//!
//! No bodies and no headers. An identifier in a path is shown unless it looks like a credential.

use crate::config::Role;
use crate::peer::Peer;
use crate::problem::Code;
use axum::http::Method;
use ledger_records::guard;
use std::borrow::Cow;
use std::time::Duration;

/// Longest path that is shown.
const PATH_LEN_MAX: usize = 256;

/// One request and what became of it.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) method: &'a Method,
    pub(crate) route: Option<&'a str>,
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    pub(crate) code: Option<Code>,
    pub(crate) took: Duration,
}

/// Writes one line for a read or a refusal.
pub(crate) fn log(access: &Access<'_>) {
    // What is read by POST is read all the same; the text that was asked for is not shown.
    let reads = access.route.is_some_and(|r| {
        r == "/v1/trace" || r.starts_with("/v1/") && *access.method != Method::POST
    });
    if !reads && access.code.is_none() {
        return;
    }
    let attested = access.peer.attested;
    // Of a path that is not ours nothing is known, so nothing is shown.
    let path = access
        .route
        .map_or(Cow::Borrowed(""), |_| shown(access.path));
    let tcp = access.peer.role == Role::Metrics;
    tracing::info!(
        target: "ledger_server::access",
        socket = %access.peer.socket,
        role = access.peer.role.name(),
        uid = (!tcp).then_some(attested.uid),
        gid = (!tcp).then_some(attested.gid),
        pid = (!tcp).then_some(attested.pid),
        method = %access.method,
        route = access.route.unwrap_or("-"),
        path = %path,
        status = access.status,
        code = access.code.map(Code::name),
        took_us = u64::try_from(access.took.as_micros()).unwrap_or(u64::MAX),
        "access"
    );
}

/// A path as it may stand in a log: printable ASCII as sent, so percent-encoded.
fn shown(path: &str) -> Cow<'_, str> {
    let last = path.rsplit('/').next().unwrap_or_default();
    let decoded = percent_decoded(last);
    let printable = path.bytes().all(|b| b.is_ascii_graphic());
    if path.len() > PATH_LEN_MAX || !printable || guard::scan(&decoded).is_some() {
        let kept = path.len() - last.len();
        return Cow::Owned(format!(
            "{}[withheld]",
            path.get(..kept).unwrap_or_default()
        ));
    }
    Cow::Borrowed(path)
}

/// The text that a path segment stands for; bytes that are none are replaced.
pub(crate) fn percent_decoded(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        match hex
            .filter(|_| *first == b'%')
            .and_then(|d| u8::from_str_radix(d, 16).ok())
        {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_credential_is_withheld() {
        assert_eq!(shown("/v1/trace/act_01"), "/v1/trace/act_01");
        let token = format!("/v1/trace/ghp_{}", "a1B2".repeat(9));
        assert_eq!(shown(&token), "/v1/trace/[withheld]");
        let encoded = "/v1/trace/Bearer%20abcdefghijklmnop0123456789";
        assert_eq!(shown(encoded), "/v1/trace/[withheld]");
        let long = format!("/v1/trace/{}", "x".repeat(300));
        assert_eq!(shown(&long), "/v1/trace/[withheld]");
        assert_eq!(percent_decoded("a%2Fb%zz%e2%82%ac"), "a/b%zz€");
    }
}
