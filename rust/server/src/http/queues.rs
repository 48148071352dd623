//! Queues: a worker takes jobs, and says what became of them ([`super::queue_settle`]).
//!
//! ```text
//! take {worker, number} ──> jobs, each reserved until its lease ends ──> ack | nack | extend, by the job's id
//! ```
//!
//! The id of a job is its ticket: it settles the job also after a restart of the server, which keeps nothing that an
//! ack needs. The server knows the last take of each worker, and a repeated number has the same jobs. A take that waits
//! holds no thread.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use falaj::{Error, Job, Queue, Record, Ticket, Topic};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::App;
use super::asked::Named;
use super::compress::{Coding, compressed};
use super::listen::Cut;
use super::problem::{Answer, Problem, exact};
use super::read::{BYTES, Page, WAIT_MAX, held, too_large, too_many_followers};
use super::shape::Line;
use super::topics::document;
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::append::Failure;
use crate::store::queues::OpenQueue;
use crate::store::read::{Share, blocking};
use crate::store::workers::{Last, Name, NoWorker};

/// Most jobs of a take.
const TAKEN: u64 = 256;
/// The lease of a job where the request does not say.
const LEASE: Duration = Duration::from_secs(60);
/// Longest lease, and longest delay of a job: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);
/// Longest name of a worker.
const NAME: usize = 249;
/// How long a repeated take waits for the first one, after its own wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer beside its jobs, and of a job beside its record.
const FRAME: usize = 2_048;
const JOB: usize = 160;

/// The body of a take.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Take {
    worker: String,
    number: u64,
    limit: Option<u64>,
    wait: Option<Span>,
    lease: Option<Span>,
    max_attempts: Option<u32>,
    dead_letter: Option<String>,
}

/// Read the bodies of these requests, whatever they hold.
pub fn parse_any(bytes: &[u8]) {
    let _ = super::topics::parse::<Take>(bytes).map(|asked| asked.check());
    super::queue_settle::parse_any(bytes);
}

impl Take {
    fn check(&self) -> Answer<()> {
        let detail = if self.worker.is_empty() || self.worker.len() > NAME {
            format!("a take needs worker, a name of 1 to {NAME} bytes")
        } else if self.number == 0 {
            "a take needs number: 1 at first, and one more for each further take".to_owned()
        } else if self.limit == Some(0) {
            "limit is how many jobs to take, from 1 on".to_owned()
        } else {
            return expect_attempts(self.max_attempts, self.dead_letter.as_ref());
        };
        Err(Box::new(Problem::bad_request(detail)))
    }
}

/// The lease that a request asks for.
pub(super) fn lease(asked: Option<Span>) -> Answer<Duration> {
    let lease = bounded("lease", asked.unwrap_or(Span(LEASE)))?;
    if lease.is_zero() {
        return Err(Box::new(Problem::bad_request("a lease is a millisecond at least")));
    }
    Ok(lease)
}

