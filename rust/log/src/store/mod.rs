//! A store: a directory that processes share, its topics, and who is writing to it.
//!
//! Owns everything between a path that a user names and a log that can be opened: that a store is
//! created whole or not at all, that those who write know of each other and of their dead, and which
//! topics there are. What is inside a log is left to [`crate::log`].
//!
//! | file | owns |
//! |---|---|
//! | `layout` | paths |
//! | `modes` | permission bits |
//! | `claim` | one at a time creates, deletes, joins |
//! | `membership`, `slots` | who writes, and who is dead |
//! | `lockfile`, `registry`, `fork` | what of that a process holds, and what its children must not |
//! | `options`, `open`, `files` | opening and creating a store |
//! | `topics`, `sweep` | creating, listing, deleting topics; removing what was left half-way |
//!
//! Invariant: everything is created under a temporary name and gets its own name whole, logs first,
//! `topic.json` and `falaj.json` last, under the claim. Protocol and races: `docs/PROTOCOL.md`.

mod claim;
pub mod fork;
pub mod layout;
mod lockfile;
pub mod membership;
pub mod modes;
mod registry;
mod slots;

pub use layout::Layout;
pub use membership::Membership;
pub use modes::Modes;
pub use slots::DeadSlot;
