//! PM sampling against the stand-in CUPTI: the good case and every fault that can be scripted.

use crate::support::{alone, compile, scene, stand_ins, with_stand_ins};
use elastico_core::Hint;
use elastico_gpu::counter_check::{KnownLoad, Verdict, check, clock_hertz};
use elastico_gpu::cuda::Driver;
use elastico_gpu::cupti::sampler_process::{
    SamplerError, SamplerProcess, SamplerRequest, SamplerTimeouts, serve,
};
use elastico_gpu::cupti::{Cupti, CuptiError, PmSampler, SamplerOptions, SamplerReport, suspicion};
use elastico_gpu::libraries::Libraries;
use std::process::Command;
use std::time::{Duration, Instant};

fn start() -> Result<PmSampler, CuptiError> {
    let libraries = Libraries::from_environment();
    let driver = Driver::load(&libraries)?;
    let cupti = Cupti::load(&libraries)?;
    PmSampler::start(&cupti, &driver, 0, &SamplerOptions::default())
}

/// Samples for a fifth of a second and more, draining as the sampler's process does.
fn sample() -> Result<SamplerReport, CuptiError> {
    let mut sampler = start()?;
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(45));
        // A failed decode is told in the report.
        let _ = sampler.drain();
    }
    sampler.finish()
}

#[test]
fn a_device_is_sampled() {
    alone("counters::a_device_is_sampled", "", || {
        let begun = Instant::now();
        let report = sample().unwrap();
        assert_eq!((report.status(), report.gaps, report.discarded), ("ok", 0, 0), "{report:?}");
        let most = begun.elapsed().as_millis() as u64;
        assert!(report.samples > 150 && report.samples <= most, "{} samples in {most} ms", report.samples);
        assert!((report.seconds - report.samples as f64 * 1e-3).abs() < 1e-9);
        // The stand-in's values, in the dataset's units.
        for (counter, expected) in [
            ("sm_active_ratio", 0.94),
            ("sm_occupancy_ratio", 0.43),
            ("tensor_active_ratio", 0.61),
            ("l2_hit_ratio", 0.71),
            ("dram_throughput_ratio", 0.52),
            ("copy_active_ratio", 0.032),
            ("launch_rate_hertz", 42_000.0),
        ] {
            let value = report.counters[counter];
            assert!((value / expected - 1.0).abs() < 0.02, "{counter} is {value}, not {expected}");
        }
        assert_eq!(report.counters.len(), elastico_core::COUNTERS.len());
        assert!(report.absent.is_empty(), "{:?}", report.absent);
        assert_eq!(suspicion(&report.counters, 0.99), None);

        // The same report through the check of counters: the stand-in reads 1.9 TB/s at 1755 MHz.
        assert!((clock_hertz(&report).unwrap() / 1.755e9 - 1.0).abs() < 0.02);
        let load = KnownLoad {
            dram_read_bytes_per_second: 1.9e12,
            dram_write_bytes_per_second: 1.2e12,
            fills_all_sms: true,
            ..KnownLoad::default()
        };
        let verdicts: Vec<Verdict> =
            check(&load, &report, 132, None).iter().map(|verdict| verdict.verdict).collect();
        assert_eq!(verdicts, [Verdict::Agrees, Verdict::Differs, Verdict::Agrees]);
    });
}

