//! What each sharing mode takes: environments, processes, and the proof that it is in effect.

use crate::device::{Fault, Side};
use crate::devices::processes::Environment;
use crate::worker::message::GpuReport;
use elastico_core::{Outcome, SharingMode};
use elastico_gpu::mig::Instance;
use std::path::Path;

/// Variables of the user's that would change what a worker measures.
const CLEARED: &[&str] = &[
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
];

/// The variable by which a tool, or a person who looks at `/proc`, tells the processes of a trial apart.
pub(super) const SIDE: &str = "ELASTICO_SIDE";

/// What every process that touches the GPU gets; `device` limits it to one.
pub(super) fn base_environment(device: Option<&str>) -> Environment {
    let mut environment: Environment = CLEARED.iter().map(|name| ((*name).to_owned(), None)).collect();
    let mut set = |name: &str, value: &str| environment.push((name.to_owned(), Some(value.to_owned())));
    // Indices as nvidia-smi counts.
    set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    set(elastico_gpu::cuda::LOADING.0, elastico_gpu::cuda::LOADING.1);
    if let Some(device) = device {
        set("CUDA_VISIBLE_DEVICES", device);
    }
    environment
}

/// The processes of a session and what surrounds them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Arrangement {
    /// A process per side, none of them under MPS.
    Apart,
    /// A process per side under the daemon, with the percentages of subject and co-runner.
    Mps([u8; 2]),
    /// A process per side, each in an instance of its own.
    Instances(Vec<Instance>),
    /// One process for both sides; with percentages, each side on SMs of its own.
    Together(Option<[u8; 2]>),
}

impl Arrangement {
    /// How a mode is brought about; an isolated side needs no more than its own part.
    ///
    /// `is_divided`: the GPU is in MIG mode, so that no process can have all of it.
    pub(super) fn new(
        sharing: &SharingMode,
        is_pair: bool,
        is_divided: bool,
        instances: impl FnOnce() -> Result<Vec<Instance>, String>,
    ) -> Result<Self, Fault> {
        let unsupported = |detail: String| Fault { outcome: Outcome::Unsupported, detail };
        match sharing {
            mode if is_divided && !matches!(mode, SharingMode::Mig { .. }) => Err(unsupported(format!(
                "`{mode}` needs the whole GPU, which is in MIG mode; only mig(...) can be had"
            ))),
            SharingMode::Exclusive if is_pair => {
                Err(unsupported("`exclusive` has no room for a co-runner".to_owned()))
            }
            SharingMode::Exclusive | SharingMode::TimeSlice => Ok(Self::Apart),
            SharingMode::Mps { subject_percent, co_runner_percent } => {
                Ok(Self::Mps([*subject_percent, *co_runner_percent]))
            }
            SharingMode::Mig { profile } => {
                let all = instances().map_err(|error| unsupported(format!("no MIG instances: {error}")))?;
                let fitting: Vec<Instance> =
                    all.iter().filter(|instance| instance.profile == *profile).cloned().collect();
                let needed = if is_pair { 2 } else { 1 };
                if fitting.len() >= needed {
                    return Ok(Self::Instances(fitting.into_iter().take(needed).collect()));
                }
                let mut there: Vec<&str> = all.iter().map(|instance| instance.profile.as_str()).collect();
                there.sort_unstable();
                Err(unsupported(format!(
                    "`{sharing}` needs {needed} instances of profile {profile}, the GPU has {} ({})",
                    fitting.len(),
                    if there.is_empty() { "no instances at all".to_owned() } else { there.join(", ") }
                )))
            }
            SharingMode::Streams => Ok(Self::Together(None)),
            SharingMode::SplitStreams { subject_percent, co_runner_percent } => {
                Ok(Self::Together(Some([*subject_percent, *co_runner_percent])))
            }
        }
    }

    /// Whether the workers are clients of an MPS server.
    pub(super) const fn is_mps(&self) -> bool {
        matches!(self, Self::Mps(_))
    }

    /// The device that the process of a side sees.
    pub(super) fn visible<'a>(&'a self, side: Side, uuid: &'a str) -> &'a str {
        match self {
            Self::Instances(instances) => {
                instances.get(usize::from(side == Side::CoRunner)).map_or(uuid, |instance| &instance.uuid)
            }
            _ => uuid,
        }
    }

    /// The percentage of a side.
    pub(super) const fn percent(&self, side: Side) -> u8 {
        match self {
            Self::Mps([subject, co_runner]) | Self::Together(Some([subject, co_runner])) => match side {
                Side::Subject => *subject,
                Side::CoRunner => *co_runner,
            },
            _ => 100,
        }
    }
}

/// The environment of a process that must not meet any MPS daemon: a pipe folder of its own, and empty.
pub(super) fn without_mps(folder: &Path) -> Environment {
    elastico_gpu::mps::without_mps(folder).into_iter().map(|(name, value)| (name, Some(value))).collect()
}

/// SMs of a TPC: percentages are rounded to whole ones.
const TPC: u32 = 2;
/// Most SMs by which the driver rounds the parts of green contexts, on Hopper.
const PARTITION: u32 = 8;

