//! Checked text: every string that a record can hold is one of these types, and passed the secret guard on its way in.
//! Says nothing of what an identifier identifies; that is `identifiers`.

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

use crate::error::ErrorCode;
use crate::guard::{self, SecretKind};
use crate::limits::{
    ID_LEN_MAX, LABEL_LEN_MAX, REASON_LEN_MAX, RULES_TEXT_LEN_MAX, TEMPLATE_LEN_MAX,
};

/// Why a text is refused. Holds nothing of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Of the wrong length or form.
    #[error("expected {expected}")]
    Form {
        /// The kind of fault.
        code: ErrorCode,
        /// What the type takes.
        expected: &'static str,
    },
    /// Looks like a credential.
    #[error("{}; {}", .0.describe(), .0.hint())]
    Secret(SecretKind),
}

/// How the guard looks at a type of text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// The form leaves no room for a secret.
    Off,
    Text,
    /// Also for long random segments, as endpoint tokens are.
    Route,
}

fn check(
    text: &str,
    len: std::ops::RangeInclusive<usize>,
    control: bool,
    watch: Watch,
    guarded: bool,
    form: fn(&str) -> bool,
    expected: &'static str,
) -> Result<(), TextError> {
    let fail = |code| Err(TextError::Form { code, expected });
    if text.len() < *len.start() {
        return fail(ErrorCode::Empty);
    }
    if text.len() > *len.end() {
        return fail(ErrorCode::TooLong);
    }
    // C1 controls are two bytes in UTF-8, U+0080 to U+009F; the byte scan keeps the common case fast.
    let odd = text
        .bytes()
        .fold(false, |odd, b| odd | !(0x20..0x7f).contains(&b));
    if odd
        && text
            .chars()
            .any(|c| c.is_control() && !(control && matches!(c, '\n' | '\t' | '\r')))
    {
        return fail(ErrorCode::ControlCharacter);
    }
    if guarded && watch != Watch::Off {
        let found = if watch == Watch::Route {
            guard::scan_route(text)
        } else {
            guard::scan(text)
        };
        if let Some(kind) = found {
            return Err(TextError::Secret(kind));
        }
    }
    if form(text) {
        Ok(())
    } else {
        fail(ErrorCode::BadFormat)
    }
}

macro_rules! text_types {
    ($(
        $(#[doc = $doc:expr])*
        $name:ident: $min:literal..=$max:expr, control $control:literal, $watch:ident, $form:expr, $expected:literal, {$($schema:tt)*};
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes a text that has the type's form and holds no credential.
            ///
            /// # Errors
            /// The wrong length or form, or something that looks like a secret.
            pub fn new(text: impl Into<Box<str>>) -> Result<Self, TextError> {
                let text = text.into();
                Self::check(&text, true)?;
                Ok(Self(text))
            }

            fn check(text: &str, guarded: bool) -> Result<(), TextError> {
                check(text, $min..=$max, $control, Watch::$watch, guarded, $form, $expected)
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = TextError;
            fn from_str(text: &str) -> Result<Self, TextError> {
                Self::new(text)
            }
        }

        impl crate::field::Field for $name {
            fn decode(node: crate::node::Node<'_>, cx: &mut crate::field::Cx) -> Option<Self> {
                let text = match node {
                    crate::node::Node::Text(text) => text,
                    node => {
                        cx.wrong_type($expected, &node);
                        return None;
                    }
                };
                match Self::check(&text, cx.guarded()) {
                    Ok(()) => Some(Self(text.into())),
                    Err(TextError::Secret(kind)) => {
                        cx.secret(kind);
                        None
                    }
                    Err(TextError::Form { code, expected }) => {
                        cx.fail(code, expected, format!("text of {} bytes", text.len()), "");
                        None
                    }
                }
            }
            fn encode(&self, out: &mut Vec<u8>) {
                crate::cbor::text(out, &self.0);
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": concat!($($doc,)*).trim(),
                    // Characters are never more than bytes; the parser counts bytes.
                    "minLength": $min,
                    "maxLength": $max,
                    $($schema)*
                })
            }
        }
    )*};
}

