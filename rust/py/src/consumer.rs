//! `Consumer`: a member of a consumer group. `falaj.Consumer` derives from it.
//!
//! The calls that return records are here; [`crate::consuming`] reads them.

use std::sync::Arc;
use std::time::Duration;

use falaj::internals::consumer::{
    GroupMember as Member, GroupReader, Move, Start, TopicPattern, Waiting,
};
use falaj::internals::error::Result;
use falaj::internals::log::Wait;
use falaj::internals::topic::{SyncMode, Topic, Visibility};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::admin::{list, skipped_in};
use crate::batch::Batch;
use crate::consumed::Consumed;
use crate::consuming::{Consuming, Known};
use crate::errors::{OrRaise, invalid};
use crate::follow::Watch;
use crate::input::{self, sync_mode, visibility as parse_visibility};
use crate::opened::Opened;
use crate::record::Record;
use crate::store::Store;
use crate::turn::{Shared, announce};
use crate::wait::{patiently, seconds, wait};

/// A member of a consumer group; see falaj.Consumer.
#[pyclass(frozen, subclass, weakref, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Consumer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) group: String,
    pattern: Option<String>,
}

/// Make a start from what `falaj._consumer` makes of `start=` and of a seek.
pub(crate) fn start_of(kind: &str, number: i64) -> Start {
    match kind {
        "latest" => Start::Latest,
        "time" => Start::Time(number),
        "offset" if number < 0 => Start::Last(number.unsigned_abs()),
        "offset" => Start::Offset(number.unsigned_abs()),
        _ => Start::Earliest,
    }
}

impl Consumer {
    #[inline]
    pub(crate) fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Consuming) -> PyResult<T>,
    ) -> PyResult<T> {
        self.shared.in_turn(py, work)
    }

    /// Try work that may find nothing now, until it finds something or the time is over. `None`
    /// also if the consumer was closed meanwhile. Callbacks that are due come first.
    pub(crate) fn wait_for<T>(
        slf: &Bound<'_, Self>,
        timeout: Option<Duration>,
        mut look: impl FnMut(&mut Consuming) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        let (py, own) = (slf.py(), slf.get());
        own.shared.expect_open(py)?;
        let (mut waiting, mut due) = (Waiting::new(timeout), None);
        loop {
            let found = own.with(py, |state| {
                let found = own.look_until(py, state, &mut waiting, &mut look);
                due = state.reader.announcement();
                found
            });
            let found = own.shared.unless_closed(py, found)?;
            match due.take() {
                Some(announcement) => announce(slf, announcement)?,
                None => return Ok(found),
            }
        }
    }

    fn look_until<T>(
        &self,
        py: Python<'_>,
        state: &mut Consuming,
        waiting: &mut Waiting,
        mut look: impl FnMut(&mut Consuming) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        loop {
            if let Some(found) = look(state)? {
                return Ok(Some(found));
            }
            if state.reader.announces() {
                return Ok(None);
            }
            state.reader.commit_if_automatic().or_raise(py)?;
            let Some(sleep) = waiting.sleep(&state.reader) else { return Ok(None) };
            if !self.sleep(py, &state.reader, sleep)? {
                return Ok(None);
            }
        }
    }

    /// Sleep until there may be work; false once it was closed.
    fn sleep(
        &self,
        py: Python<'_>,
        reader: &GroupReader,
        (longest, idle_turns): (Duration, u32),
    ) -> PyResult<bool> {
        self.shared.known.expect_open(py)?;
        let stopped = || self.shared.is_closed();
        let log = reader.member().topics().first().map(Topic::log);
        wait(py, Some(longest), log, stopped, |slice, interrupt| {
            // In this order: news after the ticket ends the sleep.
            let ticket = self.shared.bell.ticket();
            if reader.has_news()? {
                return Ok(Wait::News);
            }
            if interrupt() {
                return Ok(Wait::Interrupted);
            }
            self.shared.bell.sleep_at_most(ticket, idle_turns, slice);
            Ok(if reader.has_news()? { Wait::News } else { Wait::TimedOut })
        })?;
        Ok(!stopped())
    }

    /// Return the name of its only topic, if none was given.
    fn topic_of(&self, py: Python<'_>, topic: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
        match (input::consumed_topic(topic)?, self.shared.known.names().as_slice()) {
            (Some(topic), _) => Ok(topic.to_string_lossy().into_owned()),
            (None, [only]) => Ok(only.clone()),
            _ => Err(invalid(py, "this consumer reads several topics: say which, with topic=")),
        }
    }

    fn one_of(
        &self,
        py: Python<'_>,
        state: &Consuming,
        topic: Option<&Bound<'_, PyAny>>,
        partition: Option<u32>,
    ) -> PyResult<(String, u32)> {
        let name = self.topic_of(py, topic)?;
        let topics = state.reader.member().topics();
        let found = topics.iter().find(|topic| topic.name() == name);
        match (partition, found.map(Topic::partitions)) {
            (Some(partition), _) => Ok((name, partition)),
            (None, None | Some(1)) => Ok((name, 0)),
            (None, Some(n)) => {
                let what = format!(
                    "topic {name:?} has {n} partitions, each with offsets of its own: say which, \
                     with partition="
                );
                Err(invalid(py, what))
            }
        }
    }
}

