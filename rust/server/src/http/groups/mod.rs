//! Consumer groups: members that poll, commit, seek and leave by requests.
//!
//! ```text
//! {"member": "m1", "number": 1, "topics": ["orders"]}  --poll-->  records 0..500    the same number again: the same records
//! {"member": "m1", "offsets": [{"topic": "orders", "partition": 0, "offset": 500}]}  --commit-->  done, up to there
//! ```
//!
//! A commit is explicit, and a session ends where its requests stop. So a record that a client did not commit is
//! delivered again, to it or to another member. Members of the server share a group with native ones.

pub(super) mod cursors;
mod moves;
mod overview;
mod poll;
mod records;
mod sessions;

use std::collections::HashSet;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Json, response::IntoResponse as _};
use falaj::{GroupOffset, Start};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use super::App;
use super::append::PATIENCE;
use super::asked::Named;
use super::body;
use super::problem::{Answer, Problem, exact};
use super::shape::parse_iso;
use crate::access::{Action, Kind, Principal};
use crate::store::read::blocking;
use sessions::{InUse, Key, Work};

pub use moves::forget;
pub use overview::{delete, describe, list};
pub use poll::poll;
pub use sessions::Sessions;

/// Most bytes of a member's name, and most offsets of a commit.
const NAME: usize = 200;
pub(super) const OFFSETS: usize = 1_000;

/// The body of a commit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    member: String,
    offsets: Vec<body::Members<Offset>>,
    #[serde(default)]
    durable: bool,
}

/// An offset of a commit: all records before it are done.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offset {
    topic: String,
    partition: u32,
    offset: u64,
    #[serde(default)]
    metadata: String,
}

/// The body of a seek.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seek {
    /// Without one it is about the group, which has no member then.
    member: Option<String>,
    topic: String,
    partition: Option<u32>,
    to: Value,
}

/// The body of a leave.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leave {
    member: String,
}

impl Offset {
    pub(super) fn new(topic: String, partition: u32, offset: u64, metadata: String) -> Self {
        Self { topic, partition, offset, metadata }
    }

    pub(super) fn as_group_offset(&self) -> GroupOffset<'_> {
        GroupOffset::new(&self.topic, self.partition, self.offset).metadata(&self.metadata)
    }
}

