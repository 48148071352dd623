//! Repair: how the next owner of the append lock completes or covers a dead owner's work.
//!
//! The dead owner may have stopped at any instruction. All that it had committed counts, wherever
//! it stopped afterwards. The rest is covered by one void block, from the first zero commit word to
//! the dirty end. No byte that a reader could have seen is touched: the void block's header lies
//! where the word was zero. One thing is not covered: half an end block in the last place for one.
//! Otherwise a row of such deaths would leave the segment without an end. If this process dies in
//! the middle of it, the next one does the same again. See `docs/PROTOCOL.md`, "Repair".

use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult};
use crate::failpoints::{Point, pass};
use crate::format::DecodeError;
use crate::format::address::{Address, align};
use crate::format::block::HEADER_LEN;
use crate::format::control::at;
use crate::format::settings::WriteMode;
use crate::format::state::End;
use crate::segment::create::{commit, put_header, void_header};
use crate::segment::walk::Step;
use crate::segment::{BlockError, Check, Segment};

use super::append::{Blocked, Writer, end_len};
use super::guard::Guard;
use super::{Control, Log};

impl Writer {
    /// Make the log's end valid. The guard shows that the append lock is held.
    #[cold]
    pub fn repair(
        &mut self,
        log: &Log,
        control: &Control,
        _guard: &Guard<'_>,
    ) -> Result<(), Blocked> {
        let tail = control.tail();
        if tail.sequence() != self.tail.sequence() {
            return Err(Blocked::Moved);
        }
        self.walk_to(tail)?;
        while let Some(step) = self.committed_step()? {
            if let Step::End { end, .. } = step {
                return Err(self.finish_roll(log, control, end));
            }
        }
        let from = self.walk.position;
        let to = self.dirty_end(log, control)?;
        pass(Point::RepairWalked);
        if to > from && !planted(Canary::BytesWrittenTwice) {
            let header = void_header(from, to);
            if !has_room_to_end(log, control, from + header.padded()) {
                return Ok(self.stay_before_end(control, from)?);
            }
            let place = self.place_at(from);
            let word = put_header(place, &header).map_err(|e| self.failed(e))?;
            pass(Point::RepairHeader);
            commit(place, word).map_err(|e| self.failed(e))?;
            pass(Point::RepairVoid);
            self.walk.position += header.padded();
        }
        self.tail = Address::new(self.segment.sequence(), self.walk.position);
        control.set(at::TAIL, self.tail.0)?;
        pass(Point::RepairTail);
        control.set(at::DIRTY, self.tail.0)?;
        Ok(())
    }

    /// Leave half an end block in the last place for one: only end blocks are ever stored in the
    /// space that appends leave free. The next end block, of the same length, overwrites it where
    /// the commit word is zero. The dirty end stays, so that no process regards this as valid.
    fn stay_before_end(&mut self, control: &Control, position: u64) -> Result<(), Error> {
        self.tail = Address::new(self.segment.sequence(), position);
        control.set(at::TAIL, self.tail.0)
    }

    /// Walk over a block that the dead owner had committed without moving the tail.
    fn committed_step(&mut self) -> Result<Option<Step>, Error> {
        let step = self.walk.step(&self.segment, Check::Full);
        let step = step.map_err(|bad| self.segment.error(bad))?;
        if let Some(Step::Data { block, .. }) = step {
            if !block.header.is_member() {
                self.pacer.is_due(block.header.topic, block.position);
            }
        }
        Ok(step)
    }

    /// Finish the roll of a dead owner that had sealed the segment: move the tail.
    fn finish_roll(&self, log: &Log, control: &Control, end: End) -> Blocked {
        let finish = || {
            let segment = log.chain.segment(end.sequence)?;
            if segment.salt() != end.salt {
                let what =
                    DecodeError::Damaged("a segment that another one's end block does not name");
                return Err(Error::malformed(segment.path(), 0, what));
            }
            let stat = segment.file().stat().doing("stat", segment.path())?;
            let tail = Address::new(end.sequence, filled_until(&segment)?);
            control.set(at::ALLOCATED, Address::new(end.sequence, stat.len & !7).0)?;
            control.set(at::INDEXED, 0)?;
            pass(Point::RollFinishing);
            control.set(at::TAIL, tail.0)?;
            control.set(at::DIRTY, tail.0)
        };
        finish().map_or_else(Blocked::Failed, |()| Blocked::Moved)
    }

    /// Return how far the dead owner may have stored bytes.
    fn dirty_end(&self, log: &Log, control: &Control) -> Result<u64, Error> {
        let (from, dirty) = (self.walk.position, control.dirty());
        let mut to = if dirty.sequence() == self.tail.sequence() { dirty.position() } else { 0 };
        if log.settings.write_mode == WriteMode::Pwrite {
            to = to.max(last_written(&self.segment, from)?);
        }
        let limit = self.segment.map().len();
        if to > limit {
            let what = DecodeError::Damaged("a dirty end beyond the segment");
            return Err(self.segment.error(BlockError { position: to, what }));
        }
        Ok(if to > from { to.max(from + HEADER_LEN as u64) } else { from })
    }
}

/// Return where the first blocks of a segment end: those of a bulk load, or only its snapshots.
/// Nothing was appended to it, since no process could.
fn filled_until(segment: &Arc<Segment>) -> Result<u64, Error> {
    let (mut walk, mut light) = (segment.opening()?.clone(), Arc::clone(segment));
    while walk.advance(&mut light, Check::Header)?.is_some() {}
    Ok(walk.position)
}

/// Return true when an end block fits after a position, or the segment can still grow for it.
fn has_room_to_end(log: &Log, control: &Control, position: u64) -> bool {
    let allocated = control.allocated().position();
    allocated < log.settings.segment_bytes || position + end_len() <= allocated
}

static ZEROS: [u8; 256] = [0; 256];

/// Return where the last non-zero byte at or after `from` ends, aligned; `from` when there is none.
///
/// # Errors
/// `SystemCallFailed`; `CorruptData` for a file that ends before bytes that it must hold.
pub fn last_written(segment: &Segment, from: u64) -> Result<u64, Error> {
    let failed = |e| Error::io("read", segment.path(), e);
    let mut end = from;
    let mut at = from;
    let mut buffer = vec![0; segment.map().len().min(1 << 16) as usize];
    while let Some(data) = segment.file().next_data(at).map_err(failed)? {
        let got = segment.file().read_at(&mut buffer, data).map_err(failed)?;
        if got == 0 {
            return Err(segment.ends_at(data));
        }
        // Nearly always all of it is zero, and comparing is many times faster than searching.
        let zeros = buffer[..got].rchunks(ZEROS.len()).take_while(|c| **c == ZEROS[..c.len()]);
        let written = got - zeros.map(<[u8]>::len).sum::<usize>();
        if let Some(last) = buffer[..written].iter().rposition(|byte| *byte != 0) {
            end = align(data + last as u64 + 1);
        }
        at = data + got as u64;
    }
    Ok(end)
}
