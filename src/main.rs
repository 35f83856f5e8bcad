//! The `docwharf` program: everything is in the library.

use std::process::ExitCode;

/// The allocator of the static program. That of musl takes one lock for every allocation of every thread.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match docwharf::cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            docwharf::cli::report(&failure);
            failure.exit_code()
        }
    }
}
