//! What a job writes: its output paths, how many bytes are under them, and its end by these alone.
//!
//! Apart from [`super`], which counts items. A job of which no source counts any ("uncounted") runs, stalls and ends by its
//! bytes where its configuration says how many there will be (`total_bytes`). A size that was calculated from another job
//! is never so exact that it could tell the end, and a job that only writes and has no known end cannot stand still.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Job, Run};
use crate::config::{self, OutputSize};
use crate::estimate::eta::{Bytes, Forecast};
use crate::estimate::pace::Pace;
use crate::model::job::OutputReading;
use crate::model::snapshot::EstimateMode;
use crate::model::volume::Mount;
use crate::model::{Answer, Bounds, Time, VolumeId};

/// From forecast to forecast.
const PAUSE_BETWEEN: Duration = Duration::from_secs(3);

/// A forecast from bytes takes about as long as so many steps of another.
const STEPS: u64 = 1000;

/// After its end, an output that has lost so much of itself is that of a new run.
const ANEW: f64 = 0.5;

/// The output of a run; all but the last is of one that nobody counts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Written {
    bytes: Bytes,
    last: Option<f64>,
    /// When these were counted.
    at: Option<Time>,
    made: Option<(Bounds, Time)>,
    /// How much of it is the job's own work, where other jobs name its paths too.
    part: Option<Answer<f64>>,
}

impl Written {
    /// The bytes of a run that has started.
    pub(super) fn grown(&self, started: Option<Time>) -> Option<f64> {
        started.and(self.last)
    }
}

impl Job {
    /// Volumes may have other numbers than when the outputs were measured.
    pub fn forget_outputs(&mut self) {
        self.outputs.clear();
        self.own.clear();
    }

    /// Other output paths are configured now. What was measured of those that stay holds; the others are not measured yet.
    pub(super) fn reconfigure_outputs(&mut self, config: &config::Job) {
        if config.outputs == self.config.outputs {
            return;
        }
        if !paths(config).eq(paths(&self.config)) {
            // Growth of another folder is none of this one.
            self.run.trend.written = Pace::default();
            if self.is_uncounted() {
                (self.run, self.measured_at) = (Run::new(config, self.patience), None);
            }
        }
        let before = std::mem::take(&mut self.outputs);
        let measured = |output: &config::Output| {
            let reading = before.iter().find(|reading| Path::new(&reading.path) == output.path)?;
            let on_expected_mount = reading.on_expected_mount.filter(|_| self.config.outputs.contains(output));
            Some(OutputReading { on_expected_mount, ..reading.clone() })
        };
        let outputs: Vec<_> = config.outputs.iter().map(|output| (output, measured(output))).collect();
        self.run.homes.retain(|path, _| paths(config).any(|stays| stays == Path::new(path)));
        self.own.clear();
        if outputs.iter().any(|(_, measured)| measured.is_some()) {
            let not_yet = |output: &config::Output| OutputReading {
                path: output.path.to_string_lossy().into_owned(),
                ..OutputReading::default()
            };
            self.outputs =
                outputs.into_iter().map(|(output, measured)| measured.unwrap_or_else(|| not_yet(output))).collect();
        }
    }

