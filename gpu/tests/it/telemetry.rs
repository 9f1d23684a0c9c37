//! Telemetry and GPM against the stand-in NVML: the good case and every fault that can be scripted.

use crate::support::alone;
use elastico_core::Hint;
use elastico_gpu::gpm::Gpm;
use elastico_gpu::libraries::Libraries;
use elastico_gpu::ring::monotonic_nanoseconds;
use elastico_gpu::telemetry::{Telemetry, TelemetryError, TelemetryPoller, TelemetryWindow};
use std::path::PathBuf;
use std::time::Duration;

const GPU: &str = "GPU-57a1d100-e1a5-4c00-8000-000000000000";

fn open(device: &str) -> Result<Telemetry, TelemetryError> {
    Telemetry::open(&Libraries::from_environment(), device)
}

fn near(value: Option<f64>, expected: f64) {
    assert!(value.is_some_and(|value| (value / expected - 1.0).abs() < 0.1), "{value:?} is not {expected}");
}

/// Polls fast for a while.
fn watch(seconds: f64) -> TelemetryWindow {
    let telemetry = open("0").expect("the stand-in opens");
    let poller = TelemetryPoller::start(telemetry, 50.0).expect("a thread starts");
    let from = monotonic_nanoseconds();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    poller.window(from, monotonic_nanoseconds())
}

#[test]
fn a_device_is_described_and_sampled() {
    alone("telemetry::a_device_is_described_and_sampled", "persistence 1\n", || {
        let telemetry = open(GPU).unwrap();
        let identity = telemetry.identity();
        assert_eq!(identity.name.as_deref(), Some("Stand-in H200"));
        assert_eq!((identity.uuid.as_deref(), identity.is_instance), (Some(GPU), false));
        assert_eq!(identity.driver.as_deref(), Some("580.159.03"));
        assert_eq!(identity.compute_mode.as_deref(), Some("default"));
        assert_eq!((identity.ecc, identity.persistence), (Some(true), Some(true)));
        assert_eq!((identity.pcie_generation, identity.pcie_lanes), (Some(5), Some(16)));
        near(identity.max_sm_clock_hertz, 1.98e9);
        near(identity.power_limit_watts, 700.0);
        assert_eq!(identity.mig, None);
        assert_eq!(identity.missing["mig"], "not supported on this device");

        let first = telemetry.sample();
        assert!(first.missing["pcie_send_bytes_per_second"].contains("first sample"));
        std::thread::sleep(Duration::from_millis(200));
        let sample = telemetry.sample();
        near(sample.sm_clock_hertz, 1.98e9);
        near(sample.memory_clock_hertz, 3.201e9);
        near(sample.power_watts, 420.0);
        near(sample.temperature_celsius, 61.0);
        near(sample.memory_temperature_celsius, 69.0);
        near(sample.memory_used_bytes, 1.44e9);
        near(sample.pcie_receive_bytes_per_second, 1e9);
        near(sample.pcie_send_bytes_per_second, 2e9);
        assert_eq!(sample.ecc_uncorrected_total, Some(0.0));
        assert_eq!(sample.throttle_reasons, Some(0));
        assert!(sample.missing.is_empty(), "{:?}", sample.missing);
        let seconds = (sample.at - first.at) as f64 * 1e-9;
        near(Some((sample.energy_joules.unwrap() - first.energy_joules.unwrap()) / seconds), 420.0);
        println!("measured: one look at the stand-in takes {:.0} us", sample.cost_seconds * 1e6);
    });
}

#[test]
fn clock_drops_throttling_and_errors_are_seen() {
    let script = "clock 150 900\nthrottle 150 0x48\necc 150 2\nxid 31 after 150\n";
    alone("telemetry::clock_drops_throttling_and_errors_are_seen", script, || {
        let window = watch(0.3);
        assert!(window.samples >= 3, "{window:?}");
        near(window.sm_clock_min_hertz, 0.9e9);
        assert!(window.sm_clock_mean_hertz.is_some_and(|clock| clock > 0.9e9), "{window:?}");
        for ratio in [window.thermal_ratio, window.hardware_ratio, window.throttled_ratio] {
            assert!(ratio.is_some_and(|ratio| ratio > 0.1 && ratio < 1.0), "{window:?}");
        }
        assert_eq!(window.power_cap_ratio, Some(0.0));
        assert_eq!(window.ecc_uncorrected_total, Some(2.0));
        assert_eq!(window.xids, [31]);
        near(window.energy_joules.map(|joules| joules / window.seconds), 420.0);
        println!("measured: a look takes {:.0} us on average", window.cost_mean_seconds * 1e6);
    });
}

#[test]
fn what_is_denied_is_missing_with_its_reason() {
    let script = "deny nvmlDeviceGetPowerUsage\nfault nvmlDeviceGetTotalEnergyConsumption 3 always\n\
                  deny nvmlDeviceGetFieldValues\nfault nvmlDeviceRegisterEvents 3\n";
    alone("telemetry::what_is_denied_is_missing_with_its_reason", script, || {
        let mut telemetry = open("0").unwrap();
        let sample = telemetry.sample();
        assert_eq!(sample.power_watts, None);
        assert_eq!(sample.missing["power_watts"], "this user may not read it");
        assert_eq!(sample.missing["energy_joules"], "not supported on this device");
        assert_eq!(sample.missing["memory_temperature_celsius"], "this user may not read it");
        assert_eq!(sample.missing["pcie_receive_bytes_per_second"], "not supported on this device");
        assert!(sample.sm_clock_hertz.is_some());
        assert_eq!(telemetry.xids_missing(), Some("not supported on this device"));
        assert!(telemetry.xids().is_empty());
        // The slow call serves where it is asked for.
        let sample = open("0").unwrap().with_pcie_throughput(true).sample();
        near(sample.pcie_receive_bytes_per_second, 1_024_000.0);
        assert!(sample.cost_seconds > 0.04);
    });
}

