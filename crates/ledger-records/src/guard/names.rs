//! Names that promise a secret: headers, query parameters, assignments; and path segments that are one.

use super::{SecretKind, scan};

/// Headers that carry credentials. Signatures are not among them: they are evidence and open nothing.
const CREDENTIAL_HEADERS: [&str; 24] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "cookie2",
    "set-cookie",
    "set-cookie2",
    "authentication",
    "x-authorization",
    "x-api-key",
    "api-key",
    "apikey",
    "x-apikey",
    "x-functions-key",
    "ocp-apim-subscription-key",
    "x-goog-api-key",
    "x-amz-security-token",
    "x-gitlab-token",
    "private-token",
    "job-token",
    "deploy-token",
    "x-telegram-bot-api-secret-token",
    "x-vault-token",
    "x-forwarded-access-token",
    "www-authenticate-token",
];

/// Endings that make any header one.
const CREDENTIAL_ENDINGS: [&str; 6] = [
    "-token",
    "-secret",
    "-password",
    "-api-key",
    "-apikey",
    "-authorization",
];

/// Query parameters whose value is withheld.
const SENSITIVE_PARAMETERS: [&str; 21] = [
    "token",
    "sig",
    "signature",
    "key",
    "code",
    "auth",
    "jwt",
    "assertion",
    "sas",
    "ticket",
    "state",
    "session",
    "sessionid",
    "sid",
    "otp",
    "pin",
    "x-amz-signature",
    "x-amz-credential",
    "x-goog-signature",
    "hmac",
    "authorization",
];

/// Names whose value is withheld wherever they stand, also in prose such as `password=...`.
const SENSITIVE_NAMES: [&str; 20] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "client_secret",
    "clientsecret",
    "api_key",
    "apikey",
    "api-key",
    "access_token",
    "accesstoken",
    "refresh_token",
    "id_token",
    "auth_token",
    "private_key",
    "access_key",
    "secret_key",
    "aws_secret_access_key",
    "x-amz-security-token",
];

fn one_of(name: &[u8], list: &[&str]) -> bool {
    list.iter()
        .any(|entry| name.eq_ignore_ascii_case(entry.as_bytes()))
}

/// Looks whether a header, by its name, carries a credential.
#[must_use]
pub fn scan_header(name: &str) -> Option<SecretKind> {
    let ends = |ending: &&str| {
        name.len() > ending.len()
            && name.as_bytes()[name.len() - ending.len()..].eq_ignore_ascii_case(ending.as_bytes())
    };
    (one_of(name.as_bytes(), &CREDENTIAL_HEADERS) || CREDENTIAL_ENDINGS.iter().any(ends))
        .then_some(SecretKind::CredentialHeader)
}

/// Looks for a secret in a query parameter, by its name and by its value.
#[must_use]
pub fn scan_parameter(name: &str, value: &str) -> Option<SecretKind> {
    if is_sensitive(name.as_bytes(), true) && !is_placeholder(value.as_bytes()) {
        return Some(SecretKind::SensitiveValue);
    }
    scan(value)
}

/// Whether a name promises a secret; `in_query` also counts names that are harmless in prose.
pub(super) fn is_sensitive(name: &[u8], in_query: bool) -> bool {
    name.len() <= 24
        && (one_of(name, &SENSITIVE_NAMES) || in_query && one_of(name, &SENSITIVE_PARAMETERS))
}

/// Whether a value says that the real one was left out.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let Some(&first) = value.first() else {
        return true;
    };
    matches!(first, b'{' | b'[' | b'<' | b'*' | b'$' | b' ' | b'&' | b'#')
        || value.starts_with(b"REDACTED")
        || value.starts_with(b"redacted")
        || value.starts_with(b"%7B")
        || value.starts_with(b"%5B")
}

/// Whether a path segment is long and random, as endpoint tokens are; hex digests, UUIDs, ULIDs and names are not.
pub(super) fn is_random_segment(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    bytes.len() >= 24
        && bytes
            .iter()
            .all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        && mixes_like_random(bytes)
}

/// Changes of character class are frequent in random text and rare in names: at least two in five here, with upper
/// case, lower case and digits all present.
pub(super) fn mixes_like_random(bytes: &[u8]) -> bool {
    let class = |b: u8| match b {
        b'a'..=b'z' => 1u8,
        b'A'..=b'Z' => 2,
        b'0'..=b'9' => 4,
        _ => 0,
    };
    let seen = bytes.iter().fold(0, |seen, &b| seen | class(b));
    let changes = bytes
        .windows(2)
        .filter(|pair| class(pair[0]) != class(pair[1]))
        .count();
    seen & 7 == 7 && changes * 5 >= bytes.len() * 2
}
