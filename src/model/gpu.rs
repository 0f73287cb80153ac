//! What NVML says of GPUs, in base units and by meaning.
//!
//! Separate from how it is asked for: nothing here knows NVML's calls. A value that is not there is `None`, and
//! [`GpuReading::missing`] has the reason under the name of its field; 0 is only ever a measured 0.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Failure, GpuId, Time};

/// What NVML lists, complete: a GPU that is not in it any more is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuInventory {
    /// The version of the driver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// In NVML's order.
    pub gpus: Vec<GpuListed>,
}

/// One GPU of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuListed {
    /// NVML's index: may be another one after a reboot.
    pub index: u32,
    /// Its UUID, which stays; of one that cannot be asked (it is lost already) a name by its index.
    pub id: GpuId,
    /// The product.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Its address on the PCI bus.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pci: Option<String>,
    /// Why not even its UUID can be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// What one poll of one GPU says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuReading {
    /// Share of the last sample period in which a kernel ran, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Share of the last sample period in which memory was read or written, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_utilization: Option<f64>,
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<u64>,
    /// Bytes that are allocated, without those reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<u64>,
    /// Bytes that driver and firmware keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reserved: Option<u64>,
    /// Watts drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<f64>,
    /// Watts allowed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit: Option<f64>,
    /// Counter: joules since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
    /// Degrees Celsius of the chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Degrees Celsius of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_temperature: Option<f64>,
    /// Hertz of the multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock: Option<f64>,
    /// The most Hertz that they can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_max: Option<f64>,
    /// Hertz of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock: Option<f64>,
    /// What holds the clocks down now; empty for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<BTreeSet<ThrottleReason>>,
    /// Bytes per second over 20 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_receive: Option<f64>,
    /// Bytes per second over 20 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_transmit: Option<f64>,
    /// Counter: bytes of data over all links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_receive: Option<u64>,
    /// Counter: bytes of data over all links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_transmit: Option<u64>,
    /// Memory errors since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc: Option<Errors>,
    /// Memory errors in the GPU's life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_lifetime: Option<Errors>,
    /// Rows of memory that were replaced, by what made it necessary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remapped_rows: Option<Errors>,
    /// A row waits to be replaced at the next reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_pending: Option<bool>,
    /// A row could not be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_failed: Option<bool>,
    /// What the driver wants done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryAction>,
    /// Compute processes, at most a few dozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<GpuProcess>>,
    /// It is divided (MIG).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<bool>,
    /// Its parts, while it is divided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<GpuInstance>,
    /// Why a field is not there, by the field's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, Absence>,
}

impl GpuReading {
    /// Whether nothing could be read at all.
    pub fn is_empty(&self) -> bool {
        *self == Self { missing: self.missing.clone(), ..Self::default() }
    }
}

/// A count of errors that were corrected and of those that could not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Corrected.
    pub corrected: u64,
    /// Not corrected: data was lost.
    pub uncorrected: u64,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// As the host numbers it.
    pub pid: u32,
    /// Its command; absent where the host's processes cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Bytes; absent where NVML does not know.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory: Option<u64>,
}

/// A part of a divided GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInstance {
    /// Its own UUID.
    pub uuid: String,
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_total: Option<u64>,
    /// Bytes that are allocated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_used: Option<u64>,
}

/// Why a field of a reading is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Absence {
    /// This GPU does not have it.
    NotSupported,
    /// NVML has no value for it now.
    NotAvailable,
    /// The driver is older than it.
    OldDriver,
    /// This user may not read it.
    NoPermission,
    /// A value that nothing can be made of, as one that is newer than this program.
    Unreadable,
    /// The call does not come back.
    Hangs,
    /// NVML failed.
    Failed,
}

