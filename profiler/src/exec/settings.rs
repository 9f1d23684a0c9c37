//! What `profile exec` measures: two commands and how; the content of `exec.toml`.

use crate::Error;
use crate::campaign::{Budget, Stopping};
use crate::protocol::{Protocol, ProtocolSettings};
use elastico_core::{DeviceKind, DeviceName, Digest, Seed, SharingMode, WorkloadId, WorkloadKind};
use elastico_workloads::Benchmark;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name of the file in the run's folder.
pub const FILE: &str = "exec.toml";

/// One command of the user's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserCommand {
    /// Its name in the dataset, id of the workload and of its family.
    pub name: WorkloadId,
    /// What it is for.
    pub kind: WorkloadKind,
    /// What is run, by `/bin/sh -c`.
    pub command: String,
}

/// Two commands, and how they are measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Version of the file format: 1.
    pub schema: u32,
    /// A name for people.
    pub name: String,
    /// Everything random follows from it.
    pub seed: Seed,
    /// The GPU.
    pub device: DeviceName,
    /// How the two share it.
    pub sharing: Vec<SharingMode>,
    /// Where the commands run.
    pub folder: PathBuf,
    /// Lines of standard output that tell of a step, where kernels cannot be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_pattern: Option<String>,
    /// Whether kernels are recorded by the injected library.
    pub injection: bool,
    /// Longest time in seconds from the start of a command to steady progress.
    pub startup_seconds: f64,
    /// One side.
    pub a: UserCommand,
    /// The other side.
    pub b: UserCommand,
    /// When a cell is measured well enough.
    #[serde(default)]
    pub stopping: Stopping,
    /// How a trial is measured.
    #[serde(default)]
    pub protocol: ProtocolSettings,
    /// When to stop for cost.
    #[serde(default)]
    pub budget: Budget,
}

impl Settings {
    /// Reads the file of a run.
    ///
    /// # Errors
    /// [`Error::Read`], or [`Error::Campaign`] where it is not what this version writes.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file).map_err(|source| Error::read(file, source))?;
        let refuse = |message: String| Error::Campaign {
            file: file.to_owned(),
            line: 1,
            column: 1,
            message,
            suggestion: None,
        };
        let settings: Self = toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
        if settings.schema != 1 {
            return Err(refuse(format!(
                "schema {} is not known, this version reads schema 1",
                settings.schema
            )));
        }
        Ok(settings)
    }

    /// The settings as a file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("settings have only tables, strings and numbers")
    }

    /// Digest of everything that the numbers depend on: all but the budget, which may grow between runs.
    pub fn digest(&self) -> Digest {
        let unlimited = Self { budget: Budget::default(), ..self.clone() };
        let canonical = serde_json::to_string(&unlimited).expect("settings are plain data");
        Digest::of(["elastico.exec/1", &canonical])
    }

    /// The workloads, by id.
    pub fn benchmarks(&self) -> BTreeMap<WorkloadId, Benchmark> {
        [&self.a, &self.b]
            .into_iter()
            .map(|side| (side.name.clone(), Benchmark::opaque(side.name.clone(), side.kind)))
            .collect()
    }

    /// The commands, by id.
    pub fn commands(&self) -> BTreeMap<WorkloadId, String> {
        [&self.a, &self.b].into_iter().map(|side| (side.name.clone(), side.command.clone())).collect()
    }

    /// The protocol with the defaults of user programs: their steps are long and their starts are dear.
    ///
    /// | setting | default |
    /// |---|---|
    /// | `min_seconds`, `max_seconds` | 5, 60 |
    /// | `min_steps`, `settle_steps` | 20, 2 |
    /// | `retries` | 1 |
    /// | `deadline_seconds` | as for a GPU, with the start-ups of both sides |
    ///
    /// The rest is that of a GPU.
    pub fn protocol(&self) -> Protocol {
        let given = self.protocol;
        let min_seconds = given.min_seconds.unwrap_or(5.0);
        let settings = ProtocolSettings {
            min_seconds: Some(min_seconds),
            max_seconds: Some(given.max_seconds.unwrap_or(60.0).max(min_seconds)),
            min_steps: Some(given.min_steps.unwrap_or(20)),
            settle_steps: Some(given.settle_steps.unwrap_or(2)),
            retries: Some(given.retries.unwrap_or(1)),
            ..given
        };
        let resolved = Protocol::resolve(&settings, DeviceKind::Cuda);
        let starts = 2.0 * self.startup_seconds * f64::from(resolved.retries + 1);
        Protocol {
            deadline_seconds: given.deadline_seconds.unwrap_or(resolved.deadline_seconds + starts),
            // One side must be said to be alone before its words about the other mean anything.
            sentinel_every: u32::MAX,
            ..resolved
        }
    }
}

