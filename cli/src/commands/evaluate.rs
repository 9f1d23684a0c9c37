//! `elastico evaluate`

use crate::artefacts::Artefacts;
use crate::evaluation_page::{Material, evaluation_page};
use crate::evaluation_tables::{csv_tables, people_tables};
use crate::failure::Ending;
use crate::output::{self, Format, Talk};
use elastico_core::Seed;
use elastico_datasets::Dataset;
use elastico_trainer::{
    EvaluateOptions, Evaluation, Examples, LearnerKind, Newcomer, Split, Stage, TrainConfig,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The dataset's folder
    dataset: PathBuf,

    /// Splits: random_pair, unseen_family, unseen_subject, unseen_co_runner, unseen_device
    #[arg(long, value_delimiter = ',', value_name = "SPLIT")]
    splits: Vec<Split>,

    /// Learners: mean, processor_sharing, saturation, gpu_lets, bias_filter, matrix_factorisation, elastic_net,
    /// random_forest, extra_trees, boosting, rule_tree; auto = chosen inside the training part; all [default: all but random_forest and boosting, which take long].
    /// The mean and the formulas (processor_sharing, saturation, gpu_lets) are always judged too
    #[arg(long, value_delimiter = ',', value_name = "LEARNER")]
    learners: Vec<Choice>,

    /// Also rehearse what a few measurements of a new family or device bring; takes longer
    #[arg(long)]
    few_shot: bool,

    /// Settings of the learners, a TOML file; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A slowdown up to this counts as safe to share [default: 1.2]
    #[arg(long, value_name = "SLOWDOWN", allow_negative_numbers = true)]
    limit: Option<f64>,

    /// Seed of folds, forests and bootstrap [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<u64>,

    #[command(flatten)]
    rows: super::train::Rows,

    /// Also write a page: scores, predicted against observed, residuals by family, reliability of the bound, noise
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Replace a page that exists
    #[arg(long, requires = "page")]
    force: bool,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Judged where no learner is named: all but the slow ones that `train` does not take. On 6,732 rows they take as long as
/// all others together.
const DEFAULT: [LearnerKind; 9] = [
    LearnerKind::Mean,
    LearnerKind::ProcessorSharing,
    LearnerKind::Saturation,
    LearnerKind::GpuLets,
    LearnerKind::BiasFilter,
    LearnerKind::MatrixFactorisation,
    LearnerKind::ElasticNet,
    LearnerKind::ExtraTrees,
    LearnerKind::RuleTree,
];

/// One learner, or all.
#[derive(Debug, Clone, Copy)]
enum Choice {
    All,
    One(LearnerKind),
}

impl FromStr for Choice {
    type Err = elastico_trainer::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "all" { Ok(Self::All) } else { name.parse().map(Self::One) }
    }
}

/// The learners asked for, and what each of them is read against.
fn learners(asked: impl IntoIterator<Item = LearnerKind>) -> Vec<LearnerKind> {
    let asked: Vec<LearnerKind> = asked.into_iter().collect();
    let is_wanted = |learner: &LearnerKind| {
        *learner == LearnerKind::Mean || LearnerKind::FORMULAS.contains(learner) || asked.contains(learner)
    };
    LearnerKind::ALL.into_iter().chain([LearnerKind::Auto]).filter(is_wanted).collect()
}

pub(crate) fn run(arguments: &Arguments, talk: Talk) -> anyhow::Result<Ending> {
    let mut options = EvaluateOptions { learners: DEFAULT.to_vec(), ..EvaluateOptions::default() };
    if let Some(file) = &arguments.config {
        TrainConfig::read(file)?.apply_to_evaluate(&mut options);
    }
    options.limit = arguments.limit.unwrap_or(options.limit);
    options.seed = arguments.seed.map_or(options.seed, Seed);
    let inputs = std::iter::once(&arguments.dataset).chain(&arguments.config);
    let artefacts =
        Artefacts::files(arguments.page.as_deref().map(|page| ("--page", page)), arguments.force, inputs)?;
    if !arguments.splits.is_empty() {
        options.splits.clone_from(&arguments.splits);
    }
    if !arguments.learners.is_empty() {
        options.learners = arguments
            .learners
            .iter()
            .flat_map(|choice| match choice {
                Choice::All => LearnerKind::ALL.to_vec(),
                Choice::One(learner) => vec![*learner],
            })
            .collect();
    }
    options.learners = learners(options.learners);
    options.few_shot = arguments.few_shot;
    let mut seen = Vec::new();
    options.splits.retain(|split| {
        !seen.contains(split) && {
            seen.push(*split);
            true
        }
    });
    options.check()?;
    let dataset = Dataset::read(&arguments.dataset)?;
    let examples = Examples::from_dataset(&dataset, &arguments.rows.options())?;
    super::train::say_what_is_out_of_range(&examples, talk);
    talk.say(format!(
        "judging {} learners on {} splits of {} rows ({})",
        options.learners.len(),
        options.splits.len(),
        examples.rows(),
        kinds(&examples),
    ));
    artefacts.prove_writable()?;
    let mut progress = Progress::new(talk, &options);
    let mut watch = |stage: &Stage<'_>| progress.on(stage);
    let (evaluation, details) = match &arguments.page {
        Some(page) => {
            let (evaluation, details) =
                elastico_trainer::evaluate_in_detail(&examples, &options, &mut watch)?;
            (evaluation, Some((page, details)))
        }
        None => (elastico_trainer::evaluate_watched(&examples, &options, &mut watch)?, None),
    };
    progress.finish();
    for gap in gaps(&evaluation) {
        talk.say(gap);
    }
    if let Some((page, details)) = details {
        let material =
            Material { dataset: &dataset, examples: &examples, evaluation: &evaluation, details: &details };
        let html = evaluation_page(&material)?.render()?;
        artefacts.write(&[html.as_bytes()])?;
        talk.say(format!("wrote `{}` ({} kB)", page.display(), html.len() / 1000));
    }
    let tables = match arguments.format {
        Format::Table => people_tables(&evaluation),
        Format::Csv | Format::Json => csv_tables(&evaluation),
    };
    output::answer(arguments.format, &evaluation, &tables)?;
    if evaluation.has_scores() {
        return Ok(Ending::Done);
    }
    talk.say("no learner could be judged on any split");
    Ok(Ending::Negative)
}

