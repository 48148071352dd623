//! Appends of records: what a body holds, all of it or nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse as _;
use falaj::{Error, ProducerName, SequenceSpan, SyncMode, Topic, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::asked::{Asked, Meant, Named, one, whole};
use super::bodies::{Common, Form, Records};
use super::problem::{Answer, Problem, exact};
use super::{App, body};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::read::blocking;
use crate::store::remote::{self, Wait};

/// How long an append waits for its turn, where the request does not say.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a body that a thread of the HTTP door reads by itself. Another thread would cost more than the reading does.
const READ_HERE: usize = 128 << 10;

/// Bytes of one append that a new topic takes: a quarter of a segment, as the engine has them by default.
const NEW_LIMIT: u64 = 16 << 20;
/// Most bytes of a producer's name, that of its principal included.
const PRODUCER: usize = 1 << 10;

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
pub(super) enum Sync {
    /// Once every reader sees it.
    None,
    /// Likewise; it is on the disk within the topic's interval.
    #[default]
    Interval,
    /// Once it is on the disk.
    Durable,
    /// Once the process that ships the store has it in its place.
    Remote,
}

impl Sync {
    /// The engine's mode. A durable append is synced by the thread of its log, with all that wait there.
    pub(super) fn mode(self) -> SyncMode {
        if self == Self::Interval { SyncMode::Interval } else { SyncMode::None }
    }

    /// True if an answer means that the append is on the disk.
    pub(super) fn is_durable(self) -> bool {
        matches!(self, Self::Durable | Self::Remote)
    }

    /// Check before an append that it can end as asked. Blocks.
    ///
    /// # Errors
    /// `NoShipper`, `Fenced`: nothing is appended.
    pub(super) fn expect_ready(self, topic: &Topic) -> falaj::Result<()> {
        if self == Self::Remote { topic.log().expect_shipper() } else { Ok(()) }
    }
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
    let AppendQuery { partition, sync, timeout, create } = query;
    let (create, not_before) = (create.unwrap_or(true), None);
    let asked = Appending { partition, sync, timeout, create, not_before };
    append_to(&app, &principal, name, asked, &headers, body).await
}

/// How records are appended.
pub(super) struct Appending {
    pub(super) partition: Option<u32>,
    pub(super) sync: Option<Sync>,
    pub(super) timeout: Option<Span>,
    pub(super) create: bool,
    /// A header of each record, besides its own.
    pub(super) not_before: Option<(String, Vec<u8>)>,
}

/// Append what a body holds to a topic.
///
/// # Errors
/// As [`append`].
pub(super) async fn append_to(
    app: &App,
    principal: &Principal,
    name: String,
    asked: Appending,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    principal.may(Action::Append, Kind::Topic, &name)?;
    let may_create = principal.may(Action::Create, Kind::Topic, &name);
    let meant = Meant::by(headers)?;
    let producer = producer(headers, principal)?;
    let next = number(headers, "if-next")?;
    let kind = one(headers, header::CONTENT_TYPE.as_str())?.and_then(|kind| kind.to_str().ok());
    let form = Form::of(kind.unwrap_or_default());
    let key = one(headers, "falaj-key")?.map(|value| value.as_bytes().to_vec());
    let own = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("falaj-header-")?;
        Some((name.to_owned(), value.as_bytes().to_vec()))
    });
    let common = Common { key, headers: own.collect(), besides: asked.not_before };
    let body = body::read(app, headers, body).await?;
    let create = asked.create && may_create.is_ok() && !meant.is_given();
    let (of, sync) = (app.clone(), asked.sync.unwrap_or_default());
    let terms = Terms { partition: asked.partition, next, sync };
    let (topic, records) = match app.served.known(&name) {
        Some(topic) if body.bytes.len() <= READ_HERE => {
            meant.expect(&name, &topic.settings().generation)?;
            let codec = topic.codec()?.unwrap_or(form.codec());
            let records = records_of(body, form, codec, app)?;
            (topic, records.filled(common))
        }
        _ => {
            let creates = create.then_some(terms);
            blocking(move || Ok(prepare(&of, &name, meant, form, (body, common), creates)))
                .await??
        }
    };
    if let Some(other) = asked.partition.and_then(|asked| records.names_other_than(asked)) {
        let detail = format!("a record names partition {other}, and the query another one");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    let whole = topic.with_sync(sync.mode());
    let topic = match asked.partition {
        Some(partition) => whole.partition(partition)?,
        None => whole,
    };
    let patience = asked.timeout.map_or(PATIENCE, |span| span.0);
    let begun = Instant::now();
    let count = records.len();
    let appending = topic.clone();
    let run = move || {
        let (is_of_one, refused) = (asked.partition.is_some(), sync.expect_ready(&appending).err());
        append_all(&appending, is_of_one, &records, next, producer.as_ref(), refused)
    };
    let appended = app.served.appends.run(&topic, sync.is_durable(), patience, run).await?;
    app.metrics.appended.inc_by(count as u64);
    let partitions = appended.value;
    if let Some(error) = appended.unsynced {
        let detail = format!(
            "the records are appended, and every reader sees them, but whether they are on the disk is unknown: {error}"
        );
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "durability-unknown", detail);
        return Err(Box::new(problem.with("partitions", json!(shown(&partitions)))));
    }
    if let (Sync::Remote, Some((partition, offsets))) = (sync, partitions.first_key_value()) {
        let place = (&topic, *partition, offsets.start);
        let shipped = shipped(app, place, begun, patience).await;
        shipped.map_err(|problem| problem.with("partitions", json!(shown(&partitions))))?;
    }
    let answer = Appended::new(sync, &partitions);
    Ok((StatusCode::CREATED, axum::Json(answer)).into_response())
}