text_types! {
    /// An identifier made by somebody else or by the client: opaque, 1 to 128 bytes, one line.
    Id: 1..=ID_LEN_MAX, control false, Text, |_| true, "an id of 1 to 128 bytes without control characters", {};
    /// A short name for people and rules: 1 to 256 bytes, one line.
    Label: 1..=LABEL_LEN_MAX, control false, Text, |_| true, "a label of 1 to 256 bytes without control characters", {};
    /// A name out of an open list, such as a reason code: `[a-z0-9][a-z0-9_.:-]*`, at most 64 bytes.
    Code: 1..=64, control false, Text, is_code, "a code of lower-case letters, digits and _ . : -", { "pattern": "^[a-z0-9][a-z0-9_.:-]*$" };
    /// The name of an identifier kind: `[a-z0-9_]+`, at most 64 bytes.
    KindName: 1..=64, control false, Text, is_kind_name, "a name of lower-case letters, digits and _", { "pattern": "^[a-z0-9_]+$" };
    /// The one place for free text: why, in at most 1,024 bytes. Lines may be broken.
    Reason: 1..=REASON_LEN_MAX, control true, Text, |_| true, "a reason of 1 to 1024 bytes", {};
    /// The text of a rule set, at most 64 KiB.
    RulesText: 1..=RULES_TEXT_LEN_MAX, control true, Text, |_| true, "a text of 1 to 65536 bytes", {};
    /// A route with its variable parts as names in braces: starts with `/`, no query, no fragment.
    RouteTemplate: 1..=TEMPLATE_LEN_MAX, control false, Route, is_route, "a path that starts with / and has no query", { "pattern": "^/[^?#]*$" };
    /// A command with its variable parts as names in braces.
    CommandTemplate: 1..=TEMPLATE_LEN_MAX, control false, Text, |_| true, "a command of 1 to 1024 bytes on one line", {};
    /// A normalised host: lower case, an optional port, no scheme, no user.
    Host: 1..=255, control false, Text, is_host, "a lower-case host name or address with an optional port", { "pattern": "^[a-z0-9._:\\[\\]-]+$" };
    /// An HTTP method in capitals.
    Method: 1..=32, control false, Off, is_method, "an HTTP method in capitals", { "pattern": "^[A-Z][A-Z-]*$" };
    /// The name of a header that carries no credential.
    HeaderName: 1..=128, control false, Text, is_token, "a header name (RFC 9110 token)", { "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" };
    /// The value of a header, at most 1,024 bytes; may be empty.
    HeaderValue: 0..=1024, control false, Text, |_| true, "a header value of at most 1024 bytes", {};
    /// An IP address as text (RFC 5952 or dotted).
    SourceAddress: 1..=64, control false, Off, |text| text.parse::<IpAddr>().is_ok(), "an IP address", {};
    /// A retention class: `[a-z0-9]`, 1 to 16 bytes, not `body` or `envelope`. It names the payload file that the body
    /// goes to.
    PayloadClass: 1..=16, control false, Off, is_class, "a retention class of lower-case letters and digits", { "pattern": "^[a-z0-9]{1,16}$" };
    /// A time of RFC 3339 with a zone, kept as given: `2026-11-30T14:07:41.25Z`.
    Time: 20..=35, control false, Off, is_time, "a time of RFC 3339 with seconds and zone", { "format": "date-time" };
    /// A digest that names its algorithm: `sha256:` or `blake3:`, then 64 lower-case hex digits.
    Digest: 71..=71, control false, Off, is_digest, "sha256: or blake3: and 64 lower-case hex digits", { "pattern": "^(sha256|blake3):[0-9a-f]{64}$" };
    /// A SHA-256 as 64 lower-case hex digits.
    Sha256Hex: 64..=64, control false, Off, is_sha256, "64 lower-case hex digits", { "pattern": "^[0-9a-f]{64}$" };
}

fn all(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    text.bytes().all(allowed)
}

fn is_code(text: &str) -> bool {
    text.as_bytes()
        .first()
        .is_some_and(u8::is_ascii_alphanumeric)
        && all(text, |b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b':' | b'-')
        })
}

fn is_kind_name(text: &str) -> bool {
    all(text, |b| {
        b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'
    })
}

fn is_route(text: &str) -> bool {
    text.starts_with('/') && all(text, |b| b != b'?' && b != b'#')
}

fn is_host(text: &str) -> bool {
    all(text, |b| {
        b.is_ascii_lowercase()
            || b.is_ascii_digit()
            || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']')
    })
}

fn is_method(text: &str) -> bool {
    !text.starts_with('-') && all(text, |b| b.is_ascii_uppercase() || b == b'-')
}

fn is_token(text: &str) -> bool {
    all(text, |b| {
        b.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(&b)
    })
}

