//! Bytes that nobody should trust, read as a model file: loaded, predicted with, and read back. None may panic, hang or
//! fill the memory.
//!
//! The seeds carry no digest (a file without one is read, see `onnx/seal.rs`), so that a mutation gets as far as the
//! reader itself.

#![no_main]

use elastico_models::{Backend, ModelSpec, load_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
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
