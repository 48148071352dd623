//! Durations and sizes as people write them: `5s`, `64MiB`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A length of time, written as a number and one of `ms`, `s`, `m`, `h`, `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

const SPANS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A number of bytes, written as a number and one of `B`, `KiB`, `MiB`, `GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub u64);

const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Span {
    /// Seconds.
    pub const fn s(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl Bytes {
    /// Mebibytes.
    pub const fn mib(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    /// The number, for what counts in `usize`.
    pub fn get(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Read a number and its unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// Write a number with the largest unit that leaves it whole.
fn write(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    let whole = units.iter().rev().find(|(_, scale)| number.is_multiple_of(*scale));
    let (name, scale) = whole.filter(|_| number > 0).unwrap_or(&units[0]);
    write!(f, "{}{name}", number / scale)
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let ms = parse(&text, &SPANS);
        let help = || {
            format!(
                "{text:?} is no length of time; write a number and ms, s, m, h or d, as in \"5s\""
            )
        };
        ms.map(Duration::from_millis).map(Self).ok_or_else(help)
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let help = || {
            format!("{text:?} is no size; write a number and B, KiB, MiB or GiB, as in \"64MiB\"")
        };
        parse(&text, &SIZES).map(Self).ok_or_else(help)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &SPANS)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, &SIZES)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        bytes.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Span};

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["0ms", "1ms", "1500ms", "5s", "2m", "36h", "1d"] {
            assert_eq!(Span::try_from(text.to_owned()).unwrap().to_string(), text);
        }
        for text in ["0B", "1B", "1KiB", "1025B", "64MiB", "3GiB"] {
            assert_eq!(Bytes::try_from(text.to_owned()).unwrap().to_string(), text);
        }
        assert_eq!(Span::try_from("60s".to_owned()).unwrap().to_string(), "1m");
    }

    #[test]
    fn what_has_no_unit_or_no_number_is_refused_with_an_example() {
        for text in
            ["", "5", "s", "-5s", "5 parsecs", "1.5s", "99999999999999999999s", "9999999999999999d"]
        {
            assert!(Span::try_from(text.to_owned()).unwrap_err().contains("\"5s\""), "{text}");
        }
        for text in ["", "5", "MiB", "5MB", "99999999999GiB"] {
            assert!(Bytes::try_from(text.to_owned()).unwrap_err().contains("\"64MiB\""), "{text}");
        }
    }
}
