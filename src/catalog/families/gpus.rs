//! Rows about GPUs.

use std::borrow::Cow;

use super::super::Family;
use super::super::Kind::{self, Counter, Gauge};
use super::{b, count, flag};
use crate::catalog::Samples;
use crate::model::gpu::{Errors, GpuReading, RecoveryAction, ThrottleReason, XidTier};
use crate::model::snapshot::{GpuView, Snapshot, XidsView};

const GPU: &[&str] = &["gpu", "uuid"];

/// A row of one number of the last reading.
const fn reading(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: for<'a> fn(&'a Snapshot, &mut Samples<'a>),
) -> Family {
    Family { name, kind, labels: GPU, help, read }
}

/// The rows.
pub(super) static ROWS: &[Family] = &[
    Family {
        name: "longhaul_gpus_expected",
        kind: Gauge,
        labels: &[],
        help: "gpus.expected of the configuration.",
        read: |snapshot, out| {
            if let Some(expected) = snapshot.gpus.expected {
                out.add([], f64::from(expected));
            }
        },
    },
    Family {
        name: "longhaul_gpus_present",
        kind: Gauge,
        labels: &[],
        help: "GPUs that answer, of those that the driver shows to this process (a container sees the ones it was given). \
               Absent while NVML as a whole does not answer.",
        read: |snapshot, out| {
            if let Some(present) = snapshot.gpus.present.get() {
                out.add([], f64::from(present));
            }
        },
    },
    Family {
        name: "longhaul_gpu_up",
        kind: Gauge,
        labels: GPU,
        help: "1 when the GPU answers, 0 when it is lost, hangs, fails or is not listed any more. Absent while NVML as a \
               whole does not answer.",
        read: |snapshot, out| per_gpu(snapshot, out, |gpu| gpu.up.get().map(flag)),
    },
    Family {
        name: "longhaul_gpu_info",
        kind: Gauge,
        labels: &["gpu", "uuid", "name", "pci", "mig", "driver"],
        help: "Always 1: the product, its PCI address, whether it is divided (mig is enabled, disabled or unknown), and the \
               version of the driver.",
        read: |snapshot, out| {
            let driver = snapshot.gpus.driver.as_deref().unwrap_or_default();
            for gpu in &snapshot.gpus.list {
                let mig = match gpu.reading.as_ref().and_then(|reading| reading.mig) {
                    Some(true) => "enabled",
                    Some(false) => "disabled",
                    None => "unknown",
                };
                let [index, uuid] = labels(gpu);
                out.add([index, uuid, b(&gpu.name), b(&gpu.pci), b(mig), b(driver)], 1.0);
            }
        },
    },
    reading(
        "longhaul_gpu_utilization_ratio",
        Gauge,
        "Share of the last sample period in which a kernel ran on the GPU. 1 does not mean that it is used well.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.utilization),
    ),
    reading(
        "longhaul_gpu_memory_utilization_ratio",
        Gauge,
        "Share of the last sample period in which the GPU's memory was read or written.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.memory_utilization),
    ),
    reading(
        "longhaul_gpu_memory_used_bytes",
        Gauge,
        "Bytes of the GPU's memory that are allocated, without those in longhaul_gpu_memory_reserved_bytes.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.memory_used.map(count)),
    ),
    reading(
        "longhaul_gpu_memory_reserved_bytes",
        Gauge,
        "Bytes of the GPU's memory that driver and firmware keep for themselves.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.memory_reserved.map(count)),
    ),
    reading("longhaul_gpu_memory_total_bytes", Gauge, "Bytes of the GPU's memory.", |snapshot, out| {
        per_reading(snapshot, out, |reading| reading.memory_total.map(count))
    }),
    reading(
        "longhaul_gpu_power_watts",
        Gauge,
        "Power that the GPU draws; over the last second on GPUs since Ampere.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.power),
    ),
    reading(
        "longhaul_gpu_power_limit_watts",
        Gauge,
        "Power that the GPU may draw now: the smallest of all limits.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.power_limit),
    ),
    reading(
        "longhaul_gpu_energy_joules_total",
        Counter,
        "Energy that the GPU has used since the driver was loaded.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.energy),
    ),
    reading("longhaul_gpu_temperature_celsius", Gauge, "Temperature of the GPU's chip.", |snapshot, out| {
        per_reading(snapshot, out, |reading| reading.temperature)
    }),
    reading("longhaul_gpu_memory_temperature_celsius", Gauge, "Temperature of the GPU's memory.", |snapshot, out| {
        per_reading(snapshot, out, |reading| reading.memory_temperature)
    }),
    reading("longhaul_gpu_sm_clock_hertz", Gauge, "Clock of the GPU's multiprocessors.", |snapshot, out| {
        per_reading(snapshot, out, |reading| reading.sm_clock)
    }),
    reading(
        "longhaul_gpu_sm_clock_max_hertz",
        Gauge,
        "The highest clock that the GPU's multiprocessors can have.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.sm_clock_max),
    ),
    reading("longhaul_gpu_memory_clock_hertz", Gauge, "Clock of the GPU's memory.", |snapshot, out| {
        per_reading(snapshot, out, |reading| reading.memory_clock)
    }),
    Family {
        name: "longhaul_gpu_throttled",
        kind: Gauge,
        labels: &["gpu", "uuid", "reason"],
        help: "1 for each reason that holds the GPU's clocks down now, else 0, in NVML's words. gpu_idle and sw_power_cap \
               are ordinary.",
        read: |snapshot, out| {
            each(snapshot, |gpu, reading| {
                for reason in reading.throttle.iter().flat_map(|_| ThrottleReason::ALL) {
                    let active = reading.throttle.as_ref().is_some_and(|active| active.contains(reason));
                    let [index, uuid] = labels(gpu);
                    out.add([index, uuid, b(reason.as_str())], flag(active));
                }
            });
        },
    },
    reading(
        "longhaul_gpu_pcie_receive_bytes_per_second",
        Gauge,
        "What the GPU received over PCIe in the 20 ms before it was asked.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.pcie_receive),
    ),
    reading(
        "longhaul_gpu_pcie_transmit_bytes_per_second",
        Gauge,
        "What the GPU sent over PCIe in the 20 ms before it was asked.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.pcie_transmit),
    ),
    reading(
        "longhaul_gpu_nvlink_receive_bytes_total",
        Counter,
        "Data that the GPU received over all its NVLinks since the driver was loaded.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.nvlink_receive.map(count)),
    ),
    reading(
        "longhaul_gpu_nvlink_transmit_bytes_total",
        Counter,
        "Data that the GPU sent over all its NVLinks since the driver was loaded.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.nvlink_transmit.map(count)),
    ),
    Family {
        name: "longhaul_gpu_ecc_errors_total",
        kind: Counter,
        labels: &["gpu", "uuid", "type"],
        help: "Memory errors since the driver was loaded or the GPU was reset; type is corrected or uncorrected.",
        read: |snapshot, out| per_error(snapshot, out, |reading| reading.ecc),
    },
    Family {
        name: "longhaul_gpu_ecc_lifetime_errors_total",
        kind: Counter,
        labels: &["gpu", "uuid", "type"],
        help: "Memory errors in the GPU's life; type is corrected or uncorrected.",
        read: |snapshot, out| per_error(snapshot, out, |reading| reading.ecc_lifetime),
    },
    Family {
        name: "longhaul_gpu_remapped_rows",
        kind: Gauge,
        labels: &["gpu", "uuid", "type"],
        help: "Rows of the GPU's memory that were replaced by spare ones, by the type of error that made it necessary.",
        read: |snapshot, out| per_error(snapshot, out, |reading| reading.remapped_rows),
    },
    reading(
        "longhaul_gpu_row_remap_pending",
        Gauge,
        "1 when a row of the GPU's memory waits for the next reset to be replaced, else 0.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.remap_pending.map(flag)),
    ),
    reading(
        "longhaul_gpu_row_remap_failed",
        Gauge,
        "1 when a row of the GPU's memory could not be replaced, else 0: the GPU is to be replaced.",
        |snapshot, out| per_reading(snapshot, out, |reading| reading.remap_failed.map(flag)),
    ),
    Family {
        name: "longhaul_gpu_recovery_action",
        kind: Gauge,
        labels: &["gpu", "uuid", "action"],
        help: "1 for what the driver wants done to the GPU, else 0. Absent with drivers that do not say (before 565).",
        read: |snapshot, out| {
            each(snapshot, |gpu, reading| {
                for action in reading.recovery.iter().flat_map(|_| RecoveryAction::ALL) {
                    let [index, uuid] = labels(gpu);
                    out.add([index, uuid, b(action.as_str())], flag(reading.recovery == Some(*action)));
                }
            });
        },
    },
    Family {
        name: "longhaul_gpu_xid_errors_total",
        kind: Counter,
        labels: GPU,
        help: "Xid events of the GPU since Longhaul started, from 0. Absent where they cannot be heard.",
        read: |snapshot, out| {
            per_gpu(snapshot, out, |gpu| gpu.xids.known().map(|xids| count(xids.by_code.values().sum())));
        },
    },
    Family {
        name: "longhaul_gpu_xid_errors_by_code_total",
        kind: Counter,
        labels: &["gpu", "uuid", "xid"],
        help: "Xid events of the GPU since Longhaul started, by code, whichever it is.",
        read: |snapshot, out| {
            for (gpu, xids) in heard(snapshot) {
                for (code, number) in &xids.by_code {
                    let [index, uuid] = labels(gpu);
                    out.add([index, uuid, Cow::Owned(code.0.to_string())], count(*number));
                }
            }
        },
    },
    Family {
        name: "longhaul_gpu_last_xid_timestamp_seconds",
        kind: Gauge,
        labels: &["gpu", "uuid", "tier"],
        help: "Unix time of the GPU's last Xid event by tier: critical (48 62 64 74 79 95 119 120), warning (94), \
               application (13 31 43), other. Absent before the first.",
        read: |snapshot, out| per_tier(snapshot, out, |xids, tier| Some(xids.last.get(&tier)?.at)),
    },
    Family {
        name: "longhaul_gpu_last_xid_code",
        kind: Gauge,
        labels: &["gpu", "uuid", "tier"],
        help: "The code of the GPU's last Xid event by tier. Absent before the first.",
        read: |snapshot, out| per_tier(snapshot, out, |xids, tier| Some(count(xids.last.get(&tier)?.code))),
    },
    reading("longhaul_gpu_processes", Gauge, "Processes that compute on the GPU, at most 64.", |snapshot, out| {
        per_reading(snapshot, out, |reading| {
            reading.processes.as_ref().map(|list| count(u64::try_from(list.len()).unwrap_or(0)))
        });
    }),
    Family {
        name: "longhaul_gpu_process_memory_bytes",
        kind: Gauge,
        labels: &["gpu", "uuid", "pid", "name"],
        help: "Bytes of the GPU's memory that a process has. pid is the host's; name is unknown where the host's processes \
               cannot be seen, as in a container without its process namespace. Absent where NVML does not know.",
        read: |snapshot, out| {
            each(snapshot, |gpu, reading| {
                for process in reading.processes.iter().flatten() {
                    if let Some(memory) = process.memory {
                        let [index, uuid] = labels(gpu);
                        let name = process.name.as_deref().unwrap_or("unknown");
                        out.add([index, uuid, Cow::Owned(process.pid.to_string()), b(name)], count(memory));
                    }
                }
            });
        },
    },
    Family {
        name: "longhaul_gpu_mig_memory_used_bytes",
        kind: Gauge,
        labels: &["gpu", "uuid", "mig_uuid"],
        help: "Bytes that are allocated of the memory of a part (MIG instance) of the GPU with that uuid. They are in \
               longhaul_gpu_memory_used_bytes too.",
        read: |snapshot, out| per_instance(snapshot, out, |instance| instance.memory_used),
    },
    Family {
        name: "longhaul_gpu_mig_memory_total_bytes",
        kind: Gauge,
        labels: &["gpu", "uuid", "mig_uuid"],
        help: "Bytes of memory of a part (MIG instance) of the GPU with that uuid.",
        read: |snapshot, out| per_instance(snapshot, out, |instance| instance.memory_total),
    },
    Family {
        name: "longhaul_gpu_field_errors_total",
        kind: Counter,
        labels: &["gpu", "uuid", "field", "kind"],
        help: "Polls in which a field of the GPU could not be read although it should be there, by kind: no_permission, \
               unreadable (a value that is none), hangs, failed.",
        read: |snapshot, out| {
            for gpu in &snapshot.gpus.list {
                for (field, kinds) in &gpu.field_errors {
                    for (kind, number) in kinds {
                        let [index, uuid] = labels(gpu);
                        out.add([index, uuid, b(field), b(kind.as_str())], count(*number));
                    }
                }
            }
        },
    },
];