    /// The output paths were measured; `mount` knows the volumes.
    pub fn measured<'a>(
        &mut self,
        outputs: &[OutputReading],
        mount: impl Fn(&VolumeId) -> Option<&'a Mount>,
        at: Time,
    ) {
        self.outputs = outputs.to_vec();
        self.unmeasured = None;
        for output in outputs.iter().filter(|output| output.bytes.is_some()) {
            if let Some(mount) = output.volume.as_ref().and_then(&mount)
                && self.home(output).is_none()
            {
                self.run.homes.insert(output.path.clone(), mount.clone());
            }
        }
        // What does not answer was not looked at, and a number that is repeated until the next pass is of the last one.
        if self.bytes_written().is_some() {
            let counted_at = outputs.iter().filter_map(|output| output.counted_at).min();
            self.measured_at = self.measured_at.max(Some(counted_at.unwrap_or(at)));
            self.measured_here = true;
        }
    }

    /// None of the output paths answers. What was measured stays for who adds up a volume, and is shown no longer.
    pub fn not_measured(&mut self, reason: &str) {
        self.unmeasured = Some(reason.to_owned());
    }

    /// Why none of the output paths answers, if that is so.
    pub fn why_not_measured(&self) -> Option<&str> {
        self.unmeasured.as_deref()
    }

    /// The volume on which an output path was first there in this run, when it is on another one now: its mount
    /// vanished, or something was mounted over it. A volume that was mounted anew may have another number.
    pub fn moved_from(&self, output: &OutputReading, now: &Mount) -> Option<&Mount> {
        self.home(output)
            .filter(|home| home.id != now.id && (&home.device, &home.mountpoint) != (&now.device, &now.mountpoint))
    }

    /// However its path is spelled.
    fn home(&self, output: &OutputReading) -> Option<&Mount> {
        let path = Path::new(&output.path);
        self.run.homes.iter().find(|(known, _)| Path::new(known) == path).map(|(_, home)| home)
    }

    /// Of each output path, the bytes that no other output below it has. `part` is how much of all of them is its own work,
    /// where other jobs name its paths too; who has ended keeps the part of then.
    pub fn wrote(&mut self, own: Vec<Option<f64>>, part: Option<Answer<f64>>, at: Time) {
        self.own = own;
        if self.run.ended.is_none() {
            self.run.written.part = part;
        }
        if let Answer::Known(bytes) = self.output_bytes() {
            self.run.trend.written.record(bytes, at);
            if self.is_uncounted() && self.measured_at > self.run.written.at {
                self.grew(bytes, at);
            }
        }
    }

    /// The bytes of its own under an output path.
    pub fn own_bytes(&self, output: usize) -> Option<f64> {
        self.own.get(output).copied().flatten()
    }

    /// The output paths as last measured.
    pub fn outputs(&self) -> &[OutputReading] {
        &self.outputs
    }

    /// Bytes under its output paths.
    #[allow(clippy::cast_precision_loss)]
    pub fn output_bytes(&self) -> Answer<f64> {
        if self.config.outputs.is_empty() {
            return Answer::unknown("no outputs: are configured");
        }
        if self.outputs.is_empty() {
            return Answer::unknown("the output paths have not been measured yet");
        }
        if let Some(reason) = &self.unmeasured {
            return Answer::unknown(reason.clone());
        }
        let mut sum = 0.0;
        for (place, output) in self.outputs.iter().enumerate() {
            match self.own_bytes(place).or(output.bytes.map(|bytes| bytes as f64)) {
                Some(bytes) => sum += bytes,
                None => {
                    let reason = output.reason.clone().unwrap_or_else(|| "not measured yet".to_owned());
                    return Answer::unknown(format!("{}: {reason}", output.path));
                }
            }
        }
        Answer::Known(sum)
    }

    /// Whether other jobs name its paths too.
    pub fn shares_output(&self) -> bool {
        self.run.written.part.is_some()
    }

    /// Bytes under its output paths that are its own work.
    pub fn part_of_output(&self) -> Answer<f64> {
        let bytes = self.output_bytes();
        match &self.run.written.part {
            None => bytes,
            Some(part) => bytes.and_then(|bytes| part.clone().map(|part| bytes * part)),
        }
    }

    /// How fast it writes.
    pub fn bytes_per_second(&self, now: Time) -> Answer<f64> {
        if self.run.ended.is_some() {
            // Who writes there now is another one.
            return Answer::unknown("the job has ended");
        }
        if let Some(reason) = self.why_not_measured() {
            return Answer::unknown(reason.to_owned());
        }
        let part = self.run.written.part.clone().unwrap_or(Answer::Known(1.0));
        part.and_then(|part| self.run.trend.written.read(now).map(|rate| rate * part))
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn bytes_written(&self) -> Option<f64> {
        if self.config.outputs.is_empty() {
            return self.merged.bytes;
        }
        // Not the bytes of what is read until then: to count something else is no movement.
        let outputs: Option<f64> = self.outputs.iter().map(|output| output.bytes.map(|bytes| bytes as f64)).sum();
        outputs.filter(|_| !self.outputs.is_empty())
    }

    /// Those that nobody else can have written: where others write to its paths too, only those of its progress files, since it
    /// would have no end while they go on.
    pub(super) fn bytes_by_itself(&self) -> Option<f64> {
        match &self.run.written.part {
            Some(part) if part.get() != Some(1.0) => self.merged.bytes,
            _ => self.bytes_written(),
        }
    }

    /// How many bytes there will be, of a job of which no source counts the items.
    fn bytes_in_all(&self) -> Option<f64> {
        let nobody_counts = self.config.progress.is_empty() && self.readings.is_empty();
        match self.config.size {
            Some(OutputSize::TotalBytes(all)) if nobody_counts && !self.config.outputs.is_empty() => Some(all),
            _ => None,
        }
    }

    /// Whether only its bytes tell how far it is.
    pub fn is_uncounted(&self) -> bool {
        self.bytes_in_all().is_some()
    }

    /// How far it is, and what is all of it: items, or bytes where nobody counts them.
    pub fn standing(&self) -> Option<(f64, f64)> {
        match self.bytes_in_all() {
            Some(all) => Some((self.run.written.last?, all)),
            None => Some((self.settled()?, self.total()?)),
        }
    }

    /// A job that nobody counts has all its bytes.
    pub(super) fn all_bytes_are_there(&self) -> bool {
        self.bytes_in_all().zip(self.run.written.last).is_some_and(|(all, bytes)| bytes >= all)
    }

    fn grew(&mut self, bytes: f64, now: Time) {
        let at = self.measured_at.unwrap_or(now);
        if self.run.ended.is_some() && self.run.written.last.is_some_and(|last| bytes < ANEW * last) {
            self.run = Run::new(&self.config, self.patience);
        }
        let before = self.run.written.at.replace(at);
        if let Some(gap) = before.map(|before| at.since(before)).filter(|gap| *gap > self.patience) {
            self.run.written.bytes.unwatched(gap);
        }
        let last = self.run.written.last.replace(bytes);
        if self.run.started.is_none() && last.is_some_and(|last| bytes > last) {
            self.run.started = before;
        }
        self.run.written.bytes.record(bytes, at);
    }

    pub(super) fn forecast_bytes_anew(&mut self, at: Time) -> u64 {
        if self.run.written.made.is_some_and(|(_, made)| at.since(made) < PAUSE_BETWEEN) {
            return 0;
        }
        let left = self.bytes_in_all().and_then(|all| self.run.written.bytes.read(all, at));
        self.run.written.made = left.map(|left| (left, at));
        STEPS
    }

    /// When all its bytes will be there.
    pub(super) fn forecast_by_bytes(&self, now: Time) -> Answer<Forecast> {
        let forecast = self.run.written.made.map(|(left, made)| Forecast {
            seconds: left.map(|seconds| (seconds - now.since(made).as_secs_f64()).max(0.0)),
            mode: EstimateMode::Bytes,
            tokens_per_item: None,
            drain_share: None,
            spread_between_blocks: None,
        });
        Answer::from_option(forecast, "its output has hardly grown yet")
    }
}

fn paths(job: &config::Job) -> impl Iterator<Item = &Path> {
    job.outputs.iter().map(|output| output.path.as_path())
}
