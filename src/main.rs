//! The `fzmfs` program.

#[global_allocator]
static ALLOCATOR: fzmfs::reserve::Reserving = fzmfs::reserve::Reserving;

fn main() -> std::process::ExitCode {
    fzmfs::cli::main()
}
