//! The lines that a Hugging Face `Trainer` logs: `{'loss': '5.506', 'learning_rate': '4.5e-05', 'epoch': '0.625'}`.
//!
//! They know no total, so they are no progress; the bar beside them is (as tqdm). Only the last one matters: the one
//! with `train_runtime` says that the training has ended, also when it stopped early. Its numbers are numbers in
//! transformers 4 and strings in transformers 5.

use super::super::numbers::leading;
use super::{Bar, find};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let inside = text.get(find(text, "{'", 0)?..)?;
    const RUNTIME: &str = "'train_runtime': ";
    let runtime = inside.get(find(inside, RUNTIME, RUNTIME.len() - 4)? + RUNTIME.len()..)?;
    if !inside.contains("'epoch': ") {
        return None;
    }
    let (elapsed, _) = leading(runtime.trim_start_matches('\''))?;
    Some(Bar { format: "trainer", elapsed: Some(elapsed), finished: Some(true), by_word: true, ..Bar::default() })
}
