//! falaj: the event log that needs no broker.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!(
    "falaj runs on 64-bit little-endian Linux: its words are mapped and its waits are futexes"
);

#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
pub mod format;
pub mod lock;
#[cfg(not(loom))]
pub mod log;
pub mod publish;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod storage;
#[cfg(not(loom))]
pub mod store;
pub mod sync;
#[cfg(not(loom))]
pub mod topic;
pub mod wake;
