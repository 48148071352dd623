//! A gate: one sync serves all threads of a process that wait for the same file.
//!
//! Who stored something asks; the first through the gate syncs for all who asked before it began, and
//! they find it done. Invariant: a sync answers only for what was stored before it began, and its
//! failure is told to everybody whom it would have served: the kernel forgets such bytes, so none of
//! them may be told "done" by a later one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Where the threads of a process meet that wait for one file.
#[derive(Debug, Default)]
pub(crate) struct SyncCoalescer {
    asked: AtomicU64,
    passed: Mutex<Passed>,
}

/// Up to which ticket.
#[derive(Debug, Default)]
struct Passed {
    done: u64,
    failed: u64,
    why: Option<i32>,
}

impl SyncCoalescer {
    /// Return once everything that this thread stored before the call is on the medium.
    ///
    /// # Errors
    /// Those of `sync`, also when another thread called it for this one.
    pub(crate) fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.failed >= mine {
            let why = passed.why.map(io::Error::from_raw_os_error);
            return Err(why.unwrap_or_else(|| io::ErrorKind::Other.into()));
        }
        if passed.done >= mine {
            return Ok(());
        }
        let covers = self.asked.load(Ordering::SeqCst);
        let synced = sync();
        match &synced {
            Ok(()) => passed.done = covers,
            Err(error) => {
                passed.failed = covers;
                passed.why = error.raw_os_error();
            }
        }
        synced
    }
}

/// The gates of a process, by file.
#[derive(Debug, Default)]
pub(super) struct SyncCoalescers(Mutex<BTreeMap<PathBuf, Weak<SyncCoalescer>>>);

impl SyncCoalescers {
    pub(super) fn of(&self, path: &Path) -> Arc<SyncCoalescer> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(path).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::new(SyncCoalescer::default());
        gates.insert(path.to_path_buf(), Arc::downgrade(&gate));
        gate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Three threads that ask while a fourth syncs.
    fn three_beside_a_running_sync(fails: bool) -> (Vec<bool>, u64) {
        let (gate, syncs) = (SyncCoalescer::default(), AtomicU64::new(0));
        let (began, begun) = channel();
        let may_end = Barrier::new(2);
        let outcome = |_: i32| {
            gate.sync(|| {
                syncs.fetch_add(1, Ordering::SeqCst);
                if fails { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
            })
            .is_ok()
        };
        let ended = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                gate.sync(|| {
                    began.send(()).unwrap();
                    may_end.wait();
                    Ok(())
                })
            });
            begun.recv().unwrap();
            let asking: Vec<_> = (0..3).map(|n| scope.spawn(move || outcome(n))).collect();
            while gate.asked.load(Ordering::SeqCst) < 4 {
                std::thread::sleep(Duration::from_millis(1)); // sleep: until all three have asked
            }
            may_end.wait();
            first.join().unwrap().unwrap();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        (ended, syncs.load(Ordering::SeqCst))
    }

    #[test]
    fn one_sync_serves_all_who_asked_before_it_began_and_no_earlier_one_does() {
        assert_eq!(three_beside_a_running_sync(false), (vec![true; 3], 1));
    }

    #[test]
    fn a_failed_sync_is_told_to_all_whom_it_would_have_served() {
        assert_eq!(three_beside_a_running_sync(true), (vec![false; 3], 1));
    }
}
