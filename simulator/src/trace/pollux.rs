//! Workloads of Pollux (Qiao et al., OSDI 2021) and Sia, with the profiles that say how long they take.

use super::sheet::{self, Jobs, Sheet};
use super::{ReadOptions, Trace, TraceJob};
use crate::Error;
use elastico_core::WorkloadKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Reads `name,time,application,num_replicas,batch_size`: seconds, and the global batch size.
///
/// A duration is the iterations at that batch size times the seconds of one: both fixed, as a user would run it
/// without Pollux. Iterations are those of the whole validation run; between measured batch sizes they are interpolated
/// on logarithms.
pub(super) fn parse(text: &str, path: &Path, options: &ReadOptions) -> Result<Trace, Error> {
    let Some(profiles) = &options.profiles else {
        return Err(Error::Needs {
            path: path.into(),
            what: "has jobs but no durations".to_owned(),
            remedy:
                "give the folder with one profile for each application (bert, cifar10, …) with --profiles"
                    .to_owned(),
        });
    };
    let expects = "a workload of Pollux has the columns name,time,application,num_replicas,batch_size";
    let sheet = Sheet::open(text, path, expects)?;
    let [name, time, application, replicas, batch] = [
        sheet.column("name")?,
        sheet.column("time")?,
        sheet.column("application")?,
        sheet.column("num_replicas")?,
        sheet.column("batch_size")?,
    ];
    let mut known: BTreeMap<String, Profile> = BTreeMap::new();
    let mut jobs = Jobs::default();
    sheet.rows(|row| {
        let app = row.named(application, "the application")?;
        if !known.contains_key(app) {
            if !app.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
                return Err(row.wrong(application, format!("`{app}` is no name of an application")));
            }
            let folder = profiles.join(app);
            if !folder.is_dir() {
                return Err(
                    row.wrong(application, format!("`{app}` has no folder in {}", profiles.display()))
                );
            }
            known.insert(app.to_owned(), Profile::read(&folder)?);
        }
        let profile = &known[app];
        let (gpus, batch_size) = (row.count(replicas, "replicas")?, row.count(batch, "samples")?);
        if gpus == 0 || batch_size < gpus {
            return Err(
                row.wrong(batch, format!("{batch_size} samples cannot be split over {gpus} replicas"))
            );
        }
        let iterations = profile.iterations(f64::from(batch_size)).map_err(|range| {
            row.wrong(batch, format!("{batch_size} is outside the profile, which has {range}"))
        })?;
        let seconds = profile
            .step_seconds(gpus, f64::from(batch_size) / f64::from(gpus))
            .ok_or_else(|| row.wrong(replicas, format!("the profile of {app} has no run on {gpus} GPUs")))?;
        let workload = format!("{app} (batch size {batch_size})");
        let mut job = TraceJob::new(row.id(name)?, workload, gpus, row.number(time)?, iterations * seconds);
        job.kind = Some(WorkloadKind::Training);
        jobs.push(job);
        Ok(())
    })?;
    jobs.assumed(
        "a duration is the whole validation run at the given batch size, times the step time of the fewest nodes that were measured",
    );
    jobs.into_trace(path)
}

