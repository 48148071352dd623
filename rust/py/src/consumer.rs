//! `Consumer`: a named reader. `falaj.Consumer` derives from it.
//!
//! What is called once a record is here; what it reads is in [`crate::consuming`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj::internals::consumer::{GroupMember as Member, Move, Start};
use falaj::internals::error::Result;
use falaj::internals::log::Wait;
use falaj::internals::topic::{SyncMode, Visibility};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::admin::{list, skipped_in};
use crate::batch::Batch;
use crate::consuming::{Consuming, Moved};
use crate::errors::{OrRaise, invalid};
use crate::follow::Watch;
use crate::handle::Handle;
use crate::input::{self, sync_mode};
use crate::opened::Opened;
use crate::record::Record;
use crate::store::Store;
use crate::turn::Shared;
use crate::wait::{patiently, seconds, wait};

/// Longest sleep where nothing has to be looked after.
const LONGEST: Duration = Duration::from_secs(1);

/// A named reader; see falaj.Consumer.
#[pyclass(frozen, subclass, weakref, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Consumer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) group: String,
    topics: Vec<String>,
    /// In whose log its cursors are kept, if not in a file of its own.
    pub(crate) home: Option<Opened>,
}

/// Where to begin: what `falaj._consumer` makes of `start=` and of what is sought.
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
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Consuming) -> PyResult<T>,
    ) -> PyResult<T> {
        self.shared.in_turn(py, work)
    }

    /// Do something that may find nothing now, until it finds something or the time is over. `None`
    /// too where it was closed meanwhile.
    fn wait_for<T>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        look: impl FnMut(&mut Consuming) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        self.with(py, |state| {
            let found = self.look_until(py, state, timeout, look);
            self.shared.unless_closed(py, found)
        })
    }

    fn look_until<T>(
        &self,
        py: Python<'_>,
        state: &mut Consuming,
        timeout: Option<Duration>,
        mut look: impl FnMut(&mut Consuming) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        let mut waiting: Option<Instant> = None;
        for idle_turns in 0.. {
            if let Some(found) = look(state)? {
                return Ok(Some(found));
            }
            state.commit_if_automatic(py)?;
            let since = *waiting.get_or_insert_with(Instant::now);
            let left = timeout.map(|timeout| timeout.saturating_sub(since.elapsed()));
            if left == Some(Duration::ZERO) || !self.sleep(py, state, left, idle_turns)? {
                break;
            }
        }
        Ok(None)
    }

    /// Sleep until there may be something to do; false once it was closed.
    fn sleep(
        &self,
        py: Python<'_>,
        state: &Consuming,
        left: Option<Duration>,
        idle_turns: u32,
    ) -> PyResult<bool> {
        let (logs, member) = (state.logs(), &state.member);
        let reach = member.topics()[0].visibility();
        let stopped = || self.shared.is_closed();
        let open = self.shared.first.open(py)?;
        let due = member.due().unwrap_or(LONGEST).max(Duration::from_millis(1));
        let left = Some(left.unwrap_or(due).min(due));
        wait(py, left, open.topic.log(), stopped, |slice, interrupt| {
            // In this order: what comes after the ticket ends the sleep.
            let ticket = self.shared.bell.ticket();
            let has_news = || -> Result<bool> {
                for (log, seen) in &logs {
                    if log.request_notification(reach, *seen)? {
                        return Ok(true);
                    }
                }
                Ok(member.is_stale())
            };
            if has_news()? {
                return Ok(Wait::News);
            }
            if interrupt() {
                return Ok(Wait::Interrupted);
            }
            self.shared.bell.sleep_at_most(ticket, idle_turns, slice);
            Ok(if has_news()? { Wait::News } else { Wait::TimedOut })
        })?;
        Ok(!stopped())
    }

    /// Which of its topics is meant, where that need not be said.
    fn topic_of(&self, py: Python<'_>, topic: Option<&Bound<'_, PyString>>) -> PyResult<String> {
        match (topic, self.topics.as_slice()) {
            (Some(topic), _) => Ok(topic.to_string_lossy().into_owned()),
            (None, [only]) => Ok(only.clone()),
            _ => Err(invalid(py, "this consumer reads several topics: say which, with topic=")),
        }
    }

    fn one_of(
        &self,
        py: Python<'_>,
        state: &Consuming,
        topic: Option<&Bound<'_, PyString>>,
        partition: Option<u32>,
    ) -> PyResult<(String, u32)> {
        let name = self.topic_of(py, topic)?;
        let found = state.member.topics().iter().find(|topic| topic.name() == name);
        match (partition, found.map(falaj::internals::topic::Topic::partitions)) {
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
    #[pyo3(signature = (store, group, topics, start, number, automatic, home=None))]
    #[allow(clippy::too_many_arguments, reason = "Store.consumer calls it, nobody else")]
    #[allow(clippy::needless_pass_by_value, reason = "pyo3 makes a vector of a list")]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, Store>,
        group: &Bound<'_, PyString>,
        topics: Vec<Bound<'_, Opened>>,
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
        let visibility = topics.first().map_or(Visibility::Visible, |t| t.get().visibility);
        let mut read = Vec::new();
        for handle in &handles {
            read.push(handle.open_existing(py)?.seen(visibility).clone());
        }
        let home = home.map(|home| home.get().clone());
        let home_open = home.as_ref().map(|home| home.handle.open_existing(py)).transpose()?;
        let automatic = seconds(py, automatic)?;
        let member = patiently(py, patience, || match &home_open {
            None => Member::open(&inner, &group, &read, start),
            Some(home) => Member::open_in(&inner, &group, &read, start, &home.topic),
        })?;
        let first = handles.first().map(Arc::clone);
        let first = first.ok_or_else(|| invalid(py, "a consumer reads at least one topic"))?;
        let moved = Arc::<Moved>::default();
        let consuming = Consuming::new(member, handles, visibility, automatic, Arc::clone(&moved));
        let shared = Shared::new(consuming, inner.bell(), first, moved);
        store.note_consumer(&shared);
        let mut topics: Vec<_> = topics.iter().map(|t| t.get().handle.shape.name.clone()).collect();
        topics.sort();
        Ok(Self { shared, group, topics, home })
    }

    /// The consumer group that it is a member of.
    #[getter]
    fn group(&self) -> &str {
        &self.group
    }

    /// Names of the topics that it reads, sorted.
    #[getter]
    fn topics(&self) -> Vec<String> {
        self.topics.clone()
    }

    /// True once it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Iterate over what there is now, from where it stands on.
    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Consumed> {
        slf.get().shared.expect_open(slf.py())?;
        Ok(Consumed { consumer: slf.unbind(), timeout: Some(Duration::ZERO) })
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("a consumer"))
    }

    /// Complain once it was closed.
    fn _expect_open(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.expect_open(py)
    }

    /// An iterator that goes on, until nothing came for so many seconds.
    #[pyo3(signature = (timeout))]
    fn _follow(
        slf: Bound<'_, Self>,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<Consumed> {
        let timeout = seconds(slf.py(), timeout)?;
        slf.get().shared.expect_open(slf.py())?;
        Ok(Consumed { consumer: slf.unbind(), timeout })
    }

    /// Add up to so many records to a list, waiting for the first.
    fn _poll(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyList>,
        #[pyo3(from_py_with = input::most)] records: usize,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = seconds(py, timeout)?;
        self.wait_for(py, timeout, |state| state.next_few(py, records, into)).map(drop)
    }

    /// Add the next batch to a list, waiting for it; nothing where none came, and once it was closed.
    fn _batch(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyList>,
        #[pyo3(from_py_with = input::most)] size: usize,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = seconds(py, timeout)?;
        let found = self.wait_for(py, timeout, |state| state.next_batch(py, size));
        match self.shared.unless_closed(py, found)? {
            Some(batch) => into.append(batch),
            None => Ok(()),
        }
    }

    /// Deliver records or batches again that were found for a caller who never got them.
    fn _put_back(&self, py: Python<'_>, found: &Bound<'_, PyList>) -> PyResult<()> {
        if self.closed() || found.is_empty() {
            return Ok(());
        }
        let mut firsts = BTreeMap::new();
        for each in found {
            let (generation, partition, offset) = match each.cast::<Batch>() {
                Ok(batch) => batch.get().place(),
                Err(_) => Record::id(each.cast::<Record>()?),
            };
            firsts.entry((generation, partition)).or_insert(offset);
        }
        self.with(py, |state| {
            state.put_back(&firsts);
            Ok(())
        })
    }

    /// Commit how far was read: what was handed out, or up to (not including) an offset.
    ///
    /// Every process sees it at once, and no death takes it. After a loss of power the cursor may stand
    /// further back, never further on than the log. With `sync="durable"` it stands where it was: the
    /// records before it are put on the medium, then the cursor; threads that wait share one sync.
    ///
    /// Args:
    ///     offset: Of the next record to read; what was handed out, of all partitions, by default.
    ///     topic: Which topic the offset is of, where there are several.
    ///     partition: Which of its partitions, where there are several.
    ///     sync: "durable" waits for the medium; anything else does not.
    ///
    /// Raises:
    ///     PartitionNotAssigned: Another member has the partition; nothing was committed.
    ///     OffsetOutOfRange: The offset lies beyond the end. One that a trim or a limit has passed
    ///         meanwhile is committed; the next read raises this then.
    ///
    /// Example:
    ///     >>> orders = store.topic("orders")
    ///     >>> _ = orders.extend([b"one", b"two"])
    ///     >>> billing = store.consumer("billing", ["orders"])
    ///     >>> next(iter(billing)).to_bytes()
    ///     b'one'
    ///     >>> billing.commit()
    ///     >>> billing.committed(), billing.lag
    ///     (1, 1)
    #[pyo3(signature = (offset=None, *, topic=None, partition=None, sync=None))]
    fn commit(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::offset)] offset: Option<u64>,
        topic: Option<&Bound<'_, PyString>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
        sync: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let durable = sync_mode(sync)? == Some(SyncMode::Durable);
        self.with(py, |state| {
            let Some(offset) = offset else {
                if topic.is_some() || partition.is_some() {
                    let what = "topic= and partition= say what an offset is of: give it too";
                    return Err(invalid(py, what));
                }
                return state.commit_all(py, durable);
            };
            let (topic, partition) = self.one_of(py, state, topic, partition)?;
            state.commit_to(py, &topic, partition, offset, durable)
        })
    }

    /// Hand out again what was handed out and not committed, as after work that came to nothing.
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
            state.settle();
            state.forget_streams();
            state.member.rewind();
            Ok(())
        })
    }

    /// Read on from another place, in a partition or all that are meant.
    fn _seek(
        &self,
        py: Python<'_>,
        start: &str,
        number: i64,
        topic: Option<&Bound<'_, PyString>>,
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
            state.settle();
            state.forget_streams();
            let member = &mut state.member;
            let to = start_of(start, number);
            py.detach(|| member.seek_all(name.as_deref(), one, to)).or_raise(py)
        })
    }

    /// Offset of the record that it hands out next.
    ///
    /// Args:
    ///     topic: Which topic, where there are several.
    ///     partition: Which of its partitions, where there are several.
    ///
    /// Raises:
    ///     PartitionNotAssigned: Another member has the partition.
    ///     LogTruncated: The log does not know the cursor any more.
    #[pyo3(signature = (topic=None, partition=None))]
    fn position(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyString>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<u64> {
        self.with(py, |state| {
            let (topic, partition) = self.one_of(py, state, topic, partition)?;
            state.settle();
            state.member.next(&topic, partition).or_raise(py)
        })
    }

    /// Offset up to which was committed, by whichever member.
    ///
    /// Args:
    ///     topic: Which topic, where there are several.
    ///     partition: Which of its partitions, where there are several.
    #[pyo3(signature = (topic=None, partition=None))]
    fn committed(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyString>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<u64> {
        self.with(py, |state| {
            let (topic, partition) = self.one_of(py, state, topic, partition)?;
            let member = &state.member;
            py.detach(|| member.committed(&topic, partition)).or_raise(py)
        })
    }

    /// How many records that are kept lie behind the cursors, in all partitions of its topics, whoever has
    /// them.
    #[getter]
    fn lag(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |state| {
            let member = &state.member;
            let parts = member.topics().iter().flat_map(|topic| {
                (0..topic.partitions()).map(move |partition| member.lag(topic.name(), partition))
            });
            py.detach(|| parts.sum::<Result<u64>>()).or_raise(py)
        })
    }

    /// The partitions that this member has: topic and number of each.
    ///
    /// Takes and gives up what is due, as asking for records does.
    #[getter]
    fn partitions(&self, py: Python<'_>) -> PyResult<Vec<(String, u32)>> {
        self.with(py, |state| {
            state.tend(py)?;
            let name = |topic: usize| state.member.topics()[topic].name().to_owned();
            let held = state.member.held_parts();
            Ok(held.into_iter().map(|(topic, partition)| (name(topic), partition)).collect())
        })
    }

    /// Hand out nothing of some partitions until `resume`; they stay this member's.
    ///
    /// Args:
    ///     topic: Of this topic alone.
    ///     partition: Of this partition of it alone.
    #[pyo3(signature = (topic=None, partition=None))]
    fn pause(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyString>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        self.set_paused(py, topic, partition, true)
    }

    /// Go on with what was paused.
    ///
    /// Args:
    ///     topic: Of this topic alone.
    ///     partition: Of this partition of it alone.
    #[pyo3(signature = (topic=None, partition=None))]
    fn resume(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyString>>,
        #[pyo3(from_py_with = input::partition)] partition: Option<u32>,
    ) -> PyResult<()> {
        self.set_paused(py, topic, partition, false)
    }

    /// After a `CorruptData`: go on behind the damage. What lies in between is lost to this consumer, and
    /// counts as handed out: the next commit covers it.
    ///
    /// Returns:
    ///     What that is, for each topic and partition where there was some: the path and position of the
    ///     damage, and first and behind the last of the offsets. They are equal where nothing was lost,
    ///     or where nothing sound follows that would tell.
    ///
    /// Example:
    ///     >>> _ = store.topic("orders").append(b"one")
    ///     >>> billing = store.consumer("billing", ["orders"])
    ///     >>> billing.skip_damage()
    ///     []
    fn skip_damage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let told = self.with(py, |state| state.skip_damage(py))?;
        list(py, told, |py, (topic, partition, lost)| {
            let lost = skipped_in(py, partition, &lost)?;
            lost.set_item("topic", topic)?;
            Ok(lost)
        })
    }

    /// What was handed out and is not committed, for who commits it elsewhere.
    ///
    /// Returns:
    ///     For each partition: the cursor's name (docs/FORMAT.md, "Cursor names"), the offset up to
    ///     which was handed out, the checksum of the block before it.
    fn uncommitted(&self, py: Python<'_>) -> PyResult<Vec<(Vec<u8>, u64, u32)>> {
        self.with(py, |state| {
            state.settle();
            state.member.uncommitted().or_raise(py)
        })
    }

    /// What asks for news in its place: for each log it reads, and how far it saw.
    fn _watches(&self, py: Python<'_>) -> PyResult<Vec<(Watch, u64)>> {
        self.with(py, |state| {
            let reach = state.member.topics()[0].visibility();
            let watch = |(handle, seen): (Arc<Handle>, u64)| {
                Ok((Watch::new(handle.open_existing(py)?, reach), seen))
            };
            state.watched().into_iter().map(watch).collect()
        })
    }

    /// Seconds until it has to look after others; None where there are none.
    fn _due(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |state| Ok(state.member.due().map(|due| due.as_secs_f64())))
    }

    /// Let go of all partitions, so that others have them, and end every wait on it, in any thread.
    ///
    /// What was handed out and is not committed is handed out again, to whoever has the partition
    /// next. Loops over it end. Where another thread is at work in it, as in a `commit` that waits for
    /// the medium, that one lets go when its call ends. Again does nothing, or what the time before
    /// could not do.
    ///
    /// Raises:
    ///     LockTimeout: A store that is written with `pwrite` was busy for longer than its `timeout`; call
    ///         it again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let what = match self.with(py, |state| Ok(state.member.held_parts().len())) {
            Ok(1) => "1 partition".to_owned(),
            Ok(parts) => format!("{parts} partitions"),
            Err(_) if self.closed() => "closed".to_owned(),
            Err(_) => "in use".to_owned(),
        };
        format!("<falaj.Consumer {:?} of {}, {what}>", self.group, self.topics.join(", "))
    }
}

