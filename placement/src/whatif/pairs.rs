//! Questions about two workloads on one GPU: the predictor alone answers.

use crate::Error;
use crate::cluster::Cluster;
use crate::options::Options;
use crate::pairing::{PairOutcome, PairTable, find};
use crate::provenance::Basis;
use elastico_core::{CHIPS, SharingMode, WorkloadId, WorkloadKind, chip, suggest};
use elastico_models::{Predictor, Profiles};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The schema id of an answer about a pair.
pub const PAIR_SCHEMA: &str = "elastico.whatif.pair/1";
/// The schema id of an answer about partners.
pub const PARTNERS_SCHEMA: &str = "elastico.whatif.partners/1";

/// Yes, no, or that nothing says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may: for a pair, both upper bounds are within the limit, and memory fits.
    Yes,
    /// It may not: for a pair, an upper bound exceeds the limit, or memory does not fit.
    No,
    /// The prediction extrapolates, or a profile or a footprint is missing.
    CannotTell,
}

/// One sharing mode of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairWay {
    /// The mode, seen from `a`.
    #[schemars(with = "String")]
    pub sharing: SharingMode,
    /// Predicted slowdowns of `a` and `b`.
    pub slowdown: [f64; 2],
    /// Upper bounds of both.
    pub upper: [f64; 2],
    /// Both normalised throughputs together; over 1, sharing beats taking turns.
    pub stp: f64,
    /// Whether the prediction is within the model's domain.
    pub in_domain: bool,
    /// Whether the mode is permitted.
    pub verdict: Verdict,
}

/// The answer to "can these two share a GPU".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairAnswer {
    /// `elastico.whatif.pair/1`.
    pub schema: String,
    /// One workload.
    #[schemars(with = "String")]
    pub a: WorkloadId,
    /// The other.
    #[schemars(with = "String")]
    pub b: WorkloadId,
    /// The chip.
    pub device: String,
    /// The limit on both upper bounds.
    pub limit: f64,
    /// Whether any mode is permitted.
    pub verdict: Verdict,
    /// What binds, in words.
    pub binds: String,
    /// Footprints of both where known.
    pub memory_bytes: [Option<f64>; 2],
    /// Memory of the GPU.
    pub gpu_memory_bytes: f64,
    /// Whether both fit; absent where a footprint is unknown.
    pub memory_fits: Option<bool>,
    /// The modes, permitted ones first, then by throughput together.
    pub ways: Vec<PairWay>,
    /// What it rests on.
    pub basis: Basis,
}

/// What to ask of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairQuestion {
    /// The chip.
    pub device: String,
    /// The sharing modes to try.
    pub sharing: Vec<SharingMode>,
    /// The limit on both upper bounds.
    pub limit: f64,
}

impl PairQuestion {
    /// The modes and the limit of the options, on a chip.
    pub fn on(device: impl Into<String>, options: &Options) -> Self {
        Self { device: device.into(), sharing: options.sharing.clone(), limit: options.limit }
    }
}

fn known_chip(device: &str, profiles: &Profiles) -> Result<&'static elastico_core::Chip, Error> {
    chip(device).ok_or_else(|| {
        let of_profiles: BTreeSet<&str> = profiles.iter().map(|profile| profile.device.as_str()).collect();
        // A chip that the profiles know is meant sooner than one that they do not.
        let longer =
            of_profiles.iter().copied().find(|known| !device.is_empty() && known.starts_with(device));
        let near = longer
            .or_else(|| suggest(device, of_profiles.iter().copied()))
            .or_else(|| suggest(device, CHIPS.iter().map(|chip| chip.name)))
            .map(str::to_owned);
        match Error::unknown("chip", device, of_profiles) {
            Error::Unknown { what, name, known, .. } => {
                Error::Unknown { what, name, suggestion: near, known }
            }
            other => other,
        }
    })
}

