//! PM sampling of a device.

use super::device::{self, call};
use super::error::CuptiError;
use super::host::{self, Host, Names};
use super::library::Functions;
use super::metrics::{Collector, Series};
use super::{Cupti, FittedSet};
use crate::cuda::Driver;
use cudarc::cupti::sys;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ptr::{addr_of, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// How to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerOptions {
    /// Time between samples. On Turing and GA100, which have no timer for it, as many cycles of the system clock as fit
    /// into it at 1 GHz.
    pub interval: Duration,
    /// Where the device keeps samples until they are decoded, in bytes. 256 MiB hold seconds at 1 ms.
    pub hardware_buffer_bytes: u64,
    /// Samples that are decoded at once. Their image is memory of this process, tens of kilobytes per sample, and is
    /// written anew for each decode.
    pub samples_at_once: u32,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self { interval: Duration::from_millis(1), hardware_buffer_bytes: 256 << 20, samples_at_once: 512 }
    }
}

/// What was sampled in one window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SamplerReport {
    /// CUPTI's name of the chip.
    pub chip: String,
    /// Samples that count.
    pub samples: u64,
    /// Samples without length or out of order, which do not.
    pub discarded: u64,
    /// Time that the samples cover.
    pub seconds: f64,
    /// Whether the device's buffer ran full, so that samples are missing.
    pub overflow: bool,
    /// Holes between samples.
    pub gaps: u64,
    /// Each metric by CUPTI's name, in CUPTI's unit.
    pub values: BTreeMap<&'static str, Series>,
    /// The counters of the dataset: ratios 0..1 and hertz.
    pub counters: BTreeMap<&'static str, f64>,
    /// Counters that are missing, each with its reason.
    pub absent: BTreeMap<&'static str, String>,
    /// Why sampling ended before it was told to; what was decoded until then is kept.
    pub ended_early: Option<String>,
}

impl SamplerReport {
    /// One word for the column `counters_status`: `ok`, `overflow`, `gaps`, `ended_early` or `no_samples`.
    pub const fn status(&self) -> &'static str {
        if self.samples == 0 {
            "no_samples"
        } else if self.ended_early.is_some() {
            "ended_early"
        } else if self.overflow {
            "overflow"
        } else if self.gaps > 0 {
            "gaps"
        } else {
            "ok"
        }
    }
}

/// A device that is being sampled, from [`PmSampler::start`] to [`PmSampler::finish`].
#[derive(Debug)]
pub struct PmSampler {
    functions: Arc<Functions>,
    host: Host,
    names: Names,
    set: FittedSet,
    /// Null once disabled.
    object: *mut sys::CUpti_PmSampling_Object,
    /// CUPTI's own format; handed to nobody else.
    image: Vec<u8>,
    collector: Collector,
    row: Vec<f64>,
    is_running: bool,
    overflow: bool,
    ended_early: Option<String>,
}

// SAFETY: the object is a handle without ties to a thread, and all calls with it need `&mut self`.
unsafe impl Send for PmSampler {}

impl PmSampler {
    /// Takes the performance monitor of a device and starts to sample.
    ///
    /// `driver` shows that the driver is there and initialized; the device is counted as it counts.
    ///
    /// # Errors
    /// [`CuptiError`]: not permitted, busy, not supported, or no set of metrics for the chip.
    pub fn start(
        cupti: &Cupti,
        _driver: &Driver,
        device_index: usize,
        options: &SamplerOptions,
    ) -> Result<Self, CuptiError> {
        let functions = &cupti.functions;
        let mut initialize = sys::CUpti_Profiler_Initialize_Params {
            structSize: sys::Profiler_Initialize_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
        };
        call!(functions, cuptiProfilerInitialize, &raw mut initialize)?;
        device::require_support(functions, device_index)?;
        let chip = device::chip_name(functions, device_index)?;
        let availability = device::availability(functions, device_index)?;
        let set = cupti.fit(&chip, &availability)?;
        let host = Host::new(functions, &chip, &availability)?;
        let mut config = host.config_image(&set.names())?;
        let passes = host::passes(functions, &mut config)?;
        if passes != 1 {
            return Err(CuptiError::Passes { chip, passes });
        }
        let names = Names::new(&chip, &set.names())?;
        let has_timer = device::has_timer(&chip);
        let nanoseconds = u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut sampler = Self {
            functions: Arc::clone(functions),
            host,
            names,
            collector: Collector::new(&set.metrics, if has_timer { nanoseconds } else { 0 }),
            set,
            object: null_mut(),
            image: Vec::new(),
            row: Vec::new(),
            is_running: false,
            overflow: false,
            ended_early: None,
        };
        // From here on dropping the sampler gives the device back.
        sampler.enable(device_index)?;
        sampler.configure(&config, options, nanoseconds, has_timer)?;
        sampler.allocate_image(options.samples_at_once)?;
        let mut start = sys::CUpti_PmSampling_Start_Params {
            structSize: sys::PmSampling_Start_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pPmSamplingObject: sampler.object,
        };
        call!(sampler.functions, cuptiPmSamplingStart, &raw mut start)?;
        sampler.is_running = true;
        Ok(sampler)
    }

