//! Topics: which there are, and what each is.

use axum::extract::State;
use axum::{Extension, Json};
use falaj::report::TopicInfo;
use serde_json::{Value, json};

use super::App;
use super::asked::Named;
use super::problem::{Answer, exact};
use crate::access::{Action, Kind, Principal};
use crate::store::read::blocking;

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
) -> Answer<Json<Value>> {
    principal.may(Action::Read, Kind::Topic, &name)?;
    let store = app.served.store().clone();
    let info = blocking(move || store.topic_info(&name)).await?;
    Ok(Json(shown(info)?))
}

fn shown(info: TopicInfo) -> Answer<Value> {
    let settings = info.settings?;
    let partitions: Vec<_> = info
        .partitions?
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
    Ok(json!({
        "topic": info.name,
        "codec": settings.codec,
        "compacted": settings.compacted,
        "log": settings.log,
        "partitions": partitions,
    }))
}
