//! Inference engines: what their metrics mean, and how they are read.
//!
//! [`dialect`] maps the names of an engine's metrics to their meanings and is pure; [`scrape()`] asks one engine once;
//! [`watch()`] asks it again and again and hands out observations; [`watch_pool()`] does so for each engine that files
//! name ([`targets`]).

pub mod dialect;
pub mod pool;
pub mod scrape;
pub mod targets;
pub mod watch;

pub use pool::watch_pool;
pub use scrape::scrape;
pub use watch::watch;
