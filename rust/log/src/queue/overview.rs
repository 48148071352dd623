//! What all queues of a store say, for people and for what watches them.
//!
//! Owns no state. Looking takes no lock and changes nothing, and a store that was opened for reading is
//! enough. So counts that others change meanwhile may be of two moments; and jobs whose holders are
//! dead count as given back, which they are as soon as somebody takes or waits.

use std::io;

use crate::error::{IoResult, Result};
use crate::format::queue::{JobEntry, Parts, SLOTS, State, VERSION_LEN, at};
use crate::format::u64_at;
use crate::lock::Identity;
use crate::storage::{File, OpenMode};
use crate::store::{Front, SlotInfo, Store};

/// A queue as its file says.
#[derive(Debug)]
pub struct Overview {
    /// Its name.
    pub name: String,
    /// What became of its jobs; an error where its file is damaged.
    pub counts: Result<Counts>,
}

/// What became of the jobs of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Its topic.
    pub topic: String,
    /// Generation of that topic: another one of its name has all to be done.
    pub generation: [u8; 16],
    /// True when records of one key keep their order.
    pub ordered: bool,
    /// All records before it are done.
    pub floor: u64,
    /// No record from here on was ever handed out.
    pub head: u64,
    /// Jobs that are out.
    pub leased: u64,
    /// Jobs that came back.
    pub returned: u64,
    /// Jobs that are done, but not passed by the floor yet.
    pub done: u64,
    /// Records that were trimmed before they were done.
    pub trimmed: u64,
    /// Jobs that were given up.
    pub dead: u64,
    /// Processes that have jobs, as [`super::QueueInfo`] has them.
    pub holders: Vec<(String, u64)>,
}

/// All queues of a store, by name.
///
/// # Errors
/// When the directory cannot be read. What is wrong with one stands beside its name.
pub fn overview(store: &Store) -> Result<Vec<Overview>> {
    Ok(overview_of(store, store.queues()?))
}

/// The queue of a name; `None` where there is none. What is wrong with it stands beside its name.
pub fn overview_of_one(store: &Store, name: &str) -> Option<Overview> {
    store.layout().queue(name).ok()?;
    overview_of(store, vec![name.to_owned()]).pop()
}

fn overview_of(store: &Store, names: Vec<String>) -> Vec<Overview> {
    let (slots, incarnation) = (store.slots(), store.incarnation());
    let look = |name: String| match look(store, &name, &slots, incarnation) {
        Ok(None) => None,
        Ok(Some(counts)) => Some(Overview { name, counts: Ok(counts) }),
        Err(error) => Some(Overview { name, counts: Err(error) }),
    };
    names.into_iter().filter_map(look).collect()
}

fn look(
    store: &Store,
    name: &str,
    slots: &[SlotInfo],
    incarnation: Option<u64>,
) -> Result<Option<Counts>> {
    let path = store.layout().queue(name)?;
    let opened = store.storage().open(&path, OpenMode::Read).if_there("open", &path)?;
    let Some(file) = opened else { return Ok(None) };
    let front = Front::read(&*file, &path)?;
    // Of another incarnation all who had jobs are dead, and what is derived is not believed.
    let is_current = incarnation == Some(front.word(at::INCARNATION));
    let (holders, done) = if is_current {
        (holders(&front.bytes, slots), front.word(at::DONE))
    } else {
        (Vec::new(), done_of(&*file, &front).doing("read", &path)?)
    };
    let Front { header, ends, .. } = front;
    let leased = holders.iter().map(|(_, jobs)| jobs).sum();
    Ok(Some(Counts {
        topic: header.topic,
        generation: header.generation,
        ordered: header.parts.ordered,
        floor: ends.floor,
        head: ends.head,
        leased,
        returned: (ends.head - ends.floor).saturating_sub(leased + done),
        done,
        trimmed: ends.trimmed,
        dead: ends.dead,
        holders,
    }))
}

/// Who has jobs, and how many, but for the dead.
fn holders(front: &[u8], slots: &[SlotInfo]) -> Vec<(String, u64)> {
    let holder = |slot: u64| {
        let word = u64_at(front, (Parts::HOLDERS + 8 * slot) as usize);
        let (identity, jobs) = (Identity::from_bits((word >> 32) as u32)?, word & 0xffff_ffff);
        let slot = slots.iter().find(|known| known.slot == identity.slot());
        let same = slot.filter(|known| known.generation == Some(identity.generation()));
        let is_dead = slot.is_some() && same.is_none_or(|known| known.alive == Some(false));
        let number = identity.slot();
        let told = match same.and_then(|known| known.process) {
            Some(process) => format!("process {process} (slot {number})"),
            None => format!("an unknown process (slot {number})"),
        };
        (!is_dead && jobs > 0).then_some((told, jobs))
    };
    (0..SLOTS).filter_map(holder).collect()
}

/// How many are done, by the entries themselves.
fn done_of(file: &dyn File, front: &Front) -> io::Result<u64> {
    let mut done = 0;
    front.each_entry(file, |offset, _, entry| {
        done += u64::from(state_of(entry, front.header.id, offset) == Some(State::Done));
    })?;
    Ok(done)
}

/// What the version says that holds.
fn state_of(entry: &[u8], id: u64, offset: u64) -> Option<State> {
    let versions = [0, VERSION_LEN as usize]
        .map(|half| std::array::from_fn(|word| u64_at(entry, half + 8 * word)));
    JobEntry::newest(&versions, id, offset).value.map(|entry| entry.state)
}
