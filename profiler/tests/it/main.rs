//! Whole campaigns in folders.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod cpu;
mod cuda;
mod exec;
mod faults;
mod kernels;
mod model;
mod recorded;
mod resume;

use elastico_profiler::{Campaign, RunOptions, RunReport, devices::simulated::Simulated, run};
use elastico_workloads::Catalogue;
use std::path::Path;

fn campaign(text: &str) -> Campaign {
    Campaign::parse(text, Path::new("campaign.toml")).unwrap()
}

fn small() -> Campaign {
    campaign(
        r#"
schema = 1
name = "small"
seed = 11
device = "sim:h100"
sharing = ["mps(0.5,0.5)", "time_slice"]
max_pairs = 6
[workloads]
subjects = ["training", "stressor"]
co_runners = ["inference", "stressor"]
[protocol]
sentinel_every = 7
"#,
    )
}

fn run_simulated(campaign: &Campaign, folder: &Path, options: &RunOptions<'_>) -> RunReport {
    let mut device = Simulated::new("h100").unwrap();
    run(campaign, &Catalogue::bundled(), &mut device, folder, options, &mut |_| {}).unwrap()
}

/// All files of a dataset with their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}