/// Wait until an append has left the machine: a partition of it, and its first offset there. The time began with the
/// request.
///
/// # Errors
/// `no-shipper`, `fenced`, `remote-timeout`: the records are appended.
pub(super) async fn shipped(
    app: &App,
    (topic, partition, first): (&Topic, u32, u64),
    begun: Instant,
    patience: Duration,
) -> Result<(), Problem> {
    let end = begun.checked_add(patience);
    let stop = app.until_drained();
    let wait = Wait { topic, partition, first, begun, end };
    let shipped = remote::until_shipped(&app.served, wait, stop).await;
    shipped.map_err(|error| *Box::<Problem>::from(error))
}

/// The answer to an append. The members of its only partition stand in it, too.
#[derive(Serialize)]
struct Appended {
    durable: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    remote: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    partitions: Vec<Part>,
}

/// The records of one partition.
#[derive(Serialize)]
struct Part {
    first: Value,
    next: Value,
    partition: u32,
}

impl Appended {
    fn new(sync: Sync, partitions: &BTreeMap<u32, Range<u64>>) -> Self {
        let partitions = shown(partitions);
        let (first, next, partition) = match &partitions[..] {
            [one] => (Some(one.first.clone()), Some(one.next.clone()), Some(one.partition)),
            _ => (None, None, None),
        };
        let (durable, remote) = (sync.is_durable(), sync == Sync::Remote);
        Self { durable, remote, first, next, partition, partitions }
    }
}

fn shown(partitions: &BTreeMap<u32, Range<u64>>) -> Vec<Part> {
    let each = |(partition, offsets): (&u32, &Range<u64>)| Part {
        first: exact(offsets.start),
        next: exact(offsets.end),
        partition: *partition,
    };
    partitions.iter().map(each).collect()
}

/// The terms of an append that a new topic may not meet.
#[derive(Clone, Copy)]
struct Terms {
    partition: Option<u32>,
    next: Option<u64>,
    sync: Sync,
}

impl Terms {
    /// Refuse before the topic is created whatever the append would be refused for.
    fn expect_of_new(self, name: &str, records: &Records, app: &App) -> Answer<()> {
        let named = self.partition.filter(|partition| *partition > 0);
        if let Some(partition) = named.or_else(|| records.names_other_than(0)) {
            let detail = format!(
                "topic {name:?} would be new, with partition 0 alone: there is no partition {partition}"
            );
            let problem = Problem::bad_request(detail);
            return Err(Box::new(problem.remedy("create the topic with its partitions first")));
        }
        if let Some(expected) = self.next.filter(|next| *next > 0) {
            let topic = name.to_owned();
            return Err(Error::OffsetConflict { topic, partition: 0, expected, next: 0 }.into());
        }
        let bytes = records.bytes_in_a_log();
        if bytes > NEW_LIMIT {
            return Err(Error::AppendTooLarge { bytes, limit: NEW_LIMIT }.into());
        }
        if self.sync == Sync::Remote {
            remote::expect_shipper(app.served.store())?;
        }
        Ok(())
    }
}

/// Open the topic, and read the records as its codec wants them. A body with a mistake creates no topic.
fn prepare(
    app: &App,
    name: &str,
    meant: Meant,
    form: Form,
    (body, common): (body::Whole, Common),
    creates: Option<Terms>,
) -> Answer<(Topic, Records)> {
    let found = match app.served.topic(name) {
        Err(Error::UnknownTopic { .. }) if creates.is_some() => None,
        found => Some(found.map_err(|error| meant.refused(name, error))?),
    };
    if let Some(topic) = &found {
        meant.expect(name, &topic.settings().generation)?;
    }
    let codec = found.as_ref().map(Topic::codec).transpose()?.flatten();
    let records = records_of(body, form, codec.unwrap_or(form.codec()), app)?.filled(common);
    let topic = match (codec, &found) {
        (Some(_), Some(topic)) => topic.clone(),
        (None, Some(_)) => app.served.topic_with(name, form.codec(), false)?,
        (_, None) => {
            if let Some(terms) = creates {
                terms.expect_of_new(name, &records, app)?;
            }
            app.served.topic_with(name, form.codec(), true)?
        }
    };
    Ok((topic, records))
}

