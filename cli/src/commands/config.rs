//! `elastico config`

use crate::failure::{Ending, usage};
use crate::output::{self, Talk};
use clap::{Subcommand, ValueEnum};
use elastico_placement::{Cluster, Jobs};
use elastico_profiler::Campaign;
use elastico_trainer::{LearnerKind, TrainConfig};
use elastico_workloads::Catalogue;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read a file and say whether it is sound
    Check {
        /// What the file is
        #[arg(value_enum)]
        kind: Kind,
        /// The file
        file: PathBuf,
    },
    /// Print the JSON schema of a file
    Schema {
        /// The file's kind
        #[arg(value_enum)]
        kind: Kind,
    },
    /// Print a campaign as it was understood
    Show {
        /// The campaign
        campaign: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// What `profile run` measures
    Campaign,
    /// The benchmarks
    Catalogue,
    /// Pools for `place`
    Cluster,
    /// Jobs for `place`
    Jobs,
    /// Settings for `train` and `evaluate`
    Train,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<Ending> {
    match command {
        Command::Check { kind, file } => {
            let summary = match kind {
                Kind::Campaign => {
                    let campaign = Campaign::read(file)?;
                    format!("campaign `{}` on {} devices", campaign.name, campaign.device.len())
                }
                Kind::Catalogue => format!("{} benchmarks", Catalogue::read(file)?.iter().count()),
                Kind::Cluster => format!("{} GPUs", Cluster::read(file)?.gpu_count()),
                Kind::Jobs => format!("{} jobs", Jobs::read(file)?.job.len()),
                Kind::Train => {
                    let learner = TrainConfig::read(file)?.learner;
                    format!("learner {}", learner.map_or("by default", LearnerKind::as_str))
                }
            };
            Talk::new(false).say(format!("`{}` is sound: {summary}", file.display()));
        }
        Command::Schema { kind } => {
            let name = match kind {
                Kind::Catalogue => {
                    return output::print(&elastico_workloads::catalogue_schema()).map(|()| Ending::Done);
                }
                Kind::Cluster => "cluster",
                Kind::Jobs => "jobs",
                Kind::Train => {
                    return Err(usage(
                        "the settings of training have no JSON schema yet",
                        "see docs/guides/predict.md, or `elastico config check train` on a file",
                    ));
                }
                Kind::Campaign => {
                    return Err(usage(
                        "a campaign has no JSON schema yet",
                        "see docs/guides/profile.md, or `elastico config show` on a campaign",
                    ));
                }
            };
            let schemas = elastico_placement::schemas();
            let found = schemas.iter().find(|(file, _)| file.starts_with(name));
            let Some((_, schema)) = found else {
                return Err(usage(format!("there is no schema for {name}"), "name another kind"));
            };
            output::print(schema)?;
        }
        Command::Show { campaign } => output::print(&Campaign::read(campaign)?.to_toml())?,
    }
    Ok(Ending::Done)
}
