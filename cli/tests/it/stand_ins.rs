//! The stand-in libraries, built once for all tests of this binary.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::OnceLock;

/// The folder of the stand-ins; `None`, with the reason printed, where there is no C compiler.
#[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
pub(crate) fn stand_ins() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/mock/build.sh");
            let built = Process::new("sh").arg(script).arg(&folder).output().expect("a shell");
            if built.status.code() == Some(77) {
                println!("skipped: {}", String::from_utf8_lossy(&built.stderr).trim());
                return None;
            }
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(folder)
        })
        .as_deref()
}
