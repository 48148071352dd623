//! Queues: their numbers, new jobs, dead letters that are put back, and the end of a queue.

use std::time::SystemTime;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use falaj::report::QueueInfo;
use falaj::{Error, NOT_BEFORE};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::append::{Appending, PATIENCE, Sync, append_to};
use super::asked::{Asked, Named};
use super::problem::{Answer, Problem, exact};
use super::queues::{about, bounded, empty, letters_of, may_create, with_letters};
use super::topics::document;
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::read::blocking;

/// Most dead letters that a request puts back.
const REDRIVEN: u64 = 10_000;

/// The query of a put.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutQuery {
    sync: Option<Sync>,
    timeout: Option<Span>,
    create: Option<bool>,
    delay: Option<Span>,
}

/// Which dead letters are put back.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Redrive {
    dead_letter: Option<String>,
    limit: Option<u64>,
}

/// The settings of a new queue.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NewQueue {
    topic: Option<String>,
    order: Option<Order>,
}

/// The order of a queue's jobs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// A job is delivered only when the one before it of the same key is done.
    Key,
}

/// Read each of the bodies here, whatever it holds.
pub fn parse_any(bytes: &[u8]) {
    let _ = super::topics::parse::<Redrive>(bytes);
    let _ = super::topics::parse::<NewQueue>(bytes);
}

/// Create a queue over a topic that is there, or over that of its name, which is created too.
///
/// # Errors
/// 403; 404 for a topic that is named and missing; 409 for a queue with another topic or order; those of the engine.
pub async fn create(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    principal.may(Action::Create, Kind::Group, &name)?;
    let asked: NewQueue = document(&app, &headers, body).await?;
    let may_make_topic = match &asked.topic {
        Some(topic) => principal.may(Action::Read, Kind::Topic, topic).map(|()| false),
        None => Ok(principal.may(Action::Create, Kind::Topic, &name).is_ok()),
    }?;
    let order = asked.order.map(|Order::Key| true);
    let (existed, info) =
        app.served.create_queue(&name, asked.topic, order, may_make_topic).await?;
    let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(shown(&info))).into_response())
}

impl PutQuery {
    /// The header of jobs that wait.
    ///
    /// # Errors
    /// 400 for a delay that is too long.
    pub fn not_before(&self) -> Answer<Option<(String, Vec<u8>)>> {
        let Some(delay) = self.delay.filter(|delay| !delay.0.is_zero()) else { return Ok(None) };
        let delay = bounded("delay", delay)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let until = (now + delay).as_micros().to_string();
        Ok(Some((NOT_BEFORE.to_owned(), until.into_bytes())))
    }
}

/// Append jobs to the topic of a queue. A missing queue is created, if a grant allows it.
///
/// # Errors
/// As an append; 404 for a queue that may not be created.
pub async fn put(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    Asked(query): Asked<PutQuery>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let not_before = query.not_before()?;
    let creates = query.create.unwrap_or(true) && may_create(&principal, &name);
    let (store, served, of) = (app.served.store().clone(), app.served.clone(), name.clone());
    let look = move || match store.queue_info(&of) {
        Ok(info) => Ok((info.topic, true)),
        // A topic with several partitions can have none, and opening says so. Else a refused job makes no queue.
        Err(Error::UnknownQueue { .. }) if creates => {
            let is_refused = served.topic(&of).is_ok_and(|topic| topic.partitions() > 1);
            Ok((of.clone(), is_refused))
        }
        Err(error) => Err(error),
    };
    let (topic, opens_first) = blocking(look).await?;
    let PutQuery { sync, timeout, .. } = query;
    principal.may(Action::Append, Kind::Topic, &topic)?;
    if opens_first {
        app.served.queue(&name, creates).await?;
    }
    let asked = Appending { partition: None, sync, timeout, create: creates, not_before };
    let answer = append_to(&app, &principal, topic, asked, &headers, body).await?;
    if !opens_first {
        // All records of its topic are jobs of a new queue.
        app.served.queue(&name, true).await?;
    }
    Ok(answer)
}

/// Answer with the queues that the principal may read, and their numbers.
///
/// # Errors
/// Those of the engine.
pub async fn list(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
) -> Answer<Json<Value>> {
    let store = app.served.store().clone();
    let all = blocking(move || {
        let names = store.queue_names()?.into_iter();
        let seen = names.filter(|name| principal.sees(Kind::Group, name));
        let shown = seen.map(|name| match store.queue_info(&name) {
            Ok(info) => shown(&info),
            // The state of one queue is corrupt; the others are well.
            Err(error) => json!({ "queue": name, "error": Box::<Problem>::from(error).detail() }),
        });
        Ok(shown.collect::<Vec<_>>())
    });
    Ok(Json(json!({ "queues": all.await? })))
}

/// Answer with the numbers of a queue.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn describe(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
) -> Answer<Json<Value>> {
    principal.may(Action::Read, Kind::Group, &name)?;
    let store = app.served.store().clone();
    Ok(Json(shown(&blocking(move || store.queue_info(&name)).await?)))
}

fn shown(info: &QueueInfo) -> Value {
    json!({
        "queue": info.name,
        "topic": info.topic,
        "order": if info.ordered { Some("key") } else { None },
        "ready": exact(info.ready),
        "delayed": exact(info.delayed),
        "in_flight": exact(info.in_flight),
        "done": exact(info.done),
        "dead": exact(info.dead),
        "trimmed": exact(info.trimmed),
    })
}

/// Delete the state of a queue. The records stay in their topic.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn delete(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
) -> Answer {
    principal.may(Action::Delete, Kind::Group, &name)?;
    app.served.delete_queue(&name).await?;
    Ok(empty())
}

/// Put dead letters back into their queue, each once however often it is asked for.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn redrive(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let (asked, queue): (Redrive, _) = about(&app, &principal, &name, &headers, body).await?;
    let topic = queue.queue().topic().clone();
    principal.may(Action::Append, Kind::Topic, topic.name())?;
    let letters = letters_of(topic.name(), asked.dead_letter.as_ref())?;
    principal.may(Action::Read, Kind::Topic, &letters)?;
    let limit = asked.limit.unwrap_or(REDRIVEN).min(REDRIVEN);
    let served = app.served.clone();
    let run = move || {
        let letters = served.topic(&letters)?;
        with_letters(queue.queue(), Some(&(1, letters)))?.redrive(limit)
    };
    let redriven = app.served.appends.run(&topic, false, PATIENCE, run).await?;
    let answer = Json(json!({ "redriven": exact(redriven.value) }));
    Ok(axum::response::IntoResponse::into_response(answer))
}