#[test]
fn a_lost_device_is_told_once() {
    alone("telemetry::a_lost_device_is_told_once", "lost 500\n", || {
        let mut telemetry = open("0").unwrap();
        assert!(telemetry.xids().is_empty());
        std::thread::sleep(Duration::from_millis(520));
        assert_eq!(telemetry.xids(), [79]);
        assert!(telemetry.xids().is_empty());
        let sample = telemetry.sample();
        assert_eq!((sample.sm_clock_hertz, sample.throttle_reasons), (None, None));
        assert_eq!(sample.missing["throttle_reasons"], "the device is lost");
        assert_eq!(sample.missing.len(), 11);
    });
}

#[test]
fn an_instance_has_its_memory_and_its_boards_clocks() {
    let script = "mig MIG-11111111-2222-3333-4444-555555555555 1g.18gb 16 18000000000\n";
    alone("telemetry::an_instance_has_its_memory_and_its_boards_clocks", script, || {
        let instance = "MIG-11111111-2222-3333-4444-555555555555";
        let telemetry = open(instance).unwrap();
        let identity = telemetry.identity();
        assert!(identity.is_instance);
        assert_eq!((identity.uuid.as_deref(), identity.board_uuid.as_deref()), (Some(instance), Some(GPU)));
        assert_eq!(identity.mig, Some(true));
        let sample = telemetry.sample();
        near(sample.memory_used_bytes, 1.8e8);
        near(sample.sm_clock_hertz, 1.98e9);

        let mut gpm = Gpm::open(&Libraries::from_environment(), instance).unwrap();
        gpm.start().unwrap();
        assert!(gpm.finish().unwrap().counters.contains_key("sm_active_ratio"));
        // The GPU itself is sampled by instance only.
        let mut gpm = Gpm::open(&Libraries::from_environment(), "0").unwrap();
        assert!(gpm.start().is_err());
    });
}

#[test]
fn windows_can_be_switched_off() {
    alone("telemetry::windows_can_be_switched_off", "", || {
        let poller = TelemetryPoller::start(open("0").unwrap(), 0.0).unwrap();
        assert!(!poller.is_on() && poller.latest().is_none());
        let window = poller.window(0, monotonic_nanoseconds());
        assert_eq!((window.samples, window.sm_clock_mean_hertz), (0, None));
        assert_eq!(window.missing["sm_clock_hertz"], "telemetry is switched off");
    });
}

#[test]
fn devices_that_are_not_there_are_named() {
    alone("telemetry::devices_that_are_not_there_are_named", "", || {
        for device in ["7", "GPU-00000000-0000-0000-0000-000000000000", "nonsense\0"] {
            let error = open(device).unwrap_err();
            assert!(matches!(error, TelemetryError::Device { .. }), "{error}");
            assert!(error.hint().unwrap().contains("nvidia-smi -L"));
        }
        let libraries =
            Libraries { nvml: Some(PathBuf::from("/nowhere/libnvidia-ml.so.1")), ..Libraries::default() };
        assert_eq!(Telemetry::open(&libraries, "0").unwrap_err().status(), "no_library");
    });
}

#[test]
fn a_driver_that_is_not_loaded_is_an_absence() {
    alone("telemetry::a_driver_that_is_not_loaded_is_an_absence", "fault nvmlInit 9\n", || {
        let error = open("0").unwrap_err();
        assert!(matches!(error, TelemetryError::Open { is_absence: true, .. }), "{error:?}");
    });
}

#[test]
fn gpm_reads_a_window() {
    alone("telemetry::gpm_reads_a_window", "gpm_value 5 nan\ngpm_value 11 240\n", || {
        let mut gpm = Gpm::open(&Libraries::from_environment(), GPU).unwrap();
        assert!(gpm.finish().is_err(), "no window is open");
        gpm.start().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let reading = gpm.finish().unwrap();
        assert!(reading.seconds >= 0.05);
        near(reading.counters.get("sm_active_ratio").copied(), 0.93);
        near(reading.counters.get("sm_occupancy_ratio").copied(), 0.41);
        near(reading.counters.get("dram_throughput_ratio").copied(), 0.48);
        // 2048 MiB/s of a link of generation 5 with 16 lanes.
        near(reading.counters.get("copy_active_ratio").copied(), 2_147_483_648.0 / 63.015e9);
        assert_eq!(reading.context_switches_total, Some(900.0));
        near(reading.context_switch_active_ratio, 0.015);
        assert!(reading.missing["tensor_active_ratio"].contains("NaN"), "{:?}", reading.missing);
        assert!(reading.missing["fp64_active_ratio"].contains("240"), "{:?}", reading.missing);
        assert!(reading.missing["l2_hit_ratio"].contains("no such counter"));
    });
}

#[test]
fn gpm_before_hopper_is_refused() {
    alone("telemetry::gpm_before_hopper_is_refused", "gpm 0\n", || {
        let error = Gpm::open(&Libraries::from_environment(), "0").unwrap_err();
        assert_eq!(error.status(), "unsupported");
        assert!(error.to_string().contains("Hopper"), "{error}");
    });
}
