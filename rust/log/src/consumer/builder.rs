//! How to join a consumer group: what it reads, where it begins, what it calls.

use std::fmt;
use std::sync::Arc;

use super::group::Consumer;
use super::subscription::TopicPattern;
use super::{GroupInfo, GroupMember};
use super::{delete_group, forget_topic, list_groups};
use crate::error::Result;
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
    /// `SystemCallFailed` when the directory cannot be read. An error in the file of a group stands beside its name.
    pub fn groups(&self) -> Result<Vec<GroupInfo>> {
        list_groups(self)
    }

    /// Delete a consumer group and its committed offsets. It must have no living member.
    ///
    /// # Errors
    /// `InvalidArgument` where there is none, or a member lives; `NotWritable`, `LockTimeout`, `SystemCallFailed`.
    pub fn delete_group(&self, group: &str) -> Result<()> {
        delete_group(self, group)
    }

    /// Let a group forget a topic that it no longer reads, so that retention does not wait for it.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no such group, or it reads the topic; `NotWritable`, `LockTimeout`, `CorruptData`, `SystemCallFailed`.
    pub fn forget_topic(&self, name: &str, topic: &str) -> Result<()> {
        forget_topic(self, name, topic).map(drop)
    }
}

impl ConsumerBuilder {
    fn new(store: &Store, name: &str, reads: Reads) -> Self {
        let (start, visibility) = (Start::Earliest, Visibility::default());
        let (store, name, home) = (store.clone(), name.to_owned(), None);
        Self { store, name, reads, start, visibility, home, on_assign: None, on_revoke: None }
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
    /// `InvalidArgument` for no topic, one named twice, a pattern that is none, or another subscription than that of a
    /// living member. `OffsetOutOfRange` for a start that is none. `InvalidName`, `UnknownTopic`, `NotWritable`,
    /// `LockTimeout`, `CorruptData`, `UnsupportedVersion`, `NoSpace`, `SystemCallFailed`.
    pub fn open(self) -> Result<Consumer> {
        let (store, name, start) = (&self.store, &self.name, self.start);
        let mut member = match &self.reads {
            Reads::Matching(pattern) => {
                let (pattern, how) = (TopicPattern::new(pattern)?, (self.visibility, start));
                GroupMember::open_matching(store, name, &pattern, how, self.home.as_ref())?
            }
            Reads::Topics(names) => {
                let open = |name: &String| Ok(store.topic(name)?.with_visibility(self.visibility));
                let topics: Vec<Topic> = names.iter().map(open).collect::<Result<_>>()?;
                match &self.home {
                    None => GroupMember::open(store, name, &topics, start)?,
                    Some(home) => GroupMember::open_in(store, name, &topics, start, home)?,
                }
            }
        };
        if self.on_assign.is_some() || self.on_revoke.is_some() {
            member.announce();
        }
        Ok(Consumer::new(member, self.store.bell(), (self.on_assign, self.on_revoke)))
    }
}
