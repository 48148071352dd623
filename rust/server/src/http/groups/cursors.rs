//! Committed offsets that ride along with an append: both happen, or neither.
//!
//! The group keeps its offsets in the log that the append writes to. Either a member commits them, which has the
//! partitions; or the server joins the group for the moment of the append, where no other member has them.

use falaj::{Committed, Transaction};
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;

use super::sessions::{InUse, Work};
use super::{OFFSETS, Offset, key, session_ended, with_held};
use crate::access::{Action, Kind, Principal};
use crate::http::App;
use crate::http::body::Members;
use crate::http::problem::{Answer, Problem};
use crate::store::Served;

/// A committed offset as it is sent.
#[derive(Debug, Deserialize)]
#[serde(from = "Members<Cursor>")]
pub(in crate::http) struct Sent(Cursor);

impl From<Members<Cursor>> for Sent {
    fn from(Members(cursor): Members<Cursor>) -> Self {
        Self(cursor)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cursor {
    group: String,
    member: Option<String>,
    topic: String,
    partition: u32,
    offset: u64,
    #[serde(default)]
    metadata: String,
}

/// The offsets of one group.
pub(in crate::http) struct Cursors {
    group: String,
    holder: Holder,
    offsets: Vec<Offset>,
}

/// The member that commits.
enum Holder {
    Session {
        _in_use: InUse,
        work: OwnedMutexGuard<Work>,
    },
    /// Its session ended.
    Gone,
    /// None: the server joins the group.
    Server,
}

/// Find the member that commits these, after the checks of its grants.
///
/// # Errors
/// 400 for offsets of several groups or members, and 403.
pub(in crate::http) async fn find(
    app: &App,
    principal: &Principal,
    sent: Vec<Sent>,
) -> Answer<Option<Cursors>> {
    let sent: Vec<_> = sent.into_iter().map(|Sent(cursor)| cursor).collect();
    let Some(first) = sent.first() else { return Ok(None) };
    let is_of_first = |one: &Cursor| (&one.group, &one.member) == (&first.group, &first.member);
    if sent.len() > OFFSETS || !sent.iter().all(is_of_first) {
        let detail = format!("the cursors of an append are of one member, and at most {OFFSETS}");
        return Err(Box::new(Problem::bad_request(detail)));
    }
    principal.may(Action::Read, Kind::Group, &first.group)?;
    for one in &sent {
        principal.may(Action::Read, Kind::Topic, &one.topic)?;
    }
    let group = first.group.clone();
    let holder = match &first.member {
        None => Holder::Server,
        Some(member) => match app.sessions.get(&key(principal, &group, member)?) {
            None => Holder::Gone,
            Some(session) => match session.open().await {
                None => Holder::Gone,
                Some(work) => Holder::Session { _in_use: session, work },
            },
        },
    };
    let each = |one: Cursor| Offset::new(one.topic, one.partition, one.offset, one.metadata);
    Ok(Some(Cursors { group, holder, offsets: sent.into_iter().map(each).collect() }))
}

impl Cursors {
    /// Commit a transaction together with these offsets.
    ///
    /// # Errors
    /// 409 for a session that ended and for a partition that the member does not have; those of the engine.
    pub(in crate::http) fn commit_with(
        &mut self,
        served: &Served,
        transaction: &mut Transaction,
        log: &falaj::Topic,
    ) -> Answer<Committed> {
        match &mut self.holder {
            Holder::Gone => Err(session_ended()),
            Holder::Session { work, .. } => with_held(work, &self.offsets, |consumer, all| {
                consumer.commit_offsets_with(transaction, all)
            }),
            Holder::Server => {
                let mut topics: Vec<_> = self.offsets.iter().map(|at| at.topic.as_str()).collect();
                topics.sort_unstable();
                topics.dedup();
                // A consumer would create what is not there.
                topics.iter().try_for_each(|name| served.topic(name).map(drop))?;
                let group = served.store().consumer_options(&self.group, topics);
                let mut consumer = group.offsets_in(log).open()?;
                let all: Vec<_> = self.offsets.iter().map(Offset::as_group_offset).collect();
                let committed = consumer.commit_offsets_with(transaction, &all);
                if let Err(error) = consumer.close() {
                    tracing::warn!(%error, group = self.group, "a member did not leave in order");
                }
                Ok(committed?)
            }
        }
    }
}