impl Absence {
    /// Whether something is wrong, or it is simply not there.
    pub const fn is_error(self) -> bool {
        matches!(self, Self::NoPermission | Self::Unreadable | Self::Hangs | Self::Failed)
    }

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSupported => "not_supported",
            Self::NotAvailable => "not_available",
            Self::OldDriver => "old_driver",
            Self::NoPermission => "no_permission",
            Self::Unreadable => "unreadable",
            Self::Hangs => "hangs",
            Self::Failed => "failed",
        }
    }
}

macro_rules! labels {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $type { $($(#[$variant_doc])* #[serde(rename = $label)] $variant,)* }

        impl $type {
            /// All values, for the state set.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The label value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
        }
    };
}

labels! {
    /// What holds the clocks down, in NVML's words.
    ThrottleReason {
        /// Nothing runs.
        GpuIdle = "gpu_idle",
        /// Somebody set the clocks.
        ApplicationsClocksSetting = "applications_clocks_setting",
        /// The power limit.
        SwPowerCap = "sw_power_cap",
        /// Hardware halves the clocks, or worse: heat, power brake, or too much power drawn.
        HwSlowdown = "hw_slowdown",
        /// Another GPU of its sync boost group.
        SyncBoost = "sync_boost",
        /// Too hot, by the driver.
        SwThermalSlowdown = "sw_thermal_slowdown",
        /// Too hot, by the hardware.
        HwThermalSlowdown = "hw_thermal_slowdown",
        /// The power supply asks for it.
        HwPowerBrakeSlowdown = "hw_power_brake_slowdown",
        /// The clock of the display.
        DisplayClockSetting = "display_clock_setting",
    }
}

labels! {
    /// What the driver wants done to a GPU.
    RecoveryAction {
        /// Nothing.
        None = "none",
        /// Reset it.
        GpuReset = "gpu_reset",
        /// Reboot the machine.
        NodeReboot = "node_reboot",
        /// Stop what uses it from other GPUs.
        DrainP2p = "drain_p2p",
        /// Stop what uses it from other GPUs, and reset it.
        DrainAndReset = "drain_and_reset",
        /// Recover the IMEX domain.
        RecoverImexDomain = "recover_imex_domain",
        /// Reset its PCIe bus.
        BusReset = "bus_reset",
        /// Reboot the system.
        SystemReboot = "system_reboot",
    }
}

labels! {
    /// How bad an Xid is.
    XidTier {
        /// The GPU, or the memory of what ran on it, is lost.
        Critical = "critical",
        /// Contained: the program that hit it is lost, the GPU goes on.
        Warning = "warning",
        /// Most often a fault of the program that ran.
        Application = "application",
        /// Any other.
        Other = "other",
    }
}

impl XidTier {
    /// The tier of a code.
    pub const fn of(Xid(code): Xid) -> Self {
        match code {
            // Double-bit ECC, remap failed, uncontained, off the bus, GSP and firmware time-outs, NVLink.
            48 | 62 | 64 | 74 | 79 | 95 | 119 | 120 => Self::Critical,
            // Contained ECC error.
            94 => Self::Warning,
            // Graphics engine exception, memory page fault, stopped processing.
            13 | 31 | 43 => Self::Application,
            _ => Self::Other,
        }
    }
}

/// The code of an Xid event. As text where it is a key: JSON has no other keys, and what is read through an untagged or
/// flattened type is not turned back into a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Xid(pub u64);

impl From<Xid> for String {
    fn from(xid: Xid) -> Self {
        xid.0.to_string()
    }
}

impl TryFrom<String> for Xid {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

/// The Xid events that one worker process has seen, by GPU. Absolute, so that a line that is lost costs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidCounts {
    /// Since when it counts: another moment is another worker, whose counts come on top.
    pub since: Time,
    /// Every GPU that reports Xids, those without any included.
    pub gpus: BTreeMap<GpuId, BTreeMap<Xid, XidCount>>,
    /// Why another one does not report them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub missing: BTreeMap<GpuId, Absence>,
}

/// Of one code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidCount {
    /// How often.
    pub count: u64,
    /// The last one.
    pub last: Time,
}
