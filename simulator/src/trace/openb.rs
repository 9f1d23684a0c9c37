//! Alibaba's `openb` cluster (Weng et al., ATC 2023): pods with parts of GPUs and with GPU types, and the nodes.

use super::sheet::{Jobs, Sheet};
use super::{Trace, TraceJob};
use crate::{ClusterSpec, Error, PoolSpec};
use elastico_core::PoolId;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads pods. `gpu_milli` is in thousandths of one GPU, times are in seconds, a pod runs from `scheduled_time` to
/// `deletion_time`, and `gpu_spec` lists the GPU types that will do between `|`.
pub(super) fn parse(text: &str, path: &Path) -> Result<Trace, Error> {
    let expects = "a list of openb pods has the columns name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time";
    let sheet = Sheet::open(text, path, expects)?;
    let (name, gpus, milli) = (sheet.column("name")?, sheet.column("num_gpu")?, sheet.column("gpu_milli")?);
    let times = ["creation_time", "deletion_time", "scheduled_time"].map(|column| sheet.optional(column));
    let [Some(created), Some(deleted), Some(scheduled)] = times else {
        return Err(Error::Needs {
            path: path.into(),
            what: "has no times: its pods are demands without arrival or duration".to_owned(),
            remedy: "the multigpu variants of openb were published so; take openb_pod_list_default.csv or another \
                     with creation_time, deletion_time and scheduled_time"
                .to_owned(),
        });
    };
    let (spec, quality) = (sheet.optional("gpu_spec"), sheet.optional("qos"));
    let mut jobs = Jobs::default();
    let (mut cpu_only, mut unscheduled, mut shares) = (0, 0, 0);
    sheet.rows(|row| {
        let count = row.count(gpus, "GPUs")?;
        if count == 0 {
            cpu_only += 1;
            return Ok(());
        }
        if row.text(scheduled).is_empty() {
            unscheduled += 1;
            return Ok(());
        }
        let (start, end) = (row.number(scheduled)?, row.number(deleted)?);
        if end < start {
            return Err(
                row.wrong(deleted, format!("the pod ends at {end}, before it is scheduled at {start}"))
            );
        }
        // The cluster does not say what a pod runs; its class of service is the nearest thing.
        let class = quality.map_or("", |column| row.text(column)).to_ascii_lowercase();
        let workload = if class.is_empty() { "openb".to_owned() } else { format!("openb-{class}") };
        let mut job = TraceJob::new(row.id(name)?, workload, count, row.number(created)?, end - start);
        let part = row.count(milli, "thousandths of a GPU")?;
        if !(1..=1000).contains(&part) || (count > 1 && part < 1000) {
            return Err(row.wrong(milli, format!("{part} thousandths of each of {count} GPUs cannot be")));
        }
        if part < 1000 {
            job.gpu_share_ratio = Some(f64::from(part) / 1000.0);
            shares += 1;
        }
        let types = spec.map_or("", |column| row.text(column));
        job.devices =
            types.split('|').map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect();
        jobs.push(job);
        Ok(())
    })?;
    jobs.left_out(cpu_only, "pods without a GPU");
    jobs.left_out(unscheduled, "pods that were never scheduled");
    if shares > 0 {
        jobs.assumed(format!(
            "{shares} pods ask for a part of one GPU: the load counts that part, a policy that shares no GPU gives a whole one"
        ));
    }
    jobs.assumed(
        "a duration is the lifetime of a pod, from scheduled_time to deletion_time, whatever it did in it",
    );
    jobs.into_trace(path)
}

/// What a node list of openb begins with.
const NODES: &str = "sn,";

/// Whether a file is a node list of openb.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn is_nodes(path: &Path) -> Result<bool, Error> {
    Ok(crate::document::read(path)?.starts_with(NODES))
}

