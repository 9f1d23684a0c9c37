//! Where the driver's libraries are, and how they are opened.
//!
//! Nothing of NVIDIA's is linked. Each library is looked for at run time, in this order: the field of [`Libraries`], its
//! environment variable, the CUDA toolkit (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`), the Python packages
//! (`nvidia/cu13/lib` of the active environment), the loader's own path. A place that was named and holds no library
//! is an error: it is never passed over in silence for another.
//!
//! A library that was opened stays open: drivers start threads of their own, and CUPTI 13.0 fails when it is closed.

#![expect(unsafe_code, reason = "opening a library runs its code")]

mod kind;
mod search;
mod table;

pub use kind::{LibraryError, LibraryKind};
pub use search::python_site_folders;
pub(crate) use table::function_table;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The major version of CUDA that this program is written for: layouts and file names differ between majors.
pub const CUDA_MAJOR: u32 = 13;

/// Paths of the libraries; a field that is `None` is found by search.
///
/// Workers get the value from their coordinator as JSON, so that both use the same files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Libraries {
    /// The driver, `libcuda.so.1`.
    pub cuda: Option<PathBuf>,
    /// The management library, `libnvidia-ml.so.1`.
    pub nvml: Option<PathBuf>,
    /// The run-time compiler, `libnvrtc.so.13`.
    pub nvrtc: Option<PathBuf>,
    /// Matrix products, `libcublasLt.so.13`.
    pub cublas_lt: Option<PathBuf>,
    /// The folder with `libcupti.so.13` and `libnvperf_host.so`.
    pub cupti_folder: Option<PathBuf>,
}

impl Libraries {
    /// The paths that `ELASTICO_CUDA`, `ELASTICO_NVML`, `ELASTICO_NVRTC`, `ELASTICO_CUBLASLT` and `ELASTICO_CUPTI_DIR`
    /// give; an empty variable counts as unset.
    pub fn from_environment() -> Self {
        let read = |kind: LibraryKind| {
            std::env::var_os(kind.variable()).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        Self {
            cuda: read(LibraryKind::Cuda),
            nvml: read(LibraryKind::Nvml),
            nvrtc: read(LibraryKind::Nvrtc),
            cublas_lt: read(LibraryKind::CublasLt),
            cupti_folder: read(LibraryKind::Cupti),
        }
    }

    /// These paths, and `other`'s where a field is empty.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cuda: self.cuda.or(other.cuda),
            nvml: self.nvml.or(other.nvml),
            nvrtc: self.nvrtc.or(other.nvrtc),
            cublas_lt: self.cublas_lt.or(other.cublas_lt),
            cupti_folder: self.cupti_folder.or(other.cupti_folder),
        }
    }

    /// The path that a field gives.
    pub fn path(&self, kind: LibraryKind) -> Option<&Path> {
        match kind {
            LibraryKind::Cuda => self.cuda.as_deref(),
            LibraryKind::Nvml => self.nvml.as_deref(),
            LibraryKind::Nvrtc => self.nvrtc.as_deref(),
            LibraryKind::CublasLt => self.cublas_lt.as_deref(),
            LibraryKind::Cupti => self.cupti_folder.as_deref(),
        }
    }

    /// The file that [`Libraries::open`] would open, without opening it. A bare name where only the loader knows.
    ///
    /// # Errors
    /// [`LibraryError`] where a named place holds no such library, or one of another major version.
    pub fn locate(&self, kind: LibraryKind) -> Result<PathBuf, LibraryError> {
        search::locate(kind, self.path(kind)).map(|found| found.path)
    }

    /// Opens a library for the whole process, and what it needs before it: CUPTI finds `libnvperf_host.so` only if
    /// that is open already or on the loader's path.
    ///
    /// # Errors
    /// [`LibraryError`] with all places that were tried.
    pub fn open(&self, kind: LibraryKind) -> Result<Loaded, LibraryError> {
        let found = search::locate(kind, self.path(kind))?;
        let folder = found.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let (LibraryKind::Cupti, Some(folder)) = (kind, folder) {
            for helper in ["libnvperf_host.so", "libnvperf_target.so"] {
                let path = folder.join(helper);
                if path.is_file() {
                    Loaded::open(kind, &path, &found.tried)?;
                }
            }
        }
        if let (LibraryKind::Nvrtc, Some(folder)) = (kind, folder) {
            // NVRTC opens this one by bare name in its first compilation, with the same trouble.
            for path in search::files_with_prefix(folder, "libnvrtc-builtins.so.13") {
                Loaded::open(kind, &path, &found.tried)?;
            }
        }
        match Loaded::open(kind, &found.path, &found.tried) {
            Err(LibraryError::Absent { .. }) if !found.others.is_empty() => {
                Loaded::open(kind, &found.others[0], &found.tried)
            }
            opened => opened,
        }
    }
}

