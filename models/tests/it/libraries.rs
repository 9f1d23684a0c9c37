//! ONNX Runtime libraries that are absent, broken or too old: a typed error, and native under `Auto`.

use crate::support::{library, model};
use elastico_models::{Backend, Body, Error, LoadOptions, export, load_bytes};
use std::fs;
use std::path::Path;
use std::process::Command;

fn refused(library: &Path) -> Error {
    let (spec, rows) = model(3, |_| Body::Constant(0.1));
    let bytes = export(&spec).unwrap();
    let options = |backend| LoadOptions { backend, library: Some(library.to_owned()) };
    let auto = load_bytes(&bytes, options(Backend::Auto)).unwrap();
    assert_eq!(auto.backend(), "native");
    assert_eq!(auto.predict(&rows).unwrap().len(), 3);
    load_bytes(&bytes, options(Backend::Ort)).err().expect("the library is not usable")
}

#[test]
fn files_that_are_no_library() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let reason = |path: &Path| match refused(path) {
        Error::LibraryBroken { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&file("libonnxruntime.so.1.32.0", b"a text, no library")), "it is no 64-bit ELF file");
    assert_eq!(reason(&file("empty.so", b"")), "it is empty");
    assert_eq!(reason(&file("magic.so", b"\x7fELF\x02\x01")), "it is cut short");
    let executable = fs::read(std::env::current_exe().unwrap()).unwrap();
    let found = reason(&file("test.so", &executable));
    assert!(found.contains("OrtGetApiBase") || found.contains("no dynamic symbols"), "{found}");
    assert_eq!(reason(&file("cut.so", &executable[..executable.len() / 2])), "it is cut short");
    assert!(
        matches!(refused(&folder.path().join("absent.so")), Error::LibraryMissing { tried } if tried.len() == 1)
    );
    assert!(matches!(refused(folder.path()), Error::LibraryMissing { .. }), "a folder is no library");
}

#[test]
fn a_real_library_cut_or_aged() {
    let Some(library) = library() else { return };
    let mut bytes = fs::read(library).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libonnxruntime.so");
    for length in [bytes.len() - 1, bytes.len() / 2, 5000, 100] {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = refused(&path);
        assert!(
            matches!(&error, Error::LibraryBroken { reason, .. } if reason == "it is cut short"),
            "{error}"
        );
    }
    let mark = b"VERS_1.";
    let start = bytes.windows(mark.len()).position(|window| window == mark).unwrap() + mark.len();
    bytes[start..start + 2].copy_from_slice(b"16");
    fs::write(&path, &bytes).unwrap();
    let error = refused(&path);
    assert!(matches!(&error, Error::LibraryTooOld { found, .. } if found.starts_with("1.16.")), "{error}");
}

/// Libraries made by the compiler that also links these tests.
fn compile(folder: &Path, name: &str, source: &str) -> Option<std::path::PathBuf> {
    let (input, output) = (folder.join("library.c"), folder.join(name));
    fs::write(&input, source).unwrap();
    match Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&output).arg(&input).status() {
        Ok(status) if status.success() => Some(output),
        _ => {
            println!("skipped: there is no C compiler");
            None
        }
    }
}

#[test]
fn libraries_that_lie() {
    let folder = tempfile::tempdir().unwrap();
    let null = "const void *OrtGetApiBase(void) { return 0; }";
    let Some(named_old) = compile(folder.path(), "libonnxruntime.so.1.16.3", null) else { return };
    let error = refused(&named_old);
    assert!(matches!(&error, Error::LibraryTooOld { found, .. } if found == "1.16.3"), "{error}");

    // The checks before loading cannot see the two faults below. They show only while no other library is loaded, which
    // one process cannot undo; so each runs in a process of its own: this test's binary, told by the environment.
    let says_old = "static const char *version(void) { return \"1.17.1\"; }
        static const struct { const void *(*api)(unsigned); const char *(*version)(void); } base = { 0, version };
        const void *OrtGetApiBase(void) { return &base; }";
    for (name, source, wanted) in [("null.so", null, "panicked"), ("aged.so", says_old, "1.17.1")] {
        let Some(path) = compile(folder.path(), name, source) else { return };
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "libraries::child_loads_what_it_is_told", "--nocapture"])
            .env("ELASTICO_TEST_LIBRARY", &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(wanted), "{name}: {text}");
    }
}

#[test]
fn child_loads_what_it_is_told() {
    if let Some(path) = std::env::var_os("ELASTICO_TEST_LIBRARY") {
        let error = refused(Path::new(&path));
        assert!(matches!(error, Error::LibraryBroken { .. } | Error::LibraryTooOld { .. }));
        println!("{error}");
    }
}

#[test]
fn auto_takes_a_usable_library() {
    let Some(library) = library() else { return };
    let (spec, rows) = model(3, |_| Body::Constant(0.1));
    let options = LoadOptions { backend: Backend::Auto, library: Some(library.clone()) };
    let predictor = load_bytes(&export(&spec).unwrap(), options).unwrap();
    assert_eq!(predictor.backend(), "ort");
    assert_eq!(predictor.predict(&rows).unwrap().len(), 3);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libonnxruntime.so");
    fs::copy(library, &copy).unwrap();
    assert!(matches!(refused(&copy), Error::LibraryBusy { .. }), "one runtime in one process");
}
