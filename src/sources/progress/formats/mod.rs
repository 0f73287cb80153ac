//! The formats that progress is printed in, a file each, and the one table of them.
//!
//! Separate from [`super::log`], which knows which frames count and which bar is the job: a format only says what one
//! frame says. Each is a grammar of what its tool really prints, and refuses everything else, since a log is full of
//! ratios, percentages and clocks that mean something else.
//!
//! **The order** is that of [`TABLE`], and the first that understands a frame has it. Formats differ in [`Weight`]: a
//! line that reports on the whole job hides bars, which are then about loading or saving; a note never hides anything.
//!
//! **Memory.** A few tools say the total only once (wget's `Length:`, torchtitan's first lines) or need the line before
//! (keras). What they remember is in [`Memory`], numbers only, so its size is fixed.

mod alive;
mod aria2;
mod click;
mod curl;
mod custom;
mod dd;
mod keras;
pub mod line;
mod llamafactory;
mod megatron;
mod nemo;
mod progressbar2;
mod pv;
mod rich;
mod rsync;
mod torchtitan;
pub mod tqdm;
mod trainer;
mod wget;

#[cfg(test)]
mod tests;

pub use custom::Custom;

use crate::config::LogFormat;

/// When the frame at the end of what is readable, which has no end yet, may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Whole {
    /// Never: what stands there may be the beginning of something else.
    #[default]
    Never,
    /// When it is the same at two polls in a row.
    Settled,
    /// At once: a part that stands behind the numbers is there.
    Surely,
}

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum About {
    /// The job, or one of several bars of which one is.
    #[default]
    Job,
    /// Something around the job, as the number of the epoch whose steps are counted: shown, never the job.
    Aside,
}

/// What one frame says. `None` is "it does not say".
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bar<'a> {
    /// The name of its format.
    pub format: &'static str,
    /// Its description; empty when it has none.
    pub description: &'a str,
    /// Items done.
    pub done: Option<f64>,
    /// Items in all.
    pub total: Option<f64>,
    /// Items failed.
    pub failed: Option<f64>,
    /// Completion tokens of all done items.
    pub tokens: Option<f64>,
    /// Average completion tokens of the done items.
    pub tokens_per_item: Option<f64>,
    /// Seconds since the start.
    pub elapsed: Option<f64>,
    /// Seconds left, as printed.
    pub remaining: Option<f64>,
    /// Items per second, as printed.
    pub rate: Option<f64>,
    /// Whether it says that it has ended.
    pub finished: Option<bool>,
    /// It says so in words. Else its count was compared with its total, which may be that of a part of the job.
    pub by_word: bool,
    /// Whether it counts without its end.
    pub whole: Whole,
    /// What it is about.
    pub about: About,
}

impl Bar<'_> {
    /// Done reached the total; unknown without either.
    fn reached(&self) -> Option<bool> {
        Some(self.done? >= self.total?)
    }
}

/// How much a format says about the job as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Something beside the progress: the end of a training.
    Note,
    /// A bar: of the job, or of a part of it.
    Bar,
    /// A line that reports on the whole job.
    Report,
}

/// One format.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name, as in the configuration.
    pub name: &'static str,
    /// How much it says.
    pub weight: Weight,
    /// Every rank prints the same numbers of the whole job, so ranks are never added up.
    pub is_global: bool,
    /// Bytes that each of its frames has: without one of them it is not asked.
    needs: Bytes,
    /// Reads a frame that was cleaned of escapes.
    pub read: for<'a> fn(&'a str, &mut Memory) -> Option<Bar<'a>>,
}

const fn format(
    name: &'static str,
    weight: Weight,
    is_global: bool,
    needs: &[u8],
    read: for<'a> fn(&'a str, &mut Memory) -> Option<Bar<'a>>,
) -> Format {
    Format { name, weight, is_global, needs: Bytes::of_format(needs), read }
}

/// All formats, in the order in which they are asked.
const TABLE: [Format; 18] = [
    format("progress", Weight::Report, false, b":", line::read),
    format("megatron", Weight::Report, true, b"|/(:", megatron::read),
    format("nemo", Weight::Report, true, b"|,/", nemo::read),
    format("torchtitan", Weight::Report, true, b"p", torchtitan::read),
    format("llamafactory", Weight::Report, true, b"{_:", llamafactory::read),
    // tqdm and enlighten share a grammar; which of the two it was, the frame tells.
    format("tqdm", Weight::Bar, false, b"", tqdm::read),
    format("enlighten", Weight::Bar, false, b"[]/", tqdm::read_counter),
    // keras draws with rich's characters, but its count stands before the bar.
    format("keras", Weight::Bar, true, b"/", keras::read),
    format("rich", Weight::Bar, false, b"", rich::read),
    format("alive-progress", Weight::Bar, false, b"/", alive::read),
    format("progressbar2", Weight::Bar, false, b"T:", progressbar2::read),
    format("click", Weight::Bar, false, b"[]", click::read),
    format("rsync", Weight::Bar, false, b"", rsync::read),
    format("wget", Weight::Bar, false, b"", wget::read),
    format("curl", Weight::Bar, false, b"", curl::read),
    format("aria2", Weight::Bar, false, b"", aria2::read),
    format("pv", Weight::Bar, false, b"", pv::read),
    format("dd", Weight::Bar, false, b"", dd::read),
];

