//! Streams of server-sent events: the records of a topic, and then those that come.
//!
//! ```text
//! id: 5f1c22d09a3be417-0:18,1:4     where to go on: the generation of the topic, the next offset of each partition
//! data: {"topic":"orders","partition":0,"offset":17,…}
//! ```
//!
//! `Last-Event-ID` resumes a stream behind the event that a client saw last, in all partitions. Nothing is kept for a
//! client: a stream is its offsets. While it waits it holds no bytes of the budget and no thread.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use falaj::Start;
use http_body::Frame;
use tokio::sync::OwnedSemaphorePermit;

use super::App;
use super::asked::whole;
use super::gate::bearer;
use super::problem::{Answer, Problem};
use super::read::{Deadline, Form, On, Reading, held, too_many_followers};
use crate::access::{Access, Action, Kind};
use crate::store::read::blocking;
use crate::store::watch::{News, any};

/// The last event of a topic that gets no more records.
const FINISHED: &str = "event: finished\ndata: {}\n\n";

/// A partition of a stream: how it is read, the offset that comes next, and its news.
struct Part {
    reading: Reading,
    next: u64,
    news: News,
}

/// The request of a stream.
pub struct Begin {
    pub(super) start: Start,
    pub(super) seen: Option<String>,
    pub(super) left: u64,
    pub(super) deadline: Option<Deadline>,
    pub(super) right: Right,
}

/// The right to read a topic, for as long as a stream lasts.
pub(super) struct Right {
    /// The permissions that were looked at last: none yet, since they may have changed since the request came in.
    looked_at: Option<Arc<Access>>,
    token: Option<String>,
    topic: String,
}

impl Right {
    /// That of a request which was let in.
    pub(super) fn new(headers: &HeaderMap, topic: &str) -> Answer<Self> {
        let token = bearer(headers)?.map(str::to_owned);
        Ok(Self { looked_at: None, token, topic: topic.to_owned() })
    }

    /// Look again where the permissions were replaced.
    fn expect(&mut self, app: &App) -> Answer<()> {
        let now = app.access();
        if self.looked_at.as_ref().is_none_or(|last| !Arc::ptr_eq(&now, last)) {
            now.authenticate(self.token.as_deref())?.may(Action::Read, Kind::Topic, &self.topic)?;
            self.looked_at = Some(now);
        }
        Ok(())
    }
}

/// A stream between two turns.
pub struct Stream {
    app: App,
    generation: String,
    parts: Vec<Part>,
    /// The part that is looked at first: they take turns.
    first: usize,
    /// True once a look found all that there was in the only part: the next one waits for news.
    is_at_end: bool,
    /// Records that are sent before it ends.
    left: u64,
    deadline: Option<Deadline>,
    right: Right,
    _following: OwnedSemaphorePermit,
}

impl Stream {
    /// Begin a stream of these partitions, where each begins now, or behind the last event that the client saw.
    ///
    /// # Errors
    /// 400, 410 and 416 for a beginning that there is not, 503 for one follower too many.
    pub async fn begin(app: App, parts: Vec<Reading>, begin: Begin) -> Answer<Self> {
        let Begin { start, seen, left, deadline, right } = begin;
        let _following =
            Arc::clone(&app.followers).try_acquire_owned().map_err(|_| too_many_followers())?;
        let generation = shown(&parts[0].topic.settings().generation);
        let partitions: Vec<u32> = parts.iter().map(|reading| reading.partition).collect();
        let seen = match seen {
            Some(id) => Some(resume(&id, &generation, &partitions)?),
            None => None,
        };
        // Before the ends are read: what comes after them is news.
        let news: Vec<_> = parts
            .iter()
            .map(|reading| app.served.watcher.subscribe(&reading.topic, reading.partition))
            .collect();
        let parts = blocking(move || {
            let begin = |(i, (reading, news)): (usize, (Reading, News))| {
                let start = seen.as_ref().map_or(start, |seen| Start::Offset(seen[i]));
                let next = start.offset(&reading.topic, reading.partition)?;
                Ok(Part { reading, next, news })
            };
            parts.into_iter().zip(news).enumerate().map(begin).collect::<falaj::Result<Vec<_>>>()
        })
        .await?;
        let (first, is_at_end) = (0, false);
        Ok(Self { app, generation, parts, first, is_at_end, left, deadline, right, _following })
    }

