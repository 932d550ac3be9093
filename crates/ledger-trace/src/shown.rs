//! Text from records made harmless, wrapped, and times as people read them. Nothing here knows what a trace is.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Printable ASCII as it is, the backslash apart; everything else as `\u{..}`: nothing that a sender wrote can move the
/// cursor, colour the screen, break a line or turn the reading direction.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ' '..='~') && c != '\\' {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    out
}

/// JSON with the same meaning in ASCII: what is not, stands as `\uXXXX`.
pub(crate) fn ascii_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || matches!(c, ' '..='~') {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// Words in lines of at most `width` characters; a longer word is broken.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        let mut rest = word;
        while rest.len() > width {
            // ASCII by now: every byte is a character.
            let (head, tail) = rest.split_at(width);
            lines.push(head.to_owned());
            rest = tail;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(rest);
    }
    lines.push(line);
    lines
}

/// How times are shown.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    pub(crate) zone: TimeZone,
}

impl Clock {
    fn suffix(&self, at: Timestamp) -> String {
        if self.zone == TimeZone::UTC {
            return "Z".to_owned();
        }
        at.to_zoned_datetime(self.zone.clone())
            .strftime("%:z")
            .to_string()
    }

    /// `14:07:41Z`
    pub(crate) fn time(&self, at: Timestamp) -> String {
        let zoned = at.to_zoned_datetime(self.zone.clone());
        format!("{}{}", zoned.strftime("%H:%M:%S"), self.suffix(at))
    }

    /// `2026-11-30 14:07:41Z`; the text itself where it is no time.
    pub(crate) fn date_time(&self, text: &str) -> String {
        match text.parse::<Timestamp>() {
            Ok(at) => {
                let zoned = at.to_zoned_datetime(self.zone.clone());
                format!("{}{}", zoned.strftime("%Y-%m-%d %H:%M:%S"), self.suffix(at))
            }
            Err(_) => text.to_owned(),
        }
    }
}

/// `+0.02 s`, `+4m32 s`, `+2h03m`, `+3d04h`: how much later, or earlier.
pub(crate) fn distance(millis: i64) -> String {
    let sign = if millis < 0 { '-' } else { '+' };
    let ms = millis.unsigned_abs();
    let (s, m, h) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match ms {
        0..60_000 => format!("{sign}{s}.{:02} s", ms % 1000 / 10),
        60_000..3_600_000 => format!("{sign}{m}m{:02} s", s % 60),
        3_600_000..86_400_000 => format!("{sign}{h}h{:02}m", m % 60),
        _ => format!("{sign}{}d{:02}h", h / 24, h % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_read_well() {
        let cases = [
            (0, "+0.00 s"),
            (20, "+0.02 s"),
            (31_105, "+31.10 s"),
            (-1_200, "-1.20 s"),
            (272_000, "+4m32 s"),
            (7_380_000, "+2h03m"),
            (273_600_000, "+3d04h"),
            (i64::MIN, "-106751991167d07h"),
        ];
        for (millis, want) in cases {
            assert_eq!(distance(millis), want);
        }
    }

    #[test]
    fn lines_are_never_too_long_and_lose_nothing() {
        let text = format!("a bc {} d", "x".repeat(25));
        let lines = wrap(&text, 10);
        assert!(lines.iter().all(|line| line.len() <= 10), "{lines:?}");
        let joined: String = lines.concat();
        assert_eq!(joined.replace(' ', ""), text.replace(' ', ""));
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn times_are_shown_in_a_zone() {
        let utc = Clock {
            zone: TimeZone::UTC,
        };
        assert_eq!(
            utc.date_time("2026-11-30T15:07:41.2+01:00"),
            "2026-11-30 14:07:41Z"
        );
        let berlin = Clock {
            zone: TimeZone::fixed(jiff::tz::offset(1)),
        };
        assert_eq!(
            berlin.date_time("2026-11-30T23:30:00Z"),
            "2026-12-01 00:30:00+01:00"
        );
        assert_eq!(utc.date_time("yesterday"), "yesterday");
    }

    #[test]
    fn json_keeps_its_meaning_in_ascii() {
        let value = serde_json::json!({ "a\u{202e}": "x\u{9b}\u{7f}\u{1f600}\u{e4}" });
        let text = ascii_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(
            text.bytes()
                .all(|b| b == b'\n' || (b' '..=b'~').contains(&b)),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
