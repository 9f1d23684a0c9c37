//! Compiled kernels on disk.

use super::{CompileError, Compiler, OPTIONS, architecture};
use crate::libraries::Libraries;
use elastico_core::Digest;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Compiled kernels on disk.
///
/// A file's name tells source, options and NVRTC version by digest, and the file carries the digest of its own content: a
/// damaged one is compiled again. Where there is no NVRTC, a kernel that any NVRTC made of the same source serves; so
/// a machine without the toolkit can be given the folder.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// A cache in a folder, which is made when something is first written.
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// `$XDG_CACHE_HOME/elastico/cubin`, or `~/.cache/elastico/cubin`; `None` where neither is known.
    pub fn default_folder() -> Option<PathBuf> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
        Some(cache.join("elastico").join("cubin"))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kernels of `source`, compiled only where the folder does not have them. A folder that cannot be written costs
    /// time, and nothing else.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn get_or_compile(
        &self,
        libraries: &Libraries,
        source: &str,
        name: &str,
        compute_capability: (i32, i32),
    ) -> Result<Vec<u8>, CompileError> {
        let prefix = prefix(source, name, compute_capability);
        let compiler = match Compiler::open(libraries) {
            Ok(compiler) => compiler,
            Err(error) => return self.any(&prefix).ok_or(error),
        };
        let (major, minor) = compiler.version();
        let path = self.folder.join(format!("{prefix}-{major}.{minor}.cubin"));
        if let Some(cubin) = read(&path) {
            return Ok(cubin);
        }
        let cubin = compiler.compile(source, name, compute_capability)?;
        // The kernels are there; whether they are kept as well is no reason to fail.
        let _ = write(&path, &cubin);
        Ok(cubin)
    }

    /// The newest whole file whose name begins so.
    fn any(&self, prefix: &str) -> Option<Vec<u8>> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(&self.folder)
            .ok()?
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
            .map(|entry| entry.path())
            .collect();
        files.sort();
        files.iter().rev().find_map(|path| read(path))
    }
}

/// The part of a file's name that does not depend on NVRTC.
fn prefix(source: &str, name: &str, compute_capability: (i32, i32)) -> String {
    let architecture = architecture(compute_capability);
    let parts = std::iter::once(architecture.as_str()).chain(OPTIONS).chain([source]);
    let name: String =
        name.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
    let digest = Digest::of(parts);
    format!("{name}-{architecture}-{}", &digest.as_str()[..24])
}

/// A file is the digest of the CUBIN in hexadecimal, a line break, and the CUBIN.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let cubin = bytes.get(65..)?;
    let is_whole = bytes[64] == b'\n' && Digest::of([cubin]).as_str().as_bytes() == &bytes[..64];
    is_whole.then(|| bytes.split_off(65))
}

fn write(path: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // A name of its own, so that two processes never write one file; the last rename wins, with the same bytes.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(name);
    let written = std::fs::File::create(&part).and_then(|mut file| {
        writeln!(file, "{}", Digest::of([cubin]))?;
        file.write_all(cubin)?;
        std::fs::rename(&part, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_all_that_decides_their_content() {
        let first = prefix("a", "x.cu", (9, 0));
        assert!(first.starts_with("xcu-sm_90-"), "{first}");
        assert_ne!(first, prefix("b", "x.cu", (9, 0)));
        assert_ne!(first, prefix("a", "x.cu", (8, 0)));
    }

    #[test]
    fn a_damaged_file_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("a.cubin");
        write(&path, b"kernel").unwrap();
        assert_eq!(read(&path).as_deref(), Some(&b"kernel"[..]));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no part is left");
        let whole = std::fs::read(&path).unwrap();
        for damage in [&whole[..whole.len() - 1], &whole[..64], b"", &[whole.as_slice(), b"x"].concat()] {
            std::fs::write(&path, damage).unwrap();
            assert_eq!(read(&path), None);
        }
    }
}
