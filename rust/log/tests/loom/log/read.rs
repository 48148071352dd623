//! Reading and following the small log: `docs/PROTOCOL.md`, "Read" and "Follow".

use falaj::internals::sync::{Ordering, SharedWord};
use falaj::internals::{publish, wake};

use super::{Broken, Cursor, END, FOREVER, Log, VOID, at, sequence};

impl Log {
    /// The next record; false at the committed end.
    pub fn read(&self, cursor: &mut Cursor) -> bool {
        loop {
            let here = cursor.place;
            if publish::observe(&self.block(here).word) == 0 {
                if self.is(Broken::ZeroIsTheEnd) {
                    let tail = self.tail.load(Ordering::Acquire);
                    assert!(here >= tail, "zero below the tail");
                    return false;
                }
                match self.is_end(cursor) {
                    true => return false,
                    false => continue,
                }
            }
            match self.block(here).bytes.read() {
                VOID => cursor.place += 1,
                END => {
                    let next = &self.segments[sequence(here) + 1];
                    assert_eq!(next.named.load(Ordering::Acquire), 1, "no segment follows");
                    assert_eq!(next.base.read(), cursor.seen, "the next segment begins elsewhere");
                    cursor.place = at(sequence(here) + 1, 0);
                }
                record => {
                    assert_eq!(record, cursor.seen + 1, "a record is missing or doubled");
                    *cursor = Cursor { place: here + 1, seen: record };
                    return true;
                }
            }
        }
    }

    /// Decide whether a zero is the end; otherwise move to where reading continues.
    fn is_end(&self, cursor: &mut Cursor) -> bool {
        let here = cursor.place;
        let tail = self.tail.load(Ordering::Acquire);
        if publish::observe(&self.block(here).word) != 0 {
            return false;
        }
        if tail <= here {
            return true;
        }
        // Behind a cut, the segment that continues from there holds the same records.
        let newest = (sequence(here) + 1..=sequence(tail)).rev();
        let next = newest.map(|next| (next, &self.segments[next])).find(|(_, next)| {
            next.named.load(Ordering::Acquire) == 1
                && next.cut.read() <= here
                && next.base.read() <= cursor.seen
        });
        let Some((number, next)) = next else { panic!("zero below the tail") };
        cursor.place = at(number, (cursor.seen - next.base.read()) as usize);
        false
    }

    /// Read up to a record; sleep whenever there is nothing more.
    pub fn follow(&self, cursor: &mut Cursor, last: u64) {
        while cursor.seen < last {
            let ticket = wake::observe(&self.counter);
            if self.read(cursor) {
                continue;
            }
            let place = cursor.place;
            let has_news = || {
                self.tail.load(Ordering::Acquire) > place
                    || publish::observe(&self.block(place).word) != 0
            };
            wake::park(&self.counter, &self.waiting, wake::FOLLOWERS, ticket, FOREVER, has_news);
        }
    }
}
