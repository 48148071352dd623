//! Topics: which there are, what each is, and how it is created, changed, ended and deleted.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::{Extension, Json};
use falaj::report::TopicInfo;
use falaj::{CompactOptions, Error, RetentionChange, Store, Topic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::asked::{Asked, Meant, Named};
use super::problem::{Answer, Problem, exact};
use super::shape::{iso, parse_iso};
use super::{App, body};
use crate::access::{Action, Kind, Principal};
use crate::config::units::Span;
use crate::store::Served;
use crate::store::read::blocking;

/// The methods that a topic takes by its own path.
pub const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE";
/// How long the end of a topic waits for its log.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of a new topic.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    partitions: Option<u32>,
    codec: Option<String>,
    log: Option<String>,
    segment_bytes: Option<u64>,
    sync_interval: Option<Span>,
    compacted: Option<bool>,
    #[serde(deserialize_with = "object")]
    retention: Option<Limits>,
}

/// The settings that change.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Change {
    compacted: Option<bool>,
    #[serde(deserialize_with = "object")]
    properties: Option<BTreeMap<String, Option<String>>>,
    #[serde(deserialize_with = "object")]
    retention: Option<Limits>,
}

/// The query of a count.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountQuery {
    partition: Option<u32>,
}

/// Which records expire: what is missing stays as it is, and `null` lifts a limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Limits {
    #[serde(deserialize_with = "given")]
    bytes: Option<Option<u64>>,
    #[serde(deserialize_with = "given")]
    age: Option<Option<Span>>,
    #[serde(deserialize_with = "given")]
    records: Option<Option<u64>>,
    waits: Option<bool>,
    protected: Option<bool>,
}

/// The records that a trim deletes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Trim {
    partition: Option<u32>,
    before: Option<u64>,
    before_time: Option<String>,
}

/// How a compaction goes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Compaction {
    tombstones: Option<Span>,
    seal: bool,
}

/// Read an object or nothing. An array would count as the members in their order.
fn object<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let members = Option::<serde_json::Map<String, Value>>::deserialize(from)?;
    let read = |members| serde_json::from_value(Value::Object(members));
    members.map(read).transpose().map_err(serde::de::Error::custom)
}

fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl Limits {
    fn change(&self) -> RetentionChange {
        let mut change = RetentionChange::default();
        if let Some(bytes) = self.bytes {
            change = change.bytes(bytes);
        }
        if let Some(age) = self.age {
            change = change.age(age.map(|age| age.0));
        }
        if let Some(records) = self.records {
            change = change.records(records);
        }
        if let Some(waits) = self.waits {
            change = change.waits(waits);
        }
        match self.protected {
            Some(protected) => change.protected(protected),
            None => change,
        }
    }
}

/// Answer with the names of the topics that the principal may read.
///
/// # Errors
/// Those of the engine.
pub async fn list(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
) -> Answer<Json<Value>> {
    let store = app.served.store().clone();
    let names = blocking(move || store.topic_names()).await?;
    let seen: Vec<_> = names.into_iter().filter(|name| principal.sees(Kind::Topic, name)).collect();
    Ok(Json(json!({ "topics": seen })))
}

/// Answer with the settings and offsets of a topic.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn describe(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
) -> Answer<Json<Value>> {
    expect_topic(&name)?;
    principal.may(Action::Read, Kind::Topic, &name)?;
    let meant = Meant::by(&headers)?;
    let store = app.served.store().clone();
    let info = blocking(move || Ok(look(&store, &name, meant))).await??;
    Ok(Json(shown(info)?))
}

/// Answer with the number of records of a topic, or of one partition.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn count(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    Asked(query): Asked<CountQuery>,
    headers: HeaderMap,
) -> Answer<Json<Value>> {
    principal.may(Action::Read, Kind::Topic, &name)?;
    let meant = Meant::by(&headers)?;
    let (topic, count) = on_topic(&app, name, meant, move |topic| {
        let topic = match query.partition {
            Some(partition) => topic.partition(partition)?,
            None => topic.clone(),
        };
        let count = topic.count(..)?;
        Ok((topic, count))
    })
    .await?;
    Ok(Json(json!({
        "topic": topic.name(),
        "generation": super::events::shown(&topic.settings().generation),
        "count": exact(count),
    })))
}

