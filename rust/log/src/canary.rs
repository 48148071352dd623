//! Bugs planted on purpose, to show that the harnesses notice them.
//!
//! Owns the list of canaries and the question whether one of them is planted. In the shipped crate
//! the answer is a constant `false`, and the compiler removes every planted line. With `--cfg
//! falaj_canaries`, which only the project's own suite sets, the environment variable
//! `FALAJ_CANARY` or `plant` names the planted one. It is no cargo feature, because any crate of a
//! program can enable those. Invariant: a planted line does exactly what a known mistake would do,
//! and no check reads this switch. `docs/RELIABILITY.md`, "Canaries", says which check catches
//! which canary.

/// A mistake that a developer could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Blocks are read without checking their checksums.
    NoCrc,
    /// The commit word's tag and the header's checksum are the same for every segment.
    CrcWithoutSalt,
    /// The header's checksum does not cover the commit word.
    CrcWithoutCommitWord,
    /// Repair leaves a dead writer's bytes in place, and the next append overwrites them.
    BytesWrittenTwice,
    /// New directory entries are never synced to disk.
    NoDirectorySync,
    /// The commit word is stored before the block's bytes.
    CommitWordEarly,
    /// The commit word is stored without release ordering.
    RelaxedCommitWord,
    /// Recovery checks only the newest segment.
    RecoverActiveOnly,
    /// Recovery marks itself done before it is.
    RecoveryNotCrashSafe,
    /// A sync covers only the newest segment.
    SyncActiveOnly,
    /// The durable mark is stored before the sync that it reports.
    MarkEarly,
    /// Segments are removed before the trim is on disk.
    UnlinkBeforeTrim,
    /// A compacted segment gets its name before its bytes are on disk.
    SwapBeforeSync,
    /// Segments are removed before the name of their replacement is on disk.
    UnlinkBeforeSwap,
    /// A segment's snapshot leaves out the producers' sequences.
    ForgottenProducers,
    /// A cursor that moves with records is not part of their group.
    CursorOutsideGroup,
    /// An idempotency key is not part of the group of its records.
    TokenOutsideGroup,
    /// The tail is stored before the blocks that end there.
    TailBeforeData,
    /// A follower goes to sleep without looking once more.
    LostWakeup,
    /// A slot that is claimed again keeps its generation.
    NoGeneration,
    /// A forked child keeps its parent's lock files open.
    SlotKeptByChild,
    /// A waiter whose time is over takes the lock from its living owner.
    LockStolen,
    /// A control page that was replaced counts as the right one.
    TwoControlPages,
    /// A cursor overwrites the previous one.
    CursorInPlace,
    /// A cursor counts as safe before the records that it covers are on disk.
    CursorPastDurable,
    /// A cursor that a log keeps moves from wherever it was.
    UnfencedCursor,
    /// A reader sees part of a group before all of the group is known to be there.
    HalfGroup,
    /// The expected offset of an append is checked before the lock is taken, not under it.
    ExpectBeforeLock,
    /// An ack counts although the job was delivered again.
    LostLeaseAcked,
    /// A living process counts as dead, and its jobs are delivered to others.
    HolderRobbed,
    /// A job whose lease was extended is delivered again when its first lease ends.
    ExtensionForgotten,
    /// A queue's lower bound passes a job that is not done.
    FloorPastJob,
    /// A queue's lower bound passes a job that is done but not on disk.
    FloorPastDurable,
    /// An attempt at a job counts at its delivery, not when the work begins.
    CountedAtTake,
    /// Jobs that are reserved return to the queue with those of a dead process.
    ReservationReclaimed,
    /// A job whose reservation ended without a word is delivered together with others.
    ReservationUnsuspected,
    /// A ticket settles the record that took the place of its own in a power failure.
    TicketWithoutMark,
    /// The metadata of a commit is stored before its offset, by a write of its own.
    MetadataBeforeOffset,
    /// The properties of one change are stored one by one.
    PropertiesOneByOne,
    /// A member takes a partition that it saw free, without checking whether another took it since.
    TwoOwners,
    /// An append does not look whether its topic is finished.
    FinishedAppended,
    /// The last use of an expiring producer stays its first one.
    ExpiredInUse,
    /// Cursors, idempotency keys and producers count as exact, although corruption may have set
    /// them back.
    NoDoubt,
    /// A cut ends where the log is committed, and not where it is on the disk.
    CutPastDurable,
    /// A cut takes a segment over from the cut before, although the log rolled behind more records.
    CutBeforeRoll,
    /// A store has the end of a cut only if the block there is on the disk by now.
    EndByDurable,
    /// A store has the end of a cut if any block ends at that offset.
    EndByOffset,
}

