//! What the simulated job leaves on disk: a log with its progress lines and a JSONL file with one line an item.
//!
//! Written as plain scripts write them: appended, one write a line, no temporary names. The texts are filler, about a
//! byte a token, so that a whole run of 25,000 items stays far below 400 MB; the tokens in `usage` are the true ones.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Error;
use super::model::{Ended, Tally};
use super::random::Random;

/// The job's two files, open for appending.
#[derive(Debug)]
pub struct Files {
    log: Appended,
    jsonl: Appended,
    items: u32,
    log_every: u32,
    seed: u64,
    counted: Tally,
}

impl Files {
    /// Creates both in a folder; a progress line comes every `log_every` items.
    pub fn create(folder: &Path, items: u32, slots: u32, log_every: u32, seed: u64) -> Result<Self, Error> {
        let mut files = Self {
            log: Appended::create(folder.join("run.log"))?,
            jsonl: Appended::create(folder.join("output.jsonl"))?,
            items,
            log_every: log_every.max(1),
            seed,
            counted: Tally::default(),
        };
        files.log.line(&format!("Starting: {items} samples, concurrency {slots}"))?;
        Ok(files)
    }

    /// Where the log is.
    pub fn log(&self) -> &Path {
        &self.log.path
    }

    /// Where the items are.
    pub fn jsonl(&self) -> &Path {
        &self.jsonl.path
    }

    /// Writes items that ended, in order, and the progress lines that are due at `elapsed` seconds.
    pub fn write(&mut self, ended: &[Ended], elapsed: f64) -> Result<(), Error> {
        for item in ended {
            self.jsonl.line(&jsonl_line(item, self.seed))?;
            match item.outcome {
                Ok(tokens) => {
                    self.counted.done += 1;
                    self.counted.tokens += u64::from(tokens);
                }
                Err(_) => self.counted.failed += 1,
            }
            let over = self.counted.done + self.counted.failed;
            if over.is_multiple_of(self.log_every) || over == self.items {
                self.log.line(&progress_line(self.counted, self.items, elapsed))?;
            }
            if over == self.items {
                let Tally { done, failed, tokens, .. } = self.counted;
                let line =
                    format!("Done: {done} samples, {failed} errors, {tokens} completion tokens in {elapsed:.0}s");
                self.log.line(&line)?;
            }
        }
        Ok(())
    }
}

/// `Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s`.
fn progress_line(tally: Tally, items: u32, elapsed: f64) -> String {
    let done = f64::from(tally.done);
    let average = if tally.done == 0 { 0.0 } else { super::counters::real(tally.tokens) / done };
    let rate = if elapsed > 0.0 { done / elapsed } else { 0.0 };
    format!(
        "Progress: {}/{items} ({} errors), {rate:.1} req/s, avg completion: {average:.0} tokens, elapsed: {elapsed:.0}s",
        tally.done, tally.failed
    )
}

/// One item as the job writes it. What it says follows from seed and id alone.
fn jsonl_line(item: &Ended, seed: u64) -> String {
    let Ended { id, prompt_tokens, outcome } = *item;
    match outcome {
        Err(error) => serde_json::json!({ "id": id, "error": error }).to_string(),
        Ok(completion_tokens) => {
            let mut random = Random::new(seed, 1_000 + u64::from(id));
            serde_json::json!({
                "id": id,
                "prompt": filler(&mut random, (prompt_tokens / 2).min(200)),
                "content": filler(&mut random, completion_tokens),
                "usage": { "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens },
            })
            .to_string()
        }
    }
}

/// About so many bytes of text, with the characters that make JSON escape and UTF-8 count.
fn filler(random: &mut Random, bytes: u32) -> String {
    const WORDS: [&str; 16] = [
        "the", "sum", "of", "states", "then", "\"case\"", "one", "moves\n", "to", "step", "größe", "x ≤ 3", "checks",
        "and", "answer", "it",
    ];
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut text = String::with_capacity(bytes + 8);
    while text.len() < bytes {
        // One draw gives sixteen words: the filler is most of what a fast demo costs.
        let mut bits = random.bits();
        while bits != 0 && text.len() < bytes {
            let word = usize::try_from(bits & 15).ok().and_then(|index| WORDS.get(index));
            text.push_str(word.copied().unwrap_or_default());
            text.push(' ');
            bits >>= 4;
        }
    }
    text
}

/// A file that only grows.
#[derive(Debug)]
struct Appended {
    path: PathBuf,
    file: File,
}

impl Appended {
    fn create(path: PathBuf) -> Result<Self, Error> {
        match File::options().append(true).create_new(true).open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(Error::Write { path, source }),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), Error> {
        let written: io::Result<()> = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|source| Error::Write { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::{Files, filler, progress_line};
    use crate::simulator::model::{Ended, Tally};
    use crate::simulator::random::Random;

    #[test]
    fn progress_lines_are_written_as_the_reference_job_writes_them() {
        for (tally, elapsed, line) in [
            (
                Tally { started: 500, done: 300, failed: 0, tokens: 319_800 },
                408.0,
                "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s",
            ),
            (
                Tally { started: 200, done: 0, failed: 10, tokens: 0 },
                0.0,
                "Progress: 0/25000 (10 errors), 0.0 req/s, avg completion: 0 tokens, elapsed: 0s",
            ),
            (
                Tally { started: 25_000, done: 24_990, failed: 10, tokens: 45_481_800 },
                601.4,
                "Progress: 24990/25000 (10 errors), 41.6 req/s, avg completion: 1820 tokens, elapsed: 601s",
            ),
        ] {
            assert_eq!(progress_line(tally, 25_000, elapsed), line);
        }
    }

    #[test]
    fn one_line_an_item_and_a_progress_line_every_so_many() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::create(folder.path(), 7, 2, 3, 1).unwrap();
        let item = |id| Ended { id, prompt_tokens: 100, outcome: if id == 2 { Err("HTTP 500") } else { Ok(1_000) } };
        files.write(&[item(0), item(1), item(2), item(3)], 2.0).unwrap();
        files.write(&[item(4), item(5), item(6)], 10.0).unwrap();
        assert_eq!(
            std::fs::read_to_string(files.log()).unwrap(),
            "Starting: 7 samples, concurrency 2\n\
             Progress: 2/7 (1 errors), 1.0 req/s, avg completion: 1000 tokens, elapsed: 2s\n\
             Progress: 5/7 (1 errors), 0.5 req/s, avg completion: 1000 tokens, elapsed: 10s\n\
             Progress: 6/7 (1 errors), 0.6 req/s, avg completion: 1000 tokens, elapsed: 10s\n\
             Done: 6 samples, 1 errors, 6000 completion tokens in 10s\n"
        );
        let jsonl = std::fs::read_to_string(files.jsonl()).unwrap();
        let values: Vec<serde_json::Value> = jsonl.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(values.len(), 7);
        assert_eq!(values[2], serde_json::json!({ "id": 2, "error": "HTTP 500" }));
        assert_eq!(values[6]["usage"]["completion_tokens"], 1_000);
        assert!(values[6]["content"].as_str().unwrap().len() >= 1_000);
    }

    #[test]
    fn filler_has_the_size_that_was_asked_for() {
        let mut random = Random::new(1, 1);
        for bytes in [0, 1, 10, 1_000, 16_384] {
            let length = filler(&mut random, bytes).len();
            assert!((bytes as usize..bytes as usize + 12).contains(&length), "{bytes}: {length}");
        }
    }
}
