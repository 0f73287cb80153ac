//! GPUs as outputs see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::gpu::{Absence, GpuReading, Xid, XidTier};
use crate::model::{Answer, GpuId};

/// All GPUs of the machine, as far as NVML shows them to us.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpusView {
    /// `gpus.expected`, where configured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expected: Option<u32>,
    /// How many answer.
    pub present: Answer<u32>,
    /// The version of the driver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// In NVML's order, then those that it does not list any more.
    pub list: Vec<GpuView>,
}

impl Default for GpusView {
    fn default() -> Self {
        Self { expected: None, present: Answer::unknown("NVML has not been asked yet"), driver: None, list: Vec::new() }
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuView {
    /// NVML's index.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuId,
    /// The product; empty where it was never read.
    pub name: String,
    /// Its address on the PCI bus; empty where it was never read.
    pub pci: String,
    /// Whether it answers; unknown while NVML as a whole does not.
    pub up: Answer<bool>,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Since when it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub down_since_at: Option<f64>,
    /// What it said last, while it answers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reading: Option<GpuReading>,
    /// How often which field could not be read although it should be there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub field_errors: BTreeMap<String, BTreeMap<Absence, u64>>,
    /// Its Xid events since we started.
    pub xids: Answer<XidsView>,
}

/// Xid events of one GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct XidsView {
    /// By code.
    pub by_code: BTreeMap<Xid, u64>,
    /// By tier: the last.
    pub last: BTreeMap<XidTier, LastXid>,
}

/// The last Xid of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LastXid {
    /// Its code.
    pub code: u64,
    /// When.
    pub at: f64,
}

impl GpuView {
    /// What is wrong with it that began at that moment or later: it does not answer, or had a critical Xid. In words, as
    /// `GPU 3 (does not answer)`.
    pub fn trouble_since(&self, moment: f64) -> Option<String> {
        if self.up.get() == Some(false) && self.down_since_at.is_some_and(|at| at >= moment) {
            return Some(format!("GPU {} does not answer", self.index));
        }
        let critical = self.xids.known()?.last.get(&XidTier::Critical)?;
        (critical.at >= moment).then(|| format!("GPU {} had Xid {}", self.index, critical.code))
    }
}

impl GpusView {
    /// [`GpuView::trouble_since`] of all.
    pub fn trouble_since(&self, moment: f64) -> Option<String> {
        let all: Vec<String> = self.list.iter().filter_map(|gpu| gpu.trouble_since(moment)).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}
