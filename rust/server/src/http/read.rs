//! Reads of records, and waits for more.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use falaj::{Error, Start, Topic, Visibility};
use serde::Deserialize;

use super::App;
use super::asked::{Asked, Meant, Named, one};
use super::compress::{Coding, compressed};
use super::events::{Begin, Right, Stream};
use super::frame::Frame;
use super::listen::Cut;
use super::problem::{Answer, Problem, exact};
use super::shape::{Line, parse_iso};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::read::{Held, Share, blocking, here};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Longest wait of a read.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Most records of an answer, and bytes of it, where the request does not say.
const LIMIT: u64 = 1_000;
pub(super) const BYTES: usize = 4 << 20;
/// Space for the end of a JSON document with records.
const END: usize = 64;

/// The query of a read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadQuery {
    partition: Option<u32>,
    from: Option<u64>,
    at: Option<String>,
    last: Option<u64>,
    limit: Option<u64>,
    bytes: Option<usize>,
    wait: Option<Span>,
    visibility: Option<Seen>,
}

/// How far a read goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Seen {
    /// To the last record.
    #[default]
    Visible,
    /// To the last record that is on the disk.
    Durable,
    /// To the last record that has left the machine.
    Remote,
}

impl From<Seen> for Visibility {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Visible => Self::Visible,
            Seen::Durable => Self::Durable,
            Seen::Remote => Self::Remote,
        }
    }
}

impl ReadQuery {
    /// Where to begin.
    ///
    /// # Errors
    /// 400 where it says so twice, or names a time that there is not.
    pub fn start(&self) -> Answer<Start> {
        Ok(match (self.from, self.last, self.at.as_deref()) {
            (Some(offset), None, None) => Start::Offset(offset),
            (None, Some(records), None) => Start::Last(records),
            (None, None, Some(at)) => Start::Time(parse_iso(at).ok_or_else(|| {
                let detail = format!("{at:?} is no time; write it as 2026-11-27T09:30:00Z");
                Box::new(Problem::bad_request(detail))
            })?),
            (None, None, None) => Start::Earliest,
            _ => {
                return Err(Box::new(Problem::bad_request("from, at and last exclude each other")));
            }
        })
    }
}

/// One answer, or a part of a stream, and where the next read begins.
pub(super) struct Page {
    pub(super) share: Option<Share>,
    pub(super) text: Vec<u8>,
    pub(super) next: u64,
    pub(super) records: u64,
    /// True if nothing was left to read: it did not end at a limit.
    pub(super) is_end: bool,
}

/// How long a client of HTTP/2 may leave an answer unread, and how its connection then ends.
pub(super) type Deadline = (Duration, Cut);

/// Answer with records of one partition or with those that come, or with a stream of events.
///
/// # Errors
/// Each problem of the request and of the engine.
pub async fn read(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    Asked(query): Asked<ReadQuery>,
    Extension(cut): Extension<Cut>,
    version: Version,
    headers: HeaderMap,
) -> Answer {
    principal.may(Action::Read, Kind::Topic, &name)?;
    let start = query.start()?;
    let accept = accepted(&headers)?;
    let takes = |kind: &str| accept.iter().any(|accepted| accepted.contains(kind));
    let is_stream = takes("text/event-stream");
    let form = if takes("ndjson") {
        Form::Lines
    } else if takes("octet-stream") {
        Form::Frames
    } else {
        Form::Document
    };
    let seen = text(&headers, &LAST_EVENT_ID)?.map(str::to_owned);
    let coding = Coding::accepted(&headers);
    let meant = Meant::by(&headers)?;
    let right = is_stream.then(|| Right::new(&headers, &name)).transpose()?;
    // They are parts of the connection's buffer: a follower that kept them would have two buffers.
    drop(headers);
    let served = std::sync::Arc::clone(&app.served);
    let open = move || {
        let topic = meant.find(&served, &name)?;
        let topic = topic.with_visibility(query.visibility.unwrap_or_default().into());
        let asked = match query.partition {
            Some(one) => vec![one],
            None => (0..topic.partitions()).collect(),
        };
        asked
            .into_iter()
            .map(|partition| Ok((topic.partition(partition)?, partition)))
            .collect::<Answer<Vec<_>>>()
    };
    let parts = blocking(move || Ok(open())).await??;
    let reading = |(topic, partition): (Topic, u32)| Reading {
        form: form.clone(),
        limit: query.limit.unwrap_or(LIMIT).min(app.config.limits.batch),
        bytes: query.bytes.unwrap_or(BYTES).min(app.config.limits.bytes_in_flight.get() / 16),
        topic,
        partition,
    };
    let mut parts: Vec<_> = parts.into_iter().map(reading).collect();
    if parts.len() > 1 && (!is_stream || query.from.is_some()) {
        let detail =
            format!("the topic has {} partitions: say which one, as in partition=0", parts.len());
        return Err(Box::new(Problem::bad_request(detail)));
    }
    let deadline = (version == Version::HTTP_2).then_some((app.config.limits.write_timeout.0, cut));
    if let Some(right) = right {
        if query.wait.is_some() {
            return Err(Box::new(Problem::bad_request(
                "a stream of events waits by itself: leave out wait",
            )));
        }
        let left = query.limit.unwrap_or(u64::MAX);
        let begin = Begin { start, seen, left, deadline, right };
        let stream = Stream::begin(app, parts, begin).await?;
        return Ok(stream.answer());
    }
    let reading = parts.swap_remove(0);
    let wait = query.wait.map_or(Duration::ZERO, |span| span.0.min(WAIT_MAX));
    let page = reading.page(&app, start, wait).await?;
    app.metrics.read_bytes.inc_by(page.text.len() as u64);
    let (page, coded) = compressed(&app, coding, page).await?;
    Ok((coded, answer(&form, page, deadline)).into_response())
}