/// A library that is open until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    kind: LibraryKind,
    library: &'static Library,
    path: &'static Path,
}

impl Loaded {
    fn open(kind: LibraryKind, path: &Path, tried: &[String]) -> Result<Self, LibraryError> {
        static OPEN: Mutex<BTreeMap<PathBuf, Loaded>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = open.get(path) {
            return Ok(*loaded);
        }
        let loaded = Self::open_first(kind, path, tried)?;
        open.insert(path.to_owned(), loaded);
        Ok(loaded)
    }

    fn open_first(kind: LibraryKind, path: &Path, tried: &[String]) -> Result<Self, LibraryError> {
        // Global, so that libraries which open others by name get the chosen files.
        // SAFETY: opening runs the library's constructors. The file is NVIDIA's or one that the user named, and is as
        // trusted as this program.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| {
            let reason = loader_message(&error);
            // A library that was found, and misses another one, says so too, but with that one's name first.
            let is_missing = reason.contains("cannot open shared object file")
                && path.to_str().is_some_and(|path| reason.starts_with(path));
            if is_missing {
                LibraryError::Absent { kind, tried: tried.to_vec() }
            } else {
                LibraryError::Refused { kind, path: path.to_owned(), reason }
            }
        })?;
        let handle = library.into_raw();
        let path = real_path(handle).unwrap_or_else(|| path.to_owned());
        // SAFETY: the handle was taken out of a `Library` just above.
        let library = unsafe { Library::from_raw(handle) };
        Ok(Self { kind, library: Box::leak(Box::new(library)), path: Box::leak(path.into_boxed_path()) })
    }

    /// Which library.
    pub const fn kind(&self) -> LibraryKind {
        self.kind
    }

    /// The file that was opened.
    pub const fn path(&self) -> &'static Path {
        self.path
    }

    /// The version in the name of the real file, for example `580.159.03` of `libcuda.so.580.159.03`.
    pub fn file_version(&self) -> Option<String> {
        let real = std::fs::canonicalize(self.path).ok()?;
        let name = real.file_name()?.to_str()?;
        let version = name.strip_prefix(self.kind.stem())?.strip_prefix('.')?;
        version.contains('.').then(|| version.to_owned())
    }

    /// Looks a function up.
    ///
    /// # Errors
    /// [`LibraryError::Symbol`] where the library lacks it.
    ///
    /// # Safety
    /// `F` must be a function pointer of the type that the library's header declares.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, LibraryError> {
        // SAFETY: the caller vouches for the type; the library is never closed, so the copy stays valid.
        unsafe { self.library.get::<F>(symbol) }.map(|found| *found).map_err(|_| LibraryError::Symbol {
            kind: self.kind,
            path: self.path.to_owned(),
            symbol,
        })
    }
}

/// The file that the loader took, where it tells.
fn real_path(handle: *mut c_void) -> Option<PathBuf> {
    /// The public head of glibc's `struct link_map`.
    #[repr(C)]
    struct LinkMap {
        address: usize,
        name: *const c_char,
    }
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: `handle` is open, and this request writes one pointer to a record that lives as long as the library.
    let result = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if result != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the record and its string, a terminated one, while the library is open.
    let name = unsafe {
        let name = (*map).name;
        (!name.is_null()).then(|| CStr::from_ptr(name))
    }?;
    (!name.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// The loader's own words, in one line: they may run over lines and name every place it looked.
fn loader_message(error: &libloading::Error) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Hint as _;

    #[test]
    fn a_file_that_is_no_library_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libnvidia-ml.so.1");
        std::fs::write(&file, b"\x7fELF and then nothing").unwrap();
        let libraries = Libraries { nvml: Some(file.clone()), ..Libraries::default() };
        let error = libraries.open(LibraryKind::Nvml).unwrap_err();
        assert!(matches!(&error, LibraryError::Refused { path, .. } if *path == file), "{error}");
        assert!(!error.to_string().contains('\n') && error.hint().is_some(), "{error}");
    }

    #[test]
    fn workers_get_the_same_paths() {
        let libraries = Libraries { nvrtc: Some("/a/libnvrtc.so.13".into()), ..Libraries::default() };
        let text = serde_json::to_string(&libraries).unwrap();
        assert_eq!(serde_json::from_str::<Libraries>(&text).unwrap(), libraries);
        assert_eq!(serde_json::from_str::<Libraries>("{}").unwrap(), Libraries::default());
        let other = Libraries { cuda: Some("/b".into()), nvrtc: Some("/c".into()), ..Libraries::default() };
        let both = libraries.or(other);
        assert_eq!((both.cuda, both.nvrtc), (Some("/b".into()), Some("/a/libnvrtc.so.13".into())));
    }
}
