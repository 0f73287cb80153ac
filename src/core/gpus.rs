//! GPUs: which there are and were, what each says, and the Xids that are counted on over restarts of the worker.
//!
//! A GPU that was seen once stays in the list: one that the driver does not show any more is lost, not forgotten. While
//! NVML as a whole does not answer, nothing is known of any GPU, which is another thing than eight lost ones.

mod counters;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::gpu::{Absence, GpuInventory, GpuListed, GpuReading, Xid, XidCount, XidCounts, XidTier};
use crate::model::snapshot::{GpuView, GpusView, LastXid, XidsView};
use crate::model::{Answer, GpuId, Time};
use counters::Counters;

/// A reading grows old after so many polls: one that is late is no GPU that does not answer.
const STALE_POLLS: u32 = 3;

/// And not before this, whatever the polls.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// All GPUs seen so far.
#[derive(Debug, Default)]
pub struct Gpus {
    by_id: BTreeMap<GpuId, Gpu>,
    driver: Option<String>,
    /// Since when NVML lists GPUs, or why not.
    nvml: Option<Result<(), String>>,
    xids_since: Option<Time>,
}

#[derive(Debug)]
struct Gpu {
    listed: GpuListed,
    /// In the last list.
    is_listed: bool,
    reading: Option<(GpuReading, Time)>,
    failure: Option<String>,
    down_since: Option<Time>,
    counters: Counters,
    field_errors: BTreeMap<String, BTreeMap<Absence, u64>>,
    /// Of workers that are gone.
    xids_before: BTreeMap<Xid, XidCount>,
    /// Of the worker that runs.
    xids_now: BTreeMap<Xid, XidCount>,
    xids: Option<Result<(), Absence>>,
}

impl Gpu {
    fn new(listed: GpuListed) -> Self {
        Self {
            listed,
            is_listed: true,
            reading: None,
            failure: None,
            down_since: None,
            counters: Counters::default(),
            field_errors: BTreeMap::new(),
            xids_before: BTreeMap::new(),
            xids_now: BTreeMap::new(),
            xids: None,
        }
    }

    fn down(&mut self, reason: &str, at: Time) {
        self.failure = Some(reason.to_owned());
        self.reading = None;
        self.down_since.get_or_insert(at);
    }

    /// Each code over all workers.
    fn all_xids(&self) -> BTreeMap<Xid, XidCount> {
        let mut sum = self.xids_before.clone();
        for (code, now) in &self.xids_now {
            let before = sum.get(code).map_or(0, |before| before.count);
            sum.insert(*code, XidCount { count: before + now.count, last: now.last });
        }
        sum
    }
}

impl Gpus {
    /// NVML's list, complete.
    pub fn listed(&mut self, inventory: &GpuInventory, at: Time) {
        self.nvml = Some(Ok(()));
        self.driver.clone_from(&inventory.driver);
        for gpu in self.by_id.values_mut() {
            gpu.is_listed = false;
        }
        for listed in &inventory.gpus {
            let gpu = self.by_id.entry(listed.id.clone()).or_insert_with(|| Gpu::new(listed.clone()));
            let was = gpu.listed.clone();
            gpu.listed = GpuListed {
                name: listed.name.clone().or(was.name),
                pci: listed.pci.clone().or(was.pci),
                ..listed.clone()
            };
            gpu.is_listed = true;
            if let Some(failure) = &listed.failure {
                gpu.down(&failure.message, at);
            }
        }
        // A GPU that never said who it is, and does by now, is no other one.
        self.by_id.retain(|_, gpu| gpu.is_listed || gpu.listed.name.is_some());
        for gpu in self.by_id.values_mut().filter(|gpu| !gpu.is_listed) {
            let reason = format!(
                "GPU {} is not listed by the driver any more: it fell off the bus or was taken away; look for NVRM and Xid in \
                 dmesg",
                gpu.listed.index
            );
            gpu.down(&reason, at);
        }
    }

    /// NVML as a whole does not answer.
    pub fn nvml_failed(&mut self, reason: &str) {
        self.nvml = Some(Err(reason.to_owned()));
    }

    /// A GPU answered.
    pub fn read(&mut self, id: &GpuId, reading: &GpuReading, at: Time) {
        let Some(gpu) = self.by_id.get_mut(id) else { return };
        let mut reading = reading.clone();
        gpu.counters.hold_back(&mut reading);
        for (field, absence) in reading.missing.iter().filter(|(_, absence)| absence.is_error()) {
            *gpu.field_errors.entry(field.clone()).or_default().entry(*absence).or_default() += 1;
        }
        gpu.reading = Some((reading, at));
        gpu.failure = None;
        gpu.down_since = None;
    }

