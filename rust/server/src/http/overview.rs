//! The whole store at a glance: topics with offsets, logs with sizes, processes that write.
//!
//! ```text
//! GET /v1/store, GET /v1/logs/{log} --> the last look, if it is fresh; else the next one --> what the principal may see
//! ```
//!
//! A look opens every log, so many clients that ask at once share one. Looking never takes more than a tenth of a
//! processor: a look stays fresh for ten times what it took. Its texts are written once, and each answer is put together
//! from them: so its length is known before it takes its part of the budget. Implements `docs/guide/server.md`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use falaj::report::{LogInfo, StoreInfo};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::App;
use super::asked::Named;
use super::listen::Cut;
use super::problem::{Answer, Problem, exact, without_path};
use super::read::held;
use super::shape::iso;
use super::topics::shown;
use crate::access::{Action, Kind, Principal};
use crate::store::Served;
use crate::store::read::blocking;

/// Shortest time for which a look is fresh.
const FRESH: Duration = Duration::from_millis(500);
/// A look is fresh for so many times what it took.
const REST: u32 = 10;

/// The last look at the store.
#[derive(Debug, Default)]
pub struct Looks(Mutex<Option<(Instant, Arc<Look>)>>);

/// The result of a look, as JSON that is written already.
#[derive(Debug)]
struct Look {
    /// Members that every principal sees, without the brackets.
    about: String,
    /// Members for principals that may administer everything.
    inside: String,
    /// Topics, by name.
    topics: Vec<(String, String)>,
    logs: Vec<LookedLog>,
}

/// A log. Its size would tell of each of its topics, so a principal must be able to read them all.
#[derive(Debug)]
struct LookedLog {
    name: String,
    topics: Vec<String>,
    brief: String,
    /// The same with all segments.
    whole: String,
}

impl LookedLog {
    fn is_seen_by(&self, principal: &Principal) -> bool {
        self.topics.iter().all(|topic| principal.sees(Kind::Topic, topic))
    }
}

/// Answer with the topics and logs that the principal may see, and with the writing processes.
///
/// # Errors
/// Those of the engine.
pub async fn overview(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Extension(cut): Extension<Cut>,
    version: Version,
) -> Answer {
    let look = look(&app).await?;
    let sees = |name: &str| principal.sees(Kind::Topic, name);
    let topics = look.topics.iter().filter(|(name, _)| sees(name)).map(|(_, text)| text.as_str());
    let logs = look.logs.iter().filter(|log| log.is_seen_by(&principal));
    let topics = topics.collect::<Vec<_>>();
    let logs = logs.map(|log| log.brief.as_str()).collect::<Vec<_>>();
    let is_admin = principal.may(Action::Admin, Kind::Topic, "*").is_ok();
    let inside = if is_admin { look.inside.as_str() } else { "" };
    let parts = ["{", &look.about, inside, ",\"topics\":["];
    let fixed: usize = parts.iter().map(|part| part.len()).sum();
    let listed: usize = topics.iter().chain(&logs).map(|text| text.len() + 1).sum();
    let share = app.served.reads.take(fixed + listed + 32).await;
    let mut text = Vec::with_capacity(fixed + listed + 32);
    parts.iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
    list(&mut text, &topics);
    text.extend_from_slice(b"],\"logs\":[");
    list(&mut text, &logs);
    text.extend_from_slice(b"]}\n");
    let deadline = (version == Version::HTTP_2).then_some((app.config.limits.write_timeout.0, cut));
    Ok(([(header::CONTENT_TYPE, "application/json")], held(Some(share), text, deadline))
        .into_response())
}

fn list(text: &mut Vec<u8>, all: &[&str]) {
    for (i, each) in all.iter().enumerate() {
        text.extend_from_slice(if i > 0 { b"," } else { b"" });
        text.extend_from_slice(each.as_bytes());
    }
}

