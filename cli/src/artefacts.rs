//! What a command writes: held against what it reads before any work is done, and written as one.

use crate::failure::usage;
use anyhow::Context as _;
use elastico_datasets::{Dataset, Existing, resolve};
use std::path::{Path, PathBuf};

/// A file that a command is going to write, with the option that names it.
pub(crate) type Named<'a> = (&'static str, &'a Path);

/// Files, or a dataset, that a command may write.
#[derive(Debug)]
pub(crate) struct Artefacts {
    paths: Vec<PathBuf>,
    existing: Existing,
}

impl Artefacts {
    /// Files that may be written.
    ///
    /// Refused is what stands already, unless by `force`; and, even then, what is no regular file, lies inside a dataset, is
    /// read by this command (by whatever path), or is two of its files at once.
    pub(crate) fn files<'a, P: AsRef<Path>>(
        files: impl IntoIterator<Item = Named<'a>>,
        force: bool,
        inputs: impl IntoIterator<Item = P>,
    ) -> anyhow::Result<Self> {
        Self::check(files, force, inputs, false)
    }

    /// A dataset's folder that may be written; the same is refused.
    pub(crate) fn dataset<P: AsRef<Path>>(
        folder: &Path,
        force: bool,
        inputs: impl IntoIterator<Item = P>,
    ) -> anyhow::Result<Self> {
        Self::check([("--out", folder)], force, inputs, true)
    }

    fn check<'a, P: AsRef<Path>>(
        outputs: impl IntoIterator<Item = Named<'a>>,
        force: bool,
        inputs: impl IntoIterator<Item = P>,
        as_folder: bool,
    ) -> anyhow::Result<Self> {
        // An input that cannot be found is the business of its reader.
        let inputs: Vec<(PathBuf, PathBuf)> = inputs
            .into_iter()
            .filter_map(|input| Some((input.as_ref().to_owned(), input.as_ref().canonicalize().ok()?)))
            .collect();
        let mut places: Vec<(&'static str, PathBuf)> = Vec::new();
        let mut paths = Vec::new();
        for (option, path) in outputs {
            let place = resolve(path);
            check_kind(option, path, &place, as_folder)?;
            let another = || format!("choose another place with {option}");
            if let Some((input, _)) = inputs.iter().find(|(_, input)| input.starts_with(&place)) {
                return Err(usage(
                    format!("`{}` would replace `{}`, which is read", path.display(), input.display()),
                    another(),
                ));
            }
            if let Some(dataset) = place.ancestors().skip(1).find(|folder| is_dataset(folder)) {
                // As the user wrote it, where that can be told.
                let dataset =
                    path.ancestors().skip(1).find(|folder| resolve(folder) == dataset).unwrap_or(dataset);
                return Err(usage(
                    format!("`{}` lies inside the dataset `{}`", path.display(), dataset.display()),
                    another(),
                ));
            }
            if let Some((other, _)) = places.iter().find(|(_, other)| *other == place) {
                return Err(usage(
                    format!("{other} and {option} would be the same file, `{}`", path.display()),
                    format!("give {other} and {option} different names"),
                ));
            }
            // A link to nothing stands there too.
            if path.symlink_metadata().is_ok() && !force {
                return Err(usage(
                    format!("`{}` exists already", path.display()),
                    format!("choose another {option}, or replace it with --force"),
                ));
            }
            places.push((option, place));
            paths.push(path.to_owned());
        }
        Ok(Self { paths, existing: if force { Existing::Replace } else { Existing::Keep } })
    }

    /// Proves that the files can be written before work is spent on their content.
    pub(crate) fn prove_writable(&self) -> anyhow::Result<()> {
        for path in &self.paths {
            let folder = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder `{}`", folder.display()))?;
            tempfile::tempfile_in(folder)
                .with_context(|| format!("cannot write into `{}`", folder.display()))?;
        }
        Ok(())
    }

    /// Writes the files, all or none; `contents` are in the order in which the files were named.
    pub(crate) fn write(&self, contents: &[&[u8]]) -> anyhow::Result<()> {
        let files: Vec<(&Path, &[u8])> =
            self.paths.iter().map(PathBuf::as_path).zip(contents.iter().copied()).collect();
        elastico_datasets::write_files(&files, self.existing)?;
        Ok(())
    }

    /// Writes the dataset into its folder.
    pub(crate) fn write_dataset(&self, dataset: &Dataset) -> anyhow::Result<()> {
        for folder in &self.paths {
            match self.existing {
                Existing::Replace => dataset.write(folder)?,
                Existing::Keep => dataset.create(folder)?,
            }
        }
        Ok(())
    }
}

/// A folder stays a folder, a file a file, and a device or pipe what it is.
fn check_kind(option: &str, path: &Path, place: &Path, as_folder: bool) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return Err(usage(
            format!("`{option} -` names no place"),
            format!("name a file or folder with {option}; `./-` is one of that name"),
        ));
    }
    let Ok(found) = place.metadata() else { return Ok(()) };
    let (problem, hint) = match (as_folder, found.is_dir(), found.is_file()) {
        (true, false, _) => ("is a file, not a folder", "name a new folder"),
        (false, true, _) => ("is a folder", "name a file"),
        (false, false, false) => ("is no regular file", "name a file"),
        _ => return Ok(()),
    };
    Err(usage(format!("`{}` {problem}", path.display()), format!("{hint} with {option}")))
}

/// Whether a folder is a dataset, of whatever version and however damaged its parts.
fn is_dataset(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join("manifest.json"))
        .is_ok_and(|manifest| manifest.contains("\"elastico.dataset/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&Path; 0] = [];

    fn refusal<P: AsRef<Path>>(files: &[Named<'_>], inputs: impl IntoIterator<Item = P>) -> String {
        let error = Artefacts::files(files.iter().copied(), true, inputs).expect_err("it is refused");
        error.to_string()
    }

    #[cfg(unix)]
    #[test]
    fn no_path_leads_a_file_over_an_input_or_another_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [config, link, model] = ["config", "link", "model"].map(|name| folder.path().join(name));
        std::fs::write(&config, "x").expect("a file");
        std::os::unix::fs::symlink("config", &link).expect("a link");
        for path in [&config, &link, &folder.path().join("./config")] {
            assert!(refusal(&[("--out", path)], [&config]).contains("which is read"));
        }
        let same = folder.path().join("./model");
        assert!(refusal(&[("--out", &model), ("--card", &same)], NONE).contains("the same file"));
        assert!(refusal(&[("--out", folder.path())], NONE).ends_with("is a folder"));
        assert!(refusal(&[("--out", Path::new("/dev/null"))], NONE).ends_with("is no regular file"));
        assert!(refusal(&[("--out", Path::new("-"))], NONE).contains("names no place"));
        let error = Artefacts::files([("--out", link.as_path())], false, NONE).expect_err("it exists");
        assert!(error.to_string().ends_with("exists already"), "{error}");
    }

    #[test]
    fn nothing_is_written_into_a_dataset() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manifest = folder.path().join("manifest.json");
        std::fs::write(&manifest, r#"{"schema": "elastico.dataset/2"}"#).expect("a file");
        for path in [&manifest, &folder.path().join("pairs/page.html")] {
            assert!(refusal(&[("--page", path)], [folder.path()]).contains("lies inside the dataset"));
        }
        let error = Artefacts::dataset(folder.path(), true, [folder.path()]).expect_err("it is read");
        assert!(error.to_string().contains("which is read"), "{error}");
    }
}
