//! Trains extra trees on 1,000,000 made-up rows of 40 prepared columns with the defaults, and prints the peak memory of the
//! whole process: dataset, examples, fits on all folds, export and verification.
//!
//! `cargo run --release -p elastico-trainer --example memory [ROWS]`

#![allow(clippy::print_stdout, reason = "an example prints")]

#[path = "../benches/made_up.rs"]
mod made_up;

use elastico_trainer::{ExampleOptions, Examples, TrainOptions, train};
use std::time::Instant;

/// Peak resident memory of this process in MiB, from the kernel.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1024)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let say = |what: &str| println!("{what}: peak {} MiB", peak().unwrap_or_default());
    let dataset = made_up::dataset(2_000, rows);
    say("dataset");
    let examples = Examples::from_dataset(&dataset, &ExampleOptions::default())?;
    drop(dataset);
    say("examples");
    let begin = Instant::now();
    let trained = train(&examples, &TrainOptions::default())?;
    say(&format!(
        "trained on {rows} rows, {} bytes, {:.0} s",
        trained.onnx.len(),
        begin.elapsed().as_secs_f64()
    ));
    Ok(())
}
