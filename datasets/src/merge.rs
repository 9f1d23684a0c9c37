//! Merging datasets: idempotent, and never silent about a contradiction.

use crate::dataset::Dataset;
use crate::error::{Conflict, Error};
use crate::schema::TableKind;
use crate::table::{Table, Values, number_bits};
use elastico_core::DeviceKind;
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl Dataset {
    /// Merges datasets of one device kind.
    ///
    /// Rows keep the order of the parts; a row that is there twice is kept once. So merging is associative, merging a
    /// dataset with itself changes nothing, and the order of the parts changes the order of the rows alone. Exclusions
    /// of one source and reason are taken once, the larger count.
    ///
    /// # Errors
    /// [`Error::MixedKinds`] for data of different device kinds, [`Error::Conflict`] for two different rows under one
    /// key (pairs: trial and side; isolated: trial, workload, share and repeat), [`Error::SchemaDrift`] for different
    /// schema versions, [`Error::NothingToMerge`] for no parts.
    pub fn merge(parts: Vec<Self>) -> Result<Self, Error> {
        Self::merge_kinds(parts, &[])
    }

    /// As [`Self::merge`], and the named device kinds may meet in the result.
    ///
    /// # Errors
    /// As [`Self::merge`]; [`Error::MixedKinds`] unless all kinds that meet are named.
    pub fn merge_kinds(parts: Vec<Self>, kinds: &[DeviceKind]) -> Result<Self, Error> {
        let Some(first) = parts.first() else { return Err(Error::NothingToMerge) };
        for part in &parts {
            if part.manifest.schema != first.manifest.schema {
                return Err(Error::SchemaDrift {
                    left: first.manifest.schema.clone(),
                    left_source: first.manifest.name().to_owned(),
                    right: part.manifest.schema.clone(),
                    right_source: part.manifest.name().to_owned(),
                });
            }
        }

        let names: Vec<String> = parts.iter().map(|part| part.manifest.name().to_owned()).collect();
        let mut provenance = Vec::new();
        let mut exclusions = BTreeMap::new();
        for part in &parts {
            for origin in &part.manifest.provenance {
                if !provenance.contains(origin) {
                    provenance.push(origin.clone());
                }
            }
            for exclusion in &part.manifest.exclusions {
                let rows =
                    exclusions.entry((exclusion.source.clone(), exclusion.reason.clone())).or_insert(0);
                *rows = exclusion.rows.max(*rows);
            }
        }
        let exclusions = exclusions
            .into_iter()
            .map(|((source, reason), rows)| crate::Exclusion { source, reason, rows })
            .collect();

        let (isolated, pairs): (Vec<Table>, Vec<Table>) =
            parts.into_iter().map(|part| (part.isolated, part.pairs)).unzip();
        let merged = Self::assemble(
            merge_tables(isolated, &names)?,
            merge_tables(pairs, &names)?,
            provenance,
            exclusions,
        )?;
        let found = &merged.manifest.device_kinds;
        let allowed: BTreeSet<_> = kinds.iter().collect();
        if found.len() > 1 && !found.iter().all(|kind| allowed.contains(kind)) {
            return Err(Error::MixedKinds { kinds: found.clone() });
        }
        Ok(merged)
    }
}

fn merge_tables(tables: Vec<Table>, names: &[String]) -> Result<Table, Error> {
    let ends: Vec<usize> = tables
        .iter()
        .scan(0, |end, table| {
            *end += table.rows();
            Some(*end)
        })
        .collect();
    let mut tables = tables.into_iter();
    let Some(mut all) = tables.next() else { return Err(Error::NothingToMerge) };
    for table in tables {
        all.append(&table);
    }

    let key: Vec<&Values> = all.kind().key().iter().map(|name| all.values(name)).collect();
    let mut seen: HashMap<[u64; 4], usize> = HashMap::with_capacity(all.rows());
    let mut kept = Vec::with_capacity(all.rows());
    for row in 0..all.rows() {
        let mut code = [0; 4];
        for (code, values) in code.iter_mut().zip(&key) {
            *code = match values {
                Values::Number(numbers) => number_bits(numbers[row]),
                Values::Text(texts) => u64::from(texts.codes()[row]),
            };
        }
        match seen.entry(code) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(row);
                kept.push(row);
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                let earlier = *entry.get();
                if let Some((column, values)) = all.entries().find(|(_, values)| !values.same(earlier, row)) {
                    let source = |row: usize| {
                        let part = ends.partition_point(|end| *end <= row);
                        format!("{} (dataset {})", names[part], part + 1)
                    };
                    return Err(Error::Conflict(Box::new(Conflict {
                        table: all.kind().as_str(),
                        key: show_key(&all, all.kind(), row),
                        column: column.name,
                        left: values.show(earlier),
                        left_source: source(earlier),
                        right: values.show(row),
                        right_source: source(row),
                    })));
                }
            }
        }
    }
    Ok(if kept.len() == all.rows() { all } else { all.take(&kept) })
}

fn show_key(table: &Table, kind: TableKind, row: usize) -> String {
    let parts: Vec<String> =
        kind.key().iter().map(|name| format!("{name} `{}`", table.values(name).show(row))).collect();
    parts.join(", ")
}
