//! NVRTC from NVIDIA's wheel, and the folder of compiled kernels. No GPU and no driver are needed.

use crate::metrics::wheel_folder;
use elastico_core::Hint as _;
use elastico_gpu::cubin::{Cache, CompileError, Compiler, compile};
use elastico_gpu::libraries::Libraries;
use std::time::Instant;

const SOURCE: &str = "extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }\n";

/// NVRTC by path; `None`, with the reason printed, where there is none.
fn nvrtc() -> Option<Libraries> {
    let library = wheel_folder().map(|folder| folder.join("libnvrtc.so.13")).filter(|file| file.is_file());
    if library.is_none() {
        println!("skipped: no libnvrtc.so.13; pip install nvidia-cuda-nvrtc==13.0.88 into .venv");
    }
    library.map(|library| Libraries { nvrtc: Some(library), ..Libraries::default() })
}

/// A place that is named and holds nothing.
fn nothing() -> Libraries {
    Libraries { nvrtc: Some("/nowhere/libnvrtc.so.13".into()), ..Libraries::default() }
}

#[test]
fn code_is_made_for_each_target_and_always_the_same() {
    let Some(libraries) = nvrtc() else { return };
    let compiler = Compiler::open(&libraries).unwrap();
    assert_eq!(compiler.version(), (13, 0), "the tests are written for NVRTC 13.0");
    let transpose = include_str!("../../src/gemm/transpose.cu");
    let start = Instant::now();
    let targets = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];
    for target in targets {
        let cubin = compiler.compile(SOURCE, "twice.cu", target).unwrap();
        assert_eq!(&cubin[..4], b"\x7fELF");
        // Bits 8 to 15 of e_flags are the architecture, from CUDA 13 on.
        assert_eq!(i32::from(cubin[0x31]), target.0 * 10 + target.1);
        assert_eq!(cubin, compile(&libraries, SOURCE, "twice.cu", target).unwrap());
        compiler.compile(transpose, "transpose.cu", target).unwrap();
    }
    println!("measured: {} compilations in {:?}", 3 * targets.len(), start.elapsed());
}

#[test]
fn faults_of_a_source_are_named_by_file_and_line() {
    let Some(libraries) = nvrtc() else { return };
    let source = format!("{SOURCE}\nextern \"C\" __global__ void f(float *x) {{ x[0] = y; }}\n");
    let error = compile(&libraries, &source, "twice.cu", (9, 0)).unwrap_err();
    let CompileError::Source { first, log } = &error else { panic!("{error}") };
    assert_eq!(first, "twice.cu:3: identifier \"y\" is undefined");
    assert!(log.contains("twice.cu(3)"), "{log}");

    let error = compile(&libraries, SOURCE, "twice.cu", (7, 0)).unwrap_err();
    assert!(matches!(error, CompileError::Architecture { .. }), "{error}");
    assert!(error.to_string().contains("7.0, only for 7.5, 8.0"), "{error}");
    assert!(error.hint().unwrap().contains("CUDA 13 dropped"));
    let error = compile(&libraries, "a\0b", "twice.cu", (9, 0)).unwrap_err();
    assert_eq!(error, CompileError::Zero("the source"));
}

#[test]
fn a_missing_compiler_says_where_it_was_looked_for() {
    let error = compile(&nothing(), SOURCE, "twice.cu", (9, 0)).unwrap_err();
    assert!(error.to_string().ends_with("tried /nowhere/libnvrtc.so.13"), "{error}");
    assert!(error.hint().unwrap().contains("pip install nvidia-cuda-nvrtc"));
}

#[test]
fn what_was_compiled_once_is_read_and_serves_a_machine_without_a_compiler() {
    let Some(libraries) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("cubin"));
    let get = |libraries: &Libraries| cache.get_or_compile(libraries, SOURCE, "twice.cu", (9, 0));
    assert!(get(&nothing()).is_err(), "nothing is there yet");
    let cubin = get(&libraries).unwrap();
    let file = std::fs::read_dir(cache.folder()).unwrap().next().unwrap().unwrap().path();
    let written = std::fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(get(&libraries).unwrap(), cubin);
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), written, "it was not written again");
    assert_eq!(get(&nothing()).unwrap(), cubin);

    // Damage is seen, and mended where there is a compiler.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(get(&nothing()).is_err());
    assert_eq!(get(&libraries).unwrap(), cubin);
    assert_eq!(get(&nothing()).unwrap(), cubin);
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_time() {
    let Some(libraries) = nvrtc() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = Cache::new(file.path().join("below a file"));
    assert!(cache.get_or_compile(&libraries, SOURCE, "twice.cu", (9, 0)).is_ok());
}
