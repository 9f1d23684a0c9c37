//! The host API: chips, metrics and passes, with no GPU and no driver.

use super::error::CuptiError;
use super::library::Functions;
use cudarc::cupti::sys;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::ptr::{addr_of, null, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What CUPTI says about one metric; empty texts where it says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// What it counts.
    pub text: String,
    /// The hardware unit, as `sm` or `dram`.
    pub hardware_unit: String,
    /// The dimension, as `percent` or `byte`.
    pub dimension: String,
}

/// Nothing says that host calls may come from several threads at once, and they are few: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All chips that this CUPTI knows.
pub(super) fn chips(functions: &Functions) -> Result<Vec<String>, CuptiError> {
    let _guard = alone();
    let mut params = sys::CUpti_Profiler_Host_GetSupportedChips_Params {
        structSize: sys::Profiler_Host_GetSupportedChips_Params_STRUCT_SIZE as usize,
        pPriv: null_mut(),
        numChips: 0,
        ppChipNames: null(),
    };
    // SAFETY: the struct is whole, and lives through the call.
    let code = unsafe { (functions.cuptiProfilerHostGetSupportedChips)(&raw mut params) };
    CuptiError::check("cuptiProfilerHostGetSupportedChips", code)?;
    if params.ppChipNames.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: CUPTI says how many names stand there; they are static in the library.
    let names = unsafe { std::slice::from_raw_parts(params.ppChipNames, params.numChips) };
    // SAFETY: each name is a C string that lives as long as the library.
    Ok(names.iter().map(|name| unsafe { text(*name) }).collect())
}

/// An open host object: one chip, one list of metrics. Deinitialized when dropped.
#[derive(Debug)]
pub(super) struct Host {
    functions: Arc<Functions>,
    chip: String,
    object: *mut sys::CUpti_Profiler_Host_Object,
}

// SAFETY: the object is a handle without ties to a thread, and calls with it need `&self` under the lock of this module.
unsafe impl Send for Host {}

