//! The `longhaul` command: see [`longhaul::cli`].
fn main() {}
