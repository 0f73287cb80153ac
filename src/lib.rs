//! Longhaul: a Prometheus exporter and alerting sidecar for jobs that run for hours or days on GPU machines.
//!
//! One direction: `sources → Observation → core → Snapshot → outputs`. See ARCHITECTURE.md.

pub mod model;

pub mod catalog;
pub mod clock;
pub mod config;
pub mod dial;
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
