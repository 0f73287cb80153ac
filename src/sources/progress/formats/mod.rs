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
    /// Reads a frame that was cleaned of escapes.
    pub read: for<'a> fn(&'a str, &mut Memory) -> Option<Bar<'a>>,
}

const fn format(
    name: &'static str,
    weight: Weight,
    is_global: bool,
    read: for<'a> fn(&'a str, &mut Memory) -> Option<Bar<'a>>,
) -> Format {
    Format { name, weight, is_global, read }
}

/// All formats, in the order in which they are asked.
const TABLE: [Format; 18] = [
    format("progress", Weight::Report, false, line::read),
    format("megatron", Weight::Report, true, megatron::read),
    format("nemo", Weight::Report, true, nemo::read),
    format("torchtitan", Weight::Report, true, torchtitan::read),
    format("llamafactory", Weight::Report, true, llamafactory::read),
    // tqdm and enlighten share a grammar; which of the two it was, the frame tells.
    format("tqdm", Weight::Bar, false, tqdm::read),
    format("enlighten", Weight::Bar, false, tqdm::read_counter),
    // keras draws with rich's characters, but its count stands before the bar.
    format("keras", Weight::Bar, true, keras::read),
    format("rich", Weight::Bar, false, rich::read),
    format("alive-progress", Weight::Bar, false, alive::read),
    format("progressbar2", Weight::Bar, false, progressbar2::read),
    format("click", Weight::Bar, false, click::read),
    format("rsync", Weight::Bar, false, rsync::read),
    format("wget", Weight::Bar, false, wget::read),
    format("curl", Weight::Bar, false, curl::read),
    format("aria2", Weight::Bar, false, aria2::read),
    format("pv", Weight::Bar, false, pv::read),
    format("dd", Weight::Bar, false, dd::read),
];

/// The end of a training in the words of its trainer; asked last, whatever was asked for.
const NOTE: Format = format("trainer", Weight::Note, true, trainer::read);

/// What formats remember between frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    line: line::Memory,
    keras: keras::Memory,
    rsync: rsync::Memory,
    torchtitan: torchtitan::Memory,
    wget: wget::Memory,
    dd: dd::Memory,
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
                Self::Table(TABLE.into_iter().chain([NOTE]).filter(|format| is_named(format) || also(format)).collect())
            }
        }
    }
}
