//! A poll: the next records of a member, or again those of the last poll.
//!
//! Invariants: a number has one answer. Records count as delivered once an answer has them, and never if the client went
//! away before. A poll that waits holds no thread, no record and no part of the budget.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use falaj::{Error, Start, Topic};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::records::{Look, Wanted};
use super::sessions::{InUse, State, Subscription, Work};
use super::{key, start};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::http::asked::Named;
use crate::http::listen::Cut;
use crate::http::problem::{Answer, Problem};
use crate::http::read::{Deadline, WAIT_MAX, held, too_large, too_many_followers};
use crate::http::{App, body};
use crate::store::read::{Share, blocking};
use crate::store::watch::{News, any};

/// Records and bytes of an answer, where the request does not say.
const LIMIT: u64 = 500;
const BYTES: usize = 1 << 20;
/// How long a session lives without a request, and how long at most.
const SESSION: Duration = Duration::from_secs(30);
const SESSION_MAX: Duration = Duration::from_secs(3_600);
/// Most topics of a request.
const TOPICS: usize = 1_000;
/// How often a member that waits looks whether partitions came or went: native members do not wake the server for that.
const LOOK: Duration = Duration::from_millis(200);

/// The body of a poll.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Poll {
    member: String,
    number: u64,
    topics: Option<Vec<String>>,
    pattern: Option<String>,
    start: Option<Value>,
    offsets_in: Option<String>,
    limit: Option<u64>,
    bytes: Option<usize>,
    wait: Option<Span>,
    session: Option<Span>,
}

/// Answer with the next records, or with those of the last answer again.
///
/// # Errors
/// 400 and 403; 409 for another number, another subscription, or a session that ended; 503 for one session too many;
/// those of the engine.
pub async fn poll(
    Shared(app): Shared<App>,
    Extension(principal): Extension<Principal>,
    Named(group): Named<String>,
    Extension(cut): Extension<Cut>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    principal.may(Action::Read, Kind::Group, &group)?;
    let body = body::read(&app, &headers, body).await?;
    let asked: Poll = body::object(&body.bytes)?;
    drop((headers, body));
    let wanted = asked.wanted(&app)?;
    let wait = asked.wait.map_or(Duration::ZERO, |span| span.0.min(WAIT_MAX));
    let session = match asked.number {
        1 => begin(&app, &principal, &group, &asked).await?,
        _ => resume(&app, &principal, &group, &asked).await?,
    };
    let deadline = (version == Version::HTTP_2).then_some((app.config.limits.write_timeout.0, cut));
    answer(&app, &session, wanted, wait, deadline).await
}

impl Poll {
    fn wanted(&self, app: &App) -> Answer<Wanted> {
        let limits = &app.config.limits;
        let records = self.limit.unwrap_or(LIMIT).min(limits.batch);
        let bytes = self.bytes.unwrap_or(BYTES).min(limits.bytes_in_flight.get() / 16);
        if self.number == 0 || records == 0 {
            return Err(Box::new(Problem::bad_request("number and limit are at least 1")));
        }
        let (member, number) = (self.member.clone(), self.number);
        Ok(Wanted { member, number, records, bytes })
    }

    /// The topics that it names.
    fn subscription(&self) -> Answer<Subscription> {
        let (mut topics, pattern) = (self.topics.clone().unwrap_or_default(), self.pattern.clone());
        if topics.is_empty() == pattern.is_none() || topics.len() > TOPICS {
            let detail =
                format!("the first poll of a session names 1 to {TOPICS} topics, or a pattern");
            return Err(Box::new(Problem::bad_request(detail)));
        }
        topics.sort();
        Ok(Subscription { topics, pattern, home: self.offsets_in.clone() })
    }

