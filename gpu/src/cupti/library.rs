//! `libcupti.so.13` with every function that this program calls, looked up at once.
//!
//! Only cudarc's types and its struct sizes are used, never its loader: that one searches names of its own and panics
//! on a missing symbol.

use super::error::{CuptiError, MAJOR};
use crate::libraries::{Libraries, LibraryKind, Loaded, function_table};
use cudarc::cupti::sys;
use std::path::PathBuf;
use std::sync::Arc;

function_table! {
    /// The functions, under their own names.
    Functions of cudarc::cupti::sys returns sys::CUptiResult as u32 {
        fn cuptiDeviceGetChipName(*mut sys::CUpti_Device_GetChipName_Params);
        fn cuptiProfilerInitialize(*mut sys::CUpti_Profiler_Initialize_Params);
        fn cuptiProfilerDeviceSupported(*mut sys::CUpti_Profiler_DeviceSupported_Params);
        fn cuptiProfilerHostGetSupportedChips(*mut sys::CUpti_Profiler_Host_GetSupportedChips_Params);
        fn cuptiProfilerHostInitialize(*mut sys::CUpti_Profiler_Host_Initialize_Params);
        fn cuptiProfilerHostDeinitialize(*mut sys::CUpti_Profiler_Host_Deinitialize_Params);
        fn cuptiProfilerHostGetMetricProperties(*mut sys::CUpti_Profiler_Host_GetMetricProperties_Params);
        fn cuptiProfilerHostConfigAddMetrics(*mut sys::CUpti_Profiler_Host_ConfigAddMetrics_Params);
        fn cuptiProfilerHostGetConfigImageSize(*mut sys::CUpti_Profiler_Host_GetConfigImageSize_Params);
        fn cuptiProfilerHostGetConfigImage(*mut sys::CUpti_Profiler_Host_GetConfigImage_Params);
        fn cuptiProfilerHostGetNumOfPasses(*mut sys::CUpti_Profiler_Host_GetNumOfPasses_Params);
        fn cuptiProfilerHostEvaluateToGpuValues(*mut sys::CUpti_Profiler_Host_EvaluateToGpuValues_Params);
        fn cuptiPmSamplingGetCounterAvailability(*mut sys::CUpti_PmSampling_GetCounterAvailability_Params);
        fn cuptiPmSamplingEnable(*mut sys::CUpti_PmSampling_Enable_Params);
        fn cuptiPmSamplingDisable(*mut sys::CUpti_PmSampling_Disable_Params);
        fn cuptiPmSamplingSetConfig(*mut sys::CUpti_PmSampling_SetConfig_Params);
        fn cuptiPmSamplingGetCounterDataSize(*mut sys::CUpti_PmSampling_GetCounterDataSize_Params);
        fn cuptiPmSamplingCounterDataImageInitialize(*mut sys::CUpti_PmSampling_CounterDataImage_Initialize_Params);
        fn cuptiPmSamplingStart(*mut sys::CUpti_PmSampling_Start_Params);
        fn cuptiPmSamplingStop(*mut sys::CUpti_PmSampling_Stop_Params);
        fn cuptiPmSamplingDecodeData(*mut sys::CUpti_PmSampling_DecodeData_Params);
        fn cuptiPmSamplingGetCounterDataInfo(*mut sys::CUpti_PmSampling_GetCounterDataInfo_Params);
        fn cuptiPmSamplingCounterDataGetSampleInfo(*mut sys::CUpti_PmSampling_CounterData_GetSampleInfo_Params);
    }
}

/// Opens the library; returns its path, its functions and its version.
pub(super) fn open(libraries: &Libraries) -> Result<(PathBuf, Arc<Functions>, u32), CuptiError> {
    let loaded = libraries.open(LibraryKind::Cupti)?;
    let version = version(&loaded)?;
    if version / 10_000 != MAJOR {
        return Err(CuptiError::Version { library: loaded.path().to_owned(), version });
    }
    Ok((loaded.path().to_owned(), Arc::new(Functions::load(&loaded)?), version))
}

fn version(loaded: &Loaded) -> Result<u32, CuptiError> {
    // SAFETY: `CUptiResult cuptiGetVersion(uint32_t*)` in every version of cupti_version.h.
    let read = unsafe { loaded.function::<unsafe extern "C" fn(*mut u32) -> u32>("cuptiGetVersion") }?;
    let mut version = 0;
    // SAFETY: `version` is valid for the write.
    CuptiError::check("cuptiGetVersion", unsafe { read(&raw mut version) })?;
    Ok(version)
}
