//! Objects of a place: created, read, listed and deleted for the stores of other machines.
//!
//! ```text
//! PUT body --pieces--> draft below .new --sync, link, sync the folder--> 201, or 412 where there is such an object
//! ```
//!
//! Owns requests and answers; [`crate::place`] owns the files and their promises. A body goes to its draft in pieces, and
//! an answer comes from the file in pieces, so memory is bounded by the pieces and not by the objects.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::App;
use super::asked::{Asked, Named};
use super::body::{self, Coding};
use super::listen::Cut;
use super::problem::{Answer, Problem, exact};
use super::read::{WAIT_MAX, held, too_many_followers};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::place::{Draft, Failure, Found, Object, Place, check_key, check_prefix};
use crate::store::read::Share;

/// Bytes of a body or an answer that are in memory at once: of a body one piece, of an answer three.
const PIECE: usize = 256 << 10;
/// Objects of a page, if the request does not say and at most.
const PAGE: usize = 1_000;
const PAGE_MAX: usize = 10_000;
/// Bytes of an object in a page, about.
const LISTED: usize = 768;
/// Keys that a request deletes at most.
const DELETED_MAX: usize = 1_000;
/// How often a request that waits looks for an object of another process in the same directory.
const LOOK: Duration = Duration::from_secs(1);

/// The query of a listing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// The query of a read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetQuery {
    wait: Option<Span>,
}

/// The body of a request about many objects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Act {
    delete: Vec<String>,
}

/// Read the bodies and queries here, whatever they hold.
pub(super) fn parse_any(bytes: &[u8]) {
    if let Ok(act) = body::object::<Act>(bytes) {
        act.delete.iter().for_each(|key| drop(check_key(key)));
    }
}

/// List objects below a folder, in order of their keys.
///
/// # Errors
/// 400 for a folder that no key has, 403, and those of the place.
pub async fn list(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Asked(query): Asked<ListQuery>,
) -> Answer {
    let prefix = check_prefix(query.prefix.as_deref().unwrap_or_default()).map_err(invalid_key)?;
    principal.may(Action::Read, Kind::Object, &prefix)?;
    let place = place_of(&app)?;
    let most = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&most) {
        let detail = format!("limit is 1 to {PAGE_MAX} objects");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    let after = query.after.unwrap_or_default();
    let share = app.served.reads.take(most * LISTED).await;
    let found = call(move || place.list(&prefix, &after, most)).await?;
    let next = found.last().filter(|_| found.len() == most).map(|last| last.key.clone());
    let objects: Vec<_> = found
        .iter()
        .map(|one| {
            let modified_us = exact(u64::try_from(one.modified_us).unwrap_or(0));
            json!({ "key": one.key, "size": exact(one.size), "modified_us": modified_us })
        })
        .collect();
    let text = json!({ "objects": objects, "next": next }).to_string().into_bytes();
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, held(Some(share), text, None)).into_response())
}

/// Answer with an object or a range of it; wait for one that is not there yet, if asked.
///
/// # Errors
/// 404 without such an object, 416 for a range behind its end, 403, and those of the place.
pub async fn get(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(key): Named<String>,
    Asked(query): Asked<GetQuery>,
    Extension(cut): Extension<Cut>,
    version: Version,
    headers: HeaderMap,
) -> Answer {
    check_key(&key).map_err(invalid_key)?;
    principal.may(Action::Read, Kind::Object, &key)?;
    let place = place_of(&app)?;
    let wait = query.wait.map_or(Duration::ZERO, |span| span.0.min(WAIT_MAX));
    let asked = headers.get(header::RANGE).and_then(|value| value.to_str().ok().map(str::to_owned));
    drop(headers);
    let object = found(&app, &place, &key, wait).await?.ok_or_else(|| {
        let detail = format!("the place has no object {key}");
        Box::new(Problem::new(StatusCode::NOT_FOUND, "object-not-found", detail))
    })?;
    let size = object.size;
    let (status, start, end) = match asked.as_deref().map_or(Part::All, |text| part(text, size)) {
        Part::All => (StatusCode::OK, 0, size),
        Part::Some(start, end) => (StatusCode::PARTIAL_CONTENT, start, end),
        Part::None => return Ok(behind_the_end(&key, size)),
    };
    let deadline = (app.config.limits.write_timeout.0, cut);
    let body = read(&app, object, start, end, deadline, version).await?;
    app.metrics.sent_bytes.inc_by(end - start);
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == StatusCode::PARTIAL_CONTENT {
        set_range(headers, &format!("bytes {start}-{}/{size}", end - 1));
    }
    Ok(response)
}

