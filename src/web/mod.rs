//! What goes out over HTTP: `/metrics`, the landing page, the JSON snapshot, health and readiness.
//!
//! [`bind`] takes the addresses before anything else starts, so that a port in use is an error of the start and not of
//! some task later; [`serve`] answers until it is told to stop. Everything is read from one immutable
//! [`Snapshot`](crate::model::Snapshot), so no request waits for a source, a lock or a disk, and a scrape costs what
//! the snapshot has.
//!
//! Every request only reads, but those of [`lifecycle`] and [`silences`].

pub mod error;
pub mod lifecycle;
pub mod listen;
pub mod metrics;
pub mod page;
pub mod routes;
pub mod silences;

mod guard;
mod seats;
mod server;

/// Where the snapshot is, as JSON; the page links to it and `longhaul status` reads it.
pub const SNAPSHOT: &str = "/api/v1/snapshot";

pub use error::WebError;
pub use lifecycle::{Lifecycle, Reloaded, Unchanged};
pub use listen::{Bound, Listen, bind};
pub use routes::State;
pub use server::{serve, serve_over};
pub use silences::Silencer;
