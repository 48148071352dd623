//! Committed offsets of groups that no member uses: moved to another place, and forgotten.
//!
//! A living member keeps its own place, so these requests are refused while one lives. The engine checks that.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use falaj::{Error, Start, Store};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{Action, Kind, Principal};
use crate::http::App;
use crate::http::asked::Named;
use crate::http::body;
use crate::http::problem::{Answer, Problem, exact};
use crate::store::read::blocking;

/// The topic that a group forgets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Forget {
    topic: String,
}

/// Move the committed offsets of a group in one partition, or in all of a topic.
///
/// # Errors
/// 403, 404, 409 while a member lives, 416, and those of the engine.
pub(super) async fn seek(
    app: &App,
    principal: &Principal,
    group: String,
    topic: String,
    partition: Option<u32>,
    to: Start,
) -> Answer<Json<Value>> {
    principal.may(Action::Read, Kind::Topic, &topic)?;
    let served = std::sync::Arc::clone(&app.served);
    let moved = blocking(move || {
        let store = served.store();
        let of = served.topic(&topic)?;
        let asked = match partition {
            Some(one) => of.partition(one).map(|_| one..one + 1)?,
            None => 0..of.partitions(),
        };
        if matches!(to, Start::Offset(_) | Start::Last(_)) && asked.len() > 1 {
            let what = format!(
                "topic {topic:?} has {} partitions, each with offsets of its own: say which, with partition",
                asked.len()
            );
            return Err(Error::InvalidArgument { what });
        }
        let moves = asked.map(|partition| {
            let offset = store.seek_group(&group, &topic, partition, to)?;
            Ok(json!({ "partition": partition, "offset": exact(offset) }))
        });
        let moved: Result<Vec<_>, Error> = moves.collect();
        Ok(moved.map_err(|error| while_used(store, &group, None, error)))
    });
    let offsets = moved.await?.map_err(in_use)?;
    Ok(Json(json!({ "offsets": offsets })))
}

/// Forget the committed offsets of a group in a topic that it no longer reads.
///
/// # Errors
/// 403, 404, 409 for a topic that a member reads, and those of the engine.
pub async fn forget(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Named(group): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    principal.may(Action::Delete, Kind::Group, &group)?;
    let body = body::read(&app, &headers, body).await?;
    let Forget { topic } = body::object(&body.bytes)?;
    let store = app.served.store().clone();
    let forget = move || {
        let forgotten = store.forget_topic(&group, &topic);
        Ok(forgotten.map_err(|error| while_used(&store, &group, Some(&topic), error)))
    };
    blocking(forget).await?.map_err(in_use)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// An error, and whether the group had a member then.
pub(super) type Refused = (Error, bool);

/// Note whether a group has members, which may be why it was refused. About one topic that is no reason where the group
/// has no offset in it.
pub(super) fn while_used(store: &Store, group: &str, topic: Option<&str>, error: Error) -> Refused {
    let is_used = store.group(group).is_ok_and(|group| {
        let reads = |topic: &str| {
            group.cursors.as_ref().is_ok_and(|all| all.iter().any(|one| one.topic == topic))
        };
        !group.members.is_empty() && topic.is_none_or(reads)
    });
    (error, is_used)
}

/// Say that members are in the way, where they are.
pub(super) fn in_use((error, is_used): Refused) -> Box<Problem> {
    match error {
        Error::InvalidArgument { what } if is_used => {
            let problem = Problem::new(StatusCode::CONFLICT, "group-in-use", what);
            Box::new(problem.remedy("let its members leave first"))
        }
        error => error.into(),
    }
}
