//! Inference engines: what their metrics mean, and how they are read.
//!
//! [`dialect`] maps the names of an engine's metrics to their meanings and is pure; [`scrape()`] asks one engine once;
//! [`watch()`] asks it again and again and hands out observations.

pub mod dialect;
pub mod scrape;
pub mod watch;

pub use scrape::scrape;
pub use watch::watch;
