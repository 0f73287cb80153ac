//! Recordings: a head that says with what configuration and rules it was made, then one observation a line.
//!
//! A reload of the configuration is a head again: what follows was decided with that one.
//!
//! JSON lines, so that `jq` and `head` work on it. The same lines, without a head, are what worker processes write to
//! their pipe. A last line that was cut off is left out: a recording is read while it is being written.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::config::Config;
use crate::model::{Observation, Time};

/// The version this program writes and the newest it reads.
pub const VERSION: u32 = 1;

/// A line of a recording is never longer; a longer one is damage.
pub const MAX_LINE: usize = 8 * 1024 * 1024;

/// The first line has what an earlier run left, which is larger.
const MAX_HEAD: usize = 64 * 1024 * 1024;

/// The first line, and the line of each reload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`VERSION`] of the writer.
    pub longhaul_recording: u32,
    /// When the run that is recorded started.
    pub started: Time,
    /// The label `instance`.
    pub instance: String,
    /// The checked configuration.
    pub config: Config,
    /// The rule files, name and text.
    pub rules: Vec<(String, String)>,
    /// What the run went on with; absent where nothing was left to it, and in the line of a reload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// What an earlier run left, as the core keeps it: without it a replay would not decide the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// Alerts and what was mailed.
    pub state: Raw,
    /// What ended runs taught.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Raw>,
    /// What rates and forecasts rest on.
    pub histories: Raw,
    /// The machine was booted since.
    pub another_boot: bool,
}

/// JSON that is passed on as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(pub Box<RawValue>);

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file.
    #[error("cannot read the recording")]
    Io(#[from] io::Error),
    /// The first line.
    #[error("line 1 is not the head of a longhaul recording ({0})")]
    Head(String),
    /// From the future.
    #[error("the recording has version {found}, this program reads up to {VERSION}: use a newer longhaul")]
    Version {
        /// What the head says.
        found: u32,
    },
    /// A later line.
    #[error("line {line} is not an observation ({reason})")]
    Line {
        /// From 1.
        line: u64,
        /// What the parser says.
        reason: String,
    },
}

/// A line after the first.
// Almost all are observations.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// Something was seen.
    Observation(Observation),
    /// The configuration was reloaded.
    Head(Box<Head>),
}

/// Reads entries one by one.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the head.
    pub fn open(mut input: R) -> Result<(Head, Self), ReadError> {
        let mut buffer = Vec::new();
        let most = if input.fill_buf()?.starts_with(HEAD_START) { MAX_HEAD } else { MAX_LINE };
        read_line(&mut input, &mut buffer, most)?;
        let version = serde_json::from_slice::<Version>(&buffer).map_err(|error| ReadError::Head(error.to_string()))?;
        if version.longhaul_recording > VERSION {
            return Err(ReadError::Version { found: version.longhaul_recording });
        }
        let head = serde_json::from_slice(&buffer).map_err(|error| ReadError::Head(error.to_string()))?;
        Ok((head, Self { input, line: 1, buffer }))
    }

    /// The next entry, or `None` at the end; a last line without its line end is the end.
    pub fn read(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            self.buffer.clear();
            if !read_line(&mut self.input, &mut self.buffer, MAX_LINE)? {
                return Ok(None);
            }
            self.line += 1;
            if self.buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let entry = if self.buffer.starts_with(HEAD_START) {
                serde_json::from_slice(&self.buffer).map(|head| Entry::Head(Box::new(head)))
            } else {
                serde_json::from_slice(&self.buffer).map(Entry::Observation)
            };
            return entry.map(Some).map_err(|error| ReadError::Line { line: self.line, reason: error.to_string() });
        }
    }
}

/// What a head begins with, as [`write_head`] writes it; no observation does.
const HEAD_START: &[u8] = b"{\"longhaul_recording\"";

/// Only the version, so that a head of a later version still says which one it is.
#[derive(Deserialize)]
struct Version {
    longhaul_recording: u32,
}

/// One whole line into `buffer`; false at the end or when the last line is incomplete.
fn read_line(input: &mut impl BufRead, buffer: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    let mut limited = io::Read::take(input, most as u64);
    limited.read_until(b'\n', buffer)?;
    if buffer.last() == Some(&b'\n') {
        return Ok(true);
    }
    if buffer.len() >= most {
        let message = format!("a line is longer than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(false)
}

/// Writes the head.
pub fn write_head(output: &mut impl Write, head: &Head) -> io::Result<()> {
    serde_json::to_writer(&mut *output, head)?;
    output.write_all(b"\n")
}

/// Writes one observation as one line in one call, so that a reader never sees half of it on a pipe.
pub fn write(output: &mut impl Write, observation: &Observation) -> io::Result<()> {
    let mut line = serde_json::to_vec(observation)?;
    line.push(b'\n');
    output.write_all(&line)
}
