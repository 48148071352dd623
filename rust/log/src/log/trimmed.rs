//! What was trimmed, as readers learn it.
//!
//! Owns what a process knows of the lowest offsets that its log still holds. A segment begins with
//! them; a trim says more in a block of the active segment, and the control page up to where such
//! blocks may lie. So an unchanged word answers without looking, and a changed one costs a walk over
//! headers, once. The word is stored before the block: who comes in between looks again. Where there
//! is no control page, or one that does not know of the newest segment yet, the walk goes as far as
//! the log is sound. Nothing is believed behind damage that recovery may cut at. Saying it is left to [`super::trim`]. See
//! `docs/PROTOCOL.md`, "Retention".

use std::sync::Arc;

use crate::error::Result;
use crate::format::address::Address;
use crate::format::block::Kind;
use crate::format::state::{LogState, topics_of};
use crate::segment::{Check, Segment};

use super::{Control, Log, enter};

/// What was trimmed, as far as a process has looked.
#[derive(Debug, Default)]
pub struct Trims {
    /// The segment that was looked at.
    sequence: Option<u64>,
    /// Up to where.
    position: u64,
    /// What the control page said when all of that had been seen.
    seen: Option<Address>,
    /// Of this the lowest offsets, and which topics there are, are kept up.
    state: LogState,
}

impl Log {
    /// Lowest offset of a topic that was not trimmed. What cannot be read says nothing.
    pub fn trimmed(&self, topic: u32) -> u64 {
        self.with_trims(|state| state.topic(topic).map_or(0, |topic| topic.first))
    }

    /// True for a topic that was deleted from the log. What cannot be read says nothing.
    pub(super) fn has_lost(&self, topic: u32) -> bool {
        self.with_trims(|state| topic < state.next_number() && state.topic(topic).is_none())
    }

    fn with_trims<T>(&self, ask: impl FnOnce(&LogState) -> T) -> T {
        let mut trims = enter(&self.trims);
        // In this order: a segment that comes in between begins with what the word speaks of.
        let said = self.control().map(Control::trimmed);
        let active = self.control().map(|control| control.tail().sequence());
        if said.is_none() || trims.seen != said || trims.sequence != active {
            let _ = self.look_for_trims(&mut trims, said);
        }
        ask(&trims.state)
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
            *trims = Trims { sequence: Some(sequence), position, seen: None, state };
        }
        // A log that goes on where its page does not know of it yet may say there what the page says
        // of the segment before.
        let ahead = tail.is_none_or(|tail| tail.sequence() < sequence);
        let until = match said {
            Some(said) if said.sequence() == sequence => said.position(),
            Some(_) if !ahead => 0,
            _ => newest.map().len(),
        };
        let certain = match self.durable().unwrap_or_default() {
            // It was recovered before this process could open it to write.
            _ if self.is_writable() => u64::MAX,
            durable if durable.sequence() == sequence => durable.position(),
            durable if durable.sequence() > sequence => u64::MAX,
            _ => 0,
        };
        trims.walk(newest, until, certain);
        trims.seen = said.filter(|_| !ahead && trims.position >= until);
        Ok(())
    }
}

impl Trims {
    /// Walk over what is there. Damage before `certain` is passed over, and told to whoever reads it; at
    /// any other the log may end once somebody recovered it.
    fn walk(&mut self, mut segment: Arc<Segment>, until: u64, certain: u64) {
        while self.position < until {
            if segment.exceeds_cache() {
                let Ok(light) = segment.reopen_empty() else { return };
                segment = Arc::new(light);
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