/// `body` and `envelope` name the key files of a segment, so no class may.
fn is_class(text: &str) -> bool {
    text != "body"
        && text != "envelope"
        && all(text, |b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn is_lower_hex(text: &str) -> bool {
    all(text, |b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
}

fn is_sha256(text: &str) -> bool {
    is_lower_hex(text)
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:")
        .or_else(|| text.strip_prefix("blake3:"))
        .is_some_and(is_lower_hex)
}

/// The strict form of RFC 3339; the calendar is jiff's.
fn is_time(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let Some((date_time, rest)) = bytes.split_at_checked(SHAPE.len()) else {
        return false;
    };
    let same = |(&found, &shape): (&u8, &u8)| {
        if shape == b'0' {
            found.is_ascii_digit()
        } else {
            found == shape
        }
    };
    if !date_time.iter().zip(SHAPE).all(same) {
        return false;
    }
    let (fraction, zone) = match rest.strip_prefix(b".") {
        Some(rest) => rest.split_at(
            rest.iter()
                .position(|b| !b.is_ascii_digit())
                .unwrap_or(rest.len()),
        ),
        None => (&b"0"[..], rest),
    };
    let zone_fits = match zone {
        b"Z" => true,
        [b'+' | b'-', a, b, b':', c, d] => {
            [a, b, c, d].iter().all(|b| b.is_ascii_digit()) && *c < b'6'
        }
        _ => false,
    };
    (1..=9).contains(&fraction.len()) && zone_fits && text.parse::<jiff::Timestamp>().is_ok()
}

impl Time {
    /// Milliseconds since 1970-01-01T00:00:00Z, rounded down; what rules compare.
    #[must_use]
    pub fn unix_millis(&self) -> i64 {
        // The constructor parsed it; the epoch is never reached.
        self.0
            .parse::<jiff::Timestamp>()
            .map_or(0, |time| time.as_nanosecond().div_euclid(1_000_000) as i64)
    }
}

impl Sha256Hex {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)).into())
    }
}

impl Digest {
    /// The SHA-256 of these bytes, with its name.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Self(format!("sha256:{}", hex(&Sha256::digest(bytes))).into())
    }
}

impl PayloadClass {
    /// The class of a body whose sender named none: 30 days.
    #[must_use]
    pub fn days_30() -> Self {
        Self("30d".into())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(64), |mut out, byte| {
            for nibble in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
            out
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_strict_and_kept() {
        for good in [
            "2026-11-30T14:07:41Z",
            "2026-11-30T14:07:41.123456789Z",
            "2026-11-30T14:07:41.5+05:30",
            "2024-02-29T00:00:00-00:00",
            "0001-01-02T00:00:00Z",
        ] {
            assert_eq!(Time::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "2026-11-30 14:07:41Z",
            "2026-11-30t14:07:41z",
            "2026-11-30T14:07Z   ",
            "2026-11-30T14:07:41",
            "2026-11-30T14:07:41.Z",
            "2026-11-30T14:07:41.1234567890Z",
            "2026-02-29T14:07:41Z",
            "2026-11-30T24:07:41Z",
            "2026-11-30T14:07:41+01",
            "2026-11-30T14:07:41+01:60",
            "2026-11-30T14:07:41[UTC]",
            "+002026-11-30T14:07:41Z",
        ] {
            assert!(Time::new(bad).is_err(), "{bad}");
        }
        assert_eq!(
            Time::new("1970-01-01T01:00:00.2509+01:00")
                .unwrap()
                .unix_millis(),
            250
        );
        assert_eq!(
            Time::new("1969-12-31T23:59:59.9999Z")
                .unwrap()
                .unix_millis(),
            -1
        );
    }

    #[test]
    fn forms() {
        assert!(
            Host::new("builds.example.com:8443").is_ok() && Host::new("[2001:db8::1]:443").is_ok()
        );
        assert!(Host::new("Builds.example.com").is_err() && Host::new("https://x").is_err());
        assert!(
            RouteTemplate::new("/v1/builds/{id}").is_ok() && RouteTemplate::new("/v1?x=1").is_err()
        );
        assert!(
            Id::new("a\u{85}b").is_err()
                && Id::new("a\nb").is_err()
                && Id::new("\u{e9}t\u{e9}").is_ok()
        );
        assert!(
            Id::new("x".repeat(128)).is_ok()
                && Id::new("x".repeat(129)).is_err()
                && Id::new("").is_err()
        );
        assert!(Reason::new("one\ntwo").is_ok() && Reason::new("bell\u{7}").is_err());
        assert!(
            SourceAddress::new("203.0.113.9").is_ok()
                && SourceAddress::new("203.0.113.9:80").is_err()
        );
        assert!(
            PayloadClass::new("30d").is_ok()
                && PayloadClass::new("30-d").is_err()
                && PayloadClass::new("envelope").is_err()
        );
        assert!(Method::new("POST").is_ok() && Method::new("post").is_err());
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sha256Hex::of(b"").as_str(), empty);
        assert_eq!(Digest::sha256(b"").as_str(), format!("sha256:{empty}"));
        assert!(Digest::new(empty).is_err() && Digest::new(format!("md5:{empty}")).is_err());
    }
}