/// Answer with a log and all its segments.
///
/// # Errors
/// 404 for a log that there is not, or with topics that the principal may not read; those of the engine.
pub async fn log(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
) -> Answer<Response> {
    let look = look(&app).await?;
    let found = look.logs.iter().find(|log| log.name == name && log.is_seen_by(&principal));
    let log = found.ok_or_else(|| {
        let detail = format!("there is no log {name:?} with topics that you may all read");
        Box::new(Problem::new(StatusCode::NOT_FOUND, "unknown-log", detail))
    })?;
    let share = app.served.reads.take(log.whole.len()).await;
    let body = held(Some(share), log.whole.clone().into_bytes(), None);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Return the last look, or look again. Those that come meanwhile wait for that look.
async fn look(app: &App) -> Answer<Arc<Look>> {
    let mut last = app.looks.0.lock().await;
    if let Some((until, look)) = last.as_ref().filter(|(until, _)| Instant::now() < *until) {
        let _ = until;
        return Ok(Arc::clone(look));
    }
    let served = Arc::clone(&app.served);
    let begin = Instant::now();
    let look = blocking(move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Arc::new(Look::of(&served, served.store().info()?, now)))
    })
    .await?;
    let until = Instant::now() + FRESH.max(begin.elapsed() * REST);
    *last = Some((until, Arc::clone(&look)));
    Ok(look)
}

impl Look {
    fn of(served: &Served, info: StoreInfo, now: Duration) -> Self {
        let about = json!({
            "time": iso(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)),
            "created": iso(info.settings.created_us.saturating_mul(1_000)),
            "format": info.format,
            "write_mode": info.settings.write_mode.name(),
            "retention_bytes": info.settings.retention_bytes.map(exact),
            "read_only": served.is_read_only(),
        });
        let writers: Vec<_> = info
            .slots
            .iter()
            .filter(|slot| slot.alive != Some(false))
            .map(|slot| {
                json!({
                    "slot": slot.slot,
                    "process": slot.process,
                    "since": slot.since_us.map(|us| iso(us.saturating_mul(1_000))),
                    "is_known_to_live": slot.alive == Some(true),
                    "is_this_server": slot.process == Some(std::process::id()),
                })
            })
            .collect();
        let inside = json!({ "path": info.path.to_string_lossy(), "writers": writers });
        let topics = info.topics.into_iter().map(|topic| {
            let name = topic.name.clone();
            let text = shown(topic).unwrap_or_else(
                |problem| json!({ "topic": name, "partitions": [], "problem": problem.detail() }),
            );
            (name, text.to_string())
        });
        Self {
            about: members(&about),
            inside: format!(",{}", members(&inside)),
            topics: topics.collect(),
            logs: info.logs.into_iter().map(looked).collect(),
        }
    }
}

/// The members of an object, without its brackets.
fn members(object: &Value) -> String {
    let text = object.to_string();
    text[1..text.len() - 1].to_owned()
}

fn looked(log: LogInfo) -> LookedLog {
    let mut brief = json!({ "log": log.name, "topics": log.topics });
    let mut segments = Vec::new();
    match log.extent {
        Ok(extent) => {
            brief["bytes"] = exact(extent.live);
            brief["disk_bytes"] = exact(extent.reserved);
            brief["quarantined_bytes"] = exact(extent.quarantined);
            brief["segments"] = extent.segments.len().into();
            brief["failed_sync"] = extent.latched.into();
            brief["problem"] =
                log.retention_problem.map(|why| without_path(&why).into_owned()).into();
            segments = extent.segments;
        }
        Err(error) => brief["problem"] = Box::<Problem>::from(error).detail().into(),
    }
    let text = brief.to_string();
    let segments = segments.iter().map(|segment| {
        json!({
            "segment": exact(segment.sequence),
            "bytes": exact(segment.live),
            "disk_bytes": exact(segment.reserved),
        })
    });
    brief["segments"] = segments.collect();
    LookedLog { name: log.name, topics: log.topics, brief: text, whole: brief.to_string() }
}