/// What was measured of one application.
struct Profile {
    /// Seconds of a step by local batch size, by GPUs; of the placement with the fewest nodes.
    steps: BTreeMap<u32, Vec<Step>>,
    /// Iterations of the whole run by global batch size.
    iterations: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
struct Step {
    local_batch: f64,
    seconds: f64,
    sync_seconds: f64,
}

impl Profile {
    fn read(folder: &Path) -> Result<Self, Error> {
        let mut steps: BTreeMap<u32, (u32, Vec<Step>)> = BTreeMap::new();
        let mut add = |gpus: u32, nodes: u32, step: Step| {
            let (fewest, rows) = steps.entry(gpus).or_insert((nodes, Vec::new()));
            if nodes < *fewest {
                *fewest = nodes;
                rows.clear();
            }
            if nodes == *fewest {
                rows.push(step);
            }
        };
        read_steps(&folder.join("placements.csv"), "placement", &mut add)?;
        read_steps(&folder.join("scalability.csv"), "num_replicas", &mut add)?;
        let mut iterations = Vec::new();
        for (batch, file) in validations(folder)? {
            let text = crate::document::read(&file)?;
            let sheet = Sheet::open(
                &text,
                &file,
                "a validation of Pollux has the columns progress,iteration,metric",
            )?;
            let column = sheet.column("iteration")?;
            let mut last = 0.0;
            sheet.rows(|row| {
                last = row.number(column)?;
                Ok(())
            })?;
            if last <= 0.0 {
                return Err(Error::NoJobs(format!("{} has no iterations", file.display())));
            }
            iterations.push((batch, last));
        }
        if iterations.is_empty() {
            return Err(Error::Needs {
                path: folder.into(),
                what: "has no validation-<batch size>.csv".to_owned(),
                remedy:
                    "a profile of Pollux has placements.csv, scalability.csv and validation-<batch size>.csv"
                        .to_owned(),
            });
        }
        iterations.sort_by(|a, b| a.0.total_cmp(&b.0));
        let steps = steps
            .into_iter()
            .map(|(gpus, (_, mut rows))| {
                rows.sort_by(|a, b| a.local_batch.total_cmp(&b.local_batch));
                (gpus, rows)
            })
            .collect();
        Ok(Self { steps, iterations })
    }

    /// Iterations at a global batch size, or the range that was measured.
    fn iterations(&self, batch: f64) -> Result<f64, String> {
        let range = || {
            let ends = (self.iterations.first(), self.iterations.last());
            if let (Some(first), Some(last)) = ends {
                format!("{} to {}", first.0, last.0)
            } else {
                String::new()
            }
        };
        let after = self.iterations.partition_point(|(known, _)| *known < batch);
        let Some(&(upper, at_upper)) = self.iterations.get(after) else { return Err(range()) };
        if upper.total_cmp(&batch).is_eq() {
            return Ok(at_upper);
        }
        let Some(&(lower, at_lower)) = after.checked_sub(1).and_then(|before| self.iterations.get(before))
        else {
            return Err(range());
        };
        let part = (batch / lower).ln() / (upper / lower).ln();
        Ok((at_lower.ln() + part * (at_upper / at_lower).ln()).exp())
    }