fn records_of(body: body::Whole, form: Form, codec: &str, app: &App) -> Answer<Records> {
    let records = Records::read(body, form, codec, &app.config.limits)?;
    if records.len() == 0 {
        return Err(Box::new(Problem::bad_request("the body holds no record")));
    }
    Ok(records)
}

/// Append all records at once, if the conditions hold. Where that was refused, accept nothing but a repeat.
fn append_all(
    topic: &Topic,
    is_of_one: bool,
    records: &Records,
    next: Option<u64>,
    producer: Option<&(String, SequenceSpan)>,
    refused: Option<Error>,
) -> falaj::Result<BTreeMap<u32, Range<u64>>> {
    if let (Some(values), None, None, None) = (records.alone(), next, producer, &refused) {
        return topic.extend(values);
    }
    let mut transaction = topic.store().transaction();
    if let Some(next) = next {
        transaction.expect_offset(topic, next)?;
    }
    if let Some((name, span)) = producer {
        transaction.expect_sequence(topic, ProducerName::expiring(name), *span)?;
    }
    add(&mut transaction, topic, is_of_one, records, producer)?;
    let committed = match refused {
        None => transaction.commit()?,
        Some(refused) => transaction.repeat_or(refused)?,
    };
    let committed = committed.parts().to_vec();
    Ok(committed.into_iter().map(|(_, partition, offsets)| (partition, offsets)).collect())
}

/// Add records to a transaction: to the handle's only partition, to those that they name, or by their keys. Records
/// without a key go to one partition.
pub(super) fn add(
    transaction: &mut Transaction,
    topic: &Topic,
    is_of_one: bool,
    records: &Records,
    producer: Option<&(String, SequenceSpan)>,
) -> falaj::Result<()> {
    // A repeat of a producer's records goes where the first ones went.
    let named =
        producer.filter(|_| !is_of_one).map(|(name, _)| topic.partition_of(name.as_bytes()));
    let mut keyless = named.map(|partition| topic.partition(partition)).transpose()?;
    records.each(|record, partition| {
        if let Some(partition) = partition {
            return transaction.append(&topic.partition(partition)?, *record).map(drop);
        }
        if record.key.is_some() {
            return transaction.append(topic, *record).map(drop);
        }
        let partition = transaction.append(keyless.as_ref().unwrap_or(topic), *record)?;
        if keyless.is_none() {
            keyless = Some(topic.partition(partition)?);
        }
        Ok(())
    })
}

pub(super) fn number(headers: &HeaderMap, name: &str) -> Answer<Option<u64>> {
    let Some(value) = one(headers, name)? else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| whole(text.trim()));
    number.map(Some).ok_or_else(|| {
        Box::new(Problem::bad_request(format!("the header {name} must be a whole number from 0")))
    })
}

/// The producer that makes a repeated request harmless. Its name counts for its principal alone, and the log forgets it
/// by itself: clients that take a new name at each start fill no log.
pub(super) fn producer(
    headers: &HeaderMap,
    principal: &Principal,
) -> Answer<Option<(String, SequenceSpan)>> {
    let sequence = number(headers, "falaj-sequence")?;
    let name = one(headers, "falaj-producer")?.map(|value| value.to_str().map(str::to_owned));
    match (name, sequence) {
        (None, None) => Ok(None),
        (Some(Ok(name)), _) if name.is_empty() => {
            Err(Box::new(Problem::bad_request("the header falaj-producer must name a producer")))
        }
        (Some(Ok(name)), Some(sequence)) => {
            let name = format!("{}/{name}", principal.name());
            if name.len() > PRODUCER {
                let detail = format!(
                    "the producer's name, behind that of its principal, has more than {PRODUCER} bytes"
                );
                return Err(Box::new(Problem::bad_request(detail)));
            }
            Ok(Some((name, SequenceSpan::from(sequence))))
        }
        (Some(Err(_)), _) => {
            Err(Box::new(Problem::bad_request("the header falaj-producer must be ASCII text")))
        }
        _ => Err(Box::new(Problem::bad_request(
            "the headers falaj-producer and falaj-sequence go together",
        ))),
    }
}
