//! Inference engines: what their metrics mean, and how they are read.

pub mod dialect;
