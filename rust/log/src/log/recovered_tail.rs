//! The walk of a recovery, left to the first process that appends.
//!
//! Owns passing it on. Invariant: it stays true of its place, as committed bytes never change. It
//! is used for no other segment, and for none that continues before it.

use crate::format::address::Address;
use crate::segment::Segment;
use crate::segment::index::IndexBuild;
use crate::segment::walk::SegmentWalker;

use super::{Log, enter};

/// Recovery's knowledge of the segment in which a log continues. Committed bytes never change, so
/// it stays true of that place, and an appending process need not walk there again.
#[derive(Debug)]
pub struct RecoveredTail {
    /// Salt of the segment: another one may have its sequence.
    pub salt: u64,
    /// The walk, as far as the log reached.
    pub walk: SegmentWalker,
    /// The index entries of that part.
    pub noted: IndexBuild,
}

impl Log {
    /// Take the knowledge of this segment, in which the log continues up to `tail` at least; works
    /// once.
    pub(super) fn take_recovered_tail(
        &self,
        segment: &Segment,
        tail: Address,
    ) -> Option<RecoveredTail> {
        let known = enter(&self.known).take()?;
        // The log may have moved to another segment since it was opened.
        let is_its = known.salt == segment.salt() && known.walk.position <= tail.position();
        is_its.then_some(known)
    }
}

#[cfg(all(test, not(loom)))]
impl Log {
    /// Return, in words, the state with which this process begins to append, and the one after a
    /// walk over the whole segment. Also return whether recovery had left its state.
    pub(crate) fn begun_and_walked(&self) -> crate::error::Result<(String, String, bool)> {
        use crate::segment::index::Index;

        let (control, _) = self.writing()?;
        let begins = || {
            let mut writer = super::append::Writer::open(self, control)?;
            writer.catch_up(self, control)?;
            Ok((format!("{:?} {:?} {}", writer.walk, writer.pacer, writer.clock.last()), writer))
        };
        let was_left = enter(&self.known).is_some();
        let (begun, writer) = begins()?;
        let noted = Index::load(&*self.storage, &self.dir, &writer.segment)?;
        let Index::Built(built) = Index::build(&writer.segment) else { return Err(self.deleted()) };
        let (walked, _) = begins()?;
        Ok((format!("{begun} {noted:?}"), format!("{walked} {built:?}"), was_left))
    }
}