    /// Answer with the stream.
    pub fn answer(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE.as_str(), "text/event-stream"),
            (header::CACHE_CONTROL.as_str(), "no-store"),
            // A proxy that gathers an answer before it passes it on would pass on nothing.
            ("x-accel-buffering", "no"),
        ];
        let turn = Some(Box::pin(Box::new(self).turn()) as Turn);
        (headers, Body::new(Events { turn, sending: None })).into_response()
    }

    /// Wait for the next events. The state is gone once nothing comes after them.
    async fn turn(mut self: Box<Self>) -> (Option<Body>, Option<Box<Self>>) {
        let mut on = On::Pool;
        // Nothing was asked for.
        if self.left == 0 {
            return (None, None);
        }
        loop {
            if let Err(problem) = self.right.expect(&self.app) {
                return (Some(last(&problem)), None);
            }
            // Before the look: all that a finished topic has is found by a look from now on.
            let is_over = self.parts.iter().all(|part| part.reading.is_over());
            // All that came since the last look to the end is news, and so is the end of a topic.
            if !std::mem::take(&mut self.is_at_end) || is_over {
                match self.look(on).await {
                    Ok(Some(body)) if self.left == 0 => return (Some(body), None),
                    Ok(Some(body)) => return (Some(body), Some(self)),
                    Ok(None) if is_over => return (Some(FINISHED.into()), None),
                    Ok(None) => {}
                    Err(problem) => return (Some(last(&problem)), None),
                }
            }
            let (app, ping) = (self.app.clone(), self.app.config.limits.ping.0);
            tokio::select! {
                () = any(self.parts.iter_mut().map(|part| &mut part.news)) => on = On::Spot,
                () = tokio::time::sleep(ping) => return (Some(": ping\n\n".into()), Some(self)),
                () = app.until_drained() => return (None, None),
            }
        }
    }

    /// Read what there is in the next partition that has something.
    async fn look(&mut self, on: On) -> Answer<Option<Body>> {
        self.parts[0].reading.expect_there()?;
        for i in 0..self.parts.len() {
            let this = (self.first + i) % self.parts.len();
            let (before, after) = self.around(this);
            let part = &mut self.parts[this];
            part.reading.limit = part.reading.limit.min(self.left);
            part.reading.form = Form::Events { before, after };
            let page = part.reading.look(&self.app, Start::Offset(part.next), on).await?;
            part.next = page.next;
            if page.records > 0 {
                self.first = this + 1;
                self.is_at_end = page.is_end && self.parts.len() == 1;
                self.left -= page.records.min(self.left);
                self.app.metrics.read_bytes.inc_by(page.text.len() as u64);
                return Ok(Some(held(page.share, page.text, self.deadline.clone())));
            }
        }
        Ok(None)
    }

    /// The id of an event of this part, before and after the part's own offset.
    fn around(&self, this: usize) -> (String, String) {
        let each = |part: &Part| format!("{}:{}", part.reading.partition, part.next);
        let before: String = self.parts[..this].iter().map(|part| each(part) + ",").collect();
        let after: String =
            self.parts[this + 1..].iter().map(|part| ",".to_owned() + &each(part)).collect();
        (format!("{}-{before}{}:", self.generation, self.parts[this].reading.partition), after)
    }
}

/// The last event of a stream that cannot go on.
fn last(problem: &Problem) -> Body {
    format!("event: problem\ndata: {}\n\n", problem.document()).into()
}

/// The generation of a topic, as ids of events have it.
pub(super) fn shown(generation: &[u8; 16]) -> String {
    generation[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Read the id of an event: the next offset of each of these partitions.
///
/// # Errors
/// 400 for a text that is no id of these partitions, 410 for one of an earlier topic of this name.
pub fn resume(id: &str, generation: &str, partitions: &[u32]) -> Answer<Vec<u64>> {
    let strange = || {
        let detail = format!("Last-Event-ID is no id of an event of these partitions: {id:?}");
        Box::new(Problem::bad_request(detail))
    };
    let (of, places) = id.split_once('-').ok_or_else(strange)?;
    let mut offsets = Vec::new();
    for place in places.split(',') {
        let (partition, offset) = place.split_once(':').ok_or_else(strange)?;
        let partition =
            whole(partition).and_then(|one| u32::try_from(one).ok()).ok_or_else(strange)?;
        if partitions.get(offsets.len()) != Some(&partition) {
            return Err(strange());
        }
        offsets.push(whole(offset).ok_or_else(strange)?);
    }
    if offsets.len() != partitions.len() {
        return Err(strange());
    }
    if of != generation {
        let detail = "Last-Event-ID is of an earlier topic of this name, which was deleted";
        let problem = Problem::new(StatusCode::GONE, "topic-recreated", detail);
        return Err(Box::new(
            problem.remedy("read the topic from its beginning, without Last-Event-ID"),
        ));
    }
    Ok(offsets)
}

type Turn = Pin<Box<dyn Future<Output = (Option<Body>, Option<Box<Stream>>)> + Send>>;

/// The body of the answer: turn after turn.
struct Events {
    turn: Option<Turn>,
    sending: Option<Body>,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(body) = self.sending.as_mut() {
                match Pin::new(body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
                    Poll::Pending => return Poll::Pending,
                    // The bodies of a stream are bytes in memory, which have no errors.
                    Poll::Ready(Some(Err(_)) | None) => self.sending = None,
                }
            }
            let Some(turn) = self.turn.as_mut() else { return Poll::Ready(None) };
            let (body, stream) = std::task::ready!(turn.as_mut().poll(cx));
            self.sending = body;
            self.turn = stream.map(|stream| Box::pin(stream.turn()) as Turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::resume;

    #[test]
    fn an_id_counts_for_its_topic_and_partitions_alone() {
        assert_eq!(resume("ab-0:17,1:4", "ab", &[0, 1]).unwrap(), [17, 4]);
        assert_eq!(resume("ab-3:0", "ab", &[3]).unwrap(), [0]);
        for id in [
            "",
            "ab",
            "ab-",
            "ab-0:17",
            "ab-0:17,1:4,2:0",
            "ab-1:4,0:17",
            "ab-0:-1,1:4",
            "ab-0:x,1:4",
            "ab-0:17,,1:4",
        ] {
            assert_eq!(resume(id, "ab", &[0, 1]).unwrap_err().status(), 400, "{id}");
        }
        assert_eq!(resume("cd-0:17,1:4", "ab", &[0, 1]).unwrap_err().status(), 410);
    }
}
