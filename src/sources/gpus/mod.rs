//! GPUs through NVML: the library is loaded at run time, and every call may hang, fail, or take the process with it.
//!
//! So this runs in a worker process of its own, and each function here is one piece of work for one thread: [`open`],
//! [`list`] and [`count`] for NVML as a whole, [`read`] for one GPU, [`watch`] for Xid events. Nothing is kept here; the
//! worker's scheduler keeps the library, and closes it by dropping it.
//!
//! * [`fields`] is the table of what is read of a GPU;
//! * [`failures`] has NVML's errors in words;
//! * [`raw`] has the calls that nvml-wrapper does not offer.

mod events;
mod failures;
mod fields;
mod processes;
mod raw;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

pub use events::{Event, watch};
use fields::{Lack, Look, ROWS};

use crate::model::gpu::{Absence, GpuInventory, GpuListed, GpuReading};
use crate::model::{Failure, GpuId};

/// No machine has more; a driver that says so is not believed.
const MOST_GPUS: u32 = 256;

/// The name of the call that finds a GPU, where another has the name of its row.
pub const FIND: &str = "handle";

/// Loads the library and starts a session with the driver.
pub fn open() -> Result<Nvml, Failure> {
    Nvml::builder().init().map_err(|error| failures::of_nvml(&error))
}

/// How many GPUs there are: the cheapest question that tells whether NVML as a whole still works.
pub fn count(nvml: &Nvml) -> Result<u32, Failure> {
    nvml.device_count().map_err(|error| failures::of_nvml(&error))
}

/// All GPUs. One that cannot be asked is who it was at this index before, if nobody else is by now.
pub fn list(nvml: &Nvml, before: &[GpuListed]) -> Result<GpuInventory, Failure> {
    let count = count(nvml)?.min(MOST_GPUS);
    let mut gpus: Vec<GpuListed> = (0..count).map(|index| identify(nvml, index)).collect();
    let known: BTreeSet<GpuId> = gpus.iter().filter(|gpu| gpu.failure.is_none()).map(|gpu| gpu.id.clone()).collect();
    for gpu in gpus.iter_mut().filter(|gpu| gpu.failure.is_some()) {
        if let Some(earlier) = before.iter().find(|earlier| earlier.index == gpu.index && !known.contains(&earlier.id))
        {
            *gpu = GpuListed { failure: gpu.failure.take(), ..earlier.clone() };
        }
    }
    Ok(GpuInventory { driver: nvml.sys_driver_version().ok(), gpus })
}

fn identify(nvml: &Nvml, index: u32) -> GpuListed {
    let ask = || -> Result<GpuListed, NvmlError> {
        let device = nvml.device_by_index(index)?;
        Ok(GpuListed {
            index,
            id: GpuId::new(device.uuid()?),
            name: device.name().ok(),
            pci: device.pci_info().ok().map(|pci| pci.bus_id),
            failure: None,
        })
    };
    ask().unwrap_or_else(|error| GpuListed {
        index,
        id: GpuId::new(format!("unknown-{index}")),
        name: None,
        pci: None,
        failure: Some(failures::of_gpu(index, &error)),
    })
}

/// How far the reading of a GPU is, for whoever waits for it: where it hangs, and what it has until then.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    at: &'static str,
    reading: GpuReading,
}

impl Progress {
    /// The row that is being read, or [`FIND`].
    pub fn at(&self) -> &'static str {
        self.lock().at
    }

    /// What has been read.
    pub fn so_far(&self) -> GpuReading {
        self.lock().reading.clone()
    }

    fn enter(&self, at: &'static str, reading: Option<&GpuReading>) {
        let mut state = self.lock();
        state.at = at;
        if let Some(reading) = reading {
            state.reading.clone_from(reading);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads one GPU but for the rows that are `stuck` in another thread. A failure is one of the GPU as a whole: an error
/// that is not of a field, or no field that can be read.
pub fn read(
    nvml: &Nvml,
    index: u32,
    procfs: &Path,
    stuck: &BTreeSet<&'static str>,
    progress: &Progress,
) -> Result<GpuReading, Failure> {
    progress.enter(FIND, None);
    let lost = |error: &NvmlError| failures::of_gpu(index, error);
    let device = nvml.device_by_index(index).map_err(|error| lost(&error))?;
    let look = Look { nvml, device: &device, procfs };
    let mut reading = GpuReading::default();
    for name in stuck {
        reading.missing.insert((*name).to_owned(), Absence::Hangs);
    }
    let mut first_error = None;
    for row in ROWS.iter().filter(|row| !stuck.contains(row.name)) {
        progress.enter(row.name, Some(&reading));
        match (row.read)(&look, &mut reading) {
            Ok(()) => {}
            Err(Lack::Nvml(error)) if failures::is_of_gpu(&error) => return Err(lost(&error)),
            Err(lack) => {
                lack.note(row.name, &mut reading);
                if let Lack::Nvml(error) = lack
                    && failures::of_field(&error).is_error()
                {
                    first_error.get_or_insert(error);
                }
            }
        }
    }
    match first_error {
        Some(error) if reading.is_empty() => Err(lost(&error)),
        _ => Ok(reading),
    }
}
