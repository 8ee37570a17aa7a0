//! The `fzmfs` program.

fn main() -> std::process::ExitCode {
    fzmfs::cli::main()
}
