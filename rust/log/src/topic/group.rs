//! Groups: records for several topics of one log, and cursors, that are there together or not at all.
//!
//! Owns what makes such an append one: all of it goes to one log, a partition stands in it once, and one
//! commit word makes it visible. What is gathered before, and whether it is given up, is left to the
//! caller: until [`Group::commit`] nothing has happened. See `docs/PROTOCOL.md`, "Transactions".

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::record::BodyWriter;
use crate::log::{Appended, CursorMove, NewBlock, Precondition};

use super::append::{new_block, nothing};
use super::read::topic_error;
use super::{SyncMode, Topic};

/// Records for one partition of a topic, encoded.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// Which partition of it.
    pub partition: u32,
    /// The records.
    pub body: &'a BodyWriter,
}

/// What is to be committed at once.
///
/// ```
/// use falaj::store::{Store, StoreOptions, TopicOptions};
/// use falaj::topic::{BodyWriter, CursorMove, CursorState, Group, Part, NewRecord, Topic};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("events"), &StoreOptions::default())?;
/// let shop = TopicOptions { log: Some("shop".into()), ..TopicOptions::default() };
/// let (paid, audit) = (Topic::open(&store, "paid", &shop)?, Topic::open(&store, "audit", &shop)?);
/// let mut body = BodyWriter::default();
/// body.begin(false, None);
/// body.push(&NewRecord::value(b"order 17"));
/// let parts = [&paid, &audit].map(|topic| Part { topic, partition: 0, body: &body });
/// let to = CursorState { offset: 18, ..CursorState::default() };
/// let read_so_far = [CursorMove { name: b"billing", to, from: None }];
/// let group = Group { home: &paid, parts: &parts, cursors: &read_so_far };
/// assert_eq!(group.commit(None)?.ranges, [0..1, 0..1]);
/// assert_eq!(audit.cursor(b"billing")?.map(|cursor| cursor.offset), Some(18));
/// # Ok::<(), falaj::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// A topic whose log everything goes to: where there are no records it says where cursors are kept.
    pub home: &'a Topic,
    /// Records; a partition stands once.
    pub parts: &'a [Part<'a>],
    /// Cursors; one stands once.
    pub cursors: &'a [CursorMove<'a>],
}

/// Where a group went.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// The offsets that each part got.
    pub ranges: Vec<Range<u64>>,
    /// Where it ends.
    pub appended: Appended,
}

impl Group<'_> {
    /// Commit it, and wait for what the mode promises, which is the home's unless another is asked for.
    ///
    /// # Errors
    /// `Invalid` when there is nothing in it, for a topic in another log or store, a partition that stands
    /// twice, and as [`Log::append_if`](crate::log::Log::append_if); `TooLarge`; else
    /// as [`Topic::append`]. Nothing was appended then, but for `DurabilityUnknown`.
    pub fn commit(&self, sync: Option<SyncMode>) -> Result<Grouped> {
        let grouped = self.commit_visible(sync)?;
        self.home.await_durability(grouped.appended, sync)?;
        Ok(grouped)
    }

    /// As [`Group::commit`], without waiting for the medium.
    ///
    /// # Errors
    /// As [`Group::commit`], but for `DurabilityUnknown`.
    pub fn commit_visible(&self, sync: Option<SyncMode>) -> Result<Grouped> {
        if self.parts.is_empty() && self.cursors.is_empty() {
            return Err(nothing());
        }
        let interval = self.home.is_interval(sync);
        let mut blocks: Vec<NewBlock<'_>> = Vec::with_capacity(self.parts.len());
        for Part { topic, partition, body } in self.parts {
            self.expect_same_log(topic)?;
            if body.count() == 0 {
                return Err(nothing());
            }
            blocks.push(new_block(topic.number(*partition)?, body, interval));
        }
        let mut firsts = vec![0; blocks.len()];
        let moves: Vec<_> = self.cursors.iter().map(|moved| Precondition::Cursor(*moved)).collect();
        let appended = self.home.log.append_if(&moves, &blocks, interval, &mut firsts);
        let appended = appended.map_err(|error| self.named(error))?;
        let ranges = firsts.iter().zip(&blocks);
        let ranges = ranges.map(|(first, block)| *first..first + u64::from(block.count)).collect();
        Ok(Grouped { ranges, appended })
    }

    /// Under the name of the topic that was deleted, where one was.
    #[cold]
    fn named(&self, error: Error) -> Error {
        let deleted = self.parts.iter().map(|part| part.topic).find(|topic| topic.is_deleted());
        topic_error(error, &deleted.unwrap_or(self.home).settings)
    }

    fn expect_same_log(&self, topic: &Topic) -> Result<()> {
        let home = self.home;
        if topic.log.dir() == home.log.dir() {
            return Ok(());
        }
        let (one, other) = (home.name(), topic.name());
        let what = if home.store.path() == topic.store.path() {
            format!(
                "topics {one:?} and {other:?} live in different logs, and only what shares a log is \
                 written at once: create topics that belong together with the same log=\"…\""
            )
        } else {
            format!(
                "topics {one:?} and {other:?} are in different stores, and only what is in one log of one \
                 store is written at once"
            )
        };
        Err(Error::Invalid { what })
    }
}
