//! Consumer groups: named readers whose cursors survive, and whose members divide the partitions.
//!
//! Owns `consumers/<name>`: the cursors, the members, and which member has which partition. Invariants:
//! a partition has one owner at a time. Only its owner writes a cursor. No member takes a partition
//! from an owner that lives, however slow that is. A cursor that is half written leaves the one before.
//!
//! | file | owns |
//! |---|---|
//! | `file` | the file: made whole, mapped, entries for partitions |
//! | `members` | rows of members, what became of them, owners |
//! | `assignment` | how many partitions each member should have |
//! | `claim` | claiming partitions and releasing them |
//! | `cursors` | reading and writing how far a partition was read, in the file |
//! | `log_cursors` | the same in a log, where cursors move with what is appended |
//! | `position` | recognising a position in a log |
//! | `reader` | what a member reads, pauses and commits automatically; when a wait ends |
//! | `group`, `builder` | the facade: waiting, callbacks, how to join |
//! | `handle` | a member: joining, committing, leaving |
//! | `subscription` | topics that match a pattern |
//! | `seek` | where a member begins, and resuming from another offset |
//! | `offsets` | commits of chosen offsets |
//! | `overview` | listing all groups of a store; seeking and deleting them |
//! | `forgetting` | forgetting one topic |
//!
//! There is no lock in the file, hence nothing to repair. One compare-and-swap on the owner's word
//! excludes others. The store's claim does so for what happens once in a member's life. Only the flock
//! of a slot says which member is dead ([`crate::store::Membership`]). [`crate::topic`] reads the
//! records. Protocol and races: `docs/PROTOCOL.md`, "Consumers"; bytes: `docs/FORMAT.md`, "Consumer".
//!
//! ```
//! use falaj::Store;
//! use std::time::Duration;
//! # let dir = tempfile::tempdir()?;
//! let store = Store::open(dir.path().join("events"))?;
//! store.topic("orders")?.append(b"two coffees")?;
//!
//! let mut billing = store.consumer("billing", ["orders"])?;
//! while let Some(record) = billing.poll(Duration::ZERO)? {
//!     println!("{:?}", record.value());
//!     billing.commit()?;
//! }
//! assert_eq!(billing.lag("orders", 0)?, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assignment;
mod builder;
mod claim;
mod cursors;
mod file;
mod forgetting;
mod group;
mod handle;
mod log_cursors;
mod members;
mod metadata;
mod offsets;
mod overview;
mod position;
mod reader;
mod seek;
mod subscription;

pub use crate::format::consumer::CursorPosition;
pub use crate::topic::Start;
pub use builder::ConsumerBuilder;
pub use claim::Announcement;
pub use forgetting::forget_topic;
pub use group::{Consumer, Delivery};
pub use handle::{GroupMember, GroupPartition};
pub use log_cursors::Move;
pub use offsets::GroupOffset;
pub use overview::{
    GroupInfo, GroupPartitionInfo, MemberInfo, delete_group, group_info, group_names, list_groups,
    seek_group,
};
pub use position::position_of;
pub use reader::{CommittedMoves, GroupReader, TopicStream, Waiting};
pub use subscription::TopicPattern;
