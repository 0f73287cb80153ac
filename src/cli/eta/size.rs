//! `--total-bytes`: how far an output is by its bytes, for a job of which nobody counts the items.
//!
//! Bytes are those of allocated blocks, as a configured `outputs:` counts them and in the same slices, so that a folder of a
//! million files is no burden on who writes it. One look knows no pace, since files do not say when their job began: that
//! takes `--follow`.

use std::path::{Path, PathBuf};

use super::subject::Look;
use crate::clock::Clock;
use crate::estimate::eta::Bytes;
use crate::estimate::one_shot::Verdict;
use crate::model::{Answer, Bounds, Failure, FailureKind, Time};
use crate::sources::outputs::Measurer;

const NO_ITEMS: &str = "bytes are counted here, and no items";

/// An output and what was seen of it.
pub struct Size {
    path: PathBuf,
    total: f64,
    measurer: Measurer,
    grown: Bytes,
    /// When it began to grow as it does, and the bytes of the last count.
    first: Option<(f64, Time)>,
    last: f64,
    counted_at: Option<Time>,
}

/// What one look at it says.
#[derive(Debug, Clone)]
pub struct Written {
    /// Bytes so far, and in the end.
    pub bytes: f64,
    pub total: f64,
    /// Since we watch it.
    pub per_second: Option<f64>,
    eta: Answer<Bounds>,
}

impl Size {
    /// Of a file or a folder, which will have so many bytes.
    pub fn open(path: &Path, total: f64) -> Result<Self, Failure> {
        let real = path.canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::new(
                FailureKind::Missing,
                format!("{} does not exist: name a file or a folder", path.display()),
            ),
            _ => Failure::new(FailureKind::Io, format!("{}: {error}", path.display())),
        })?;
        let (measurer, grown) = (Measurer::default(), Bytes::default());
        Ok(Self { path: real, total, measurer, grown, first: None, last: 0.0, counted_at: None })
    }

    /// Counts for a while; a failure of kind [`FailureKind::Timeout`] says that the first count goes on with the next call.
    pub fn look(&mut self, clock: &Clock) -> Result<Look, Failure> {
        self.measurer.run(&self.path, &|| clock.now());
        let Some(measured) = self.measurer.measured() else {
            let message = format!("counting what is below {}", self.path.display());
            return Err(Failure::new(FailureKind::Timeout, message));
        };
        let Some(bytes) = measured.bytes else {
            let message = measured.reason.clone().unwrap_or_else(|| format!("{} has no size", self.path.display()));
            return Err(Failure::new(FailureKind::Io, message));
        };
        #[allow(clippy::cast_precision_loss)] // Bytes of a volume.
        let bytes = bytes as f64;
        let now = clock.now();
        let at = measured.at.unwrap_or(now);
        if self.counted_at.replace(at) != Some(at) {
            self.grown.record(bytes, at);
            // What became smaller was moved or made anew, as the estimate takes it.
            if self.first.is_none() || bytes < self.last {
                self.first = Some((bytes, at));
            }
            self.last = bytes;
        }
        let problem = measured.reason.clone();
        let written = Written { bytes, total: self.total, per_second: self.pace(bytes, at), eta: self.eta(bytes, now) };
        Ok(Look { source: "bytes", written: Some(written), problem, ..Look::default() })
    }

    fn pace(&self, bytes: f64, at: Time) -> Option<f64> {
        let (first, since) = self.first?;
        Some((bytes - first) / at.seconds_since(since)).filter(|pace| pace.is_finite() && *pace > 0.0)
    }

    fn eta(&self, bytes: f64, now: Time) -> Answer<Bounds> {
        let watched = self.first.is_some_and(|(first, _)| bytes > first);
        Answer::from_option(
            self.grown.read(self.total, now),
            match watched {
                true => "it has hardly grown since we look at it",
                false => "one look knows no pace: --follow watches it grow",
            },
        )
    }
}

impl Written {
    /// What follows from it.
    pub fn verdict(&self) -> Verdict {
        Verdict {
            items_per_second: Answer::unknown(NO_ITEMS),
            tokens_per_item: Answer::unknown(NO_ITEMS),
            tokens_per_second: Answer::unknown(NO_ITEMS),
            finished: Answer::Known(self.bytes >= self.total),
            eta: self.eta.clone(),
            doubt: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_blocks_and_enough_of_them_are_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::File::create(folder.path().join("a")).unwrap();
        std::io::Write::write_all(&mut file, &[1; 10_000]).unwrap();
        let clock = Clock::start();
        let look = |total: f64| {
            let written = Size::open(folder.path(), total).unwrap().look(&clock).unwrap().written.unwrap();
            (written.bytes, written.verdict())
        };
        let (bytes, verdict) = look(1e6);
        assert!((10_000.0..20_000.0).contains(&bytes) && verdict.finished.get() == Some(false));
        assert!(verdict.eta.reason().unwrap().contains("--follow"));
        assert_eq!(look(bytes).1.finished.get(), Some(true));
        assert_eq!(Size::open(&folder.path().join("b"), 1.0).err().unwrap().kind, FailureKind::Missing);
    }
}
