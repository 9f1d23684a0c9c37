//! The stand-in libraries and programs, built once per test binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up shall fail")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// The folder of the stand-ins; `None`, with the reason printed, where there is no compiler.
pub(crate) fn stand_ins() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mock/build.sh");
            let built = Command::new("sh").arg(script).arg(&folder).output().unwrap();
            if built.status.code() == Some(77) {
                println!("skipped: {}", String::from_utf8_lossy(&built.stderr).trim());
                return None;
            }
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(folder)
        })
        .as_deref()
}

/// A folder for `ELASTICO_MOCK` with this script.
pub(crate) fn script(lines: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix("mock").tempdir().unwrap();
    std::fs::write(folder.path().join("script"), lines).unwrap();
    folder
}
