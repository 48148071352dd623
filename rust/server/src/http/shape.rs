//! Records as JSON objects: the form of `falaj cat --json`, which `falaj append --json` reads again.
//!
//! A member holds text; bytes that are not UTF-8 stand in a member `…_base64` instead. In a topic of JSON, `value` is the
//! document itself, as it was written.

use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use falaj::{RecordBatch, RecordRef};
use serde::de::IgnoredAny;

use super::problem::exact;

/// Bytes of a line besides what is in it: the names of its members, its numbers.
const FRAME: usize = 256;
/// Bytes of a header besides its name and value.
const HEADER: usize = 48;
/// Bytes that JSON makes of one: `\u0000`.
const ESCAPED: usize = 6;

/// A record, to be written as one line of JSON.
///
/// It is written where it will be sent from: a large record costs no second copy.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// Name of its topic.
    pub topic: &'a str,
    /// True for a topic of JSON documents.
    pub is_json: bool,
    /// Where the record is.
    pub batch: &'a RecordBatch,
    /// Which one it is.
    pub at: &'a RecordRef,
    /// Members that come first, each with a comma behind it.
    pub before: &'a str,
}

impl Line<'_> {
    /// Return an upper bound of its length, quickly.
    pub fn most(&self) -> usize {
        let len = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let headers = self.batch.headers(self.at);
        let headers: usize =
            headers.map(|(name, value)| (name.len() + len(value)) * ESCAPED + HEADER).sum();
        let fields = len(self.batch.key(self.at)) + len(self.batch.value(self.at));
        FRAME + self.before.len() + (self.topic.len() + fields) * ESCAPED + headers
    }

    /// Count its bytes.
    pub fn len(&self) -> usize {
        let mut count = Count(0);
        self.put(&mut count).map_or(usize::MAX, |()| count.0)
    }

    /// Write it.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.put(out).expect("a vector takes all bytes");
    }

    fn put(&self, out: &mut impl Write) -> io::Result<()> {
        let (batch, at) = (self.batch, self.at);
        let offset = exact(batch.offset(at));
        let (before, topic) = (self.before, self.topic);
        write!(out, "{{{before}\"topic\":\"{topic}\",\"partition\":{}", batch.partition())?;
        write!(out, ",\"offset\":{offset},\"time\":\"{}\",", iso(batch.timestamp_ns(at)))?;
        member(out, "key", batch.key(at))?;
        let mut between = ",\"headers\":[";
        for (name, value) in batch.headers(at) {
            out.write_all(between.as_bytes())?;
            out.write_all(b"{\"name\":")?;
            serde_json::to_writer(&mut *out, name)?;
            out.write_all(b",")?;
            member(out, "value", value)?;
            out.write_all(b"}")?;
            between = ",";
        }
        if between == "," {
            out.write_all(b"]")?;
        }
        out.write_all(b",")?;
        match batch.value(at) {
            None => out.write_all(b"\"tombstone\":true,\"value\":null")?,
            Some(raw) if self.is_json => match document(raw) {
                Some(text) => {
                    out.write_all(b"\"value\":")?;
                    // A line end in JSON is only space: inside text it is escaped.
                    for (i, line) in text.split(['\n', '\r']).enumerate() {
                        out.write_all(if i > 0 { b" " } else { b"" })?;
                        out.write_all(line.as_bytes())?;
                    }
                }
                None => in_base64(out, "value", raw)?,
            },
            raw => member(out, "value", raw)?,
        }
        out.write_all(b"}\n")
    }
}

/// The text of a JSON document; `None` where it is none.
fn document(raw: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(raw).ok()?.trim_matches([' ', '\t', '\n', '\r']);
    serde_json::from_str::<IgnoredAny>(text).ok().map(|_| text)
}

fn member(out: &mut impl Write, name: &str, raw: Option<&[u8]>) -> io::Result<()> {
    match raw.map(|raw| (std::str::from_utf8(raw), raw)) {
        None => write!(out, "\"{name}\":null"),
        Some((Ok(text), _)) => {
            write!(out, "\"{name}\":")?;
            Ok(serde_json::to_writer(out, text)?)
        }
        Some((Err(_), raw)) => in_base64(out, name, raw),
    }
}

fn in_base64(out: &mut impl Write, name: &str, raw: &[u8]) -> io::Result<()> {
    write!(out, "\"{name}_base64\":\"{}\"", Base64Display::new(raw, &STANDARD))
}

/// Counts bytes, and keeps none.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A time in ISO 8601, UTC, with as many digits of a second as it needs.
pub fn iso(ns: i64) -> String {
    let (seconds, fraction) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let digits = match fraction {
        0 => String::new(),
        _ => format!(".{fraction:09}").trim_end_matches('0').to_owned(),
    };
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{digits}Z")
}

/// The date of a day since 1970 in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Count from a March 1st, so that a leap day is the last day of its year: 146,097 days in 400 years, and five
    // months of 153 days in a row.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Read a time in that form, nanoseconds since 1970; `None` where it is none, or out of range.
pub fn parse_iso(text: &str) -> Option<i64> {
    let number = |text: &str, digits: usize| -> Option<i64> {
        let is_whole = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        is_whole.then(|| text.parse().ok()).flatten()
    };
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut date = date.splitn(3, '-');
    let (year, month, day) =
        (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let mut time = time.splitn(3, ':');
    let (hour, minute, second) =
        (number(time.next()?, 2)?, number(time.next()?, 2)?, number(time.next()?, 2)?);
    if fraction.is_empty() || fraction.len() > 9 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days(year, month, day);
    // A day that there is not would be another one.
    (civil(days) == (year, month, day)).then_some(())?;
    let fraction = number(fraction, fraction.len())? * 10_i64.pow(9 - fraction.len() as u32);
    let seconds = i128::from(days * 86_400 + hour * 3_600 + minute * 60 + second);
    i64::try_from(seconds * 1_000_000_000 + i128::from(fraction)).ok()
}

/// The day since 1970 of a date in the Gregorian calendar: [`civil`] turned round.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::{iso, parse_iso};

    #[test]
    fn times_are_what_the_calendar_says() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_500_000_000, "2024-02-29T23:59:59.5Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(iso(ns), text);
            assert_eq!(parse_iso(text), Some(ns), "{text}");
        }
    }

    #[test]
    fn a_time_that_there_is_not_is_none() {
        for text in [
            "",
            "2026-11-27",
            "2026-11-27T09:30:00",
            "2026-11-27 09:30:00Z",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-27T24:00:00Z",
            "2026-11-27T09:30:60Z",
            "2026-11-27T09:30:00.Z",
            "2026-11-27T09:30:00.1234567890Z",
            "2026-11-27T09:30:00.+1Z",
            "2026-11-27T9:30:00Z",
            "2262-04-11T23:47:16.854775808Z",
            "1677-09-21T00:12:43.145224191Z",
            "9999-99-99T99:99:99Z",
        ] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
    }
}
