//! One file per subcommand.

mod completions;
mod config;
mod dataset;
mod demo;
mod doctor;
mod evaluate;
mod exec;
mod explain;
mod man;
mod place;
mod place_tables;
mod predict;
mod profile;
mod report;
mod serve;
mod simulate;
mod trace;
mod train;
mod whatif;

pub(crate) use place_tables::for_people as placement_tables;

use crate::failure::Ending;
use crate::output::Talk;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Go the whole road without a GPU: measure, learn, place, report
    Demo(demo::Arguments),
    /// Say what this machine can do, and why not
    Doctor(doctor::Arguments),
    /// Measure pairs on a device
    #[command(subcommand)]
    Profile(profile::Command),
    /// Look at, check, merge, import and export datasets
    #[command(subcommand)]
    Dataset(dataset::Command),
    /// Fit a predictor of slowdown and export it as ONNX
    Train(train::Arguments),
    /// Judge learners on splits that do not leak
    Evaluate(evaluate::Arguments),
    /// Predict slowdowns with a model
    Predict(predict::Arguments),
    /// Place jobs on a cluster
    Place(place::Arguments),
    /// Ask what would happen, without changing anything
    #[command(subcommand)]
    Whatif(whatif::Command),
    /// Say why a job runs where it runs, or waits
    Explain(explain::Arguments),
    /// Simulate scheduling policies on a trace
    #[command(subcommand)]
    Simulate(Box<simulate::Command>),
    /// Look at traces of jobs, and turn them into our own format
    #[command(subcommand)]
    Trace(Box<trace::Command>),
    /// Write one HTML page of what is known
    Report(report::Arguments),
    /// Show, check and describe configuration files
    #[command(subcommand)]
    Config(config::Command),
    /// Print completions for a shell
    Completions(completions::Arguments),
    /// Print the manual page, or write one per command
    Man(man::Arguments),
    /// One side of a pair on CPU cores; started by `profile run`
    #[command(hide = true)]
    Worker,
}

impl Command {
    pub(crate) fn run(self, talk: Talk) -> anyhow::Result<Ending> {
        match self {
            Self::Demo(arguments) => demo::run(&arguments, talk),
            Self::Doctor(arguments) => doctor::run(&arguments),
            Self::Profile(command) => profile::run(&command, talk),
            Self::Dataset(command) => dataset::run(&command, talk),
            Self::Train(arguments) => train::run(&arguments, talk),
            Self::Evaluate(arguments) => evaluate::run(&arguments, talk),
            Self::Predict(arguments) => predict::run(&arguments, talk),
            Self::Place(arguments) => place::run(&arguments, talk),
            Self::Whatif(command) => whatif::run(&command, talk),
            Self::Explain(arguments) => explain::run(&arguments, talk),
            Self::Simulate(command) => simulate::run(&command, talk),
            Self::Trace(command) => trace::run(&command, talk),
            Self::Report(arguments) => report::run(&arguments, talk),
            Self::Config(command) => config::run(&command),
            Self::Completions(arguments) => completions::run(&arguments),
            Self::Man(arguments) => man::run(&arguments),
            // A worker speaks its own protocol on stdout and ends with its own code.
            Self::Worker => {
                std::process::exit(i32::from(elastico_profiler::worker::main() != ExitCode::SUCCESS))
            }
        }
    }
}