/// A name for a command that has none: of its program, or of the script that an interpreter runs.
///
/// ```
/// use elastico_profiler::exec::name_of;
/// assert_eq!(name_of("CUDA_LAUNCH_BLOCKING=0 python3 -u tools/train.py --epochs 3"), "train");
/// assert_eq!(name_of("torchrun --nproc-per-node=1 train_llm.py"), "train_llm");
/// assert_eq!(name_of("python -m vllm.entrypoints.openai.api_server"), "vllm.entrypoints.openai.api_server");
/// assert_eq!(name_of("./bin/serve"), "serve");
/// assert_eq!(name_of("  "), "command");
/// ```
pub fn name_of(command: &str) -> String {
    const INTERPRETERS: [&str; 8] = ["python", "torchrun", "accelerate", "bash", "sh", "uv", "conda", "env"];
    let words: Vec<&str> = command
        .split_ascii_whitespace()
        .skip_while(|word| word.contains('=') && !word.starts_with(['-', '/', '.']))
        .collect();
    let stem = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or(word);
        let name = name.strip_suffix(".py").or_else(|| name.strip_suffix(".sh")).unwrap_or(name);
        let kept = |letter: &char| letter.is_ascii_alphanumeric() || ['_', '-', '.'].contains(letter);
        name.chars().filter(kept).take(60).collect::<String>()
    };
    let program = words.first().map(|word| stem(word)).unwrap_or_default();
    let interprets = INTERPRETERS.iter().any(|name| {
        program.strip_prefix(name).is_some_and(|rest| rest.chars().all(|letter| !letter.is_alphabetic()))
    });
    let is_script = |word: &str| Path::new(word).extension().is_some_and(|end| end == "py" || end == "sh");
    let script = words.iter().skip(1).find(|word| is_script(word));
    let module = words.windows(2).find(|pair| pair[0] == "-m").map(|pair| &pair[1]);
    let name = match (interprets, script, module) {
        (true, Some(script), _) => stem(script),
        (true, None, Some(module)) => stem(module),
        _ => program,
    };
    if name.is_empty() { "command".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn settings() -> Settings {
        let side = |name: &str, kind| UserCommand {
            name: WorkloadId::new(name).unwrap(),
            kind,
            command: format!("./{name} --steps 10"),
        };
        Settings {
            schema: 1,
            name: "train beside serve".to_owned(),
            seed: Seed(0),
            device: "cuda:0".parse().unwrap(),
            sharing: vec![SharingMode::TimeSlice, "mps(0.3,0.7)".parse().unwrap()],
            folder: PathBuf::from("/work"),
            progress_pattern: Some("^step".to_owned()),
            injection: true,
            startup_seconds: 60.0,
            a: side("train", WorkloadKind::Training),
            b: side("serve", WorkloadKind::Inference),
            stopping: Stopping::default(),
            protocol: ProtocolSettings::default(),
            budget: Budget::default(),
        }
    }

    #[test]
    fn settings_survive_the_file_and_the_budget_may_grow() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        std::fs::write(&file, settings().to_toml()).unwrap();
        let read = Settings::read(&file).unwrap();
        assert_eq!(read, settings());
        let grown = Settings { budget: Budget { max_trials: Some(3), ..Budget::default() }, ..settings() };
        assert_eq!(grown.digest(), read.digest());
        let other = Settings { progress_pattern: None, ..settings() };
        assert_ne!(other.digest(), read.digest());
        std::fs::write(&file, settings().to_toml().replace("schema = 1", "schema = 7")).unwrap();
        assert!(Settings::read(&file).unwrap_err().to_string().contains("schema 7"));
        std::fs::write(&file, "nonsense").unwrap();
        assert!(matches!(Settings::read(&file), Err(Error::Campaign { .. })));
    }

    #[test]
    fn the_plan_has_each_alone_and_each_mode_together() {
        use crate::{DeviceIdentity, Plan, Role};
        let device = DeviceIdentity {
            kind: DeviceKind::Cuda,
            model: "h200".to_owned(),
            memory: elastico_core::units::Bytes(141e9),
            facts: BTreeMap::new(),
        };
        let plan = Plan::of_commands(&settings(), &device).unwrap();
        let cells: Vec<(Role, &str, Option<&str>, String, u32)> = plan
            .cells
            .iter()
            .map(|cell| {
                let co_runner = cell.co_runner.as_ref().map(WorkloadId::as_str);
                (cell.role, cell.subject.as_str(), co_runner, cell.sharing.to_string(), cell.wave)
            })
            .collect();
        // The lesser name is the subject, and the shares are turned with it.
        assert_eq!(
            cells,
            [
                (Role::Isolated, "serve", None, "exclusive".to_owned(), 0),
                (Role::Isolated, "train", None, "exclusive".to_owned(), 0),
                (Role::Pair, "serve", Some("train"), "time_slice".to_owned(), 1),
                (Role::Pair, "serve", Some("train"), "mps(0.7,0.3)".to_owned(), 1),
            ]
        );
        assert!(
            plan.workloads.iter().all(|facts| facts.is_opaque && facts.family.as_str() == facts.id.as_str())
        );
        let reread = Plan::from_jsonl(&plan.to_jsonl(), Path::new("plan.jsonl")).unwrap();
        assert_eq!(reread, plan);
        assert!(plan.header.protocol.deadline_seconds > 3.0 * (30.0 + 5.0 * 60.0));
    }

    #[test]
    fn a_program_beside_itself_is_one_workload() {
        let twice = Settings { b: settings().a, ..settings() };
        assert_eq!(twice.benchmarks().len(), 1);
    }
}
