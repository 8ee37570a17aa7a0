//! The `fzmfs` program.

use fzmfs::huge_pages::HugePages;
use fzmfs::reserve::Reserving;

#[global_allocator]
static ALLOCATOR: HugePages<Reserving> = HugePages(Reserving);

fn main() -> std::process::ExitCode {
    fzmfs::cli::main()
}
