//! Judges every learner on Gavel's public measurements, trains on them and prints what came of it.
//!
//! `cargo run --release -p elastico-trainer --example gavel -- simulation_throughputs.json [train.toml]`; with settings it only
//! judges.

#![allow(clippy::print_stdout, reason = "an example prints")]

use elastico_trainer::{
    EvaluateOptions, ExampleOptions, Examples, TrainConfig, TrainOptions, evaluate, rules, train,
};
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file =
        std::env::args_os().nth(1).map(PathBuf::from).ok_or("name Gavel's simulation_throughputs.json")?;
    let dataset = elastico_datasets::import::gavel(&file)?;
    let examples = Examples::from_dataset(&dataset, &ExampleOptions::default())?;

    let begin = Instant::now();
    let mut options = EvaluateOptions::default();
    let settings = std::env::args_os().nth(2).map(PathBuf::from);
    if let Some(file) = &settings {
        TrainConfig::read(file)?.apply_to_evaluate(&mut options);
    }
    let evaluation = evaluate(&examples, &options)?;
    println!("{evaluation}\nevaluated in {:.1} s\n", begin.elapsed().as_secs_f64());
    if settings.is_some() {
        return Ok(());
    }

    for max_bytes in [20_000_000, 2_000_000, 500_000] {
        let begin = Instant::now();
        let trained = train(&examples, &TrainOptions { max_bytes, ..TrainOptions::default() })?;
        let mape = |split: &str| 100.0 * trained.metadata.scores[split]["mape"];
        println!(
            "at most {max_bytes} bytes: {} bytes, {} trees, min_leaf {}, MAPE {:.2} % random_pair, {:.2} % unseen_family, bound x{:.3} \
             covers {:.1} % (least {:.1} %, {:?}), {:.1} s",
            trained.onnx.len(),
            trained.metadata.facts["trees"],
            trained.metadata.facts["min_leaf"],
            mape("random_pair"),
            mape("unseen_family"),
            trained.calibration.offset_log.exp(),
            100.0 * trained.calibration.achieved_coverage,
            100.0 * trained.calibration.least_coverage,
            trained.calibration.guaranteed_level,
            begin.elapsed().as_secs_f64(),
        );
    }
    let begin = Instant::now();
    println!("\n{}in {:.1} s", rules(&examples, 1.5)?, begin.elapsed().as_secs_f64());
    Ok(())
}