/// Where the rows come from, in words.
pub(crate) fn kinds(examples: &Examples) -> String {
    examples.origin.device_kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Why some rows have no scores: a line for each learner and reason, with the splits that it holds for.
fn gaps(evaluation: &Evaluation) -> Vec<String> {
    let mut gaps: Vec<(String, Vec<&str>)> = Vec::new();
    for row in &evaluation.rows {
        let Some(reason) = &row.reason else { continue };
        // A learner's own words begin with its name.
        let own = format!("{} cannot be fitted: ", row.learner);
        let line = format!("{}: {}", row.learner, reason.strip_prefix(&own).unwrap_or(reason));
        match gaps.iter_mut().find(|(known, _)| *known == line) {
            Some((_, splits)) => splits.push(row.split.as_str()),
            None => gaps.push((line, vec![row.split.as_str()])),
        }
    }
    // What concerns a whole split is said once for it.
    let mut lines: Vec<String> = Vec::new();
    for (line, splits) in gaps {
        let (learner, reason) = line.split_once(": ").unwrap_or(("", &line));
        let is_of_split = evaluation
            .rows
            .iter()
            .filter(|row| splits.contains(&row.split.as_str()))
            .all(|row| row.reason.as_deref() == Some(reason));
        let who = if is_of_split { "any learner" } else { learner };
        let text = format!("no scores for {who} on {}: {reason}", splits.join(", "));
        if !lines.contains(&text) {
            lines.push(text);
        }
    }
    lines
}

/// How far the judging is, on stderr: a bar on a terminal, else a line for each part that took long.
struct Progress {
    talk: Talk,
    bar: Option<ProgressBar>,
    learners: u64,
    /// What is under way, since when.
    part: Option<(String, Instant)>,
    /// Seconds of each learner in this part, in the order of their first fit.
    learner: Option<(LearnerKind, Instant)>,
    spent: Vec<(LearnerKind, Duration)>,
}

impl Progress {
    fn new(talk: Talk, options: &EvaluateOptions) -> Self {
        let bar = talk.has_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let learners = options.learners.len() as u64;
        Self { talk, bar, learners, part: None, learner: None, spent: Vec::new() }
    }

    fn on(&mut self, stage: &Stage<'_>) {
        let (part, learner, message) = match *stage {
            Stage::Fit { split, learner, held_out, .. } => {
                (split.as_str().to_owned(), learner, format!("{split}: {learner} without {held_out}"))
            }
            Stage::Rehearse { newcomer, learner } => {
                let part = match newcomer {
                    Newcomer::Family => "probes of a new family",
                    Newcomer::Device => "pairs on a new device",
                };
                (part.to_owned(), learner, format!("{part}: {learner}"))
            }
        };
        self.end_of_learner();
        if self.part.as_ref().is_none_or(|(name, _)| *name != part) {
            self.end_of_part();
            self.part = Some((part, Instant::now()));
            if let Some(bar) = &self.bar {
                bar.set_position(0);
                bar.set_length(match stage {
                    Stage::Fit { folds, .. } => *folds as u64 * self.learners,
                    Stage::Rehearse { .. } => self.learners,
                });
            }
        }
        self.learner = Some((learner, Instant::now()));
        if let Some(bar) = &self.bar {
            bar.set_message(message);
            bar.inc(1);
        }
    }

    fn end_of_learner(&mut self) {
        let Some((learner, since)) = self.learner.take() else { return };
        match self.spent.iter_mut().find(|(known, _)| *known == learner) {
            Some((_, spent)) => *spent += since.elapsed(),
            None => self.spent.push((learner, since.elapsed())),
        }
    }

    fn end_of_part(&mut self) {
        /// What is over sooner needs no word.
        const LONG: Duration = Duration::from_secs(2);
        let spent = std::mem::take(&mut self.spent);
        let Some((part, since)) = self.part.take().filter(|(_, since)| since.elapsed() >= LONG) else {
            return;
        };
        let mut slow: Vec<_> = spent.into_iter().filter(|(_, spent)| spent.as_secs_f64() >= 0.5).collect();
        slow.sort_by_key(|(_, spent)| std::cmp::Reverse(*spent));
        let slow: Vec<String> =
            slow.iter().map(|(learner, spent)| format!("{learner} {:.0} s", spent.as_secs_f64())).collect();
        let line = format!("{part}: {:.0} s ({})", since.elapsed().as_secs_f64(), slow.join(", "));
        match &self.bar {
            Some(bar) => bar.suspend(|| self.talk.say(line)),
            None => self.talk.say(line),
        }
    }

    fn finish(mut self) {
        self.end_of_learner();
        self.end_of_part();
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