/// Read a JSON object; no body stands for one without members.
pub(super) async fn document<T: DeserializeOwned + Default>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Answer<T> {
    let body = body::read(app, headers, body).await?;
    parse(&body.bytes)
}

pub(super) fn parse<T: DeserializeOwned + Default>(bytes: &[u8]) -> Answer<T> {
    if bytes.trim_ascii().is_empty() { Ok(T::default()) } else { body::object(bytes) }
}

/// Read a body as each request here does: none of them may panic, whatever it holds.
pub fn parse_any(bytes: &[u8]) {
    let _ =
        parse::<Settings>(bytes).map(|settings| settings.retention.map(|limits| limits.change()));
    let _ = (parse::<Change>(bytes), parse::<Trim>(bytes), parse::<Compaction>(bytes));
}

/// Create a topic, or check that it has these settings.
///
/// # Errors
/// 403, 409 for other settings, and those of the engine.
pub async fn create(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    expect_topic(&name)?;
    principal.may(Action::Create, Kind::Topic, &name)?;
    let meant = Meant::by(&headers)?;
    let asked: Settings = document(&app, &headers, body).await?;
    if let Some(log) = &asked.log {
        // The log is that of another topic, which may be in other hands.
        principal.may(Action::Create, Kind::Topic, log)?;
    }
    let reads = principal.may(Action::Read, Kind::Topic, &name).is_ok();
    let served = std::sync::Arc::clone(&app.served);
    let open = move || Ok(opened(&served, &name, meant, asked));
    let (existed, info) = blocking(open).await??;
    let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
    let mut document = shown(info)?;
    if existed && !reads {
        let partitions = document["partitions"].as_array_mut().into_iter().flatten();
        for one in partitions {
            *one = json!({ "partition": one["partition"] });
        }
    }
    Ok((status, Json(document)).into_response())
}

/// Open a topic with these settings, or create it; say whether it existed.
fn opened(served: &Served, name: &str, meant: Meant, asked: Settings) -> Answer<(bool, TopicInfo)> {
    if meant.is_given() {
        meant.find(served, name)?;
    }
    let existed = served.topic(name).is_ok();
    let mut topic = served.store().topic_options(name).create(!meant.is_given());
    if let Some(partitions) = asked.partitions {
        topic = topic.partitions(partitions);
    }
    if let Some(codec) = asked.codec {
        topic = topic.codec(codec);
    }
    if let Some(log) = asked.log {
        topic = topic.log(log);
    }
    if let Some(bytes) = asked.segment_bytes {
        topic = topic.segment_bytes(bytes);
    }
    if let Some(interval) = asked.sync_interval {
        topic = topic.sync_interval(interval.0);
    }
    if let Some(compacted) = asked.compacted {
        topic = topic.compacted(compacted);
    }
    if let Some(limits) = asked.retention {
        topic = topic.retention(limits.change());
    }
    let topic = topic.open().map_err(|error| meant.refused(name, error))?;
    meant.expect(name, &topic.settings().generation)?;
    Ok((existed, info_of(&topic)?))
}

/// Change the settings of a topic that can change.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn change(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    expect_topic(&name)?;
    principal.may(Action::Admin, Kind::Topic, &name)?;
    let meant = Meant::by(&headers)?;
    let asked: Change = document(&app, &headers, body).await?;
    // All that may be refused comes before the first change.
    let limits = asked.retention.as_ref().map(Limits::change);
    limits.map_or(Ok(()), |limits| limits.validate())?;
    changed(&app, name, meant, move |topic| {
        if let Some(properties) = &asked.properties {
            let changes: Vec<_> =
                properties.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
            topic.set_properties(&changes)?;
        }
        if let Some(limits) = &limits {
            topic.set_retention(limits)?;
        }
        asked.compacted.map_or(Ok(()), |compacted| topic.set_compacted(compacted))
    })
    .await
}

