//! Files that nobody should trust: an error each, never a panic, a hang or a huge allocation.

use crate::support::{bodies, forest, linear, model, python};
use elastico_core::Hint as _;
use elastico_models::{Backend, Error, ModelSpec, export, load_bytes};
use proptest::prelude::*;
use std::sync::LazyLock;

/// A small forest, a line, a correction and a distance.
static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let (trees, _) = model(20, |prepared| forest(prepared, 3, 3));
    let (line, _) = model(20, linear);
    let others = bodies().into_iter().filter(|(name, ..)| ["calibrated", "distance to one"].contains(name));
    let specs = [trees, line].into_iter().chain(others.map(|(_, spec, _)| spec));
    specs.map(|spec| unsealed(export(&spec).unwrap())).collect()
});

/// Without the digest at its end, which would refuse every mutation before anything else looks at the file.
fn unsealed(mut file: Vec<u8>) -> Vec<u8> {
    let key = file.windows(15).rposition(|window| window == b"elastico.digest").expect("files are sealed");
    // The entry's tag and length, then the key's.
    file.truncate(key - 4);
    file
}

/// With the digest that fits, as whoever changes a file on purpose would write it.
fn sealed_again(bytes: &[u8]) -> Vec<u8> {
    static SEAL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let file = export(&model(20, linear).0).unwrap();
        file[unsealed(file.clone()).len()..].to_vec()
    });
    let digest = elastico_core::Digest::of([bytes]);
    let digest = digest.as_str().as_bytes();
    // The digest is the last of the entry.
    [bytes, &SEAL[..SEAL.len() - digest.len()], digest].concat()
}

/// Loads and, if that works, predicts; both may fail, neither may panic.
fn survive(bytes: &[u8]) {
    assert!(load_bytes(bytes, Backend::Native).is_err(), "without its digest no file is read");
    let bytes = sealed_again(bytes);
    if let Ok(predictor) = load_bytes(&bytes, Backend::Native) {
        let width = predictor.metadata().features.width();
        let _ = predictor.predict(&vec![0.5; 3 * width]);
    }
    let _ = ModelSpec::from_onnx(&bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_never_panic(
        file in 0_usize..4,
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
    fn cut_files_are_refused_or_survived(file in 0_usize..4, index in any::<prop::sample::Index>()) {
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
    let bytes = &sealed_again(&FILES[0]);
    load_bytes(bytes, Backend::Native).expect("the whole file is sound");
    for length in (0..bytes.len()).step_by(97) {
        assert!(load_bytes(&bytes[..length], Backend::Auto).is_err(), "cut at {length}");
    }
}

#[test]
fn each_kind_of_bad_file_has_its_error_and_its_hint() {
    let file = export(&model(20, |prepared| forest(prepared, 3, 3)).0).unwrap();
    let refused = |bytes: &[u8]| {
        let error = load_bytes(bytes, Backend::Native).err().expect("a bad file is refused");
        assert_eq!(ModelSpec::from_onnx(bytes).unwrap_err().to_string(), error.to_string());
        let hint = error.hint().expect("a hint for each");
        (error, hint)
    };
    let mut changed = file.clone();
    changed[file.len() / 2] ^= 4;
    let (error, hint) = refused(&changed);
    assert!(matches!(error, Error::Damaged), "{error}");
    assert!(hint.starts_with("copy the file again"), "{hint}");
    let (error, hint) = refused(&file[..file.len() / 2]);
    assert!(matches!(error, Error::Protobuf(_)), "{error}");
    assert!(hint.contains("as a whole"), "{hint}");
    let (error, _) = refused(b"");
    assert!(error.to_string().ends_with("it is empty"), "{error}");
    let (error, _) = refused(&unsealed(file.clone()));
    assert!(matches!(error, Error::Unsealed), "{error}");
    let far = |value: &str| {
        let at =
            file.windows(19).position(|window| window == b"\"conformal_level\":0").expect("the metadata");
        let mut changed = unsealed(file.clone());
        changed[at + 18..at + 18 + value.len()].copy_from_slice(value.as_bytes());
        sealed_again(&changed)
    };
    let (error, _) = refused(&far("9e3"));
    assert!(error.to_string().contains("its conformal_level is 9e3"), "{error}");
    let (error, _) = refused(b"not a model at all, but a text");
    assert!(matches!(error, Error::Protobuf(_)), "{error}");
}

#[test]
fn a_sound_file_of_another_producer_is_named_as_such() {
    const SCRIPT: &str = "
import sys
import onnx
from onnx import TensorProto, helper

matrix = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ['N', 2])
graph = helper.make_graph([helper.make_node('Exp', ['features'], ['slowdown'])], 'g', [matrix('features')], [matrix('slowdown')])
model = helper.make_model(graph, producer_name='somebody', ir_version=8, opset_imports=[helper.make_opsetid('', 18)])
onnx.checker.check_model(model, full_check=True)
onnx.save(model, sys.argv[1])
";
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.onnx");
    let output = std::process::Command::new(python).args(["-c", SCRIPT]).arg(&path).output().unwrap();
    if !output.status.success() {
        println!("skipped: .venv has no onnx: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let error = elastico_models::load(&path, Backend::Auto).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the file is no ElastiCo model: it has no `elastico.metadata`, its producer is somebody"
    );
    assert_eq!(error.hint().as_deref(), Some("use a file that `elastico train` wrote"));
}
