//! One session with the driver, as the scheduler sees it: the loaded library, the GPUs in it, and which calls of which
//! GPU do not come back.
//!
//! A call that hangs keeps its thread, and the GPU gets another one that leaves that call out. So a hang costs one field
//! of one GPU. Twice at most: a GPU on which a second call hangs, or that cannot even be found, does not answer, and is
//! left alone until a call returns. (The driver often has one lock for all; then every GPU goes this way.)

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use nvml_wrapper::Nvml;

use crate::model::gpu::{GpuInventory, GpuListed};
use crate::model::{GpuId, Time};
use crate::sources::gpus::{FIND, Progress};

/// A lane's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// NVML as a whole.
    Nvml,
    /// One GPU of a session; another number after a call hung.
    Gpu { session: u32, index: u32, number: u32 },
    /// A thread that waits for events, which is no lane and has things to say all the same. Numbered over all sessions.
    Events { number: u32 },
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvml => f.write_str("nvml"),
            Self::Gpu { index, .. } => write!(f, "gpu {index}"),
            Self::Events { .. } => f.write_str("gpu events"),
        }
    }
}

/// What is known of one GPU of the session.
pub(super) struct Gpu {
    pub(super) listed: GpuListed,
    /// Of its lane.
    pub(super) number: u32,
    /// A call is under way in that lane.
    pub(super) busy: bool,
    pub(super) progress: Arc<Progress>,
    /// Calls that do not come back, by the number of the lane that they are in.
    pub(super) stuck: BTreeMap<u32, &'static str>,
    /// The last reading failed.
    pub(super) failed: bool,
}

impl Gpu {
    fn new(listed: GpuListed) -> Self {
        Self {
            failed: listed.failure.is_some(),
            listed,
            number: 0,
            busy: false,
            progress: Arc::default(),
            stuck: BTreeMap::new(),
        }
    }

    /// Who it is.
    pub(super) fn id(&self) -> &GpuId {
        &self.listed.id
    }

    /// It is left alone.
    pub(super) fn hangs(&self) -> bool {
        self.stuck.len() > 1 || self.stuck.values().any(|at| *at == FIND)
    }

    /// What is not asked for.
    pub(super) fn left_out(&self) -> BTreeSet<&'static str> {
        self.stuck.values().copied().collect()
    }
}

/// A session.
pub(super) struct Session {
    pub(super) number: u32,
    pub(super) nvml: Arc<Nvml>,
    pub(super) opened: Time,
    pub(super) inventory: GpuInventory,
    pub(super) gpus: BTreeMap<u32, Gpu>,
    /// Dropped, it ends the thread that waits for events.
    pub(super) events: Option<Sender<()>>,
}

impl Session {
    /// Nothing has been read in it yet.
    pub(super) fn new(number: u32, nvml: Nvml, opened: Time) -> Self {
        Self {
            number,
            nvml: Arc::new(nvml),
            opened,
            inventory: GpuInventory::default(),
            gpus: BTreeMap::new(),
            events: None,
        }
    }

    /// Takes a list; a GPU that stays keeps what is known of it.
    pub(super) fn take(&mut self, inventory: GpuInventory) {
        let mut before = std::mem::take(&mut self.gpus);
        for listed in &inventory.gpus {
            let kept = before.remove(&listed.index).filter(|gpu| gpu.listed.id == listed.id);
            let gpu = kept.map(|gpu| Gpu { listed: listed.clone(), ..gpu });
            self.gpus.insert(listed.index, gpu.unwrap_or_else(|| Gpu::new(listed.clone())));
        }
        self.inventory = inventory;
    }

    /// The GPU of a lane, if it is of this session.
    pub(super) fn of_lane(&mut self, lane: Lane) -> Option<(&mut Gpu, u32)> {
        let Lane::Gpu { session, index, number } = lane else { return None };
        if session != self.number {
            return None;
        }
        Some((self.gpus.get_mut(&index)?, number))
    }
}
