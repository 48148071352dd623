//! The checker: compares the store with the writers' accounts.
//!
//! It reads a store from where the last check ended, with the accounts of all writers since; all of
//! them are dead or closed. It checks:
//!
//! - Every record is a writer's, as intended, at the acknowledged offset, in its writer's order,
//!   once.
//! - Records of one call are adjacent, and there all or not at all.
//! - Acknowledged records are there; refused ones are not.
//! - Records that were checked once read the same ever after.
//!
//! After a power cut ([`Loss::Suffix`]) acknowledged records may be missing, but only a suffix, and
//! none that was reported durable.

mod before;
pub mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use falaj::internals::error::Error;
use falaj::internals::log::Reading;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{Record, Topic};

use crate::acks::{Acks, BARE, Line, Seen, State};
use crate::payload::{BLOCK, Made, Pool, crc_on, who};
use crate::task::Layout;

/// Which acknowledged records may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// None: processes died, and the machine went on.
    Nothing,
    /// A suffix of each log, past what was reported durable.
    ///
    /// The power failed at this moment, in microseconds of the accounts' clock. Later
    /// acknowledgements do not count: a call may return normally while its file system is shut
    /// down.
    Suffix(u64),
}

/// The results of earlier checks of a partition.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Highest offset that a worker was allowed to trim to.
    may_trim: u64,
    next: u64,
    crc: u32,
    last: u32,
    blocks: Vec<u32>,
}

/// The numbers of a check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Records that were acknowledged.
    pub acknowledged: u64,
    /// Records in the store that are new since the last check.
    pub records: u64,
    /// How many of those were never acknowledged.
    pub unacknowledged: u64,
    /// Acknowledged records that the power cut took.
    pub lost: u64,
    /// Age of the oldest of them in interval mode, in milliseconds before the cut.
    pub lost_age_ms: u64,
}

/// A store as the checker knows it.
pub struct Checker {
    layout: Layout,
    pool: Pool,
    known: BTreeMap<(u16, u16), Known>,
}

/// A writer's account of one partition, and how much of it was found.
#[derive(Default)]
struct Column {
    lines: Vec<usize>,
    at: usize,
    seen: u32,
    crc: u32,
    first: u64,
}

struct Account<'a> {
    acks: &'a Acks,
    columns: BTreeMap<(u16, u16), Column>,
    /// Lines that were found in the store.
    present: Vec<bool>,
}

type Accounts<'a> = BTreeMap<u32, Account<'a>>;

impl Checker {
    /// A checker that knows nothing of the store yet.
    pub fn new(layout: &Layout, seed: u64) -> Self {
        Self { layout: layout.clone(), pool: Pool::new(seed), known: BTreeMap::new() }
    }

    /// Check what is new since the last check.
    pub fn check(
        &mut self,
        writers: &BTreeMap<u32, Acks>,
        told: &Told,
        loss: Loss,
        reading: Reading,
    ) -> Result<Found, String> {
        let mut accounts: Accounts<'_> = BTreeMap::new();
        let mut bare = BTreeMap::<(u16, u16), Bare>::new();
        for (id, acks) in writers {
            accounts.insert(*id, account(acks, loss, &mut bare));
        }
        let mut found = Found::default();
        let topics = self.open(reading)?;
        for place in self.layout.places() {
            let known = self.known.entry(place).or_default();
            let bare = bare.entry(place).or_default();
            if let Some(topic) = &topics[usize::from(place.0)] {
                let mut check = Check { place, pool: &self.pool, known, bare, found: &mut found };
                check.partition(topic, &mut accounts).map_err(|e| format!("{place:?}: {e}"))?;
            } else if known.next > 0 {
                return Err(format!("{place:?}: the topic is gone"));
            }
            let end = known.next;
            settle_bare(bare, end, loss, &mut found).map_err(|e| format!("{place:?}: {e}"))?;
            let told = told.get(&place).copied().unwrap_or_default();
            if told > end {
                return Err(format!(
                    "{place:?}: everything before {told} was reported durable, and the \
                     log ends at {end}"
                ));
            }
        }
        for (id, account) in &accounts {
            let ends = |place| self.known.get(&place).map_or(0, |known| known.next);
            settle(account, ends, loss, &mut found).map_err(|e| format!("writer {id}: {e}"))?;
        }
        Ok(found)
    }

