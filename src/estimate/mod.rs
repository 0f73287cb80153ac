//! Estimators: pure, incremental, bounded in memory, with time as a parameter.
//!
//! All share one shape: `record(…, at)` takes what was seen, `read(&self, now)` answers. Reading changes nothing,
//! silence ages by itself, a counter that goes back starts anew, and what is not known has a reason.

pub mod cut;
pub mod deadline;
pub mod drift;
pub mod earlier;
pub mod eta;
pub mod fill;
mod normal;
pub mod one_shot;
pub mod pace;
pub mod rate;
pub mod revision;
pub mod scorecard;
pub mod stall;
pub mod storage;
