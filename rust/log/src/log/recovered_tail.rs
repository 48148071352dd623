//! What recovery leaves to the first who appends: the walk that it made anyway.
//!
//! Owns handing it over. Invariant: it is true of its place for good, as bytes that were committed never
//! change; it is believed of no other segment, and of none that goes on before it.

use crate::format::address::Address;
use crate::segment::Segment;
use crate::segment::index::IndexBuild;
use crate::segment::walk::SegmentWalker;

use super::{Log, enter};

/// What recovery knows of the segment that a log goes on in. Bytes that were committed never change, so
/// it stays true of that place, and who appends behind it need not walk there again.
#[derive(Debug)]
pub struct RecoveredTail {
    /// Salt of the segment: that of another one may have its sequence.
    pub salt: u64,
    /// The walk, as far as the log reached.
    pub walk: SegmentWalker,
    /// What was noted on the way.
    pub noted: IndexBuild,
}

impl Log {
    /// What is known of this segment, which the log goes on in up to `tail` at least; once.
    pub(super) fn take_recovered_tail(
        &self,
        segment: &Segment,
        tail: Address,
    ) -> Option<RecoveredTail> {
        let known = enter(&self.known).take()?;
        // The log may go on in another segment since it was opened.
        let is_its = known.salt == segment.salt() && known.walk.position <= tail.position();
        is_its.then_some(known)
    }
}

#[cfg(all(test, not(loom)))]
impl Log {
    /// What whoever appends here next begins with, and what it would by a walk over all of the segment,
    /// in words; and whether recovery had left it what it knew.
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
