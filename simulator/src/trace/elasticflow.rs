//! ElasticFlow's measured scaling (Gu et al., ASPLOS 2023): iterations per second by batch size and GPUs.

use super::sheet::{self, Sheet};
use crate::{Error, SpeedTable};
use std::path::{Path, PathBuf};

impl SpeedTable {
    /// Reads a folder with one `<model>.csv` for each model: `global_batch_size,1,2,4,…` with iterations per second for as
    /// many GPUs, 0, nan or nothing = it does not run so. Workloads are called as the reader of ElasticFlow's traces calls them,
    /// `resnet50 (batch size 64)`, and the speeds hold for `device`.
    ///
    /// # Errors
    /// A folder without tables, or a value that cannot be, with file, line and column.
    pub fn read_elasticflow(folder: &Path, device: &str) -> Result<Self, Error> {
        let mut table = Self::new(format!("{} on {device}", sheet::name(folder)));
        let files = tables(folder)?;
        if files.is_empty() {
            return Err(Error::Needs {
                path: folder.into(),
                what: "has no tables".to_owned(),
                remedy: "name a folder such as throughputs_A100, with one CSV for each model".to_owned(),
            });
        }
        for (model, path) in files {
            read_model(&model, &path, device, &mut table)?;
        }
        Ok(table)
    }
}

fn read_model(model: &str, path: &Path, device: &str, table: &mut SpeedTable) -> Result<(), Error> {
    let text = crate::document::read(path)?;
    let expects = "a table of ElasticFlow has the columns global_batch_size and numbers of GPUs";
    let sheet = Sheet::open(&text, path, expects)?;
    let batch = sheet.column("global_batch_size")?;
    let counts: Vec<(usize, u32)> =
        sheet.headers().enumerate().filter_map(|(place, name)| Some((place, name.parse().ok()?))).collect();
    if counts.is_empty() {
        return Err(Error::Line {
            path: path.into(),
            line: 1,
            why: "no column is a number of GPUs".to_owned(),
        });
    }
    sheet.rows(|row| {
        let workload = format!("{model} (batch size {})", row.count(batch, "samples")?);
        for (place, gpus) in &counts {
            // Some counts were not measured.
            let speed = if matches!(row.text(*place), "" | "nan") { 0.0 } else { row.number(*place)? };
            if speed > 0.0 {
                table
                    .set(&workload, Some(device), *gpus, speed)
                    .map_err(|error| row.wrong(*place, error.to_string()))?;
            }
        }
        Ok(())
    })
}

/// CSV files by the model that names them, sorted.
fn tables(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let failed = |source| Error::Read { path: folder.into(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(model) = sheet::name(&path).strip_suffix(".csv") {
            found.push((model.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Oracle;

    #[test]
    fn speeds_are_found_by_model_batch_and_gpus() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(SpeedTable::read_elasticflow(folder.path(), "a100"), Err(Error::Needs { .. })));
        let file = folder.path().join("resnet50.csv");
        std::fs::write(&file, "global_batch_size,1,2,4\n64,6.8,11.8,\n128,0,6.6,9.1\n").unwrap();
        let table = SpeedTable::read_elasticflow(folder.path(), "a100").unwrap();
        assert_eq!(table.speed("resnet50 (batch size 64)", Some("a100"), 2), Some(11.8));
        assert_eq!(table.speed("resnet50 (batch size 128)", Some("a100"), 1), None);
        assert_eq!(table.speed("resnet50 (batch size 64)", Some("a100"), 4), None);
        std::fs::write(&file, "global_batch_size,1,2\n64,6.8,fast\n").unwrap();
        let error = SpeedTable::read_elasticflow(folder.path(), "a100").unwrap_err().to_string();
        assert!(error.ends_with("resnet50.csv, line 2, column `2`: `fast` is no number"), "{error}");
    }
}
