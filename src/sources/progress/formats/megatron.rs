//! Megatron-LM, its relatives, and GPT-NeoX: ` iteration      100/   25000 | consumed samples: 25600 | elapsed time per
//! iteration (ms): 1234.5 | …`. NeoX puts `samples/sec: 8.2 |` before it; some write `infinity` for the total.

use super::super::numbers::leading;
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (_, rest) = text.split_once("iteration ")?;
    let (done, rest) = leading(rest.trim_start())?;
    let rest = rest.strip_prefix('/')?.trim_start();
    let (total, rest) = match rest.strip_prefix("infinity") {
        Some(rest) => (None, rest),
        None => leading(rest).map(|(total, rest)| (Some(total), rest))?,
    };
    let rest = rest.trim_start().strip_prefix('|')?;
    // NeMo's lines have the same beginning and count from 0.
    let (_, milliseconds) = rest.split_once("elapsed time per iteration (ms): ")?;
    let (milliseconds, _) = leading(milliseconds)?;
    let bar = Bar {
        format: "megatron",
        done: Some(done),
        total,
        rate: (milliseconds > 0.0).then(|| 1_000.0 / milliseconds),
        whole: Whole::Settled,
        ..Bar::default()
    };
    Some(Bar { finished: bar.reached(), ..bar })
}
