//! The page: a browser's view of the store, and of its records as they come.
//!
//! Its files are part of the program, so that it needs nothing from elsewhere; nothing is built. They tell nothing of
//! the store: the page asks for the token, and sends it with each request as any client does. Its policy lets it run
//! its own files alone, talk to its own server alone, and make no markup of text.

use std::fmt::Write as _;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::asked::Named;
use super::problem::{Answer, Problem};
use crate::access::digest;

/// The path below which its files are.
pub const FILES: &str = "/page/";

const INDEX: &str = include_str!("../../page/index.html");
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($name:literal: $kind:expr),+ $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("../../page/", $name)))),+]
    };
}

/// Its files: name, type, text.
const ALL: &[(&str, &str, &str)] = files! {
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "main.js": SCRIPT,
    "api.js": SCRIPT,
    "dom.js": SCRIPT,
    "format.js": SCRIPT,
    "json.js": SCRIPT,
    "keys.js": SCRIPT,
    "list.js": SCRIPT,
    "overview.js": SCRIPT,
    "produce.js": SCRIPT,
    "record.js": SCRIPT,
    "tail.js": SCRIPT,
    "topic.js": SCRIPT,
    "sharing.js": SCRIPT,
};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Answer with the page.
pub async fn index(headers: HeaderMap) -> Response {
    answer(&headers, "text/html; charset=utf-8", INDEX)
}

/// Answer with one of its files.
///
/// # Errors
/// 404.
pub async fn file(Named(name): Named<String>, headers: HeaderMap) -> Answer {
    let found = ALL.iter().find(|(other, _, _)| *other == name);
    let (_, kind, text) = found.ok_or_else(|| {
        let detail = format!("the page has no file {name:?}");
        Box::new(Problem::new(StatusCode::NOT_FOUND, "unknown-path", detail))
    })?;
    Ok(answer(&headers, kind, text))
}

fn answer(asked: &HeaderMap, kind: &'static str, text: &'static str) -> Response {
    let tag = tag(text);
    let is_known =
        asked.get(header::IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, kind)], text).into_response(),
    };
    let headers = response.headers_mut();
    headers.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    for (name, value) in [
        // A new server may have another page: the browser asks each time, and gets it if it changed.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A name for this text.
fn tag(text: &str) -> String {
    let mut tag = String::from("\"");
    for byte in &digest(text)[..12] {
        let _ = write!(tag, "{byte:02x}");
    }
    tag + "\""
}
