//! What survives: gaps in what is seen, steps of the clock, restarts and kills, on simulated time and a real folder.
//!
//! `machine` is the outside world and the sidecar's inside, a few seconds a step; `watching` asks what is said of a job
//! that nobody looked at; `restarts` what is mailed around a restart; `kills` dies at every operation on the disk;
//! `process` does some of that to the real program, `offsets` asks what its readers remember, `large` what is said
//! while they do not know yet; `reload` changes the configuration under it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod absurd;
mod clocks;
mod histories;
mod kills;
mod large;
mod machine;
mod offsets;
mod process;
mod reload;
mod restarts;
mod splits;
mod versions;
mod watching;
