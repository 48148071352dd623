//! Appends of records: what a body holds, all of it or nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse as _;
use falaj::{NewRecord, SequenceSpan, Topic};
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{Asked, Named};
use super::problem::{Answer, Problem, exact};
use super::{App, body};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::read::blocking;

/// How long an append waits for its turn, where the request does not say.
const PATIENCE: Duration = Duration::from_secs(10);

/// The query of an append.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendQuery {
    partition: Option<u32>,
    sync: Option<Sync>,
    timeout: Option<Span>,
    create: Option<bool>,
}

/// When an append is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sync {
    /// Once every reader sees it.
    None,
    /// Likewise; it is on the disk within the topic's interval.
    #[default]
    Interval,
    /// Once it is on the disk.
    Durable,
}

/// Records of a request, kept by their places in its body.
struct Batch {
    body: body::Whole,
    records: Vec<Range<usize>>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
}

/// Append what the body holds: all of it or nothing.
///
/// # Errors
/// Each problem of the request, of the limits and of the engine.
pub async fn append(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    Asked(query): Asked<AppendQuery>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    principal.may(Action::Append, Kind::Topic, &name)?;
    let may_create = principal.may(Action::Create, Kind::Topic, &name);
    let producer = producer(&headers, &principal)?;
    let next = number(&headers, "if-next")?;
    let batch = batch(&app, &headers, body).await?;
    if batch.records.len() != 1 && (next.is_some() || producer.is_some()) {
        let detail = "If-Next, Falaj-Producer and Falaj-Sequence go with a body that is one record";
        return Err(Box::new(Problem::bad_request(detail)));
    }
    let create = query.create.unwrap_or(true) && may_create.is_ok();
    let served = std::sync::Arc::clone(&app.served);
    let topic =
        blocking(move || if create { served.topic_or_create(&name) } else { served.topic(&name) })
            .await?;
    let topic = match query.partition {
        Some(partition) => topic.partition(partition)?,
        None => topic,
    };
    let sync = query.sync.unwrap_or_default();
    let patience = query.timeout.map_or(PATIENCE, |span| span.0);
    let count = batch.records.len();
    let appending = topic.clone();
    let run = move || append_batch(&appending, &batch, next, producer.as_ref());
    let appended = app.served.appends.run(&topic, sync == Sync::Durable, patience, run).await?;
    app.metrics.appended.inc_by(count as u64);
    let partitions = appended.value;
    if let Some(error) = appended.unsynced {
        let detail = format!(
            "the records are appended, and every reader sees them, but whether they are on the disk is unknown: {error}"
        );
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "durability-unknown", detail);
        return Err(Box::new(problem.with("partitions", shown(&partitions))));
    }
    let durable = sync == Sync::Durable;
    let mut answer = json!({ "durable": durable, "partitions": shown(&partitions) });
    if let [one] = answer["partitions"].as_array().map_or(&[][..], Vec::as_slice) {
        let one = one.clone();
        answer
            .as_object_mut()
            .into_iter()
            .for_each(|all| all.extend(one.as_object().cloned().unwrap_or_default()));
    }
    Ok((StatusCode::CREATED, axum::Json(answer)).into_response())
}

fn shown(partitions: &BTreeMap<u32, Range<u64>>) -> Value {
    let each = |(partition, offsets): (&u32, &Range<u64>)| json!({ "partition": partition, "first": exact(offsets.start), "next": exact(offsets.end) });
    partitions.iter().map(each).collect()
}

fn append_batch(
    topic: &Topic,
    batch: &Batch,
    next: Option<u64>,
    producer: Option<&(String, SequenceSpan)>,
) -> falaj::Result<BTreeMap<u32, Range<u64>>> {
    let headers: Vec<_> =
        batch.headers.iter().map(|(name, value)| (name.as_str(), Some(value.as_slice()))).collect();
    let record = |range: &Range<usize>| NewRecord {
        key: batch.key.as_deref(),
        headers: &headers,
        ..NewRecord::new(&batch.body.bytes[range.clone()])
    };
    let mut preconditions = Vec::new();
    if let Some(next) = next {
        preconditions.push(topic.expect_offset(next)?);
    }
    if let Some((name, span)) = producer {
        preconditions.push(topic.expect_sequence(name, *span)?);
    }
    match batch.records.as_slice() {
        [one] => {
            let at = topic.append_if(record(one), &preconditions)?;
            Ok([(at.partition, at.offset..at.offset + 1)].into())
        }
        many => topic.extend(many.iter().map(record)),
    }
}

async fn batch(app: &App, headers: &HeaderMap, body: Body) -> Answer<Batch> {
    let body = body::read(app, headers, body).await?;
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let limits = &app.config.limits;
    let records = match kind.split(';').next().map(str::trim) {
        Some("application/x-ndjson") => lines(&body.bytes)?,
        // One record: the whole body.
        _ => std::iter::once(0..body.bytes.len()).collect(),
    };
    if records.len() as u64 > limits.batch {
        let detail =
            format!("{} records are more than the {} of one request", records.len(), limits.batch);
        return Err(Box::new(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "batch-too-large",
            detail,
        )));
    }
    if let Some(i) = records.iter().position(|range| range.len() as u64 > limits.record.0) {
        let detail =
            format!("record {i} has {} bytes, more than {}", records[i].len(), limits.record);
        return Err(Box::new(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "record-too-large",
            detail,
        )));
    }
    let mut named = Vec::new();
    for (name, value) in headers {
        if let Some(name) = name.as_str().strip_prefix("falaj-header-") {
            named.push((name.to_owned(), value.as_bytes().to_vec()));
        }
    }
    let key = headers.get("falaj-key").map(|value| value.as_bytes().to_vec());
    Ok(Batch { body, records, key, headers: named })
}

/// Find the lines, and check that each is a JSON document.
fn lines(text: &[u8]) -> Answer<Vec<Range<usize>>> {
    let (mut found, mut start) = (Vec::new(), 0);
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let range = start..start + line.trim_ascii_end().len();
        start += line.len();
        if range.is_empty() {
            continue;
        }
        if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&text[range.clone()]) {
            return Err(Box::new(Problem::bad_request(format!(
                "line {} is not JSON: {error}",
                number + 1
            ))));
        }
        found.push(range);
    }
    Ok(found)
}

fn number(headers: &HeaderMap, name: &str) -> Answer<Option<u64>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        Box::new(Problem::bad_request(format!("the header {name} must be a whole number from 0")))
    })
}

/// The producer that makes a repeated request harmless. Its name counts for its principal alone.
fn producer(headers: &HeaderMap, principal: &Principal) -> Answer<Option<(String, SequenceSpan)>> {
    let sequence = number(headers, "falaj-sequence")?;
    let name = headers.get("falaj-producer").map(|value| value.to_str().map(str::to_owned));
    match (name, sequence) {
        (None, None) => Ok(None),
        (Some(Ok(name)), Some(sequence)) => {
            Ok(Some((format!("{}/{name}", principal.name()), SequenceSpan::from(sequence))))
        }
        (Some(Err(_)), _) => {
            Err(Box::new(Problem::bad_request("the header falaj-producer must be ASCII text")))
        }
        _ => Err(Box::new(Problem::bad_request(
            "the headers falaj-producer and falaj-sequence go together",
        ))),
    }
}