    /// Read everything again from the beginning, and compare it with earlier checks and with the
    /// readers' accounts.
    ///
    /// Returns how many of the readers' blocks were compared.
    pub fn check_again(&self, readers: &[Seen], reading: Reading) -> Result<u64, String> {
        let mut compared = 0;
        let topics = self.open(reading)?;
        for (place, known) in &self.known {
            let Some(topic) = &topics[usize::from(place.0)] else { continue };
            reread(topic, *place, known).map_err(|e| format!("{place:?} read again: {e}"))?;
            for (block, crc) in known.blocks.iter().enumerate() {
                for seen in readers {
                    let Some(theirs) = seen.block(*place, block as u64) else { continue };
                    compared += 1;
                    if theirs != *crc {
                        return Err(format!(
                            "{place:?}: a reader saw something else in offsets {} to {}",
                            block as u64 * BLOCK,
                            (block as u64 + 1) * BLOCK
                        ));
                    }
                }
            }
        }
        Ok(compared)
    }

    /// Allow trimming what was checked, except the last record of each partition.
    pub fn may_trim(&mut self) -> Vec<(u16, u16, u64)> {
        let limits = self.known.iter_mut().map(|(place, known)| {
            known.may_trim = known.next.saturating_sub(1);
            (place.0, place.1, known.may_trim)
        });
        limits.collect()
    }

    fn open(&self, reading: Reading) -> Result<Vec<Option<Topic>>, String> {
        let options = StoreOptions { reading, ..StoreOptions::reading() };
        open(&self.layout.store, &options, self.layout.topics).map_err(|e| e.to_string())
    }
}

/// Open the topics that are there; `None` for those that no worker created.
fn open(path: &Path, options: &StoreOptions, topics: u16) -> Result<Vec<Option<Topic>>, Error> {
    let store = match Store::open_with(path, options) {
        Err(Error::StoreNotFound { .. } | Error::NotAStore { .. }) => {
            return Ok((0..topics).map(|_| None).collect());
        }
        opened => opened?,
    };
    let topic = |t| match Topic::open(&store, &Layout::topic(t), &TopicOptions::default()) {
        Err(Error::UnknownTopic { .. }) => Ok(None),
        opened => opened.map(Some),
    };
    (0..topics).map(topic).collect()
}

/// The offset of each partition up to which a worker knew everything to be on disk, before the cut.
pub type Told = BTreeMap<(u16, u16), u64>;

/// The accounts' answer to that now.
pub fn told(writers: &BTreeMap<u32, Acks>, layout: &Layout) -> Told {
    let highest = |place| writers.values().map(|acks| acks.durable(place)).max().unwrap_or(0);
    layout.places().map(|place| (place, highest(place))).collect()
}

/// True for an append that was acknowledged as durable before the power failed.
fn is_durable(line: &Line, loss: Loss) -> bool {
    let in_time = match loss {
        Loss::Nothing => true,
        Loss::Suffix(cut_us) => line.time_us < cut_us,
    };
    line.state == State::Acknowledged && line.mode == 2 && in_time
}

/// Records without content: the acknowledged offsets, and how many more may be there.
#[derive(Default)]
struct Bare {
    acknowledged: BTreeSet<u64>,
    durable: BTreeSet<u64>,
    pending: u64,
}

fn account<'a>(acks: &'a Acks, loss: Loss, bare: &mut BTreeMap<(u16, u16), Bare>) -> Account<'a> {
    let mut columns = BTreeMap::<(u16, u16), Column>::new();
    let mut present = Vec::new();
    while let Some(line) = acks.line(present.len()) {
        if line.group != BARE {
            columns.entry(line.place).or_default().lines.push(present.len());
        } else {
            let bare = bare.entry(line.place).or_default();
            match line.state {
                State::Acknowledged => {
                    bare.acknowledged.insert(line.offset);
                    if is_durable(&line, loss) {
                        bare.durable.insert(line.offset);
                    }
                }
                State::Intended => bare.pending += 1,
                State::Refused => {}
            }
        }
        present.push(false);
    }
    Account { acks, columns, present }
}

struct Check<'a> {
    place: (u16, u16),
    pool: &'a Pool,
    known: &'a mut Known,
    bare: &'a mut Bare,
    found: &'a mut Found,
}