/// Reads the node list of openb, `sn,cpu_milli,memory_mib,gpu,model`: a pool for each GPU type, and where its nodes differ
/// for each number of GPUs.
///
/// # Errors
/// A missing column, or a value that cannot be, with line and column.
pub(crate) fn read_nodes(path: &Path) -> Result<ClusterSpec, Error> {
    let text = crate::document::read(path)?;
    let sheet =
        Sheet::open(&text, path, "a list of openb nodes has the columns sn,cpu_milli,memory_mib,gpu,model")?;
    let (gpus, model) = (sheet.column("gpu")?, sheet.column("model")?);
    let mut types: BTreeMap<String, BTreeMap<u32, u32>> = BTreeMap::new();
    sheet.rows(|row| {
        let count = row.count(gpus, "GPUs")?;
        if count > 0 {
            let name = row.named(model, "the GPU type")?;
            PoolId::new(name).map_err(|error| row.wrong(model, error.to_string()))?;
            *types.entry(name.to_owned()).or_default().entry(count).or_default() += 1;
        }
        Ok(())
    })?;
    let mut pools = Vec::new();
    for (device, sizes) in &types {
        for (gpus, nodes) in sizes {
            let id = if sizes.len() == 1 { device.clone() } else { format!("{device}-g{gpus}") };
            let id = PoolId::new(&id).map_err(|_| Error::Cluster(id))?;
            pools.push(PoolSpec::new(id, Some(device.clone()), *nodes, *gpus));
        }
    }
    ClusterSpec::of(pools)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time";

    fn parse(body: &str) -> Result<Trace, Error> {
        super::parse(&format!("{HEADER}\n{body}"), Path::new("pods.csv"))
    }

    #[test]
    fn nodes_become_pools_by_type_and_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.csv");
        let lines =
            ["sn,cpu_milli,memory_mib,gpu,model", "n0,1,1,2,G2", "n1,1,1,8,T4", "n2,1,1,0,", "n3,1,1,2,T4"];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let cluster = ClusterSpec::read(&path).unwrap();
        assert_eq!(cluster.to_string(), "G2:n1g2,T4-g2=T4:n1g2,T4-g8=T4:n1g8");
    }

    #[test]
    fn parts_of_gpus_types_and_lifetimes_are_kept() {
        let trace = parse(
            "a,12000,16384,1,1000,,LS,Running,100,700,110\n\
             b,6000,12288,1,460,V100M16|V100M32,BE,Running,130,1130,130\n\
             c,6000,12288,8,1000,,LS,Running,160,170,160\n\
             d,6000,12288,0,0,,LS,Running,160,170,160\n\
             e,6000,12288,1,1000,,LS,Pending,160,170,\n",
        )
        .unwrap();
        let [a, b, c] = trace.jobs() else { panic!("three pods have GPUs and ran") };
        assert_eq!((a.submit_seconds, a.duration_seconds, a.workload.as_str()), (0.0, 590.0, "openb-ls"));
        assert_eq!((b.gpu_share_ratio, b.gpu_seconds(), b.devices.len()), (Some(0.46), 460.0, 2));
        assert_eq!((c.gpus, c.gpu_share_ratio), (8, None));
        let texts: Vec<_> = trace.warnings.iter().map(ToString::to_string).collect();
        assert!(texts[0].starts_with("left out 1 pods without a GPU"), "{texts:?}");
        assert!(texts[1].starts_with("left out 1 pods that were never scheduled"), "{texts:?}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        let texts: Vec<String> = [
            "a,1,1,1,1001,,LS,Running,1,7,1\n",
            "a,1,1,2,500,,LS,Running,1,7,1\n",
            "a,1,1,1,0,,LS,Running,1,7,1\n",
            "a,1,1,1,1000,,LS,Running,1,7,9\n",
            "a,1,1,one,1000,,LS,Running,1,7,1\n",
        ]
        .into_iter()
        .map(|body| parse(body).unwrap_err().to_string())
        .collect();
        insta::assert_snapshot!(texts.join("\n"));
        let error =
            super::parse("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", Path::new("p.csv")).unwrap_err();
        assert!(error.to_string().contains("has no times"), "{error}");
    }
}
