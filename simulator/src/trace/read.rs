//! One way to read a trace of any format: which one it is, is said or recognised.

use super::{
    TimeUnit, TokenRate, Trace, TraceFormat, Warning, gavel, mapping, openb, philly, pollux, requests,
};
use crate::Error;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// What becomes of the attempts of a job in Philly's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attempts {
    /// One job, with the GPU-seconds of all attempts on the GPUs of the largest.
    #[default]
    Sum,
    /// Each attempt is a job; a later one is submitted when the one before ends.
    Split,
}

/// How a trace is to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadOptions {
    /// The format; recognised where absent.
    pub format: Option<TraceFormat>,
    /// Unit of times of the Tiresias family; inferred with a warning where absent.
    pub time_unit: Option<TimeUnit>,
    /// Gavel's throughput JSON, which turns steps into seconds.
    pub throughputs: Option<PathBuf>,
    /// The device of the throughputs on which durations are meant.
    pub device: String,
    /// Profiles of Pollux, one folder for each application.
    pub profiles: Option<PathBuf>,
    /// A preset or a TOML file that maps columns.
    pub mapping: Option<String>,
    /// What becomes of Philly's attempts.
    pub attempts: Attempts,
    /// Requests that make one offline inference job.
    pub bundle_requests: usize,
    /// How fast a job of bundled requests goes through its tokens.
    pub token_rate: Option<TokenRate>,
    /// Refuse what would be left out.
    pub strict: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            format: None,
            time_unit: None,
            throughputs: None,
            device: "v100".to_owned(),
            profiles: None,
            mapping: None,
            attempts: Attempts::Sum,
            bundle_requests: 1000,
            token_rate: None,
            strict: false,
        }
    }
}

/// Bytes that recognition looks at.
const HEAD: u64 = 64 * 1024;

impl Trace {
    /// Reads a trace of any known format.
    ///
    /// # Errors
    /// A file that is no trace, or what its reader refuses, with line and column.
    pub fn read(path: &Path, options: &ReadOptions) -> Result<Self, Error> {
        let failed = |source| Error::Read { path: path.into(), source };
        let mut head = Vec::new();
        std::fs::File::open(path).map_err(failed)?.take(HEAD).read_to_end(&mut head).map_err(failed)?;
        let (options, guess) = choose(&String::from_utf8_lossy(&head), path, options)?;
        let trace = if options.format == Some(TraceFormat::Philly) {
            // The log has a hundred megabytes: it is never in memory as a whole.
            philly::read_log(crate::document::open(path)?, path, options.attempts)
        } else {
            parse(&crate::document::read(path)?, path, &options)
        }?;
        finish(trace, path, &options, guess)
    }

    /// Like [`Self::read`], from a text; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, path: &Path, options: &ReadOptions) -> Result<Self, Error> {
        let head = text.floor_char_boundary(HEAD as usize);
        let (options, guess) = choose(&text[..head], path, options)?;
        finish(parse(text, path, &options)?, path, &options, guess)
    }
}

fn parse(text: &str, path: &Path, options: &ReadOptions) -> Result<Trace, Error> {
    let text = crate::document::unmarked(text);
    match options.format {
        Some(TraceFormat::Tiresias) => Trace::parse_tiresias(text, path, options.time_unit),
        Some(TraceFormat::Gavel) => gavel::parse(text, path, options),
        Some(TraceFormat::Philly) => philly::read_log(text.as_bytes(), path, options.attempts),
        Some(TraceFormat::PhillyFlat) => philly::parse_flat(text, path),
        Some(TraceFormat::Pollux) => pollux::parse(text, path, options),
        Some(TraceFormat::Openb) => openb::parse(text, path),
        Some(TraceFormat::Mapped) => mapping::parse(text, path, options),
        Some(
            format @ (TraceFormat::AzureLlm
            | TraceFormat::Mooncake
            | TraceFormat::Burstgpt
            | TraceFormat::Vidur),
        ) => requests::parse(format, text, path, options),
        Some(TraceFormat::Elastico) | None => Trace::parse_json(text, path),
    }
}

fn finish(
    mut trace: Trace,
    path: &Path,
    options: &ReadOptions,
    guess: Option<Warning>,
) -> Result<Trace, Error> {
    trace.format = options.format;
    if options.strict
        && let Some(warning) = trace.warnings.iter().find(|warning| warning.left_out() > 0)
    {
        return Err(Error::Strict { path: path.into(), why: warning.to_string() });
    }
    if let Some(guess) = guess {
        trace.warnings.insert(0, guess);
    }
    Ok(trace)
}

/// The options with a format, and a warning where it was guessed.
fn choose(head: &str, path: &Path, options: &ReadOptions) -> Result<(ReadOptions, Option<Warning>), Error> {
    let mut options = options.clone();
    if options.format.is_none() && options.mapping.is_some() {
        options.format = Some(TraceFormat::Mapped);
    }
    if options.format.is_some() {
        return Ok((options, None));
    }
    let Recognised { format, preset, guessed } = recognise(head, path)?;
    options.format = Some(format);
    options.mapping = preset.map(str::to_owned);
    let guess = guessed.map(|because| match preset {
        Some(preset) => Warning::Assumed {
            what: format!(
                "mapped the columns by the preset {preset} because {because}; say so with --mapping {preset}"
            ),
        },
        None => Warning::Format { assumed: format, because },
    });
    Ok((options, guess))
}

