//! Why a job stands still, as far as the plain rules see it. The order is from what explains the rest: a GPU that was
//! lost, an engine that is gone, a disk that takes nothing, a process that cannot go on, a part that has not begun, an
//! engine that is stuck, a client that sends nothing.

use super::jobs::Job;
use super::volumes::Obstacle;
use super::world::World;
use crate::model::Time;
use crate::model::job::OutputReading;
use crate::model::snapshot::{GpusView, ProcessState, StallCause};

/// A client goes on with answers that were on their way when a GPU was lost; one that was lost longer before the last
/// movement did not stop the job.
pub(super) const GPU_BEFORE_SECONDS: f64 = 120.0;

impl World {
    /// The likely cause of a stall.
    pub(super) fn stall_cause(&self, job: &Job, gpus: &GpusView, now: Time, unix: impl Fn(Time) -> f64) -> StallCause {
        let stopped = job.last_moved().map(unix);
        if stopped.is_some_and(|at| gpus.trouble_since(at - GPU_BEFORE_SECONDS).is_some()) {
            return StallCause::GpuLost;
        }
        let engines: Vec<_> = self.engines_of(job).collect();
        // One that has never answered is down for this purpose: a job that moved needs its engine.
        if engines.iter().any(|engine| !engine.is_up()) {
            return StallCause::EngineDown;
        }
        let volumes = job.outputs().iter().filter_map(|output| output.volume.as_ref());
        let obstacle = volumes.filter_map(|id| self.volumes.obstacle(id, &self.config.volumes)).next();
        // A quota is seen at the path alone.
        let no_room = job.outputs().iter().any(OutputReading::is_full);
        match obstacle.or_else(|| no_room.then_some(Obstacle::Full)) {
            Some(Obstacle::Full) => return StallCause::VolumeFull,
            Some(Obstacle::Readonly) => return StallCause::VolumeReadonly,
            Some(Obstacle::Unresponsive) => return StallCause::VolumeUnresponsive,
            None => {}
        }
        match job.process_state(now).get() {
            Some(ProcessState::Gone) => return StallCause::ProcessGone,
            Some(ProcessState::Stopped) => return StallCause::ProcessStopped,
            Some(ProcessState::Blocked) => return StallCause::ProcessBlocked,
            Some(ProcessState::Alive) | None => {}
        }
        if job.held_off_by(now).is_some() {
            return StallCause::SourceSilent;
        }
        let requests: Vec<_> = engines.iter().filter_map(|engine| engine.requests()).collect();
        let busy = |(running, waiting): &(f64, f64)| *running > 0.0 || *waiting > 0.0;
        match (requests.is_empty(), requests.iter().any(busy)) {
            (false, true) => StallCause::EngineStuck,
            (false, false) => StallCause::EngineIdle,
            (true, _) => StallCause::Unknown,
        }
    }
}
