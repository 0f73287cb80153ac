//! Xid events: a thread that waits for them, since NVML keeps only the newest code of those that nobody took yet.
//!
//! Asked once a poll, a double-bit error (48) with its row remap (63) after it would be two of the second kind. So this
//! thread sits in `nvmlEventSetWait` and hands over each event as it comes. A GPU that does not support events, or is
//! lost when they are asked for, is left out with the reason; a GPU that falls off later makes the whole set fail, which
//! is then made anew without it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;

use super::{failures, raw};
use crate::model::GpuId;
use crate::model::gpu::{Absence, GpuListed, Xid};

/// NVML's code for a code that it does not know.
const UNKNOWN_XID: u64 = 999;

/// What the thread has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It listens: why it does not for some of the GPUs.
    Listening(BTreeMap<GpuId, Absence>),
    /// The wait came back, with nothing to tell.
    Waited,
    /// An Xid.
    Xid(GpuId, Xid),
}

/// Waits for Xid events of these GPUs and reports them until the other end of `stop` is dropped; returns within `wait`
/// then, unless NVML hangs.
pub fn watch(nvml: &Nvml, gpus: &[GpuListed], wait: Duration, stop: &Receiver<()>, report: impl Fn(Event)) {
    let stopped = |pause| matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Disconnected));
    loop {
        let (set, who, missing) = listen(nvml, gpus);
        report(Event::Listening(missing));
        match set {
            Some(set) => {
                if wait_for_events(&set, &who, wait, stop, &report) {
                    return;
                }
                drop(set);
            }
            // Nobody to listen to: they are asked again when the list of GPUs is.
            None => {
                let _ = stop.recv();
                return;
            }
        }
        // A set that fails fails at once the next time too.
        if stopped(wait) {
            return;
        }
    }
}

/// True when it was told to stop, false when the set failed.
fn wait_for_events(
    set: &EventSet<'_>,
    who: &BTreeMap<usize, GpuId>,
    wait: Duration,
    stop: &Receiver<()>,
    report: &impl Fn(Event),
) -> bool {
    let milliseconds = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    loop {
        if matches!(stop.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected)) {
            return true;
        }
        match set.wait(milliseconds) {
            Ok(event) => {
                // By its handle: a GPU that has just fallen off the bus, which is what Xid 79 says, tells no UUID.
                if let (Some(gpu), Some(code)) = (who.get(&raw::identity(&event.device)), event.event_data) {
                    let code = match code {
                        XidError::Value(code) => code,
                        XidError::Unknown => UNKNOWN_XID,
                    };
                    report(Event::Xid(gpu.clone(), Xid(code)));
                }
            }
            Err(NvmlError::Timeout) => report(Event::Waited),
            Err(error) => {
                tracing::debug!(%error, "waiting for GPU events failed; they are asked for anew");
                return false;
            }
        }
    }
}

/// An event set with all GPUs that can be in it.
fn listen<'nvml>(
    nvml: &'nvml Nvml,
    gpus: &[GpuListed],
) -> (Option<EventSet<'nvml>>, BTreeMap<usize, GpuId>, BTreeMap<GpuId, Absence>) {
    let mut missing = BTreeMap::new();
    // A registration that fails takes the set with it, so each failure starts over without that GPU.
    'set: loop {
        let mut set = match nvml.create_event_set() {
            Ok(set) => set,
            Err(error) => {
                let reason = failures::of_field(&error);
                return (None, BTreeMap::new(), gpus.iter().map(|gpu| (gpu.id.clone(), reason)).collect());
            }
        };
        let mut who = BTreeMap::new();
        for gpu in gpus.iter().filter(|gpu| !missing.contains_key(&gpu.id)).collect::<Vec<_>>() {
            let device = match nvml.device_by_index(gpu.index) {
                Ok(device) => device,
                Err(error) => {
                    missing.insert(gpu.id.clone(), failures::of_field(&error));
                    continue;
                }
            };
            match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                Ok(registered) => {
                    set = registered;
                    who.insert(raw::identity(&device), gpu.id.clone());
                }
                Err(error) => {
                    missing.insert(gpu.id.clone(), failures::of_field(&error.error));
                    continue 'set;
                }
            }
        }
        let set = (!who.is_empty()).then_some(set);
        return (set, who, missing);
    }
}
