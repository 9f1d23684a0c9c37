//! Names and patterns, and catalogues of one's own.

use elastico_core::{Hint as _, WorkloadKind};
use elastico_workloads::{Benchmark, Catalogue};
use proptest::prelude::*;
use std::path::Path;
use std::sync::LazyLock;

fn ids(selected: &[&Benchmark]) -> Vec<String> {
    selected.iter().map(|benchmark| benchmark.id.to_string()).collect()
}

#[test]
fn ids_families_kinds_and_patterns_select() {
    let catalogue = Catalogue::bundled();
    let select = |pattern: &str| ids(&catalogue.select(pattern).unwrap());
    assert_eq!(select("tr_block.b8_s1024_h1024_bf16"), ["tr_block.b8_s1024_h1024_bf16"]);
    assert_eq!(select("st_h2d, null"), ["null", "st_h2d.m64"]);
    assert_eq!(select("*").len(), catalogue.len());
    assert!(catalogue.select("stressor").unwrap().iter().all(|known| known.kind == WorkloadKind::Stressor));
    assert_eq!(select("tr_opt"), select("tr_opt.*"));
    assert_eq!(select("st_dram.*_u25"), ["st_dram.read_u25"]);
    // A part that is in the list twice is selected once.
    assert_eq!(select("tr_opt,tr_*,tr_opt"), select("training"));
}

#[test]
fn a_miss_suggests_what_was_meant() {
    let catalogue = Catalogue::bundled();
    let error = catalogue.get("tr_block.b8_s1024_h1024_bf61").expect_err("a refusal");
    assert!(error.to_string().ends_with("did you mean `tr_block.b8_s1024_h1024_bf16`?"), "{error}");
    let error = catalogue.select("training,tr_blok").expect_err("a refusal");
    assert_eq!(error.to_string(), "nothing in the catalogue matches `tr_blok`, did you mean `tr_block`?");
    assert!(error.hint().unwrap().contains("tr_*"));
    assert!(catalogue.select("").is_err());
    assert!(catalogue.select("zz_*").is_err());
}

const MINE: &str = r#"
schema = 1

[[family]]
id = "my_mlp"
structure = "mlp_training"
summary = "widths that matter to me"
axes = { dtype = "bf16", layers = 5 }
configurations = [{ batch = [8, 16], hidden = [96, 1000] }]
"#;

#[test]
fn users_add_configurations_without_rust() {
    let mine = Catalogue::from_toml(MINE, Path::new("mine.toml")).unwrap();
    let selected = ids(&mine.select("my_mlp").unwrap());
    assert_eq!(selected, ["my_mlp.b16_h1k", "my_mlp.b16_h96", "my_mlp.b8_h1k", "my_mlp.b8_h96"]);
    let both = Catalogue::bundled().merge(mine.clone()).unwrap();
    assert_eq!(both.len(), Catalogue::bundled().len() + 4);
    let error = both.merge(mine).expect_err("a refusal");
    assert!(error.to_string().contains("is already defined at mine.toml:9:19"), "{error}");
}

proptest! {
    /// Replacing any middle of an id by `*` still finds it.
    #[test]
    fn a_pattern_cut_from_an_id_finds_it(pick in 0_usize..1000, from in 0_usize..60, to in 0_usize..60) {
        static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::bundled);
        let catalogue = &*CATALOGUE;
        let all: Vec<_> = catalogue.iter().collect();
        let id = all[pick % all.len()].id.as_str();
        let (from, to) = (from.min(id.len()), to.min(id.len()));
        let (from, to) = (from.min(to), from.max(to));
        let pattern = format!("{}*{}", &id[..from], &id[to..]);
        let found = catalogue.select(&pattern).unwrap();
        prop_assert!(found.iter().any(|benchmark| benchmark.id.as_str() == id));
    }
}