/// Commit offsets of partitions that the member has: all of them, or nothing.
///
/// # Errors
/// 403; 409 for a session that ended and for a partition that the member does not have; 416; those of the engine.
pub async fn commit(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(group): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    principal.may(Action::Read, Kind::Group, &group)?;
    let body = body::read(&app, &headers, body).await?;
    let Commit { member, offsets, durable } = body::object(&body.bytes)?;
    if offsets.len() > OFFSETS {
        let detail = format!("a commit has at most {OFFSETS} offsets");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    let offsets: Vec<_> = offsets.into_iter().map(|body::Members(offset)| offset).collect();
    let (_session, mut work) = open(&app, &principal, &group, &member).await?;
    let committed: Vec<_> = offsets.iter().map(shown).collect();
    let home = work.home.clone();
    let run = move || {
        Ok(with_held(&mut work, &offsets, |consumer, all| consumer.commit_offsets(all, durable)))
    };
    match home {
        None => blocking(run).await??,
        // A commit that waits for the lock of a log waits on that log's thread.
        Some(home) => app.served.appends.run(&home, false, PATIENCE, run).await?.value?,
    }
    Ok(Json(json!({ "committed": committed })))
}

fn shown(at: &Offset) -> Value {
    json!({ "topic": at.topic, "partition": at.partition, "offset": exact(at.offset) })
}

/// Call with the offsets, if the member has all these partitions.
pub(super) fn with_held<T>(
    work: &mut Work,
    offsets: &[Offset],
    call: impl FnOnce(&mut falaj::Consumer, &[GroupOffset<'_>]) -> falaj::Result<T>,
) -> Answer<T> {
    let sessions::State::Open(consumer, _) = &mut work.state else { return Err(session_ended()) };
    work.is_received = true;
    let held: HashSet<_> = consumer.assignment().into_iter().collect();
    let lost = offsets.iter().find(|at| !held.contains(&(at.topic.as_str(), at.partition)));
    if let Some(at) = lost {
        return Err(partition_lost(&at.topic, at.partition));
    }
    let all: Vec<_> = offsets.iter().map(Offset::as_group_offset).collect();
    Ok(call(consumer, &all)?)
}

/// Read on from another offset: a member, or a group without members.
///
/// # Errors
/// As [`commit`]; 400 for a member that names no partition; 409 for a group that has members.
pub async fn seek(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(group): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    principal.may(Action::Read, Kind::Group, &group)?;
    let body = body::read(&app, &headers, body).await?;
    let Seek { member, topic, partition, to } = body::object(&body.bytes)?;
    let to = start(&to)?;
    let Some(member) = member else {
        return moves::seek(&app, &principal, group, topic, partition, to).await;
    };
    let partition = partition.ok_or_else(|| {
        Box::new(Problem::bad_request("a member seeks in one partition: say which, with partition"))
    })?;
    let (_session, mut work) = open(&app, &principal, &group, &member).await?;
    let run = move || {
        let at = [Offset::new(topic, partition, 0, String::new())];
        Ok(with_held(&mut work, &at, |consumer, _| consumer.seek(&at[0].topic, partition, to)))
    };
    let offset = blocking(run).await??;
    Ok(Json(json!({ "offset": exact(offset) })))
}

/// Leave the group; a member that is not there has left.
///
/// # Errors
/// 400 and 403.
pub async fn leave(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(group): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    principal.may(Action::Read, Kind::Group, &group)?;
    let body = body::read(&app, &headers, body).await?;
    let Leave { member } = body::object(&body.bytes)?;
    if let Some(session) = app.sessions.get(&key(&principal, &group, &member)?) {
        app.sessions.end(&session.0).await;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Find the session of a member that polled.
pub(super) async fn open(
    app: &App,
    principal: &Principal,
    group: &str,
    member: &str,
) -> Answer<(InUse, OwnedMutexGuard<Work>)> {
    let key = key(principal, group, member)?;
    let session = app.sessions.get(&key).ok_or_else(session_ended)?;
    let work = session.open().await.ok_or_else(session_ended)?;
    Ok((session, work))
}

pub(super) fn key(principal: &Principal, group: &str, member: &str) -> Answer<Key> {
    if !(1..=NAME).contains(&member.len()) {
        let detail = format!("the name of a member has 1 to {NAME} bytes");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !(1..=249).contains(&group.len())
        || [".", ".."].contains(&group)
        || !group.chars().all(is_known)
    {
        let detail = format!(
            "{group:?} is no name of a group: it has letters, digits, \".\", \"_\" and \"-\""
        );
        return Err(Box::new(Problem::new(StatusCode::BAD_REQUEST, "invalid-name", detail)));
    }
    let principal = principal.name().to_owned();
    Ok(Key { group: group.to_owned(), principal, member: member.to_owned() })
}

fn session_ended() -> Box<Problem> {
    let detail = "the session ended: no request came for its time, or the server was started again";
    let problem = Problem::new(StatusCode::CONFLICT, "session-ended", detail);
    Box::new(problem.remedy("poll with number 1, which begins at the committed offsets"))
}

fn partition_lost(topic: &str, partition: u32) -> Box<Problem> {
    let detail = format!("the member does not have partition {partition} of topic {topic:?}");
    let problem = Problem::new(StatusCode::CONFLICT, "partition-lost", detail);
    let problem = problem.with("topic", topic).with("partition", partition);
    Box::new(problem.remedy("drop what it has of that partition, and poll on"))
}

/// Read where to begin: an offset, `earliest`, `latest`, so many records before the end, or a time.
fn start(text: &Value) -> Answer<Start> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct At {
        time: Option<String>,
        last: Option<u64>,
    }
    let found = match text {
        Value::Number(number) => number.as_u64().map(Start::Offset),
        Value::String(text) => match text.as_str() {
            "earliest" => Some(Start::Earliest),
            "latest" => Some(Start::Latest),
            _ => None,
        },
        Value::Object(_) => {
            let at = At::deserialize(text).ok();
            at.and_then(|at| match (at.time, at.last) {
                (Some(time), None) => parse_iso(&time).map(Start::Time),
                (None, Some(records)) => Some(Start::Last(records)),
                _ => None,
            })
        }
        _ => None,
    };
    found.ok_or_else(|| {
        let detail = format!(
            "{text} is no place to begin: write an offset, \"earliest\", \"latest\", {{\"last\": 10}} or {{\"time\": \"2026-11-27T09:30:00Z\"}}"
        );
        Box::new(Problem::bad_request(detail))
    })
}

/// Read a body as each request here does.
pub fn parse_any(bytes: &[u8]) {
    poll::parse_any(bytes);
    let _ = (body::object::<Commit>(bytes), body::object::<Leave>(bytes));
    let _ = body::object::<moves::Forget>(bytes);
    let _ = body::object::<Seek>(bytes).and_then(|seek| start(&seek.to));
}
