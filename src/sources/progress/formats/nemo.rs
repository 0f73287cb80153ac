//! NeMo 2: `Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_step: 28 | train_step_timing in s: 0.189 | …`.
//!
//! Both numbers count from 0: iteration 28 of 99 is the 29th of 100 (its `consumed_samples` say so). NeMo 1 draws tqdm.

use super::super::numbers::leading;
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (_, rest) = text.split_once("Training epoch ")?;
    let (_, rest) = leading(rest)?;
    let (iteration, rest) = leading(rest.strip_prefix(", iteration ")?)?;
    let (last, rest) = leading(rest.strip_prefix('/')?)?;
    let rest = rest.strip_prefix(" |")?;
    let seconds =
        rest.split_once("train_step_timing in s: ").and_then(|(_, rest)| leading(rest)).map(|(value, _)| value);
    let bar = Bar {
        format: "nemo",
        done: Some(iteration + 1.0),
        total: Some(last + 1.0),
        rate: seconds.filter(|&seconds| seconds > 0.0).map(|seconds| 1.0 / seconds),
        whole: Whole::Settled,
        ..Bar::default()
    };
    Some(Bar { finished: bar.reached(), ..bar })
}
