//! Inputs without an effect. A run with a table that never applies looks like a run without it, so somebody must say it.

use crate::cluster::PoolSpec;
use crate::rates::{Rates, allows};
use crate::{ClusterSpec, Knowledge, Oracle, SlowdownTable, SpeedTable, Sweep, Tables, Trace};
use std::collections::BTreeSet;

/// What was given and changes nothing: tables that do not hold on a pool, pools on which no job can run. One sentence each.
///
/// `tables` are what happens and what is planned with.
pub fn idle_inputs(trace: &Trace, cluster: &ClusterSpec, tables: Option<[&Knowledge; 2]>) -> Vec<String> {
    let mut lines = Vec::new();
    for (role, knowledge) in ["truth", "planner"].into_iter().zip(tables.into_iter().flatten()) {
        if let Some(slowdowns) = knowledge.slowdowns() {
            lines.extend(slowdowns_without_effect(role, slowdowns, trace, cluster));
        }
        // Policies plan with the speeds that happen where they have none of their own: once is enough.
        let is_first =
            role == "truth" || tables.is_some_and(|[truth, _]| truth.speeds() != knowledge.speeds());
        if let Some(speeds) = knowledge.speeds().filter(|_| is_first) {
            lines.extend(speeds_without_effect(speeds, trace, cluster));
        }
    }
    lines.extend(dead_pools(trace, cluster, tables));
    lines
}

