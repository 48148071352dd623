//! Making space for producers, if necessary by forgetting expiring ones.
//!
//! Owns when a log forgets producers by itself; [`LogState::idle_producers`] chooses them. A
//! process looks for them when it appends for a producer that the log does not know. It does so if
//! an hour of the log's time has passed since its last look, or if the log is full. Invariant: a
//! block of the log says which producers are forgotten. It comes after the last use of each of
//! them, so every process that walks the log forgets the same ones. A named producer is never among
//! them. See `docs/PROTOCOL.md`, "Preconditions".
//!
//! [`LogState::idle_producers`]: crate::format::state::LogState::idle_producers

use crate::error::Result;
use crate::failpoints::{Point, pass};
use crate::format::block::Kind;
use crate::format::state::{LONGEST_STEP_US, encode_idle};
use crate::segment::create::own_header;

use super::append::Writer;
use super::batch::{Batch, no_block};
use super::commit::Kept;
use super::metadata::FACTS_OF_A_BLOCK;
use super::{Control, Log, Member};

/// A full log forgets this share of its producers at once, but at most as many as a block can name.
/// To find one costs as much as to find many.
const SHARE: usize = 16;
/// Most producers that are forgotten by one block because their time is over.
const MOST: usize = 4096;

impl Log {
    /// Make space to note the producers of an append, outside the lock.
    pub(super) fn place_producers(
        &self,
        writer: &mut Writer,
        access: (&Control, &dyn Member),
        batch: &Batch<'_>,
    ) -> Result<()> {
        let mut stamped = batch.blocks.iter().zip(batch.stamps);
        let state = &writer.walk.state;
        if stamped.all(|(block, of)| state.expects_producer(block.topic, of.id)) {
            return Ok(());
        }
        let now_us = state.last_use_us();
        if !(0..LONGEST_STEP_US).contains(&now_us.saturating_sub(writer.swept_us)) {
            writer.swept_us = now_us;
            while self.forget_idle(writer, access, batch, 0)? {}
        }
        let limit = self.max_producers();
        while !writer.reserve_producers(batch, limit) {
            let wanted = (limit / SHARE).clamp(1, FACTS_OF_A_BLOCK).max(batch.stamps.len());
            if !self.forget_idle(writer, access, batch, wanted)? {
                let producer = batch.preconditions.iter().find(|it| it.sequences().is_some());
                return Err(producer.map_or_else(no_block, |producer| self.full(producer)));
            }
        }
        Ok(())
    }

    /// Forget the expiring producers whose time is over, and others until this many entries are
    /// free. Returns whether there were any.
    #[cold]
    fn forget_idle(
        &self,
        writer: &mut Writer,
        access: (&Control, &dyn Member),
        batch: &Batch<'_>,
        wanted: usize,
    ) -> Result<bool> {
        self.sure_of_facts(&writer.walk.state)?;
        let made = |writer: &Writer| {
            let state = &writer.walk.state;
            let mut idle = state.idle_producers(wanted, batch.stamps);
            idle.truncate(wanted.max(MOST));
            let body = encode_idle(state, &idle);
            (!body.is_empty()).then(|| (own_header(Kind::Meta, &body, 0), body, idle))
        };
        let are_idle = |writer: &Writer, idle: &Vec<_>| writer.walk.state.are_idle(idle);
        let forgot = self.append_own_by(writer, access, Kept::Nothing, made, are_idle)?;
        pass(Point::ProducersExpired);
        Ok(forgot)
    }
}

impl Writer {
    /// Make space for the producers of an append among at most `limit`.
    fn reserve_producers(&mut self, batch: &Batch<'_>, limit: usize) -> bool {
        let state = &mut self.walk.state;
        (0..2).any(|_| {
            let mut stamped = batch.blocks.iter().zip(batch.stamps);
            let fit = stamped.all(|(block, of)| state.expect_producer(block.topic, of.id, limit));
            if !fit {
                state.drop_expected();
            }
            fit
        })
    }
}