/// What is in effect, as the workers see it; a fault where it is not what was asked for.
///
/// `whole` are the SMs of the device, `reports` those of the processes: one per side, or one for both.
pub(super) fn verify(
    arrangement: &Arrangement,
    sharing: &SharingMode,
    whole: u32,
    reports: &[(Side, &GpuReport)],
) -> Result<SharingMode, Fault> {
    let name = crate::devices::processes::side_name;
    for (side, report) in reports {
        let seen = report.multiprocessors_of(*side);
        match arrangement {
            Arrangement::Apart | Arrangement::Together(_) | Arrangement::Instances(_)
                if report.mps_enabled =>
            {
                return Err(Fault {
                    outcome: Outcome::Unsupported,
                    detail: format!(
                        "`{sharing}` was asked for, but the {}'s worker is a client of an MPS server that is not ours",
                        name(*side)
                    ),
                });
            }
            Arrangement::Mps(_) if !report.mps_enabled => {
                return Err(Fault {
                    outcome: Outcome::MpsFault,
                    detail: format!(
                        "`{sharing}` was asked for, but the driver gave the {}'s worker a context without MPS",
                        name(*side)
                    ),
                });
            }
            Arrangement::Mps(_) => {
                let percent = arrangement.percent(*side);
                let asked = f64::from(whole) * f64::from(percent) / 100.0;
                if (f64::from(seen) - asked).abs() > f64::from(TPC) {
                    return Err(Fault {
                        outcome: Outcome::Unsupported,
                        detail: format!(
                            "{percent} % of {whole} SMs was asked for, but the {}'s worker sees {seen} SMs: the percentage is not in effect",
                            name(*side)
                        ),
                    });
                }
            }
            Arrangement::Apart | Arrangement::Together(None) if seen != whole => {
                return Err(Fault {
                    outcome: Outcome::Unsupported,
                    detail: format!(
                        "the whole GPU was asked for, but the {}'s worker sees {seen} of {whole} SMs",
                        name(*side)
                    ),
                });
            }
            Arrangement::Together(Some(_)) => {
                let percent = arrangement.percent(*side);
                let asked = f64::from(whole) * f64::from(percent) / 100.0;
                if (f64::from(seen) - asked).abs() > f64::from(PARTITION) {
                    return Err(Fault {
                        outcome: Outcome::Unsupported,
                        detail: format!(
                            "{percent} % of {whole} SMs was asked for, and the GPU can part with {seen} for the {}",
                            name(*side)
                        ),
                    });
                }
            }
            Arrangement::Together(None) | Arrangement::Apart => {}
            Arrangement::Instances(instances) => {
                let instance = instances.get(usize::from(*side == Side::CoRunner)).or(instances.first());
                let known = instance.and_then(|instance| instance.multiprocessors);
                if known.is_some_and(|known| known.abs_diff(seen) > TPC) {
                    return Err(Fault {
                        outcome: Outcome::Unsupported,
                        detail: format!(
                            "an instance of {} SMs was asked for, but the {}'s worker sees {seen}",
                            known.unwrap_or(0),
                            name(*side)
                        ),
                    });
                }
            }
        }
    }
    let (Arrangement::Together(Some(_)), [(_, first), (_, second)]) = (arrangement, reports) else {
        return Ok(sharing.clone());
    };
    // Parts are rounded to what the chip can divide; the numbers belong to the parts that were got.
    let percent = |seen: u32| (100.0 * f64::from(seen) / f64::from(whole.max(1))).round() as u8;
    Ok(SharingMode::SplitStreams {
        subject_percent: percent(first.multiprocessors_of(Side::Subject)),
        co_runner_percent: percent(second.multiprocessors_of(Side::CoRunner)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(text: &str) -> SharingMode {
        text.parse().unwrap()
    }

    fn report(multiprocessors: u32, mps_enabled: bool) -> GpuReport {
        GpuReport { multiprocessors: vec![multiprocessors], mps_enabled, ..GpuReport::default() }
    }

    fn check(sharing: &str, seen: [(u32, bool); 2]) -> Result<SharingMode, Fault> {
        let sharing = mode(sharing);
        let arrangement = Arrangement::new(&sharing, true, false, || Ok(Vec::new())).unwrap();
        let reports = seen.map(|(multiprocessors, mps)| report(multiprocessors, mps));
        verify(&arrangement, &sharing, 132, &[(Side::Subject, &reports[0]), (Side::CoRunner, &reports[1])])
    }

    #[test]
    fn what_workers_see_decides() {
        assert_eq!(check("mps(0.3,0.7)", [(40, true), (92, true)]).unwrap(), mode("mps(0.3,0.7)"));
        assert_eq!(check("time_slice", [(132, false), (132, false)]).unwrap(), mode("time_slice"));
        for (sharing, seen, outcome, part) in [
            ("mps(0.3,0.7)", [(132, true), (92, true)], Outcome::Unsupported, "sees 132 SMs"),
            (
                "mps(0.3,0.7)",
                [(40, true), (92, false)],
                Outcome::MpsFault,
                "co-runner's worker a context without",
            ),
            ("time_slice", [(132, true), (132, false)], Outcome::Unsupported, "not ours"),
            ("time_slice", [(132, false), (66, false)], Outcome::Unsupported, "66 of 132"),
        ] {
            let fault = check(sharing, seen).unwrap_err();
            assert_eq!(fault.outcome, outcome, "{fault}");
            assert!(fault.detail.contains(part), "{fault}");
        }
    }

    #[test]
    fn a_pair_needs_two_instances() {
        let fault = Arrangement::new(&mode("mig(1g.10gb)"), true, true, || Ok(Vec::new())).unwrap_err();
        assert_eq!(fault.outcome, Outcome::Unsupported);
        assert!(fault.detail.contains("needs 2 instances of profile 1g.10gb"), "{fault}");
        let fault = Arrangement::new(&SharingMode::TimeSlice, true, true, || Ok(Vec::new())).unwrap_err();
        assert!(fault.detail.contains("in MIG mode"), "{fault}");
        assert!(Arrangement::new(&SharingMode::Exclusive, true, false, || Ok(Vec::new())).is_err());
    }
}
