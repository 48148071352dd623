//! Machines that are not the kernel's, for tests and for the reliability suite.
//!
//! | machine | for |
//! |---|---|
//! | [`memory`] | crash images: live and durable bytes apart, in sectors of 512 bytes |
//! | [`faulty`] | any storage, with errors planted at the k-th call |
//! | [`place`] | what cuts of a store brought to another place |
//!
//! Owns both implementations of [`falaj::internals::storage::Storage`]. Invariant: they keep its contract, which
//! `rust/log/tests/storage` asks of them and of the kernel's files alike. The engine's unit tests include this
//! source, since they cannot depend on a crate that depends on the engine. The shipped crate has none of it.
#![deny(unsafe_code)]

pub mod faulty;
pub mod memory;
pub mod place;
