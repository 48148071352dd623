//! How to join a consumer group: what it reads, where it begins, what it calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::group::Consumer;
use super::reader::GroupReader;
use super::subscription::TopicPattern;
use super::{GroupInfo, GroupMember};
use super::{delete_group, forget_topic, group_info, list_groups, seek_group};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::topic::{Start, Topic, Visibility};

/// How to join a consumer group; [`Store::consumer_options`] makes one.
#[derive(Clone, Debug)]
#[must_use = "`open` joins the group"]
pub struct ConsumerBuilder {
    store: Store,
    name: String,
    reads: Reads,
    start: Start,
    visibility: Visibility,
    home: Option<Topic>,
    automatic: Option<Duration>,
    on_assign: Option<Callback>,
    on_revoke: Option<Callback>,
}

#[derive(Clone, Debug)]
enum Reads {
    Topics(Vec<String>),
    Matching(String),
}

/// A consumer calls this when it got partitions, or is about to lose them.
#[derive(Clone)]
pub(super) struct Callback(Arc<Call>);

type Call = dyn Fn(&mut Consumer, &[(String, u32)]) -> Result<()> + Send + Sync;

impl Callback {
    pub(super) fn call(&self, consumer: &mut Consumer, parts: &[(String, u32)]) -> Result<()> {
        (self.0)(consumer, parts)
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl Store {
    /// Join a consumer group that reads these topics. The first member creates the group, which begins with the
    /// oldest records.
    ///
    /// # Errors
    /// As [`ConsumerBuilder::open`].
    pub fn consumer<T: AsRef<str>>(
        &self,
        name: &str,
        topics: impl IntoIterator<Item = T>,
    ) -> Result<Consumer> {
        self.consumer_options(name, topics).open()
    }

    /// Choose how to join a consumer group.
    pub fn consumer_options<T: AsRef<str>>(
        &self,
        name: &str,
        topics: impl IntoIterator<Item = T>,
    ) -> ConsumerBuilder {
        let topics = topics.into_iter().map(|topic| topic.as_ref().to_owned()).collect();
        ConsumerBuilder::new(self, name, Reads::Topics(topics))
    }

    /// Choose how to join a consumer group that reads all topics whose names match a pattern: `*` stands for any
    /// characters, `?` for one. A matching topic that is created later joins within about a second, and is read from
    /// its first record. A topic that is deleted leaves the group. The pattern may match no topic yet.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let mut billing = store.consumer_matching("billing", "orders.*").open()?;
    /// store.topic("orders.eu")?.append(b"two coffees")?;
    /// let order = billing.poll(None)?.expect("the new topic has joined");
    /// assert_eq!(order.topic(), "orders.eu");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn consumer_matching(&self, name: &str, pattern: &str) -> ConsumerBuilder {
        ConsumerBuilder::new(self, name, Reads::Matching(pattern.to_owned()))
    }

    /// List the consumer groups with their members and committed offsets.
    ///
    /// # Errors
    /// `SystemCallFailed` when the directory cannot be read. An error in the file of a group is
    /// returned beside its name.
    pub fn groups(&self) -> Result<Vec<GroupInfo>> {
        list_groups(self)
    }

    /// Look at one consumer group.
    ///
    /// # Errors
    /// `UnknownGroup`. An error in the file of the group is part of what is returned.
    pub fn group(&self, name: &str) -> Result<GroupInfo> {
        group_info(self, name)
    }

    /// Delete a consumer group and its committed offsets. It must have no living member.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such group, or a member lives; `NotWritable`,
    /// `LockTimeout`, `SystemCallFailed`.
    pub fn delete_group(&self, group: &str) -> Result<()> {
        delete_group(self, group)
    }

    /// Move the committed offset of a group in one partition that it has read. It must have no living
    /// member. Returns the new offset, which is on disk.
    ///
    /// # Errors
    /// `UnknownGroup`, `UnknownTopic`, `OffsetOutOfRange`, `NotWritable`; `InvalidArgument` while a member
    /// lives, and for a partition that the group never read; `CorruptData`, `LockTimeout`, `SystemCallFailed`.
    ///
    /// # Examples
    /// ```
    /// use falaj::{Start, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.append(b"one")?;
    /// store.consumer("billing", ["orders"])?.close()?;
    /// assert_eq!(store.seek_group("billing", "orders", 0, Start::Latest)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seek_group(
        &self,
        name: &str,
        topic: &str,
        partition: u32,
        to: impl Into<Start>,
    ) -> Result<u64> {
        let topic = self.topic_options(topic).create(false).open()?;
        seek_group(self, name, &topic, partition, to.into())
    }

    /// Let a group forget a topic that it no longer reads, so that retention does not wait for it.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such group, or it reads the topic; `NotWritable`,
    /// `LockTimeout`, `CorruptData`, `SystemCallFailed`.
    pub fn forget_topic(&self, name: &str, topic: &str) -> Result<()> {
        forget_topic(self, name, topic).map(drop)
    }
}

