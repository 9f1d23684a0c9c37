//! A dataset in memory and on disk.

use crate::atomic::{self, Existing};
use crate::error::Error;
use crate::manifest::{Exclusion, Manifest, Part, READABLE, SCHEMA};
use crate::parquet;
use crate::schema::{Column, TableKind};
use crate::table::{Table, Values, number_bits};
use elastico_core::{DeviceKind, Digest, Provenance};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Two tables and what they say about themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Versions, origin, exclusions. Row counts, kinds and digests in it are those of the tables at [`Self::new`],
    /// [`Self::read`] or [`Self::merge`]; [`Self::write`] computes them again.
    pub manifest: Manifest,
    /// One row per workload x device x share x repeat.
    pub isolated: Table,
    /// One row per subject per trial.
    pub pairs: Table,
}

impl Dataset {
    /// A dataset from one origin; `exclusions` are what was left out, by reason.
    ///
    /// # Errors
    /// [`Error::DeviceKind`] where a row names a device kind that does not exist.
    pub fn new(
        isolated: Table,
        pairs: Table,
        provenance: Provenance,
        exclusions: BTreeMap<String, u64>,
    ) -> Result<Self, Error> {
        let exclusions = exclusions
            .into_iter()
            .filter(|(_, rows)| *rows > 0)
            .map(|(reason, rows)| Exclusion { source: provenance.source.clone(), reason, rows })
            .collect();
        Self::assemble(isolated, pairs, vec![provenance], exclusions)
    }

    pub(crate) fn assemble(
        isolated: Table,
        pairs: Table,
        provenance: Vec<Provenance>,
        exclusions: Vec<Exclusion>,
    ) -> Result<Self, Error> {
        let manifest = Manifest {
            schema: SCHEMA.to_owned(),
            device_kinds: device_kinds([&isolated, &pairs])?,
            isolated_rows: isolated.rows() as u64,
            pairs_rows: pairs.rows() as u64,
            content_digest: content_digest(&isolated, &pairs),
            exclusions,
            provenance,
            parts: Vec::new(),
        };
        Ok(Self { manifest, isolated, pairs })
    }

    /// The digest of the rows in their order; files, compression and provenance take no part.
    pub fn content_digest(&self) -> Digest {
        content_digest(&self.isolated, &self.pairs)
    }

    /// Reads a folder.
    ///
    /// Each part must be listed in the manifest with the digest of its bytes, and the rows must have the content digest.
    /// Values are not judged: that is [`crate::validate`].
    ///
    /// # Errors
    /// One that names the folder, file or column that is missing, damaged or of another version.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let Loaded { manifest, isolated, pairs, .. } = Loaded::read(folder)?;
        let kinds = device_kinds([&isolated, &pairs])?;
        if kinds != manifest.device_kinds {
            return Err(Error::Kinds {
                folder: folder.to_owned(),
                stated: manifest.device_kinds,
                found: kinds,
            });
        }
        // In memory every dataset has all columns, whatever version its files are of.
        let manifest = Manifest { schema: SCHEMA.to_owned(), ..manifest };
        let dataset = Self { manifest, isolated, pairs };
        let found = dataset.content_digest();
        if found != dataset.manifest.content_digest {
            return Err(Error::ContentChanged {
                folder: folder.to_owned(),
                expected: dataset.manifest.content_digest.short().to_owned(),
                found: found.short().to_owned(),
            });
        }
        Ok(dataset)
    }

    /// Lists the parts that are in a folder anew, for parts that another program wrote: the same rows in other files.
    ///
    /// The bytes are hashed and not decoded; [`Self::read`] then holds the rows against the content digest. Decoding a
    /// damaged file can end the process (see [`Error::Unlisted`]), so list only files that you trust to be whole.
    ///
    /// # Errors
    /// As for [`Self::read`], where the manifest or a file cannot be read or the manifest cannot be written.
    pub fn list_parts(folder: &Path) -> Result<(), Error> {
        let mut manifest = Manifest::read(folder)?;
        manifest.parts.clear();
        for kind in TableKind::ALL {
            for file in part_files(&folder.join(kind.as_str()))? {
                let bytes = std::fs::read(&file).map_err(Error::io("read", &file))?;
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                manifest
                    .parts
                    .push(Part { path: format!("{}/{name}", kind.as_str()), digest: Digest::of([&bytes]) });
            }
        }
        atomic::write_atomic(&folder.join("manifest.json"), &manifest.to_json())
    }

    /// Writes the folder, in place of an older dataset if there is one.
    ///
    /// # Determinism
    /// Equal datasets give equal bytes.
    ///
    /// # Errors
    /// [`Error::NotADataset`] where something else is in the way, [`Error::Io`] where writing fails. In both cases what
    /// was there is unchanged and nothing half-written is left.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        refuse_foreign(folder)?;
        self.write_as(folder, Existing::Replace)
    }

    /// Writes a folder that is not there, or is empty. Where another dataset comes to be there meanwhile, that one stays.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn create(&self, folder: &Path) -> Result<(), Error> {
        refuse_foreign(folder)?;
        self.write_as(folder, Existing::Keep)
    }

    fn write_as(&self, folder: &Path, existing: Existing) -> Result<(), Error> {
        let mut manifest = Manifest {
            schema: SCHEMA.to_owned(),
            device_kinds: device_kinds([&self.isolated, &self.pairs])?,
            isolated_rows: self.isolated.rows() as u64,
            pairs_rows: self.pairs.rows() as u64,
            content_digest: self.content_digest(),
            parts: Vec::new(),
            ..self.manifest.clone()
        };
        let mut encoded = Vec::new();
        for table in [&self.isolated, &self.pairs] {
            let path = format!("{}/part-0.parquet", table.kind().as_str());
            let bytes = parquet::encode(table)?;
            manifest.parts.push(Part { path: path.clone(), digest: Digest::of([&bytes]) });
            encoded.push((path, bytes));
        }
        let json = manifest.to_json();
        let mut files: Vec<(&str, &[u8])> =
            encoded.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
        files.push(("manifest.json", &json));
        atomic::write_folder(folder, &files, existing)
    }
}

