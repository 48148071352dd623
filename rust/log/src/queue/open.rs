//! Opening a queue's state: its file is opened, created or rebuilt, and then locked.
//!
//! Owns the way from a path to a [`Ring`] that may be changed. Invariant: a caller that gets a [`Ring`]
//! holds the lock of the file that is in place. That file is of this topic and this incarnation, and
//! its derived part is valid.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ring::Ring;
use super::state::StateFile;
use super::{Now, QueueFile, rebuild};
use crate::error::{Error, IoResult, Result};
use crate::format::queue::{Parts, QueueEnds, QueueHeader, at};
use crate::store::Membership;
use crate::topic::Topic;

impl QueueFile {
    /// Change something under the lock.
    pub(super) fn changed<T>(
        &self,
        topic: &Topic,
        work: impl Fn(&mut Ring<'_>, Now) -> Result<T>,
    ) -> Result<T> {
        let (done, frees) = self.locked(topic, |ring, now| {
            ring.begin()?;
            let frees = self.owed.return_leases(ring, now)?;
            let done = work(ring, now)?;
            ring.finish()?;
            Ok((done, frees))
        })?;
        if frees {
            topic.log().wake_all();
        }
        Ok(done)
    }

    /// Run a function under the lock, with a valid derived part.
    pub(super) fn locked<T>(
        &self,
        topic: &Topic,
        work: impl Fn(&mut Ring<'_>, Now) -> Result<T>,
    ) -> Result<T> {
        if topic.log().is_deleted() {
            return Err(Error::TopicDeleted { name: topic.name().to_owned() });
        }
        let member = topic.store().membership()?;
        member.check()?;
        let mutex = member.file_mutex(&self.path);
        let mut open = mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            let file = match &mut *open {
                Some(file) => file,
                none => none.insert(self.open_file(topic, &member)?),
            };
            self.check_order(file)?;
            if let Some(done) = self.with_file(topic, &member, file, &work)? {
                return Ok(done);
            }
            *open = None;
        }
    }

    /// The order that the caller asked for must hold after a reset too.
    #[inline]
    fn check_order(&self, file: &StateFile) -> Result<()> {
        let stored = file.parts().ordered;
        self.was_ordered.store(stored, Ordering::Relaxed);
        let Some(asked) = self.options.ordered.filter(|asked| *asked != stored) else {
            return Ok(());
        };
        let word = |ordered| if ordered { "key" } else { "None" }.to_owned();
        let (topic, setting) = (self.name.clone(), "order");
        Err(Error::SettingsMismatch { topic, setting, stored: word(stored), asked: word(asked) })
    }

    /// Run a function on an open file; `None` when another file has taken this one's place.
    fn with_file<T>(
        &self,
        topic: &Topic,
        member: &Arc<Membership>,
        file: &StateFile,
        work: impl Fn(&mut Ring<'_>, Now) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(guard) = file.lock(topic.store(), member)? else { return Ok(None) };
        if file.header.generation != topic.settings().generation {
            return Ok(None);
        }
        if file.load(at::REPLACED) != 0 {
            if !file.is_in_place(topic.store())? {
                return Ok(None);
            }
            // It is stored only where the name is another's, and no file gets its name back: a flipped
            // bit.
            file.set(at::REPLACED, 0)?;
        }
        let now = Now::of(topic.store());
        let mut ring = Ring::new(file, member.identity(), guard)?;
        if file.load(at::BUSY) != 0 {
            // A process died in the middle, perhaps after a larger file took the name; or it found
            // corruption.
            if !file.is_in_place(topic.store())? {
                file.set(at::REPLACED, 1)?;
                return Ok(None);
            }
            ring.mend(topic, now)?;
        }
        work(&mut ring, now).map(Some)
    }

    /// Open the file; create or rebuild it first where that is due.
    fn open_file(&self, topic: &Topic, member: &Arc<Membership>) -> Result<StateFile> {
        let store = topic.store();
        if let Some(file) = StateFile::open(store, &self.path)? {
            if self.is_of(&file, topic)? && is_ready(&file, member) {
                return Ok(file);
            }
        }
        store.under_claim(|| {
            loop {
                if let Some(file) = StateFile::open(store, &self.path)? {
                    if self.is_of(&file, topic)? {
                        if self.review(topic, member, &file)? {
                            return Ok(file);
                        }
                        continue;
                    }
                }
                self.create_file(topic)?;
            }
        })
    }

    /// Review a file that no process of this incarnation has locked, or that an earlier build laid out.
    /// The claim keeps others from doing the same. False where another file took its place.
    fn review(&self, topic: &Topic, member: &Arc<Membership>, file: &StateFile) -> Result<bool> {
        if is_ready(file, member) {
            return Ok(true);
        }
        file.free_stale_lock(member.incarnation());
        let Some(guard) = file.lock(topic.store(), member)? else { return Ok(false) };
        let mut ring = Ring::new(file, member.identity(), guard)?;
        if file.load(at::INCARNATION) != member.incarnation() {
            ring.review(topic, Now::of(topic.store()), member.incarnation())?;
        }
        if file.header.counts_begun {
            return Ok(true);
        }
        // Builds that count an attempt with the delivery refuse the copy by name.
        if file.is_in_place(topic.store())? {
            ring.resize(topic, file.parts().capacity, Now::of(topic.store()))?;
        }
        Ok(false)
    }

    fn create_file(&self, topic: &Topic) -> Result<()> {
        let store = topic.store();
        let id = store.storage().random().doing("draw a random number for", &self.path)?;
        // After a reset, keep the order that the queue had.
        let was_ordered = || self.was_ordered.load(Ordering::Relaxed);
        let ordered = self.options.ordered.unwrap_or_else(was_ordered);
        let parts = Parts { capacity: self.options.capacity, ordered };
        let generation = topic.settings().generation;
        let topic_name = topic.name().to_owned();
        let header = QueueHeader { generation, id, parts, counts_begun: true, topic: topic_name };
        let first = topic.first(0)?;
        let ends = QueueEnds { floor: first, head: first, ..QueueEnds::default() };
        rebuild::create(store, &self.path, header, ends, |_| Ok(()))
    }

    /// False where the topic was deleted and created again.
    fn is_of(&self, file: &StateFile, topic: &Topic) -> Result<bool> {
        if file.header.topic == topic.name() {
            return Ok(file.header.generation == topic.settings().generation);
        }
        Err(Error::SettingsMismatch {
            topic: self.name.clone(),
            setting: "topic",
            stored: file.header.topic.clone(),
            asked: topic.name().to_owned(),
        })
    }
}

/// True where the file needs neither a review nor another layout.
fn is_ready(file: &StateFile, member: &Membership) -> bool {
    file.header.counts_begun && file.load(at::INCARNATION) == member.incarnation()
}
