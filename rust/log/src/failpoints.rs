//! Named points between the steps of the protocols, at which a test can end a process.
//!
//! Owns the list of points, named after the steps of `docs/PROTOCOL.md`, and what happens at an
//! armed one. The process kills or stops itself, as if it had received the signal at exactly that
//! moment. Only `--cfg falaj_failpoints` does that, for the reliability suite. Without it [`pass`]
//! is an empty function, and nothing of this module is in the program. The modules that pass a
//! point define what a death there must leave behind.

macro_rules! points {
    ($($point:ident $name:literal)*) => {
        /// A moment between two steps.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Point {
            $(#[doc = $name] $point,)*
        }

        impl Point {
            /// All of them, in the order of the protocols.
            pub const ALL: &[Point] = &[$(Point::$point,)*];

            /// Return its name: the protocol, and the last step done.
            pub fn name(self) -> &'static str {
                match self { $(Point::$point => $name,)* }
            }
        }
    };
}

points! {
    StoreDirectories "store-directories-made"
    StoreWake "store-wake-page-made"
    StoreSettings "store-settings-written"
    MemberPresence "member-presence-taken"
    MemberSlot "member-slot-taken"
    TopicLog "topic-log-made"
    TopicNamed "topic-log-named"
    TopicDirectory "topic-directory-made"
    TopicSettings "topic-settings-written"
    SettingsPrepared "settings-prepared-anew"
    SettingsRenamed "settings-renamed-over"
    TopicAway "topic-settings-renamed-away"
    TopicMarked "topic-log-marked-deleted"
    TopicNoted "topic-noted-in-its-log"
    TopicForgotten "topic-deletion-noted-in-its-log"
    TopicFinished "topic-end-noted-in-its-log"
    ProducersForgotten "producers-forgotten"
    ProducersExpired "producers-expired"
    AppendLocked "append-locked"
    AppendDirty "append-dirty-end-stored"
    BlockBody "block-body-stored"
    BlockHeader "block-header-stored"
    GroupMember "group-member-committed"
    AppendCommitted "append-committed"
    AppendTail "append-tail-stored"
    AppendUnlocked "append-unlocked"
    TakeOver "lock-taken-over"
    RepairWalked "repair-walked"
    RepairHeader "repair-void-header-stored"
    RepairVoid "repair-void-committed"
    RepairTail "repair-tail-stored"
    RollPrepared "roll-prepared"
    RollLocked "roll-locked"
    RollSegment "roll-segment-named"
    RollDirty "roll-dirty-end-stored"
    RollEnd "roll-end-block-committed"
    RollAllocated "roll-allocated-stored"
    RollTail "roll-tail-stored"
    RollUnlocked "roll-unlocked"
    RollIndex "roll-index-made"
    RollFinishing "roll-of-the-dead-half-finished"
    SyncLocked "sync-locked"
    SyncFile "sync-file-synced"
    SyncDirectory "sync-directory-synced"
    SyncMark "sync-mark-stored"
    SyncDurable "sync-durable-end-stored"
    CleanMark "sync-mark-of-its-own-stored"
    TrimDurable "trim-durable"
    TrimUnlinked "trim-segment-removed"
    TrimSegment "trim-segment-removal-synced"
    CompactFilled "compaction-segment-filled"
    CompactNamed "compaction-segment-named"
    CompactSynced "compaction-segment-name-synced"
    CompactRemoved "compaction-replaced-segment-removed"
    PartMade "part-file-made"
    PartSynced "part-synced"
    PartNamed "part-named"
    JobFilled "job-segment-filled"
    JobCommitted "job-committed"
    JobDurable "job-durable"
    JobSwept "job-staging-removed"
    LatchSet "latch-set"
    LatchSaved "latch-saved"
    LatchPublished "latch-end-published"
    SupersedeFilled "supersede-filled"
    SupersedeNamed "supersede-named"
    RecoverLocked "recovery-locked"
    RecoverDecided "recovery-decided"
    RecoverSwept "recovery-temporaries-removed"
    RecoverControl "recovery-control-there"
    RecoverStray "recovery-stray-put-away"
    RecoverIndex "recovery-index-built"
    RecoverEnd "recovery-end-made"
    RecoverPublished "recovery-end-published"
    RecoverLocks "recovery-locks-freed"
    RecoverDone "recovery-incarnation-stored"
}

/// Pass a point: no effect unless it is armed.
#[cfg(not(falaj_failpoints))]
#[inline(always)]
pub fn pass(_: Point) {}

#[cfg(falaj_failpoints)]
pub use armed::{Action, arm, pass};

#[cfg(falaj_failpoints)]
mod armed {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};

    use rustix::process::{Signal, getpid, kill_process};

    use crate::failpoints::Point;

    /// The effect of an armed point on its process.
    #[derive(Clone, Copy, Debug)]
    pub enum Action {
        /// SIGKILL.
        Kill,
        /// SIGSTOP: another process continues or kills it.
        Stop,
        /// Call a function, on the thread that passed the point.
        Call(fn()),
    }

    const NONE: u32 = u32::MAX;
    static ARMED: AtomicU32 = AtomicU32::new(NONE);
    static LEFT: AtomicU64 = AtomicU64::new(0);
    static ACTION: Mutex<Action> = Mutex::new(Action::Kill);

    /// Arm a point: the process ends or stops when it passes the point for the `nth` time, from 1.
    pub fn arm(point: Point, nth: u64, action: Action) {
        *ACTION.lock().unwrap_or_else(PoisonError::into_inner) = action;
        LEFT.store(nth.max(1), Ordering::Relaxed);
        ARMED.store(point as u32, Ordering::Release);
    }

    /// Pass a point: perform its action if it is armed.
    #[inline(always)]
    pub fn pass(point: Point) {
        if ARMED.load(Ordering::Acquire) == point as u32 {
            count();
        }
    }

    #[cold]
    fn count() {
        if LEFT.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        ARMED.store(NONE, Ordering::Relaxed);
        let action = *ACTION.lock().unwrap_or_else(PoisonError::into_inner);
        // A process may always signal itself. The kernel delivers the signal before the call
        // returns.
        match action {
            Action::Kill => drop(kill_process(getpid(), Signal::KILL)),
            Action::Stop => drop(kill_process(getpid(), Signal::STOP)),
            Action::Call(call) => call(),
        }
    }
}
