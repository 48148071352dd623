//! Groups as they are now: who is in them, how far each has read, and the end of one.

use std::collections::HashMap;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, response::IntoResponse as _};
use falaj::Topic;
use falaj::report::{GroupInfo, GroupPartitionInfo, MemberInfo};
use serde_json::{Value, json};

use super::moves::{in_use, while_used};
use crate::access::{Action, Kind, Principal};
use crate::http::App;
use crate::http::asked::Named;
use crate::http::problem::{Answer, Problem, exact};
use crate::store::Served;
use crate::store::read::blocking;

/// Answer with the groups that the principal may read.
///
/// # Errors
/// Those of the engine.
pub async fn list(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
) -> Answer<Json<Value>> {
    let served = std::sync::Arc::clone(&app.served);
    let groups = blocking(move || {
        let mut looks = Looks::new(&served);
        let all = served.store().groups()?.into_iter();
        let seen = all.filter(|group| principal.sees(Kind::Group, &group.name));
        Ok(seen.map(|group| looks.summary(group)).collect::<Vec<_>>())
    })
    .await?;
    Ok(Json(json!({ "groups": groups })))
}

/// Answer with one group: its members, and how far it has read each partition.
///
/// # Errors
/// 403, 404 and those of the engine.
pub async fn describe(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
) -> Answer<Json<Value>> {
    principal.may(Action::Read, Kind::Group, &name)?;
    let sessions = app.sessions.members(&name);
    let served = std::sync::Arc::clone(&app.served);
    let shown = blocking(move || {
        let group = served.store().group(&name)?;
        let mut looks = Looks::new(&served);
        let members: Vec<_> = group.members.iter().map(member).collect();
        let (name, log) = (group.name, group.cursor_in);
        let cursors = group.cursors?.into_iter();
        let partitions: Vec<_> = cursors.map(|cursor| looks.partition(&cursor)).collect();
        Ok(json!({
            "name": name,
            "log": log,
            "members": members,
            "sessions": sessions,
            "partitions": partitions,
        }))
    });
    Ok(Json(shown.await?))
}

/// Delete a group without members, with its committed offsets.
///
/// # Errors
/// 403, 404, 409 for a group that has members, and those of the engine.
pub async fn delete(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(name): Named<String>,
) -> Answer {
    principal.may(Action::Delete, Kind::Group, &name)?;
    let store = app.served.store().clone();
    let deleted = blocking(move || {
        Ok(store.delete_group(&name).map_err(|error| while_used(&store, &name, None, error)))
    });
    deleted.await?.map_err(in_use)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn member(info: &MemberInfo) -> Value {
    json!({ "process": info.process, "handle": info.handle })
}

/// Looks at the topics of groups.
struct Looks<'a> {
    served: &'a Served,
    topics: HashMap<String, Option<Topic>>,
}

impl<'a> Looks<'a> {
    fn new(served: &'a Served) -> Self {
        Self { served, topics: HashMap::new() }
    }

    fn summary(&mut self, group: GroupInfo) -> Value {
        let members = group.members.len();
        match group.cursors {
            Ok(cursors) => {
                let lags = cursors.iter().map(|cursor| self.lag(cursor).map(|(_, lag)| lag));
                let lag: u64 = lags.flatten().sum();
                json!({ "name": group.name, "members": members, "lag": exact(lag) })
            }
            Err(error) => {
                let problem = Box::<Problem>::from(error);
                json!({ "name": group.name, "members": members, "problem": problem.document() })
            }
        }
    }

    fn partition(&mut self, cursor: &GroupPartitionInfo) -> Value {
        let found = self.lag(cursor);
        let owner = cursor.owner.as_ref().map(member);
        json!({
            "topic": cursor.topic,
            "partition": cursor.partition,
            "committed": exact(cursor.committed),
            "metadata": cursor.metadata,
            "end_offset": found.map(|(end, _)| exact(end)),
            "lag": found.map(|(_, lag)| exact(lag)),
            "owner": owner,
        })
    }

    /// The end of a partition, and its records from the committed offset on; `None` where the topic was deleted.
    fn lag(&mut self, cursor: &GroupPartitionInfo) -> Option<(u64, u64)> {
        let served = self.served;
        let open = |name: &str| {
            served.topic(name).ok().filter(|topic| topic.settings().generation == cursor.generation)
        };
        let topic = self.topics.entry(cursor.topic.clone()).or_insert_with_key(|name| open(name));
        let part = topic.as_ref()?.partition(cursor.partition).ok()?;
        Some((part.end_offset().ok()?, part.count(cursor.committed..).ok()?))
    }
}
