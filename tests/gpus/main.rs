//! GPUs, from the driver's library to what a user sees: the real program with a library of ours in place of NVIDIA's.
//!
//! The library (`tests/support/fake_nvml.c`) is built against NVIDIA's own header and shows eight GPUs whose state is a
//! file that is changed while the program runs. What only a real driver can show is listed in docs/gpus.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod costs;
mod hangs;
mod machine;
mod reports;
mod states;