#[pymethods]
impl Consumer {
    #[new]
    #[pyo3(signature = (store, group, topics, pattern, start, number, automatic, home=None))]
    #[allow(clippy::too_many_arguments, reason = "only Store.consumer calls it")]
    #[allow(clippy::needless_pass_by_value, reason = "pyo3 makes a vector of a list")]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, Store>,
        group: &Bound<'_, PyString>,
        topics: Vec<Bound<'_, Opened>>,
        pattern: Option<(String, Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        start: &str,
        number: i64,
        #[pyo3(from_py_with = input::timeout)] automatic: Option<f64>,
        home: Option<Bound<'_, Opened>>,
    ) -> PyResult<Self> {
        let (store, group) = (store.get(), group.to_string_lossy().into_owned());
        let (inner, patience, start) =
            (store.inner(py)?, store.patience(), start_of(start, number));
        let mut handles: Vec<_> = topics.iter().map(|t| Arc::clone(&t.get().handle)).collect();
        handles.sort_by_key(|handle| handle.shape.generation);
        let named = topics.first().map_or(Visibility::Visible, |t| t.get().visibility);
        let (pattern, open, visibility) = match pattern {
            Some((pattern, open, visibility)) => {
                let pattern = TopicPattern::new(&pattern).or_raise(py)?;
                let visibility = parse_visibility(Some(&visibility))?.unwrap_or_default();
                (Some(pattern), Some(open.unbind()), visibility)
            }
            None => (None, None, named),
        };
        let mut read = Vec::new();
        for handle in &handles {
            read.push(handle.open_existing(py)?.seen(visibility).clone());
        }
        let home = home.map(|home| home.get().handle.open_existing(py)).transpose()?;
        let automatic = seconds(py, automatic)?;
        let home = home.as_ref().map(|home| &home.topic);
        let member = patiently(py, patience, || match (&pattern, home) {
            (Some(pattern), home) => {
                Member::open_matching(&inner, &group, pattern, (visibility, start), home)
            }
            (None, home) => Member::open_in(&inner, &group, &read, start, home),
        })?;
        let reader = GroupReader::new(member, automatic);
        let mut consuming = Consuming::new(reader, (Known::new(handles), open), patience);
        consuming.know_topics(py)?;
        let shared = Shared::new(consuming, inner.bell());
        store.note_consumer(&shared);
        let pattern = pattern.map(|pattern| pattern.as_str().to_owned());
        Ok(Self { shared, group, pattern })
    }

    /// Call the callbacks of this object from now on.
    fn _announce(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().shared.announce_to(slf)
    }

    /// The pattern of the names of its topics; None when its topics were named.
    #[getter]
    fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// The consumer group that it is a member of.
    #[getter]
    fn group(&self) -> &str {
        &self.group
    }

    /// Names of the topics that it reads, sorted. Those of a pattern change as topics are created and
    /// deleted.
    #[getter]
    fn topics(&self) -> Vec<String> {
        self.shared.known.names()
    }

