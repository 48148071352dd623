//! Jobs that a worker took: they are done, they failed, or they take longer.
//!
//! The ids of the jobs are enough: any server on the store settles them. Invariant: a job that is done can be acked again,
//! and neither fail nor take longer. [`super::queues`] gives jobs to workers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use falaj::{Error, Job, Ticket, Topic};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::App;
use super::asked::Named;
use super::problem::{Answer, Problem};
use super::queues::{about, bounded, lease, letters, with_letters};
use crate::access::Principal;
use crate::config::units::Span;
use crate::store::queues::OpenQueue;
use crate::store::workers::Name;

/// Most jobs of a request.
const SETTLED: usize = 1_000;
const DONE: &str = "it is done already: settle a job once, and drop this result";

/// Jobs that are done, or go on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ack {
    worker: Option<String>,
    jobs: Tickets,
}

/// Jobs that failed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Nack {
    worker: Option<String>,
    jobs: Tickets,
    delay: Option<Span>,
    reason: String,
    max_attempts: Option<u32>,
    dead_letter: Option<String>,
}

/// Jobs that take longer.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Extend {
    worker: Option<String>,
    jobs: Tickets,
    lease: Option<Span>,
}

/// The ids of jobs, not more than a request may have.
#[derive(Debug, Default)]
struct Tickets(Vec<Ticket>);

impl<'de> Deserialize<'de> for Tickets {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Bounded).map(Self)
    }
}

struct Bounded;

impl<'de> Visitor<'de> for Bounded {
    type Value = Vec<Ticket>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an array of at most {SETTLED} ids of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut tickets = Vec::new();
        while let Some(text) = from.next_element::<String>()? {
            if tickets.len() == SETTLED {
                return Err(de::Error::invalid_length(SETTLED + 1, &self));
            }
            tickets.push(text.parse().map_err(de::Error::custom)?);
        }
        Ok(tickets)
    }
}

/// Read the bodies of these requests, whatever they hold.
pub fn parse_any(bytes: &[u8]) {
    let _ = (super::topics::parse::<Ack>(bytes), super::topics::parse::<Extend>(bytes));
    let _ = super::topics::parse::<Nack>(bytes);
}

/// Say that jobs are done. A job that is done already counts as well.
///
/// # Errors
/// 403, 404; 409 naming the jobs whose leases are over, where the others are done; those of the engine.
pub async fn ack(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    let (asked, queue): (Ack, _) = about(&app, &principal, &name, &headers, body).await?;
    let acked = settle(&queue, asked.jobs, None, true, Job::ack).await?;
    Ok(Json(json!({ "acked": acked })))
}

/// Say that jobs failed: they are delivered again, or become dead letters.
///
/// # Errors
/// As [`ack`], and 409 for jobs that are done as well.
pub async fn nack(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    let (asked, queue): (Nack, _) = about(&app, &principal, &name, &headers, body).await?;
    let delay = asked.delay.map(|delay| bounded("delay", delay)).transpose()?;
    let (topic, reason) = (queue.queue().topic().name(), asked.reason);
    let letters = letters(&app, &principal, topic, asked.max_attempts, asked.dead_letter.as_ref());
    let letters = letters.await?;
    let fails = move |job: &Job| job.nack(delay, &reason);
    let nacked = settle(&queue, asked.jobs, letters, false, fails).await?;
    Ok(Json(json!({ "nacked": nacked })))
}

/// Say that jobs take longer: their leases end so long after now.
///
/// # Errors
/// As [`nack`].
pub async fn extend(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    let (asked, queue): (Extend, _) = about(&app, &principal, &name, &headers, body).await?;
    let lease = lease(asked.lease)?;
    if let Some(worker) = asked.worker {
        let (principal, queue) = (principal.name().to_owned(), name);
        // It stays known as long as its jobs.
        let _ = app.served.workers.get(&Name { principal, queue, worker }, false, lease);
    }
    let extended = settle(&queue, asked.jobs, None, false, move |job| job.extend(lease)).await?;
    Ok(Json(json!({ "extended": extended })))
}

/// Settle each of these jobs, and count those that are settled. A job that is done counts as settled for an ack alone.
async fn settle(
    queue: &Arc<OpenQueue>,
    jobs: Tickets,
    letters: Option<(u32, Topic)>,
    is_ack: bool,
    run: impl Fn(&Job) -> falaj::Result<()> + Send + 'static,
) -> Answer<usize> {
    let settling = queue.call(move |queue| {
        let queue = with_letters(queue, letters.as_ref())?;
        let (mut settled, mut lost) = (0, Vec::new());
        for ticket in jobs.0 {
            let done = match queue.reserved(&ticket) {
                Ok(Some(job)) => run(&job),
                Ok(None) if is_ack => Ok(()),
                Ok(None) => {
                    let (queue, offset) = (queue.name().to_owned(), ticket.offset());
                    Err(Error::LeaseExpired { queue, offset, why: DONE })
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => settled += 1,
                Err(error @ Error::LeaseExpired { .. }) => lost.push((ticket, error)),
                Err(error) => return Err(error),
            }
        }
        Ok((settled, lost))
    });
    let (settled, lost) = settling.await?;
    queue.tell();
    let Some((_, first)) = lost.first() else { return Ok(settled) };
    let problem = Problem::new(StatusCode::CONFLICT, "lease-expired", first.to_string());
    let ids: Value = lost.iter().map(|(ticket, _)| ticket.to_string()).collect();
    let problem = problem.with("jobs", ids).with("settled", settled);
    Err(Box::new(problem.remedy("drop the results of these jobs, and take longer leases")))
}