fn known_workload(profiles: &Profiles, workload: &WorkloadId) -> Result<(), Error> {
    if profiles.iter().any(|profile| profile.workload == *workload) {
        return Ok(());
    }
    let names = profiles.iter().map(|profile| profile.workload.as_str());
    Err(Error::unknown("workload", workload.as_str(), names))
}

fn one_chip(device: &str, profiles: &Profiles) -> Result<Cluster, Error> {
    let chip = known_chip(device, profiles)?;
    let text = format!("[[pool]]\nid = \"{0}\"\ndevice = \"{0}\"\nnodes = 1\ngpus_per_node = 1\n", chip.name);
    Cluster::from_toml(&text, std::path::Path::new("one chip"))
}

/// Can `a` and `b` share a GPU?
///
/// # Errors
/// [`Error::Unknown`] for an unknown workload or chip, [`Error::Predictor`] where the model fails.
pub fn pair(
    a: &WorkloadId,
    b: &WorkloadId,
    question: &PairQuestion,
    profiles: &Profiles,
    predictor: &dyn Predictor,
) -> Result<PairAnswer, Error> {
    known_workload(profiles, a)?;
    known_workload(profiles, b)?;
    let cluster = one_chip(&question.device, profiles)?;
    let table = PairTable::predict([a.clone(), b.clone()], &cluster, &question.sharing, profiles, predictor)?;
    answer(a, b, question, profiles, &table)
}

fn answer(
    a: &WorkloadId,
    b: &WorkloadId,
    question: &PairQuestion,
    profiles: &Profiles,
    table: &PairTable,
) -> Result<PairAnswer, Error> {
    let chip = known_chip(&question.device, profiles)?;
    let known = [a, b].map(|workload| find(profiles, workload, chip.name));
    let memory = known.map(|profile| {
        profile
            .and_then(|profile| profile.fields.get("footprint_bytes").copied())
            .filter(|bytes| bytes.is_finite())
    });
    let memory_fits = memory[0].zip(memory[1]).map(|(a, b)| a + b <= chip.memory.get());
    let way = |outcome: PairOutcome| {
        let verdict = if !outcome.in_domain || memory_fits.is_none() {
            Verdict::CannotTell
        } else if memory_fits == Some(true) && outcome.upper.iter().all(|upper| *upper <= question.limit) {
            Verdict::Yes
        } else {
            Verdict::No
        };
        PairWay {
            stp: outcome.slowdown.iter().map(|slowdown| slowdown.recip()).sum(),
            sharing: outcome.sharing,
            slowdown: outcome.slowdown,
            upper: outcome.upper,
            in_domain: outcome.in_domain,
            verdict,
        }
    };
    let mut ways: Vec<PairWay> = table.get(chip.name, a, b).into_iter().map(way).collect();
    ways.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(b.stp.total_cmp(&a.stp)));
    let verdict = if memory_fits == Some(false) {
        Verdict::No
    } else if ways.iter().any(|way| way.verdict == Verdict::Yes) {
        Verdict::Yes
    } else if ways.iter().all(|way| way.verdict == Verdict::CannotTell) {
        Verdict::CannotTell
    } else {
        Verdict::No
    };
    let stranger = table.model().is_some_and(|model| !model.knows_device(chip.name));
    let binds = if stranger {
        format!(
            "the model was not trained on {}: calibrate it with pairs measured there (`elastico train --calibrate`)",
            chip.name
        )
    } else {
        binds(a, b, &ways, known.map(|profile| profile.is_some()), memory_fits, question)
    };
    let kinds = known.iter().flatten().map(|profile| profile.device_kind);
    Ok(PairAnswer {
        schema: PAIR_SCHEMA.to_owned(),
        a: a.clone(),
        b: b.clone(),
        device: chip.name.to_owned(),
        limit: question.limit,
        verdict,
        binds,
        memory_bytes: memory,
        gpu_memory_bytes: chip.memory.get(),
        memory_fits,
        ways,
        basis: Basis::new(kinds, table.model().cloned()),
    })
}

