//! A campaign on several devices: one after the other, or all GPUs of a host at once.

use super::{CAMPAIGN, DATASET, PLAN, Progress, RunOptions, RunReport, Status, Stopped, run, status};
use crate::campaign::Campaign;
use crate::{Device, Error};
use elastico_core::DeviceName;
use elastico_workloads::Catalogue;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes a device of its name, with host cores of its own where several are measured at once.
pub type OpenDevice<'a> =
    dyn Fn(&DeviceName, Option<Vec<usize>>) -> Result<Box<dyn Device>, Error> + Sync + 'a;

/// Takes the progress of all devices, of several threads where they are measured at once.
pub type ShowProgress<'a> = dyn FnMut(&Progress<'_>) + Send + 'a;

/// Measures a campaign on all its devices: one device into the folder itself, several into a folder each and their
/// merged dataset into `dataset/`, where their kinds are the same.
///
/// `open` makes a device of a name; [`devices::open`](crate::devices::open) knows those that need nothing else. With
/// `at_once` each device has a thread and a part of the host's cores.
///
/// # Errors
/// As [`run`], and those of `open`. A device that fails stops the call, with `at_once` after the others' trials at hand;
/// what was measured is in the folders.
pub fn run_all(
    campaign: &Campaign,
    catalogue: &Catalogue,
    folder: &Path,
    options: &RunOptions<'_>,
    open: &OpenDevice<'_>,
    progress: &mut ShowProgress<'_>,
) -> Result<Vec<RunReport>, Error> {
    let parts = campaign.per_device();
    if let [part] = parts.as_slice() {
        let mut device = open(&part.device[0], None)?;
        return Ok(vec![run(part, catalogue, &mut *device, folder, options, progress)?]);
    }
    std::fs::create_dir_all(folder).map_err(|source| Error::write(folder, source))?;
    if !options.resume && [CAMPAIGN, DATASET].iter().any(|name| folder.join(name).exists()) {
        return Err(Error::Exists(folder.to_owned()));
    }
    elastico_datasets::write_atomic(&folder.join(CAMPAIGN), campaign.to_toml().as_bytes())?;
    let place = |part: &Campaign| folder.join(device_folder(&part.device[0]));
    let mut reports: Vec<RunReport> = Vec::new();
    if campaign.at_once {
        for report in at_once(&parts, catalogue, &place, options, open, progress)? {
            reports.push(report?);
        }
    } else {
        for part in &parts {
            let mut device = open(&part.device[0], None)?;
            let report = run(part, catalogue, &mut *device, &place(part), options, progress)?;
            let stop = matches!(report.stopped, Stopped::Interrupted | Stopped::DeviceLost);
            reports.push(report);
            if stop {
                break;
            }
        }
    }
    merge(&parts, &place, folder)?;
    Ok(reports)
}

/// The folder of one device of several.
fn device_folder(device: &DeviceName) -> String {
    device.to_string().replace([':', '/'], "-")
}

/// One thread and one part of the cores per device. A device that fails interrupts the others.
fn at_once(
    parts: &[Campaign],
    catalogue: &Catalogue,
    place: &(dyn Fn(&Campaign) -> PathBuf + Sync),
    options: &RunOptions<'_>,
    open: &OpenDevice<'_>,
    progress: &mut ShowProgress<'_>,
) -> Result<Vec<Result<RunReport, Error>>, Error> {
    let device = parts.first().map_or_else(String::new, |part| part.device[0].to_string());
    let cores = elastico_gpu::probe::allowed_cores().map_err(|error| Error::NoDevice {
        device: device.clone(),
        reason: format!("the cores of this process cannot be read: {error}"),
    })?;
    if cores.len() < parts.len() {
        return Err(Error::NoDevice {
            device,
            reason: format!(
                "{} devices at once need as many host cores, there are {}",
                parts.len(),
                cores.len()
            ),
        });
    }
    let progress = Mutex::new(progress);
    let failed = AtomicBool::new(false);
    let measure = |index: usize, part: &Campaign| {
        let own = cores[index * cores.len() / parts.len()..(index + 1) * cores.len() / parts.len()].to_vec();
        let mut device = open(&part.device[0], Some(own))?;
        let stop = AtomicBool::new(false);
        let mut show = |seen: &Progress<'_>| {
            let interrupted = options.interrupted.is_some_and(|flag| flag.load(Ordering::Relaxed));
            stop.store(interrupted || failed.load(Ordering::Relaxed), Ordering::Relaxed);
            if let Ok(mut progress) = progress.lock() {
                progress(seen);
            }
        };
        let options = RunOptions { interrupted: Some(&stop), ..*options };
        run(part, catalogue, &mut *device, &place(part), &options, &mut show)
    };
    Ok(std::thread::scope(|scope| {
        let (measure, failed) = (&measure, &failed);
        let threads: Vec<_> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| {
                scope.spawn(move || {
                    measure(index, part).inspect_err(|_| failed.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    }))
}

/// Writes the merged dataset of all devices that have one. Kinds never mix unasked: then there is none.
fn merge(parts: &[Campaign], place: &dyn Fn(&Campaign) -> PathBuf, folder: &Path) -> Result<(), Error> {
    let mut kinds: Vec<_> = parts.iter().map(|part| part.device[0].kind()).collect();
    kinds.dedup();
    if kinds.len() > 1 {
        return Ok(());
    }
    let mut datasets = Vec::new();
    for part in parts {
        let dataset = place(part).join(DATASET);
        if dataset.exists() {
            datasets.push(elastico_datasets::Dataset::read(&dataset)?);
        }
    }
    if !datasets.is_empty() {
        elastico_datasets::Dataset::merge(datasets)?.write(&folder.join(DATASET))?;
    }
    Ok(())
}

/// How the campaign in a folder stands, one for each of its devices that has begun.
///
/// # Errors
/// As [`status`].
pub fn status_all(folder: &Path) -> Result<Vec<Status>, Error> {
    if folder.join(PLAN).exists() || !folder.join(CAMPAIGN).exists() {
        return Ok(vec![status(folder)?]);
    }
    let campaign = Campaign::read(&folder.join(CAMPAIGN))?;
    let places = campaign.device.iter().map(|device| folder.join(device_folder(device)));
    places.filter(|place| place.join(PLAN).exists()).map(|place| status(&place)).collect()
}