/// Delete a topic and its records.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn delete(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    expect_topic(&name)?;
    principal.may(Action::Delete, Kind::Topic, &name)?;
    let meant = Meant::by(&headers)?;
    let store = app.served.store().clone();
    let delete = move || {
        if meant.is_given() {
            // The engine deletes by name alone: a topic that is made again from here on would be deleted.
            look(&store, &name, meant)?.settings?;
        }
        store.delete_topic(&name).map_err(|error| meant.refused(&name, error))
    };
    blocking(move || Ok(delete())).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Do what the end of the path says: `orders:finish`, `orders:trim`, `orders:compact`.
///
/// # Errors
/// 400, 403, 404 and those of the engine.
pub async fn act(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(path): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (name, verb) = path.split_once(':').unwrap_or((&path, ""));
    let name = name.to_owned();
    let deletes = || principal.may(Action::Delete, Kind::Topic, &name);
    let meant = Meant::by(&headers)?;
    match verb {
        "finish" => {
            deletes()?;
            document::<Empty>(&app, &headers, body).await?;
            Ok(finish(&app, name, meant).await?.into_response())
        }
        "trim" => {
            deletes()?;
            let asked: Trim = document(&app, &headers, body).await?;
            Ok(trim(&app, name, meant, asked).await?.into_response())
        }
        "compact" => {
            principal.may(Action::Admin, Kind::Topic, &name)?;
            let asked: Compaction = document(&app, &headers, body).await?;
            compact(&app, name, meant, &asked).await
        }
        _ => {
            let detail = format!("a topic takes no POST to {verb:?}");
            let problem = Problem::not_allowed(detail, METHODS);
            let remedy = "send it to orders/records, orders:finish, orders:trim or orders:compact";
            Err(Box::new(problem.remedy(remedy)))
        }
    }
}

/// Refuse any other request to what [`act`] does.
fn expect_topic(path: &str) -> Answer<()> {
    match path.split_once(':') {
        Some((_, verb @ ("finish" | "trim" | "compact"))) => {
            let detail = format!("{verb} is done by a POST");
            Err(Box::new(Problem::not_allowed(detail, "POST")))
        }
        _ => Ok(()),
    }
}

/// A body without members.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

async fn finish(app: &App, name: String, meant: Meant) -> Answer<Json<Value>> {
    let topic = on_topic(app, name, meant, |topic| Ok(topic.clone())).await?;
    let ending = topic.clone();
    // On the thread of its log: what waits there was sent before.
    let ended = app.served.appends.run(&topic, true, PATIENCE, move || ending.finish()).await?;
    if let Some(error) = ended.unsynced {
        let detail =
            format!("the topic is finished, but whether that is on the disk is unknown: {error}");
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "durability-unknown", detail);
        return Err(Box::new(problem));
    }
    let info = blocking(move || info_of(&topic)).await?;
    Ok(Json(shown(info)?))
}

async fn trim(app: &App, name: String, meant: Meant, asked: Trim) -> Answer<Json<Value>> {
    let time = match asked.before_time.as_deref() {
        None => None,
        Some(text) => Some(parse_iso(text).ok_or_else(|| {
            let detail = format!("{text:?} is no time; write it as 2026-11-27T09:30:00Z");
            Box::new(Problem::bad_request(detail))
        })?),
    };
    let (partition, before) = (asked.partition, asked.before);
    if before.is_some() == time.is_some() {
        let detail = "a trim needs either before, an offset, or before_time";
        return Err(Box::new(Problem::bad_request(detail)));
    }
    changed(app, name, meant, move |topic| {
        let topic = match partition {
            Some(partition) => topic.partition(partition)?,
            None => topic.clone(),
        };
        match (before, time) {
            (Some(offset), _) => topic.trim_before(offset),
            (None, time) => topic.trim_before_time(moment(time.unwrap_or(i64::MIN))),
        }
    })
    .await
}

