//! The probe against stand-in libraries that the system's C compiler makes from `mock/`.

use elastico_gpu::probe::{Check, CudaDriver, CudaError, ProbeOptions, Status, probe};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one stand-in; `None`, with the reason on the test's output, where there is no C compiler.
fn stand_in(folder: &Path, source: &str, name: &str, defines: &[&str]) -> Option<PathBuf> {
    let library = folder.join(name);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&library)
        .args(defines)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("mock").join(source))
        .output();
    match built {
        Ok(output) if output.status.success() => Some(library),
        Ok(output) => panic!("cc failed: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: no C compiler ({error})");
            None
        }
    }
}

fn find<'a>(checks: &'a [Check], id: &str) -> &'a Check {
    checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id} in {checks:#?}"))
}

#[test]
fn a_driver_that_answers_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = stand_in(folder.path(), "cuda.c", "libcuda_good.so", &[]) else { return };
    let driver = CudaDriver::open(Some(&library)).unwrap();
    assert_eq!(driver.version().unwrap(), (13, 0));
    let devices = driver.devices().unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].name, "Stand-in H200");
    assert_eq!((devices[0].compute_capability, devices[0].multiprocessors), ((9, 0), 132));
    assert_eq!(devices[0].memory, 144_000_000_000);
}

#[test]
fn no_device_is_absence_and_a_missing_function_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(empty) = stand_in(folder.path(), "cuda.c", "libcuda_none.so", &["-DINIT_RESULT=100"]) else {
        return;
    };
    let error = CudaDriver::open(Some(&empty)).unwrap_err();
    assert!(matches!(error, CudaError::Call { call: "cuInit", code: 100 }), "{error}");
    assert!(error.is_absence() && error.to_string().contains("no device"));

    let old = stand_in(folder.path(), "cuda.c", "libcuda_old.so", &["-DWITHOUT_VERSION"]).unwrap();
    let error = CudaDriver::open(Some(&old)).unwrap().version().unwrap_err();
    assert!(matches!(error, CudaError::Symbol { symbol: "cuDriverGetVersion", .. }), "{error}");
    let checks = probe(&ProbeOptions { cuda_library: Some(old), ..ProbeOptions::default() });
    assert_eq!(find(&checks, "cuda.driver").status, Status::Blocked);

    let mismatch = stand_in(folder.path(), "cuda.c", "libcuda_mix.so", &["-DINIT_RESULT=803"]).unwrap();
    let checks = probe(&ProbeOptions { cuda_library: Some(mismatch), ..ProbeOptions::default() });
    let check = find(&checks, "cuda.driver");
    assert_eq!(check.status, Status::Blocked);
    assert!(check.finding.contains("mismatch") && check.fix.as_ref().unwrap().contains("reboot"));
}

#[test]
fn nvml_modes_become_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = stand_in(folder.path(), "nvml.c", "libml_a.so", &["-DCOMPUTE_MODE=0"]) else {
        return;
    };
    let checks = probe(&ProbeOptions { nvml_library: Some(library), ..ProbeOptions::default() });
    assert_eq!(find(&checks, "nvml.library").finding, "driver 580.159.03");
    let device = find(&checks, "nvml.device.0");
    assert_eq!(device.status, Status::Warn);
    assert!(
        device
            .finding
            .contains("Stand-in H200, 141.8 of 144.0 GB free, persistence off, compute mode default, ECC on"),
        "{device:?}"
    );
    assert!(device.finding.contains("SM clock 1980 of 1980 MHz"), "{device:?}");
    assert!(!device.finding.contains("MIG"), "what is not supported is not claimed: {device:?}");
    assert_eq!(device.fix.as_deref(), Some("nvidia-smi -i 0 -pm 1"));

    let library = stand_in(folder.path(), "nvml.c", "libml_b.so", &["-DCOMPUTE_MODE=2"]).unwrap();
    let checks = probe(&ProbeOptions { nvml_library: Some(library), ..ProbeOptions::default() });
    assert_eq!(find(&checks, "nvml.device.0").status, Status::Blocked);

    let defines = ["-DCOMPUTE_MODE=0", "-DINIT_RESULT=9"];
    let library = stand_in(folder.path(), "nvml.c", "libml_c.so", &defines).unwrap();
    let checks = probe(&ProbeOptions { nvml_library: Some(library), ..ProbeOptions::default() });
    assert_eq!(find(&checks, "nvml.library").status, Status::Absent, "driver not loaded");
}

#[test]
fn cupti_is_asked_for_its_version_where_a_driver_is() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cuda) = stand_in(folder.path(), "cuda.c", "libcuda_two.so", &[]) else { return };
    let cases = [
        (130_001, 0, Status::Ok, "version 13.0"),
        (28, 0, Status::Blocked, "reports version 28"),
        (130_001, 999, Status::Blocked, "CUPTI error 999"),
    ];
    for (index, (version, result, status, part)) in cases.into_iter().enumerate() {
        let place = folder.path().join(index.to_string());
        std::fs::create_dir(&place).unwrap();
        let defines = [format!("-DVERSION={version}"), format!("-DRESULT={result}")];
        let defines: Vec<&str> = defines.iter().map(String::as_str).collect();
        stand_in(&place, "cupti.c", "libcupti.so.13", &defines).unwrap();
        let options = ProbeOptions {
            cuda_library: Some(cuda.clone()),
            cupti_folder: Some(place),
            ..ProbeOptions::default()
        };
        let checks = probe(&options);
        let check = find(&checks, "cupti.library");
        assert_eq!(check.status, status, "{check:?}");
        assert!(check.finding.contains(part), "{check:?}");
    }
}