    /// The metrics that are sampled.
    pub const fn set(&self) -> &FittedSet {
        &self.set
    }

    /// Decodes what the device has sampled so far. To be called some twenty times a second.
    ///
    /// # Errors
    /// [`CuptiError`] where decoding fails. Sampling has ended then, later calls do nothing, and
    /// [`PmSampler::finish`] still reports what was decoded before.
    pub fn drain(&mut self) -> Result<(), CuptiError> {
        if self.ended_early.is_some() {
            return Ok(());
        }
        self.decode_all().inspect_err(|error| self.ended_early = Some(error.to_string()))
    }

    /// Stops, decodes the rest, gives the device back and reports.
    ///
    /// # Errors
    /// None today; a failed decode is told in the report.
    pub fn finish(mut self) -> Result<SamplerReport, CuptiError> {
        if let Err(error) = self.stop() {
            self.ended_early.get_or_insert_with(|| error.to_string());
        }
        // A failed decode has been noted by `drain`.
        let _ = self.drain();
        self.disable();
        let (samples, discarded, gaps) = self.collector.counts();
        let counters = self.collector.counters();
        let mut absent = std::mem::take(&mut self.set.absent);
        for metric in &self.set.metrics {
            if let Some(counter) = metric.counter
                && !counters.contains_key(counter)
            {
                absent.entry(counter).or_insert_with(|| format!("`{}` gave no valid value", metric.name));
            }
        }
        Ok(SamplerReport {
            chip: std::mem::take(&mut self.set.chip),
            samples,
            discarded,
            seconds: self.collector.seconds(),
            overflow: self.overflow,
            gaps,
            values: self.collector.values(),
            counters,
            absent,
            ended_early: self.ended_early.take(),
        })
    }

    fn enable(&mut self, device_index: usize) -> Result<(), CuptiError> {
        let mut params = sys::CUpti_PmSampling_Enable_Params {
            structSize: sys::PmSampling_Enable_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            deviceIndex: device_index,
            pPmSamplingObject: null_mut(),
        };
        call!(self.functions, cuptiPmSamplingEnable, &raw mut params).map_err(|error| match error {
            // "Already enabled on the device": somebody else's session.
            CuptiError::Call { call, code: 7 } => CuptiError::Busy { call, code: 7 },
            other => other,
        })?;
        self.object = params.pPmSamplingObject;
        Ok(())
    }

    fn configure(
        &mut self,
        config: &[u8],
        options: &SamplerOptions,
        nanoseconds: u64,
        has_timer: bool,
    ) -> Result<(), CuptiError> {
        let mut params = sys::CUpti_PmSampling_SetConfig_Params {
            structSize: sys::PmSampling_SetConfig_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            configSize: config.len(),
            pConfig: config.as_ptr(),
            hardwareBufferSize: usize::try_from(options.hardware_buffer_bytes).unwrap_or(usize::MAX),
            samplingInterval: nanoseconds,
            triggerMode: if has_timer {
                sys::CUpti_PmSampling_TriggerMode::CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL
            } else {
                sys::CUpti_PmSampling_TriggerMode::CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL
            },
            // The oldest are kept, so that an overflow is told and not papered over; Turing has no other mode.
            hwBufferAppendMode:
                sys::CUpti_PmSampling_HardwareBuffer_AppendMode::CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST,
        };
        call!(self.functions, cuptiPmSamplingSetConfig, &raw mut params)
    }

    fn allocate_image(&mut self, samples: u32) -> Result<(), CuptiError> {
        let mut params = sys::CUpti_PmSampling_GetCounterDataSize_Params {
            structSize: sys::PmSampling_GetCounterDataSize_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            pMetricNames: self.names.as_ptr(),
            numMetrics: self.names.len(),
            maxSamples: samples.max(1),
            counterDataSize: 0,
        };
        call!(self.functions, cuptiPmSamplingGetCounterDataSize, &raw mut params)?;
        self.image = vec![0; params.counterDataSize];
        self.reset_image()
    }

    fn reset_image(&mut self) -> Result<(), CuptiError> {
        let mut params = sys::CUpti_PmSampling_CounterDataImage_Initialize_Params {
            structSize: sys::PmSampling_CounterDataImage_Initialize_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            counterDataSize: self.image.len(),
            pCounterData: self.image.as_mut_ptr(),
        };
        call!(self.functions, cuptiPmSamplingCounterDataImageInitialize, &raw mut params)
    }