    /// Seconds of one step. A local batch that was too large to measure is accumulated over several passes, of which
    /// only the last synchronises.
    fn step_seconds(&self, gpus: u32, local_batch: f64) -> Option<f64> {
        let rows = self.steps.get(&gpus)?;
        let largest = rows.last()?.local_batch;
        let passes = (local_batch / largest).ceil().max(1.0);
        let (seconds, sync) = interpolate(rows, local_batch / passes)?;
        Some((passes - 1.0) * (seconds - sync).max(0.0) + seconds)
    }
}

/// Step and synchronisation time, linear between measured batches; the smallest measured is the least.
fn interpolate(rows: &[Step], batch: f64) -> Option<(f64, f64)> {
    let after = rows.partition_point(|row| row.local_batch < batch);
    let upper = rows.get(after).or_else(|| rows.last())?;
    let lower = after.checked_sub(1).and_then(|before| rows.get(before)).unwrap_or(upper);
    let width = upper.local_batch - lower.local_batch;
    let part = if width > 0.0 { (batch - lower.local_batch) / width } else { 0.0 };
    Some((
        lower.seconds + part * (upper.seconds - lower.seconds),
        lower.sync_seconds + part * (upper.sync_seconds - lower.sync_seconds),
    ))
}

/// `placement` has the GPUs of each node as digits; `num_replicas` comes with `num_nodes`.
fn read_steps(path: &Path, key: &str, add: &mut impl FnMut(u32, u32, Step)) -> Result<(), Error> {
    let text = crate::document::read(path)?;
    let sheet =
        Sheet::open(&text, path, "a profile of Pollux has the columns local_bsz,step_time,sync_time")?;
    let (place, local, step, sync) = (
        sheet.column(key)?,
        sheet.column("local_bsz")?,
        sheet.column("step_time")?,
        sheet.column("sync_time")?,
    );
    let nodes = if key == "placement" { None } else { Some(sheet.column("num_nodes")?) };
    sheet.rows(|row| {
        let (gpus, nodes) = match nodes {
            Some(nodes) => (row.count(place, "replicas")?, row.count(nodes, "nodes")?),
            None => {
                let digits: Option<Vec<u32>> =
                    row.text(place).chars().map(|digit| digit.to_digit(10)).collect();
                let digits = digits.filter(|digits| !digits.is_empty() && digits.len() <= 64);
                let digits = digits.ok_or_else(|| {
                    row.wrong(place, format!("`{}` is no list of GPUs on nodes", row.text(place)))
                })?;
                (digits.iter().sum(), digits.len() as u32)
            }
        };
        let step = Step {
            local_batch: row.number(local)?,
            seconds: row.number(step)?,
            sync_seconds: row.number(sync)?,
        };
        if step.local_batch <= 0.0 || step.seconds <= 0.0 {
            return Err(row.wrong(local, "a step needs samples and time"));
        }
        add(gpus, nodes, step);
        Ok(())
    })
}

/// The validation runs of a folder, with their batch sizes.
fn validations(folder: &Path) -> Result<Vec<(f64, PathBuf)>, Error> {
    let failed = |source| Error::Read { path: folder.into(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = sheet::name(&path);
        let batch = name.strip_prefix("validation-").and_then(|rest| rest.strip_suffix(".csv"));
        if let Some(batch) = batch.and_then(|batch| batch.parse::<u32>().ok()) {
            found.push((f64::from(batch), path));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let app = folder.path().join("cifar10");
        std::fs::create_dir(&app).unwrap();
        let write = |file: &str, text: &str| std::fs::write(app.join(file), text).unwrap();
        write(
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,100,0.2,0.0\n1,200,0.4,0.0\n2,100,0.3,0.1\n11,100,9,9\n",
        );
        write("scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n8,8,100,0.5,0.2\n");
        write(
            "validation-100.csv",
            "progress,iteration,metric,grad_sqr,grad_var\n10,500,0.5,1,1\n20,1000,0.9,1,1\n",
        );
        write("validation-400.csv", "progress,iteration,metric,grad_sqr,grad_var\n20,250,0.9,1,1\n");
        folder
    }

    fn parse(body: &str) -> Result<Trace, Error> {
        let folder = profiles();
        let options = ReadOptions { profiles: Some(folder.path().into()), ..ReadOptions::default() };
        let text = format!("name,time,application,num_replicas,batch_size\n{body}");
        Trace::parse(&text, Path::new("w.csv"), &options)
    }

    #[test]
    fn durations_are_iterations_times_steps() {
        let trace = parse(
            "a,0,cifar10,1,100\nb,5,cifar10,1,200\nc,6,cifar10,2,200\nd,7,cifar10,2,400\ne,8,cifar10,8,400\n",
        )
        .unwrap();
        let seconds: Vec<f64> = trace.jobs().iter().map(|job| job.duration_seconds).collect();
        // One GPU; between two batch sizes; one node before two; two passes of 100 on each of two; over nodes.
        for (found, expected) in seconds.iter().zip([200.0, 200.0, 150.0, 250.0 * (0.2 + 0.3), 250.0 * 0.5]) {
            assert!((found / expected - 1.0).abs() < 1e-9, "{seconds:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_refused() {
        let texts: Vec<String> = [
            "a,0,bert,1,100\n",
            "a,0,../x,1,100\n",
            "a,0,cifar10,1,800\n",
            "a,0,cifar10,1,50\n",
            "a,0,cifar10,3,300\n",
            "a,0,cifar10,0,300\n",
        ]
        .into_iter()
        .map(|body| parse(body).unwrap_err().to_string())
        .map(|text| text.split(" in /").next().unwrap().to_owned())
        .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }
}