impl Check<'_> {
    fn partition(&mut self, topic: &Topic, accounts: &mut Accounts<'_>) -> Result<(), String> {
        let partition = self.place.1.into();
        self.expect_last(topic)?;
        first_of(topic, partition, self.known)?;
        let end = topic.end(partition).map_err(|e| e.to_string())?;
        let scan = topic.scan_partition(partition, self.known.next, None);
        let mut scan = scan.map_err(|e| e.to_string())?;
        let mut made = Made::default();
        while let Some(record) = scan.next().transpose().map_err(|e| e.to_string())? {
            let (offset, key) = (record.offset(), record.key());
            let value = record.value().ok_or_else(|| format!("a tombstone at {offset}"))?;
            if offset != self.known.next {
                return Err(format!("offset {offset} instead of {}", self.known.next));
            }
            let acknowledged = match written_by(&record, self.pool, &mut made)? {
                None => self.take_bare(offset)?,
                Some((writer, seq)) => {
                    let account = accounts.get_mut(&writer).ok_or_else(|| {
                        format!("at {offset} a record of writer {writer}, which ended long ago")
                    })?;
                    account
                        .take(self.place, seq, offset, &Piece(key, value))
                        .map_err(|e| format!("at {offset}, writer {writer}, number {seq}: {e}"))?
                }
            };
            self.found.records += 1;
            self.found.unacknowledged += u64::from(!acknowledged);
            self.known.crc = crc_on(self.known.crc, key, value);
            self.known.last = crc_on(0, key, value);
            self.known.next += 1;
            if self.known.next % BLOCK == 0 {
                self.known.blocks.push(self.known.crc);
                self.known.crc = 0;
            }
        }
        if self.known.next < end {
            return Err(format!("reading ends at {}, the log at {end}", self.known.next));
        }
        Ok(())
    }

    /// Check that the last record of the previous check is still there.
    ///
    /// The end that the topic reports may lie before it, until the next writer publishes what a
    /// dead one committed.
    fn expect_last(&self, topic: &Topic) -> Result<(), String> {
        let Some(last) = self.known.next.checked_sub(1) else { return Ok(()) };
        let record = topic.get_in(self.place.1.into(), last);
        let record = record.map_err(|e| format!("offset {last} was there before: {e}"))?;
        let crc = crc_on(0, record.key(), record.value().unwrap_or_default());
        if crc == self.known.last {
            return Ok(());
        }
        Err(format!("offset {last} was another record before"))
    }

    fn take_bare(&mut self, offset: u64) -> Result<bool, String> {
        if self.bare.acknowledged.remove(&offset) {
            self.bare.durable.remove(&offset);
            self.found.acknowledged += 1;
            return Ok(true);
        }
        let left = self.bare.pending.checked_sub(1);
        self.bare.pending = left.ok_or_else(|| format!("an empty record at {offset} too many"))?;
        Ok(false)
    }
}

/// The writer and the number of a record, if its content is right; `None` for one without content.
fn written_by(record: &Record, pool: &Pool, made: &mut Made) -> Result<Option<(u32, u64)>, String> {
    let (offset, key) = (record.offset(), record.key());
    let value = record.value().ok_or_else(|| format!("a tombstone at {offset}"))?;
    let told = who(key, value).map_err(|()| format!("a record of no writer at {offset}"))?;
    let Some((writer, seq, len, rich)) = told else { return Ok(None) };
    made.fill(pool, writer, seq, len, rich);
    let header = record.headers().next().and_then(|(_, value)| value);
    if made.value != value || made.key.as_deref() != key || made.header.as_deref() != header {
        return Err(format!("the record at {offset} is not as it was written"));
    }
    Ok(Some((writer, seq)))
}

/// A record's part in its call's checksum.
struct Piece<'a>(Option<&'a [u8]>, &'a [u8]);

impl Account<'_> {
    /// Match a record with this writer's account; true if it was acknowledged.
    fn take(
        &mut self,
        place: (u16, u16),
        seq: u64,
        offset: u64,
        piece: &Piece<'_>,
    ) -> Result<bool, String> {
        let column = self.columns.get_mut(&place).ok_or("it wrote nothing here")?;
        loop {
            let i =
                *column.lines.get(column.at).ok_or("it is past its last record, or there twice")?;
            let line = self.acks.line(i).ok_or("a line is gone")?;
            if line.seq + u64::from(line.count) <= seq {
                skip(column, &line)?;
                column.at += 1;
                continue;
            }
            if seq < line.seq || line.seq + u64::from(column.seen) != seq {
                return Err(format!("it is there twice, or out of order: {line:?}"));
            }
            if line.state == State::Refused {
                return Err(format!("its append raised: {line:?}"));
            }
            if column.seen == 0 {
                (column.first, column.crc) = (offset, 0);
            }
            let due = match line.state {
                State::Acknowledged => line.offset,
                _ => column.first,
            } + u64::from(column.seen);
            if due != offset {
                return Err(format!("it belongs at {due}: {line:?}"));
            }
            column.crc = crc_on(column.crc, piece.0, piece.1);
            column.seen += 1;
            if column.seen == line.count {
                if column.crc != line.crc {
                    return Err(format!("the call's records are not those intended: {line:?}"));
                }
                self.present[i] = true;
                column.at += 1;
                column.seen = 0;
            }
            return Ok(line.state == State::Acknowledged);
        }
    }
}