    fn decode_all(&mut self) -> Result<(), CuptiError> {
        loop {
            // MaybeUninit, because the stop reason may come back with a value that the bindings' enum lacks.
            let mut params = MaybeUninit::new(sys::CUpti_PmSampling_DecodeData_Params {
                structSize: sys::PmSampling_DecodeData_Params_STRUCT_SIZE as usize,
                pPriv: null_mut(),
                pPmSamplingObject: self.object,
                pCounterDataImage: self.image.as_mut_ptr(),
                counterDataImageSize: self.image.len(),
                decodeStopReason:
                    sys::CUpti_PmSampling_DecodeStopReason::CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER,
                overflow: 0,
            });
            let decoded = call!(self.functions, cuptiPmSamplingDecodeData, params.as_mut_ptr());
            let params = params.as_ptr();
            // SAFETY: both fields were written above, and a number has no invalid value.
            let (reason, overflow) = unsafe {
                (
                    addr_of!((*params).decodeStopReason).cast::<u32>().read(),
                    addr_of!((*params).overflow).read(),
                )
            };
            self.overflow |= overflow != 0 || matches!(decoded, Err(CuptiError::Call { code: 8, .. }));
            decoded?;
            let completed = self.collect()?;
            self.reset_image()?;
            let is_full = reason
                == sys::CUpti_PmSampling_DecodeStopReason::CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL
                    as u32;
            if !is_full || completed == 0 {
                return Ok(());
            }
        }
    }

    /// Takes the decoded samples over; returns how many there were.
    fn collect(&mut self) -> Result<usize, CuptiError> {
        let mut info = sys::CUpti_PmSampling_GetCounterDataInfo_Params {
            structSize: sys::PmSampling_GetCounterDataInfo_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pCounterDataImage: self.image.as_ptr(),
            counterDataImageSize: self.image.len(),
            numTotalSamples: 0,
            numPopulatedSamples: 0,
            numCompletedSamples: 0,
        };
        call!(self.functions, cuptiPmSamplingGetCounterDataInfo, &raw mut info)?;
        for sample in 0..info.numCompletedSamples {
            let mut times = sys::CUpti_PmSampling_CounterData_GetSampleInfo_Params {
                structSize: sys::PmSampling_CounterData_GetSampleInfo_Params_STRUCT_SIZE as usize,
                pPriv: null_mut(),
                pPmSamplingObject: self.object,
                pCounterDataImage: self.image.as_ptr(),
                counterDataImageSize: self.image.len(),
                sampleIndex: sample,
                startTimestamp: 0,
                endTimestamp: 0,
            };
            call!(self.functions, cuptiPmSamplingCounterDataGetSampleInfo, &raw mut times)?;
            self.host.evaluate(&self.image, sample, &self.names, &mut self.row)?;
            self.collector.add(times.startTimestamp, times.endTimestamp, &self.row);
        }
        Ok(info.numCompletedSamples)
    }

    fn stop(&mut self) -> Result<(), CuptiError> {
        if !std::mem::replace(&mut self.is_running, false) {
            return Ok(());
        }
        let mut params = sys::CUpti_PmSampling_Stop_Params {
            structSize: sys::PmSampling_Stop_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
        };
        call!(self.functions, cuptiPmSamplingStop, &raw mut params)
    }

    fn disable(&mut self) {
        let object = std::mem::replace(&mut self.object, null_mut());
        if object.is_null() {
            return;
        }
        let mut params = sys::CUpti_PmSampling_Disable_Params {
            structSize: sys::PmSampling_Disable_Params_STRUCT_SIZE as usize,
            pPriv: null_mut(),
            pPmSamplingObject: object,
        };
        // The device is given up either way; what it answers has no reader.
        let _ = call!(self.functions, cuptiPmSamplingDisable, &raw mut params);
    }
}

impl Drop for PmSampler {
    fn drop(&mut self) {
        let _ = self.stop();
        self.disable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_the_worst() {
        let report = SamplerReport { samples: 3, ..SamplerReport::default() };
        assert_eq!(report.status(), "ok");
        assert_eq!(SamplerReport { gaps: 1, ..report.clone() }.status(), "gaps");
        assert_eq!(SamplerReport { gaps: 1, overflow: true, ..report.clone() }.status(), "overflow");
        let ended = SamplerReport { overflow: true, ended_early: Some("x".to_owned()), ..report };
        assert_eq!(ended.status(), "ended_early");
        assert_eq!(SamplerReport::default().status(), "no_samples");
    }
}