impl ConsumerBuilder {
    fn new(store: &Store, name: &str, reads: Reads) -> Self {
        let (start, visibility) = (Start::Earliest, Visibility::default());
        let (store, name) = (store.clone(), name.to_owned());
        let (home, automatic, on_assign, on_revoke) = Default::default();
        Self { store, name, reads, start, visibility, home, automatic, on_assign, on_revoke }
    }

    /// Begin here in partitions in which the group has no committed offset.
    pub fn start(self, start: impl Into<Start>) -> Self {
        Self { start: start.into(), ..self }
    }

    /// Read all that is visible, which is the default, or what is on the disk.
    pub fn visibility(self, visibility: Visibility) -> Self {
        Self { visibility, ..self }
    }

    /// Keep the committed offsets in the log of this topic, so that [`Consumer::commit_with`] moves them together with
    /// records. A group keeps what it was created with.
    pub fn offsets_in(self, home: &Topic) -> Self {
        Self { home: Some(home.clone()), ..self }
    }

    /// Commit what was delivered about this often, in [`Consumer::poll`] and [`Consumer::poll_batch`]: a program that
    /// asks for more is done with what it got. [`Consumer::close`] commits too. For a group that keeps its
    /// [offsets in a log](ConsumerBuilder::offsets_in), a transaction commits instead.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.append(b"two coffees")?;
    /// let builder = store.consumer_options("billing", ["orders"]);
    /// let mut billing = builder.commit_every(Duration::from_secs(1)).open()?;
    /// while let Some(order) = billing.poll(Duration::ZERO)? {
    ///     println!("{:?}", order.value());
    /// }
    /// billing.close()?;
    /// assert_eq!(store.consumer("billing", ["orders"])?.lag("orders", 0)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_every(self, interval: Duration) -> Self {
        Self { automatic: Some(interval), ..self }
    }

    /// Call this when the member got partitions, before it delivers from them. It may seek there. It runs inside
    /// [`Consumer::poll`], which returns its error.
    pub fn on_assign(
        self,
        callback: impl Fn(&mut Consumer, &[(String, u32)]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { on_assign: Some(Callback(Arc::new(callback))), ..self }
    }

    /// Call this before the member releases partitions, while a commit in them still counts. It runs inside
    /// [`Consumer::poll`] and [`Consumer::close`], which return its error. The member delivers no more from these
    /// partitions, and releases them once what it delivered is committed. A consumer that is dropped calls nothing.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.append(b"two coffees")?;
    /// let builder = store.consumer_options("billing", ["orders"]);
    /// let mut billing = builder.on_revoke(|billing, _partitions| billing.commit()).open()?;
    /// assert!(billing.poll(Duration::ZERO)?.is_some());
    /// billing.close()?;
    /// assert_eq!(store.consumer("billing", ["orders"])?.lag("orders", 0)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_revoke(
        self,
        callback: impl Fn(&mut Consumer, &[(String, u32)]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { on_revoke: Some(Callback(Arc::new(callback))), ..self }
    }

    /// Join the group.
    ///
    /// # Errors
    /// `InvalidArgument` for no topic, a topic that is named twice, or a pattern that is not valid.
    /// Also if a living member has another subscription, and for automatic commits of offsets that
    /// a log keeps. `OffsetOutOfRange` for a start that does not exist. `InvalidName`,
    /// `UnknownTopic`, `NotWritable`, `LockTimeout`, `CorruptData`, `UnsupportedVersion`,
    /// `NoSpace`, `SystemCallFailed`.
    pub fn open(self) -> Result<Consumer> {
        let (store, name, start) = (&self.store, &self.name, self.start);
        if self.automatic.is_some() && self.home.is_some() {
            let what = format!(
                "consumer group {name:?} would commit automatically what no transaction wrote the results of: \
                 leave commit_every out, and call commit_with or commit"
            );
            return Err(Error::InvalidArgument { what });
        }
        let mut member = match &self.reads {
            Reads::Matching(pattern) => {
                let (pattern, how) = (TopicPattern::new(pattern)?, (self.visibility, start));
                GroupMember::open_matching(store, name, &pattern, how, self.home.as_ref())?
            }
            Reads::Topics(names) => {
                let open = |name: &String| {
                    let topic = store.topic_options(name).create(false).open()?;
                    Ok(topic.with_visibility(self.visibility))
                };
                let topics: Vec<Topic> = names.iter().map(open).collect::<Result<_>>()?;
                GroupMember::open_in(store, name, &topics, start, self.home.as_ref())?
            }
        };
        if self.on_assign.is_some() || self.on_revoke.is_some() {
            member.announce();
        }
        let (reader, notifier) = (GroupReader::new(member, self.automatic), store.bell());
        Ok(Consumer { reader, notifier, callbacks: (self.on_assign, self.on_revoke) })
    }
}
