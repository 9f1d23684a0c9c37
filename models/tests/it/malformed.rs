//! Files that nobody should trust: an error each, never a panic, a hang or a huge allocation.

use crate::support::{forest, linear, model};
use elastico_core::Hint as _;
use elastico_models::{Backend, Error, export, load_bytes};
use proptest::prelude::*;
use std::sync::LazyLock;

static FILES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let (trees, _) = model(20, |prepared| forest(prepared, 3, 3));
    let (line, _) = model(20, linear);
    [unsealed(export(&trees).unwrap()), unsealed(export(&line).unwrap())]
});

/// Without the digest at its end, which would refuse every mutation before anything else looks at the file.
fn unsealed(mut file: Vec<u8>) -> Vec<u8> {
    let key = file.windows(15).rposition(|window| window == b"elastico.digest").expect("files are sealed");
    // The entry's tag and length, then the key's.
    file.truncate(key - 4);
    file
}

/// Loads and, if that works, predicts; both may fail, neither may panic.
fn survive(bytes: &[u8]) {
    if let Ok(predictor) = load_bytes(bytes, Backend::Native) {
        let width = predictor.metadata().features.width();
        let _ = predictor.predict(&vec![0.5; 3 * width]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_never_panic(
        file in 0_usize..2,
        mutations in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..4),
    ) {
        let mut bytes = FILES[file].clone();
        // The metadata are a fifth of the file and only JSON; most mutations should hit the graph.
        for (index, value, kind) in mutations {
            let position = index.index(bytes.len());
            match kind {
                0 => bytes[position] = value,
                1 => bytes[position] ^= 1 << (value % 8),
                2 => { bytes.remove(position); }
                _ => bytes.insert(position, value),
            }
        }
        survive(&bytes);
    }

    #[test]
    fn cut_files_are_refused_or_survived(file in 0_usize..2, index in any::<prop::sample::Index>()) {
        let bytes = &FILES[file];
        survive(&bytes[..index.index(bytes.len())]);
    }

    #[test]
    fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(load_bytes(&bytes, Backend::Native).is_err());
    }
}

#[test]
fn every_cut_is_an_error() {
    load_bytes(&FILES[0], Backend::Native).expect("the whole file is sound");
    let bytes = &FILES[0];
    for length in (0..bytes.len()).step_by(97) {
        assert!(load_bytes(&bytes[..length], Backend::Auto).is_err(), "cut at {length}");
    }
}

#[test]
fn files_of_others_are_named_as_such() {
    let error = load_bytes(b"", Backend::Native).err().unwrap();
    assert!(matches!(error, Error::NotElastico { .. }), "{error}");
    let error = load_bytes(b"not a model at all, but a text", Backend::Native).err().unwrap();
    assert!(matches!(error, Error::Protobuf(_)), "{error}");
    assert!(error.hint().is_some());
}