    /// True once it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Iterate over the present records, from its position on.
    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Consumed> {
        slf.get().shared.expect_open(slf.py())?;
        Ok(Consumed { consumer: slf.unbind(), timeout: Some(Duration::ZERO) })
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("a consumer"))
    }

    /// Raise an error once it was closed.
    fn _expect_open(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.expect_open(py)
    }

    /// Return an iterator that continues until nothing came for this many seconds.
    #[pyo3(signature = (timeout))]
    fn _follow(
        slf: Bound<'_, Self>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<Consumed> {
        let timeout = seconds(slf.py(), timeout)?;
        slf.get().shared.expect_open(slf.py())?;
        Ok(Consumed { consumer: slf.unbind(), timeout })
    }

    /// Add at most this many records to a list, waiting for the first.
    fn _poll(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        into: &Bound<'_, PyList>,
        #[pyo3(from_py_with = input::most)] records: usize,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = seconds(py, timeout)?;
        Self::wait_for(slf, timeout, |state| state.next_few(py, records, into)).map(drop)
    }

    /// Add the next batch to a list, waiting for it; nothing if none came, or once it was closed.
    fn _batch(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        into: &Bound<'_, PyList>,
        #[pyo3(from_py_with = input::most)] size: usize,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = seconds(py, timeout)?;
        let found = Self::wait_for(slf, timeout, |state| state.next_batch(py, size));
        match slf.get().shared.unless_closed(py, found)? {
            Some(batch) => into.append(batch),
            None => Ok(()),
        }
    }

    /// Deliver records or batches again that were found for a call that could not return them.
    pub(crate) fn _put_back(&self, py: Python<'_>, found: &Bound<'_, PyList>) -> PyResult<()> {
        if self.closed() || found.is_empty() {
            return Ok(());
        }
        let place = |each: Bound<'_, PyAny>| match each.cast::<Batch>() {
            Ok(batch) => Ok(batch.get().place()),
            Err(_) => Ok(Record::id(each.cast::<Record>()?)),
        };
        let found = found.iter().map(place).collect::<PyResult<Vec<_>>>()?;
        self.with(py, |state| {
            state.reader.put_back(found.into_iter().rev());
            Ok(())
        })
    }

    /// Commit the position: after all delivered records, or an offset (of the next record to read).
    ///
    /// Every process sees it at once, and it survives the death of any process. After a power
    /// failure the committed offset may be lower, but never beyond the log. With `sync="durable"` a
    /// power failure keeps it: the records before it are synced, then the committed offset. Threads
    /// that wait share one sync.
    ///
    /// Args:
    ///     offset: The offset of the next record to read. By default, all delivered records of all
    ///         partitions are committed.
    ///     topic: The topic of the offset, if the consumer reads several.
    ///     partition: The partition of the offset, if there are several.
    ///     sync: "durable" waits for the disk; "none" and "interval" do not.
    ///     metadata: A text of at most 384 bytes that is stored with each offset, or not at all. A commit
    ///         without one leaves none. `committed_metadata` returns it.
    ///
    /// Raises:
    ///     InvalidArgument: The metadata is too long.
    ///     PartitionNotAssigned: Another member has the partition; nothing was committed.
    ///     OffsetOutOfRange: The offset lies beyond the end. An offset that a trim or a limit has
    ///         passed meanwhile is committed; the next read then raises this.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> _ = orders.extend([b"one", b"two"])
    ///     >>> billing = store.consumer("billing", ["orders"])
    ///     >>> next(iter(billing)).to_bytes()
    ///     b'one'
    ///     >>> billing.commit(metadata="invoice 17")
    ///     >>> billing.committed(), billing.committed_metadata(), billing.lag
    ///     (1, 'invoice 17', 1)
    #[pyo3(signature = (offset=None, *, topic=None, partition=None, sync=None, metadata=None))]
    fn commit(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::offset)] offset: Option<u64>,
        topic: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        sync: Option<&Bound<'_, PyAny>>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let durable = match sync_mode(sync)? {
            Some(SyncMode::Remote) => {
                let what = "a committed offset does not wait for another machine: commit with \
                            sync=\"durable\", or commit in a transaction that has sync=\"remote\"";
                return Err(invalid(py, what));
            }
            mode => mode == Some(SyncMode::Durable),
        };
        let metadata = input::metadata(metadata)?;
        self.with(py, |state| {
            state.noting(py, &metadata, |state| {
                let Some(offset) = offset else {
                    if topic.is_some() || partition.is_some() {
                        let what = "topic= and partition= say what an offset is of: give it too";
                        return Err(invalid(py, what));
                    }
                    return state.commit_all(py, durable);
                };
                let (topic, partition) = self.one_of(py, state, topic, partition)?;
                let part = (&*topic, partition);
                state.patiently(py, |reader| reader.commit_to(part, offset, durable))
            })
        })
    }

    /// Deliver all uncommitted records again, as after work that failed.
    ///
    /// Example:
    ///     >>> _ = store.topic("orders").append(b"one")
    ///     >>> billing = store.consumer("billing", ["orders"])
    ///     >>> len(billing.poll()), len(billing.poll(timeout=0))
    ///     (1, 0)
    ///     >>> billing.rewind()
    ///     >>> len(billing.poll())
    ///     1
    fn rewind(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |state| {
            state.reader.rewind();
            Ok(())
        })
    }

    /// Move the position, in one partition or several.
    fn _seek(
        &self,
        py: Python<'_>,
        start: &str,
        number: i64,
        topic: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        self.with(py, |state| {
            let named = topic.is_some() || partition.is_some() || start == "offset";
            let name = named.then(|| self.topic_of(py, topic)).transpose()?;
            let one = start == "offset" && number >= 0 && partition.is_none();
            let one = match one {
                true => Some(self.one_of(py, state, topic, None)?.1),
                false => partition,
            };
            let (reader, to) = (&mut state.reader, start_of(start, number));
            py.detach(|| reader.seek(name.as_deref(), one, to)).or_raise(py)
        })
    }

    /// Offset of the next record to be delivered.
    ///
    /// Args:
    ///     topic: The topic, if the consumer reads several.
    ///     partition: The partition, if there are several.
    ///
    /// Raises:
    ///     PartitionNotAssigned: Another member has the partition.
    ///     LogTruncated: The log no longer knows the committed offset.
    #[pyo3(signature = (topic=None, partition=None))]
    fn position(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<u64> {
        self.with(py, |state| {
            let (topic, partition) = self.one_of(py, state, topic, partition)?;
            state.reader.settled().next(&topic, partition).or_raise(py)
        })
    }

    /// The committed offset, whichever member committed it.
    ///
    /// Args:
    ///     topic: The topic, if the consumer reads several.
    ///     partition: The partition, if there are several.
    #[pyo3(signature = (topic=None, partition=None))]
    fn committed(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<u64> {
        self.with(py, |state| {
            let (topic, partition) = self.one_of(py, state, topic, partition)?;
            let member = state.reader.member();
            py.detach(|| member.committed(&topic, partition)).or_raise(py)
        })
    }

    /// The text that was committed with the offset, whichever member committed it; empty if there was
    /// none.
    ///
    /// Args:
    ///     topic: The topic, if the consumer reads several.
    ///     partition: The partition, if there are several.
    #[pyo3(signature = (topic=None, partition=None))]
    fn committed_metadata(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<String> {
        self.with(py, |state| {
            let (topic, partition) = self.one_of(py, state, topic, partition)?;
            let member = state.reader.member();
            py.detach(|| member.metadata(&topic, partition)).or_raise(py)
        })
    }

    /// The number of kept records after the committed offsets, in all partitions of its topics,
    /// whichever members have them.
    #[getter]
    fn lag(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |state| {
            let member = state.reader.member();
            let parts = member.topics().iter().flat_map(|topic| {
                (0..topic.partitions()).map(move |partition| member.lag(topic.name(), partition))
            });
            py.detach(|| parts.sum::<Result<u64>>()).or_raise(py)
        })
    }

    /// The partitions of this member: topic and number of each.
    ///
    /// It takes and releases partitions as needed, as reading records does.
    #[getter]
    fn partitions(&self, py: Python<'_>) -> PyResult<Vec<(String, u32)>> {
        self.with(py, |state| {
            state.tend(py)?;
            let member = state.reader.member();
            let name = |topic: usize| member.topics()[topic].name().to_owned();
            let held = member.held_parts();
            Ok(held.into_iter().map(|(topic, partition)| (name(topic), partition)).collect())
        })
    }

    /// Stop delivering some partitions until `resume`; they stay this member's.
    ///
    /// Args:
    ///     topic: Only this topic.
    ///     partition: Only this partition of it.
    #[pyo3(signature = (topic=None, partition=None))]
    fn pause(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        self.set_paused(py, topic, partition, true)
    }

    /// Resume delivering paused partitions.
    ///
    /// Args:
    ///     topic: Only this topic.
    ///     partition: Only this partition of it.
    #[pyo3(signature = (topic=None, partition=None))]
    fn resume(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        self.set_paused(py, topic, partition, false)
    }

    /// Step over corruption after a `CorruptData`. The records in between are lost to this
    /// consumer, and count as delivered: the next commit covers them.
    ///
    /// Returns:
    ///     For each topic and partition with corruption: the path and position of the corruption,
    ///         the first lost offset and the one after the last. They are equal if nothing was lost, or
    ///         if no valid record follows that would tell.
    ///
    /// Example:
    ///     >>> _ = store.topic("orders").append(b"one")
    ///     >>> billing = store.consumer("billing", ["orders"])
    ///     >>> billing.skip_damage()
    ///     []
    fn skip_damage<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let told = Self::wait_for(slf, Some(Duration::ZERO), |state| state.skip_damage(py))?;
        list(py, told.unwrap_or_default(), |py, (topic, partition, lost)| {
            let lost = skipped_in(py, partition, &lost)?;
            lost.set_item("topic", topic)?;
            Ok(lost)
        })
    }

    /// List the delivered and uncommitted records, for a program that commits them elsewhere.
    ///
    /// Returns:
    ///     For each partition: the cursor's name (docs/FORMAT.md, "Cursor names"), the offset after
    ///         the last delivered record, the checksum of the block before it.
    fn uncommitted(&self, py: Python<'_>) -> PyResult<Vec<(Vec<u8>, u64, u32)>> {
        self.with(py, |state| state.reader.settled().uncommitted().or_raise(py))
    }

    /// Return what waits for news on its behalf: for each log that it reads, and how far it saw.
    fn _watches(&self, py: Python<'_>) -> PyResult<Vec<(Watch, u64)>> {
        self.with(py, |state| {
            state.known.expect_open(py)?;
            let watched = state.reader.watched();
            Ok(watched.map(|(topic, seen)| (Watch::new(topic.clone()), seen.0)).collect())
        })
    }

    /// True if nothing comes after all that a look from now on finds: all its topics are finished.
    fn _over(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| Ok(state.reader.is_over()))
    }

    /// Return the seconds until it must look after others; None if there are none.
    fn _due(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |state| Ok(state.reader.member().due().map(|due| due.as_secs_f64())))
    }

    /// Release all partitions, so that other members get them, and end every wait on it, in any
    /// thread. `on_revoke` is called first.
    ///
    /// Uncommitted records are delivered again to the next owner of their partition. Loops over it
    /// end. If another thread is using it, as in a `commit` that waits for the disk, that thread
    /// releases it when its call ends. A second call does nothing, or what the first one could not
    /// do.
    ///
    /// Raises:
    ///     LockTimeout: A store that is written with `pwrite` was busy for longer than its `timeout`; call
    ///         it again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    pub(crate) fn __repr__(&self, py: Python<'_>) -> String {
        let what = match self.with(py, |state| Ok(state.reader.member().held_parts().len())) {
            Ok(1) => "1 partition".to_owned(),
            Ok(parts) => format!("{parts} partitions"),
            Err(_) if self.closed() => "closed".to_owned(),
            Err(_) => "in use".to_owned(),
        };
        let of = self.pattern.clone().unwrap_or_else(|| self.shared.known.names().join(", "));
        format!("<falaj.Consumer {:?} of {of}, {what}>", self.group)
    }
}

impl Consumer {
    /// List the records delivered since the last commit, and return where their offsets are kept, for a transaction
    /// that commits them with this metadata.
    pub(crate) fn moves(
        &self,
        py: Python<'_>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<Move>, Option<Topic>)> {
        let metadata = input::metadata(metadata)?;
        self.with(py, |state| {
            state.noting(py, &metadata, |state| {
                let member = state.reader.settled();
                Ok((member.moves().or_raise(py)?, member.home().cloned()))
            })
        })
    }

    fn set_paused(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyAny>>,
        partition: Option<u32>,
        paused: bool,
    ) -> PyResult<()> {
        let topic = match (topic, partition) {
            (None, None) => None,
            (topic, _) => Some(self.topic_of(py, topic)?),
        };
        self.with(py, |state| {
            state.reader.set_paused((topic.as_deref(), partition), paused).or_raise(py)
        })
    }
}
