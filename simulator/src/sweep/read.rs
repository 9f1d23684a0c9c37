//! From a file to a sweep whose inputs are in memory.

use super::scene::{Inputs, Scene, Source};
use super::spec::{Document, Draw, TraceSection};
use super::{Part, Sweep, VERSION};
use crate::error::check;
use crate::{
    ClusterSpec, Error, Options, PolicyKind, SlowdownTable, SpeedTable, SyntheticWorkload, Trace, TraceJob,
};
use elastico_core::Digest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Sweep {
    /// Reads a sweep, `elastico.sweep/1`, and everything that it names. Paths in it are relative to the file.
    ///
    /// # Errors
    /// What is wrong in the file, with line and column, or what the reader of an input refuses.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = crate::document::read(path)?;
        Self::parse(&text, path)
    }

    /// Like [`Self::read`], from a text; `path` is where its relative paths start, and is named in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let document = Document::parse(text, path)?;
        let refuse = |why: String| Error::Sweep { path: path.into(), place: None, why, suggestion: None };
        let mut files =
            Files { base: path.parent().unwrap_or(Path::new("")).into(), digests: BTreeMap::new() };
        let grids = document.grids().map_err(refuse)?;

        let mut clusters: Vec<ClusterSpec> = Vec::new();
        let mut parts = Vec::new();
        for grid in grids {
            let mut own = Vec::new();
            for text in &grid.clusters {
                let file = files.base.join(text);
                let cluster = if file.is_file() {
                    ClusterSpec::read(&file)?
                } else {
                    text.parse()
                        .map_err(|error: Error| refuse(format!("clusters: {error}, and no such file")))?
                };
                let index = clusters.iter().position(|known| *known == cluster).unwrap_or_else(|| {
                    clusters.push(cluster);
                    clusters.len() - 1
                });
                if own.contains(&index) {
                    return Err(refuse(format!("the cluster `{text}` is listed twice")));
                }
                own.push(index);
            }
            parts.push(Part { clusters: own, loads: grid.loads, policies: grid.policies, seeds: grid.seeds });
        }

        let inputs = files.tables(&document)?;
        let source = match (&document.trace, &document.synthetic) {
            (Some(section), None) => files.trace(section, &inputs, &parts, &refuse)?,
            (None, Some(section)) => {
                if parts.iter().any(|part| part.loads.contains(&None)) {
                    return Err(refuse(
                        "a synthetic trace has no load of its own, and no loads are given".into(),
                    ));
                }
                let workloads = SyntheticWorkload::read(&files.file(&section.workloads)?)?;
                let options = section.options();
                let wrong = |error: Error| refuse(format!("[synthetic]: {error}"));
                options.check(&workloads).map_err(wrong)?;
                for cluster in &clusters {
                    options.jobs(cluster).map_err(wrong)?;
                }
                Source::Mix(options, workloads)
            }
            (Some(_), Some(_)) => return Err(refuse("both [trace] and [synthetic] are given".into())),
            (None, None) => return Err(refuse("neither [trace] nor [synthetic] is given".into())),
        };
        let options = document.options.options();
        options.check().map_err(|error| refuse(format!("[options]: {error}")))?;
        if let Some(scaling) = &document.scaling {
            scaling.check().map_err(|error| refuse(format!("[scaling]: {error}")))?;
        }

        let spec: Value = toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
        let sections = ["trace", "synthetic", "tables", "scaling"];
        let described: BTreeMap<&str, &Value> =
            sections.iter().filter_map(|name| Some((*name, spec.get(name)?))).collect();
        let scene =
            Scene { source, inputs, description: json!({ "sections": described, "digests": files.digests }) };
        for part in &parts {
            for load in part.loads.iter().flatten().filter(|load| **load < SUSPICIOUS_LOAD) {
                for cluster in &part.clusters {
                    let seed = part.seeds.first().copied().unwrap_or_default();
                    if let Err(error @ Error::Stretched { .. }) =
                        scene.trace(&clusters[*cluster], Some(*load), seed)
                    {
                        return Err(refuse(error.to_string()));
                    }
                }
            }
        }
        let names: Vec<String> = clusters.iter().map(ToString::to_string).collect();
        let description = json!({
            "schema": "elastico.sweep_inputs/1",
            "elastico_version": VERSION,
            "spec": spec,
            "clusters": names,
            "digests": files.digests,
        });
        let name = document.name.clone().unwrap_or_else(|| {
            path.file_stem().map_or_else(|| "sweep".to_owned(), |stem| stem.to_string_lossy().into_owned())
        });
        let rivals =
            document.rivals.map(|rivals| rivals.iter().map(|rival| rival.0.name().to_owned()).collect());
        Self::put_together(
            name,
            document.baseline.0.name(),
            rivals,
            clusters,
            &parts,
            scene,
            options,
            description,
        )
    }

    /// A sweep over a trace that is in memory; each seed resamples it. One seed takes the trace itself.
    ///
    /// # Errors
    /// No policy, load or seed, a number that cannot be, or a policy that lacks its tables.
    pub fn of_trace(
        trace: Trace,
        cluster: ClusterSpec,
        loads: &[Option<f64>],
        policies: &[PolicyKind],
        seeds: u64,
        tables: (Option<SlowdownTable>, Option<SpeedTable>, Option<SlowdownTable>, Option<SpeedTable>),
        options: Options,
    ) -> Result<Self, Error> {
        let baseline = policies.first().ok_or(Error::Nothing("policy"))?.name().to_owned();
        if loads.is_empty() {
            return Err(Error::Nothing("load"));
        }
        for load in loads.iter().flatten() {
            check(|| "a load".to_owned(), *load, f64::MIN_POSITIVE, "above 0")?;
        }
        if seeds == 0 {
            return Err(Error::Nothing("seed"));
        }
        options.check()?;
        let name = trace.name.clone();
        let (truth, speeds_truth, planner, speeds_planner) = tables;
        let part = Part {
            clusters: vec![0],
            loads: loads.to_vec(),
            policies: policies.to_vec(),
            seeds: (0..seeds).collect(),
        };
        let scene = Scene {
            source: if seeds == 1 { Source::Whole(trace) } else { Source::Resample(trace) },
            inputs: Inputs { truth, planner, speeds_truth, speeds_planner, scaling: None },
            description: Value::Null,
        };
        Self::put_together(name, &baseline, None, vec![cluster], &[part], scene, options, Value::Null)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields, checked together")]
    fn put_together(
        name: String,
        baseline: &str,
        rivals: Option<Vec<String>>,
        clusters: Vec<ClusterSpec>,
        parts: &[Part],
        scene: Scene,
        options: Options,
        description: Value,
    ) -> Result<Self, Error> {
        let has_tables = scene.inputs.truth.is_some() && scene.inputs.planner.is_some();
        let needy = parts.iter().flat_map(|part| &part.policies).find(|policy| policy.colocates());
        if let Some(policy) = needy.filter(|_| !has_tables) {
            return Err(Error::NoTable { policy: policy.name().to_owned() });
        }
        let runs = Self::plan(parts, &clusters, &scene, &options)?;
        Ok(Self { name, baseline: baseline.to_owned(), rivals, clusters, scene, options, runs, description })
    }
}

