//! Many runs at once: progress, interrupts, and what is written.

use super::{sweep_page, tables};
use crate::artefacts::Artefacts;
use crate::commands::profile::interrupted;
use crate::failure::Ending;
use crate::output::{self, Format, Talk};
use anyhow::Context as _;
use elastico_core::Digest;
use elastico_simulator::{Error, Sweep, SweepFolder, SweepRun, SweepSummary};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs everything in memory.
pub(super) fn compare(
    sweep: &Sweep,
    threads: NonZeroUsize,
    page: Option<Artefacts>,
    format: Format,
    talk: Talk,
) -> anyhow::Result<Ending> {
    warn(sweep, talk);
    let stop = interrupted()?;
    let mut runs = BTreeMap::new();
    let mut progress = Progress::new(talk, sweep.runs_total(), 0);
    let is_whole = sweep.run(&BTreeMap::new(), threads, &stop, |run| {
        progress.on(&run);
        runs.insert(run.key.clone(), run);
        Ok(())
    })?;
    progress.end();
    if !is_whole {
        talk.say("interrupted; nothing is kept of a comparison, `elastico simulate sweep` can go on");
        return Ok(Ending::Interrupted);
    }
    let summary = sweep.summary(&runs);
    if let Some(page) = page {
        page.write(&[sweep_page::page(&summary)?.render()?.as_bytes()])?;
    }
    answer(&summary, format)?;
    Ok(ending(&summary))
}

/// Refuses a folder in which the sweep would write over what it reads.
pub(super) fn check_outputs(sweep: &Sweep, file: &Path, out: &Path) -> anyhow::Result<()> {
    let names = ["sweep.json", "runs.jsonl", "summary.json", "summary.csv", "report.html"];
    let outputs = names.map(|name| out.join(name));
    let base = file.parent().unwrap_or(Path::new(""));
    let inputs = sweep.inputs().into_iter().map(|name| base.join(name)).chain([file.to_owned()]);
    Artefacts::files(outputs.iter().map(|path| ("--out", path.as_path())), true, inputs)?;
    Ok(())
}

/// Runs what the folder does not have, and sums up.
pub(super) fn run(
    sweep: &Sweep,
    out: &Path,
    resume: bool,
    threads: NonZeroUsize,
    format: Format,
    talk: Talk,
) -> anyhow::Result<Ending> {
    for warning in sweep.warnings() {
        talk.say(format!("warning: {warning}"));
    }
    warn(sweep, talk);
    let mut folder = SweepFolder::open(out, sweep, resume)?;
    let mut runs: BTreeMap<Digest, SweepRun> = folder.done().clone();
    let total = sweep.runs_total();
    let done = total - sweep.open_total(&runs);
    if done > 0 {
        talk.say(format!("{done} of {total} runs are there already"));
    }
    let stop = interrupted()?;
    let mut progress = Progress::new(talk, total, done);
    let known = runs.clone();
    let result = sweep.run(&known, threads, &stop, |run| -> Result<(), Error> {
        folder.append(&run)?;
        progress.on(&run);
        runs.insert(run.key.clone(), run);
        Ok(())
    });
    progress.end();
    if !result? {
        let done = total - sweep.open_total(&runs);
        talk.say(format!("interrupted; {done} of {total} runs are kept, go on with --resume"));
        return Ok(Ending::Interrupted);
    }
    let summary = sweep.summary(&runs);
    let json = serde_json::to_string_pretty(&summary).context("cannot write the summary as JSON")?;
    output::write_file(&out.join("summary.json"), format!("{json}\n").as_bytes())?;
    output::write_file(&out.join("summary.csv"), tables::long(&summary).to_csv()?.as_bytes())?;
    output::write_file(&out.join("report.html"), sweep_page::page(&summary)?.render()?.as_bytes())?;
    answer(&summary, format)?;
    talk.say(format!("wrote summary.json, summary.csv and report.html to {}", out.display()));
    Ok(ending(&summary))
}

fn warn(sweep: &Sweep, talk: Talk) {
    for line in sweep.idle_inputs() {
        talk.say(format!("warning: {line}"));
    }
}

fn answer(summary: &SweepSummary, format: Format) -> anyhow::Result<()> {
    let mut tables = match format {
        Format::Csv => vec![tables::long(summary)],
        Format::Table | Format::Json => tables::points(summary),
    };
    if format == Format::Table {
        tables.extend(tables::failed(summary));
    }
    output::answer(format, summary, &tables)
}

fn ending(summary: &SweepSummary) -> Ending {
    if summary.failed.is_empty() { Ending::Done } else { Ending::FailedTrials }
}

/// How far the runs are, on stderr: a bar on a terminal, else a line now and then.
struct Progress {
    talk: Talk,
    bar: Option<ProgressBar>,
    begin: Instant,
    /// When the last line was said.
    said: Instant,
    before: usize,
    done: usize,
    total: usize,
    /// Why runs have failed so far.
    reasons: BTreeSet<String>,
}

/// Time between two lines of progress where there is no terminal.
const SILENCE: Duration = Duration::from_secs(10);

impl Progress {
    fn new(talk: Talk, total: usize, done: usize) -> Self {
        let bar = talk.has_terminal().then(|| {
            let bar = ProgressBar::new(total as u64).with_position(done as u64);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} runs, {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let now = Instant::now();
        Self { talk, bar, begin: now, said: now, before: done, done, total, reasons: BTreeSet::new() }
    }

    fn on(&mut self, run: &SweepRun) {
        self.done += 1;
        // One word on each reason; the table of the failed has them all.
        if let Some(error) = run.error.as_ref().filter(|error| self.reasons.insert((*error).clone())) {
            let load = run.load_ratio.map(|load| format!(", load {load}")).unwrap_or_default();
            let line =
                format!("no result: {} on {}{load}, seed {}: {error}", run.policy, run.cluster, run.seed);
            match &self.bar {
                Some(bar) => bar.println(line),
                None => self.talk.say(line),
            }
        }
        let each = self.begin.elapsed().as_secs_f64() / (self.done - self.before) as f64;
        let left = each * (self.total - self.done) as f64;
        let left = if left < 120.0 { format!("{left:.0} s") } else { format!("{:.0} min", left / 60.0) };
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.done as u64);
                bar.set_message(format!("about {left} left"));
            }
            None if self.said.elapsed() >= SILENCE => {
                self.said = Instant::now();
                self.talk.say(format!("{} of {} runs, about {left} left", self.done, self.total));
            }
            None => {}
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
