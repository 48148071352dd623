//! Committing a job: what was staged is checked, then spliced into the log in one append.
//!
//! Three steps, so that who has to wait for locks in turns can: [`Job::ready`] reads and checks, and
//! changes nothing; [`Ready::place`] appends, or finds that it was done before; [`Ready::settle`] waits for
//! the medium, and removes what was staged. Invariant: what is appended was read once, into memory, and
//! checked there; whatever happens to the files meanwhile, what was checked is what is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use super::Job;
use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::Malformed;
use crate::format::block::{MAX_HEADER_LEN, Producer};
use crate::format::checksum::{crc32, crc32_from};
use crate::format::part::{FRAME_LEN, Frame, HEADER_LEN, Header, Manifest, file_name};
use crate::log::{Appended, Outgoing, Token};
use crate::storage::{Open, Storage};
use crate::store::{Stale, remove_job, sweep_staging};

/// More than a group takes beside the bodies of one block and a token.
pub(super) const OVERHEAD: u64 = 1024;

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// True when it was committed by this; false where its token, or a later one, was there before.
    pub now: bool,
    /// Records that were appended.
    pub records: u64,
    /// Their offsets, by partition.
    pub offsets: BTreeMap<u32, Range<u64>>,
}

/// A job whose parts were read and found whole, ready to be committed.
#[derive(Debug)]
pub struct Ready<'a> {
    job: &'a Job,
    token: Option<Token>,
    /// Id of the token's name, and its version.
    spent: Option<(u64, u64)>,
    /// True when the token was spent already: there is nothing to place.
    is_done: bool,
    parts: Vec<Vec<u8>>,
    /// Blocks in the order in which they are appended: which part's, where, and what they are.
    frames: Vec<(usize, usize, Frame)>,
}

/// Where a job went.
#[derive(Clone, Debug)]
pub struct Placed {
    /// `None` where it was committed before.
    appended: Option<Appended>,
    firsts: Vec<u64>,
}

impl Job {
    /// Read and check the parts that manifests name. Nothing changes.
    ///
    /// # Errors
    /// As [`Job::commit`].
    pub fn ready(
        &self,
        manifests: &[impl AsRef<[u8]>],
        token: Option<(&str, u64)>,
    ) -> Result<Ready<'_>> {
        let mut ids = BTreeSet::new();
        let manifests = manifests.iter().map(|bytes| self.manifest(bytes.as_ref(), &mut ids));
        let manifests = manifests.collect::<Result<Vec<_>>>()?;
        let spent = token.map(|(name, version)| (Producer::id_of(name), version));
        let (parts, frames) = (Vec::new(), Vec::new());
        let mut ready =
            Ready { job: self, token: self.token(token)?, spent, is_done: false, parts, frames };
        ready.is_done = self.is_spent(token)?;
        if ready.is_done {
            return Ok(ready);
        }
        match ready.read(&manifests) {
            // Who was faster with the same token has removed the parts.
            Err(Error::NotStaged { .. }) if self.is_spent(token)? => {
                ready.is_done = true;
                Ok(ready)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(ready),
        }
    }

    fn is_spent(&self, token: Option<(&str, u64)>) -> Result<bool> {
        let Some((name, version)) = token else { return Ok(false) };
        Ok(super::last_token(&self.topic, name)?.is_some_and(|last| version <= last.version))
    }

    fn manifest(&self, bytes: &[u8], ids: &mut BTreeSet<u64>) -> Result<Manifest> {
        let refuse = |why: String| Err(Error::BadManifest { job: self.name().to_owned(), why });
        let manifest = match Manifest::decode(bytes) {
            Ok(manifest) => manifest,
            Err(Malformed::Damaged(what) | Malformed::Unknown(what)) => return refuse(what.into()),
            Err(Malformed::Newer(version)) => {
                return refuse(format!(
                    "it is of format version {version}, which needs a newer falaj"
                ));
            }
        };
        let part = &manifest.part;
        if manifest.owner != self.owner(manifest.owner.id) {
            let name = self.topic.name();
            return refuse(format!(
                "part {part:?} is not for the topic {name:?} that is there now"
            ));
        }
        if manifest.job != self.name() {
            return refuse(format!("part {part:?} is of the job {:?}", manifest.job));
        }
        if !ids.insert(manifest.owner.id) {
            return refuse(format!("part {part:?} is there twice"));
        }
        let known = manifest.records.iter().all(|(p, _)| *p < self.topic.partitions());
        if !known || (manifest.len == 0) != manifest.records.is_empty() {
            return refuse(format!("part {part:?} has records where the topic has no partition"));
        }
        Ok(manifest)
    }
}

