//! The right to measure on a GPU: one coordinator of this host at a time.

use crate::device::Fault;
use crate::journal::lock_file;
use elastico_core::Outcome;
use std::fs::File;
use std::path::Path;

/// A lock that ends with this value, or with the process.
#[derive(Debug)]
pub(super) struct Claim(#[expect(dead_code, reason = "the open file holds the lock")] File);

impl Claim {
    /// Takes the GPU of a UUID. The file lies beside the pipes of MPS daemons, in the folder of temporary files, so that
    /// all coordinators of a host meet there.
    pub(super) fn take(folder: &Path, uuid: &str) -> Result<Self, Fault> {
        let path = folder.join(format!("elastico-{uuid}.lock"));
        let fault = |detail: String| Fault { outcome: Outcome::Unsupported, detail };
        match lock_file(&path) {
            Ok(Some(file)) => Ok(Self(file)),
            Ok(None) => Err(fault(format!(
                "another elastico measures on this GPU ({} is locked), and both would measure each other",
                path.display()
            ))),
            Err(error) => Err(fault(format!("cannot take the lock {}: {error}", path.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_one_coordinator() {
        let folder = tempfile::tempdir().unwrap();
        let held = Claim::take(folder.path(), "GPU-1").unwrap();
        let fault = Claim::take(folder.path(), "GPU-1").unwrap_err();
        assert!(fault.detail.contains("another elastico"), "{fault}");
        Claim::take(folder.path(), "GPU-2").unwrap();
        drop(held);
        Claim::take(folder.path(), "GPU-1").unwrap();
    }
}
