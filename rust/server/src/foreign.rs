//! Each parser of bytes that others wrote, as a function of bytes: what the fuzzer and its test feed.
//!
//! Owns the list of these parsers. A parser that is not in it is not fuzzed. Each target feeds one parser, and checks
//! what must hold whatever the bytes are: that nothing panics, and that what was accepted means what it says.

use std::net::IpAddr;

use axum::http::Uri;

use crate::access::{Browser, Principals, parse_token};
use crate::config::read_text;
use crate::config::units::{Bytes, Span};
use crate::http::foreign as http;

/// A parser and what feeds it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Feeds it. Panics where a parser has a mistake.
    pub feed: fn(&[u8]),
    /// Bytes that it accepts, so that mutations of them come far.
    pub seeds: &'static [&'static [u8]],
}

const fn target(name: &'static str, feed: fn(&[u8]), seeds: &'static [&'static [u8]]) -> Target {
    Target { name, feed, seeds }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    target("host", host, &[b"localhost:80\nhttp://localhost:80", b"[::1]:4437\nnull", b"127.0.0.1"]),
    target("queries", queries, &[b"partition=0&from=17&limit=3&wait=5s", b"at=2026-11-27T09:30:00Z&bytes=1", b"sync=durable&timeout=5s&create=false", b"delay=5s&sync=none", b"prefix=shop/n&after=shop/n/1&limit=10"]),
    target("units", units, &[b"5s", b"1500ms", b"64MiB", b"0B"]),
    target("principals", principals, &[PRINCIPALS]),
    target("settings", settings, &[b"http = \"off\"\n[limits]\nbody = \"1MiB\"\n", b"[access]\nhosts = [\"a\"]\n"]),
    target("token", token, &[b"0123456789abcdef0123456789abcdef\n"]),
    target("event id", http::event_id, &[b"00112233aabbccdd-0:17,1:4", b"00112233aabbccdd-0:0"]),
    target("time", http::time, &[b"2026-11-27T09:30:00.5Z", b"1677-09-21T00:12:43.145224192Z"]),
    target("headers", http::headers, &[b"authorization: Bearer abc\nif-next: 17\ncontent-encoding: gzip", b"falaj-producer: p\nfalaj-sequence: 3\nlast-event-id: a-0:1\naccept-encoding: gzip;q=0.5, zstd"]),
    target("objects", http::objects, &[b"shop/n/00000000000000000001\nbytes=0-99", b"a_b.c-d/e/\nbytes=-5", b"s\nbytes=7-"]),
    target("compressed", http::compressed, &[GZIP, ZSTD]),
    target("bodies", http::bodies, &[
        b"\x00{\"a\":1}\n[2]\n\"three\"",
        b"\x01{\"key\":\"k\",\"value\":\"v\",\"headers\":[{\"name\":\"a\",\"value_base64\":\"AA==\"}]}\n{\"key\":\"k\",\"tombstone\":true,\"value\":null}",
        b"\x06{\"value\":{\"deep\":[1,2.5e3,null]},\"time\":\"2026-11-27T09:30:00Z\",\"partition\":0,\"offset\":\"9007199254740993\"}",
        b"\x06{\"key\":\"k\",\"value_base64\":\"MTIzNA==\"}",
        b"\x0b{\"key\":\"k\",\"value_base64\":\"dGV4dA==\"}",
        b"\x02line one\r\nline two\n",
    ]),
    target("documents", http::documents, &[b"{\"partitions\":4,\"retention\":{\"age\":\"7d\",\"bytes\":null}}", b"{\"before\":17}", b"{\"parts\":[{\"topic\":\"a\",\"if_next\":3,\"records\":[{\"value\":\"x\"}],\"finish\":true}],\"cursors\":[{\"group\":\"g\",\"topic\":\"a\",\"partition\":0,\"offset\":3,\"member\":\"m\"}]}", b"{\"tombstones\":\"1d\",\"seal\":true}", POLL, COMMIT, SEEK, TAKE, NACK, b"{\"delete\":[\"shop/n/1\"]}"]),
];

const POLL: &[u8] = b"{\"member\":\"m\",\"number\":1,\"topics\":[\"a\"],\"wait\":\"1s\",\"session\":\"30s\",\"start\":{\"time\":\"2026-11-27T09:30:00Z\"}}";
const COMMIT: &[u8] = b"{\"member\":\"m\",\"offsets\":[{\"topic\":\"a\",\"partition\":0,\"offset\":17,\"metadata\":\"x\"}],\"durable\":true}";
const SEEK: &[u8] = b"{\"member\":\"m\",\"topic\":\"a\",\"partition\":0,\"to\":\"latest\"}";
const PRINCIPALS: &[u8] = b"[[principal]]\nname = \"a\"\ntokens = [\"0000000000000000000000000000000000000000000000000000000000000000\"]\n[[principal.grants]]\ntopic = \"x*\"\nallow = [\"read\"]\n";
const TAKE: &[u8] = b"{\"worker\":\"w\",\"number\":1,\"limit\":9,\"wait\":\"20s\",\"lease\":\"60s\",\"max_attempts\":3,\"dead_letter\":\"d\"}";
const NACK: &[u8] =
    b"{\"jobs\":[\"0-1-00112233aabbccdd-00112233aabbccdd\"],\"delay\":\"5s\",\"reason\":\"no\"}";
/// `x` as gzip.
const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\0\0\x83\x16\xdc\x8c\x01\0\0\0";
/// `x`, as zstd without a checksum: one raw block (RFC 8878, section 3.1.1).
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\0\x38\x09\0\0x";

fn text(bytes: &[u8], feed: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        feed(text);
    }
}