impl Ready<'_> {
    fn read(&mut self, manifests: &[Manifest]) -> Result<()> {
        let limit = self.job.topic.log().max_group_len();
        let heads = |manifest: &Manifest| u64::from(manifest.frames) * (MAX_HEADER_LEN as u64 + 8);
        let bytes = manifests.iter().map(|manifest| manifest.len + heads(manifest)).sum::<u64>();
        if bytes + OVERHEAD > limit {
            return Err(Error::TooLarge { bytes, limit });
        }
        for manifest in manifests.iter().filter(|manifest| manifest.len > 0) {
            self.read_part(manifest)?;
        }
        // In the order of partitions, as they get their offsets; within one as the parts were given.
        self.frames.sort_by_key(|(part, at, frame)| (frame.partition, *part, *at));
        Ok(())
    }

    fn read_part(&mut self, manifest: &Manifest) -> Result<()> {
        let job = self.job;
        let path = job.dir().join(file_name(&manifest.part, manifest.owner.id, true));
        let bytes = read_whole(&**job.topic.store().storage(), &path, manifest.len)?;
        let Some(bytes) = bytes else {
            let (job, part) = (job.name().to_owned(), manifest.part.clone());
            return Err(Error::NotStaged { job, part, path });
        };
        let damaged = |at: usize, what| Error::malformed(&path, at as u64, what);
        let header = Header::decode(&bytes).map_err(|what| damaged(0, what))?;
        if header.owner != manifest.owner {
            return Err(damaged(0, Malformed::Damaged("a part that is another's")));
        }
        let (mut at, mut heads, mut frames) = (HEADER_LEN, 0, 0);
        let mut records = BTreeMap::<u32, u64>::new();
        while at < bytes.len() {
            let frame = Frame::decode(&bytes[at..], manifest.owner.id, at as u64);
            let frame = frame.map_err(|what| damaged(at, what))?;
            let body = at + FRAME_LEN..at + FRAME_LEN + frame.len as usize;
            let whole = bytes.get(body.clone()).filter(|body| crc32(body) == frame.body_crc);
            if whole.is_none() {
                let what = "the checksum of staged records does not match";
                return Err(damaged(at, Malformed::Damaged(what)));
            }
            heads = crc32_from(heads, &bytes[at..at + FRAME_LEN]);
            frames += 1;
            *records.entry(frame.partition).or_default() += u64::from(frame.count);
            self.frames.push((self.parts.len(), at, frame));
            at = body.end;
        }
        let found = (frames, heads, records.into_iter().collect::<Vec<_>>());
        if found != (manifest.frames, manifest.heads_crc, manifest.records.clone()) {
            return Err(damaged(
                0,
                Malformed::Damaged("a part that is not what its manifest says"),
            ));
        }
        self.parts.push(bytes);
        Ok(())
    }

    /// Append what is ready, all at once; not waited for the medium. Where a lock is not had in time
    /// nothing has happened, and this can be tried again.
    ///
    /// # Errors
    /// As [`Job::commit`].
    pub fn place(&self) -> Result<Placed> {
        let (topic, log) = (&self.job.topic, self.job.topic.log());
        let mut firsts = vec![0; self.frames.len()];
        let nothing = self.frames.is_empty() && self.token.is_none();
        if self.is_done || nothing {
            return Ok(Placed { appended: None, firsts });
        }
        let first = topic.settings().number;
        let block = |(part, at, frame): &(usize, usize, Frame)| Outgoing {
            topic: first + frame.partition,
            flags: frame.flags,
            count: frame.count,
            body: &self.parts[*part][at + FRAME_LEN..at + FRAME_LEN + frame.len as usize],
            body_crc: frame.body_crc,
            highest_event_ns: frame.highest_ns,
            uses_append_time: frame.uses_append_time,
            interval: true,
        };
        let blocks: Vec<_> = self.frames.iter().map(block).collect();
        let appended = log.commit_job(&blocks, self.token.as_ref(), &mut firsts);
        let appended = appended.map_err(|error| topic.told(error))?;
        pass(Point::JobCommitted);
        Ok(Placed { appended, firsts })
    }

    /// Wait until what was placed is on the medium, then remove what the job staged, and what is left of
    /// earlier ones.
    ///
    /// # Errors
    /// `DurabilityUnknown`; `LockTimeout`, after which this can be tried again.
    pub fn settle(&self, placed: Placed) -> Result<Committed> {
        let log = self.job.topic.log();
        let synced = match placed.appended {
            Some(appended) => log.sync_to(appended.end),
            // Who committed it may have died before it was on the medium.
            None if self.token.is_some() => log.sync().map(drop),
            None => Ok(()),
        };
        let offset = placed.firsts.first().copied().unwrap_or(0);
        synced.map_err(|error| match (error, placed.appended) {
            (error @ Error::LockTimeout { .. }, _) | (error, None) => self.job.topic.told(error),
            (error, Some(_)) => error.after_append(offset),
        })?;
        pass(Point::JobDurable);
        self.clean();
        Ok(self.told(&placed))
    }

    fn told(&self, placed: &Placed) -> Committed {
        let mut offsets = BTreeMap::<u32, Range<u64>>::new();
        let mut records = 0;
        let appended = self.frames.iter().zip(&placed.firsts);
        for ((_, _, frame), first) in appended.filter(|_| placed.appended.is_some()) {
            let end = first + u64::from(frame.count);
            records += u64::from(frame.count);
            offsets.entry(frame.partition).or_insert(*first..end).end = end;
        }
        let now = placed.appended.is_some() || self.token.is_none();
        Committed { now, records, offsets }
    }

    /// What cannot be removed now is swept later: the job is committed all the same.
    fn clean(&self) {
        let (topic, log) = (&self.job.topic, self.job.topic.log());
        let storage = &**topic.store().storage();
        let _ = remove_job(storage, &self.job.dir());
        pass(Point::JobSwept);
        let number = topic.settings().number;
        let spent = self.spent.map(|(id, version)| (number, id, version));
        let _ = sweep_staging(storage, log.dir(), &Stale { spent, ..Stale::default() });
    }
}

/// Read a file that must have this length; `None` where there is none.
fn read_whole(storage: &dyn Storage, path: &Path, len: u64) -> Result<Option<Vec<u8>>> {
    let file = match storage.open(path, Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path, error)),
    };
    let found = file.stat().map_err(|e| Error::io("look at", path, e))?.len;
    if found != len {
        let what = Malformed::Damaged("a part that is longer or shorter than its manifest says");
        return Err(Error::malformed(path, found.min(len), what));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let got = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    bytes.truncate(got);
    Ok(Some(bytes))
}
