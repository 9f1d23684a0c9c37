//! An empty folder for the pipes of an MPS daemon that does not exist.
//!
//! A CUDA program without such a folder becomes a client of whatever daemon listens in the usual place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// First part of the name of such a folder; the process that made it follows.
const PREFIX: &str = "elastico-no-mps";

/// The folder; removed when dropped.
#[derive(Debug)]
pub(super) struct EmptyPipes(PathBuf);

impl EmptyPipes {
    /// Makes one in `folder`, and removes those of processes that are gone.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        sweep(folder);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{PREFIX}.{}.{number}", std::process::id()));
        // One of an earlier process of this id would be in the way.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for EmptyPipes {
    fn drop(&mut self) {
        // What stays is swept by the next campaign.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            name.strip_prefix(PREFIX)?.strip_prefix('.')?.split('.').next()?.parse::<u32>().ok()
        });
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_their_owners_and_go_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let dead = folder.path().join(format!("{PREFIX}.4194999.0"));
        let other = folder.path().join("other");
        for path in [&dead, &other] {
            std::fs::create_dir(path).unwrap();
        }
        let (first, second) =
            (EmptyPipes::create(folder.path()).unwrap(), EmptyPipes::create(folder.path()).unwrap());
        assert_ne!(first.path(), second.path());
        assert!(first.path().is_dir() && !dead.exists() && other.exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().exists());
    }
}
