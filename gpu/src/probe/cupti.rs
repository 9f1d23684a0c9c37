//! CUPTI: found where, of which version, and whether it samples.

use super::{Area, Check, Device, Finding, ProbeOptions, Status};
use crate::cuda::Driver;
use crate::cupti::{Cupti, CuptiError, PmSampler, SamplerOptions};
use crate::libraries::LibraryError;
use elastico_core::Hint as _;
use std::time::Duration;

/// How long counters are sampled, once per device.
const TRY: Duration = Duration::from_millis(100);

fn refusal(id: impl Into<String>, error: &CuptiError) -> Check {
    let status = match error {
        CuptiError::Library(LibraryError::Absent { .. }) => Status::Absent,
        _ => Status::Blocked,
    };
    Check { fix: error.hint(), ..Check::new(id, Area::Cupti, status, error.to_string()) }
}

pub(super) fn look(options: &ProbeOptions, tell: &mut dyn FnMut(Finding)) {
    // The driver first: CUPTI opens it by name, and must get the chosen one.
    let driver = Driver::load(&options.libraries);
    let cupti = match Cupti::load(&options.libraries) {
        Ok(cupti) => cupti,
        Err(error) => return tell(Finding::Check(refusal("cupti.library", &error))),
    };
    let version = cupti.version();
    let finding =
        format!("CUPTI {}.{}, {}", version / 10_000, version % 10_000 / 100, cupti.path().display());
    tell(Finding::Check(Check::new("cupti.library", Area::Cupti, Status::Ok, finding)));
    let Ok(driver) = driver else { return };
    let Ok(devices) = driver.devices() else { return };
    for (index, facts) in devices.into_iter().enumerate() {
        if options.device.is_some_and(|chosen| chosen != index) {
            continue;
        }
        let chip = cupti.chip(&driver, index).ok();
        if let Some(chip) = &chip {
            let chip = Some(chip.clone());
            tell(Finding::Device(Box::new(Device { uuid: facts.uuid.clone(), chip, ..Device::default() })));
        }
        let check = sampling(&cupti, &driver, index, chip.as_deref());
        tell(Finding::Check(check.of_device(facts.uuid)));
    }
}

/// A short try: permission, owner, driver and metrics all show in it.
fn sampling(cupti: &Cupti, driver: &Driver, index: usize, chip: Option<&str>) -> Check {
    let id = format!("cupti.sampling.{index}");
    let sampled =
        PmSampler::start(cupti, driver, index, &SamplerOptions::default()).and_then(|mut sampler| {
            std::thread::sleep(TRY);
            sampler.drain()?;
            sampler.finish()
        });
    let check = |status, finding| Check::new(id.clone(), Area::Cupti, status, finding);
    match sampled {
        Ok(report) if report.samples > 0 => {
            let finding = format!(
                "{}: {} metrics in one pass, {} samples in {} ms",
                report.chip,
                report.values.len(),
                report.samples,
                TRY.as_millis()
            );
            check(Status::Ok, finding)
        }
        Ok(report) => {
            let why = report.ended_early.clone().unwrap_or_else(|| report.status().to_owned());
            check(Status::Warn, format!("{}: no samples in {} ms ({why})", report.chip, TRY.as_millis()))
                .fix("run one trial with counters and look at its `counters_status`")
        }
        Err(error) => {
            let mut check = refusal(id, &error);
            if let Some(chip) = chip {
                check.finding = format!("{chip}: {}", check.finding);
            }
            check
        }
    }
}
