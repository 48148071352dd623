//! Trims, as readers learn of them.
//!
//! Owns a process's knowledge of the lowest offsets that its log still has. A segment begins with
//! them. A trim records more in a block of the active segment, and the control page has how far
//! such blocks may lie. So an unchanged word answers without reading, and a changed one costs a
//! walk over headers, once. The word is stored before the block: a reader in between looks again.
//! Without a control page, or with one that does not know the newest segment yet, the walk goes as
//! far as the log is valid. Nothing is believed after corruption at which recovery may cut.
//! [`super::trim`] records trims. See `docs/PROTOCOL.md`, "Retention".

use std::sync::Arc;

use crate::error::Result;
use crate::format::address::Address;
use crate::format::block::Kind;
use crate::format::state::{LogState, topics_of};
use crate::segment::{Check, Segment};

use super::{Control, Log, enter};

/// The trims, as far as a process has read.
#[derive(Debug, Default)]
pub struct Trims {
    /// The segment that was read.
    sequence: Option<u64>,
    /// How far it was read.
    position: u64,
    /// The control page's word when all of that had been read.
    seen: Option<Address>,
    /// The segment in which that page had the end of the log then.
    active: Option<u64>,
    /// Only the lowest offsets, the set of topics, and which of them are finished are kept up to
    /// date in this.
    state: LogState,
}

impl Log {
    /// Return the lowest offset of a topic that was not trimmed. Unreadable trims do not count.
    pub fn trimmed(&self, topic: u32) -> u64 {
        self.with_trims(|state| state.topic(topic).map_or(0, |topic| topic.first))
    }

    /// Return the lowest offset of a topic that was not trimmed, and the word at which that is all
    /// there is to know. `None` while a trim is under way, or where no page tells.
    pub(crate) fn trimmed_with_word(&self, topic: u32) -> (u64, Option<Address>) {
        let mut word = None;
        let first = self.with_trims_at(|state, seen| {
            word = seen;
            state.topic(topic).map_or(0, |topic| topic.first)
        });
        (first, word)
    }

    /// Return the word that every trim changes, where a load is enough. `None` where it is not, and
    /// where this process knows no control page yet.
    #[inline(always)]
    pub(crate) fn trim_word(&self) -> Option<Address> {
        self.control.get().and_then(Control::mapped_trimmed)
    }

    /// Return it also where that takes a call of the system.
    #[inline]
    pub(crate) fn trim_word_by_call(&self) -> Option<Address> {
        self.control.get().map(Control::trimmed)
    }

    /// Return true for a topic that was deleted from the log. Unreadable deletions do not count.
    pub(super) fn has_lost(&self, topic: u32) -> bool {
        self.with_trims(|state| topic < state.next_number() && state.topic(topic).is_none())
    }

    /// Return true if no record of a topic comes after those that are there. An unreadable note of
    /// that does not count.
    pub fn is_finished(&self, topic: u32) -> bool {
        self.with_trims(|state| state.topic(topic).is_some_and(|topic| topic.finished))
    }

    fn with_trims<T>(&self, ask: impl FnOnce(&LogState) -> T) -> T {
        self.with_trims_at(|state, _| ask(state))
    }

    fn with_trims_at<T>(&self, ask: impl FnOnce(&LogState, Option<Address>) -> T) -> T {
        let mut trims = enter(&self.trims);
        // In this order: a segment that comes in between begins with what the word covers.
        let said = self.control().map(Control::trimmed);
        let active = self.control().map(|control| control.tail().sequence());
        if said.is_none() || trims.seen != said || trims.active != active {
            let _ = self.look_for_trims(&mut trims, said);
        }
        ask(&trims.state, trims.seen)
    }

    #[cold]
    fn look_for_trims(&self, trims: &mut Trims, said: Option<Address>) -> Result<()> {
        let tail = self.control().map(Control::tail);
        let sequences = self.current_sequences()?;
        let newest = self.chain.segment(sequences[sequences.len() - 1])?;
        let sequence = newest.sequence();
        if trims.sequence != Some(sequence) {
            let opening = newest.opening()?;
            let (position, state) = (opening.position, opening.state.clone());
            *trims = Trims { sequence: Some(sequence), position, seen: None, active: None, state };
        }
        // A log may continue in a segment that its page does not know yet. Such a segment may
        // record what the page says about the previous one.
        let ahead = tail.is_none_or(|tail| tail.sequence() < sequence);
        let until = match said {
            Some(said) if said.sequence() == sequence => said.position(),
            Some(_) if !ahead => 0,
            _ => newest.map().len(),
        };
        let certain = match self.durable().unwrap_or_default() {
            // It was recovered before this process could open it for writing.
            _ if self.is_writable() => u64::MAX,
            durable if durable.sequence() == sequence => durable.position(),
            durable if durable.sequence() > sequence => u64::MAX,
            _ => 0,
        };
        trims.walk(newest, until, certain);
        // A segment that the page does not know is complete since it got its name. Every later trim
        // raises the word, so there is nothing to look for in it until then, even if the process
        // that made it died.
        let is_complete = |said: &Address| ahead && said.sequence() != sequence;
        let is_newest = tail.is_none_or(|tail| tail.sequence() <= sequence);
        let is_seen = |said: &Address| is_complete(said) || trims.position >= until;
        trims.seen = said.filter(|said| is_newest && is_seen(said));
        trims.active = tail.map(Address::sequence);
        Ok(())
    }
}

impl Trims {
    /// Walk over the blocks. Corruption before `certain` is passed over, and its readers get the
    /// error. At any other corruption a recovery may end the log.
    fn walk(&mut self, mut segment: Arc<Segment>, until: u64, certain: u64) {
        while self.position < until {
            if Segment::refresh(&mut segment).is_err() {
                return;
            }
            let is_certain = self.position < certain;
            let check = if is_certain { Check::Header } else { Check::Full };
            match segment.block(self.position, check) {
                Ok(Some(block)) => {
                    if block.header.kind == Kind::Meta {
                        self.note(&segment);
                    }
                    self.position = block.end();
                }
                Err(_) if is_certain => {
                    let limit = until.min(certain);
                    let next = segment.next_block(self.position + 8, limit);
                    self.position = next.unwrap_or(limit);
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn note(&mut self, segment: &Segment) {
        let Ok(Some(block)) = segment.block(self.position, Check::Full) else { return };
        let body = segment.body(&block);
        if topics_of(body, |_, _| ()).is_ok() {
            let applied = self.state.apply_body(body, |_, _| ());
            debug_assert!(applied.is_ok(), "what was checked");
        }
    }
}
