//! Writing so that a reader, or a crash, meets the old content or the new, never half of either.

use crate::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file beside its place, syncs it and renames it.
///
/// # Errors
/// [`Error::Io`] with the path; the old file is then unchanged and nothing else is left.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("prices.json");
/// elastico_datasets::write_atomic(&path, b"{}\n")?;
/// assert_eq!(std::fs::read(&path)?, b"{}\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_files(&[(path, bytes)], Existing::Replace)
}

/// What becomes of a file, or a dataset, that stands where one is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The new one takes its place.
    Replace,
    /// It stays, and writing fails: also where it came only after the writer had looked.
    Keep,
}

/// Writes files that belong together: each beside its place, synced, and only then all of them renamed.
///
/// # Errors
/// [`Error::Io`] with the path. Where a file cannot be written (a full disk), every old file is unchanged and nothing else is
/// left. With [`Existing::Keep`] the same holds where a place is taken: its error is of the kind `AlreadyExists`.
pub fn write_files(files: &[(&Path, &[u8])], existing: Existing) -> Result<(), Error> {
    let mut staged = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        let failed = |source| Error::io("write", *path)(source);
        // A link is followed, so that the file it points to is replaced and not the link.
        let target = resolve(path);
        match std::fs::metadata(&target) {
            Ok(found) if found.is_dir() => return Err(failed(ErrorKind::IsADirectory.into())),
            Ok(found) if !found.is_file() => {
                return Err(failed(std::io::Error::new(ErrorKind::InvalidInput, "it is no regular file")));
            }
            _ => {}
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".").suffix(".tmp");
        // What a freshly created file would have, less the process's mask; temporary files are private by default.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(parent(&target)).map_err(failed)?;
        file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        staged.push((path, target, file));
    }
    let mut created: Vec<PathBuf> = Vec::new();
    for (path, target, file) in staged {
        let renamed = match existing {
            Existing::Replace => file.persist(&target),
            Existing::Keep => file.persist_noclobber(&target),
        };
        if let Err(error) = renamed {
            // Only what is new may go: an old file that was replaced cannot come back.
            if existing == Existing::Keep {
                for file in created {
                    let _ = std::fs::remove_file(file);
                }
            }
            return Err(Error::io("write", *path)(error.error));
        }
        sync_folder(parent(&target)).map_err(Error::io("write", *path))?;
        created.push(target);
    }
    Ok(())
}

/// Where a path leads: links followed, also those that point to nothing yet, and folders that are still to be made.
///
/// Two paths of one file lead to the same place, however they are written.
#[must_use]
pub fn resolve(path: &Path) -> PathBuf {
    /// As many as Linux follows.
    const MOST_LINKS: usize = 40;
    let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for _ in 0..MOST_LINKS {
        if let Ok(found) = path.canonicalize() {
            return found;
        }
        let Ok(link) = path.read_link() else { break };
        path = parent(&path).join(link);
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => resolve(folder).join(name),
        _ => path,
    }
}

/// Writes a folder of files beside its place, syncs them and puts the folder in its place, or in that of an older one.
///
/// On Linux old and new change places in one step. Where the file system cannot do that, the old folder is moved aside
/// first and moved back should the second step fail: both then exist for a moment, under other names.
pub(crate) fn write_folder(folder: &Path, files: &[(&str, &[u8])], existing: Existing) -> Result<(), Error> {
    let failed = |source| Error::io("write", folder)(source);
    let target = resolve(folder);
    let Some(name) = target.file_name() else {
        return Err(failed(std::io::Error::new(ErrorKind::InvalidInput, "the path has no last name")));
    };
    let parent = parent(&target);
    std::fs::create_dir_all(parent).map_err(failed)?;

    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    // The guard removes the folder on each way out, with whatever is in it by then: the half-written new files
    // after a failure, the old dataset after the exchange.
    let beside = builder.tempdir_in(parent).map_err(failed)?;
    for (path, bytes) in files {
        write_synced(&beside.path().join(path), bytes).map_err(failed)?;
    }
    sync_folder(beside.path()).map_err(failed)?;

    // A folder that holds something is never the target of a plain rename.
    let replaced = if existing == Existing::Replace && target.exists() {
        exchange(beside.path(), &target).or_else(|error| match error.kind() {
            ErrorKind::Unsupported | ErrorKind::InvalidInput => {
                move_aside(&builder, parent, beside.path(), &target)
            }
            _ => Err(error),
        })
    } else {
        std::fs::rename(beside.path(), &target)
    };
    replaced.and_then(|()| sync_folder(parent)).map_err(failed)
}

