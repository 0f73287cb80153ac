//! Being written.

pub mod assets;
pub mod demo;
pub mod status;