impl Sweep {
    /// As [`idle_inputs`], for each cluster with the trace of its first run.
    pub fn idle_inputs(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (trace, cluster, knowledge) in self.first_scenes() {
            let tables = knowledge.as_ref().map(|(truth, planner)| [truth, planner]);
            for line in idle_inputs(&trace, cluster, tables) {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
    }
}

fn slowdowns_without_effect(
    role: &str,
    table: &SlowdownTable,
    trace: &Trace,
    cluster: &ClusterSpec,
) -> Vec<String> {
    let workloads: BTreeSet<&str> = trace.jobs().iter().map(|job| job.workload.as_str()).collect();
    let elsewhere: Vec<&str> =
        table.devices().filter(|device| table.knows_any(&workloads, Some(device))).collect();
    let name = table.name();
    let silent: Vec<&PoolSpec> =
        cluster.pools().iter().filter(|pool| !table.knows_any(&workloads, pool.device.as_deref())).collect();
    if elsewhere.is_empty() && silent.len() == cluster.pools().len() {
        return vec![format!(
            "the {role} `{name}` has no two workloads of the trace: no jobs can share GPUs"
        )];
    }
    silent
        .into_iter()
        .map(|pool| {
            format!(
                "no entry of the {role} `{name}` holds on the pool `{pool}`, so no jobs share its GPUs: {}",
                named_devices(pool, &elsewhere)
            )
        })
        .collect()
}

fn speeds_without_effect(table: &SpeedTable, trace: &Trace, cluster: &ClusterSpec) -> Vec<String> {
    let knows = |device: Option<&str>| {
        trace.jobs().iter().any(|job| {
            // A pool without a device is the one that the job means.
            let device = device.or(job.device.as_deref());
            table.speed(&job.workload, device, job.gpus).is_some()
                || table.growth(&job.workload, job.gpus).is_some()
        })
    };
    let elsewhere: Vec<&str> = table.devices().into_iter().filter(|device| knows(Some(device))).collect();
    let name = table.name();
    let silent: Vec<&PoolSpec> =
        cluster.pools().iter().filter(|pool| !knows(pool.device.as_deref())).collect();
    if elsewhere.is_empty() && silent.len() == cluster.pools().len() {
        return vec![format!("the speeds `{name}` know no workload of the trace: they change nothing")];
    }
    silent
        .into_iter()
        .map(|pool| {
            format!(
                "no speed of `{name}` holds on the pool `{pool}`, so it changes nothing there: {}",
                named_devices(pool, &elsewhere)
            )
        })
        .collect()
}

/// Which devices the entries are for, and how the pool would be called on the first.
fn named_devices(pool: &PoolSpec, devices: &[&str]) -> String {
    let list = devices.join(", ");
    match devices.first() {
        Some(first) if pool.device.is_none() => {
            let id = if pool.is_unnamed() { String::new() } else { format!("{}=", pool.id) };
            format!("its entries are for {list}; write {id}{first}:n{}g{}", pool.nodes, pool.gpus_per_node)
        }
        _ => format!("its entries are for {list}"),
    }
}

/// Pools that stay empty whatever a policy does. The only pool of a cluster is never one: the run is refused.
fn dead_pools(trace: &Trace, cluster: &ClusterSpec, tables: Option<[&Knowledge; 2]>) -> Vec<String> {
    if cluster.pools().len() < 2 {
        return Vec::new();
    }
    let tables = tables.map(|[truth, planner]| Tables { truth, planner });
    // What cannot run at all ends the run with its own reason.
    let Ok((rates, _)) = Rates::new(trace, cluster, tables.as_ref()) else { return Vec::new() };
    let runs_on = |index: usize| {
        rates.classes.iter().any(|class| class.shapes.iter().any(|rate| rate.shape.pool == index))
    };
    let dead = cluster.pools().iter().enumerate().filter(|(index, _)| !runs_on(*index));
    dead.map(|(_, pool)| {
        let mut allowed = trace.jobs().iter().filter(|job| allows(job, pool)).peekable();
        let why = if allowed.peek().is_none() {
            "no job names its device"
        } else if allowed.all(|job| !pool.holds(*job.gpu_range().start())) {
            "every job that may run there is too large"
        } else {
            "no speed is known there of the jobs that may use it"
        };
        format!("no job can run on the pool `{pool}`: {why}; its {} GPUs count as idle", pool.gpus())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceJob;
    use elastico_core::{JobId, Slowdown};

    fn trace() -> Trace {
        let job = |name: &str| TraceJob::new(JobId::new(name).unwrap(), name, 1, 0.0, 10.0);
        Trace::new("t", vec![job("a"), job("b")]).unwrap()
    }

    fn found(cluster: &str, knowledge: &Knowledge) -> Vec<String> {
        idle_inputs(&trace(), &cluster.parse().unwrap(), Some([knowledge, knowledge]))
    }

    #[test]
    fn slowdowns_of_another_device_are_said() {
        let mut table = SlowdownTable::new("measured");
        table.set_on("h100", "a", "b", Slowdown::new(1.2).unwrap(), None);
        let knowledge = Knowledge::new(Some(table), None);
        assert!(found("h100:n1g8", &knowledge).is_empty());
        let lines = found("n1g8", &knowledge);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with("its entries are for h100; write h100:n1g8"), "{lines:?}");
        let mut strange = SlowdownTable::new("of others");
        strange.set("c", "c", Slowdown::new(1.2).unwrap(), None);
        let lines = found("n1g8", &Knowledge::new(Some(strange), None));
        assert!(lines[0].contains("has no two workloads of the trace"), "{lines:?}");
    }

    #[test]
    fn speeds_of_another_device_and_dead_pools_are_said() {
        let mut speeds = SpeedTable::new("measured");
        for workload in ["a", "b"] {
            speeds.set(workload, Some("a100"), 1, 3.0).unwrap();
        }
        let knowledge = Knowledge::new(None, Some(speeds));
        assert!(found("a100:n1g8", &knowledge).is_empty());
        let lines = found("n1g8", &knowledge);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].ends_with("its entries are for a100; write a100:n1g8"), "{lines:?}");

        let mut jobs = trace().jobs().to_vec();
        for job in &mut jobs {
            job.devices = vec!["a100".to_owned()];
        }
        let typed = Trace::new("t", jobs).unwrap();
        let lines = idle_inputs(&typed, &"a100:n1g8,k80:n2g2".parse().unwrap(), None);
        assert_eq!(
            lines,
            ["no job can run on the pool `k80:n2g2`: no job names its device; its 4 GPUs count as idle"]
        );
    }
}