fn binds(
    a: &WorkloadId,
    b: &WorkloadId,
    ways: &[PairWay],
    known: [bool; 2],
    memory_fits: Option<bool>,
    question: &PairQuestion,
) -> String {
    if let Some(missing) = [a, b].into_iter().zip(known).find(|(_, known)| !known) {
        return format!("{} has no profile on {}", missing.0, question.device);
    }
    if memory_fits == Some(false) {
        return "device memory: both footprints together exceed it".to_owned();
    }
    if memory_fits.is_none() {
        return "device memory: a footprint is unknown".to_owned();
    }
    // The way nearest to the limit, and its worse side.
    let worst = |way: &PairWay| way.upper[0].max(way.upper[1]);
    let nearest = ways.iter().filter(|way| way.in_domain).min_by(|a, b| worst(a).total_cmp(&worst(b)));
    match nearest {
        None => "the model's domain: every prediction extrapolates".to_owned(),
        Some(way) => {
            let side = usize::from(way.upper[1] > way.upper[0]);
            format!(
                "the slowdown of {} by {}: at most {:.2}x against a limit of {:.2}x",
                if side == 0 { a } else { b },
                way.sharing,
                way.upper[side],
                question.limit
            )
        }
    }
}

/// The answer to "who should share with it".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartnersAnswer {
    /// `elastico.whatif.partners/1`.
    pub schema: String,
    /// The workload that looks for a co-runner.
    #[schemars(with = "String")]
    pub subject: WorkloadId,
    /// One answer per candidate: permitted ones first, then by throughput together.
    pub partners: Vec<PairAnswer>,
}

/// Who among the candidates should share a GPU with the subject? All profiled training and inference where none are named.
///
/// # Errors
/// As [`pair`].
pub fn partners(
    subject: &WorkloadId,
    among: &[WorkloadId],
    question: &PairQuestion,
    profiles: &Profiles,
    predictor: &dyn Predictor,
) -> Result<PartnersAnswer, Error> {
    known_workload(profiles, subject)?;
    let cluster = one_chip(&question.device, profiles)?;
    let mut among: Vec<WorkloadId> = if among.is_empty() {
        let device = known_chip(&question.device, profiles)?.name;
        profiles
            .iter()
            .filter(|profile| profile.device == device)
            // Stressors and the null workload are instruments: nobody chooses to sit beside them.
            .filter(|profile| matches!(profile.kind, WorkloadKind::Training | WorkloadKind::Inference))
            .map(|profile| profile.workload.clone())
            .collect()
    } else {
        among.iter().try_for_each(|workload| known_workload(profiles, workload))?;
        among.to_vec()
    };
    among.sort();
    among.dedup();
    let all = among.iter().cloned().chain([subject.clone()]);
    let table = PairTable::predict(all, &cluster, &question.sharing, profiles, predictor)?;
    let answers = among.iter().map(|other| answer(subject, other, question, profiles, &table));
    let mut partners = answers.collect::<Result<Vec<_>, _>>()?;
    let best = |answer: &PairAnswer| answer.ways.first().map_or(0.0, |way| way.stp);
    partners.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(best(b).total_cmp(&best(a))).then(a.b.cmp(&b.b)));
    Ok(PartnersAnswer { schema: PARTNERS_SCHEMA.to_owned(), subject: subject.clone(), partners })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::CannotTell => "cannot tell",
        })
    }
}

impl fmt::Display for PairAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = if self.basis.simulated { " (simulated)" } else { "" };
        writeln!(f, "{} beside {} on {}: {}{simulated}", self.a, self.b, self.device, self.verdict)?;
        writeln!(f, "  what binds: {}", self.binds)?;
        for way in &self.ways {
            writeln!(
                f,
                "  {:<14} {:.2}x (at most {:.2}x) and {:.2}x (at most {:.2}x), together {:.2}: {}",
                way.sharing,
                way.slowdown[0],
                way.upper[0],
                way.slowdown[1],
                way.upper[1],
                way.stp,
                way.verdict
            )?;
        }
        Ok(())
    }
}
