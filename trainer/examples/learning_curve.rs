//! Replays a simulated campaign: how many pairs does active order need, and how many random order?
//!
//! ```sh
//! cat > pool.toml <<'END'
//! schema = 1
//! name = "pool"
//! seed = 3
//! device = "sim:h100"
//! sharing = ["time_slice", "mps(0.5,0.5)"]
//! [workloads]
//! subjects = ["training", "inference"]
//! [stopping]
//! min_repeats = 2
//! max_repeats = 2
//! half_width = 0.5
//! END
//! elastico profile run pool.toml --out pool
//! cargo run --release -p elastico-trainer --example learning_curve -- pool/dataset [seeds] [steps] [batch]
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use elastico_core::Seed;
use elastico_datasets::Dataset;
use elastico_trainer::{CurveOptions, ExampleOptions, learning_curve};
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().map(PathBuf::from).ok_or("name the folder of a dataset")?;
    let mut options = CurveOptions::default();
    let mut number = || -> Result<Option<usize>, Box<dyn std::error::Error>> {
        Ok(arguments.next().map(|text| text.to_string_lossy().parse()).transpose()?)
    };
    if let Some(seeds) = number()? {
        options.seeds = (0..seeds as u64).map(Seed).collect();
    }
    options.steps = number()?.unwrap_or(options.steps);
    options.batch = number()?.unwrap_or(options.batch);
    let begin = Instant::now();
    let curve = learning_curve(&Dataset::read(&folder)?, &ExampleOptions::default(), &options)?;
    println!("{curve}in {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}
