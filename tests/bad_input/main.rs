//! Everything bad that can be fed to the real program, and what must come of it: a clear error that says what, where and
//! what to do, with its exit code or a failure metric; nothing lost; never a panic, a hang or growing memory.
//!
//! Each test starts the real binary in a folder of its own, and after whatever it did asks of it the same things
//! (`Sidecar::assert_well`) before it ends it. Some need root: `LONGHAUL_TEST_WITHOUT=mounts` leaves out by name what
//! mounts a small file system.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod configuration;
mod drop_ins;
mod engines;
mod http;
mod life;
mod mail;
mod progress;
mod recordings;
mod storage;
mod unread;
