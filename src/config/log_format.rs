//! In which format a log prints its progress: one of ours by name, or the user's own pattern.
//!
//! Separate because the names are a table that both the check of the configuration and the reader of logs use, and because
//! a pattern is compiled here once to refuse it early, with words, and there once to use it.

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// Which lines of a log count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Whatever is found.
    Auto,
    /// `Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s`.
    Progress,
    /// tqdm.
    Tqdm,
    /// rich.
    Rich,
    /// alive-progress.
    Alive,
    /// progressbar2.
    Progressbar2,
    /// click.
    Click,
    /// enlighten.
    Enlighten,
    /// keras.
    Keras,
    /// The lines of a Hugging Face `Trainer`.
    Trainer,
    /// Megatron-LM and GPT-NeoX.
    Megatron,
    /// NeMo 2.
    Nemo,
    /// torchtitan.
    Torchtitan,
    /// LLaMA-Factory's `trainer_log.jsonl`.
    Llamafactory,
    /// rsync.
    Rsync,
    /// wget.
    Wget,
    /// curl.
    Curl,
    /// aria2.
    Aria2,
    /// pv.
    Pv,
    /// dd.
    Dd,
    /// A pattern with named groups ([`GROUPS`]).
    Regex(String),
}

impl LogFormat {
    /// Those that have a name, with it.
    pub const NAMED: [(&'static str, Self); 20] = [
        ("auto", Self::Auto),
        ("progress", Self::Progress),
        ("tqdm", Self::Tqdm),
        ("rich", Self::Rich),
        ("alive-progress", Self::Alive),
        ("progressbar2", Self::Progressbar2),
        ("click", Self::Click),
        ("enlighten", Self::Enlighten),
        ("keras", Self::Keras),
        ("trainer", Self::Trainer),
        ("megatron", Self::Megatron),
        ("nemo", Self::Nemo),
        ("torchtitan", Self::Torchtitan),
        ("llamafactory", Self::Llamafactory),
        ("rsync", Self::Rsync),
        ("wget", Self::Wget),
        ("curl", Self::Curl),
        ("aria2", Self::Aria2),
        ("pv", Self::Pv),
        ("dd", Self::Dd),
    ];

    /// Its name; a pattern has none.
    pub fn name(&self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, format)| format == self).map(|(name, _)| *name)
    }
}

/// The groups of a pattern that mean something.
pub const GROUPS: [&str; 9] =
    ["done", "total", "failed", "tokens", "tokens_per_item", "elapsed", "remaining", "rate", "percent"];

/// Compiled memory of one pattern in bytes; ours take a few thousand, and a huge one is a mistake.
const SIZE_LIMIT: usize = 1 << 20;

/// Why a pattern is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternProblem {
    /// No regular expression.
    #[error("is no regular expression: {0}")]
    Syntax(String),
    /// Nothing in it that says how far the job is.
    #[error("has neither a group `(?<done>…)` nor `(?<percent>…)`; one of them is needed")]
    NoGroup,
    /// A group nobody reads, most likely a misspelt one.
    #[error("has a group `{0}`; known are {list}", list = GROUPS.join(", "))]
    UnknownGroup(String),
}

/// Compiles and checks a pattern. Matching takes time linear in the text, whatever the pattern.
pub fn compile(pattern: &str) -> Result<Regex, PatternProblem> {
    let regex = RegexBuilder::new(pattern).size_limit(SIZE_LIMIT).build().map_err(|error| {
        // The last line of the message says what; those before it draw where.
        let text = error.to_string();
        let what = text.lines().last().unwrap_or_default();
        PatternProblem::Syntax(what.trim_start_matches("error: ").to_owned())
    })?;
    let mut groups = regex.capture_names().flatten();
    if let Some(name) = groups.clone().find(|name| !GROUPS.contains(name)) {
        return Err(PatternProblem::UnknownGroup(name.to_owned()));
    }
    if !groups.any(|name| matches!(name, "done" | "percent")) {
        return Err(PatternProblem::NoGroup);
    }
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_refused_with_words() {
        for (pattern, problem) in [
            (r"(?<done>\d+)/(?<total>\d+)", None),
            (r"(?<percent>[\d.]+)%", None),
            (r"(?<done>", Some("is no regular expression: unclosed group")),
            (r"(?<don>\d+)", Some("has a group `don`; known are done, total,")),
            (r"\d+", Some("has neither a group `(?<done>…)` nor")),
            (r"(?<total>\d+)", Some("has neither a group `(?<done>…)` nor")),
            (r"(?<done>\w{1000}{1000})", Some("is no regular expression: Compiled regex exceeds size limit")),
        ] {
            let found = compile(pattern).err().map(|problem| problem.to_string());
            match problem {
                None => assert_eq!(found, None, "{pattern}"),
                Some(text) => assert!(found.as_deref().unwrap_or_default().starts_with(text), "{pattern}: {found:?}"),
            }
        }
    }
}