/// Create an object of the body, unless there is one under this key.
///
/// # Errors
/// 412 where there is such an object, 403, 413, those of the body and of the place.
pub async fn create(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(key): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    check_key(&key).map_err(invalid_key)?;
    principal.may(Action::Create, Kind::Object, &key)?;
    let place = place_of(&app)?;
    check_conditions(&headers)?;
    let limits = &app.config.limits;
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|len| len > limits.body.0) {
        return Err(body::too_large("the object", "limits.body", limits.body));
    }
    drop(headers);
    let receive = receive(&app, &place, body);
    let (draft, rest, size) = timeout(limits.body_timeout.0, receive).await.map_err(|_| {
        let detail = format!(
            "the object did not arrive within limits.body_timeout, {}",
            limits.body_timeout
        );
        Box::new(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow-body", detail))
    })??;
    let shown = key.clone();
    let created = call(move || {
        let mut draft = draft.map_or_else(|| place.draft(), Ok)?;
        draft.write(&rest.bytes)?;
        place.publish(draft, &key)
    });
    if !created.await? {
        let detail = format!("the place has an object {shown}");
        let problem = Problem::new(StatusCode::PRECONDITION_FAILED, "object-exists", detail);
        return Err(Box::new(problem.remedy("read what is there: no object is replaced")));
    }
    app.metrics.created.inc();
    app.metrics.created_bytes.inc_by(size);
    Ok(StatusCode::CREATED.into_response())
}

