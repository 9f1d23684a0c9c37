//! Bytes that nobody should trust, read as a model file: loaded, predicted with, and read back. None may panic, hang or
//! fill the memory.
//!
//! The seeds carry no digest, and each input is given the one that fits: so a mutation gets as far as the reader itself,
//! and the model that it makes is predicted with.

#![no_main]

use elastico_models::{Backend, ModelSpec, load_bytes};
use libfuzzer_sys::fuzz_target;

/// The bytes with the digest that `onnx/seal.rs` would put at their end: one more entry of `metadata_props`, field 14.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = b"elastico.digest";
    let digest = elastico_core::Digest::of([bytes]);
    let digest = digest.as_str().as_bytes();
    let length = |bytes: &[u8]| bytes.len() as u8;
    let entry = [&[0x0a, length(KEY)], KEY, &[0x12, length(digest)], digest].concat();
    [bytes, &[0x72, length(&entry)], &entry].concat()
}

fuzz_target!(|bytes: &[u8]| {
    let bytes = &sealed(bytes);
    if let Ok(predictor) = load_bytes(bytes, Backend::Native) {
        let width = predictor.metadata().features.width();
        let rows: Vec<f32> =
            (0..9 * width).map(|index| if index % 5 == 4 { f32::NAN } else { index as f32 / 7.0 }).collect();
        let together = predictor.predict(&rows);
        let alone = predictor.predict(&rows[..width]);
        // More than 8 rows are walked in groups, one alone is not: both must say the same.
        if let (Ok(together), Ok(alone)) = (together, alone) {
            assert_eq!(together[0], alone[0]);
        }
    }
    let _ = ModelSpec::from_onnx(bytes);
});
