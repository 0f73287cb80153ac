//! What the tests share: a snapshot that has everything, golden files, a mail server that misbehaves as told.

pub mod golden;
pub mod smtp;
pub mod snapshot;
