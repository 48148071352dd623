//! The parsers of requests, as functions of bytes: see [`crate::foreign`].

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::extract::Query;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::append::{AppendQuery, number, producer};
use super::bodies::{Form, Records};
use super::body::{Whole, coding, decode};
use super::compress::Coding;
use super::place::{self, GetQuery, ListQuery, Part};
use super::queue_admin::PutQuery;
use super::read::ReadQuery;
use super::shape::{iso, parse_iso};
use super::{events, gate, groups, queue_admin, queues, together, topics};
use crate::access::{Access, Principal, Principals};
use crate::config::Limits;
use crate::config::units::Bytes;
use crate::place::{KEY_BYTES_MAX, check_key, check_prefix};
use crate::store::read::{Reads, Share};

/// Bytes that a target may take.
const BUDGET: usize = 1 << 20;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn share() -> (Reads, Share) {
    let reads = Reads::new(BUDGET);
    // There is enough of it, so nothing has to wait.
    let taken = pin!(reads.take(1)).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(share) = taken else { unreachable!("a new budget has a share") };
    (reads, share)
}

fn limits() -> Limits {
    Limits { record: Bytes(1 << 10), batch: 100, ..Limits::default() }
}

fn open() -> Principal {
    let open = Access::new(true, None, Principals::default());
    open.authenticate(None).expect("an open server knows every client")
}

/// The queries of appends and reads.
pub fn queries(address: &Uri) {
    let _ = Query::<AppendQuery>::try_from_uri(address);
    if let Ok(Query(query)) = Query::<PutQuery>::try_from_uri(address) {
        let _ = query.not_before();
    }
    let _ = Query::<ListQuery>::try_from_uri(address);
    let _ = Query::<GetQuery>::try_from_uri(address);
    if let Ok(Query(query)) = Query::<ReadQuery>::try_from_uri(address) {
        let _ = query.start();
    }
}

/// The id of an event.
pub fn event_id(bytes: &[u8]) {
    let id = text(bytes);
    for partitions in [&[0][..], &[0, 1], &[3]] {
        if let Ok(offsets) = events::resume(id, "00112233aabbccdd", partitions) {
            assert_eq!(offsets.len(), partitions.len());
        }
    }
}

/// A time.
pub fn time(bytes: &[u8]) {
    if let Some(ns) = parse_iso(text(bytes)) {
        assert_eq!(parse_iso(&iso(ns)), Some(ns));
    }
}

/// The headers of a request.
pub fn headers(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(100) {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..at], line.get(at + 1..).unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    if let Ok(Some(token)) = gate::bearer(&headers) {
        assert_eq!(headers.get_all("authorization").iter().count(), 1, "{token}");
    }
    let (_, _) = (coding(&headers), number(&headers, "if-next"));
    let _ = Coding::accepted(&headers);
    let of = open();
    if let Ok(Some((name, _))) = producer(&headers, &of) {
        assert!(name.starts_with("open/"), "{name}");
    }
}

/// A compressed body.
pub fn compressed(bytes: &[u8]) {
    for name in ["gzip", "zstd"] {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", HeaderValue::from_static(name));
        let (reads, mut share) = share();
        let coding = coding(&headers).expect("a coding that there is");
        if let Ok(decoded) = decode(coding, bytes, bytes.len(), Bytes(64 << 10), &mut share) {
            assert!(decoded.len() <= 64 << 10);
        }
        assert!(reads.in_flight() <= BUDGET);
    }
}

/// Records, in the form and for the codec that the first byte chooses.
pub fn bodies(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let forms = [Form::JsonLines, Form::Objects, Form::TextLines, Form::Json, Form::Raw];
    let codecs = ["bytes", "json", "str", "msgpack"];
    let choice = usize::from(*choice);
    let (form, codec) = (forms[choice % forms.len()], codecs[choice / forms.len() % codecs.len()]);
    let (reads, share) = share();
    let body = Whole::new(rest.to_vec(), share);
    if let Ok(records) = Records::read(body, form, codec, &limits()) {
        assert!(records.len() as u64 <= limits().batch);
        let each = records.each(|record, _| {
            let value = record.value.unwrap_or(b"0");
            assert!(value.len() <= 1 << 10);
            let is_text = std::str::from_utf8(value).is_ok();
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(value).is_ok();
            assert!(codec != "str" || is_text, "{}", value.escape_ascii());
            assert!(codec != "json" || (is_text && is_json), "{}", value.escape_ascii());
            assert!(record.value.is_some() || record.key.is_some(), "a tombstone has a key");
            Ok::<(), ()>(())
        });
        assert_eq!(each, Ok(()));
    }
    assert!(reads.in_flight() <= BUDGET);
}

/// The JSON documents that change topics and queues.
pub fn documents(bytes: &[u8]) {
    topics::parse_any(bytes);
    together::parse_any(bytes);
    groups::parse_any(bytes);
    queues::parse_any(bytes);
    queue_admin::parse_any(bytes);
    place::parse_any(bytes);
}

/// A key of the place and a range of its object, a line each.
pub fn objects(bytes: &[u8]) {
    let (key, range) = text(bytes).split_once('\n').unwrap_or((text(bytes), ""));
    if check_key(key).is_ok() {
        assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.contains('\0'), "{key:?}");
        assert!(key.split('/').all(|part| !part.is_empty() && !part.starts_with('.')), "{key:?}");
    }
    if let Ok(prefix) = check_prefix(key) {
        assert!(
            prefix.is_empty() || prefix.strip_suffix('/').is_some_and(|it| check_key(it).is_ok())
        );
    }
    for size in [0, 1, 1000, u64::MAX] {
        if let Part::Some(start, end) = place::part(range, size) {
            assert!(start < end && end <= size, "{range:?}");
        }
    }
}
