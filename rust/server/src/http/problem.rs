//! Refusals: problem documents (RFC 9457) with the engine's sentence and what helps.
//!
//! Invariant: no document says where the store is. Each detail goes through [`Problem::new`], which takes that path out;
//! the server's log has the whole sentence.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use falaj::{Error, Remedy};
use serde_json::{Map, Value, json};

use crate::access::Refusal;
use crate::store::append::Failure;

/// The directory of the store that this process serves.
static STORE: OnceLock<String> = OnceLock::new();

/// Parts of the engine's sentences that name a call of its library, and what a client can do instead.
const WORDS: [(&str, &str); 6] = [
    ("take one: topic.partition(0)", "say which, with partition"),
    (
        "make it with compacted=True, or mark it by configure(compacted=True)",
        "send PATCH with {\"compacted\": true} first",
    ),
    ("open it without cursor_in", "poll without offsets_in"),
    ("open it with cursor_in=", "poll with offsets_in, a topic of the log "),
    (
        "open it without that setting, and change the setting with configure()",
        "leave that setting out, and change it with PATCH",
    ),
    (
        "open it without that setting or with the stored one",
        "leave that setting out, or send the stored one",
    ),
];

/// A refusal.
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    detail: String,
    /// The sentence with the store's path, where it had that.
    whole: Option<String>,
    remedy: Option<&'static str>,
    members: Map<String, Value>,
    retry_after: Option<u32>,
    allow: Option<&'static str>,
}

/// The answer of a handler.
pub type Answer<T = Response> = Result<T, Box<Problem>>;

impl Problem {
    /// Refuse with a status, a name of the kind of problem, and a sentence.
    pub fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        let (remedy, members, retry_after, allow) = (None, Map::new(), None, None);
        let whole = detail.into();
        let (detail, whole) = match without_path(&whole) {
            Cow::Owned(detail) => (detail, Some(whole)),
            Cow::Borrowed(_) => (whole, None),
        };
        Self { status, kind, detail, whole, remedy, members, retry_after, allow }
    }

    /// Refuse what a client got wrong.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// Refuse for now.
    pub fn busy(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
        Self { retry_after: Some(1), ..problem }.remedy("try again in a moment")
    }

    /// Refuse a method, and name those that are allowed.
    pub fn not_allowed(detail: impl Into<String>, allow: &'static str) -> Self {
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail);
        Self { allow: Some(allow), ..problem }
    }

    /// Say what helps.
    #[must_use]
    pub fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Add a member that programs read.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The document that says it.
    pub fn document(&self) -> Value {
        let title = self.status.canonical_reason().unwrap_or("Refused");
        let mut document = json!({
            "type": format!("urn:falaj:problem:{}", self.kind),
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(all) = document.as_object_mut() {
            all.extend(self.remedy.map(|remedy| ("remedy".to_owned(), remedy.into())));
            all.extend(self.members.clone());
        }
        document
    }

    /// Its sentence.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// Say where the store is, so that no document does.
pub fn hide(store: &Path) {
    // The first one stays: a process serves one store.
    let _ = STORE.set(store.display().to_string());
}

/// Take the store's path out of a sentence: what lies in the store keeps its name there.
pub fn without_path(text: &str) -> Cow<'_, str> {
    STORE.get().map_or(Cow::Borrowed(text), |store| without(text, store))
}

fn without<'a>(text: &'a str, store: &str) -> Cow<'a, str> {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    let (mut told, mut rest) = (String::new(), text);
    let mut at = 0;
    while let Some(found) = rest[at..].find(store) {
        let (before, after) = (&rest[..at + found], &rest[at + found + store.len()..]);
        // Another path may begin or end as this one.
        let is_below = after.starts_with('/');
        if before.ends_with(is_of_name) || (!is_below && after.starts_with(is_of_name)) {
            at += found + store.len();
            continue;
        }
        told += before;
        told += if is_below { "" } else { "the store" };
        (rest, at) = (after.strip_prefix('/').unwrap_or(after), 0);
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(told + rest)
}

