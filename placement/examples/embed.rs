//! Embeds the placement in a scheduler: read, solve, act, and start the next round from the prices.

use elastico_models::Profiles;
use elastico_placement::{Allocator, Cluster, Jobs, Options, check};
use std::io::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let cluster = Cluster::read(&folder.join("cluster.toml"))?;
    let mut jobs = Jobs::read(&folder.join("jobs.toml"))?;
    // With profiles and a model, jobs that name a `workload` may share GPUs:
    //   let profiles = Profiles::read(&path)?;
    //   let predictor = elastico_models::load(&model, elastico_models::Backend::Auto)?;
    //   let table = allocator.pair_table(&jobs, &profiles, predictor.as_ref())?;
    let profiles = Profiles::default();
    let table = None;

    let allocator = Allocator::new(cluster, Options::default());
    let first = allocator.solve_with(&jobs, &profiles, table, None)?;
    assert!(check(&first, allocator.cluster()).is_empty());

    let mut out = std::io::stdout().lock();
    write!(out, "{first}")?;
    for assignment in &first.assignments {
        // Here a scheduler binds the job to `assignment.nodes`, under `assignment.beside` if there is a co-runner.
        writeln!(out, "{} -> {} on {} GPUs", assignment.job, assignment.pool, assignment.shape.gpus)?;
    }

    // A job has finished: the next round starts from the prices of this one.
    jobs.job.retain(|job| job.id.as_str() != "finetune");
    let second = allocator.solve_with(&jobs, &profiles, table, Some(&first.prices))?;
    for price in &second.prices.prices {
        writeln!(out, "one more {} of {} is worth {:.4}", price.resource, price.pool, price.value_per_unit)?;
    }
    Ok(())
}
