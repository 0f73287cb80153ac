//! Plain data: what is observed, what is known, and nothing that does I/O or reads a clock.
//!
//! Everything that enters the program is an [`Observation`]; everything that leaves it reads one [`Snapshot`]. The
//! types in between have no behaviour beyond arithmetic, so that a recording of observations replays all of it.

pub mod answer;
pub mod any_number;
pub mod engine;
pub mod gpu;
pub mod ids;
pub mod job;
pub mod observation;
pub mod outlook;
pub mod pairs;
pub mod process;
pub mod silence;
pub mod snapshot;
pub mod time;
pub mod volume;

pub use answer::{Answer, Bounds};
pub use ids::{EngineName, GpuId, JobName, SourceId, VolumeId, WorkerName};
pub use observation::{Fact, Failure, FailureKind, Observation};
pub use snapshot::Snapshot;
pub use time::Time;
