//! Secrets by their shape. One pass over the bytes; only where a word starts are prefixes compared, and only at
//! `=` and `:` are their surroundings looked at, so that ordinary text costs about a nanosecond a byte.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::SecretKind;
use super::names::{is_placeholder, is_sensitive, mixes_like_random};

/// Part of a word: what tokens are made of.
const WORD: u8 = 1;
/// A byte that needs a look at its surroundings.
const MARK: u8 = 2;

const CLASS: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut b = 0;
    while b < 128 {
        let byte = b as u8;
        if byte.is_ascii_alphanumeric() {
            table[b] |= WORD;
        }
        if matches!(byte, b'=' | b':') {
            table[b] |= MARK;
        }
        b += 1;
    }
    table
};

/// Starts of the shapes that have no entry among the prefixes.
const OTHER_STARTS: [[u8; 2]; 13] = [
    *b"be", *b"bE", *b"Be", *b"BE", *b"ba", *b"bA", *b"Ba", *b"BA", *b"ey", *b"SG", *b"di", *b"ho",
    *b"--",
];

/// For each first byte, the second bytes with which a shape can start: one look ends nearly every word.
const STARTS: [u128; 128] = {
    let mut table = [0u128; 128];
    let mut i = 0;
    while i < OTHER_STARTS.len() {
        table[OTHER_STARTS[i][0] as usize] |= 1 << OTHER_STARTS[i][1];
        i += 1;
    }
    let mut i = 0;
    while i < PREFIXES.len() {
        table[PREFIXES[i].text[0] as usize] |= 1 << PREFIXES[i].text[1];
        i += 1;
    }
    table
};

/// The shortest secret without a prefix: 40 characters of an AWS key; a Telegram token has 44.
const LAYOUT_LEN_MIN: usize = 40;

/// A known prefix, the least length of what follows, what it may be made of, and whether it must hold a digit.
struct Prefix {
    text: &'static [u8],
    rest_min: usize,
    rest: fn(u8) -> bool,
    digit: bool,
    kind: SecretKind,
}

fn alnum(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}
fn word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')
}
fn capitals(b: u8) -> bool {
    b.is_ascii_uppercase() || b.is_ascii_digit()
}
fn hex(b: u8) -> bool {
    b.is_ascii_digit() || matches!(b, b'a'..=b'f')
}
fn base64ish(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-')
}

macro_rules! prefixes {
    ($( $text:literal $rest_min:literal $rest:ident $digit:literal $kind:ident; )*) => {
        &[$( Prefix { text: $text, rest_min: $rest_min, rest: $rest, digit: $digit, kind: SecretKind::$kind } ),*]
    };
}

const PREFIXES: &[Prefix] = prefixes! {
    b"ghp_" 20 alnum true ProviderToken;
    b"gho_" 20 alnum true ProviderToken;
    b"ghu_" 20 alnum true ProviderToken;
    b"ghs_" 20 alnum true ProviderToken;
    b"ghr_" 20 alnum true ProviderToken;
    b"github_pat_" 20 word true ProviderToken;
    b"glpat-" 20 word false ProviderToken;
    b"gldt-" 20 word false ProviderToken;
    b"glrt-" 20 word false ProviderToken;
    b"glptt-" 20 word false ProviderToken;
    b"xoxb-" 10 word true ProviderToken;
    b"xoxa-" 10 word true ProviderToken;
    b"xoxp-" 10 word true ProviderToken;
    b"xoxr-" 10 word true ProviderToken;
    b"xoxs-" 10 word true ProviderToken;
    b"xoxe-" 10 word true ProviderToken;
    b"xapp-" 10 word true ProviderToken;
    b"sk_live_" 10 alnum false ProviderToken;
    b"sk_test_" 10 alnum false ProviderToken;
    b"rk_live_" 10 alnum false ProviderToken;
    b"rk_test_" 10 alnum false ProviderToken;
    b"whsec_" 16 base64ish false SigningSecret;
    b"AKIA" 16 capitals false CloudKey;
    b"ASIA" 16 capitals false CloudKey;
    b"AIza" 35 word false ProviderToken;
    b"ya29." 20 word false ProviderToken;
    b"sk-ant-" 16 word true ProviderToken;
    b"sk-proj-" 16 word true ProviderToken;
    b"sk-" 20 word true ProviderToken;
    b"npm_" 30 alnum true ProviderToken;
    b"pypi-AgE" 30 word true ProviderToken;
    b"dop_v1_" 40 hex true ProviderToken;
    b"doo_v1_" 40 hex true ProviderToken;
    b"dor_v1_" 40 hex true ProviderToken;
    b"SK" 32 hex true ProviderToken;
    b"hf_" 30 alnum false ProviderToken;
    b"shpat_" 32 hex true ProviderToken;
    b"shpss_" 32 hex true SigningSecret;
    b"lin_api_" 30 alnum true ProviderToken;
    b"sq0atp-" 20 word true ProviderToken;
    b"sq0csp-" 20 word true SigningSecret;
    b"AGE-SECRET-KEY-" 20 capitals true PrivateKey;
    b"AGE-PLUGIN-" 20 base64ish false PrivateKey;
    b"hvs." 20 word true ProviderToken;
};