/// Only a dataset, or an empty folder, may be replaced by a dataset.
fn refuse_foreign(folder: &Path) -> Result<(), Error> {
    let refuse = |reason| Err(Error::NotADataset { path: folder.to_owned(), reason });
    if !folder.exists() {
        return Ok(());
    }
    if !folder.is_dir() {
        return refuse("it is a file");
    }
    if std::fs::read_dir(folder).map_err(Error::io("read", folder))?.next().is_none() {
        return Ok(());
    }
    let manifest = match Manifest::read(folder) {
        Ok(manifest) => Some(manifest),
        // A dataset of another version is a dataset all the same.
        Err(Error::Version { found, .. }) if found.starts_with("elastico.dataset/") => None,
        Err(Error::Io { operation, path, source }) => return Err(Error::Io { operation, path, source }),
        Err(_) => return refuse("it holds other files, and is not replaced"),
    };
    match foreign_file(folder, manifest.as_ref())? {
        None => Ok(()),
        Some(file) => Err(Error::ForeignFile { folder: folder.to_owned(), file }),
    }
}

/// A file in a dataset's folder that no dataset has: replacing the folder would delete it.
fn foreign_file(folder: &Path, manifest: Option<&Manifest>) -> Result<Option<PathBuf>, Error> {
    let list = |folder: &Path| -> Result<Vec<PathBuf>, Error> {
        let entries = std::fs::read_dir(folder).map_err(Error::io("read", folder))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
        let mut paths = paths.map_err(Error::io("read", folder))?;
        paths.sort();
        Ok(paths)
    };
    for path in list(folder)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(kind) = TableKind::ALL.into_iter().find(|kind| kind.as_str() == name) else {
            if matches!(name, "manifest.json" | "DATASET.md") && path.is_file() {
                continue;
            }
            return Ok(Some(path));
        };
        for part in list(&path)? {
            let listed = match (manifest, part.file_name().and_then(|name| name.to_str())) {
                (Some(manifest), Some(name)) => {
                    let name = format!("{}/{name}", kind.as_str());
                    manifest.parts.iter().any(|part| part.path == name)
                }
                // What another version lists cannot be read.
                (None, Some(name)) => name.ends_with(".parquet"),
                (_, None) => false,
            };
            if !listed || !part.is_file() {
                return Ok(Some(part));
            }
        }
    }
    Ok(None)
}

fn device_kinds(tables: [&Table; 2]) -> Result<Vec<DeviceKind>, Error> {
    let mut kinds = BTreeSet::new();
    for table in tables {
        let column = table.texts("device_kind");
        for (code, value) in column.values().iter().enumerate() {
            kinds.insert(value.parse().map_err(|_| Error::DeviceKind {
                table: table.kind().as_str(),
                row: column.codes().iter().position(|row| *row == code as u32).unwrap_or_default(),
                value: value.clone(),
            })?);
        }
    }
    Ok(kinds.into_iter().collect())
}

