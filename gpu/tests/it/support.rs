//! Processes that load the stand-in libraries.
//!
//! Drivers are opened once per process and stay open, so a test that wants one gets a process of its own: it starts
//! this test binary again with its own name.

use crate::stand_ins::{self, stand_ins};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the process of one test, to that test's name.
const ALONE: &str = "ELASTICO_TEST_ALONE";

/// Compiles one stand-in with some `-D…` into a folder, where there is a C compiler.
pub(crate) fn compile(folder: &Path, source: &str, name: &str, defines: &[&str]) {
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w"])
        .arg(format!("-Wl,-soname,{name}"))
        .arg("-o")
        .arg(folder.join(name))
        .args(defines)
        .arg(mock(source))
        .args(["-ldl", "-lpthread", "-lm"])
        .output()
        .expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

fn mock(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mock").join(file)
}

/// Points a process to the stand-ins in `folder`, as `scene` has them behave.
pub(crate) fn with_stand_ins(command: &mut Command, folder: &Path, scene: &Path) {
    command
        .env("ELASTICO_MOCK", scene)
        .env("LD_LIBRARY_PATH", folder)
        .env("ELASTICO_CUDA", folder.join("libcuda.so.1"))
        .env("ELASTICO_NVML", folder.join("libnvidia-ml.so.1"))
        .env("ELASTICO_CUPTI_DIR", folder);
}

/// Runs `body` in a process of its own, with the stand-ins behaving by `script`. `test` is the calling test's name.
pub(crate) fn alone(test: &str, script: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return body();
    }
    let Some(folder) = stand_ins() else { return };
    let scene = stand_ins::script(script);
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", test, "--nocapture"]).env(ALONE, test);
    with_stand_ins(&mut command, folder, scene.path());
    let output = command.output().expect("the child runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("1 passed"), "no test is named {test}: {said}");
    for line in said.lines().filter(|line| line.starts_with("measured: ")) {
        println!("{line}");
    }
}
