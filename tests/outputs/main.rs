//! The outputs as a user gets them, against golden files, and what is shipped beside the program against the catalog.

// Clippy's leave for tests covers test functions only, and all of this is one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod assets;
mod dashboards;
mod documents;
mod metrics;
mod page;
mod status;
