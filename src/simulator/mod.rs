//! A simulated vLLM server.

pub mod counters;
pub mod law;
pub mod model;
pub mod random;
