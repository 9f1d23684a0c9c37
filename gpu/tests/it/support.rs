//! The stand-in libraries of `mock/`, and processes that load them.
//!
//! Drivers are opened once per process and stay open, so a test that wants one gets a process of its own: it starts
//! this test binary again with its own name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set in the process of one test, to that test's name.
const ALONE: &str = "ELASTICO_TEST_ALONE";

/// The folder of the stand-ins; `None`, with the reason printed, where there is no C compiler.
pub(crate) fn stand_ins() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
            let built = Command::new("sh").arg(mock("build.sh")).arg(&folder).output().expect("a shell");
            if built.status.code() == Some(77) {
                println!("skipped: {}", String::from_utf8_lossy(&built.stderr).trim());
                return None;
            }
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(folder)
        })
        .as_deref()
}

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

/// A folder with this script.
pub(crate) fn scene(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the scene");
    std::fs::write(folder.path().join("script"), script).expect("the script is written");
    folder
}

/// Runs `body` in a process of its own, with the stand-ins behaving by `script`. `test` is the calling test's name.
pub(crate) fn alone(test: &str, script: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return body();
    }
    let Some(folder) = stand_ins() else { return };
    let scene = scene(script);
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
