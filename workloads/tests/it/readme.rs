//! The README says what is true.

use elastico_workloads::Catalogue;
use std::path::Path;

const README: &str = include_str!("../../README.md");

#[test]
fn its_counts_and_families_are_those_of_the_catalogue() {
    let catalogue = Catalogue::bundled();
    let families: Vec<_> = catalogue.families().collect();
    assert!(README.contains(&format!("{} benchmarks in {} families", catalogue.len(), families.len())));
    for family in families {
        assert!(README.contains(&format!("`{family}`")), "{family}");
    }
}

#[test]
fn its_example_reads() {
    let (_, example) = README.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let catalogue = Catalogue::from_toml(example, Path::new("README.md")).unwrap();
    assert_eq!(catalogue.len(), 6);
    assert!(catalogue.get("my_decode.b1_c512").is_ok() && catalogue.get("my_decode.b16_c4096").is_ok());
}