/// Refuse a time that no job can have.
pub(super) fn bounded(what: &str, time: Span) -> Answer<Duration> {
    if time.0 > LONGEST {
        let detail = format!("a {what} of {time} is too long; the longest is 100 years");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    Ok(time.0)
}

/// A take as the pool does it.
#[derive(Debug)]
struct Taking {
    asked: Take,
    lease: Duration,
    letters: Option<(u32, Topic)>,
    /// True where the last take is answered again.
    repeats: bool,
}

/// The outcome of a look for jobs.
enum Found {
    Page(Page),
    Nothing(OwnedMutexGuard<Last>),
    /// The first job needs a larger share.
    Needs {
        bytes: usize,
        offset: u64,
        last: OwnedMutexGuard<Last>,
    },
}

/// Answer with jobs, each reserved for the worker until its lease ends; wait for the first one.
///
/// # Errors
/// 403, 404, 409 for a number that is neither the last one nor the next, 503 beyond a limit; those of the engine.
pub async fn take(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    Extension(cut): Extension<Cut>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    principal.may(Action::Read, Kind::Group, &name)?;
    let asked: Take = document(&app, &headers, body).await?;
    let coding = Coding::accepted(&headers);
    drop(headers);
    asked.check()?;
    let lease = lease(asked.lease)?;
    let wait = asked.wait.map_or(Duration::ZERO, |wait| wait.0.min(WAIT_MAX));
    let worker = || last(&app, &principal, &name, &asked, wait, lease);
    // A number that is refused makes no queue, and a queue that is refused makes no worker known.
    let known = if asked.number == 1 { None } else { Some(worker().await?) };
    let found = find(&app, &principal, &name).await?;
    let topic = found.as_ref().map_or(name.as_str(), |queue| queue.queue().topic().name());
    let letters = letters(&app, &principal, topic, asked.max_attempts, asked.dead_letter.as_ref());
    let letters = letters.await?;
    let queue = match found {
        Some(queue) => queue,
        None => app.served.queue(&name, true).await?,
    };
    let last = match known {
        Some(last) => last,
        None => worker().await?,
    };
    let repeats = asked.number == last.number;
    let taking = Arc::new(Taking { asked, lease, letters, repeats });
    let page = taking.page(&app, &queue, last, wait).await?;
    app.metrics.read_bytes.inc_by(page.text.len() as u64);
    let deadline = (version == Version::HTTP_2).then_some((app.config.limits.write_timeout.0, cut));
    let (page, coded) = compressed(&app, coding, page).await?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((coded, kind, held(page.share, page.text, deadline)).into_response())
}

/// Get the last take of the worker, once no other of its takes goes on, if this one is that or follows it.
async fn last(
    app: &App,
    principal: &Principal,
    queue: &str,
    asked: &Take,
    wait: Duration,
    lease: Duration,
) -> Answer<OwnedMutexGuard<Last>> {
    let (principal, queue) = (principal.name().to_owned(), queue.to_owned());
    let name = Name { principal, queue, worker: asked.worker.clone() };
    let time = wait.saturating_add(lease);
    let worker =
        app.served.workers.get(&name, asked.number == 1, time).map_err(|why| match why {
            NoWorker::Unknown => {
                let detail = format!(
                    "worker {} is not known: the server was started again, or forgot it",
                    name.worker
                );
                let problem = Problem::new(StatusCode::CONFLICT, "session-ended", detail);
                problem
                    .remedy("take with number 1; jobs that you have stay yours, and can be acked")
            }
            NoWorker::Full => Problem::busy("as many workers have jobs as limits.workers allows"),
        })?;
    let last = tokio::select! {
        last = worker.lock_owned() => last,
        () = tokio::time::sleep(wait + PATIENCE) => {
            return Err(Box::new(Problem::busy("another take of this worker still goes on")));
        }
        () = app.until_drained() => return Err(Box::new(Problem::busy("the server ends"))),
    };
    let is_next = [Some(last.number), last.number.checked_add(1), Some(1)];
    if !is_next.contains(&Some(asked.number)) {
        let detail = format!(
            "the last take of worker {} had number {}: repeat that, or take with the next",
            asked.worker, last.number
        );
        let problem = Problem::new(StatusCode::CONFLICT, "take-number", detail);
        return Err(Box::new(problem.with("last", exact(last.number))));
    }
    Ok(last)
}

impl Taking {
    /// Look for jobs; if there is none, wait for one behind those that wait already.
    async fn page(
        self: &Arc<Self>,
        app: &App,
        queue: &Arc<OpenQueue>,
        last: OwnedMutexGuard<Last>,
        wait: Duration,
    ) -> Answer<Page> {
        let begin = Instant::now();
        // Before the look: what comes after it is news.
        let topic = queue.queue().topic();
        let mut news = (!wait.is_zero()).then(|| app.served.watcher.subscribe(topic, 0));
        let mut last = match self.look(app, queue, last).await? {
            Ok(page) => return Ok(page),
            Err(last) => last,
        };
        if let Some(news) = news.as_mut().filter(|_| !self.repeats) {
            let _following = app.followers.try_acquire().map_err(|_| too_many_followers())?;
            let end = begin + wait;
            let turn = tokio::select! {
                turn = queue.turn() => Some(turn),
                () = tokio::time::sleep_until(end) => None,
                () = app.until_drained() => None,
            };
            while turn.is_some() {
                last = match self.look(app, queue, last).await? {
                    Ok(page) => return Ok(page),
                    Err(last) => last,
                };
                tokio::select! {
                    waited = queue.wait(news) => waited?,
                    () = tokio::time::sleep_until(end) => break,
                    () = app.until_drained() => break,
                }
            }
        }
        (last.number, last.tickets) = (self.asked.number, Vec::new());
        let text = self.text(&Form { topic: "", is_json: false }, &[]);
        Ok(Page { share: None, text, next: 0, records: 0, is_end: false })
    }

    /// Look once, within a share of the budget. The first job comes also if it is larger than usual answers.
    async fn look(
        self: &Arc<Self>,
        app: &App,
        queue: &Arc<OpenQueue>,
        mut last: OwnedMutexGuard<Last>,
    ) -> Answer<Result<Page, OwnedMutexGuard<Last>>> {
        let reads = &app.served.reads;
        let mut needed = BYTES.min(reads.capacity() / 16).max(FRAME + JOB);
        loop {
            let share = reads.take(needed).await;
            let this = Arc::clone(self);
            let found = queue.call(move |queue| this.find(queue, last, share, needed)).await?;
            match found {
                Found::Page(page) => return Ok(Ok(page)),
                Found::Nothing(last) => return Ok(Err(last)),
                Found::Needs { bytes, offset, .. } if bytes > reads.capacity() => {
                    return Err(too_large(offset, bytes));
                }
                Found::Needs { bytes, last: kept, .. } => (needed, last) = (bytes, kept),
            }
        }
    }

    /// Take and reserve as many jobs as fit into so many bytes. The worker's last take is noted before anything is
    /// sent: a client that went away meanwhile gets the same jobs when it asks again.
    fn find(
        &self,
        queue: &Queue,
        mut last: OwnedMutexGuard<Last>,
        share: Share,
        most: usize,
    ) -> falaj::Result<Found> {
        let form = Form::of(queue.topic())?;
        let jobs = if self.repeats {
            let jobs = again(queue, &last.tickets)?;
            let sizes = jobs.iter().map(|(_, job)| form.size(job, usize::MAX));
            let bytes = FRAME + sizes.sum::<usize>();
            if let Some((ticket, _)) = jobs.first().filter(|_| bytes > most) {
                return Ok(Found::Needs { bytes, offset: ticket.offset(), last });
            }
            jobs
        } else {
            let queue = with_letters(queue, self.letters.as_ref())?;
            let limit = self.asked.limit.unwrap_or(1).min(TAKEN);
            let jobs = queue.take(usize::try_from(limit).unwrap_or(1), Duration::ZERO)?;
            let (mut fit, mut bytes) = (0, FRAME);
            for record in jobs.records() {
                let needed = bytes + form.size(record, most.saturating_sub(bytes));
                if needed > most && fit == 0 {
                    let offset = record.offset();
                    return Ok(Found::Needs { bytes: needed, offset, last });
                }
                if needed > most {
                    break;
                }
                (fit, bytes) = (fit + 1, needed);
            }
            let jobs = jobs.reserve(fit, self.lease)?;
            if jobs.is_empty() {
                return Ok(Found::Nothing(last));
            }
            last.number = self.asked.number;
            last.tickets = jobs.iter().map(|(ticket, _)| *ticket).collect();
            jobs
        };
        let (text, records) = (self.text(&form, &jobs), jobs.len() as u64);
        let mut share = share;
        share.shrink_to(text.capacity());
        Ok(Found::Page(Page { share: Some(share), text, next: 0, records, is_end: false }))
    }

    /// Write the answer.
    fn text(&self, form: &Form<'_>, jobs: &[(Ticket, Job)]) -> Vec<u8> {
        let sizes = jobs.iter().map(|(_, job)| form.size(job, 0));
        let mut text = Vec::with_capacity(FRAME + sizes.sum::<usize>());
        let (worker, number) = (json!(self.asked.worker), exact(self.asked.number));
        text.extend_from_slice(
            format!("{{\"worker\":{worker},\"number\":{number},\"jobs\":[").as_bytes(),
        );
        for (i, (ticket, job)) in jobs.iter().enumerate() {
            if i > 0 {
                // In the place of the line end before it.
                text.pop();
                text.push(b',');
            }
            let before = format!("\"job\":\"{ticket}\",\"attempt\":{},", job.attempt());
            form.line(job, &before, |line| line.write(&mut text));
        }
        text.extend_from_slice(b"]}\n");
        text
    }
}

/// How the records of a queue are written.
struct Form<'a> {
    topic: &'a str,
    is_json: bool,
}

