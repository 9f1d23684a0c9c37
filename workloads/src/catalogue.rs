//! The catalogue: benchmarks by id.

use crate::benchmark::Benchmark;
use crate::build::{self, FamilySettings};
use crate::error::{Error, Place};
use crate::form::Source;
use elastico_core::{FamilyId, WorkloadId, WorkloadKind, suggest};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The files that ship with the crate, by name.
const BUNDLED: [(&str, &str); 4] = [
    ("inference.toml", include_str!("../catalogue/inference.toml")),
    ("null.toml", include_str!("../catalogue/null.toml")),
    ("stressors.toml", include_str!("../catalogue/stressors.toml")),
    ("training.toml", include_str!("../catalogue/training.toml")),
];

/// Benchmarks, sorted by id.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    benchmarks: BTreeMap<WorkloadId, Benchmark>,
    places: BTreeMap<WorkloadId, Place>,
    families: BTreeMap<FamilyId, (Place, FamilySettings)>,
}

impl Catalogue {
    /// The benchmarks that ship with ElastiCo.
    pub fn bundled() -> Self {
        let mut catalogue = Self::default();
        for (name, text) in BUNDLED {
            let file = Path::new("workloads/catalogue").join(name);
            catalogue.add(Source { text, file: &file }).expect("tests read every bundled file");
        }
        catalogue
    }

    /// Reads the text of one file; `file` only names it in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its file, line and column.
    pub fn from_toml(text: &str, file: &Path) -> Result<Self, Error> {
        let mut catalogue = Self::default();
        catalogue.add(Source { text, file })?;
        Ok(catalogue)
    }

    /// Reads a file, or all `*.toml` files of a folder in the order of their names.
    ///
    /// # Errors
    /// As [`Catalogue::from_toml`], and where something cannot be read or the folder has no such file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let refuse = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Read { path, source }
        };
        let mut files = vec![path.to_owned()];
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(refuse(path))?;
            files = entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<_, _>>()
                .map_err(refuse(path))?;
            files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
            files.sort();
            if files.is_empty() {
                return Err(Error::EmptyFolder { path: path.to_owned() });
            }
        }
        let mut catalogue = Self::default();
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(refuse(&file))?;
            catalogue.add(Source { text: &text, file: &file })?;
        }
        Ok(catalogue)
    }

    /// Both catalogues in one.
    ///
    /// # Errors
    /// [`Error::Duplicate`] for an id, [`Error::FamilyMismatch`] for a family that the two describe differently.
    pub fn merge(mut self, other: Self) -> Result<Self, Error> {
        for (id, (place, settings)) in other.families {
            self.add_family(id, place, settings)?;
        }
        let mut places = other.places;
        for (id, benchmark) in other.benchmarks {
            if let Some(place) = places.remove(&id) {
                self.add_benchmark(benchmark, place)?;
            }
        }
        Ok(self)
    }

    /// The benchmark of an id.
    ///
    /// # Errors
    /// [`Error::UnknownWorkload`] with the nearest id.
    pub fn get(&self, id: &str) -> Result<&Benchmark, Error> {
        self.benchmarks.get(id).ok_or_else(|| Error::UnknownWorkload {
            id: id.to_owned(),
            suggestion: suggest(id, self.benchmarks.keys().map(WorkloadId::as_str)).map(str::to_owned),
        })
    }

    /// The benchmarks that a pattern means, sorted by id: an id, a family, a kind, a pattern with `*` over ids, or a list
    /// of these with commas.
    ///
    /// # Errors
    /// [`Error::NothingSelected`] where a part of the list matches nothing.
    pub fn select(&self, pattern: &str) -> Result<Vec<&Benchmark>, Error> {
        let mut selected = BTreeSet::new();
        for part in pattern.split(',').map(str::trim) {
            let matched =
                self.iter().filter(|benchmark| is_meant(benchmark, part)).map(|benchmark| &benchmark.id);
            let matched: Vec<_> = matched.collect();
            if matched.is_empty() {
                let known = self.names();
                let suggestion = suggest(part, known.iter().copied()).map(str::to_owned);
                return Err(Error::NothingSelected { pattern: part.to_owned(), suggestion });
            }
            selected.extend(matched);
        }
        Ok(selected.into_iter().filter_map(|id| self.benchmarks.get(id)).collect())
    }

    /// All benchmarks, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = &Benchmark> {
        self.benchmarks.values()
    }

    /// How many benchmarks there are.
    pub fn len(&self) -> usize {
        self.benchmarks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.benchmarks.is_empty()
    }

    /// The families, sorted.
    pub fn families(&self) -> impl Iterator<Item = &FamilyId> {
        self.families.keys()
    }

    /// Everything that a pattern without `*` may name.
    fn names(&self) -> Vec<&str> {
        let kinds = WorkloadKind::ALL.iter().map(|kind| kind.as_str());
        let families = self.families.keys().map(FamilyId::as_str);
        kinds.chain(families).chain(self.benchmarks.keys().map(WorkloadId::as_str)).collect()
    }

    fn add(&mut self, source: Source<'_>) -> Result<(), Error> {
        let form = source.parse()?;
        if *form.schema.get_ref() != 1 {
            let place = source.place(form.schema.span());
            return Err(Error::Schema { place, found: *form.schema.get_ref() });
        }
        for family in &form.family {
            let built = build::family(source, family)?;
            self.add_family(built.id, built.place, built.settings)?;
            for built in built.benchmarks {
                self.add_benchmark(built.benchmark, built.place)?;
            }
        }
        Ok(())
    }

    fn add_family(&mut self, id: FamilyId, place: Place, settings: FamilySettings) -> Result<(), Error> {
        match self.families.get(&id) {
            Some((first, known)) if *known != settings => {
                Err(Error::FamilyMismatch { place, family: id.to_string(), first: first.clone() })
            }
            Some(_) => Ok(()),
            None => {
                self.families.insert(id, (place, settings));
                Ok(())
            }
        }
    }

    fn add_benchmark(&mut self, benchmark: Benchmark, place: Place) -> Result<(), Error> {
        if let Some(first) = self.places.get(&benchmark.id) {
            return Err(Error::Duplicate { place, id: benchmark.id.to_string(), first: first.clone() });
        }
        self.places.insert(benchmark.id.clone(), place);
        self.benchmarks.insert(benchmark.id.clone(), benchmark);
        Ok(())
    }
}

fn is_meant(benchmark: &Benchmark, pattern: &str) -> bool {
    benchmark.kind.as_str() == pattern
        || benchmark.family.as_str() == pattern
        || matches(pattern, benchmark.id.as_str())
}

/// Whether a text matches a pattern in which `*` stands for any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    // The last part has to end the text; those before it match at the first chance.
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(tail)
}
