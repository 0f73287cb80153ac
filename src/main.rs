//! The `longhaul` command: see [`longhaul::cli`].

fn main() -> std::process::ExitCode {
    longhaul::cli::main()
}
