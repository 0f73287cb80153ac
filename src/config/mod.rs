//! The configuration: the file as typed ([`typed`]) becomes the configuration as checked ([`Config`]), and every
//! problem is reported at once with its line, its key and what to do.
//!
//! Only the checked form leaves this module. It holds no secrets, only the names of the files they are in, so it can
//! stand in the head of a recording.

pub mod checked;

pub use checked::*;
