//! The self-test: kernels that really run, on the CPU, through the real worker.

use super::Scene;

fn checks(output: &str) -> Vec<(Option<f64>, &str)> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("check "))
        .map(|line| {
            let (error, rest) = line.split_once(' ').unwrap();
            let error = error.strip_prefix("Some(").and_then(|text| text.strip_suffix(')')?.parse().ok());
            (error, rest)
        })
        .collect()
}

#[test]
fn every_kernel_agrees_with_its_reference_on_a_board_that_computes() {
    let Some(scene) = Scene::new("functional 1\nkernel_microseconds * 1") else { return };
    if !scene.libraries.join("libhost_kernels.so").exists() {
        println!("skipped: the kernels are not there as host code (no C++ compiler)");
        return;
    }
    let ended = scene.examine("kernels");
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let checks = checks(&ended.output);
    assert!(checks.len() > 50, "{}", ended.output);
    for (error, rest) in &checks {
        assert!(error.is_none_or(|error| error <= 1.0), "{rest}");
    }
    assert!(checks.iter().filter(|(error, _)| error.is_some()).count() > 50);
}

#[test]
fn a_board_that_computes_nothing_fails_the_self_test() {
    let Some(scene) = Scene::new("kernel_microseconds * 200") else { return };
    let ended = scene.examine("all");
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let line = ended.output.lines().find_map(|line| line.strip_prefix("report ")).unwrap();
    let report: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(report["schema"], "elastico.self_test/1");
    assert_eq!(report["passed"], false);
    let problems = report["problems"].as_array().unwrap();
    assert!(problems.iter().any(|text| text.as_str().unwrap().contains("check `")), "{problems:?}");
    assert_eq!(report["counters_status"], "pm");
    assert!(!report["counters"].as_array().unwrap().is_empty());
    let ratio = report["event_over_host_ratio"].as_f64().unwrap();
    assert!((0.5..1.2).contains(&ratio), "{ratio}");
    assert!(report["null_pair"]["interference_ratio"].as_f64().is_some_and(|ratio| ratio > 0.5), "{line}");
    scene.assert_clean();
}