/// The kinds of answers that a client takes, by its `Accept`: those of weight 0 are none.
fn accepted(headers: &HeaderMap) -> Answer<Vec<String>> {
    let mut kinds = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        let text = value
            .to_str()
            .map_err(|_| Box::new(Problem::bad_request("the header accept must be ASCII text")))?;
        for range in text.to_ascii_lowercase().split(',') {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            let mut weights = parameters.split(';').filter_map(|one| one.trim().strip_prefix("q="));
            if !weights.any(|weight| weight.trim().parse::<f32>() == Ok(0.0)) {
                kinds.push(kind.trim().to_owned());
            }
        }
    }
    Ok(kinds)
}

/// The text of a header, if there is one.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Answer<Option<&'a str>> {
    one(headers, name.as_str())?.map(HeaderValue::to_str).transpose().map_err(|_| {
        Box::new(Problem::bad_request(format!("the header {name} must be ASCII text")))
    })
}

fn answer(form: &Form, page: Page, deadline: Option<Deadline>) -> Response {
    let kind = match form {
        Form::Document => "application/json",
        Form::Frames => "application/octet-stream",
        _ => "application/vnd.falaj.records+ndjson",
    };
    let next = ("falaj-next-offset", page.next.to_string());
    let headers = [(header::CONTENT_TYPE.as_str(), kind.to_owned()), next];
    (headers, held(page.share, page.text, deadline)).into_response()
}

pub(super) fn held(share: Option<Share>, text: Vec<u8>, deadline: Option<Deadline>) -> Body {
    let Some(share) = share else { return text.into() };
    Body::new(match deadline {
        Some((patience, cut)) => Held::with_deadline(text, share, patience, move || cut.cut()),
        None => Held::new(text, share),
    })
}

pub(super) fn too_many_followers() -> Box<Problem> {
    Box::new(Problem::busy("as many requests wait for new records as limits.followers allows"))
}

/// The form of an answer's records.
#[derive(Clone)]
pub(super) enum Form {
    /// One object with all of them.
    Document,
    /// A line each.
    Lines,
    /// A frame each.
    Frames,
    /// An event each, with an id: the text before and after its next offset.
    Events { before: String, after: String },
}

/// The thread of a read.
#[derive(Clone, Copy)]
pub(super) enum On {
    /// One of the pool: the pages of old records may have to come from the disk.
    Pool,
    /// The connection's own, for records that were appended a moment ago. A change of threads would take longer than
    /// the read.
    Spot,
}

/// The outcome of a look at a partition.
enum Look {
    /// Records, or none.
    Page(Page),
    /// The first record needs a larger share.
    Needs { bytes: usize, offset: u64 },
}

impl Form {
    /// The text before a record, where the next one has this offset.
    fn id(&self, next: u64) -> String {
        match self {
            Self::Events { before, after } => format!("id: {before}{next}{after}\ndata: "),
            _ => String::new(),
        }
    }
}

/// A partition, and how much of it an answer takes.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) topic: Topic,
    pub(super) partition: u32,
    pub(super) form: Form,
    pub(super) limit: u64,
    bytes: usize,
}

impl Reading {
    /// Read once; if there is nothing, wait for news and read again.
    async fn page(&self, app: &App, start: Start, wait: Duration) -> Answer<Page> {
        let wait = if self.limit == 0 { Duration::ZERO } else { wait };
        // Before the look: what comes after it is news, and nothing comes after the end of a topic.
        let mut is_over = !wait.is_zero() && self.is_over();
        let mut news =
            (!wait.is_zero()).then(|| app.served.watcher.subscribe(&self.topic, self.partition));
        let mut page = self.look(app, start, On::Pool).await?;
        let Some(news) = news.as_mut().filter(|_| page.records == 0 && !is_over) else {
            return Ok(page);
        };
        let _following = app.followers.try_acquire().map_err(|_| too_many_followers())?;
        let end = tokio::time::Instant::now() + wait;
        while page.records == 0 && !is_over {
            tokio::select! {
                () = news.wait() => {
                    self.expect_there()?;
                    is_over = self.is_over();
                    page = self.look(app, Start::Offset(page.next), On::Pool).await?;
                }
                () = tokio::time::sleep_until(end) => break,
                () = app.until_drained() => break,
            }
        }
        if page.records == 0 {
            self.expect_there()?;
        }
        Ok(page)
    }

