//! The `docwharf` program: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    match docwharf::cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            docwharf::cli::report(&failure);
            failure.exit_code()
        }
    }
}