/// Delete an object. One that is not there is deleted already.
///
/// # Errors
/// 403, and those of the place.
pub async fn delete(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(key): Named<String>,
) -> Answer {
    check_key(&key).map_err(invalid_key)?;
    principal.may(Action::Delete, Kind::Object, &key)?;
    let place = place_of(&app)?;
    call(move || place.delete(&key)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Delete many objects.
///
/// # Errors
/// 400 and 403 before the first one is deleted; those of the place.
pub async fn act(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let whole = body::read(&app, &headers, body).await?;
    let act: Act = body::object(&whole.bytes)?;
    if act.delete.len() > DELETED_MAX {
        let detail = format!("a request deletes at most {DELETED_MAX} objects");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    for key in &act.delete {
        check_key(key).map_err(invalid_key)?;
        principal.may(Action::Delete, Kind::Object, key)?;
    }
    let place = place_of(&app)?;
    let count = act.delete.len();
    call(move || act.delete.iter().try_for_each(|key| place.delete(key))).await?;
    Ok(Json(json!({ "deleted": count })).into_response())
}

fn place_of(app: &App) -> Answer<Arc<Place>> {
    app.place.clone().ok_or_else(|| {
        let problem = Problem::new(StatusCode::NOT_FOUND, "no-place", "this server has no place");
        Box::new(problem.remedy("start it with place = DIRECTORY, or --place DIRECTORY"))
    })
}

/// Look for an object, and wait for it at most so long.
async fn found(app: &App, place: &Arc<Place>, key: &str, wait: Duration) -> Answer<Option<Object>> {
    let look = || {
        let (place, key) = (Arc::clone(place), key.to_owned());
        call(move || place.get(&key))
    };
    if wait.is_zero() {
        return look().await;
    }
    let _following = app.followers.try_acquire().map_err(|_| too_many_followers())?;
    let (watch, end) = (place.watch(key), Instant::now() + wait);
    loop {
        // Before the look: what comes after it is news.
        let news = watch.notify().notified();
        tokio::pin!(news);
        news.as_mut().enable();
        if let Some(object) = look().await? {
            return Ok(Some(object));
        }
        tokio::select! {
            () = news => {}
            () = sleep(LOOK) => {}
            () = sleep_until(end) => return look().await,
            () = app.until_drained() => return Ok(None),
        }
    }
}

// --- Bodies ----------------------------------------------------------------------------------------------------------

/// The last piece of a body, and its share.
struct Rest {
    bytes: Vec<u8>,
    share: Share,
}

/// Receive a body: all but its last piece is written to a draft, if there is more than one.
async fn receive(
    app: &App,
    place: &Arc<Place>,
    mut body: Body,
) -> Answer<(Option<Draft>, Rest, u64)> {
    let limit = app.config.limits.body;
    let mut rest = Rest { bytes: Vec::new(), share: app.served.reads.take(1).await };
    let (mut draft, mut size) = (None, 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Box::new(Problem::bad_request(format!("the body broke off: {error}")))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len() as u64;
        if size > limit.0 {
            return Err(body::too_large("the object", "limits.body", limit));
        }
        rest.put(&data)?;
        if rest.bytes.len() >= PIECE {
            let place = Arc::clone(place);
            let written = call(move || {
                let mut draft: Draft = draft.map_or_else(|| place.draft(), Ok)?;
                draft.write(&rest.bytes)?;
                rest.bytes.clear();
                Ok((draft, rest))
            });
            let (kept, emptied) = written.await?;
            (draft, rest) = (Some(kept), emptied);
        }
    }
    Ok((draft, rest, size))
}

impl Rest {
    fn put(&mut self, more: &[u8]) -> Answer<()> {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            let capacity = needed.max(PIECE.min(self.bytes.capacity() * 2));
            if !self.share.grow_to(capacity) {
                return Err(body::used_up());
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }
}

/// Refuse what a create cannot heed.
fn check_conditions(headers: &HeaderMap) -> Answer<()> {
    if !matches!(body::coding(headers)?, Coding::Identity) {
        let detail = "an object is stored as it is sent: leave out Content-Encoding";
        let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown-coding", detail);
        return Err(Box::new(problem));
    }
    let is_other = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| value != "*");
    if is_other || headers.contains_key(header::IF_MATCH) {
        let detail =
            "an object is created and never replaced: the one condition is If-None-Match: *";
        return Err(Box::new(Problem::bad_request(detail)));
    }
    if headers.contains_key(header::CONTENT_RANGE) {
        let detail = "an object is created whole: leave out Content-Range";
        return Err(Box::new(Problem::bad_request(detail)));
    }
    Ok(())
}

// --- Answers ---------------------------------------------------------------------------------------------------------

/// A part of an object, as a header asks for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Whole: there is no range, or none that this server knows.
    All,
    /// From a position up to another one.
    Some(u64, u64),
    /// It begins behind the end.
    None,
}

/// Read a header `Range` (RFC 9110, section 14). A header that it does not allow counts as none, and so
/// do several ranges.
pub(super) fn part(text: &str, size: u64) -> Part {
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let unit = text.get(..6).filter(|unit| unit.eq_ignore_ascii_case("bytes="));
    let Some((first, last)) = unit.and_then(|_| text[6..].trim().split_once('-')) else {
        return Part::All;
    };
    let (start, end) = match (number(first), number(last)) {
        (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(size)),
        (Some(start), None) if last.is_empty() => (start, size),
        (None, Some(length)) if first.is_empty() => (size.saturating_sub(length), size),
        _ => return Part::All,
    };
    if start < end { Part::Some(start, end) } else { Part::None }
}

fn set_range(headers: &mut HeaderMap, text: &str) {
    let range = HeaderValue::from_str(text).ok().map(|range| (header::CONTENT_RANGE, range));
    headers.extend(range);
}

fn behind_the_end(key: &str, size: u64) -> Response {
    let detail = format!("object {key} has {size} bytes, and the range begins behind them");
    let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range-not-satisfiable", detail);
    let mut response = problem.with("size", exact(size)).into_response();
    set_range(response.headers_mut(), &format!("bytes */{size}"));
    response
}

/// Read a part of an object: at once if it is small, or as its client takes it.
async fn read(
    app: &App,
    object: Object,
    start: u64,
    end: u64,
    (patience, cut): (Duration, Cut),
    version: Version,
) -> Answer<Body> {
    let len = usize::try_from(end - start).unwrap_or(usize::MAX);
    let share = app.served.reads.take(len.min(3 * PIECE)).await;
    if len <= PIECE {
        let bytes = call(move || piece(&object, start, len)).await?;
        let deadline = (version == Version::HTTP_2).then_some((patience, cut));
        return Ok(held(Some(share), bytes, deadline));
    }
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        if let Err(error) = send(object, start, end, &sender, patience).await {
            tracing::debug!(%error, "an object was not sent whole");
            if error.kind() == io::ErrorKind::TimedOut {
                cut.cut();
            }
            let _ = sender.try_send(Err(error));
        }
    });
    Ok(Body::new(Streamed { pieces, left: end - start, _share: share }))
}

/// Read a piece whole. A file that became shorter is an error: no answer has fewer bytes than it says.
fn piece(object: &Object, start: u64, len: usize) -> Found<Vec<u8>> {
    let bytes = object.read(start, len)?;
    if bytes.len() < len { Err(Errno::IO.into()) } else { Ok(bytes) }
}

/// Send pieces until the end, or until the client takes none for too long.
async fn send(
    object: Object,
    mut at: u64,
    end: u64,
    sender: &mpsc::Sender<io::Result<Bytes>>,
    patience: Duration,
) -> io::Result<()> {
    let object = Arc::new(object);
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE);
        let reading = Arc::clone(&object);
        let bytes = call(move || piece(&reading, at, len)).await;
        let bytes = bytes.map_err(|problem| io::Error::other(problem.detail().to_owned()))?;
        at += len as u64;
        match timeout(patience, sender.send(Ok(bytes.into()))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()), // the client is gone
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    Ok(())
}