/// A trace is made ahead of its run only for a load below this: others can hardly make one too long.
const SUSPICIOUS_LOAD: f64 = 1e-3;

/// Files beside the description, and what is in them.
struct Files {
    base: PathBuf,
    digests: BTreeMap<String, Digest>,
}

impl Files {
    /// The path of a file or folder, whose content counts from now on.
    fn file(&mut self, name: &str) -> Result<PathBuf, Error> {
        let path = self.base.join(name);
        let digest = digest(&path)?;
        self.digests.insert(name.to_owned(), digest);
        Ok(path)
    }

    fn optional(&mut self, name: Option<&String>) -> Result<Option<PathBuf>, Error> {
        name.map(|name| self.file(name)).transpose()
    }

    fn tables(&mut self, document: &Document) -> Result<Inputs, Error> {
        let section = &document.tables;
        let device = section.speeds_on.as_deref().unwrap_or("a100");
        let slowdowns = |path: Option<PathBuf>| path.map(|path| SlowdownTable::read(&path)).transpose();
        let speeds = |path: Option<PathBuf>| path.map(|path| SpeedTable::read(&path, device)).transpose();
        // A trace of Gavel comes with the file that knows how fast its jobs are elsewhere.
        let throughputs = document.trace.as_ref().and_then(|trace| trace.throughputs.as_ref());
        let happens = speeds(self.optional(section.speeds_truth.as_ref().or(throughputs))?)?;
        let believed = speeds(self.optional(section.speeds_planner.as_ref())?)?;
        Ok(Inputs {
            truth: slowdowns(self.optional(section.truth.as_ref())?)?,
            planner: slowdowns(self.optional(section.planner.as_ref())?)?,
            speeds_planner: believed.or_else(|| happens.clone()),
            speeds_truth: happens,
            scaling: document.scaling.clone(),
        })
    }

