//! The house rules that no compiler checks: who may depend on whom, and where unsafe code may live.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Every allowed edge besides `core ← all` and `cli → all`, without the `elastico-` prefix.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("workloads", &["core"]),
    ("gpu", &["core"]),
    ("injection", &["gpu"]),
    ("datasets", &["core"]),
    ("models", &["core"]),
    ("profiler", &["core", "workloads", "gpu", "datasets"]),
    ("trainer", &["core", "datasets", "models"]),
    ("placement", &["core", "models"]),
    ("simulator", &["core", "placement", "workloads"]),
    ("report", &["core"]),
];

#[test]
fn crates_depend_only_downwards() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, edges)| (*name, edges.iter().copied().collect())).collect();
    let mut seen = 0;
    for package in metadata["packages"].as_array().expect("packages") {
        let package_name = package["name"].as_str().expect("a name");
        let Some(name) = package_name.strip_prefix("elastico-") else {
            assert_eq!(package_name, "elastico", "a crate outside the naming scheme");
            continue;
        };
        let edges = allowed.get(name).unwrap_or_else(|| panic!("`{name}` has no rule in this test"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let target = dependency["name"].as_str().expect("a name");
            if let Some(target) = target.strip_prefix("elastico-")
                && dependency["kind"] != "dev"
            {
                assert!(edges.contains(target), "`{name}` must not depend on `{target}`");
                seen += 1;
            }
            if target.starts_with("polars") {
                assert_eq!(name, "datasets", "polars is seen by `datasets` alone");
            }
            if ["tokio", "axum", "kube"].contains(&target) {
                assert_eq!(name, "kubernetes", "async lives in `kubernetes` alone");
            }
        }
    }
    assert!(seen >= ALLOWED.len() - 1, "only {seen} edges were looked at");
}

#[test]
fn unsafe_code_lives_in_gpu_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, _) in ALLOWED {
        let folder = if *name == "injection" { "gpu/injection" } else { name };
        let manifest =
            std::fs::read_to_string(root.join(folder).join("Cargo.toml")).expect("a manifest for each crate");
        let inherits = manifest.contains("[lints]\nworkspace = true");
        assert_eq!(
            inherits,
            !folder.starts_with("gpu"),
            "`{name}` must inherit the workspace lints, which forbid unsafe code"
        );
    }
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace manifest");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
}
