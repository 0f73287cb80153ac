//! Longhaul: a Prometheus exporter and alerting sidecar for jobs that run for hours or days on GPU machines.
//!
//! One direction: `sources → Observation → core → Snapshot → outputs`. See ARCHITECTURE.md.

// They panic where nobody reads; `cli::say` does not.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod model;

pub mod catalog;
pub mod clock;
pub mod config;
pub mod dial;
pub mod lines;
pub mod log;
pub mod recording;
pub mod redact;
pub mod rest;
pub mod state;
pub mod text;
pub mod words;

pub mod sources;
pub mod worker;

pub mod alerts;
pub mod core;
pub mod estimate;

pub mod notify;
pub mod web;

pub mod cli;
pub mod runtime;
pub mod simulator;
