//! What a device says before it is sampled.

use super::Cupti;
use super::error::CuptiError;
use super::host;
use super::library::Functions;
use crate::cuda::Driver;
use cudarc::cupti::sys;
use std::mem::MaybeUninit;
use std::ptr::{addr_of, null, null_mut};

/// Calls a function with its parameters and sorts its answer.
macro_rules! call {
    ($functions:expr, $name:ident, $params:expr) => {{
        // SAFETY: the struct is whole, and what its pointers lead to lives through the call.
        let code = unsafe { ($functions.$name)($params) };
        CuptiError::check(stringify!($name), code)
    }};
}
pub(super) use call;

/// The chips whose only trigger is the system clock.
pub(super) fn has_timer(chip: &str) -> bool {
    !(chip == "GA100" || chip.starts_with("TU"))
}

/// `CUpti_Profiler_Support_Level`, as numbers: a later driver may know a level that the bindings' enum lacks.
const UNSUPPORTED: u32 = 1;
const DISABLED: u32 = 2;

pub(super) fn require_support(functions: &Functions, device_index: usize) -> Result<(), CuptiError> {
    use sys::CUpti_Profiler_Support_Level::CUPTI_PROFILER_CONFIGURATION_UNKNOWN as UNKNOWN;
    let mut params = MaybeUninit::new(sys::CUpti_Profiler_DeviceSupported_Params {
        structSize: sys::Profiler_DeviceSupported_Params_STRUCT_SIZE as usize,
        pPriv: null_mut(),
        // A `CUdevice` is the ordinal of the device.
        cuDevice: i32::try_from(device_index).unwrap_or(i32::MAX),
        isSupported: UNKNOWN,
        architecture: UNKNOWN,
        sli: UNKNOWN,
        vGpu: UNKNOWN,
        confidentialCompute: UNKNOWN,
        cmp: UNKNOWN,
        wsl: UNKNOWN,
        api: sys::CUpti_Profiler_API::CUPTI_PROFILER_PM_SAMPLING,
    });
    call!(functions, cuptiProfilerDeviceSupported, params.as_mut_ptr())?;
    let params = params.as_ptr();
    macro_rules! level {
        ($field:ident) => {
            // SAFETY: the field was written above, and a number has no invalid value.
            unsafe { addr_of!((*params).$field).cast::<u32>().read() }
        };
    }
    let overall = level!(isSupported);
    if !matches!(overall, UNSUPPORTED | DISABLED) {
        return Ok(());
    }
    let parts = [
        ("architecture", level!(architecture)),
        ("SLI", level!(sli)),
        ("vGPU", level!(vGpu)),
        ("confidential computing", level!(confidentialCompute)),
        ("mining product", level!(cmp)),
        ("WSL", level!(wsl)),
    ];
    let culprits: Vec<String> = parts
        .into_iter()
        .filter(|(_, level)| matches!(*level, UNSUPPORTED | DISABLED))
        .map(|(name, level)| format!("{name} {}", if level == DISABLED { "disabled" } else { "unsupported" }))
        .collect();
    let reason = if culprits.is_empty() {
        format!("cuptiProfilerDeviceSupported answers level {overall}")
    } else {
        culprits.join(", ")
    };
    Err(CuptiError::Unsupported { reason })
}

impl Cupti {
    /// CUPTI's name of a device's chip, for example `GH100`. `driver` shows that the driver is there and initialized.
    ///
    /// # Errors
    /// [`CuptiError`] where CUPTI does not know the device.
    pub fn chip(&self, _driver: &Driver, device_index: usize) -> Result<String, CuptiError> {
        chip_name(&self.functions, device_index)
    }
}

pub(super) fn chip_name(functions: &Functions, device_index: usize) -> Result<String, CuptiError> {
    let mut params = sys::CUpti_Device_GetChipName_Params {
        structSize: sys::Device_GetChipName_Params_STRUCT_SIZE as usize,
        pPriv: null_mut(),
        deviceIndex: device_index,
        pChipName: null(),
    };
    call!(functions, cuptiDeviceGetChipName, &raw mut params)?;
    // SAFETY: null or a C string that lives as long as the library.
    Ok(unsafe { host::text(params.pChipName) })
}

/// Which counters this very device offers to this user.
pub(super) fn availability(functions: &Functions, device_index: usize) -> Result<Vec<u8>, CuptiError> {
    let mut params = sys::CUpti_PmSampling_GetCounterAvailability_Params {
        structSize: sys::PmSampling_GetCounterAvailability_Params_STRUCT_SIZE as usize,
        pPriv: null_mut(),
        deviceIndex: device_index,
        counterAvailabilityImageSize: 0,
        pCounterAvailabilityImage: null_mut(),
    };
    call!(functions, cuptiPmSamplingGetCounterAvailability, &raw mut params)?;
    let mut image = vec![0_u8; params.counterAvailabilityImageSize];
    params.pCounterAvailabilityImage = image.as_mut_ptr();
    call!(functions, cuptiPmSamplingGetCounterAvailability, &raw mut params)?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_without_a_timer_are_triggered_by_their_clock() {
        for (chip, expected) in
            [("GH100", true), ("GA102", true), ("AD104", true), ("GA100", false), ("TU104", false)]
        {
            assert_eq!(has_timer(chip), expected, "{chip}");
        }
    }
}
