//! The table of metrics against CUPTI's own host API, from NVIDIA's wheel: no GPU and no driver are needed.

use elastico_gpu::cupti::{Cupti, CuptiError, METRIC_SETS, metric_set};
use elastico_gpu::libraries::Libraries;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The folder of the pinned wheel's libraries: `ELASTICO_CUDA_WHEELS`, or the workspace's virtual environment.
pub(crate) fn wheel_folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("ELASTICO_CUDA_WHEELS") {
        return Some(PathBuf::from(folder));
    }
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/lib");
    let mut pythons: Vec<PathBuf> =
        std::fs::read_dir(environment).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    pythons.sort();
    pythons
        .into_iter()
        .map(|python| python.join("site-packages/nvidia/cu13/lib"))
        .find(|folder| folder.join("libcupti.so.13").is_file())
}

fn cupti() -> Option<Cupti> {
    let Some(folder) = wheel_folder().filter(|folder| folder.join("libcupti.so.13").is_file()) else {
        println!("skipped: no libcupti.so.13; pip install nvidia-cuda-cupti==13.0.85 into .venv");
        return None;
    };
    let libraries = Libraries { cupti_folder: Some(folder), ..Libraries::default() };
    let cupti = Cupti::load(&libraries).expect("the pinned wheel loads");
    // 13.2 crashes and later ones answer 999 without a driver, so the pin matters.
    assert_eq!(cupti.version() / 100, 1300, "the tests are written for CUPTI 13.0");
    Some(cupti)
}

#[test]
fn every_metric_is_known_and_each_set_takes_one_pass() {
    let Some(cupti) = cupti() else { return };
    let start = Instant::now();
    for set in METRIC_SETS {
        let begun = Instant::now();
        for metric in set.metrics {
            let description = cupti.describe(set.chip, metric.name).unwrap();
            let is_percent = description.dimension == "percent";
            assert_eq!(metric.name.contains(".pct"), is_percent, "{}: {description:?}", metric.name);
        }
        assert_eq!(cupti.passes(set.chip, &set.names()).unwrap(), 1, "{}", set.chip);
        println!(
            "{}: {} metrics in one pass, {} counters absent, {} ms",
            set.chip,
            set.metrics.len(),
            set.absent.len(),
            begun.elapsed().as_millis()
        );
    }
    println!("six chips in {:.2} s", start.elapsed().as_secs_f64());
}

#[test]
fn absent_counters_are_really_not_to_be_had_in_the_same_pass() {
    let Some(cupti) = cupti() else { return };
    let suffix = ".avg.pct_of_peak_sustained_elapsed";
    for (chip, metric) in [
        ("AD102", format!("sm__pipe_fp64_cycles_active{suffix}")),
        ("GA102", format!("sm__pipe_fp64_cycles_active{suffix}")),
        ("GA100", "lts__t_sector_hit_rate.pct".to_owned()),
        ("TU102", format!("sm__pipe_tensor_cycles_active{suffix}")),
    ] {
        let mut names = metric_set(chip).unwrap().names();
        names.push(&metric);
        assert!(cupti.passes(chip, &names).unwrap() > 1, "{chip}: {metric}");
    }
}

#[test]
fn chips_without_a_set_of_their_own_get_a_relatives() {
    let Some(cupti) = cupti() else { return };
    let chips = cupti.chips().unwrap();
    for chip in ["GH100", "GB100", "AD102", "GA100", "GA102", "TU102"] {
        assert!(chips.iter().any(|known| known == chip), "{chip} of {chips:?}");
    }
    let start = Instant::now();
    // Chip, whose set, whether the whole of it.
    for (chip, base, is_whole) in [
        ("GH100", "GH100", true),
        ("AD104", "AD102", true),
        ("AD107", "AD102", true),
        ("GA104", "GA102", true),
        ("TU104", "TU102", true),
        ("GA10B", "AD102", false),
        ("GB202", "AD102", false),
        ("GB102", "GB100", true),
    ] {
        let fitted = cupti.fit(chip, &[]).unwrap();
        assert_eq!(cupti.passes(chip, &fitted.names()).unwrap(), 1, "{chip}");
        println!(
            "{chip}: {} metrics of {}, absent {:?}",
            fitted.metrics.len(),
            fitted.base,
            fitted.absent.keys().collect::<Vec<_>>()
        );
        assert_eq!(fitted.base, base, "{chip}");
        let whole = metric_set(base).unwrap().metrics.len();
        assert_eq!(fitted.metrics.len() == whole, is_whole, "{chip}: {} of {whole}", fitted.metrics.len());
        assert!(fitted.metrics.iter().any(|metric| metric.counter == Some("sm_active_ratio")), "{chip}");
        // What is dropped has a reason.
        for metric in metric_set(base).unwrap().metrics {
            if let Some(counter) = metric.counter {
                let is_fed = fitted.metrics.iter().any(|kept| kept.counter == Some(counter));
                assert_ne!(is_fed, fitted.absent.contains_key(counter), "{chip}: {counter}");
            }
        }
    }
    println!("eight chips fitted in {:.2} s", start.elapsed().as_secs_f64());
}

#[test]
fn bad_names_are_named() {
    let Some(cupti) = cupti() else { return };
    let error = cupti.passes("GH100", &["sm__cycles_elapsed.avg", "sm__nonsense.sum"]).unwrap_err();
    assert!(matches!(&error, CuptiError::Metric { metric, .. } if metric == "sm__nonsense.sum"), "{error}");
    let error = cupti.fit("GZ999", &[]).unwrap_err();
    assert!(matches!(error, CuptiError::Chip { .. }), "{error}");
    assert_eq!(error.status(), "no_metric_set");
    let error = cupti.describe("GH\x00100", "sm__cycles_elapsed.avg").unwrap_err();
    assert!(matches!(error, CuptiError::Chip { .. }), "{error}");
}

#[test]
fn a_folder_without_cupti_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = Libraries { cupti_folder: Some(folder.path().to_owned()), ..Libraries::default() };
    let error = Cupti::load(&libraries).unwrap_err();
    assert_eq!(error.status(), "no_library");
    assert!(elastico_core::Hint::hint(&error).unwrap().contains("ELASTICO_CUPTI_DIR"));
}
