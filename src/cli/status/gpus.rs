//! The GPUs in the table of `status`: a row each, and under it what is wrong with which.

use super::table::{Column, Table, wrap};
use crate::model::gpu::{Xid, XidTier};
use crate::model::snapshot::GpusView;
use crate::text;

use Column::{Figure, Text};

/// What is not known.
const NONE: &str = "-";

/// Writes them, if there are any or there should be.
pub(super) fn write(out: &mut String, gpus: &GpusView, width: usize) {
    if gpus.list.is_empty() && gpus.expected.is_none() {
        return;
    }
    out.push('\n');
    if !gpus.list.is_empty() {
        table(out, gpus, width);
    }
    let mut say = |line: String| wrap(out, &line, width);
    match (gpus.expected, gpus.present.get()) {
        (Some(expected), Some(present)) if present != expected => {
            say(format!("  {present} of {expected} GPUs answer"));
        }
        (Some(expected), None) => {
            let reason = gpus.present.reason().unwrap_or("none is known");
            say(format!("  {expected} GPUs are expected: {reason}"));
        }
        _ => {}
    }
    for gpu in &gpus.list {
        if let Some(reason) = gpu.reason.as_ref().filter(|_| gpu.up.get() == Some(false)) {
            say(format!("  {}: {reason}", gpu.index));
        }
        for (tier, last) in gpu.xids.known().into_iter().flat_map(|xids| &xids.last) {
            let count = gpu.xids.known().and_then(|xids| xids.by_code.get(&Xid(last.code))).copied().unwrap_or(1);
            let when = text::moment(last.at).unwrap_or_else(|| "an unknown time".to_owned());
            let tier = if *tier == XidTier::Other { String::new() } else { format!(" ({})", tier.as_str()) };
            say(format!("  {}: Xid {}{tier}, {count} times, last {when}", gpu.index, last.code));
        }
    }
}

fn table(out: &mut String, gpus: &GpusView, width: usize) {
    let mut table = Table::new(&[
        ("GPU", Text),
        ("STATE", Text),
        ("NAME", Text),
        ("BUSY", Figure),
        ("MEMORY", Figure),
        ("POWER", Figure),
        ("TEMP", Figure),
    ]);
    for gpu in &gpus.list {
        let state = match gpu.up.get() {
            Some(true) => "ok",
            Some(false) => "down",
            None => "unknown",
        };
        let reading = gpu.reading.clone().unwrap_or_default();
        let or_none = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
        #[allow(clippy::cast_precision_loss)]
        let memory = reading
            .memory_used
            .zip(reading.memory_total)
            .map(|(used, total)| format!("{}/{}", text::bytes(used as f64), text::bytes(total as f64)));
        table.row([
            gpu.index.to_string(),
            state.to_owned(),
            gpu.name.clone(),
            or_none(reading.utilization.map(|share| format!("{:.0} %", share * 100.0))),
            or_none(memory),
            or_none(reading.power.map(|watts| format!("{watts:.0} W"))),
            or_none(reading.temperature.map(|degrees| format!("{degrees:.0} °C"))),
        ]);
    }
    table.write(out, width);
}
