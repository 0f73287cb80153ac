//! The rows of GPUs.

use super::Tone;
use crate::model::gpu::{Absence, RecoveryAction, ThrottleReason, XidTier};
use crate::model::snapshot::{GpuView, GpusView};
use crate::text;

pub(super) struct Gpu<'a> {
    pub(super) tone: Tone,
    pub(super) state: String,
    pub(super) index: u32,
    pub(super) name: &'a str,
    pub(super) uuid: &'a str,
    pub(super) notes: Vec<String>,
    pub(super) busy: Option<f64>,
    pub(super) memory: String,
    pub(super) power: String,
    pub(super) temperature: String,
    pub(super) clock: String,
}

/// A critical Xid is news on the page for so long.
const XID_SECONDS: f64 = 86_400.0;

pub(super) fn gpu(view: &GpuView, now: f64) -> Gpu<'_> {
    let mut notes = Vec::new();
    let mut tone = Tone::Good;
    for (tier, last) in view.xids.known().into_iter().flat_map(|xids| &xids.last) {
        if now - last.at < XID_SECONDS {
            notes.push(format!("Xid {} ({}) {} ago", last.code, tier.as_str(), text::span(now - last.at)));
            tone = if *tier == XidTier::Critical { Tone::Bad } else { tone.max_with(Tone::Warn) };
        }
    }
    let (mut busy, [mut memory, mut power, mut temperature, mut clock]) = (None, [(); 4].map(|()| "—".to_owned()));
    if let Some(reading) = &view.reading {
        busy = reading.utilization.map(|share| share * 100.0);
        if let (Some(used), Some(total)) = (reading.memory_used, reading.memory_total) {
            memory = format!("{} of {}", bytes(used), bytes(total));
        }
        if let Some(watts) = reading.power {
            let limit = reading.power_limit.map_or_else(String::new, |limit| format!(" of {limit:.0}"));
            power = format!("{watts:.0}{limit} W");
        }
        if let Some(degrees) = reading.temperature {
            temperature = format!("{degrees:.0} °C");
        }
        if let Some(hertz) = reading.sm_clock {
            clock = format!("{:.0} MHz", hertz / 1e6);
        }
        for reason in reading.throttle.iter().flatten().filter(|reason| is_trouble(**reason)) {
            notes.push(format!("throttled: {}", text::spoken(reason.as_str())));
            tone = tone.max_with(Tone::Warn);
        }
        if reading.remap_failed == Some(true) {
            notes.push("a row of its memory could not be replaced".to_owned());
            tone = Tone::Bad;
        }
        if reading.remap_pending == Some(true) {
            notes.push("a row of its memory waits for a reset".to_owned());
            tone = tone.max_with(Tone::Warn);
        }
        if let Some(action) = reading.recovery.filter(|action| *action != RecoveryAction::None) {
            notes.push(format!("the driver asks for: {}", text::spoken(action.as_str())));
            tone = tone.max_with(Tone::Warn);
        }
        for field in reading.missing.iter().filter(|(_, why)| **why == Absence::Hangs).map(|(field, _)| field) {
            notes.push(format!("{} hangs", text::spoken(field)));
            tone = tone.max_with(Tone::Warn);
        }
    }
    let state = match view.up.get() {
        Some(true) => "ok",
        Some(false) => {
            tone = Tone::Bad;
            "does not answer"
        }
        None => {
            tone = tone.max_with(Tone::Warn);
            "unknown"
        }
    };
    notes.extend(view.reason.clone());
    Gpu {
        tone,
        state: state.to_owned(),
        index: view.index,
        name: &view.name,
        uuid: view.uuid.as_str(),
        notes,
        busy,
        memory,
        power,
        temperature,
        clock,
    }
}

/// What the rows do not say: how many there should be.
pub(super) fn note(view: &GpusView) -> Option<String> {
    let expected = view.expected?;
    match view.present.get() {
        Some(present) if present == expected => None,
        Some(present) => Some(format!("{present} of {expected} GPUs answer")),
        None => Some(format!("{expected} GPUs are expected: {}", view.present.reason().unwrap_or("none is known"))),
    }
}

/// The reasons that are no ordinary work.
const fn is_trouble(reason: ThrottleReason) -> bool {
    use ThrottleReason::{HwPowerBrakeSlowdown, HwSlowdown, HwThermalSlowdown, SwThermalSlowdown};
    matches!(reason, HwPowerBrakeSlowdown | HwSlowdown | HwThermalSlowdown | SwThermalSlowdown)
}

#[allow(clippy::cast_precision_loss)]
fn bytes(bytes: u64) -> String {
    text::bytes(bytes as f64)
}
