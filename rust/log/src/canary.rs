//! Bugs planted on purpose: a harness that would not notice them proves nothing.
//!
//! Owns the list of canaries and the question whether one of them sings. In the crate that is shipped
//! the answer is a constant `false` and every planted line is gone. With `--cfg falaj_canaries`, which
//! only the project's own suite sets, the environment variable `FALAJ_CANARY` or `plant` names the one
//! that is alive. It is no cargo feature: any crate of a program can turn those on. Invariant: a planted line does exactly what a known mistake would do, and
//! nothing reads this switch to find it out. Who catches which: `docs/RELIABILITY.md`, "Canaries".

/// A mistake that could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Blocks are believed without their checksums.
    NoCrc,
    /// Commit word's tag and header's checksum are those of any segment.
    CrcWithoutSalt,
    /// The header's checksum does not cover the commit word.
    CrcWithoutCommitWord,
    /// Repair leaves what a dead writer stored to be written over.
    BytesWrittenTwice,
    /// New names are never put on the medium.
    NoDirectorySync,
    /// The commit word is stored before the block's bytes.
    CommitWordEarly,
    /// The commit word is stored without release ordering.
    RelaxedCommitWord,
    /// Recovery checks the newest segment alone.
    RecoverActiveOnly,
    /// Recovery says that it is done before it is.
    RecoveryNotCrashSafe,
    /// A sync covers the newest segment alone.
    SyncActiveOnly,
    /// The durable mark is stored before the sync that it speaks of.
    MarkEarly,
    /// Segments are removed before it is on the medium that they were trimmed.
    UnlinkBeforeTrim,
    /// A compacted segment gets its name before its bytes are on the medium.
    SwapBeforeSync,
    /// Segments are removed before the name of the one in their place is on the medium.
    UnlinkBeforeSwap,
    /// A segment's snapshot leaves out what was appended by whom.
    ForgottenProducers,
    /// A cursor that moves with records is no part of their group.
    CursorOutsideGroup,
    /// A job's token is no part of the group of its records.
    TokenOutsideGroup,
    /// The tail is stored before the blocks that end there.
    TailBeforeData,
    /// A follower goes to sleep without looking once more.
    LostWakeup,
    /// A slot that is taken anew keeps its generation.
    NoGeneration,
    /// A forked child keeps its parent's lock files open.
    SlotKeptByChild,
    /// A waiter whose time is over takes the lock from its living owner.
    LockStolen,
    /// A control page that was replaced is taken for the right one.
    TwoControlPages,
    /// A cursor is written over the one before it.
    CursorInPlace,
    /// A cursor is called safe before what it stands for is on the medium.
    CursorPastDurable,
    /// A cursor that is kept in a log moves wherever it was before.
    UnfencedCursor,
    /// A reader is shown a part of a group before it is known that all of the group is there.
    HalfGroup,
    /// The offset that an append expects is looked at before the lock, and not under it.
    ExpectBeforeLock,
    /// An ack counts although the job was handed out again.
    LostLeaseAcked,
    /// A living process is taken for dead, and its jobs are handed out to others.
    HolderRobbed,
    /// A job that was extended is handed out again when its first time is over.
    ExtensionForgotten,
    /// A queue's floor passes a job that is not done.
    FloorPastJob,
    /// A queue's floor passes what is done and not on the medium.
    FloorPastDurable,
    /// An attempt at a job counts with its delivery, and not when the work begins.
    CountedAtTake,
    /// A member takes a partition that it saw free, without looking who took it since.
    TwoOwners,
    /// What damage may have set back, cursors, tokens and producers, is believed as it is known.
    NoDoubt,
}

impl Canary {
    /// All of them, by name.
    pub const ALL: [(Self, &'static str); 36] = [
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
        (Self::TwoOwners, "two-owners"),
        (Self::NoDoubt, "no-doubt"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(canary, _)| *canary == self).map_or("", |(_, name)| name)
    }
}

/// Whether this mistake is to be made.
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

/// Whether this mistake is to be made.
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

/// Let a canary sing from now on, or none.
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