/// The end of a training in the words of its trainer; asked last, whatever was asked for.
const NOTE: Format = format("trainer", Weight::Note, true, b"{'", trainer::read);

/// `pv -n` prints bare numbers, which are only read where pv was asked for.
const PV_BARE: Format = format("pv", Weight::Bar, false, b"", pv::read_bare);

/// What formats remember between frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    line: line::Memory,
    aria2: aria2::Memory,
    keras: keras::Memory,
    rsync: rsync::Memory,
    torchtitan: torchtitan::Memory,
    wget: wget::Memory,
    dd: dd::Memory,
}

/// Which of the bytes that formats need a frame has, found in one pass, so that most formats need not search it.
#[derive(Debug, Clone, Copy, Default)]
struct Bytes(u16);

impl Bytes {
    /// Those that tell formats apart, a bit each.
    const TELLING: &[u8; 12] = b":|/(,p{_[]T'";
    const ALL: Self = Self(u16::MAX);

    #[allow(clippy::indexing_slicing)] // A constant: what is out of range does not compile.
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < Self::TELLING.len() {
            table[Self::TELLING[at] as usize] = 1 << at;
            at += 1;
        }
        table
    };

    /// What a format needs; a byte that is not among the telling ones does not compile.
    #[allow(clippy::indexing_slicing)] // For constants only.
    const fn of_format(needs: &[u8]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < needs.len() {
            assert!(Self::TABLE[needs[at] as usize] != 0);
            bits |= Self::TABLE[needs[at] as usize];
            at += 1;
        }
        Self(bits)
    }

    fn of(text: &str) -> Self {
        let bit = |byte: u8| Self::TABLE.get(usize::from(byte)).copied().unwrap_or(0);
        Self(text.bytes().fold(0, |bits, byte| bits | bit(byte)))
    }

    const fn have(self, needs: Self) -> bool {
        self.0 & needs.0 == needs.0
    }
}

/// Where `needle` begins, by its byte at `rare`, of which there are few in any text: for needles of a few bytes this is
/// much faster than to prepare a search.
fn find(text: &str, needle: &str, rare: usize) -> Option<usize> {
    let byte = *needle.as_bytes().get(rare)?;
    let starts = memchr::memchr_iter(byte, text.as_bytes()).filter_map(|at| at.checked_sub(rare));
    starts.into_iter().find(|&at| text.as_bytes().get(at..).is_some_and(|rest| rest.starts_with(needle.as_bytes())))
}

/// The formats that one log is read with.
#[derive(Debug)]
pub enum Formats {
    /// Those of the table that were asked for.
    Table(Vec<Format>),
    /// The user's own.
    Custom(Box<Custom>),
}

impl Formats {
    /// By configuration. A pattern that does not compile, which the check of the configuration refuses, finds nothing.
    pub fn new(format: &LogFormat) -> Self {
        match format {
            LogFormat::Auto => Self::Table(TABLE.into_iter().chain([NOTE]).collect()),
            LogFormat::Regex(pattern) => match Custom::new(pattern) {
                Ok(custom) => Self::Custom(Box::new(custom)),
                Err(_) => Self::Table(Vec::new()),
            },
            named => {
                let is_named = |format: &Format| Some(format.name) == named.name();
                // Enlighten's bars are read as tqdm's.
                let also = |format: &Format| named.name() == Some("enlighten") && format.name == "tqdm";
                let all = TABLE.into_iter().chain([PV_BARE, NOTE]);
                Self::Table(all.filter(|format| is_named(format) || also(format)).collect())
            }
        }
    }

    /// What the first format that understands it says of a frame that was cleaned of escapes: `whole` as it stands,
    /// `rest` without what launchers put before it. The user's own pattern sees the whole. Formats lighter than `weight`
    /// are not asked, notes aside.
    pub fn read<'a>(
        &self,
        whole: &'a str,
        rest: &'a str,
        weight: Weight,
        memory: &mut Memory,
    ) -> Option<(Bar<'a>, Source)> {
        match self {
            Self::Custom(custom) => {
                custom.read(whole).map(|bar| (bar, Source { weight: Weight::Report, is_global: false }))
            }
            Self::Table(formats) => {
                // What is drawn with a percentage and a bar is no report.
                let is_drawn = find(rest, "%|", 0).is_some();
                let bytes = if is_drawn { Bytes::ALL } else { Bytes::of(rest) };
                formats
                    .iter()
                    .filter(|format| format.weight >= weight || format.weight == Weight::Note)
                    .filter(|format| !(is_drawn && format.weight == Weight::Report) && bytes.have(format.needs))
                    .find_map(|format| {
                        let bar = (format.read)(rest, memory)?;
                        Some((bar, Source { weight: format.weight, is_global: format.is_global }))
                    })
            }
        }
    }
}

/// What is known of a bar by its format.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// How much it says.
    pub weight: Weight,
    /// Ranks are never added up.
    pub is_global: bool,
}