/// What the digest of a content begins with. It changes only with how rows become bytes.
const DIGEST_FORM: &[u8] = b"elastico.dataset/1";

pub(crate) fn content_digest(isolated: &Table, pairs: &Table) -> Digest {
    let tables = [isolated, pairs].into_iter().flat_map(|table| {
        let head = [table.kind().as_str().as_bytes().to_vec(), (table.rows() as u64).to_le_bytes().to_vec()];
        // A column that came with a later version counts where it holds something: older datasets keep their digest.
        let counts = |(column, values): &(&Column, &Values)| {
            column.since == 1 || (0..table.rows()).any(|row| !values.is_null(row))
        };
        let columns = table.entries().filter(counts).flat_map(|(column, values)| {
            std::iter::once(Cow::Borrowed(column.name.as_bytes())).chain(column_bytes(values))
        });
        head.into_iter().map(Cow::Owned).chain(columns)
    });
    Digest::of(std::iter::once(Cow::Borrowed(DIGEST_FORM)).chain(tables))
}

/// The bytes of a column in parts of bounded size.
fn column_bytes(values: &Values) -> Box<dyn Iterator<Item = Cow<'_, [u8]>> + '_> {
    const PART: usize = 1 << 14;
    match values {
        Values::Number(numbers) => Box::new(numbers.chunks(PART).map(|part| {
            Cow::Owned(part.iter().flat_map(|number| number_bits(*number).to_le_bytes()).collect())
        })),
        Values::Text(texts) => {
            let codes = texts
                .codes()
                .chunks(PART)
                .map(|part| Cow::Owned(part.iter().flat_map(|code| code.to_le_bytes()).collect()));
            Box::new(texts.values().iter().map(|value| Cow::Borrowed(value.as_bytes())).chain(codes))
        }
    }
}

/// A folder as read, before its content is held against the manifest.
pub(crate) struct Loaded {
    pub(crate) manifest: Manifest,
    pub(crate) isolated: Table,
    pub(crate) pairs: Table,
    /// The files, with the number of rows in each, in the order of the rows.
    pub(crate) isolated_parts: Vec<(PathBuf, usize)>,
    pub(crate) pairs_parts: Vec<(PathBuf, usize)>,
}

impl Loaded {
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let manifest = Manifest::read(folder)?;
        let mut listed: BTreeMap<PathBuf, &Digest> = BTreeMap::new();
        for part in &manifest.parts {
            listed.insert(folder.join(&part.path), &part.digest);
        }
        let version =
            READABLE.iter().find(|(name, _)| *name == manifest.schema).map_or(0, |(_, number)| *number);
        let mut read = |kind| read_table(folder, kind, version, &mut listed);
        let (isolated, isolated_parts) = read(TableKind::Isolated)?;
        let (pairs, pairs_parts) = read(TableKind::Pairs)?;
        if let Some((file, _)) = listed.pop_first() {
            return Err(Error::Missing { file });
        }
        Ok(Self { manifest, isolated, pairs, isolated_parts, pairs_parts })
    }
}

fn read_table(
    folder: &Path,
    kind: TableKind,
    version: u32,
    listed: &mut BTreeMap<PathBuf, &Digest>,
) -> Result<(Table, Vec<(PathBuf, usize)>), Error> {
    let mut table: Option<Table> = None;
    let mut parts = Vec::new();
    for file in part_files(&folder.join(kind.as_str()))? {
        let bytes = std::fs::read(&file).map_err(Error::io("read", &file))?;
        match listed.remove(&file) {
            Some(digest) if *digest != Digest::of([&bytes]) => return Err(Error::Changed { file }),
            Some(_) => {}
            None => return Err(Error::Unlisted { file }),
        }
        let part = parquet::decode(&bytes, &file, kind, version)?;
        parts.push((file, part.rows()));
        match &mut table {
            Some(table) => table.append(&part),
            None => table = Some(part),
        }
    }
    let table = table.unwrap_or_else(|| match kind {
        TableKind::Isolated => Table::isolated(&[]),
        TableKind::Pairs => Table::pairs(&[]),
    });
    Ok((table, parts))
}

/// The Parquet files of one table in the order of their names; no folder is no files.
fn part_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", folder)(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            // Reading a pipe or a device would wait for ever.
            if !path.is_file() {
                return Err(Error::NotADataset { path, reason: "it is no plain file" });
            }
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
