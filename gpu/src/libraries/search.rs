//! Where libraries may lie.

use super::{CUDA_MAJOR, LibraryError, LibraryKind};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A file to open, and all places that were looked at on the way to it.
#[derive(Debug)]
pub(super) struct Found {
    /// A bare name where the loader is to look for it.
    pub(super) path: PathBuf,
    /// Files to open where the loader does not find it.
    pub(super) others: Vec<PathBuf>,
    pub(super) tried: Vec<String>,
}

/// Where the driver lies if the loader does not know it.
const DRIVER_FOLDERS: [&str; 6] = [
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

const LOADER: &str = "the loader's path";

/// Reads one environment variable.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub(super) fn locate(kind: LibraryKind, field: Option<&Path>) -> Result<Found, LibraryError> {
    locate_in(kind, field, &|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn locate_in(kind: LibraryKind, field: Option<&Path>, variable: Variable<'_>) -> Result<Found, LibraryError> {
    let named = field.map(Path::to_owned).or_else(|| variable(kind.variable()).map(PathBuf::from));
    if let Some(named) = named {
        // What was named is taken or refused, never replaced.
        let named = std::path::absolute(&named).unwrap_or(named);
        if named.is_dir() {
            return choose(kind, std::slice::from_ref(&named))?
                .ok_or_else(|| LibraryError::Absent { kind, tried: vec![named.display().to_string()] });
        }
        let tried = vec![named.display().to_string()];
        if !named.is_file() || kind == LibraryKind::Cupti {
            return Err(LibraryError::Absent { kind, tried });
        }
        return match major(kind, &named) {
            Some(found) if found != CUDA_MAJOR && !kind.is_of_driver() => {
                Err(LibraryError::Major { kind, path: named, found })
            }
            _ => Ok(Found { path: named, others: Vec::new(), tried }),
        };
    }
    if kind.is_of_driver() {
        // The driver belongs to the kernel's module, never to a toolkit: what the loader finds is what other programs
        // get. After that, the places where container runtimes and some systems have it.
        let folders = keep_real(DRIVER_FOLDERS.map(PathBuf::from).to_vec());
        let mut tried = vec![LOADER.to_owned()];
        tried.extend(folders.iter().map(|folder| folder.display().to_string()));
        let others = folders
            .iter()
            .map(|folder| folder.join(kind.file_name()))
            .filter(|path| path.is_file())
            .collect();
        return Ok(Found { path: PathBuf::from(kind.file_name()), others, tried });
    }
    let folders = toolkit_folders(kind, variable);
    if let Some(found) = choose(kind, &folders)? {
        return Ok(found);
    }
    let mut tried: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    tried.push(LOADER.to_owned());
    Ok(Found { path: PathBuf::from(kind.file_name()), others: Vec::new(), tried })
}

/// The first library of our major version; else an unnumbered one; else, as an error, one of another version.
fn choose(kind: LibraryKind, folders: &[PathBuf]) -> Result<Option<Found>, LibraryError> {
    let mut unnumbered = None;
    let mut other = None;
    let tried: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    for folder in folders {
        // The name that programs are linked against says most.
        let expected = folder.join(kind.file_name());
        let expected = expected.is_file().then_some(expected);
        for path in expected.into_iter().chain(files_with_prefix(folder, kind.stem())) {
            match major(kind, &path) {
                Some(found) if found == CUDA_MAJOR || kind.is_of_driver() => {
                    return Ok(Some(Found { path, others: Vec::new(), tried }));
                }
                Some(found) => {
                    other.get_or_insert((path, found));
                }
                None => {
                    unnumbered.get_or_insert(path);
                }
            }
        }
    }
    match (unnumbered, other) {
        (Some(path), _) => Ok(Some(Found { path, others: Vec::new(), tried })),
        (None, Some((path, found))) => Err(LibraryError::Major { kind, path, found }),
        (None, None) => Ok(None),
    }
}

/// `libcupti.so`, `libcupti.so.13` … in a folder, in order of their names.
pub(super) fn files_with_prefix(folder: &Path, stem: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.strip_prefix(stem))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// The major version that the name of the file, or of what it links to, tells. `libcupti.so.2025.3.1` tells none:
/// a year is no major version.
fn major(kind: LibraryKind, path: &Path) -> Option<u32> {
    let of_name = |path: &Path| {
        let rest = path.file_name()?.to_str()?.strip_prefix(kind.stem())?.strip_prefix('.')?.to_owned();
        rest.split('.').next()?.parse::<u32>().ok().filter(|major| *major < 1000)
    };
    of_name(path).or_else(|| of_name(&std::fs::canonicalize(path).ok()?))
}

/// Places of toolkit and Python packages, most wanted first.
fn toolkit_folders(kind: LibraryKind, variable: Variable<'_>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).map(PathBuf::from);
    for toolkit in toolkits.chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/usr/local/cuda-13.0")]) {
        if kind == LibraryKind::Cupti {
            folders.push(toolkit.join("extras/CUPTI/lib64"));
        }
        folders.push(toolkit.join("lib64"));
        folders.push(toolkit.join("targets/x86_64-linux/lib"));
    }
    let package = match kind {
        LibraryKind::Cupti => "cuda_cupti",
        LibraryKind::CublasLt => "cublas",
        _ => "cuda_nvrtc",
    };
    for site in site_folders(variable) {
        for package in ["cu13", package] {
            folders.push(site.join("nvidia").join(package).join("lib"));
        }
    }
    folders.extend(loader_folders(variable));
    keep_real(folders)
}

/// Folders of the loader: by variable, and by habit of distributions.
fn loader_folders(variable: Variable<'_>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        variable("LD_LIBRARY_PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    folders
        .extend(["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"].map(PathBuf::from));
    keep_real(folders)
}

fn keep_real(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    // `lib64` is often a link to `lib`.
    folders.retain(|folder| {
        folder.is_dir() && seen.insert(std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone()))
    });
    folders
}

