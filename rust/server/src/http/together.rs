//! One append to several topics of a log: all parts or nothing, each with its condition.
//!
//! ```text
//! {"parts": [{"topic": "paid", "if_next": 17, "records": [{"value": "order 17"}]},
//!            {"topic": "day", "records": [], "finish": true}]}
//! ```
//!
//! Committed offsets of a group ride along where they are kept in that log: `"cursors": [{"group": "billing", …}]`.
//!
//! The topics exist already, and share a log. The parts are read one after the other, and kept in the memory that
//! their bodies have of the budget.

use std::ops::Range;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use falaj::{ProducerName, SequenceSpan, SyncMode, Topic, Transaction};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::append::{PATIENCE, Sync, add, producer, shipped};
use super::asked::{Asked, Meant};
use super::bodies::{Records, each_of};
use super::groups::cursors::{self, Cursors};
use super::problem::{Answer, Problem, exact};
use super::{App, body};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::Served;
use crate::store::read::blocking;

/// Most parts of a request.
const PARTS: u64 = 1_000;

/// The query of such an append.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TogetherQuery {
    sync: Option<Sync>,
    timeout: Option<Span>,
}

/// The body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asking<'a> {
    #[serde(borrow)]
    parts: &'a RawValue,
    #[serde(default)]
    cursors: Vec<cursors::Sent>,
}

/// A part as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent<'a> {
    topic: String,
    generation: Option<String>,
    partition: Option<u32>,
    if_next: Option<u64>,
    #[serde(borrow)]
    records: &'a RawValue,
    #[serde(default)]
    finish: bool,
}

/// A part that was checked.
struct Part {
    topic: Topic,
    is_of_one: bool,
    if_next: Option<u64>,
    records: Records,
    finish: bool,
}

/// The records of a part of the append: topic, partition, offsets.
type Placed = (Topic, u32, Range<u64>);

/// Append all parts, or nothing.
///
/// # Errors
/// Each problem of the request, of the limits and of the engine; those of a condition name topic and partition.
pub async fn append(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Asked(query): Asked<TogetherQuery>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let producer = producer(&headers, &principal)?;
    let body = body::read(&app, &headers, body).await?;
    let of = app.clone();
    let by = principal.clone();
    let (parts, sent) = blocking(move || Ok(parts(&of, &by, &body))).await??;
    let Some(first) = parts.first().map(|part| part.topic.clone()) else {
        return Err(Box::new(Problem::bad_request("an append needs a part")));
    };
    let count: usize = parts.iter().map(|part| part.records.len()).sum();
    let sync = query.sync.unwrap_or_default();
    let patience = query.timeout.map_or(PATIENCE, |span| span.0);
    let mut cursors = cursors::find(&app, &principal, sent).await?;
    let served = std::sync::Arc::clone(&app.served);
    let begun = Instant::now();
    let of = first.clone();
    let run = move || {
        if let Err(refused) = sync.expect_ready(&of) {
            return Ok(repeat(&parts, sync, producer.as_ref(), refused.into()));
        }
        Ok(commit(&served, &parts, cursors.as_mut(), sync, producer.as_ref()))
    };
    let appended = app.served.appends.run(&first, sync.is_durable(), patience, run).await?;
    let placed = appended.value?;
    app.metrics.appended.inc_by(count as u64);
    if let Some(error) = appended.unsynced {
        let detail = format!(
            "the parts are appended, and every reader sees them, but whether they are on the disk is unknown: {error}"
        );
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "durability-unknown", detail);
        return Err(Box::new(problem.with("parts", shown(&placed))));
    }
    if sync == Sync::Remote {
        // A part that only finishes a topic has no offset of its own.
        let offset = placed.first().map_or(0, |(_, _, offsets)| offsets.start);
        let shipped = shipped(&app, (&first, 0, offset), begun, patience).await;
        shipped.map_err(|problem| problem.with("parts", shown(&placed)))?;
    }
    Ok(answer(sync, &placed))
}

fn answer(sync: Sync, placed: &[Placed]) -> Response {
    let mut answer = json!({ "durable": sync.is_durable(), "parts": shown(placed) });
    if sync == Sync::Remote {
        answer["remote"] = true.into();
    }
    (StatusCode::CREATED, Json(answer)).into_response()
}

fn shown(placed: &[Placed]) -> Value {
    let each = |(topic, partition, offsets): &Placed| {
        json!({
            "topic": topic.name(),
            "partition": partition,
            "first": exact(offsets.start),
            "next": exact(offsets.end),
        })
    };
    placed.iter().map(each).collect()
}

