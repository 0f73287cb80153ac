//! The table of what is read of a GPU: a row is a name, the NVML calls behind it, and how a value becomes a meaning.
//!
//! Separate so that a row can be left out: a call that hangs is skipped from then on, while all other rows of the same
//! GPU are read. A row that fails leaves its part of the reading absent with a reason under the row's name. The order is
//! what matters most first, since what was read before a hang is reported.
//!
//! NVML's "not available" is all bits set, in a width that differs from call to call; as a number it would be 1.8e19
//! bytes, so every value goes through [`known`] or [`known_wide`].

use std::collections::BTreeSet;
use std::path::Path;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::field_id as id;

use super::raw::{self, ALL_LINKS, Query};
use super::{failures, processes};
use crate::model::gpu::{Absence, Errors, GpuInstance, GpuProcess, GpuReading, RecoveryAction, ThrottleReason};

/// Compute processes of one GPU that are listed: with MPS it can have 48 clients.
const MOST_PROCESSES: usize = 64;

/// A GPU has at most seven instances today.
const MOST_INSTANCES: u32 = 16;

/// What a row reads from.
pub(super) struct Look<'a> {
    pub(super) nvml: &'a Nvml,
    pub(super) device: &'a Device<'a>,
    pub(super) procfs: &'a Path,
}

/// One row.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) read: fn(&Look<'_>, &mut GpuReading) -> Result<(), Lack>,
}

/// Why a row has no value.
#[derive(Debug)]
pub(super) enum Lack {
    /// NVML says so.
    Nvml(NvmlError),
    /// NVML gave one that is none.
    Value(Absence),
}

impl From<NvmlError> for Lack {
    fn from(error: NvmlError) -> Self {
        Self::Nvml(error)
    }
}

/// All rows.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "utilization",
        read: |look, reading| {
            let rates = look.device.utilization_rates()?;
            reading.utilization = Some(share(rates.gpu)?);
            reading.memory_utilization = share(rates.memory).ok();
            Ok(())
        },
    },
    Row {
        name: "memory",
        read: |look, reading| {
            let memory = look.device.memory_info()?;
            reading.memory_total = Some(known_wide(memory.total)?);
            reading.memory_used = Some(known_wide(memory.used)?);
            reading.memory_reserved = known_wide(memory.reserved).ok();
            Ok(())
        },
    },
    Row {
        name: "power",
        read: |look, reading| {
            reading.power = Some(milli(look.device.power_usage()?)?);
            Ok(())
        },
    },
    Row {
        name: "power_limit",
        read: |look, reading| {
            reading.power_limit = Some(milli(look.device.enforced_power_limit()?)?);
            Ok(())
        },
    },
    Row {
        name: "temperature",
        read: |look, reading| {
            reading.temperature = Some(f64::from(known(look.device.temperature(TemperatureSensor::Gpu)?)?));
            Ok(())
        },
    },
    Row {
        name: "sm_clock",
        read: |look, reading| {
            reading.sm_clock = Some(mega(look.device.clock_info(Clock::SM)?)?);
            Ok(())
        },
    },
    Row {
        name: "sm_clock_max",
        read: |look, reading| {
            reading.sm_clock_max = Some(mega(look.device.max_clock_info(Clock::SM)?)?);
            Ok(())
        },
    },
    Row {
        name: "memory_clock",
        read: |look, reading| {
            reading.memory_clock = Some(mega(look.device.clock_info(Clock::Memory)?)?);
            Ok(())
        },
    },
    Row {
        name: "throttle",
        read: |look, reading| {
            reading.throttle = Some(throttle(look.device.current_throttle_reasons()?));
            Ok(())
        },
    },
    Row { name: "counters", read: counters },
    Row { name: "processes", read: compute_processes },
    Row { name: "mig", read: mig },
    // Each of the two measures for 20 ms.
    Row {
        name: "pcie_receive",
        read: |look, reading| {
            reading.pcie_receive = Some(kilo(look.device.pcie_throughput(PcieUtilCounter::Receive)?)?);
            Ok(())
        },
    },
    Row {
        name: "pcie_transmit",
        read: |look, reading| {
            reading.pcie_transmit = Some(kilo(look.device.pcie_throughput(PcieUtilCounter::Send)?)?);
            Ok(())
        },
    },
];

