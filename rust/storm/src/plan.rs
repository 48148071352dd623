//! The plan of a round, drawn from seed and number, so that a round can be run again.

use std::path::Path;

use falaj::internals::failpoints::Point;

use crate::random::Random;
use crate::task::{Layout, Role, Snap, Trap};

/// A round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its store.
    pub layout: Layout,
    /// Its workers, each replaced when it dies.
    pub roles: Vec<Role>,
    /// Sync mode of most appends of each.
    pub syncs: Vec<u64>,
    /// Kills to reach.
    pub kills: u64,
    /// Acknowledged records to reach.
    pub records: u64,
    /// Mean time between kills.
    pub kill_ms: u64,
    /// Mean time between stops.
    pub stop_ms: u64,
    /// Mean time between forks in a worker; 0 for none.
    pub fork_ms: u64,
    /// How many of a hundred kills take all writers at once.
    pub massacres: u64,
}

impl Plan {
    /// Draw a round.
    pub fn draw(random: &mut Random, store: &Path, python: bool) -> Self {
        let layout = Layout {
            store: store.into(),
            topics: *random.pick(&[1, 1, 1, 2, 3]),
            partitions: *random.pick(&[1, 1, 1, 2, 4]),
            segment_bytes: *random.pick(&[64 << 10, 256 << 10, 1 << 20, 1 << 20, 4 << 20]),
            interval_ms: *random.pick(&[5, 20, 100]),
            pwrite: random.chance(1, 5),
        };
        let mut roles = vec![Role::Writer; random.between(2, 3) as usize];
        roles.push(Role::Follower);
        if random.chance(2, 3) {
            roles.push(Role::Scanner);
        }
        if random.chance(1, 3) {
            roles.push(Role::Churner);
        }
        if python && random.chance(1, 2) {
            roles.push(Role::PythonWriter);
        }
        if python && random.chance(1, 3) {
            roles.push(Role::PythonFollower);
        }
        let mostly = *random.pick(&[0, 1, 1, 2]);
        let syncs =
            roles.iter().map(|_| if random.chance(2, 3) { mostly } else { random.below(3) });
        let syncs: Vec<u64> = syncs.collect();
        // Writers that wait for the disk with each call get less done.
        let all_wait = roles.iter().zip(&syncs).all(|(role, sync)| !role.appends() || *sync == 2);
        let records = if all_wait { 20_000 } else { random.between(200_000, 800_000) };
        let mut plan = Self {
            layout,
            roles,
            syncs,
            kills: random.between(20, 60),
            records,
            kill_ms: *random.pick(&[40, 100, 200, 400]),
            stop_ms: *random.pick(&[200, 500, 2_000]),
            fork_ms: *random.pick(&[0, 20, 100]),
            massacres: *random.pick(&[3, 10, 30]),
        };
        if random.chance(1, 2) {
            let sharers = random.between(2, 3) as usize;
            plan.roles.extend(vec![Role::Sharer; sharers]);
            plan.syncs.extend(vec![0; sharers]);
        }
        plan
    }
}

/// Points that are passed with every append, and the highest passing at which a trap is set.
const APPEND: [Point; 7] = [
    Point::AppendLocked,
    Point::AppendDirty,
    Point::BlockBody,
    Point::BlockHeader,
    Point::AppendCommitted,
    Point::AppendTail,
    Point::AppendUnlocked,
];
const SELDOM: [Point; 29] = [
    Point::GroupMember,
    Point::TakeOver,
    Point::RepairWalked,
    Point::RepairHeader,
    Point::RepairVoid,
    Point::RepairTail,
    Point::RollPrepared,
    Point::RollLocked,
    Point::RollUnlocked,
    Point::RollIndex,
    Point::RollSegment,
    Point::RollDirty,
    Point::RollEnd,
    Point::RollAllocated,
    Point::RollTail,
    Point::RollFinishing,
    Point::SyncLocked,
    Point::SyncFile,
    Point::SyncDirectory,
    Point::SyncMark,
    Point::SyncDurable,
    Point::CleanMark,
    Point::TrimDurable,
    Point::TrimUnlinked,
    Point::TrimSegment,
    Point::LatchSet,
    Point::LatchSaved,
    Point::LatchPublished,
    Point::MemberSlot,
];
const FIRST: [Point; 17] = [
    Point::MemberPresence,
    Point::MemberSlot,
    Point::SupersedeFilled,
    Point::SupersedeNamed,
    Point::RecoverLocked,
    Point::RecoverDecided,
    Point::RecoverSwept,
    Point::RecoverControl,
    Point::RecoverStray,
    Point::RecoverIndex,
    Point::RecoverEnd,
    Point::RecoverPublished,
    Point::RecoverLocks,
    Point::RecoverDone,
    Point::SyncFile,
    Point::SyncMark,
    Point::BlockBody,
];
const CREATING: [Point; 9] = [
    Point::StoreDirectories,
    Point::StoreWake,
    Point::StoreSettings,
    Point::MemberPresence,
    Point::TopicLog,
    Point::TopicNamed,
    Point::TopicDirectory,
    Point::TopicSettings,
    Point::RecoverDone,
];
const CHURNING: [Point; 12] = [
    Point::TopicLog,
    Point::TopicNamed,
    Point::TopicDirectory,
    Point::TopicSettings,
    Point::TopicAway,
    Point::TopicMarked,
    Point::TopicNoted,
    Point::TopicForgotten,
    Point::TopicFinished,
    Point::ProducersForgotten,
    Point::AppendDirty,
    Point::RollEnd,
];

const SHARING: [Point; 17] = [
    Point::PartMade,
    Point::PartSynced,
    Point::PartNamed,
    Point::JobFilled,
    Point::JobCommitted,
    Point::JobDurable,
    Point::JobSwept,
    Point::CompactFilled,
    Point::CompactNamed,
    Point::CompactSynced,
    Point::CompactRemoved,
    Point::SettingsPrepared,
    Point::SettingsRenamed,
    Point::GroupMember,
    Point::AppendDirty,
    Point::AppendCommitted,
    Point::SyncFile,
];

/// The situation in which a worker is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There is no store yet.
    Creating,
    /// No process has the store open for writing.
    Alone,
    /// Other workers are there.
    Among,
}

/// A trap for a worker that is about to start, if any.
pub fn trap(random: &mut Random, role: Role, start: Start) -> Option<Trap> {
    if !matches!(role, Role::Writer | Role::Churner | Role::Sharer) || !random.chance(2, 3) {
        return None;
    }
    let snap = *random.pick(&[Snap::Kills, Snap::Kills, Snap::Kills, Snap::Orphans, Snap::Stops]);
    let (list, bits): (&[Point], u64) = match (role, start) {
        (_, Start::Creating) => (&CREATING, 0),
        (_, Start::Alone) => (&FIRST, 1),
        (Role::Churner, _) => (&CHURNING, 3),
        (Role::Sharer, _) => (&SHARING, 4),
        _ if random.chance(1, 2) => (&APPEND, 15),
        _ => (&SELDOM, 4),
    };
    let point = *random.pick(list);
    // Points that are passed only after another's death come seldom in a process's life.
    let follows = ["repair-", "latch-", "lock-taken", "roll-of", "trim-"];
    let is_rare = follows.iter().any(|start| point.name().starts_with(start));
    let nth = if is_rare { 1 } else { random.magnitude(bits) };
    Some(Trap { point, nth, snap })
}