/// Names as CUPTI takes them. The pointers point into the strings, which move with this struct but stay on the heap.
#[derive(Debug)]
pub(super) struct Names {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers lead to heap memory that this struct owns and never changes.
unsafe impl Send for Names {}

impl Names {
    /// Fails on a name with a zero byte inside, which no metric has.
    pub(super) fn new(chip: &str, names: &[&str]) -> Result<Self, CuptiError> {
        let texts = names
            .iter()
            .map(|name| {
                CString::new(*name).map_err(|_| CuptiError::Metric {
                    chip: chip.to_owned(),
                    metric: name.escape_debug().to_string(),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Self { _texts: texts, pointers })
    }

    /// CUPTI's parameter is not const, but it only reads.
    pub(super) fn as_ptr(&self) -> *mut *const c_char {
        self.pointers.as_ptr().cast_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.pointers.len()
    }
}

impl Host {
    /// Opens the PM-sampling view of a chip; `availability` is the device's own image, or empty where there is none.
    pub(super) fn new(
        functions: &Arc<Functions>,
        chip: &str,
        availability: &[u8],
    ) -> Result<Self, CuptiError> {
        let unknown = || CuptiError::Chip { chip: chip.to_owned() };
        let name = CString::new(chip).map_err(|_| unknown())?;
        let _guard = alone();
        let mut params = sys::CUpti_Profiler_Host_Initialize_Params {
            structSize: sys::Profiler_Host_Initialize_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            profilerType: sys::CUpti_ProfilerType::CUPTI_PROFILER_TYPE_PM_SAMPLING,
            pChipName: name.as_ptr(),
            pCounterAvailabilityImage: if availability.is_empty() { null() } else { availability.as_ptr() },
            pHostObject: null_mut(),
        };
        // SAFETY: the struct is whole; the name and the image live through the call and are copied by it.
        let code = unsafe { (functions.cuptiProfilerHostInitialize)(&raw mut params) };
        match code {
            // What CUPTI answers to a chip that it does not know: 46 in 13.0.
            1 | 46 => return Err(unknown()),
            _ => CuptiError::check("cuptiProfilerHostInitialize", code)?,
        }
        Ok(Self { functions: Arc::clone(functions), chip: chip.to_owned(), object: params.pHostObject })
    }

    /// Describes a metric; an unknown name is [`CuptiError::Metric`].
    pub(super) fn describe(&self, metric: &str) -> Result<Description, CuptiError> {
        let unknown = || CuptiError::Metric { chip: self.chip.clone(), metric: metric.to_owned() };
        let name = CString::new(metric).map_err(|_| unknown())?;
        let _guard = alone();
        // MaybeUninit, because the type field may come back with a value that the bindings' enum lacks.
        let mut params = MaybeUninit::new(sys::CUpti_Profiler_Host_GetMetricProperties_Params {
            structSize: sys::Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pHostObject: self.object,
            pMetricName: name.as_ptr(),
            pDescription: null(),
            pHwUnit: null(),
            pDimUnit: null(),
            metricType: sys::CUpti_MetricType::CUPTI_METRIC_TYPE_COUNTER,
        });
        // SAFETY: the struct is whole, the object is open and the name lives through the call.
        let code = unsafe { (self.functions.cuptiProfilerHostGetMetricProperties)(params.as_mut_ptr()) };
        if code == 17 {
            return Err(unknown());
        }
        CuptiError::check("cuptiProfilerHostGetMetricProperties", code)?;
        let params = params.as_ptr();
        // SAFETY: the three fields are pointers, null or to C strings that live as long as the host object.
        unsafe {
            Ok(Description {
                text: text(addr_of!((*params).pDescription).read()),
                hardware_unit: text(addr_of!((*params).pHwUnit).read()),
                dimension: text(addr_of!((*params).pDimUnit).read()),
            })
        }
    }

    /// The configuration that samples these metrics, to be called once per host object.
    pub(super) fn config_image(&self, metrics: &[&str]) -> Result<Vec<u8>, CuptiError> {
        // A bad name among them is answered by error 1 without a name, so each is looked up first.
        for metric in metrics {
            self.describe(metric)?;
        }
        let names = Names::new(&self.chip, metrics)?;
        let _guard = alone();
        let mut add = sys::CUpti_Profiler_Host_ConfigAddMetrics_Params {
            structSize: sys::Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pHostObject: self.object,
            ppMetricNames: names.as_ptr(),
            numMetrics: names.len(),
        };
        // SAFETY: the struct is whole, the object is open, and `names` lives through the call.
        let code = unsafe { (self.functions.cuptiProfilerHostConfigAddMetrics)(&raw mut add) };
        CuptiError::check("cuptiProfilerHostConfigAddMetrics", code)?;
        let mut size = sys::CUpti_Profiler_Host_GetConfigImageSize_Params {
            structSize: sys::Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pHostObject: self.object,
            configImageSize: 0,
        };
        // SAFETY: as above.
        let code = unsafe { (self.functions.cuptiProfilerHostGetConfigImageSize)(&raw mut size) };
        CuptiError::check("cuptiProfilerHostGetConfigImageSize", code)?;
        let mut image = vec![0_u8; size.configImageSize];
        let mut get = sys::CUpti_Profiler_Host_GetConfigImage_Params {
            structSize: sys::Profiler_Host_GetConfigImage_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pHostObject: self.object,
            configImageSize: image.len(),
            pConfigImage: image.as_mut_ptr(),
        };
        // SAFETY: as above; the image is as long as the struct says.
        let code = unsafe { (self.functions.cuptiProfilerHostGetConfigImage)(&raw mut get) };
        CuptiError::check("cuptiProfilerHostGetConfigImage", code)?;
        Ok(image)
    }

    /// The values of one decoded sample, in the order of `names`.
    pub(super) fn evaluate(
        &self,
        image: &[u8],
        sample: usize,
        names: &Names,
        values: &mut Vec<f64>,
    ) -> Result<(), CuptiError> {
        values.clear();
        values.resize(names.len(), f64::NAN);
        let _guard = alone();
        let mut params = sys::CUpti_Profiler_Host_EvaluateToGpuValues_Params {
            structSize: sys::Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pHostObject: self.object,
            pCounterDataImage: image.as_ptr(),
            counterDataImageSize: image.len(),
            rangeIndex: sample,
            ppMetricNames: names.as_ptr(),
            numMetrics: names.len(),
            pMetricValues: values.as_mut_ptr(),
        };
        // SAFETY: the struct is whole; the image, the names and one place per name live through the call.
        let code = unsafe { (self.functions.cuptiProfilerHostEvaluateToGpuValues)(&raw mut params) };
        CuptiError::check("cuptiProfilerHostEvaluateToGpuValues", code)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _guard = alone();
        let mut params = sys::CUpti_Profiler_Host_Deinitialize_Params {
            structSize: sys::Profiler_Host_Deinitialize_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pHostObject: self.object,
        };
        // SAFETY: the object is open and nobody uses it afterwards. Its answer has no reader left.
        unsafe { (self.functions.cuptiProfilerHostDeinitialize)(&raw mut params) };
    }
}

/// How many passes a configuration needs.
pub(super) fn passes(functions: &Functions, image: &mut [u8]) -> Result<u32, CuptiError> {
    let _guard = alone();
    let mut params = sys::CUpti_Profiler_Host_GetNumOfPasses_Params {
        structSize: sys::Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE as usize,
        pPriv: null_mut(),
        configImageSize: image.len(),
        pConfigImage: image.as_mut_ptr(),
        numOfPasses: 0,
    };
    // SAFETY: the struct is whole and the image is as long as it says.
    let code = unsafe { (functions.cuptiProfilerHostGetNumOfPasses)(&raw mut params) };
    CuptiError::check("cuptiProfilerHostGetNumOfPasses", code)?;
    Ok(u32::try_from(params.numOfPasses).unwrap_or(u32::MAX))
}

/// # Safety
/// `text` is null or points to a C string.
pub(super) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so by the caller's word a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// CUPTI wants the end of the last field, not the size of the struct: a wrong number is answered by error 1.
    #[test]
    fn struct_sizes_end_with_the_last_field() {
        macro_rules! ends {
            ($($params:ident, $size:ident, $field:ident, $type:ty;)*) => {
                $(assert_eq!(
                    sys::$size as usize,
                    offset_of!(sys::$params, $field) + size_of::<$type>(),
                    stringify!($params)
                );)*
            };
        }
        ends! {
            CUpti_Profiler_Host_GetMetricProperties_Params, Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE, metricType, u32;
            CUpti_Profiler_Host_Initialize_Params, Profiler_Host_Initialize_Params_STRUCT_SIZE, pHostObject, usize;
            CUpti_Profiler_DeviceSupported_Params, Profiler_DeviceSupported_Params_STRUCT_SIZE, api, u32;
            CUpti_PmSampling_DecodeData_Params, PmSampling_DecodeData_Params_STRUCT_SIZE, overflow, u8;
            CUpti_PmSampling_SetConfig_Params, PmSampling_SetConfig_Params_STRUCT_SIZE, hwBufferAppendMode, u32;
            CUpti_PmSampling_CounterData_GetSampleInfo_Params, PmSampling_CounterData_GetSampleInfo_Params_STRUCT_SIZE, endTimestamp, u64;
        }
        let padded = size_of::<sys::CUpti_Profiler_Host_GetMetricProperties_Params>();
        assert_ne!(sys::Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE as usize, padded);
    }
}