/// All that comes from field values, in one call.
fn counters(look: &Look<'_>, reading: &mut GpuReading) -> Result<(), Lack> {
    let query = |field| Query { field, scope: 0 };
    let on_all_links = |field| Query { field, scope: ALL_LINKS };
    let values = raw::field_values(
        look.nvml,
        look.device,
        &[
            query(id::NVML_FI_DEV_MEMORY_TEMP),
            query(id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION),
            on_all_links(id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
            on_all_links(id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX),
            query(id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
            query(id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL),
            query(id::NVML_FI_DEV_ECC_SBE_AGG_TOTAL),
            query(id::NVML_FI_DEV_ECC_DBE_AGG_TOTAL),
            query(id::NVML_FI_DEV_REMAPPED_COR),
            query(id::NVML_FI_DEV_REMAPPED_UNC),
            query(id::NVML_FI_DEV_REMAPPED_PENDING),
            query(id::NVML_FI_DEV_REMAPPED_FAILURE),
            query(id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        ],
    )?;
    let mut values = values.into_iter().map(|value| value.map_err(Lack::from).and_then(known_wide));
    let mut next = || values.next().unwrap_or(Err(Lack::Value(Absence::NotAvailable)));
    #[allow(clippy::cast_precision_loss)]
    let float = |value: u64| value as f64;
    let kib = |value: u64| value.saturating_mul(1024);

    let mut parts = Parts(reading);
    let value = next();
    parts.put("memory_temperature", value, |reading, degrees| reading.memory_temperature = Some(float(degrees)))?;
    let value = next();
    parts.put("energy", value, |reading, millijoules| reading.energy = Some(float(millijoules) / 1e3))?;
    let value = next();
    parts.put("nvlink_receive", value, |reading, total| reading.nvlink_receive = Some(kib(total)))?;
    let value = next();
    parts.put("nvlink_transmit", value, |reading, total| reading.nvlink_transmit = Some(kib(total)))?;
    let value = both(next(), next());
    parts.put("ecc", value, |reading, errors| reading.ecc = Some(errors))?;
    let value = both(next(), next());
    parts.put("ecc_lifetime", value, |reading, errors| reading.ecc_lifetime = Some(errors))?;
    let value = both(next(), next());
    parts.put("remapped_rows", value, |reading, rows| reading.remapped_rows = Some(rows))?;
    let value = next();
    parts.put("remap_pending", value, |reading, pending| reading.remap_pending = Some(pending != 0))?;
    let value = next();
    parts.put("remap_failed", value, |reading, failed| reading.remap_failed = Some(failed != 0))?;
    let value = next().and_then(recovery);
    parts.put("recovery", value, |reading, action| reading.recovery = Some(action))
}

/// The parts of a row that fail one by one.
struct Parts<'a>(&'a mut GpuReading);

impl Parts<'_> {
    /// A value, or why there is none. Only what is an error of the whole GPU goes on as one.
    fn put<T>(&mut self, name: &str, value: Result<T, Lack>, set: impl FnOnce(&mut GpuReading, T)) -> Result<(), Lack> {
        match value {
            Ok(value) => set(self.0, value),
            Err(Lack::Nvml(error)) if failures::is_of_gpu(&error) => return Err(error.into()),
            Err(lack) => lack.note(name, self.0),
        }
        Ok(())
    }
}

impl Lack {
    /// Notes the reason.
    pub(super) fn note(&self, name: &str, reading: &mut GpuReading) {
        let absence = match self {
            Self::Nvml(error) => failures::of_field(error),
            Self::Value(absence) => *absence,
        };
        reading.missing.insert(name.to_owned(), absence);
    }
}

fn both(corrected: Result<u64, Lack>, uncorrected: Result<u64, Lack>) -> Result<Errors, Lack> {
    Ok(Errors { corrected: corrected?, uncorrected: uncorrected? })
}

fn recovery(value: u64) -> Result<RecoveryAction, Lack> {
    let action = usize::try_from(value).ok().and_then(|value| RecoveryAction::ALL.get(value));
    action.copied().ok_or(Lack::Value(Absence::Unreadable))
}

fn compute_processes(look: &Look<'_>, reading: &mut GpuReading) -> Result<(), Lack> {
    let list = raw::processes(look.nvml, look.device, MOST_PROCESSES)?;
    let visible = !list.is_empty() && processes::are_the_hosts(look.procfs);
    let process = |pid, memory| GpuProcess {
        pid,
        name: if visible { processes::comm(look.procfs, pid) } else { None },
        memory: known_wide(memory).ok(),
    };
    // One that runs on several instances of a divided GPU is listed for each: a process is one series.
    let mut all = std::collections::BTreeMap::<u32, GpuProcess>::new();
    for entry in list {
        let new = process(entry.pid, entry.usedGpuMemory);
        let sum = all.get(&entry.pid).and_then(|one| Some(one.memory?.saturating_add(new.memory?)));
        let memory = if all.contains_key(&entry.pid) { sum } else { new.memory };
        all.insert(entry.pid, GpuProcess { memory, ..new });
    }
    reading.processes = Some(all.into_values().collect());
    Ok(())
}

fn mig(look: &Look<'_>, reading: &mut GpuReading) -> Result<(), Lack> {
    let mode = look.device.mig_mode()?.current;
    reading.mig = Some(mode != 0);
    if mode == 0 {
        return Ok(());
    }
    let most = look.device.mig_device_count()?.min(MOST_INSTANCES);
    for index in 0..most {
        // The places of instances have gaps.
        let instance = match look.device.mig_device_by_index(index) {
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
            other => other?,
        };
        let memory = instance.memory_info();
        if let Err(error) = &memory
            && failures::is_of_gpu(error)
        {
            return Err(NvmlError::GpuLost.into());
        }
        let memory = memory.ok();
        reading.instances.push(GpuInstance {
            uuid: instance.uuid()?,
            memory_total: memory.as_ref().and_then(|memory| known_wide(memory.total).ok()),
            memory_used: memory.as_ref().and_then(|memory| known_wide(memory.used).ok()),
        });
    }
    Ok(())
}

fn throttle(reasons: ThrottleReasons) -> BTreeSet<ThrottleReason> {
    use ThrottleReason as Ours;
    [
        (ThrottleReasons::GPU_IDLE, Ours::GpuIdle),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, Ours::ApplicationsClocksSetting),
        (ThrottleReasons::SW_POWER_CAP, Ours::SwPowerCap),
        (ThrottleReasons::HW_SLOWDOWN, Ours::HwSlowdown),
        (ThrottleReasons::SYNC_BOOST, Ours::SyncBoost),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Ours::SwThermalSlowdown),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Ours::HwThermalSlowdown),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Ours::HwPowerBrakeSlowdown),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, Ours::DisplayClockSetting),
    ]
    .into_iter()
    .filter(|(bit, _)| reasons.contains(*bit))
    .map(|(_, reason)| reason)
    .collect()
}

/// NVML's "not available" is all bits set.
fn known(value: u32) -> Result<u32, Lack> {
    if value == u32::MAX { Err(Lack::Value(Absence::NotAvailable)) } else { Ok(value) }
}

/// Also where a call widened a narrow one.
fn known_wide(value: u64) -> Result<u64, Lack> {
    let none = value == u64::MAX || value == u64::from(u32::MAX);
    if none { Err(Lack::Value(Absence::NotAvailable)) } else { Ok(value) }
}

fn share(percent: u32) -> Result<f64, Lack> {
    match known(percent)? {
        percent @ 0..=100 => Ok(f64::from(percent) / 100.0),
        _ => Err(Lack::Value(Absence::Unreadable)),
    }
}

fn milli(value: u32) -> Result<f64, Lack> {
    Ok(f64::from(known(value)?) / 1e3)
}

fn mega(value: u32) -> Result<f64, Lack> {
    Ok(f64::from(known(value)?) * 1e6)
}

/// PCIe throughput is in KB/s, and NVML means 1024 by it nowhere.
fn kilo(value: u32) -> Result<f64, Lack> {
    Ok(f64::from(known(value)?) * 1e3)
}