    fn trace(
        &mut self,
        section: &TraceSection,
        inputs: &Inputs,
        parts: &[Part],
        refuse: &dyn Fn(String) -> Error,
    ) -> Result<Source, Error> {
        let mut options = section.options().map_err(refuse)?;
        options.throughputs = self.optional(section.throughputs.as_ref())?;
        options.profiles = self.optional(section.profiles.as_ref())?;
        options.mapping = match &section.mapping {
            Some(name) if self.base.join(name).is_file() => Some(self.file(name)?.display().to_string()),
            other => other.clone(),
        };
        let mut trace = Trace::read(&self.file(&section.file)?, &options)?;
        if section.from_seconds.is_some() || section.to_seconds.is_some() {
            trace = trace
                .window(section.from_seconds.unwrap_or(0.0), section.to_seconds.unwrap_or(f64::INFINITY))?;
        }
        if section.elastic {
            let speeds = inputs.speeds_truth.as_ref();
            trace = trace.elastic(speeds.ok_or_else(|| {
                refuse(
                    "`elastic` needs speeds_truth, which says how fast jobs are on other numbers of GPUs"
                        .into(),
                )
            })?);
            if !trace.jobs().iter().any(TraceJob::is_elastic) {
                return Err(refuse(
                    "`elastic` frees no job: speeds_truth lists no other number of GPUs for a workload of the trace, and \
                     a law alone has no range"
                        .into(),
                ));
            }
        }
        match (section.draw, section.sample) {
            (Draw::Resample, None) => Ok(Source::Resample(trace)),
            (Draw::Sample, Some(jobs)) if (1..=trace.jobs().len()).contains(&jobs) => {
                Ok(Source::Sample(trace, jobs))
            }
            (Draw::Sample, Some(jobs)) => Err(refuse(format!(
                "`sample` is {jobs}, it must be at least 1 and at most the {} jobs of the trace",
                trace.jobs().len()
            ))),
            (Draw::Sample, None) => {
                Err(refuse("`draw = \"sample\"` needs `sample`, the number of jobs".into()))
            }
            (_, Some(_)) => Err(refuse("`sample` needs `draw = \"sample\"`".into())),
            (Draw::Whole, None) if parts.iter().any(|part| part.seeds.len() > 1) => {
                Err(refuse("under `draw = \"whole\"` all seeds would be the same; give one".into()))
            }
            (Draw::Whole, None) => Ok(Source::Whole(trace)),
        }
    }
}

/// The digest of a file, or of all files below a folder with their names.
fn digest(path: &Path) -> Result<Digest, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    if !path.is_dir() {
        return Ok(Digest::of([std::fs::read(path).map_err(failed)?]));
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    entries.sort();
    let mut parts = Vec::new();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        parts.push(name);
        parts.push(digest(&entry)?.to_string());
    }
    Ok(Digest::of(parts))
}
