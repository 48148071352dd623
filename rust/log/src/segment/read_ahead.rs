//! Reading a long range of a file from its begin to its end.
//!
//! Owns the buffers. A second thread reads the next pieces of a long range while the caller looks at this one, so that
//! copying out of the page cache and looking take the time of one of them. A short range needs no thread.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use crate::format::block::MAX_HEADER_LEN;
use crate::storage::File;

/// Bytes of a piece.
const PIECE: usize = 512 << 10;
/// Pieces that are read before the caller asks for them.
const AHEAD: usize = 3;

/// A piece, where it begins, and how many of its bytes were read.
type Piece = (u64, Vec<u8>, usize);

/// Read a range in pieces and show each to the caller: where the next one begins, where this one begins, and its bytes.
/// A piece overlaps the next one by a header, so every header that begins in it is whole. It ends where the caller
/// returns false, and before bytes that cannot be read.
pub fn pieces(file: &dyn File, range: Range<u64>, mut look: impl FnMut(u64, u64, &[u8]) -> bool) {
    let len = range.end.saturating_sub(range.start).min((PIECE + MAX_HEADER_LEN) as u64) as usize;
    let starts = range.clone().step_by(PIECE);
    let mut look = |(start, bytes, got): &Piece| {
        let end = range.end.min(start + PIECE as u64);
        look(end, *start, &bytes[..*got])
    };
    let read = |start: u64, mut bytes: Vec<u8>| -> Option<Piece> {
        let got = file.read_at(&mut bytes, start).ok()?;
        Some((start, bytes, got))
    };
    if range.end.saturating_sub(range.start) > (PIECE * AHEAD) as u64 {
        let work = |spare: Receiver<Vec<u8>>, full: SyncSender<Piece>| {
            for start in starts.clone() {
                let bytes = spare.try_recv().unwrap_or_else(|_| vec![0; len]);
                let Some(piece) = read(start, bytes) else { return };
                if full.send(piece).is_err() {
                    return;
                }
            }
        };
        let done = thread::scope(|scope| {
            let ((give_back, spare), (full, found)) = (channel(), sync_channel(AHEAD));
            let thread = thread::Builder::new().name("falaj-read-ahead".into());
            if thread.spawn_scoped(scope, move || work(spare, full)).is_err() {
                return false;
            }
            for piece in found {
                if !look(&piece) {
                    break;
                }
                let _thread_ended = give_back.send(piece.1);
            }
            true
        });
        if done {
            return;
        }
    }
    let mut bytes = vec![0; len];
    for start in starts {
        let Some(piece) = read(start, bytes) else { return };
        if !look(&piece) {
            return;
        }
        bytes = piece.1;
    }
}
