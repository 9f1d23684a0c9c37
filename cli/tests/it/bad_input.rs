//! Walks a folder of bad inputs: each gives one clear error with a hint, an exit code of 2 or 3, and no panic.

use assert_cmd::Command;
use std::fs;
use std::path::{Path, PathBuf};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a temporary folder");
    for entry in fs::read_dir(from).expect("a case") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Every file below a folder with its content, to see that a refusal changed nothing.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push((path.clone(), fs::read(path).expect("a file")));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn every_bad_input_gets_one_clear_error() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let mut names: Vec<_> = fs::read_dir(&cases)
        .expect("the folder of bad inputs")
        .map(|entry| entry.expect("a case").file_name())
        .collect();
    names.sort();
    assert!(names.len() >= 30, "only {} cases", names.len());
    let mut report = String::new();
    for name in names {
        let name = name.to_string_lossy().into_owned();
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = place.path().join("case");
        copy(&cases.join(&name), &folder);
        let arguments = fs::read_to_string(folder.join("args")).expect("a file `args` in each case");
        fs::remove_file(folder.join("args")).expect("the copy is ours");
        let before = content(&folder);
        let output = Command::cargo_bin("elastico")
            .expect("the binary")
            .args(arguments.split_whitespace())
            .current_dir(&folder)
            .env_remove("ELASTICO_ORT_LIBRARY")
            .env_remove("ORT_DYLIB_PATH")
            // The same answer with and without a driver.
            .env("ELASTICO_CUDA", "/nowhere/libcuda.so.1")
            .timeout(std::time::Duration::from_mins(1))
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert!(matches!(code, Some(2 | 3)), "{name}: exit {code:?}\n{stderr}");
        assert!(stderr.starts_with("error: "), "{name}: {stderr}");
        assert!(!stderr.contains("panicked"), "{name}: {stderr}");
        assert!(stderr.contains("\nhint: "), "{name} has no hint:\n{stderr}");
        assert!(output.stdout.is_empty(), "{name} wrote to stdout");
        assert_eq!(content(&folder), before, "{name} left something behind");
        report.push_str(&format!("== {name}: {}exit {}\n{stderr}\n", arguments, code.unwrap_or_default()));
    }
    insta::assert_snapshot!(report);
}