#[derive(Debug, PartialEq, Eq)]
struct Recognised {
    format: TraceFormat,
    preset: Option<&'static str>,
    /// Why, where the file does not say so itself.
    guessed: Option<String>,
}

impl From<TraceFormat> for Recognised {
    fn from(format: TraceFormat) -> Self {
        Self { format, preset: None, guessed: None }
    }
}

/// Files that lie beside traces: columns, what they are, what they are good for.
const OTHERS: [(&[&str], &str, &str); 10] = [
    (&["num_switch", "num_node_p_switch"], "a cluster file of the Tiresias family", "give it with --cluster"),
    (&["sn", "gpu", "model"], "a node list of the openb cluster", "give it with --cluster"),
    (
        &["placement", "local_bsz"],
        "a profile of Pollux",
        "give the folder above its application with --profiles",
    ),
    (
        &["num_nodes", "num_replicas"],
        "a profile of Pollux",
        "give the folder above its application with --profiles",
    ),
    (
        &["progress", "grad_sqr"],
        "a profile of Pollux",
        "give the folder above its application with --profiles",
    ),
    (
        &["global_batch_size"],
        "a table of iterations per second of ElasticFlow",
        "it says how fast, not which jobs arrive",
    ),
    (
        &["prompt_size", "token_time"],
        "a table of serving latencies (Splitwise)",
        "it says how fast, not which jobs arrive",
    ),
    (
        &["concurrent_users", "total_tokens_per_s"],
        "a table of tokens per second (LLM-Pilot)",
        "give it with --token-table and a trace of requests",
    ),
    (&["job_num", "gpu_job_num"], "a summary of clusters (Acme)", "it has means, not jobs"),
    (&["GPU", "price"], "a price list", "it has no jobs"),
];

fn recognise(head: &str, path: &Path) -> Result<Recognised, Error> {
    let head = crate::document::unmarked(head);
    let unknown = |why: String| Error::UnknownTrace { path: path.into(), why };
    let start = head.trim_start();
    if start.is_empty() {
        return Err(unknown("it is empty".to_owned()));
    }
    if start.starts_with('{') {
        return json_object(start, path);
    }
    if start.starts_with('[') {
        let guessed = (!start.contains("\"jobid\"")).then(|| "it is a JSON list".to_owned());
        return Ok(Recognised { format: TraceFormat::Philly, preset: None, guessed });
    }
    let first = head.lines().next().unwrap_or_default();
    let tabs = first.split('\t').count();
    if gavel::COLUMNS.iter().any(|columns| columns.len() == tabs) {
        let guessed = Some(format!("its first line has {tabs} columns between tabs"));
        return Ok(Recognised { format: TraceFormat::Gavel, preset: None, guessed });
    }
    let columns: Vec<&str> = first.split(',').map(|column| column.trim().trim_matches('"')).collect();
    let has = |wanted: &[&str]| wanted.iter().filter(|column| columns.contains(*column)).count();
    for format in TraceFormat::ALL {
        if !format.columns().is_empty() && has(format.columns()) == format.columns().len() {
            return Ok(format.into());
        }
    }
    for (wanted, what, remedy) in OTHERS {
        if has(wanted) == wanted.len() {
            return Err(Error::NotATrace { path: path.into(), what, remedy });
        }
    }
    if let Some(preset) = mapping::preset_for(&columns) {
        let guessed = Some("its columns are those".to_owned());
        return Ok(Recognised { format: TraceFormat::Mapped, preset: Some(preset), guessed });
    }
    // The format that it nearly is: its reader says what is missing.
    let near = TraceFormat::ALL
        .into_iter()
        .filter(|format| has(format.columns()) * 2 > format.columns().len())
        .max_by_key(|format| has(format.columns()) * 100 / format.columns().len().max(1));
    match near {
        Some(format) => {
            Ok(Recognised { format, preset: None, guessed: Some("most of its columns are there".to_owned()) })
        }
        None => Err(unknown(format!("its first line is `{}`", shortened(first)))),
    }
}

fn json_object(start: &str, path: &Path) -> Result<Recognised, Error> {
    if start.contains("\"elastico.trace/") {
        return Ok(TraceFormat::Elastico.into());
    }
    if start.lines().next().is_some_and(|line| line.contains("\"input_length\"")) {
        return Ok(TraceFormat::Mooncake.into());
    }
    if start.contains("\"null\"") {
        let (what, remedy) =
            ("a throughput file of Gavel", "give it with --throughputs and a trace of Gavel");
        return Err(Error::NotATrace { path: path.into(), what, remedy });
    }
    Ok(Recognised {
        format: TraceFormat::Elastico,
        preset: None,
        guessed: Some("it is a JSON object".to_owned()),
    })
}

/// The start of a line, fit for a message.
fn shortened(line: &str) -> String {
    let text: String =
        line.chars().take(60).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if line.chars().count() > 60 { format!("{text}…") } else { text }
}