/// Looks at one text.
pub(super) fn scan(text: &[u8]) -> Option<SecretKind> {
    let mut in_word = false;
    for (at, &byte) in text.iter().enumerate() {
        let class = CLASS[usize::from(byte)];
        // A word starts where none was; `_` and `-` end one, so that `key_ghp_...` is seen too.
        let starts = class & WORD != 0 && !in_word || byte == b'-';
        in_word = class & WORD != 0;
        let found = if starts {
            at_word(text, at)
        } else if class & MARK != 0 {
            at_mark(text, at)
        } else {
            continue;
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn run(text: &[u8], allowed: fn(u8) -> bool) -> usize {
    text.iter().position(|&b| !allowed(b)).unwrap_or(text.len())
}

fn starts_with_ignore_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[inline]
fn at_word(text: &[u8], at: usize) -> Option<SecretKind> {
    let here = &text[at..];
    let &[first, second, ..] = here else {
        return None;
    };
    let known = STARTS
        .get(usize::from(first))
        .is_some_and(|seconds| second < 128 && seconds >> second & 1 == 1);
    let standing_alone = at == 0 || !word(text[at - 1]);
    if known && let Some(kind) = by_prefix(here, standing_alone) {
        return Some(kind);
    }
    if standing_alone && here.len() >= LAYOUT_LEN_MIN {
        by_layout(here)
    } else {
        None
    }
}

fn by_prefix(here: &[u8], standing_alone: bool) -> Option<SecretKind> {
    let found = match here {
        [b'-', ..] => return pem(here),
        [b'b' | b'B', b'e' | b'E', ..] if starts_with_ignore_case(here, b"bearer ") => {
            bearer(&here[7..])
        }
        [b'b' | b'B', b'a' | b'A', ..] if starts_with_ignore_case(here, b"basic ") => {
            basic(&here[6..])
        }
        [b'e', b'y', b'J', ..] => jwt(here),
        [b'S', b'G', b'.', ..] => sendgrid(here),
        [b'd' | b'h', ..] => webhook_url(here),
        _ => None,
    };
    found.or_else(|| {
        PREFIXES
            .iter()
            .find(|prefix| is_token(here, prefix, standing_alone))
            .map(|prefix| prefix.kind)
    })
}

fn is_token(here: &[u8], prefix: &Prefix, standing_alone: bool) -> bool {
    // Compared by the first byte before all of it: nearly every word ends here.
    if here[0] != prefix.text[0] || !here.starts_with(prefix.text) {
        return false;
    }
    // Two letters or `sk-` are too little to go by inside another name.
    if prefix.text.len() <= 3 && !standing_alone {
        return false;
    }
    let rest = &here[prefix.text.len()..];
    let len = run(rest, prefix.rest);
    let exact = prefix.text != b"SK" || len == 32 && !rest.get(32).copied().is_some_and(word);
    // `sk-` starts names of several words as well; a token has a long part without a hyphen.
    let solid = prefix.text != b"sk-"
        || rest[..len]
            .split(|&b| b == b'-')
            .any(|part| part.len() >= 16);
    len >= prefix.rest_min
        && exact
        && solid
        && (!prefix.digit || rest[..len].iter().any(u8::is_ascii_digit))
}

fn pem(here: &[u8]) -> Option<SecretKind> {
    if !here.starts_with(b"-----BEGIN ") {
        return None;
    }
    let line = &here[..here.len().min(80)];
    line.windows(11)
        .any(|window| window == b"PRIVATE KEY")
        .then_some(SecretKind::PrivateKey)
}

fn bearer(rest: &[u8]) -> Option<SecretKind> {
    let rest = rest.trim_ascii_start();
    let len = run(rest, |b| {
        b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b)
    });
    let digit = rest[..len].iter().any(u8::is_ascii_digit);
    (len >= 24 || len >= 8 && digit).then_some(SecretKind::BearerToken)
}

fn basic(rest: &[u8]) -> Option<SecretKind> {
    let rest = rest.trim_ascii_start();
    let token = &rest[..run(rest, base64ish)];
    let decoded = STANDARD
        .decode(token)
        .or_else(|_| STANDARD_NO_PAD.decode(token))
        .ok()?;
    // Words decode to noise; credentials decode to text with a colon.
    let pair =
        decoded.contains(&b':') && !decoded.iter().any(u8::is_ascii_control) && decoded.len() >= 3;
    (pair && std::str::from_utf8(&decoded).is_ok()).then_some(SecretKind::BasicCredentials)
}

fn jwt(here: &[u8]) -> Option<SecretKind> {
    let first = run(here, word);
    let rest = here.get(first..)?.strip_prefix(b".")?;
    let second = run(rest, word);
    let third = rest.get(second..)?.starts_with(b".");
    (first >= 12 && third).then_some(SecretKind::Jwt)
}

fn sendgrid(here: &[u8]) -> Option<SecretKind> {
    let rest = here.get(3..)?;
    let first = run(rest, word);
    let second = run(rest.get(first..)?.strip_prefix(b".")?, word);
    (first >= 16 && second >= 16).then_some(SecretKind::ProviderToken)
}

/// URLs that give access to whoever knows them.
fn webhook_url(here: &[u8]) -> Option<SecretKind> {
    let path = |prefix: &[u8]| here.strip_prefix(prefix);
    if let Some(rest) = path(b"hooks.slack.com/") {
        let known = [&b"services/"[..], b"workflows/", b"triggers/"];
        let rest = known.iter().find_map(|start| rest.strip_prefix(*start))?;
        return (run(rest, base64ish) >= 20).then_some(SecretKind::EndpointToken);
    }
    let rest =
        path(b"discord.com/api/webhooks/").or_else(|| path(b"discordapp.com/api/webhooks/"))?;
    let id = run(rest, |b| b.is_ascii_digit());
    let token = run(rest.get(id..)?.strip_prefix(b"/")?, word);
    (id > 0 && token >= 20).then_some(SecretKind::EndpointToken)
}

/// Tokens without a prefix of their own: Telegram and Discord bots, AWS secret keys.
fn by_layout(here: &[u8]) -> Option<SecretKind> {
    // No part is longer than 40: a long digest ends the look early.
    let near = &here[..here.len().min(LAYOUT_LEN_MIN + 1)];
    let first = run(near, alnum);
    let next = near.get(first);
    if (8..=10).contains(&first)
        && next == Some(&b':')
        && near[..first].iter().all(u8::is_ascii_digit)
        && run(&here[first + 1..], word) == 35
    {
        return Some(SecretKind::ProviderToken);
    }
    if (23..=28).contains(&first) && next == Some(&b'.') && mixes_like_random(&here[..first]) {
        let rest = &here[first + 1..];
        let second = run(rest, word);
        let third = rest
            .get(second..)
            .and_then(|rest| rest.strip_prefix(b"."))
            .map_or(0, |rest| run(rest, word));
        if second == 6 && third >= 27 {
            return Some(SecretKind::ProviderToken);
        }
    }
    let secret = first
        + run(&near[first..], |b| {
            b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/')
        });
    let ends = !here
        .get(secret)
        .is_some_and(|&b| word(b) || b == b'=' || b == b'.');
    // Without a `/` or `+` it is as likely an opaque id of 40 characters; three keys in four have one.
    let key =
        |token: &[u8]| token.iter().any(|&b| b == b'/' || b == b'+') && mixes_like_random(token);
    (secret == LAYOUT_LEN_MIN && ends && key(&here[..LAYOUT_LEN_MIN]))
        .then_some(SecretKind::CloudKey)
}

fn at_mark(text: &[u8], at: usize) -> Option<SecretKind> {
    match text[at] {
        b'=' => assignment(text, at),
        b':' if text[at..].starts_with(b"://") => userinfo(&text[at + 3..]),
        b':' => labelled(text, at),
        _ => None,
    }
}

fn name_before(text: &[u8], end: usize) -> &[u8] {
    let start = text[..end]
        .iter()
        .rposition(|&b| !word(b))
        .map_or(0, |before| before + 1);
    &text[start..end]
}

/// `name=value`, in a query or in prose.
fn assignment(text: &[u8], at: usize) -> Option<SecretKind> {
    let name = name_before(text, at);
    let before = at.checked_sub(name.len() + 1).map(|before| text[before]);
    let in_query = matches!(before, Some(b'?' | b'&' | b'#' | b';'));
    let value = &text[at + 1..];
    (!name.is_empty() && is_sensitive(name, in_query) && !is_placeholder(value))
        .then_some(SecretKind::SensitiveValue)
}

/// `password: value` and `"api_key":"value"`; prose such as "secret: none was found" is told by its second word.
fn labelled(text: &[u8], at: usize) -> Option<SecretKind> {
    let end = if at > 0 && text[at - 1] == b'"' {
        at - 1
    } else {
        at
    };
    if !is_sensitive(name_before(text, end), false) {
        return None;
    }
    let value = text[at + 1..].trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let len = run(value, |b| b.is_ascii_graphic() && b != b'"');
    let looks = len >= 6 && value[..len].iter().any(|b| b.is_ascii_digit());
    (looks && !is_placeholder(value)).then_some(SecretKind::SensitiveValue)
}

/// `user:password@` or `token@` behind `://`.
fn userinfo(rest: &[u8]) -> Option<SecretKind> {
    let authority = &rest[..run(rest, |b| {
        !matches!(b, b'/' | b'?' | b'#' | b' ' | b'"' | b'\n')
    })];
    let user = &authority[..authority.iter().rposition(|&b| b == b'@')?];
    // `ssh://git@host` names a role that everybody knows.
    (!user.is_empty() && user != b"git" && !is_placeholder(user)).then_some(SecretKind::UrlUserinfo)
}