impl Canary {
    /// All canaries, with their names.
    pub const ALL: [(Self, &'static str); 47] = [
        (Self::NoCrc, "no-crc"),
        (Self::CrcWithoutSalt, "crc-without-salt"),
        (Self::CrcWithoutCommitWord, "crc-without-commit-word"),
        (Self::BytesWrittenTwice, "bytes-written-twice"),
        (Self::NoDirectorySync, "no-directory-sync"),
        (Self::CommitWordEarly, "commit-word-early"),
        (Self::RelaxedCommitWord, "relaxed-commit-word"),
        (Self::RecoverActiveOnly, "recover-active-only"),
        (Self::RecoveryNotCrashSafe, "recovery-not-crash-safe"),
        (Self::SyncActiveOnly, "sync-active-only"),
        (Self::MarkEarly, "mark-early"),
        (Self::UnlinkBeforeTrim, "unlink-before-trim"),
        (Self::SwapBeforeSync, "swap-before-sync"),
        (Self::UnlinkBeforeSwap, "unlink-before-swap"),
        (Self::ForgottenProducers, "forgotten-producers"),
        (Self::CursorOutsideGroup, "cursor-outside-group"),
        (Self::TokenOutsideGroup, "token-outside-group"),
        (Self::TailBeforeData, "tail-before-data"),
        (Self::LostWakeup, "lost-wakeup"),
        (Self::NoGeneration, "no-generation"),
        (Self::SlotKeptByChild, "slot-kept-by-child"),
        (Self::LockStolen, "lock-stolen"),
        (Self::TwoControlPages, "two-control-pages"),
        (Self::CursorInPlace, "cursor-in-place"),
        (Self::CursorPastDurable, "cursor-past-durable"),
        (Self::UnfencedCursor, "unfenced-cursor"),
        (Self::HalfGroup, "half-group"),
        (Self::ExpectBeforeLock, "expect-before-lock"),
        (Self::LostLeaseAcked, "lost-lease-acked"),
        (Self::HolderRobbed, "holder-robbed"),
        (Self::ExtensionForgotten, "extension-forgotten"),
        (Self::FloorPastJob, "floor-past-job"),
        (Self::FloorPastDurable, "floor-past-durable"),
        (Self::CountedAtTake, "counted-at-take"),
        (Self::ReservationReclaimed, "reservation-reclaimed"),
        (Self::ReservationUnsuspected, "reservation-unsuspected"),
        (Self::TicketWithoutMark, "ticket-without-mark"),
        (Self::MetadataBeforeOffset, "metadata-before-offset"),
        (Self::PropertiesOneByOne, "properties-one-by-one"),
        (Self::TwoOwners, "two-owners"),
        (Self::FinishedAppended, "finished-appended"),
        (Self::ExpiredInUse, "expired-in-use"),
        (Self::NoDoubt, "no-doubt"),
        (Self::CutPastDurable, "cut-past-durable"),
        (Self::CutBeforeRoll, "cut-before-roll"),
        (Self::EndByDurable, "end-by-durable"),
        (Self::EndByOffset, "end-by-offset"),
    ];

    /// Return the canary's name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(canary, _)| *canary == self).map_or("", |(_, name)| name)
    }
}

/// Return whether this mistake is to be made.
#[cfg(not(falaj_canaries))]
#[inline(always)]
pub const fn planted(_canary: Canary) -> bool {
    false
}

#[cfg(falaj_canaries)]
const UNASKED: usize = usize::MAX;
#[cfg(falaj_canaries)]
const NONE: usize = usize::MAX - 1;
#[cfg(falaj_canaries)]
static ALIVE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(UNASKED);

/// Return whether this mistake is to be made.
#[cfg(falaj_canaries)]
pub fn planted(canary: Canary) -> bool {
    match ALIVE.load(std::sync::atomic::Ordering::Relaxed) {
        UNASKED => {
            ask();
            planted(canary)
        }
        alive => alive == canary as usize,
    }
}

/// Plant a canary from now on, or none.
#[cfg(falaj_canaries)]
pub fn plant(canary: Option<Canary>) {
    let alive = canary.map_or(NONE, |canary| canary as usize);
    ALIVE.store(alive, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(falaj_canaries)]
#[cold]
fn ask() {
    let name = std::env::var("FALAJ_CANARY").unwrap_or_default();
    let named = Canary::ALL.into_iter().find(|(_, other)| *other == name);
    assert!(named.is_some() || name.is_empty(), "FALAJ_CANARY names no canary: {name:?}");
    plant(named.map(|(canary, _)| canary));
}
