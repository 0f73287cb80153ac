//! keras' `fit`: a line `Epoch 3/4`, then a bar of steps that starts anew each epoch, or with `verbose=2` one line each.
//!
//! `19/50 ━━━━━━━━ 0s 24ms/step - loss: 0.17`, in keras 2 `19/50 [=====>.....] - ETA: 0s - loss: 0.17`. While steps are
//! drawn they are what is counted, and the epoch stands beside them. With one line an epoch, `50/50 - 0s - 1ms/step`,
//! the steps are always all, and the epochs are the job.
//!
//! The hazard: the last step of an epoch is not the end; that is the last step of the last one.

use super::super::numbers::leading;
use super::{About, Bar, Whole};

/// The epoch that began last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    epoch: Option<(f64, f64)>,
}

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    if let Some(rest) = text.strip_prefix("Epoch ") {
        let (epoch, rest) = leading(rest)?;
        let (epochs, rest) = leading(rest.strip_prefix('/')?)?;
        if !rest.is_empty() || epoch < 1.0 || epoch > epochs {
            return None;
        }
        memory.keras.epoch = Some((epoch, epochs));
        return Some(Bar {
            format: "keras",
            description: "Epoch",
            done: Some(epoch),
            total: Some(epochs),
            about: About::Aside,
            ..Bar::default()
        });
    }
    let (done, rest) = leading(text)?;
    let rest = rest.strip_prefix('/')?;
    let (total, rest) = match rest.strip_prefix("Unknown") {
        Some(rest) => (None, rest),
        None => leading(rest).map(|(total, rest)| (Some(total), rest))?,
    };
    let rest = rest.strip_prefix(' ')?;
    let (bar, rest) = match rest.strip_prefix("- ") {
        // One line an epoch.
        Some(rest) => (None, rest),
        // Without a total nothing is drawn: `39/Unknown 1s 24ms/step`.
        None if total.is_none() && rest.contains("/step") => (Some(()), rest),
        None => drawn(rest)?,
    };
    // keras 2 says `50/50 - 3s - loss: 0.2` only.
    let is_line = bar.is_none() && leading(rest).is_some_and(|(_, rest)| rest == "s" || rest.starts_with("s - "));
    let is_timed = is_line || rest.contains("/step") || rest.contains("/epoch") || rest.contains("ETA: ");
    match bar {
        Some(()) => Some(Bar {
            format: "keras",
            done: Some(done),
            total,
            finished: total
                .map(|total| done >= total && memory.keras.epoch.is_none_or(|(epoch, epochs)| epoch >= epochs)),
            whole: if is_timed { Whole::Surely } else { Whole::Never },
            ..Bar::default()
        }),
        None if is_timed && total == Some(done) => {
            let (epoch, epochs) = memory.keras.epoch?;
            Some(Bar {
                format: "keras",
                description: "Epoch",
                done: Some(epoch),
                total: Some(epochs),
                finished: Some(epoch >= epochs),
                ..Bar::default()
            })
        }
        None => None,
    }
}

/// The bar, and what follows it.
fn drawn(text: &str) -> Option<(Option<()>, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, rest) = rest.split_once(']')?;
        let is_bar = !inside.is_empty() && inside.chars().all(|c| matches!(c, '=' | '>' | '.'));
        return is_bar.then_some((Some(()), rest));
    }
    let rest = text.trim_start_matches('━');
    (text.len() - rest.len() >= 3 * '━'.len_utf8()).then_some((Some(()), rest))
}
