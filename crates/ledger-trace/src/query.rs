//! What is asked for: a value, the digest of a body, or whatever somebody pasted.

use std::collections::HashSet;

use ledger_records::limits::IDENTIFIER_LEN_MAX;
use ledger_records::{IdKind, Identifier, Sha256Hex};

/// Characters of pasted text that are looked at.
const PASTED_LEN_MAX: usize = 1 << 20;
/// Tokens that are tried.
const TOKENS_MAX: usize = 512;
/// Shorter words are not tried: every text is full of them.
const TOKEN_LEN_MIN: usize = 3;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The values to try.
    pub(crate) values: Vec<String>,
    /// Only identifiers of this kind.
    pub(crate) kind: Option<IdKind>,
    /// Only identifiers of this scope.
    pub(crate) scope: Option<String>,
    /// Whether the values are the words of a text: then most of them mean nothing.
    pub(crate) is_pasted: bool,
}

impl Query {
    /// The story behind one value, whatever kind of identifier it is.
    #[must_use]
    pub fn value(value: impl Into<String>) -> Self {
        Self {
            values: vec![value.into()],
            kind: None,
            scope: None,
            is_pasted: false,
        }
    }

    /// The story behind the delivery of exactly these bytes.
    #[must_use]
    pub fn body(bytes: &[u8]) -> Self {
        Self::value(Sha256Hex::of(bytes).as_str()).of_kind(IdKind::RawBodySha256)
    }

    /// The story behind any identifier in a text: a log line, a mail, a ticket.
    ///
    /// ```
    /// use ledger_trace::Query;
    /// let query = Query::pasted(r#"failed: {"operation": "op_9f2"} see https://ci/act_01?x=1"#);
    /// assert!(query.values().contains(&"op_9f2".to_owned()));
    /// assert!(query.values().contains(&"act_01".to_owned()));
    /// ```
    #[must_use]
    pub fn pasted(text: &str) -> Self {
        Self {
            values: tokens(text),
            kind: None,
            scope: None,
            is_pasted: true,
        }
    }

    /// Only as an identifier of this kind.
    #[must_use]
    pub fn of_kind(mut self, kind: IdKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only within this scope: the provider's name, for kinds that a provider makes.
    #[must_use]
    pub fn within(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// The values that are tried.
    #[must_use]
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether a value can be an identifier at all.
    pub(crate) fn is_possible(value: &str) -> bool {
        !value.is_empty() && value.len() <= IDENTIFIER_LEN_MAX
    }

    pub(crate) fn fits(&self, id: &Identifier) -> bool {
        self.kind.is_none_or(|kind| kind == id.kind)
            && self.scope.as_ref().is_none_or(|scope| *scope == id.scope)
    }
}

/// The words of a text, whole and in parts, each once, in their order.
fn tokens(text: &str) -> Vec<String> {
    let text = text
        .char_indices()
        .nth(PASTED_LEN_MAX)
        .map_or(text, |(end, _)| &text[..end]);
    let quotes = |c: char| c.is_whitespace() || c.is_control() || "\"'`<>()[]{},;|".contains(c);
    // A value may hold a colon or a slash itself, so the parts are cut twice: first at what no id has.
    let outer = |c: char| "=?&#".contains(c);
    let inner = |c: char| "=?&#:/@".contains(c);
    let edges: &[char] = &['.', '!', '?', ':', '=', '*', '#', '/', '\\', '$', '&'];
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for word in text.split(quotes) {
        let word = word.trim_matches(edges);
        for token in std::iter::once(word)
            .chain(word.split(outer))
            .chain(word.split(inner))
        {
            let token = token.trim_matches(edges);
            let fits = (TOKEN_LEN_MIN..=IDENTIFIER_LEN_MAX).contains(&token.len());
            if fits && seen.insert(token) {
                found.push(token.to_owned());
            }
            if found.len() == TOKENS_MAX {
                return found;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_tried_whole_and_in_parts() {
        let found = tokens(
            "2026-11-30 ERROR callback rcp_02: grant=build:start, (evt_88). <https://h.example/v1/op_9f2?x=1>",
        );
        for want in ["rcp_02", "build:start", "evt_88", "op_9f2", "2026-11-30"] {
            assert!(found.iter().any(|t| t == want), "{want} in {found:?}");
        }
        assert!(found.iter().all(|t| t.len() >= TOKEN_LEN_MIN));
    }

    #[test]
    fn a_long_paste_is_bounded() {
        let text: String = (0..5_000).map(|i| format!("w{i:05} ")).collect();
        assert_eq!(tokens(&text).len(), TOKENS_MAX);
        assert!(tokens(&"x".repeat(5_000)).is_empty());
        assert!(tokens("  ,;\n").is_empty());
    }

    #[test]
    fn a_body_is_found_by_its_digest_only() {
        let query = Query::body(b"");
        assert_eq!(query.kind, Some(IdKind::RawBodySha256));
        assert!(query.values[0].starts_with("e3b0c442"));
    }
}