fn host(bytes: &[u8]) {
    text(bytes, |text| {
        let (host, origin) = text.split_once('\n').unwrap_or((text, ""));
        let browser = Browser::new(&[], &[], false);
        if !browser.allows_host(Some(host)) {
            return;
        }
        // Without its port and brackets it is the name or an address of this machine.
        let name =
            host.rsplit_once(':').filter(|_| !host.ends_with(']')).map_or(host, |(name, _)| name);
        let address = |name: &str| name.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_local = |name: &str| {
            name.eq_ignore_ascii_case("localhost")
                || address(name).is_ok_and(|address| address.is_loopback())
        };
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.split(']').next());
        assert!(is_local(name) || bracketed.is_some_and(is_local), "{host:?}");
        if browser.allows_write(Some(host), Some(origin), Some("cross-site")) {
            let origin = origin.trim_start_matches("http://").trim_start_matches("https://");
            assert!(origin.eq_ignore_ascii_case(host), "{origin:?} {host:?}");
        }
    });
}

fn queries(bytes: &[u8]) {
    let mut address = b"/v1/topics/a/records?".to_vec();
    address.extend_from_slice(bytes);
    if let Ok(address) = Uri::try_from(address) {
        http::queries(&address);
    }
}

fn units(bytes: &[u8]) {
    text(bytes, |text| {
        if let Ok(span) = Span::try_from(text.to_owned()) {
            assert_eq!(Span::try_from(span.to_string()), Ok(span));
        }
        if let Ok(bytes) = Bytes::try_from(text.to_owned()) {
            assert_eq!(Bytes::try_from(bytes.to_string()), Ok(bytes));
        }
    });
}

fn principals(bytes: &[u8]) {
    text(bytes, |text| {
        if let Ok(principals) = Principals::parse(text) {
            assert!(principals.iter().all(|one| !["", "local", "open"].contains(&one.name())));
        }
    });
}

fn settings(bytes: &[u8]) {
    text(bytes, |text| {
        let _ = read_text(text);
    });
}

fn token(bytes: &[u8]) {
    text(bytes, |text| {
        if let Ok(token) = parse_token(text) {
            assert!(token.len() >= 32 && token.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    });
}
