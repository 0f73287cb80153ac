//! Being written.

pub mod mounts;
pub mod outputs;
pub mod progress;