/// Package folders of the active Python environment, of `python3` on the path, of the user and of the system. Python is
/// not started.
pub fn python_site_folders() -> Vec<PathBuf> {
    site_folders(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn site_folders(variable: Variable<'_>) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(PathBuf::from).collect();
    if let Some(path) = variable("PATH") {
        // A virtual environment's `python3` is a link to the system's; its packages lie beside the link.
        let python =
            std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| file.is_file());
        roots.extend(python.and_then(|file| Some(file.parent()?.parent()?.to_owned())));
    }
    roots.extend(variable("HOME").map(|home| PathBuf::from(home).join(".local")));
    roots.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut sites = Vec::new();
    for root in roots {
        for library in ["lib", "lib64"] {
            let mut versions: Vec<PathBuf> = std::fs::read_dir(root.join(library))
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| {
                    path.file_name()
                        .and_then(|name| name.to_str())
                        .is_some_and(|name| name.starts_with("python3"))
                })
                .collect();
            versions.sort();
            for version in versions {
                sites.push(version.join("site-packages"));
                sites.push(version.join("dist-packages"));
            }
        }
    }
    keep_real(sites)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn folder_with(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"no library").unwrap();
        }
        folder
    }

    fn look(
        kind: LibraryKind,
        field: Option<&Path>,
        variables: &[(&'static str, &Path)],
    ) -> Result<PathBuf, LibraryError> {
        let variables: BTreeMap<&str, OsString> =
            variables.iter().map(|(name, path)| (*name, path.as_os_str().to_owned())).collect();
        locate_in(kind, field, &|name| variables.get(name).cloned()).map(|found| found.path)
    }

    #[test]
    fn our_major_version_wins_over_an_unnumbered_link_and_others() {
        let folder = folder_with(&["libcupti.so", "libcupti.so.12", "libcupti.so.13", "libcuptix.so.13"]);
        let found = look(LibraryKind::Cupti, Some(folder.path()), &[]).unwrap();
        assert_eq!(found, folder.path().join("libcupti.so.13"));
        // A year is no major version: it is looked at when it is opened.
        let folder = folder_with(&["libcupti.so.2025.3.1", "libcupti.so.12"]);
        let found = look(LibraryKind::Cupti, Some(folder.path()), &[]).unwrap();
        assert_eq!(found, folder.path().join("libcupti.so.2025.3.1"));
    }

    #[test]
    fn what_was_named_is_taken_or_refused_and_never_replaced() {
        let good = folder_with(&["lib64/libnvrtc.so.13"]);
        let old = folder_with(&["libnvrtc.so.12"]);
        let empty = folder_with(&[]);
        let home: (&'static str, &Path) = ("CUDA_HOME", good.path());
        let found = look(LibraryKind::Nvrtc, None, &[home]).unwrap();
        assert_eq!(found, good.path().join("lib64/libnvrtc.so.13"));
        for named in [empty.path().to_owned(), empty.path().join("libnvrtc.so.13")] {
            let error = look(LibraryKind::Nvrtc, Some(&named), &[home]).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("there is no NVRTC library `libnvrtc.so.13`; tried {}", named.display())
            );
            assert!(look(LibraryKind::Nvrtc, None, &[home, ("ELASTICO_NVRTC", &named)]).is_err());
        }
        for named in [old.path().to_owned(), old.path().join("libnvrtc.so.12")] {
            let error = look(LibraryKind::Nvrtc, Some(&named), &[]).unwrap_err();
            assert!(matches!(error, LibraryError::Major { found: 12, .. }), "{error}");
        }
        // CUPTI is named by its folder, for its helper lies beside it.
        let file = folder_with(&["libcupti.so.13"]);
        assert!(look(LibraryKind::Cupti, Some(&file.path().join("libcupti.so.13")), &[]).is_err());
    }

    #[test]
    fn the_order_is_field_variable_toolkit_python_loader() {
        let name = "libcupti.so.13";
        let [field, variable, loader] = [(); 3].map(|()| folder_with(&[name]));
        let toolkit = folder_with(&["extras/CUPTI/lib64/libcupti.so.13"]);
        let python = folder_with(&["lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.13"]);
        let mut variables: Vec<(&'static str, &Path)> = vec![
            ("LD_LIBRARY_PATH", loader.path()),
            ("VIRTUAL_ENV", python.path()),
            ("CUDA_HOME", toolkit.path()),
            ("ELASTICO_CUPTI_DIR", variable.path()),
        ];
        let mut found = vec![look(LibraryKind::Cupti, Some(field.path()), &variables).unwrap()];
        while !variables.is_empty() {
            found.push(look(LibraryKind::Cupti, None, &variables).unwrap());
            variables.pop();
        }
        let expected = [&field, &variable, &toolkit, &python, &loader];
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                found.starts_with(expected.path()),
                "{} in {}",
                found.display(),
                expected.path().display()
            );
        }
    }

    #[test]
    fn a_driver_is_left_to_the_loader_and_never_taken_from_a_toolkit() {
        let toolkit = folder_with(&["lib64/stubs/libcuda.so.1", "lib64/libcuda.so.1", "compat/libcuda.so.1"]);
        let found = locate_in(LibraryKind::Cuda, None, &|name| {
            (name == "CUDA_HOME").then(|| toolkit.path().as_os_str().to_owned())
        })
        .unwrap();
        assert_eq!(found.path, Path::new("libcuda.so.1"));
        assert!(found.others.iter().all(|path| !path.starts_with(toolkit.path())), "{found:?}");
        let folder = folder_with(&["libcuda.so", "libcuda.so.1"]);
        let found = look(LibraryKind::Cuda, Some(folder.path()), &[]).unwrap();
        assert_eq!(found, folder.path().join("libcuda.so.1"), "never an unnumbered one, which may be a stub");
    }
}