    /// True for a subscription that it repeats, as far as it names one.
    fn repeats(&self, begun: &Subscription) -> bool {
        let same_topics = self.topics.as_ref().is_none_or(|topics| {
            let mut topics = topics.clone();
            topics.sort();
            topics == begun.topics
        });
        let same =
            |asked: &Option<String>, begun: &Option<String>| asked.is_none() || asked == begun;
        same_topics && same(&self.pattern, &begun.pattern) && same(&self.offsets_in, &begun.home)
    }
}

impl Subscription {
    /// Check the grants of all topics that it reads.
    fn expect_grants(&self, principal: &Principal) -> Answer<()> {
        for topic in self.topics.iter().chain(&self.home) {
            principal.may(Action::Read, Kind::Topic, topic)?;
        }
        if let Some(pattern) = &self.pattern {
            let fixed = pattern.find(['*', '?']).map_or(pattern.as_str(), |at| &pattern[..at]);
            // No topic has a star in its name, so only a grant for all names that begin so covers it.
            principal.may(Action::Read, Kind::Topic, &format!("{fixed}*"))?;
        }
        Ok(())
    }
}

/// Get the session of a first poll: the one that there is if this is its first poll again, or a new one.
async fn begin(app: &App, principal: &Principal, group: &str, asked: &Poll) -> Answer<InUse> {
    let wants = asked.subscription()?;
    wants.expect_grants(principal)?;
    let start = asked.start.as_ref().map_or(Ok(Start::Earliest), start)?;
    let span = asked.session.map_or(SESSION, |span| span.0);
    if span.is_zero() || span > SESSION_MAX {
        let most = Span(SESSION_MAX);
        let detail = format!("session must be more than nothing and at most {most}");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    if app.is_draining() {
        return Err(Box::new(Problem::busy("the server ends, and begins no session")));
    }
    let key = key(principal, group, &asked.member)?;
    let most = usize::try_from(app.config.limits.members).unwrap_or(usize::MAX);
    loop {
        let session = app.sessions.get_or_new(&key, span, most).ok_or_else(|| {
            Box::new(Problem::busy("the server holds as many members as limits.members allows"))
        })?;
        let work = session.work().await;
        match &work.state {
            State::Ended => {}
            State::Open(_, begun) if work.is_first() && *begun == wants => return Ok(session),
            // The client began again: what it did not commit is delivered again.
            State::Open(..) => app.sessions.end_with(&session.0, work).await,
            State::New => {
                join(app, &session, work, wants, start).await?;
                return Ok(session);
            }
        }
    }
}

/// Become a member of the group. A session that could not is forgotten.
async fn join(
    app: &App,
    session: &InUse,
    mut work: OwnedMutexGuard<Work>,
    wants: Subscription,
    start: Start,
) -> Answer<()> {
    let (served, group) = (std::sync::Arc::clone(&app.served), session.key.group.clone());
    let (work, joined) = blocking(move || {
        let joined = (|| {
            // A consumer would create what is not there.
            wants.topics.iter().try_for_each(|name| served.topic(name).map(drop))?;
            let home = wants.home.as_ref().map(|name| served.topic(name)).transpose()?;
            let store = served.store();
            let builder = match &wants.pattern {
                Some(pattern) => store.consumer_matching(&group, pattern),
                None => store.consumer_options(&group, &wants.topics),
            };
            let builder = builder.start(start);
            let builder = match &home {
                Some(home) => builder.offsets_in(home),
                None => builder,
            };
            Ok::<_, Error>((builder.open()?, home))
        })();
        let joined = joined.map(|(consumer, home)| {
            (work.state, work.home) = (State::Open(Box::new(consumer), wants), home);
        });
        Ok((work, joined))
    })
    .await?;
    if let Err(error) = joined {
        app.sessions.end_with(&session.0, work).await;
        return Err(error.into());
    }
    drop(work);
    session.changes.send_replace(());
    Ok(())
}

/// Get the session of a later poll.
async fn resume(app: &App, principal: &Principal, group: &str, asked: &Poll) -> Answer<InUse> {
    let (session, work) = super::open(app, principal, group, &asked.member).await?;
    if let State::Open(_, begun) = &work.state {
        begun.expect_grants(principal)?;
        if !asked.repeats(begun) {
            let detail = "the session began with another subscription";
            let problem = Problem::new(StatusCode::CONFLICT, "subscription-differs", detail);
            return Err(Box::new(
                problem
                    .remedy("leave out topics, pattern and offsets_in, or leave the group first"),
            ));
        }
    }
    Ok(session)
}

/// Look, and wait for records, for partitions and for the end of the time.
async fn answer(
    app: &App,
    session: &InUse,
    wanted: Wanted,
    wait: Duration,
    deadline: Option<Deadline>,
) -> Answer {
    let mut changes = session.changes.subscribe();
    let end = Instant::now() + wait;
    let (mut following, mut watched) = (None, Vec::<(Topic, News)>::new());
    loop {
        let is_last = wait.is_zero() || Instant::now() >= end || app.is_draining();
        changes.mark_unchanged();
        let topics = match look(app, session, &wanted, is_last).await? {
            Ok((share, text)) => return Ok(shown(app, share, text, deadline)),
            Err(topics) => topics,
        };
        if following.is_none() {
            following = Some(app.followers.try_acquire().map_err(|_| too_many_followers())?);
        }
        let is_same = |(topic, (seen, _)): (&Topic, &(Topic, News))| {
            topic.settings().generation == seen.settings().generation
        };
        if topics.len() != watched.len() || !topics.iter().zip(&watched).all(is_same) {
            let subscribe = |topic: Topic| {
                let news = app.served.watcher.subscribe(&topic, 0);
                (topic, news)
            };
            watched = topics.into_iter().map(subscribe).collect();
            // Earlier records are no news.
            continue;
        }
        tokio::select! {
            () = any(watched.iter_mut().map(|(_, news)| news)), if !watched.is_empty() => {}
            _ = changes.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
            () = tokio::time::sleep_until(end) => {}
            () = app.until_drained() => {}
        }
    }
}

fn shown(app: &App, share: Share, text: Vec<u8>, deadline: Option<Deadline>) -> Response {
    app.metrics.read_bytes.inc_by(text.len() as u64);
    let headers = [(header::CONTENT_TYPE.as_str(), "application/json")];
    (headers, held(Some(share), text, deadline)).into_response()
}

/// Look once, within a share of the budget; without an answer, return the topics that may have one.
async fn look(
    app: &App,
    session: &InUse,
    wanted: &Wanted,
    is_last: bool,
) -> Answer<Result<(Share, Vec<u8>), Vec<Topic>>> {
    let reads = &app.served.reads;
    let mut bytes = wanted.bytes;
    loop {
        let share = reads.take(bytes).await;
        let work = session.work().await;
        let (served, wanted) = (std::sync::Arc::clone(&app.served), wanted.clone());
        let changes = std::sync::Arc::clone(&session.changes);
        let looked = blocking(move || {
            let mut work = work;
            let before = work.assigned.clone();
            let looked = work.look(&wanted, share, bytes, is_last, &|name| served.topic(name));
            if work.assigned != before {
                // Other sessions of the group may take what this one released.
                changes.send_replace(());
            }
            looked
        });
        match looked.await? {
            Look::Answer(share, text) => return Ok(Ok((share, text))),
            Look::Nothing(topics) => return Ok(Err(topics)),
            Look::Refused(problem) => return Err(problem),
            Look::Needs { bytes: more, offset } if more > reads.capacity() => {
                return Err(too_large(offset, more));
            }
            Look::Needs { bytes: more, .. } => bytes = more,
        }
    }
}

/// Read a body as a poll does.
pub(super) fn parse_any(bytes: &[u8]) {
    if let Ok(asked) = body::object::<Poll>(bytes) {
        let _ = asked.subscription().map(|begun| asked.repeats(&begun));
        let _ = asked.start.as_ref().map(start);
    }
}
