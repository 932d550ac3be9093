//! Text from a hostile ledger or file name, made harmless for terminals and pages.

/// Printable ASCII as it is; everything else, control and direction characters above all, as
/// `\u{..}`, so that nothing can move the cursor, colour or reorder what is read.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ' '..='~') {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    out
}

/// As [`plain`], and without anything that HTML reads as markup.
pub(crate) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// As [`plain`], and without anything that Markdown reads as markup.
pub(crate) fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        if matches!(
            c,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '!' | '~'
        ) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_hostile_name_reaches_a_terminal() {
        let hostile = "a\u{1b}[31mred\u{202e}txt\r\n\u{7}";
        assert_eq!(
            plain(hostile),
            "a\\u{1b}[31mred\\u{202e}txt\\u{d}\\u{a}\\u{7}"
        );
        assert_eq!(html("<b a='1'>&\""), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;");
        assert_eq!(markdown("[a](b)|`c`"), "\\[a\\](b)\\|\\`c\\`");
    }
}