/// A number as JSON: as text where JavaScript would round it.
pub fn exact(number: u64) -> Value {
    if number < 1 << 53 { number.into() } else { number.to_string().into() }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match &self.whole {
            Some(whole) if self.status.is_server_error() => {
                tracing::warn!(status = self.status.as_u16(), "a request failed: {whole}");
            }
            Some(whole) => {
                tracing::debug!(status = self.status.as_u16(), "a request was refused: {whole}");
            }
            None => {}
        }
        let document = self.document();
        let mut response = (self.status, Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"falaj\""),
            );
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl IntoResponse for Box<Problem> {
    fn into_response(self) -> Response {
        (*self).into_response()
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        problem.into_response()
    }
}

impl From<Refusal> for Box<Problem> {
    fn from(refusal: Refusal) -> Self {
        Box::new(match refusal {
            Refusal::Unauthenticated => {
                let detail = "this server asks for a token: Authorization: Bearer <token>";
                Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail).remedy(
                    "on the server's machine the token lies in the file server/token of the store",
                )
            }
            Refusal::Forbidden(why) => Problem::new(StatusCode::FORBIDDEN, "forbidden", why),
        })
    }
}

impl From<Error> for Box<Problem> {
    fn from(error: Error) -> Self {
        let (status, kind) = classify(&error);
        let remedy = match error.remedy() {
            _ if matches!(error, Error::NotWritable { .. }) => {
                "ask a server that has the store open for writing"
            }
            Remedy::Retry => "try again",
            Remedy::LookAgain => "read what is there now, and decide again",
            Remedy::FixInput => "change the request",
            Remedy::FixMachine => "help the server's machine, then try again",
            Remedy::Repair => "run falaj verify and falaj repair on the server's machine",
            _ => "see the server's log",
        };
        let detail = match &error {
            // The engine's sentence lists the names there are, and not every client may know them.
            Error::UnknownTopic { name, .. } => format!("there is no topic {name:?}"),
            Error::UnknownQueue { name, .. } => format!("there is no queue {name:?}"),
            Error::UnknownGroup { name, .. } => format!("there is no consumer group {name:?}"),
            // Neither may every client know these.
            Error::SettingsMismatch {
                topic, setting: setting @ ("topic" | "log"), asked, ..
            } => {
                format!("{topic:?} has another {setting} than {asked:?}; leave that setting out")
            }
            Error::NotWritable { .. } => "this server has the store open for reading".to_owned(),
            other => WORDS.iter().fold(other.to_string(), |told, (of_library, of_http)| {
                told.replace(of_library, of_http)
            }),
        };
        let problem = Problem::new(status, kind, detail).remedy(remedy);
        let problem = match &error {
            Error::OffsetConflict { topic, partition, .. }
            | Error::OutOfOrderSequence { topic, partition, .. }
            | Error::DuplicateSequence { topic, partition, .. }
            | Error::PartitionNotAssigned { topic, partition, .. }
            | Error::TopicFinished { topic, partition } => {
                problem.with("topic", topic.as_str()).with("partition", *partition)
            }
            _ => problem,
        };
        Box::new(match &error {
            Error::OffsetConflict { next, .. } => problem.with("next", exact(*next)),
            Error::OutOfOrderSequence { next, .. } => problem.with("next_sequence", exact(*next)),
            Error::DuplicateSequence { highest, .. } => {
                problem.with("highest_sequence", exact(*highest))
            }
            Error::DurabilityUnknown { offset, .. }
            | Error::NoShipper { offset: Some(offset), .. }
            | Error::Fenced { offset: Some(offset), .. }
            | Error::RemoteTimeout { offset: Some(offset), .. } => {
                problem.with("offset", exact(*offset))
            }
            Error::OffsetOutOfRange { first, end, .. } => {
                problem.with("start_offset", exact(*first)).with("end_offset", exact(*end))
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE => {
                Problem { retry_after: Some(1), ..problem }
            }
            _ => problem,
        })
    }
}

/// Status and name of an error of the engine.
fn classify(error: &Error) -> (StatusCode, &'static str) {
    match error {
        Error::UnknownTopic { .. } => (StatusCode::NOT_FOUND, "unknown-topic"),
        Error::UnknownQueue { .. } => (StatusCode::NOT_FOUND, "unknown-queue"),
        Error::UnknownGroup { .. } => (StatusCode::NOT_FOUND, "unknown-group"),
        Error::TopicDeleted { .. } => (StatusCode::GONE, "topic-deleted"),
        Error::RecordCompacted { .. } => (StatusCode::NOT_FOUND, "record-compacted"),
        Error::OffsetOutOfRange { .. } => {
            (StatusCode::RANGE_NOT_SATISFIABLE, "offset-out-of-range")
        }
        Error::OffsetConflict { .. } => (StatusCode::PRECONDITION_FAILED, "offset-conflict"),
        Error::DuplicateSequence { .. } => (StatusCode::CONFLICT, "duplicate-sequence"),
        Error::OutOfOrderSequence { .. } => (StatusCode::CONFLICT, "out-of-order-sequence"),
        Error::CursorMoved { .. } => (StatusCode::CONFLICT, "cursor-moved"),
        Error::LeaseExpired { .. } => (StatusCode::CONFLICT, "lease-expired"),
        Error::PartitionNotAssigned { .. } => (StatusCode::CONFLICT, "partition-lost"),
        Error::TopicFinished { .. } => (StatusCode::CONFLICT, "topic-finished"),
        Error::SettingsMismatch { .. } => (StatusCode::CONFLICT, "settings-mismatch"),
        Error::AppendTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "append-too-large"),
        Error::InvalidArgument { .. } => (StatusCode::BAD_REQUEST, "invalid-argument"),
        Error::InvalidName { .. } => (StatusCode::BAD_REQUEST, "invalid-name"),
        Error::NotWritable { .. } => (StatusCode::FORBIDDEN, "read-only"),
        // No repeat helps until somebody starts a shipper. With an offset the records are appended.
        Error::NoShipper { .. } => (StatusCode::CONFLICT, "no-shipper"),
        Error::Fenced { .. } => (StatusCode::CONFLICT, "fenced"),
        Error::LockTimeout { .. } => (StatusCode::SERVICE_UNAVAILABLE, "lock-timeout"),
        Error::NeedsRecovery { .. } => (StatusCode::SERVICE_UNAVAILABLE, "needs-recovery"),
        Error::Interrupted => (StatusCode::SERVICE_UNAVAILABLE, "interrupted"),
        Error::TooManyWriters { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too-many-writers"),
        Error::NoSpace { .. } => (StatusCode::INSUFFICIENT_STORAGE, "no-space"),
        Error::CorruptData { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "corrupt-data"),
        Error::DurabilityUnknown { .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, "durability-unknown")
        }
        Error::RemoteTimeout { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "remote-timeout"),
        Error::SyncFailed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "sync-failed"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "engine"),
    }
}