/// Puts `new` in place of `target` in two steps, and takes the first back should the second fail.
fn move_aside(
    builder: &tempfile::Builder<'_, '_>,
    parent: &Path,
    new: &Path,
    target: &Path,
) -> std::io::Result<()> {
    let aside = builder.tempdir_in(parent)?;
    let old = aside.path().join("old");
    std::fs::rename(target, &old)?;
    std::fs::rename(new, target).inspect_err(|_| {
        if std::fs::rename(&old, target).is_err() {
            // The guard would remove the only copy of the old dataset.
            let _ = aside.keep();
        }
    })
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    path.parent().map_or(Ok(()), sync_folder)
}

#[cfg(target_os = "linux")]
fn exchange(left: &Path, right: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, left, CWD, right, RenameFlags::EXCHANGE)?)
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Makes names in a folder durable; only Unix lets a folder be opened for that.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != PathBuf::new() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_old_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("set");
        write_folder(&target, &[("a/x", b"old"), ("m", b"1")], Existing::Keep).unwrap();
        // The same name twice: the second file cannot be created.
        let error =
            write_folder(&target, &[("a/x", b"new"), ("a/x", b"new")], Existing::Replace).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `"), "{error}");
        assert_eq!(std::fs::read(target.join("a/x")).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["set"]);

        write_folder(&target, &[("a/x", b"new")], Existing::Keep).unwrap_err();
        assert_eq!(std::fs::read(target.join("a/x")).unwrap(), b"old");
        write_folder(&target, &[("a/x", b"new")], Existing::Replace).unwrap();
        assert_eq!(std::fs::read(target.join("a/x")).unwrap(), b"new");
        assert!(!target.join("m").exists());
        assert_eq!(names(folder.path()), ["set"]);
    }

    #[test]
    fn a_file_where_a_folder_should_be_is_one_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write_atomic(&file, b"1").unwrap();
        for error in [
            write_atomic(&file.join("below"), b"2").unwrap_err(),
            write_folder(&file.join("below"), &[("m", b"2")], Existing::Replace).unwrap_err(),
            write_atomic(folder.path(), b"2").unwrap_err(),
        ] {
            assert!(matches!(error, Error::Io { operation: "write", .. }), "{error:?}");
        }
        assert_eq!(names(folder.path()), ["file"]);
        assert_eq!(std::fs::read(&file).unwrap(), b"1");
    }

    #[test]
    fn files_that_belong_together_are_written_together() {
        let folder = tempfile::tempdir().unwrap();
        let [model, card] = ["model", "card"].map(|name| folder.path().join(name));
        std::fs::write(&card, b"old").unwrap();
        let both: [(&Path, &[u8]); 2] = [(&model, b"1"), (&card, b"2")];
        let error = write_files(&both, Existing::Keep).unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists),
            "{error:?}"
        );
        assert_eq!(names(folder.path()), ["card"]);
        assert_eq!(std::fs::read(&card).unwrap(), b"old");

        std::fs::write(&model, b"old").unwrap();
        let below = folder.path().join("nowhere/card");
        write_files(&[(&model, b"1"), (&below, b"2")], Existing::Replace).unwrap_err();
        assert_eq!(std::fs::read(&model).unwrap(), b"old");
        write_files(&both, Existing::Replace).unwrap();
        assert_eq!(std::fs::read(&card).unwrap(), b"2");
        assert_eq!(names(folder.path()), ["card", "model"]);
    }

    #[cfg(unix)]
    #[test]
    fn paths_of_one_file_resolve_to_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let [model, link] = ["model", "link"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("model", &link).unwrap();
        for path in [&link, &folder.path().join("./model"), &folder.path().join("../.").join(&model)] {
            assert_eq!(resolve(path), resolve(&model));
        }
        write_atomic(&link, b"1").unwrap();
        assert!(model.is_file() && link.is_symlink());
        assert_eq!(resolve(&link), resolve(&model));
    }

    #[test]
    fn the_second_step_of_two_takes_back_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, missing] = ["old", "new", "missing"].map(|name| folder.path().join(name));
        for (path, content) in [(&old, "1"), (&new, "2")] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("m"), content).unwrap();
        }
        let builder = tempfile::Builder::new();
        move_aside(&builder, folder.path(), &missing, &old).unwrap_err();
        assert_eq!(std::fs::read(old.join("m")).unwrap(), b"1");
        move_aside(&builder, folder.path(), &new, &old).unwrap();
        assert_eq!(std::fs::read(old.join("m")).unwrap(), b"2");
        assert_eq!(names(folder.path()), ["old"]);
    }

    #[cfg(unix)]
    #[test]
    fn rights_are_those_of_a_plain_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let plain = folder.path().join("plain");
        std::fs::write(&plain, b"").unwrap();
        let ours = folder.path().join("ours");
        write_atomic(&ours, b"").unwrap();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
