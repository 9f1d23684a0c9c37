//! The `elastico` command: arguments, rendering and exit codes. What it does lives in the other crates.

mod artefacts;
mod commands;
mod evaluation_page;
mod evaluation_tables;
mod failure;
mod output;
mod page;

use clap::Parser;
use commands::Command;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure how much GPU jobs slow each other down, learn it, and place jobs by it
#[derive(Debug, Parser)]
#[command(name = "elastico", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
Exit codes: 0 done; 1 done, the answer is no; 2 usage or bad input; 3 environment;
4 finished with failed trials; 130 interrupted, results saved.

First steps: `elastico demo` needs no GPU; `elastico doctor` says what this machine can do.")]
struct Arguments {
    /// Say more on stderr (-v, -vv)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Say nothing on stderr but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(&arguments);
    match arguments.command.run(output::Talk::new(arguments.quiet)) {
        Ok(ending) => ending.into(),
        // A reader that has seen enough (`| head`) is no failure of ours.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&failure::render(&error));
            failure::exit_code(&error)
        }
    }
}

fn start_log(arguments: &Arguments) {
    let level = match (arguments.quiet, arguments.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let filter = EnvFilter::try_from_env("ELASTICO_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colour_on_stderr())
        .without_time()
        .with_target(false)
        .init();
}
