//! What the tests of the outputs share: a snapshot that has everything, and golden files.

pub mod golden;
pub mod snapshot;
