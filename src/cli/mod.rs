//! Being written.

pub mod demo;
