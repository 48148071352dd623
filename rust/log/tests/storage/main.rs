//! Tests of the storages: one suite that each must pass, and the behaviour of single ones.
//!
//! Tests of the kernel itself fork, and are a program of their own: `tests/storage_real.rs`.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod crash_images;
mod faulty;
mod suite;
