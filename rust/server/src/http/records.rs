//! Records: appending them, reading them, and waiting for more.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use falaj::{NewRecord, SequenceSpan, Start, Topic};
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{Asked, Named};
use super::listen::Cut;
use super::problem::{Answer, Problem, exact};
use super::{App, body, shape};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::read::{Held, Share, blocking};

/// How long an append waits for its turn, where the request does not say.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait of a read.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Most records of an answer, and bytes of it, where the request does not say.
const LIMIT: u64 = 1_000;
const BYTES: usize = 4 << 20;

/// Space for the end of a JSON document with records.
const END: usize = 64;

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

/// The query of a read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadQuery {
    partition: Option<u32>,
    from: Option<u64>,
    last: Option<u64>,
    limit: Option<u64>,
    bytes: Option<usize>,
    wait: Option<Span>,
}

/// One answer: lines of JSON, and where the next read begins.
struct Page {
    share: Option<Share>,
    text: Vec<u8>,
    next: u64,
    records: u64,
}

/// Answer with records of one partition, or with those that come.
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
    let served = std::sync::Arc::clone(&app.served);
    let partition = query.partition.unwrap_or(0);
    let start = match (query.from, query.last) {
        (Some(_), Some(_)) => {
            return Err(Box::new(Problem::bad_request("from and last exclude each other")));
        }
        (Some(offset), None) => Start::Offset(offset),
        (None, Some(records)) => Start::Last(records),
        (None, None) => Start::Earliest,
    };
    let (topic, codec) = blocking(move || {
        let topic = served.topic(&name)?.partition(partition)?;
        let codec = served.store().topic_info(&name)?.settings.map(|settings| settings.codec)?;
        Ok((topic, codec))
    })
    .await?;
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("application/json");
    let reading = Reading {
        lines: accept.contains("ndjson"),
        is_json: codec == "json",
        limit: query.limit.unwrap_or(LIMIT).min(app.config.limits.batch),
        bytes: query.bytes.unwrap_or(BYTES).min(app.config.limits.bytes_in_flight.get() / 16),
        topic,
        partition,
    };
    let wait = query.wait.map_or(Duration::ZERO, |span| span.0.min(WAIT_MAX));
    let page = reading.page(&app, start, wait).await?;
    app.metrics.read_bytes.inc_by(page.text.len() as u64);
    let deadline = (version == Version::HTTP_2).then_some((app.config.limits.write_timeout.0, cut));
    Ok(answer(reading.lines, page, deadline))
}

fn answer(lines: bool, page: Page, deadline: Option<(Duration, Cut)>) -> Response {
    let kind = if lines { "application/vnd.falaj.records+ndjson" } else { "application/json" };
    let next = ("falaj-next-offset", page.next.to_string());
    let headers = [(header::CONTENT_TYPE.as_str(), kind.to_owned()), next];
    (headers, held(page.share, page.text, deadline)).into_response()
}

fn held(share: Option<Share>, text: Vec<u8>, deadline: Option<(Duration, Cut)>) -> Body {
    let Some(share) = share else { return text.into() };
    Body::new(match deadline {
        Some((patience, cut)) => Held::with_deadline(text, share, patience, move || cut.cut()),
        None => Held::new(text, share),
    })
}

/// A partition, and how much of it an answer takes.
#[derive(Clone)]
struct Reading {
    topic: Topic,
    partition: u32,
    /// A line a record, or else one object with all of them.
    lines: bool,
    is_json: bool,
    limit: u64,
    bytes: usize,
}

impl Reading {
    /// Read once; if there is nothing, wait for news and read again.
    async fn page(&self, app: &App, start: Start, wait: Duration) -> Answer<Page> {
        // Before the look: what comes after it is news.
        let mut news =
            (!wait.is_zero()).then(|| app.served.watcher.subscribe(&self.topic, self.partition));
        let mut page = self.look(app, start).await?;
        let Some(news) = news.as_mut().filter(|_| page.records == 0) else { return Ok(page) };
        let _following = app.followers.try_acquire().map_err(|_| {
            Box::new(Problem::busy(
                "as many requests wait for new records as limits.followers allows",
            ))
        })?;
        let end = tokio::time::Instant::now() + wait;
        while page.records == 0 {
            tokio::select! {
                () = news.wait() => page = self.look(app, Start::Offset(page.next)).await?,
                () = tokio::time::sleep_until(end) => break,
                () = app.until_drained() => break,
            }
        }
        Ok(page)
    }

    async fn look(&self, app: &App, start: Start) -> Answer<Page> {
        let share = app.served.reads.take(self.bytes + END).await;
        let reading = self.clone();
        let page = blocking(move || reading.read(start)).await?;
        Ok(Page { share: Some(share), ..page })
    }

    /// Grow an answer, never to more than what was asked for, and the end of a JSON document: that is its share.
    fn make_space(&self, text: &mut Vec<u8>, more: usize) {
        let needed = text.len() + more + END;
        if needed > text.capacity() {
            let capacity = needed.max((text.capacity() * 2).min(self.bytes + END));
            text.reserve_exact(capacity - text.len());
        }
    }

    /// Read records on a thread of the pool. The first one comes also if it is larger than what was asked for. The
    /// answer is written once, as it will be sent: a copy of it would cost as much memory again.
    fn read(&self, start: Start) -> falaj::Result<Page> {
        let topic = &self.topic;
        let mut follow = topic.follow(start)?.with_timeout(Some(Duration::ZERO));
        let next = match start {
            Start::Offset(offset) => offset,
            _ => topic.end_offset()?,
        };
        let mut page = Page { share: None, text: Vec::new(), next, records: 0 };
        if !self.lines {
            page.text.extend_from_slice(b"{\"records\":[");
        }
        let mut line = Vec::new();
        while page.records < self.limit {
            let Some((batch, at)) = follow.poll_ref()? else { break };
            line.clear();
            shape::write_line(&mut line, topic.name(), self.is_json, batch, &at);
            if page.records > 0 && page.text.len() + line.len() > self.bytes {
                break;
            }
            if page.records > 0 && !self.lines {
                // In the place of the line end before it.
                page.text.pop();
                page.text.push(b',');
            }
            self.make_space(&mut page.text, line.len());
            page.text.extend_from_slice(&line);
            page.records += 1;
            page.next = batch.offset(&at) + 1;
        }
        if !self.lines {
            let end = format!("],\"next_offset\":{}}}\n", exact(page.next));
            page.text.extend_from_slice(end.as_bytes());
        }
        Ok(page)
    }
}
