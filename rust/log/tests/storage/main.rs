//! Tests of the storages: one suite that each of them passes, and what only one of them does. What
//! only the kernel can show forks, and is a program of its own: `tests/storage_real.rs`.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod crash_images;
mod faulty;
mod suite;