#[test]
fn one_owner_at_a_time() {
    alone("counters::one_owner_at_a_time", "", || {
        let first = start().unwrap();
        let error = start().unwrap_err();
        assert_eq!(error.status(), "busy", "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("dcgmi profile --pause") && hint.contains("ncu"), "{hint}");
        drop(first);
        start().expect("what is dropped is given back");
    });
}

#[test]
fn who_may_not_read_is_told_three_remedies() {
    alone("counters::who_may_not_read_is_told_three_remedies", "deny counters\n", || {
        let error = start().unwrap_err();
        assert!(matches!(error, CuptiError::NotPermitted { code: 35, .. }), "{error}");
        let hint = error.hint().unwrap();
        for remedy in ["CAP_SYS_ADMIN", "NVreg_RestrictProfilingToAdminUsers=0", "GPM"] {
            assert!(hint.contains(remedy), "{hint}");
        }
    });
}

#[test]
fn a_device_that_cannot_names_the_part() {
    alone("counters::a_device_that_cannot_names_the_part", "pm_unsupported vgpu\n", || {
        let error = start().unwrap_err();
        assert_eq!(error.status(), "unsupported");
        assert!(error.to_string().contains("vGPU disabled"), "{error}");
    });
}

#[test]
fn a_chip_whose_metrics_take_more_passes_has_no_set() {
    alone("counters::a_chip_whose_metrics_take_more_passes_has_no_set", "passes 2\n", || {
        let error = start().unwrap_err();
        assert!(matches!(error, CuptiError::Chip { .. }), "{error}");
        assert_eq!(error.status(), "no_metric_set");
    });
}

#[test]
fn a_metric_that_the_device_lacks_is_absent_with_a_reason() {
    let script = "unknown_metric pipe_tensor\npm_value pipe_fp64 nan\n";
    alone("counters::a_metric_that_the_device_lacks_is_absent_with_a_reason", script, || {
        let report = sample().unwrap();
        assert_eq!(report.status(), "ok");
        assert!(report.absent["tensor_active_ratio"].contains("does not fit"), "{:?}", report.absent);
        assert!(report.absent["fp64_active_ratio"].contains("no valid value"), "{:?}", report.absent);
        assert!(!report.counters.contains_key("tensor_active_ratio"));
        assert!(report.counters.contains_key("sm_active_ratio"));
    });
}

#[test]
fn overflow_and_gaps_are_recorded() {
    alone("counters::overflow_and_gaps_are_recorded", "pm_overflow 2\npm_gap 3\n", || {
        let report = sample().unwrap();
        assert!(report.overflow && report.gaps == 1, "{report:?}");
        assert_eq!(report.status(), "overflow");
    });
}

#[test]
fn a_decode_that_fails_keeps_what_was_decoded() {
    let script = "fault cuptiPmSamplingDecodeData 9 after 3 always\n";
    alone("counters::a_decode_that_fails_keeps_what_was_decoded", script, || {
        let report = sample().unwrap();
        assert_eq!(report.status(), "ended_early");
        assert!(report.ended_early.as_ref().unwrap().contains("hardware error"), "{report:?}");
        assert!(report.samples > 50, "{} samples", report.samples);
        assert!(report.counters.contains_key("sm_active_ratio"));
    });
}

#[test]
fn a_chip_without_a_timer_is_triggered_by_its_clock() {
    // The stand-in refuses the timer on this chip, as the real one does.
    alone("counters::a_chip_without_a_timer_is_triggered_by_its_clock", "chip GA100\n", || {
        let report = sample().unwrap();
        assert_eq!((report.chip.as_str(), report.status()), ("GA100", "ok"));
        assert!(report.absent["l2_hit_ratio"].contains("two passes"));
    });
}

#[test]
fn counters_at_zero_beside_a_working_device_are_suspect() {
    let script = "pm_value sm__cycles_active 0\npm_value warps_active 0\n";
    alone("counters::counters_at_zero_beside_a_working_device_are_suspect", script, || {
        let report = sample().unwrap();
        assert!(suspicion(&report.counters, 0.98).unwrap().contains("sm_active_ratio is 0"));
    });
}

#[test]
fn other_versions_and_missing_functions_are_named() {
    let name = "counters::other_versions_and_missing_functions_are_named";
    alone(name, "", || {
        let load = |define: &str| {
            let folder = tempfile::tempdir().unwrap();
            compile(folder.path(), "cupti.c", "libcupti.so.13", &[define]);
            let libraries =
                Libraries { cupti_folder: Some(folder.path().to_owned()), ..Libraries::default() };
            Cupti::load(&libraries).unwrap_err()
        };
        let error = load("-DVERSION=28");
        assert!(matches!(error, CuptiError::Version { version: 28, .. }), "{error}");
        assert!(error.hint().unwrap().contains("nvidia-cuda-cupti==13.0.85"));
        let error = load("-DWITHOUT_cuptiPmSamplingStop");
        assert!(error.to_string().contains("cuptiPmSamplingStop"), "{error}");
        assert_eq!(error.status(), "no_library");
    });
}

// ---- the sampler's process

/// Not a test of its own: what the sampler's process runs. Its protocol goes to descriptor 3, for the test harness
/// writes to stdout.
#[test]
fn role_of_the_sampler() {
    if std::env::var_os("ELASTICO_TEST_SAMPLER").is_none() {
        return;
    }
    let output = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/3").unwrap();
    serve(std::io::BufReader::new(std::io::stdin()), output).unwrap();
}

/// Starts a sampler under a script; `None` where there is no compiler.
fn sampler(
    lines: &str,
    timeouts: SamplerTimeouts,
) -> Option<(tempfile::TempDir, Result<SamplerProcess, SamplerError>)> {
    let folder = stand_ins()?;
    let scene = scene(lines);
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$0\" --exact counters::role_of_the_sampler --nocapture 3>&1 >/dev/null"])
        .arg(std::env::current_exe().expect("this binary"))
        .env("ELASTICO_TEST_SAMPLER", "1");
    with_stand_ins(&mut command, folder, scene.path());
    let libraries = Libraries {
        cuda: Some(folder.join("libcuda.so.1")),
        cupti_folder: Some(folder.to_owned()),
        ..Libraries::default()
    };
    let request = SamplerRequest { libraries, ..SamplerRequest::default() };
    let started = SamplerProcess::start(command, &request, timeouts);
    Some((scene, started))
}

