//! The progress readers from outside: real captures with their expected values, and the life of files against a model.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_precision_loss, missing_docs)]

mod access;
mod captures;
mod folders;
mod life;
mod model;
mod reports;
mod states;

use longhaul::config::Limits;

fn limits() -> Limits {
    Limits { jobs: 10, response: 16 << 20, line: 1 << 20 }
}