impl Consumer {
    /// What was handed out since the last commit, for a transaction.
    pub(crate) fn moves(&self, py: Python<'_>) -> PyResult<Vec<Move>> {
        self.with(py, |state| {
            state.settle();
            state.member.moves().or_raise(py)
        })
    }

    fn set_paused(
        &self,
        py: Python<'_>,
        topic: Option<&Bound<'_, PyString>>,
        partition: Option<u32>,
        paused: bool,
    ) -> PyResult<()> {
        let topic = match (topic, partition) {
            (None, None) => None,
            (topic, _) => Some(self.topic_of(py, topic)?),
        };
        self.with(py, |state| {
            let meant = state.member.meant(topic.as_deref(), partition).or_raise(py)?;
            state.settle();
            state.forget_streams();
            for part in meant {
                match paused {
                    true => state.paused.insert(part),
                    false => state.paused.remove(&part),
                };
            }
            Ok(())
        })
    }
}

/// An iterator over what a consumer reads.
#[pyclass(frozen, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Consumed {
    consumer: Py<Consumer>,
    timeout: Option<Duration>,
}

#[pymethods]
impl Consumed {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("what is read one after the other"))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<falaj.Consumed of {}>", self.consumer.get().__repr__(py))
    }

    #[inline]
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let consumer = self.consumer.get();
        let found = match consumer.with(py, |state| state.next(py)) {
            Ok(Some(record)) => return Ok(Some(record)),
            Ok(None) => consumer.wait_for(py, self.timeout, |state| state.next(py)),
            found => found,
        };
        if let (Ok(Some(record)), Err(signal)) = (&found, py.check_signals()) {
            consumer._put_back(py, &PyList::new(py, [record])?)?;
            return Err(signal);
        }
        consumer.shared.unless_closed(py, found)
    }
}
