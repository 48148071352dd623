//! Doors to a store: HTTP over one more process on the store's directory.
//!
//! The server adds reach, never truth: everything that must survive lies in the store. It can be killed at any moment,
//! and native readers and writers notice nothing. It uses the public API of the crate `falaj` alone.
//!
//! ```text
//! config ──> run ──> listen (TLS, limits) ──> http (gate, handlers) ──> store (append threads, watcher, readers)
//!                        access (tokens, principals, grants) ──┘    └──> place (objects of other machines' stores)
//! ```

pub mod access;
pub mod config;
pub mod foreign;
pub mod http;
pub mod memory;
pub mod place;
pub mod run;
pub mod store;
pub mod tls;
