//! The house rules that no compiler checks: who may depend on whom, and where unsafe code may live.

use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Every allowed edge besides `core ← all` and `cli → all`, without the `elastico-` prefix.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("workloads", &["core"]),
    ("gpu", &["core"]),
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
    let metadata = MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .no_deps()
        .other_options(["--locked".to_owned(), "--offline".to_owned()])
        .exec()
        .expect("cargo metadata of this workspace");
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, edges)| (*name, edges.iter().copied().collect())).collect();
    let mut seen = 0;
    for package in &metadata.packages {
        let Some(name) = package.name.strip_prefix("elastico-") else {
            assert_eq!(package.name.as_str(), "elastico", "a crate outside the naming scheme");
            continue;
        };
        let edges = allowed.get(name).unwrap_or_else(|| panic!("`{name}` has no rule in this test"));
        for dependency in &package.dependencies {
            if let Some(target) = dependency.name.strip_prefix("elastico-")
                && dependency.kind != DependencyKind::Development
            {
                assert!(edges.contains(target), "`{name}` must not depend on `{target}`");
                seen += 1;
            }
            if dependency.name.starts_with("polars") {
                assert_eq!(name, "datasets", "polars is seen by `datasets` alone");
            }
            if ["tokio", "axum", "kube"].contains(&dependency.name.as_str()) {
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
        let manifest = std::fs::read_to_string(root.join(name).join("Cargo.toml")).expect("a manifest for each crate");
        let inherits = manifest.contains("[lints]\nworkspace = true");
        assert_eq!(inherits, *name != "gpu", "`{name}` must inherit the workspace lints, which forbid unsafe code");
    }
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace manifest");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
}
