//! JSON documents that a topic of the codec json may hold.
//!
//! The text is stored as it came, and every program that reads it makes values of it. So text whose value the codec
//! would refuse is refused here, too: other programs could not read it. A record that was dumped from a topic may
//! hold what the codec would not take as a value today, as long as it can be read.

use serde::de::IgnoredAny;

/// Most lists and objects within each other in a value.
const DEEPEST: usize = 128;
/// Most of them in a record that was dumped: Python reads a few more.
const DEEPEST_READABLE: usize = 900;
/// Most digits of a whole number that Python reads.
const DIGITS: usize = 4300;

/// From where a document comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is a new value.
    Value,
    /// It was stored before, and dumped.
    Dump,
}

/// Check that text is a JSON document, whatever it holds.
pub fn expect_json(text: &str) -> Result<(), String> {
    let document = serde_json::from_str::<IgnoredAny>(text);
    document.map(drop).map_err(|error| format!("is not JSON: {error}"))
}

/// Check that text is a JSON document that can be read again.
pub fn check(text: &str, origin: Origin) -> Result<(), String> {
    expect_json(text)?;
    if !is_odd(text.as_bytes()) {
        return Ok(());
    }
    Walk { text, bytes: text.as_bytes(), at: 0 }.walk(origin)
}

/// Return true for a document that may have a value which is refused. Few have, and the others are only searched.
fn is_odd(bytes: &[u8]) -> bool {
    let after = |at: usize| bytes.get(at + 1..).unwrap_or_default();
    let is_half = |at| matches!(after(at), [b'u', b'd' | b'D', ..]);
    let is_large = |at| {
        let digits = after(at).strip_prefix(b"+").unwrap_or(after(at));
        digits.get(..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
    };
    memchr::memchr_iter(b'\\', bytes).any(is_half)
        || memchr::memchr2_iter(b'e', b'E', bytes).any(is_large)
        || memchr::memchr2_iter(b'[', b'{', bytes).nth(DEEPEST).is_some()
        // A run of twice as many digits fills one of these.
        || bytes.chunks_exact(100).any(|part| part.iter().all(u8::is_ascii_digit))
}

/// Walks over a text that is known to be JSON, so that only what matters has to be looked at.
struct Walk<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn walk(mut self, origin: Origin) -> Result<(), String> {
        let deepest = if origin == Origin::Value { DEEPEST } else { DEEPEST_READABLE };
        let mut depth = 0;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => self.string(origin)?,
                b'-' | b'0'..=b'9' => self.number(origin)?,
                b'[' | b'{' if depth == deepest => {
                    return Err(format!("holds lists or objects more than {deepest} deep"));
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Go to the last byte of a string.
    fn string(&mut self, origin: Origin) -> Result<(), String> {
        let mut half = None;
        loop {
            self.at += 1;
            let rest = &self.bytes[self.at..];
            let plain = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            self.at += plain;
            let unit = self.escaped_unit();
            // A second half follows the first one at once.
            let is_pair = plain == 0 && half.is_some() && is_second(unit);
            if origin == Origin::Value && !is_pair && (half.is_some() || is_second(unit)) {
                let alone = half.or(unit).unwrap_or_default();
                return Err(format!(
                    "has half a character, \\u{alone:04x}, which no text of UTF-8 can have"
                ));
            }
            half = unit.filter(|_| !is_pair && is_first(unit));
            match self.bytes.get(self.at) {
                Some(b'\\') => self.at += if unit.is_some() { 5 } else { 1 },
                _ => return Ok(()),
            }
        }
    }

    /// Return the unit of UTF-16 that is escaped here.
    fn escaped_unit(&self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    }

    /// Go to the last byte of a number.
    fn number(&mut self, origin: Origin) -> Result<(), String> {
        let rest = &self.bytes[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.iter().take_while(|byte| is_part(byte)).count();
        let number = &self.text[self.at..self.at + len];
        self.at += len - 1;
        let is_whole = !number.contains(['.', 'e', 'E']);
        let digits = number.trim_start_matches('-').len();
        if is_whole && digits > DIGITS {
            return Err(format!(
                "has a whole number of {digits} digits, and Python reads up to {DIGITS} of them: write it as text"
            ));
        }
        let is_finite = || number.parse::<f64>().is_ok_and(f64::is_finite);
        if origin == Origin::Value && !is_whole && !is_finite() {
            let shown = number.get(..40).map_or_else(|| number.into(), |some| format!("{some}…"));
            return Err(format!(
                "has {shown}, which is larger than any number of 64 bits: write it as text"
            ));
        }
        Ok(())
    }
}

fn is_first(unit: Option<u16>) -> bool {
    unit.is_some_and(|unit| (0xd800..0xdc00).contains(&unit))
}

fn is_second(unit: Option<u16>) -> bool {
    unit.is_some_and(|unit| (0xdc00..0xe000).contains(&unit))
}

#[cfg(test)]
mod tests {
    use super::{Origin, check};

    fn nested(depth: usize) -> String {
        "[".repeat(depth) + &"]".repeat(depth)
    }

    #[test]
    fn what_the_codec_takes_is_taken() {
        let whole = format!("-{}", "9".repeat(4300));
        let most = nested(128);
        let taken = [
            "1e308",
            "-1.5E-999",
            "[1, -2, 0.5]",
            r#""\ud83d\ude00 \\ud800 \" \u00e9""#,
            " null ",
            r#"{"a\\": {"b": "\\\\"}, "\ud83d\ude00": [true]}"#,
            &whole,
            &most,
            "\"e9 [[[\"",
        ];
        for text in taken {
            assert_eq!(check(text, Origin::Value), Ok(()), "{text}");
            assert_eq!(check(text, Origin::Dump), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_the_codec_refuses_is_taken_only_from_a_dump() {
        let (wide, wider) = (format!("{}.5", "1".repeat(400)), format!("{}e99", "9".repeat(250)));
        let deep = nested(129);
        let refused = [
            ("1e999", "1e999, which is larger"),
            ("{\"a\": [1, -1E+400]}", "-1E+400"),
            (&wide, "larger"),
            (&wider, "larger"),
            (r#""\ud800""#, r"\ud800"),
            (r#""a\uDC00""#, r"\udc00"),
            (r#""\ud800x\udc00""#, r"\ud800"),
            (r#""\ud800\n""#, r"\ud800"),
            (r#""\ud800\ud800\udc00""#, r"\ud800"),
            (r#""\ud83d\ude00\ude00""#, r"\ude00"),
            (r#"{"\ud800": 1}"#, r"\ud800"),
            (&deep, "more than 128 deep"),
        ];
        for (text, part) in refused {
            let why = check(text, Origin::Value).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
            assert_eq!(check(text, Origin::Dump), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_from_a_dump_too() {
        let (long, deep) = ("1".repeat(4301), nested(901));
        for (text, part) in [(long.as_str(), "4301 digits"), (&deep, "900 deep"), ("{", "not JSON")]
        {
            for origin in [Origin::Value, Origin::Dump] {
                let part =
                    if origin == Origin::Value { part.trim_start_matches("900 ") } else { part };
                let why = check(text, origin).unwrap_err();
                assert!(why.contains(part), "{why}");
            }
        }
    }
}
