//! falaj: the event log that needs no broker.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!("falaj runs on 64-bit little-endian Linux: its words are mapped and its waits are futexes");

pub mod error;
pub mod format;
pub mod lock;
pub mod log;
pub mod publish;
pub mod storage;
pub mod store;
pub mod sync;
pub mod wake;