    /// Refuse a topic that was deleted since it was opened: its files are still open here, and would just never grow.
    pub(super) fn expect_there(&self) -> Answer<()> {
        let name = self.topic.name().to_owned();
        if self.topic.is_deleted() { Err(Error::TopicDeleted { name }.into()) } else { Ok(()) }
    }

    /// True if a look from now on finds all that the topic will ever have.
    pub(super) fn is_over(&self) -> bool {
        let end = |topic: &Topic| topic.end_offset().ok();
        self.topic.is_finished()
            && end(&self.topic) == end(&self.topic.with_visibility(Visibility::Visible))
    }

    /// Read once, within a share of the budget. A record that needs more than what was asked for is read again with
    /// a larger share: no request waits for the budget while it holds a part of it.
    pub(super) async fn look(&self, app: &App, start: Start, on: On) -> Answer<Page> {
        let reads = &app.served.reads;
        let mut needed = self.bytes + END;
        loop {
            let share = reads.take(needed).await;
            let reading = self.clone();
            let read = move || reading.read(start, share, needed - END);
            let look = match on {
                On::Pool => blocking(read).await?,
                On::Spot => here(read)?,
            };
            match look {
                Look::Page(page) => return Ok(page),
                Look::Needs { bytes, offset } if bytes > reads.capacity() => {
                    return Err(too_large(offset, bytes));
                }
                Look::Needs { bytes, .. } => needed = bytes,
            }
        }
    }

    /// Read records on a thread of the pool. The first one comes also if it is larger than what was asked for. The
    /// answer is written once, as it will be sent: a copy of it would cost as much memory again.
    fn read(&self, start: Start, mut share: Share, most: usize) -> falaj::Result<Look> {
        let topic = &self.topic;
        let mut follow = topic.follow(start)?.with_timeout(Some(Duration::ZERO));
        let next = match start {
            Start::Offset(offset) => offset,
            _ => topic.end_offset()?,
        };
        let mut page = Page { share: None, text: Vec::new(), next, records: 0, is_end: false };
        let is_json = topic.codec()? == Some("json");
        if let Form::Document = self.form {
            page.text.extend_from_slice(b"{\"records\":[");
        }
        while page.records < self.limit {
            let Some((batch, at)) = follow.poll_ref()? else {
                page.is_end = true;
                break;
            };
            let frame = matches!(self.form, Form::Frames).then_some(Frame { batch, at: &at });
            let line = Line { topic: topic.name(), is_json, batch, at: &at, before: "" };
            let len = || frame.map_or_else(|| line.len(), |frame| frame.len());
            let next = batch.offset(&at) + 1;
            let id = self.form.id(next);
            let begin = page.text.len() + id.len() + 1;
            let mut needed = begin + frame.map_or_else(|| line.most(), |frame| frame.len());
            if needed > most {
                // The bound is for the quick: this one may well be shorter.
                needed = begin + len();
            }
            if page.records > 0 && needed > most {
                break;
            }
            if needed > most {
                return Ok(Look::Needs { bytes: needed + END, offset: next - 1 });
            }
            if page.records > 0 && matches!(self.form, Form::Document) {
                // In the place of the line end before it.
                page.text.pop();
                page.text.push(b',');
            }
            make_space(&mut page.text, needed, most);
            page.text.extend_from_slice(id.as_bytes());
            match frame {
                Some(frame) => frame.write(&mut page.text),
                None => line.write(&mut page.text),
            }
            if !id.is_empty() {
                page.text.push(b'\n');
            }
            page.records += 1;
            page.next = next;
        }
        if let Form::Document = self.form {
            let end = format!("],\"next_offset\":{}}}\n", exact(page.next));
            page.text.extend_from_slice(end.as_bytes());
        }
        page.text.shrink_to(page.text.len() + page.text.len() / 2);
        share.shrink_to(page.text.capacity());
        // A page without records is a few bytes: a follower that waits holds no part of the budget.
        page.share = (page.records > 0).then_some(share);
        Ok(Look::Page(page))
    }
}

/// Grow an answer to what it needs and the end of a JSON document: never to more than its share.
fn make_space(text: &mut Vec<u8>, needed: usize, most: usize) {
    if needed + END > text.capacity() {
        let capacity = needed.max((text.capacity() * 2).min(most)) + END;
        text.reserve_exact(capacity - text.len());
    }
}

pub(super) fn too_large(offset: u64, bytes: usize) -> Box<Problem> {
    let detail = format!(
        "the record at offset {offset} takes {bytes} bytes in this form, more than limits.bytes_in_flight allows"
    );
    let problem = Problem::new(StatusCode::NOT_ACCEPTABLE, "record-too-large", detail);
    Box::new(problem.with("offset", exact(offset)).remedy("raise limits.bytes_in_flight"))
}
