//! Being written.

pub mod assets;
pub mod check_config;
pub mod demo;
pub mod init;
pub mod probe;
pub mod status;