/// An answer in pieces. Its share covers the piece that is sent, the one that waits, and the one that is read.
struct Streamed {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    left: u64,
    _share: Share,
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(cx));
        // Fewer bytes than were announced: the connection ends, so that no client takes them for all.
        let piece = piece.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
        self.left = self.left.saturating_sub(piece.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

// --- Failures --------------------------------------------------------------------------------------------------------

/// Call the place on the pool.
async fn call<T: Send + 'static>(work: impl FnOnce() -> Found<T> + Send + 'static) -> Answer<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => {
            tracing::error!(%error, "a call of the place did not end in order");
            Err(Box::new(Problem::busy("the server could not do this")))
        }
    }
}

fn invalid_key(why: String) -> Box<Problem> {
    Box::new(Problem::new(StatusCode::BAD_REQUEST, "invalid-key", why))
}

impl From<Failure> for Box<Problem> {
    /// The server's log has the path. A client may not know it, and gets its key.
    fn from(failure: Failure) -> Self {
        const DISK: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
        let new = |status, kind, detail: &str, remedy| {
            Box::new(Problem::new(status, kind, detail).remedy(remedy))
        };
        let (path, errno) = match failure {
            Failure::Gone(root) => {
                tracing::warn!(place = %root.display(), "the place or its directory .new is gone");
                let detail = "the directory of the place is gone, or its .new is";
                return new(DISK, "place-failed", detail, "mount its disk");
            }
            Failure::Taken(key) => {
                let detail = format!("{key} is an object, so no key is below it");
                let remedy = "choose another key: none is a folder of another one";
                return new(StatusCode::CONFLICT, "key-conflict", &detail, remedy);
            }
            Failure::Folder(key) => {
                let detail =
                    format!("{key} is a folder of keys, or was one, so no object has its name");
                let remedy = "choose another key: none is a folder of another one";
                return new(StatusCode::CONFLICT, "key-conflict", &detail, remedy);
            }
            Failure::Swept => {
                return Box::new(Problem::busy(
                    "another process took the draft for that of a dead one; nothing was created",
                ));
            }
            Failure::NoLinks(root) => {
                tracing::warn!(place = %root.display(), "its file system makes no hard links");
                let detail = "the file system of the place makes no hard links";
                let remedy = "choose another one, such as ext4, xfs, btrfs, zfs or NFS";
                return new(DISK, "unsupported-place", detail, remedy);
            }
            Failure::Call(path, errno) => (path, errno),
        };
        let (status, kind, remedy) = match errno {
            Errno::ACCESS | Errno::PERM => (
                StatusCode::FORBIDDEN,
                "place-denied",
                "give the server's user the rights to read and write there",
            ),
            Errno::ROFS => {
                (StatusCode::FORBIDDEN, "place-denied", "mount that file system for writing")
            }
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                let remedy = "free space there, or raise the quota";
                (StatusCode::INSUFFICIENT_STORAGE, "no-space", remedy)
            }
            Errno::LOOP | Errno::NOTDIR => {
                let remedy = "remove the symbolic link there: a place follows none";
                (DISK, "unsupported-place", remedy)
            }
            Errno::NAMETOOLONG => {
                (StatusCode::BAD_REQUEST, "invalid-key", "choose shorter parts of keys")
            }
            _ => (DISK, "place-failed", "see whether that disk works and is mounted"),
        };
        if kind != "invalid-key" {
            tracing::warn!(path = %path.display(), %errno, "a call of the place failed");
        }
        new(status, kind, &format!("the place cannot do this: {errno}"), remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_part_or_behind_the_end_and_what_is_none_is_the_whole() {
        for (text, size, expected) in [
            ("bytes=0-0", 10, Part::Some(0, 1)),
            ("bytes=3-6", 10, Part::Some(3, 7)),
            ("BYTES=3-99", 10, Part::Some(3, 10)),
            ("bytes=3-", 10, Part::Some(3, 10)),
            ("bytes=-3", 10, Part::Some(7, 10)),
            ("bytes=-99", 10, Part::Some(0, 10)),
            ("bytes=0-99999999999999999999", 10, Part::Some(0, 10)),
            ("bytes=10-", 10, Part::None),
            ("bytes=99999999999999999999-", 10, Part::None),
            ("bytes=-0", 10, Part::None),
            ("bytes=0-", 0, Part::None),
            ("bytes=6-3", 10, Part::All),
            ("bytes=-", 10, Part::All),
            ("bytes=a-b", 10, Part::All),
            ("bytes=1-2,4-5", 10, Part::All),
            ("lines=1-2", 10, Part::All),
            ("b", 10, Part::All),
            ("byte\u{e4}=1-2", 10, Part::All),
            ("bytes=+1-2", 10, Part::All),
        ] {
            assert_eq!(part(text, size), expected, "{text}");
        }
    }
}
