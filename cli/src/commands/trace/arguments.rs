//! How a trace is read and which part of it is taken: the same for every command that takes one.

use crate::failure::usage;
use crate::output::Talk;
use clap::{Args, ValueEnum};
use elastico_core::Seed;
use elastico_simulator::{Attempts, ReadOptions, TimeUnit, TokenRate, Trace, TraceFormat};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Unit {
    /// Seconds
    #[value(alias = "seconds")]
    S,
    /// Milliseconds
    #[value(alias = "milliseconds")]
    Ms,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AttemptsOf {
    /// One job with the GPU-seconds of all attempts
    Sum,
    /// One job for each attempt
    Split,
}

/// How a trace is read
#[derive(Debug, Args)]
#[command(next_help_heading = "How the trace is read")]
pub(crate) struct Reading {
    /// Its format; recognised where not given (`elastico trace formats`)
    #[arg(long, value_name = "FORMAT")]
    trace_format: Option<TraceFormat>,

    /// Unit of times in the Tiresias family; taken as seconds with a warning where it is not given
    #[arg(long, value_enum)]
    time_unit: Option<Unit>,

    /// Gavel's throughput JSON, which turns steps into seconds
    #[arg(long, value_name = "FILE")]
    throughputs: Option<PathBuf>,

    /// The device of the throughputs on which durations are meant
    #[arg(long, default_value = "v100", value_name = "DEVICE")]
    durations_on: String,

    /// Profiles of Pollux, a folder for each application
    #[arg(long, value_name = "FOLDER")]
    profiles: Option<PathBuf>,

    /// What the columns of a CSV mean: a preset or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    mapping: Option<String>,

    /// What becomes of the attempts of a job in Philly's log
    #[arg(long, value_enum, default_value = "sum")]
    attempts: AttemptsOf,

    /// Requests that make one offline inference job
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = bundle)]
    bundle_requests: usize,

    /// Tokens per second of one such job, in and out alike, on --serve-gpus
    #[arg(long, value_name = "N", conflicts_with = "token_table")]
    tokens_per_second: Option<f64>,

    /// GPUs of one such job
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    serve_gpus: u32,

    /// A table of LLM-Pilot with tokens per second, in place of --tokens-per-second
    #[arg(long, value_name = "FILE", requires = "serve")]
    token_table: Option<PathBuf>,

    /// Model, GPU type and number of GPUs in that table, as llama-7b,a100,1
    #[arg(long, value_name = "MODEL,GPU,N", requires = "token_table")]
    serve: Option<String>,

    /// Refuse a trace of which something would be left out
    #[arg(long)]
    strict: bool,
}

fn bundle(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(requests @ 1..=100_000_000) => Ok(requests),
        _ => Err("must be a whole number from 1 up".to_owned()),
    }
}

impl Reading {
    pub(crate) fn read(&self, file: &Path) -> anyhow::Result<Trace> {
        Ok(Trace::read(file, &self.options()?)?)
    }

    /// Files that are read beside the trace.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.throughputs, &self.profiles, &self.token_table];
        files.into_iter().flatten().map(PathBuf::as_path).chain(self.mapping.as_deref().map(Path::new))
    }

    /// The throughput file of a trace of Gavel.
    pub(crate) fn throughputs(&self) -> Option<&Path> {
        self.throughputs.as_deref()
    }

    fn options(&self) -> anyhow::Result<ReadOptions> {
        Ok(ReadOptions {
            format: self.trace_format,
            time_unit: self.time_unit.map(|unit| match unit {
                Unit::S => TimeUnit::Seconds,
                Unit::Ms => TimeUnit::Milliseconds,
            }),
            throughputs: self.throughputs.clone(),
            device: self.durations_on.clone(),
            profiles: self.profiles.clone(),
            mapping: self.mapping.clone(),
            attempts: match self.attempts {
                AttemptsOf::Sum => Attempts::Sum,
                AttemptsOf::Split => Attempts::Split,
            },
            bundle_requests: self.bundle_requests,
            token_rate: self.token_rate()?,
            strict: self.strict,
        })
    }

    fn token_rate(&self) -> anyhow::Result<Option<TokenRate>> {
        if let Some(tokens_per_second) = self.tokens_per_second {
            return Ok(Some(TokenRate::Given { tokens_per_second, gpus: self.serve_gpus }));
        }
        let (Some(path), Some(serve)) = (&self.token_table, &self.serve) else { return Ok(None) };
        let parts: Vec<&str> = serve.split(',').map(str::trim).collect();
        let [model, device, gpus] = parts[..] else {
            return Err(usage(
                format!("`{serve}` is no model, GPU type and number"),
                "write --serve llama-7b,a100,1",
            ));
        };
        let gpus = gpus
            .parse()
            .map_err(|_| usage(format!("`{gpus}` is no number of GPUs"), "write --serve llama-7b,a100,1"))?;
        Ok(Some(TokenRate::Table {
            path: path.clone(),
            model: model.to_owned(),
            device: device.to_owned(),
            gpus,
        }))
    }
}

/// Which part of a trace is taken
#[derive(Debug, Args)]
#[command(next_help_heading = "Which part of the trace")]
pub(crate) struct Selection {
    /// Take the jobs submitted from this second of the trace on
    #[arg(long, value_name = "SECONDS")]
    from: Option<f64>,

    /// Take the jobs submitted before this second of the trace
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,

    /// Draw so many jobs, without replacement; times stay
    #[arg(long, value_name = "N")]
    sample: Option<usize>,

    /// Add a second trace, read in the same way
    #[arg(long, value_name = "FILE")]
    mix: Option<PathBuf>,

    /// Draw as many jobs of the second trace as make this part of all GPU-seconds
    #[arg(long, value_name = "RATIO", requires = "mix")]
    mix_share: Option<f64>,

    /// Seed of what is drawn
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    draw_seed: u64,
}

impl Selection {
    /// The second trace.
    pub(crate) fn input(&self) -> Option<&Path> {
        self.mix.as_deref()
    }

    pub(crate) fn apply(&self, mut trace: Trace, reading: &Reading) -> anyhow::Result<Trace> {
        let seed = Seed(self.draw_seed);
        if self.from.is_some() || self.to.is_some() {
            trace = trace.window(self.from.unwrap_or(0.0), self.to.unwrap_or(f64::INFINITY))?;
        }
        if let Some(jobs) = self.sample {
            trace = trace.sample(jobs, seed)?;
        }
        if let Some(other) = &self.mix {
            trace = trace.mix(&reading.read(other)?, self.mix_share, seed)?;
        }
        Ok(trace)
    }
}

pub(crate) fn warn(trace: &Trace, talk: Talk) {
    for warning in &trace.warnings {
        talk.say(format!("warning: {warning}"));
    }
}