/// A time of the engine, where it counts nanoseconds since 1970.
fn moment(ns: i64) -> SystemTime {
    let from_1970 = Duration::from_nanos(ns.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let moment = if ns < 0 { epoch.checked_sub(from_1970) } else { epoch.checked_add(from_1970) };
    moment.unwrap_or(epoch)
}

async fn compact(app: &App, name: String, meant: Meant, asked: &Compaction) -> Answer {
    let mut options = CompactOptions::default();
    options.seal = asked.seal;
    if let Some(tombstones) = asked.tombstones {
        options.tombstones = tombstones.0;
    }
    let of = app.clone();
    let done = on_topic(app, name, meant, move |topic| {
        let mut go_on = |_, _| if of.is_draining() { Err(Error::Interrupted) } else { Ok(()) };
        topic.compact(&options, &mut go_on)
    })
    .await?;
    Ok(Json(json!({
        "records": exact(done.records),
        "removed": exact(done.removed),
        "tombstones": exact(done.tombstones),
        "segments": exact(done.segments),
        "segments_removed": exact(done.segments_removed),
        "bytes_before": exact(done.bytes_before),
        "bytes_after": exact(done.bytes_after),
    }))
    .into_response())
}

/// Do this with the topic that is meant.
async fn on_topic<T: Send + 'static>(
    app: &App,
    name: String,
    meant: Meant,
    run: impl FnOnce(&Topic) -> Result<T, Error> + Send + 'static,
) -> Answer<T> {
    let served = std::sync::Arc::clone(&app.served);
    let run = move || Ok(run(&meant.find(&served, &name)?)?);
    blocking(move || Ok(run())).await?
}

/// Likewise, and answer with what the topic is then.
async fn changed(
    app: &App,
    name: String,
    meant: Meant,
    change: impl FnOnce(&Topic) -> Result<(), Error> + Send + 'static,
) -> Answer<Json<Value>> {
    let run = move |topic: &Topic| {
        change(topic)?;
        info_of(topic)
    };
    Ok(Json(shown(on_topic(app, name, meant, run).await?)?))
}

/// Look at the topic that is meant, without opening it.
fn look(store: &Store, name: &str, meant: Meant) -> Answer<TopicInfo> {
    let info = store.topic_info(name).map_err(|error| meant.refused(name, error))?;
    if let Ok(settings) = &info.settings {
        meant.expect(name, &settings.generation)?;
    }
    Ok(info)
}

/// Look at the topic of a handle, and at no other one that has its name now.
fn info_of(topic: &Topic) -> Result<TopicInfo, Error> {
    let info = topic.store().topic_info(topic.name())?;
    match &info.settings {
        Ok(settings) if settings.generation != topic.settings().generation => {
            Err(Error::TopicDeleted { name: topic.name().to_owned() })
        }
        _ => Ok(info),
    }
}

/// A topic as JSON.
///
/// # Errors
/// That of its settings or of its log.
pub fn shown(info: TopicInfo) -> Answer<Value> {
    let settings = info.settings?;
    let retention = settings.retention;
    let all = info.partitions?;
    let is_finished = all.iter().all(|one| one.finished);
    let partitions: Vec<_> = all
        .into_iter()
        .map(|one| {
            json!({
                "partition": one.partition,
                "start_offset": exact(one.first),
                "end_offset": exact(one.end),
                "durable_offset": exact(one.durable),
            })
        })
        .collect();
    let age = retention.age_ms.map(|ms| Span(Duration::from_millis(ms)).to_string());
    Ok(json!({
        "topic": info.name,
        "codec": if settings.codec_unnamed { None } else { Some(settings.codec) },
        "compacted": settings.compacted,
        "created": iso(settings.created_us.saturating_mul(1_000)),
        "finished": is_finished,
        "generation": super::events::shown(&settings.generation),
        "log": settings.log,
        "partitions": partitions,
        "properties": settings.properties,
        "retention": {
            "age": age,
            "bytes": retention.bytes.map(exact),
            "records": retention.records.map(exact),
            "waits": retention.waits,
            "protected": retention.protected,
        },
        "segment_bytes": exact(settings.segment_bytes),
        "sync_interval": Span(Duration::from_millis(settings.sync_interval_ms)).to_string(),
    }))
}
