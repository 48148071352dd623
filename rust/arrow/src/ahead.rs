//! Batches that threads fill before the reader asks for them.
//!
//! Lanes are cut into pieces. A thread takes the next free piece, and fills its batches into a
//! short queue for that piece. The reader empties the queues in the order of the pieces. So it gets
//! the same records, in the same order, as from one thread. Invariant: a queue ends with a word
//! that says so. If a queue ends without that word, its thread died; that is an error, never an
//! end.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use arrow_array::RecordBatch;
use falaj::internals::error::{Error, Result};

use crate::reader::{Lane, Reader};

/// Most batches of a piece that wait for the reader.
const WAITING: usize = 2;

/// Batches of a piece, and its fewest records.
const BATCHES: u64 = 4;
const PIECE_MIN: u64 = 1 << 16;

/// A batch of a piece, or its end.
type Told = Result<Option<RecordBatch>>;

/// Threads that fill batches, and what they filled.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// This is never locked. The lock is here because threads may share a reader, but not the end
    /// of a queue.
    pieces: Mutex<VecDeque<Receiver<Told>>>,
    left: Pieces,
    workers: Vec<JoinHandle<()>>,
    /// The process that started the threads; a forked child has none of them.
    process: u32,
}

type Pieces = Arc<Mutex<VecDeque<(Lane, SyncSender<Told>)>>>;

/// Cut lanes into pieces of so many records.
fn cut(lanes: impl IntoIterator<Item = Lane>, step: u64) -> Vec<Lane> {
    let mut pieces = Vec::new();
    for Lane { partition, offsets } in lanes {
        let mut start = offsets.start;
        while start < offsets.end {
            let end = start.saturating_add(step).min(offsets.end);
            pieces.push(Lane { partition, offsets: start..end });
            start = end;
        }
    }
    pieces
}

impl Ahead {
    /// Begin to read lanes with this many threads, or with one for each piece if there are fewer
    /// pieces.
    ///
    /// # Errors
    /// `SystemCallFailed` if the system cannot start a thread.
    pub(crate) fn start(
        lanes: impl IntoIterator<Item = Lane>,
        batch_rows: usize,
        threads: usize,
        open: impl Fn(Lane) -> Result<Reader> + Send + Sync + 'static,
    ) -> Result<Self> {
        let (mut pieces, mut left) = (VecDeque::new(), VecDeque::new());
        let step = (batch_rows as u64).saturating_mul(BATCHES).max(PIECE_MIN);
        for lane in cut(lanes, step) {
            let (sender, receiver) = sync_channel(WAITING);
            pieces.push_back(receiver);
            left.push_back((lane, sender));
        }
        let count = threads.min(left.len());
        let (left, open) = (Arc::new(Mutex::new(left)), Arc::new(open));
        let (pieces, process) = (Mutex::new(pieces), std::process::id());
        let mut ahead = Self { pieces, left, workers: Vec::new(), process };
        for _ in 0..count {
            let (left, open) = (Arc::clone(&ahead.left), Arc::clone(&open));
            let worker = thread::Builder::new().name("falaj-ahead".into());
            let spawned = worker.spawn(move || {
                while let Some((lane, sender)) = next(&left) {
                    fill(open(lane), &sender);
                }
            });
            let path = "a thread that reads ahead".into();
            let io = |source: io::Error| Error::SystemCallFailed { what: "start", path, source };
            ahead.workers.push(spawned.map_err(io)?);
        }
        Ok(ahead)
    }

    /// Get the next batch; `None` after the last.
    ///
    /// # Errors
    /// As [`Reader::next_batch`]; `InvalidArgument` in a forked child.
    pub(crate) fn next_batch(&mut self) -> Told {
        if self.process != std::process::id() {
            let what = "batches are read ahead by threads of another process: make another reader";
            return Err(Error::InvalidArgument { what: what.into() });
        }
        let pieces = self.pieces.get_mut().unwrap_or_else(PoisonError::into_inner);
        while let Some(piece) = pieces.front() {
            match piece.recv() {
                Ok(Ok(Some(batch))) => return Ok(Some(batch)),
                Ok(Ok(None)) => pieces.pop_front(),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let what = "a thread that read ahead ended early: make another reader".into();
                    return Err(Error::InvalidArgument { what });
                }
            };
        }
        Ok(None)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let pieces = self.pieces.get_mut().unwrap_or_else(PoisonError::into_inner);
        pieces.clear(); // a thread that waits to send a batch gets an error
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn next(left: &Pieces) -> Option<(Lane, SyncSender<Told>)> {
    left.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// Fill the batches of a piece, until the reader is gone.
fn fill(reader: Result<Reader>, sender: &SyncSender<Told>) {
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return drop(sender.send(Err(error))),
    };
    loop {
        let told = reader.next_batch();
        let goes_on = matches!(told, Ok(Some(_)));
        if sender.send(told).is_err() || !goes_on {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_together_the_lanes_in_order() {
        let lane = |partition, offsets| Lane { partition, offsets };
        let pieces = cut([lane(0, 5..5), lane(1, 3..14), lane(2, u64::MAX - 1..u64::MAX)], 4);
        let wanted = [lane(1, 3..7), lane(1, 7..11), lane(1, 11..14)];
        assert_eq!(pieces[..3], wanted);
        assert_eq!(pieces[3..], [lane(2, u64::MAX - 1..u64::MAX)]);
    }
}