/// Read the parts, and check the grants of each; read the cursors.
fn parts(
    app: &App,
    principal: &Principal,
    body: &body::Whole,
) -> Answer<(Vec<Part>, Vec<cursors::Sent>)> {
    let mut found = Vec::new();
    let mut refused = None;
    let asking: Asking<'_> = body::object(&body.bytes)?;
    let read = each_of(asking.parts.get(), PARTS, |place, text| {
        let sent = sent(text).map_err(|why| format!("part {place} {why}"))?;
        match part(app, principal, &sent, body) {
            Ok(part) => {
                found.push(part);
                Ok(())
            }
            Err(problem) => {
                refused = Some(Box::new(problem.with("part", place)));
                Err(String::new())
            }
        }
    });
    match refused {
        Some(problem) => Err(problem),
        None => read.map(|()| (found, asking.cursors)),
    }
}

fn sent(text: &str) -> Result<Sent<'_>, String> {
    is_object(text.as_bytes())?;
    serde_json::from_str(text).map_err(|error| format!("cannot be used: {error}"))
}

/// An array of its members would do otherwise.
fn is_object(text: &[u8]) -> Result<(), String> {
    match text.trim_ascii_start().first() {
        Some(b'{') => Ok(()),
        _ => Err("must be a JSON object".to_owned()),
    }
}

fn part(app: &App, principal: &Principal, sent: &Sent<'_>, body: &body::Whole) -> Answer<Part> {
    principal.may(Action::Append, Kind::Topic, &sent.topic)?;
    if sent.finish {
        principal.may(Action::Delete, Kind::Topic, &sent.topic)?;
    }
    let meant = Meant::of(sent.generation.as_deref())?;
    let topic = meant.find(&app.served, &sent.topic)?;
    let topic = match topic.codec()? {
        Some(_) => topic,
        None => app.served.topic_with(&sent.topic, "bytes", false)?,
    };
    let codec = topic.codec()?.unwrap_or("bytes").to_owned();
    let records =
        Records::of_array(sent.records.get(), body.beside()?, &codec, &app.config.limits)?;
    let topic = match sent.partition {
        Some(partition) => topic.partition(partition)?,
        None => topic,
    };
    if let Some(other) = sent.partition.and_then(|asked| records.names_other_than(asked)) {
        let detail = format!("a record names partition {other}, and its part another one");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    let (is_of_one, if_next, finish) = (sent.partition.is_some(), sent.if_next, sent.finish);
    Ok(Part { topic, is_of_one, if_next, records, finish })
}

/// Append all parts, and commit the offsets that ride along.
fn commit(
    served: &Served,
    parts: &[Part],
    cursors: Option<&mut Cursors>,
    sync: Sync,
    producer: Option<&(String, SequenceSpan)>,
) -> Answer<Vec<Placed>> {
    let Some(first) = parts.first() else { return Ok(Vec::new()) };
    let mut transaction = transaction(first, parts, sync, producer)?;
    let Some(cursors) = cursors else { return Ok(transaction.commit()?.parts().to_vec()) };
    if sync.is_durable() {
        // The records that the group has read must be on the disk before its offset is.
        transaction = transaction.with_sync(SyncMode::Durable);
    }
    match cursors.commit_with(served, &mut transaction, &first.topic) {
        Ok(committed) => Ok(committed.parts().to_vec()),
        Err(refused) => repeat(parts, sync, producer, refused),
    }
}

/// Answer a refused append as the first time, if it happened before: its member may have left since.
fn repeat(
    parts: &[Part],
    sync: Sync,
    producer: Option<&(String, SequenceSpan)>,
    refused: Box<Problem>,
) -> Answer<Vec<Placed>> {
    let Some(first) = parts.first() else { return Err(refused) };
    let mut transaction = transaction(first, parts, sync, producer)?;
    Ok(transaction.repeat_or(refused)?.parts().to_vec())
}

/// Put together what is appended at once.
fn transaction(
    first: &Part,
    parts: &[Part],
    sync: Sync,
    producer: Option<&(String, SequenceSpan)>,
) -> falaj::Result<Transaction> {
    let mut transaction = first.topic.store().transaction().with_sync(sync.mode());
    let mut known: Vec<&str> = Vec::new();
    for part in parts {
        if let Some(next) = part.if_next {
            transaction.expect_offset(&part.topic, next)?;
        }
        let name = part.topic.name();
        if let Some((producer, span)) = producer.filter(|_| !known.contains(&name)) {
            transaction.expect_sequence(&part.topic, ProducerName::expiring(producer), *span)?;
            known.push(name);
        }
        add(&mut transaction, &part.topic, part.is_of_one, &part.records, producer)?;
        if part.finish {
            transaction.finish(&part.topic)?;
        }
    }
    Ok(transaction)
}

/// Read a body as such an append does.
pub fn parse_any(bytes: &[u8]) {
    if let Ok(asking) = body::object::<Asking<'_>>(bytes) {
        let _ = each_of(asking.parts.get(), PARTS, |_, text| sent(text).map(drop));
    }
}
