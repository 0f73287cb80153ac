//! torchtitan: `[titan] 2026-11-30 07:00:00,123 - root - INFO - step: 10  loss: 10.7  memory: 30.99GiB(28.8%)  tps: 7,034`.
//!
//! The total is said once, at the start (`…, total steps 1000 (warmup 200)`), the end at the end (`Training completed`). A
//! second training that appends to the log says its own, perhaps a larger one with which it goes on from the first.
//! What is left out of a log that was rotated is not known.

use super::super::numbers::leading;
use super::{Bar, Whole, find};

/// What was said before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    total: Option<f64>,
    done: Option<f64>,
}

/// Before the number of all steps.
const TOTAL: &str = ", total steps ";

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    let memory = &mut memory.torchtitan;
    let bar = Bar { format: "torchtitan", whole: Whole::Settled, ..Bar::default() };
    let step = find(text, "step: ", 4).and_then(|at| text.get(at + "step: ".len()..));
    if let Some(rest) = step {
        let (done, rest) = leading(rest.trim_start())?;
        let rest = rest.trim_start();
        if !rest.starts_with("loss: ") || !(rest.contains("  memory: ") || rest.contains("  tps: ")) {
            return None;
        }
        memory.done = Some(done);
        let bar = Bar { done: memory.done, total: memory.total, ..bar };
        return Some(Bar { finished: bar.reached(), ..bar });
    }
    if let Some(rest) = find(text, TOTAL, 0).and_then(|at| text.get(at + TOTAL.len()..)) {
        if let Some((total, _)) = leading(rest) {
            *memory = Memory { total: Some(total), done: None };
        }
        return None;
    }
    (memory.done.is_some() && text.ends_with("Training completed")).then_some(Bar {
        done: memory.done,
        total: memory.total,
        finished: Some(true),
        by_word: true,
        ..bar
    })
}
