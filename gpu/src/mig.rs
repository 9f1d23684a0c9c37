//! Multi-Instance GPU: the instances that an administrator made. This program reads MIG and never changes it.

use crate::libraries::Libraries;
use crate::telemetry::{TelemetryError, nvml, reason};
use elastico_core::Hint;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

/// One MIG device: a compute instance, and the GPU instance around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// `MIG-…`, as `CUDA_VISIBLE_DEVICES` takes it.
    pub uuid: String,
    /// The profile, for example `3g.71gb`; a compute instance that shares its GPU instance has `1c.3g.71gb`.
    pub profile: String,
    /// The GPU it is a part of, as nvidia-smi counts.
    pub device_index: u32,
    /// Its position on that GPU.
    pub instance_index: u32,
    /// Its memory in bytes.
    pub memory: u64,
    /// Its SMs, where NVML tells.
    pub multiprocessors: Option<u32>,
}

impl Instance {
    /// Whether it shares its GPU instance, and so memory bandwidth and cache, with other compute instances.
    pub fn is_shared(&self) -> bool {
        self.profile.split_once('.').is_some_and(|(first, _)| first.ends_with('c'))
    }
}

/// Why there are no instances to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigError {
    /// NVML cannot be used.
    #[error(transparent)]
    Nvml(#[from] TelemetryError),
    /// The GPU cannot be divided.
    #[error("GPU {device_index} has no MIG")]
    Unsupported {
        /// Which.
        device_index: u32,
    },
    /// The GPU is not divided.
    #[error("MIG is off on GPU {device_index}{}", if *is_pending { ", and on after the next reset" } else { "" })]
    Off {
        /// Which.
        device_index: u32,
        /// Whether it was turned on and only a reset is missing.
        is_pending: bool,
    },
    /// A question about an instance failed.
    #[error("NVML does not tell the {what} of MIG instance {instance_index} of GPU {device_index}: {reason}")]
    Question {
        /// Which GPU.
        device_index: u32,
        /// Which instance.
        instance_index: u32,
        /// What was asked.
        what: &'static str,
        /// What NVML said.
        reason: String,
    },
}

impl Hint for MigError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Nvml(error) => error.hint(),
            Self::Unsupported { .. } => Some("use time_slice, mps or streams on this GPU".to_owned()),
            Self::Off { device_index, is_pending: true } => Some(format!(
                "an administrator can reset the idle GPU: nvidia-smi -i {device_index} --gpu-reset"
            )),
            Self::Off { device_index, .. } => Some(format!(
                "an administrator can turn it on and make instances: nvidia-smi -i {device_index} -mig 1; nvidia-smi mig -i {device_index} -cgi <profile> -C"
            )),
            Self::Question { .. } => Some("check `nvidia-smi -L` and `nvidia-smi mig -lgi`".to_owned()),
        }
    }
}

/// The MIG devices of one GPU, in NVML's order; empty where MIG is on and nothing was made.
///
/// # Errors
/// [`MigError`]; [`MigError::Off`] where the GPU is not divided.
pub fn instances(libraries: &Libraries, device_index: u32) -> Result<Vec<Instance>, MigError> {
    let nvml = nvml(libraries)?;
    let device = nvml.device_by_index(device_index).map_err(|error| TelemetryError::Device {
        device: device_index.to_string(),
        reason: reason(&error),
    })?;
    let fail =
        |error: &NvmlError| TelemetryError::Unsupported { what: "the MIG mode", reason: reason(error) };
    let mode = match device.mig_mode() {
        Ok(mode) => mode,
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => {
            return Err(MigError::Unsupported { device_index });
        }
        Err(error) => return Err(fail(&error).into()),
    };
    if mode.current == 0 {
        return Err(MigError::Off { device_index, is_pending: mode.pending != 0 });
    }
    let most = device.mig_device_count().map_err(|error| fail(&error))?;
    let mut found = Vec::new();
    for instance_index in 0..most {
        match device.mig_device_by_index(instance_index) {
            Ok(instance) => found.push(describe(&instance, device_index, instance_index)?),
            // Places without an instance.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
            Err(error) => return Err(question(device_index, instance_index, "handle", &error)),
        }
    }
    Ok(found)
}

fn question(device_index: u32, instance_index: u32, what: &'static str, error: &NvmlError) -> MigError {
    MigError::Question { device_index, instance_index, what, reason: reason(error) }
}

fn describe(instance: &Device<'_>, device_index: u32, instance_index: u32) -> Result<Instance, MigError> {
    let fail = |what| move |error: NvmlError| question(device_index, instance_index, what, &error);
    let name = instance.name().map_err(fail("name"))?;
    Ok(Instance {
        uuid: instance.uuid().map_err(fail("UUID"))?,
        profile: profile(&name),
        device_index,
        instance_index,
        memory: instance.memory_info().map_err(fail("memory"))?.total,
        multiprocessors: instance.attributes().ok().map(|attributes| attributes.multiprocessor_count),
    })
}

/// `NVIDIA H200 MIG 3g.71gb` names its profile last.
fn profile(name: &str) -> String {
    name.rsplit_once("MIG ").map_or(name, |(_, profile)| profile).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_read_out_of_the_name() {
        assert_eq!(profile("NVIDIA A100-SXM4-40GB MIG 1g.5gb"), "1g.5gb");
        assert_eq!(profile("NVIDIA H200 MIG 1g.18gb+me"), "1g.18gb+me");
        assert_eq!(profile("3g.71gb"), "3g.71gb");
    }

    #[test]
    fn a_compute_instance_beside_others_is_shared() {
        let instance = |profile: &str| Instance {
            uuid: String::new(),
            profile: profile.to_owned(),
            device_index: 0,
            instance_index: 0,
            memory: 0,
            multiprocessors: None,
        };
        assert!(instance("1c.3g.71gb").is_shared());
        assert!(!instance("3g.71gb").is_shared());
    }
}