impl From<Failure> for Box<Problem> {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error.into(),
            Failure::Busy => {
                Box::new(Problem::busy("too many requests wait to append to this log"))
            }
            Failure::TimedOut => Box::new(Problem::busy(
                "the request did not begin in time, since another process holds the log or the queue; nothing changed",
            )),
            Failure::Lost => Box::new(
                Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "outcome-unknown",
                    "the server cannot say whether the records were appended",
                )
                .remedy("send them again with a producer and a sequence, which makes that safe"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_loses_the_path_of_the_store_and_keeps_the_names_in_it() {
        for (text, told) in [
            ("no group \"a\" in /srv/s2; check it", "no group \"a\" in the store; check it"),
            ("/srv/s2 was opened for reading", "the store was opened for reading"),
            ("/srv/s2/logs/a@7e70 is corrupt", "logs/a@7e70 is corrupt"),
            ("/srv/s2/a and /srv/s2/b: in /srv/s2.", "a and b: in the store."),
            ("\"/srv/s2\" has mode", "\"the store\" has mode"),
            ("/srv/s22/a, /srv/s2-old, /mnt/srv/s2/a", "/srv/s22/a, /srv/s2-old, /mnt/srv/s2/a"),
            ("/srv/s22/a and /srv/s2/b", "/srv/s22/a and b"),
            ("nothing of it", "nothing of it"),
        ] {
            assert_eq!(without(text, "/srv/s2"), told);
        }
    }
}
