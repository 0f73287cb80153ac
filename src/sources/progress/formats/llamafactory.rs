//! LLaMA-Factory's `trainer_log.jsonl`: `{"current_steps": 5, "total_steps": 93, "loss": 5.7, "percentage": 5.38,
//! "elapsed_time": "0:02:03", "remaining_time": "0:36:15", …}`. Its console shows tqdm and the trainer's lines.
//!
//! The line is flat and written by one function, so its fields are looked up by name; a field more or less is no problem.

use super::super::numbers::{clock, leading};
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let number = |name: &str| leading(field(text, name)?).map(|(value, _)| value);
    let time = |name: &str| clock(field(text, name)?.strip_prefix('"')?.split_once('"')?.0);
    let bar = Bar {
        format: "llamafactory",
        done: Some(number("\"current_steps\": ")?),
        total: number("\"total_steps\": ").filter(|&total| total > 0.0),
        elapsed: time("\"elapsed_time\": "),
        remaining: time("\"remaining_time\": "),
        whole: if text.ends_with('}') { Whole::Surely } else { Whole::Never },
        ..Bar::default()
    };
    Some(Bar { finished: bar.reached(), ..bar })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.get(text.find(name)? + name.len()..)
}