fn labels(gpu: &GpuView) -> [Cow<'_, str>; 2] {
    [Cow::Owned(gpu.index.to_string()), b(gpu.uuid.as_str())]
}

fn per_gpu<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&GpuView) -> Option<f64>) {
    for gpu in &snapshot.gpus.list {
        if let Some(value) = read(gpu) {
            out.add(labels(gpu), value);
        }
    }
}

/// The GPUs that answer.
fn each<'a>(snapshot: &'a Snapshot, mut what: impl FnMut(&'a GpuView, &'a GpuReading)) {
    for gpu in &snapshot.gpus.list {
        if let Some(reading) = &gpu.reading {
            what(gpu, reading);
        }
    }
}

fn per_reading<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&GpuReading) -> Option<f64>) {
    each(snapshot, |gpu, reading| {
        if let Some(value) = read(reading) {
            out.add(labels(gpu), value);
        }
    });
}

fn per_error<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&GpuReading) -> Option<Errors>) {
    each(snapshot, |gpu, reading| {
        if let Some(errors) = read(reading) {
            for (kind, number) in [("corrected", errors.corrected), ("uncorrected", errors.uncorrected)] {
                let [index, uuid] = labels(gpu);
                out.add([index, uuid, b(kind)], count(number));
            }
        }
    });
}

fn per_instance<'a>(
    snapshot: &'a Snapshot,
    out: &mut Samples<'a>,
    read: fn(&crate::model::gpu::GpuInstance) -> Option<u64>,
) {
    each(snapshot, |gpu, reading| {
        for instance in &reading.instances {
            if let Some(value) = read(instance) {
                let [index, uuid] = labels(gpu);
                out.add([index, uuid, b(&instance.uuid)], count(value));
            }
        }
    });
}

fn heard(snapshot: &Snapshot) -> impl Iterator<Item = (&GpuView, &XidsView)> {
    snapshot.gpus.list.iter().filter_map(|gpu| Some((gpu, gpu.xids.known()?)))
}

fn per_tier<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&XidsView, XidTier) -> Option<f64>) {
    for (gpu, xids) in heard(snapshot) {
        for tier in XidTier::ALL {
            if let Some(value) = read(xids, *tier) {
                let [index, uuid] = labels(gpu);
                out.add([index, uuid, b(tier.as_str())], value);
            }
        }
    }
}