    /// A GPU did not: its last values are not shown any more.
    pub fn failed(&mut self, id: &GpuId, reason: &str, at: Time) {
        if let Some(gpu) = self.by_id.get_mut(id) {
            gpu.down(reason, at);
        }
    }

    /// Xid events of one worker since it started.
    pub fn xids(&mut self, counts: &XidCounts) {
        let anew = self.xids_since != Some(counts.since);
        self.xids_since = Some(counts.since);
        for (id, gpu) in &mut self.by_id {
            if anew {
                gpu.xids_before = gpu.all_xids();
                gpu.xids_now.clear();
            }
            if let Some(codes) = counts.gpus.get(id) {
                gpu.xids_now.clone_from(codes);
                // One that is lost has told what it had to tell; one that cannot be heard may have more.
                let hangs = counts.missing.get(id).filter(|absence| **absence == Absence::Hangs);
                gpu.xids = Some(hangs.map_or(Ok(()), |absence| Err(*absence)));
            } else if let Some(absence) = counts.missing.get(id) {
                gpu.xids = Some(Err(*absence));
            }
        }
    }

    /// In NVML's order.
    pub fn view(&self, expected: Option<u32>, poll: Duration, unix: impl Fn(Time) -> f64, now: Time) -> GpusView {
        let fresh = |at: Time| now.since(at) <= (poll * STALE_POLLS).max(STALE_AFTER);
        let nvml_says = match &self.nvml {
            None => Some("NVML has not been asked yet".to_owned()),
            Some(Ok(())) => None,
            Some(Err(reason)) => Some(reason.clone()),
        };
        let mut list: Vec<GpuView> =
            self.by_id.iter().map(|(id, gpu)| view(id, gpu, nvml_says.as_deref(), fresh, &unix)).collect();
        list.sort_by_key(|gpu| (!self.by_id.get(&gpu.uuid).is_some_and(|gpu| gpu.is_listed), gpu.index));
        let up = list.iter().filter(|gpu| gpu.up.get() == Some(true)).count();
        // A call about all of them may hang while each one answers.
        let answered = nvml_says.is_none() || up > 0;
        GpusView {
            expected,
            present: if answered {
                Answer::from_option(u32::try_from(up).ok(), "there are too many")
            } else {
                Answer::unknown(nvml_says.unwrap_or_default())
            },
            driver: self.driver.clone(),
            list,
        }
    }
}

fn view(
    id: &GpuId,
    gpu: &Gpu,
    nvml_says: Option<&str>,
    fresh: impl Fn(Time) -> bool,
    unix: impl Fn(Time) -> f64,
) -> GpuView {
    let reading = gpu.reading.as_ref().filter(|(_, at)| fresh(*at)).map(|(reading, _)| reading.clone());
    let up = match (&reading, nvml_says) {
        (Some(_), _) => Answer::Known(true),
        (None, Some(reason)) => Answer::unknown(reason.to_owned()),
        (None, None) if gpu.failure.is_some() => Answer::Known(false),
        (None, None) => Answer::unknown("nothing has been heard of it for a while"),
    };
    let is_down = up.get() == Some(false);
    GpuView {
        index: gpu.listed.index,
        uuid: id.clone(),
        name: gpu.listed.name.clone().unwrap_or_default(),
        pci: gpu.listed.pci.clone().unwrap_or_default(),
        reason: if is_down { gpu.failure.clone() } else { up.reason().map(str::to_owned) },
        down_since_at: gpu.down_since.filter(|_| is_down).map(&unix),
        up,
        reading,
        field_errors: gpu.field_errors.clone(),
        xids: xids(gpu, unix),
    }
}

fn xids(gpu: &Gpu, unix: impl Fn(Time) -> f64) -> Answer<XidsView> {
    let all = gpu.all_xids();
    match gpu.xids {
        // What was counted before a GPU was lost stays.
        Some(Err(absence)) if all.is_empty() => {
            return Answer::unknown(format!("its Xid events cannot be heard ({})", absence.as_str()));
        }
        None => return Answer::unknown("its Xid events are not listened to yet"),
        Some(_) => {}
    }
    let mut view = XidsView::default();
    for (code, seen) in &all {
        view.by_code.insert(*code, seen.count);
        let tier = XidTier::of(*code);
        let at = unix(seen.last);
        if view.last.get(&tier).is_none_or(|last| last.at <= at) {
            view.last.insert(tier, LastXid { code: code.0, at });
        }
    }
    Answer::Known(view)
}

#[cfg(test)]
mod tests;