/// Note that a later line was found: this one is not in the log.
fn skip(column: &Column, line: &Line) -> Result<(), String> {
    if column.seen > 0 {
        return Err(format!("only {} records are there of {line:?}", column.seen));
    }
    if line.state == State::Acknowledged {
        return Err(format!("what follows is there, and this is not: {line:?}"));
    }
    Ok(())
}

/// Judge what is missing, once everything in the log was seen.
fn settle(
    account: &Account<'_>,
    end: impl Fn((u16, u16)) -> u64,
    loss: Loss,
    found: &mut Found,
) -> Result<(), String> {
    if let Some(column) = account.columns.values().find(|column| column.seen > 0) {
        return Err(format!("only a part of line {} is there", column.lines[column.at]));
    }
    // The first line of a topic's log that is lost: none after it may be there.
    let mut lost_from = BTreeMap::<u16, usize>::new();
    for (i, present) in account.present.iter().enumerate() {
        let line = account.acks.line(i).ok_or("a line is gone")?;
        if line.group == BARE {
            continue;
        }
        if line.group > 0 && account.present[line.group as usize - 1] != *present {
            return Err(format!("a part of a call is there and a part is not: {line:?}"));
        }
        if *present {
            if let Some(lost) = lost_from.get(&line.place.0) {
                return Err(format!("line {i} is there, and line {lost} before it is lost"));
            }
        }
        if line.state != State::Acknowledged {
            continue;
        }
        found.acknowledged += u64::from(line.count);
        if *present {
            continue;
        }
        lost_from.entry(line.place.0).or_insert(i);
        let Loss::Suffix(cut_us) = loss else {
            return Err(format!("acknowledged and missing: {line:?}"));
        };
        if is_durable(&line, loss) {
            return Err(format!("acknowledged as durable and missing: {line:?}"));
        }
        if line.offset < end(line.place) {
            return Err(format!("lost, and not past the end {}: {line:?}", end(line.place)));
        }
        found.lost += u64::from(line.count);
        if line.mode == 1 {
            found.lost_age_ms = found.lost_age_ms.max(cut_us.saturating_sub(line.time_us) / 1000);
        }
    }
    Ok(())
}

fn settle_bare(bare: &Bare, end: u64, loss: Loss, found: &mut Found) -> Result<(), String> {
    if bare.acknowledged.is_empty() {
        return Ok(());
    }
    let left = &bare.acknowledged;
    if loss == Loss::Nothing || !bare.durable.is_empty() || left.iter().any(|o| *o < end) {
        return Err(format!("empty records that were acknowledged are missing: {left:?}"));
    }
    found.acknowledged += left.len() as u64;
    found.lost += left.len() as u64;
    Ok(())
}

/// The offset at which a partition begins: not past what a worker was allowed to trim.
fn first_of(topic: &Topic, partition: u32, known: &Known) -> Result<u64, String> {
    let first = topic.first(partition).map_err(|e| e.to_string())?;
    if first <= known.may_trim {
        return Ok(first);
    }
    Err(format!("it begins at {first}, past the highest allowed trim, {}", known.may_trim))
}

fn reread(topic: &Topic, place: (u16, u16), known: &Known) -> Result<(), String> {
    let first = first_of(topic, place.1.into(), known)?;
    // Hash from the first whole block on; records before it need only be there.
    let mut next = first.next_multiple_of(BLOCK).min(known.next);
    for offset in first..next {
        topic.get_in(place.1.into(), offset).map_err(|e| e.to_string())?;
    }
    let is_cut = next % BLOCK != 0;
    let scan = topic.scan_partition(place.1.into(), next, Some(known.next));
    let mut scan = scan.map_err(|e| e.to_string())?;
    let mut crc = 0;
    while let Some(record) = scan.next().transpose().map_err(|e| e.to_string())? {
        if record.offset() != next {
            return Err(format!("offset {} instead of {next}", record.offset()));
        }
        crc = crc_on(crc, record.key(), record.value().unwrap_or_default());
        next += 1;
        if next % BLOCK == 0 {
            if known.blocks.get((next / BLOCK - 1) as usize) != Some(&crc) {
                return Err(format!("offsets before {next} are not what they were"));
            }
            crc = 0;
        }
    }
    if next != known.next || (crc != known.crc && !is_cut) {
        return Err(format!("{} records have become {next}, or the last ones differ", known.next));
    }
    Ok(())
}
