//! How fast an offline inference job goes through its tokens.

use super::sheet::{self, Sheet};
use crate::Error;
use std::path::{Path, PathBuf};

/// Tokens per second of one job. Tokens that are read and tokens that are written count alike.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TokenRate {
    /// A number.
    Given {
        /// Tokens per second on all GPUs of the job together, above 0.
        tokens_per_second: f64,
        /// GPUs of the job, at least 1.
        gpus: u32,
    },
    /// The best rate of a model in a table of LLM-Pilot (Lazuka et al., SC 2024).
    Table {
        /// CSV with the columns `model,gpu,n_gpus,concurrent_users,failed_requests,total_tokens_per_s`.
        path: PathBuf,
        /// The model, as in the table.
        model: String,
        /// The GPU type, as in the table.
        device: String,
        /// GPUs of the job.
        gpus: u32,
    },
}

/// A rate that is known, and how it is known.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) tokens_per_second: f64,
    pub(super) gpus: u32,
    pub(super) device: Option<String>,
    pub(super) workload: String,
    pub(super) origin: String,
}

const EXPECTS: &str = "a table of LLM-Pilot has the columns model,gpu,n_gpus,concurrent_users,failed_requests,total_tokens_per_s";

impl TokenRate {
    pub(super) fn resolve(&self) -> Result<Resolved, Error> {
        match self {
            Self::Given { tokens_per_second, gpus } => {
                crate::error::check(
                    || "the number of tokens per second".to_owned(),
                    *tokens_per_second,
                    f64::MIN_POSITIVE,
                    "above 0",
                )?;
                crate::error::check(
                    || "the number of GPUs of a job".to_owned(),
                    f64::from(*gpus),
                    1.0,
                    "1 or more",
                )?;
                Ok(Resolved {
                    tokens_per_second: *tokens_per_second,
                    gpus: *gpus,
                    device: None,
                    workload: "llm-offline".to_owned(),
                    origin: format!("{tokens_per_second} tokens per second on {gpus} GPUs, as given"),
                })
            }
            Self::Table { path, model, device, gpus } => from_table(path, model, device, *gpus),
        }
    }
}

/// The highest rate at which no request failed.
fn from_table(path: &Path, model: &str, device: &str, gpus: u32) -> Result<Resolved, Error> {
    let text = crate::document::read(path)?;
    let sheet = Sheet::open(&text, path, EXPECTS)?;
    let [model_column, device_column, gpus_column, users, failed, rate] = [
        sheet.column("model")?,
        sheet.column("gpu")?,
        sheet.column("n_gpus")?,
        sheet.column("concurrent_users")?,
        sheet.column("failed_requests")?,
        sheet.column("total_tokens_per_s")?,
    ];
    let mut best: Option<(f64, u32)> = None;
    let mut known = Vec::new();
    sheet.rows(|row| {
        let (this_model, this_device, this_gpus) =
            (row.text(model_column), row.text(device_column), row.count(gpus_column, "GPUs")?);
        let (users, failed, rate) =
            (row.count(users, "users")?, row.count(failed, "requests")?, row.number(rate)?);
        known.push(format!("{this_model},{this_device},{this_gpus}"));
        let fits = (this_model, this_device, this_gpus) == (model, device, gpus) && failed == 0 && rate > 0.0;
        if fits && best.is_none_or(|(best, _)| rate > best) {
            best = Some((rate, users));
        }
        Ok(())
    })?;
    let wanted = format!("{model},{device},{gpus}");
    let Some((tokens_per_second, users)) = best else {
        let near = elastico_core::suggest(&wanted, known.iter().map(String::as_str));
        return Err(Error::Needs {
            path: path.into(),
            what: format!("has no rate without failed requests for `{wanted}`"),
            remedy: near.map_or_else(
                || "name model, GPU type and number of GPUs as the table does".to_owned(),
                |near| format!("the nearest in the table is {near}"),
            ),
        });
    };
    Ok(Resolved {
        tokens_per_second,
        gpus,
        device: Some(device.to_owned()),
        workload: model.to_owned(),
        origin: format!(
            "{tokens_per_second} tokens per second of {model} on {gpus} x {device} with {users} users, the best in {}",
            sheet::name(path)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_rate_without_failures_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rates.csv");
        std::fs::write(
            &path,
            "model,gpu,n_gpus,concurrent_users,failed_requests,total_tokens_per_s\n\
             m,a100,1,1,0,100\nm,a100,1,8,0,700\nm,a100,1,64,9,2000\nm,a100,2,8,0,900\n",
        )
        .unwrap();
        let table =
            |gpus| TokenRate::Table { path: path.clone(), model: "m".into(), device: "a100".into(), gpus };
        let rate = table(1).resolve().unwrap();
        assert_eq!((rate.tokens_per_second, rate.gpus, rate.workload.as_str()), (700.0, 1, "m"));
        let error = table(4).resolve().unwrap_err();
        assert!(error.to_string().ends_with("no rate without failed requests for `m,a100,4`"), "{error}");
        assert!(TokenRate::Given { tokens_per_second: 0.0, gpus: 1 }.resolve().is_err());
    }
}