impl<'a> Form<'a> {
    fn of(topic: &'a Topic) -> falaj::Result<Self> {
        Ok(Self { topic: topic.name(), is_json: topic.codec()? == Some("json") })
    }

    /// Count the bytes of a job in an answer: quickly where that is enough, else exactly.
    fn size(&self, record: &Record, enough: usize) -> usize {
        self.line(record, "", |line| {
            let most = JOB + line.most();
            if most <= enough { most } else { JOB + line.len() }
        })
    }

    fn line<T>(&self, record: &Record, before: &str, run: impl FnOnce(&Line<'_>) -> T) -> T {
        let (batch, at) = record.clone().into_parts();
        let (topic, is_json) = (self.topic, self.is_json);
        run(&Line { topic, is_json, batch: &batch, at: &at, before })
    }
}

/// Find the jobs of tickets that are still the worker's.
fn again(queue: &Queue, tickets: &[Ticket]) -> falaj::Result<Vec<(Ticket, Job)>> {
    let mut jobs = Vec::with_capacity(tickets.len());
    for ticket in tickets {
        match queue.reserved(ticket) {
            Ok(job) => jobs.extend(job.map(|job| (*ticket, job))),
            Err(Error::LeaseExpired { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(jobs)
}

/// Read what a request asks of a queue that is there, and open that queue.
pub(super) async fn about<T: DeserializeOwned + Default>(
    app: &App,
    principal: &Principal,
    name: &str,
    headers: &HeaderMap,
    body: Body,
) -> Answer<(T, Arc<OpenQueue>)> {
    principal.may(Action::Read, Kind::Group, name)?;
    let asked = document(app, headers, body).await?;
    let queue = app.served.queue(name, false).await?;
    principal.may(Action::Read, Kind::Topic, queue.queue().topic().name())?;
    Ok((asked, queue))
}

/// Whether a queue that is missing may be created, with its topic.
pub(super) fn may_create(principal: &Principal, name: &str) -> bool {
    [Kind::Group, Kind::Topic].iter().all(|kind| principal.may(Action::Create, *kind, name).is_ok())
}

/// Find a queue whose topic the principal may read. `None` where it is missing, and may be created over the topic of
/// its name.
async fn find(app: &App, principal: &Principal, name: &str) -> Answer<Option<Arc<OpenQueue>>> {
    let found = match app.served.queue(name, false).await {
        Err(Failure::Refused(Error::UnknownQueue { .. })) if may_create(principal, name) => None,
        queue => Some(queue?),
    };
    let topic = found.as_ref().map_or(name, |queue| queue.queue().topic().name());
    principal.may(Action::Read, Kind::Topic, topic)?;
    Ok(found)
}

/// Refuse a bound of attempts that makes no sense.
fn expect_attempts(max_attempts: Option<u32>, dead_letter: Option<&String>) -> Answer<()> {
    let detail = match (max_attempts, dead_letter) {
        (Some(0), _) => "max_attempts is a number from 1 on",
        (None, Some(_)) => "dead_letter is where jobs go after max_attempts: give that as well",
        _ => return Ok(()),
    };
    Err(Box::new(Problem::bad_request(detail)))
}

/// Open the topic of dead letters, where the request gives up jobs.
pub(super) async fn letters(
    app: &App,
    principal: &Principal,
    topic: &str,
    max_attempts: Option<u32>,
    named: Option<&String>,
) -> Answer<Option<(u32, Topic)>> {
    expect_attempts(max_attempts, named)?;
    let Some(most) = max_attempts else { return Ok(None) };
    let name = letters_of(topic, named)?;
    principal.may(Action::Append, Kind::Topic, &name)?;
    let may_create = principal.may(Action::Create, Kind::Topic, &name).is_ok();
    let served = Arc::clone(&app.served);
    let topic = blocking(move || match served.topic(&name) {
        Err(Error::UnknownTopic { .. }) if may_create => served.store().topic(&name),
        topic => topic,
    });
    Ok(Some((most, topic.await?)))
}

/// The name of the topic with the dead letters of a queue over this topic.
pub(super) fn letters_of(topic: &str, named: Option<&String>) -> Answer<String> {
    let name = named.cloned().unwrap_or_else(|| format!("{topic}.dead"));
    if name == topic {
        let detail = "dead_letter is the queue's own topic: dead letters would become jobs again";
        return Err(Box::new(Problem::bad_request(detail)));
    }
    Ok(name)
}

/// The queue, with the topic of its dead letters where there is one.
pub(super) fn with_letters(queue: &Queue, letters: Option<&(u32, Topic)>) -> falaj::Result<Queue> {
    let Some((most, letters)) = letters else { return Ok(queue.clone()) };
    let (store, topic) = (queue.topic().store(), queue.topic());
    store.queue_options(queue.name()).topic(topic).dead_letters(*most, letters).open()
}

/// The answer of a request without a body.
pub(super) fn empty() -> Response {
    StatusCode::NO_CONTENT.into_response()
}