#[test]
fn windows_are_sampled_in_a_process_of_its_own() {
    let Some((_scene, started)) = sampler("", SamplerTimeouts::default()) else { return };
    let mut sampler = started.unwrap();
    assert_eq!((sampler.ready().chip.as_str(), sampler.ready().cupti_version), ("GH100", 130_001));
    assert_eq!(sampler.ready().metrics.len(), 28);
    for _ in 0..2 {
        sampler.begin().unwrap();
        std::thread::sleep(Duration::from_millis(120));
        let report = sampler.end().unwrap();
        assert_eq!(report.status(), "ok");
        assert!(report.samples >= 100, "{} samples", report.samples);
        assert!((report.counters["tensor_active_ratio"] - 0.61).abs() < 0.02);
    }
    let error = sampler.end().unwrap_err();
    assert_eq!(error.status(), "protocol", "{error}");
    let process = sampler.id();
    sampler.stop();
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "it is gone and reaped");
}

#[test]
fn a_sampler_that_may_not_read_says_so() {
    let Some((_scene, started)) = sampler("deny counters\n", SamplerTimeouts::default()) else { return };
    let error = started.unwrap_err();
    assert!(matches!(error, SamplerError::Refused { .. }), "{error:?}");
    assert_eq!(error.status(), "not_permitted");
    assert!(error.hint().unwrap().contains("CAP_SYS_ADMIN"));
}

#[test]
fn a_monitor_that_is_busy_for_a_while_can_be_tried_again() {
    // The first call is that of `prepare`, the second that of the window.
    let script = "fault cuptiPmSamplingEnable 26 after 2\n";
    let Some((_scene, started)) = sampler(script, SamplerTimeouts::default()) else { return };
    let mut sampler = started.unwrap();
    assert_eq!(sampler.begin().unwrap_err().status(), "busy");
    sampler.begin().expect("it is free now");
    assert!(sampler.end().is_ok());
}

#[test]
fn a_sampler_that_crashes_is_a_status() {
    let Some((_scene, started)) = sampler("crash cuptiPmSamplingEnable\n", SamplerTimeouts::default()) else {
        return;
    };
    let error = started.unwrap_err();
    assert_eq!(error.status(), "sampler_died", "{error}");
    let text = error.to_string();
    assert!(text.contains("signal: 6") && text.contains("crash in cuptiPmSamplingEnable"), "{text}");

    // In the midst of a window.
    let script = "fault cuptiPmSamplingStop hang after 2\n";
    let timeouts = SamplerTimeouts { window: Duration::from_millis(300), ..SamplerTimeouts::default() };
    let Some((_scene, started)) = sampler(script, timeouts) else { return };
    let mut sampler = started.unwrap();
    sampler.begin().unwrap();
    let error = sampler.end().unwrap_err();
    assert_eq!(error.status(), "sampler_timeout", "{error}");
    assert_eq!(sampler.begin().unwrap_err().status(), "sampler_died");
}

#[test]
fn a_program_that_is_no_sampler_is_found_out() {
    let request = SamplerRequest::default();
    let error =
        SamplerProcess::start(Command::new("/nowhere/elastico"), &request, SamplerTimeouts::default())
            .unwrap_err();
    assert_eq!(error.status(), "sampler_not_started");
    let mut command = Command::new("sh");
    command.args(["-c", "echo good morning; sleep 5"]);
    let error = SamplerProcess::start(command, &request, SamplerTimeouts::default()).unwrap_err();
    assert!(matches!(&error, SamplerError::Protocol { said, .. } if said == "good morning"), "{error}");
    let mut command = Command::new("sh");
    command.args(["-c", "echo it hurts >&2; exit 3"]);
    let error = SamplerProcess::start(command, &request, SamplerTimeouts::default()).unwrap_err();
    assert!(
        error.to_string().contains("exit status: 3") && error.to_string().contains("it hurts"),
        "{error}"
    );
}
