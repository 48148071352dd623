//! Records as JSON objects: the form of `falaj cat --json`, which `falaj append --json` reads again.
//!
//! A member holds text; bytes that are not UTF-8 stand in a member `…_base64` instead. In a topic of JSON, `value` is the
//! document itself, as it was written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj::{RecordBatch, RecordRef};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::problem::exact;

/// Append a record as one line of JSON.
pub fn write_line(
    out: &mut Vec<u8>,
    topic: &str,
    is_json: bool,
    batch: &RecordBatch,
    at: &RecordRef,
) {
    let mut members = Map::new();
    members.insert("topic".to_owned(), topic.into());
    members.insert("partition".to_owned(), batch.partition().into());
    members.insert("offset".to_owned(), exact(batch.offset(at)));
    members.insert("time".to_owned(), iso(batch.timestamp_ns(at)).into());
    put(&mut members, "key", batch.key(at));
    let headers: Vec<Value> = batch
        .headers(at)
        .map(|(name, value)| {
            let mut header = Map::new();
            header.insert("name".to_owned(), name.into());
            put(&mut header, "value", value);
            header.into()
        })
        .collect();
    if !headers.is_empty() {
        members.insert("headers".to_owned(), headers.into());
    }
    let value = batch.value(at);
    if value.is_none() {
        members.insert("tombstone".to_owned(), json!(true));
    }
    let document = value.filter(|_| is_json).and_then(|raw| std::str::from_utf8(raw).ok());
    let document = document.and_then(|text| RawValue::from_string(text.trim().to_owned()).ok());
    match (document, value) {
        (Some(document), _) => {
            out.extend_from_slice(&open(&members));
            out.extend_from_slice(b",\"value\":");
            // A line end in JSON is only space: inside text it is escaped.
            out.extend(
                document
                    .get()
                    .bytes()
                    .map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }),
            );
            out.extend_from_slice(b"}\n");
            return;
        }
        (None, Some(raw)) if is_json => {
            drop(members.insert("value_base64".to_owned(), STANDARD.encode(raw).into()));
        }
        (None, value) => put(&mut members, "value", value),
    }
    out.extend_from_slice(&open(&members));
    out.extend_from_slice(b"}\n");
}

/// An object without its closing brace.
fn open(members: &Map<String, Value>) -> Vec<u8> {
    let mut text = serde_json::to_vec(members).expect("a map of values is JSON");
    text.pop();
    text
}

fn put(members: &mut Map<String, Value>, name: &str, raw: Option<&[u8]>) {
    match raw.map(|raw| (std::str::from_utf8(raw), raw)) {
        None => members.insert(name.to_owned(), Value::Null),
        Some((Ok(text), _)) => members.insert(name.to_owned(), text.into()),
        Some((Err(_), raw)) => {
            members.insert(format!("{name}_base64"), STANDARD.encode(raw).into())
        }
    };
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

#[cfg(test)]
mod tests {
    use super::iso;

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
        }
    }
}
