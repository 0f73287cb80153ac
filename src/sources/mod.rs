//! Where facts come from: everything that does I/O to observe something, each kind in its own module.
//!
//! A source knows nothing of the others and nothing of the core: it reads, bounded in time and size, and hands out
//! [`crate::model::Observation`]s. Engines are scraped by the main process; what can hang in the kernel or a driver
//! (files, mounts, the process table, GPUs) runs in worker processes.

pub mod exposition;

pub mod http;

pub mod engines;

pub mod gpus;
pub mod mounts;
pub mod outputs;
pub mod processes;
pub mod progress;
