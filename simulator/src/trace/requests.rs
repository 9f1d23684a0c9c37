//! Requests to a language model, bundled into offline inference jobs.
//!
//! A bundle is what a batch interface gets: so many requests in order of arrival, submitted when the last of them is
//! there. It takes its tokens over the tokens per second of one job. What that leaves out: a prompt is cheaper than
//! the same number of written tokens, and prefixes that requests share are computed anew.

use super::sheet::{Jobs, Sheet};
use super::{ReadOptions, Trace, TraceFormat, TraceJob};
use crate::Error;
use elastico_core::{JobId, WorkloadKind};
use serde::Deserialize;
use std::path::Path;

struct Request {
    arrival: f64,
    tokens: f64,
}

/// What was read of a file.
#[derive(Default)]
struct Requests {
    all: Vec<Request>,
    failed: usize,
    empty: usize,
}

impl Requests {
    fn push(&mut self, arrival: f64, tokens_in: f64, tokens_out: f64) {
        if tokens_in + tokens_out > 0.0 {
            self.all.push(Request { arrival, tokens: tokens_in + tokens_out });
        } else {
            self.empty += 1;
        }
    }
}

pub(super) fn parse(
    format: TraceFormat,
    text: &str,
    path: &Path,
    options: &ReadOptions,
) -> Result<Trace, Error> {
    let Some(rate) = &options.token_rate else {
        return Err(Error::Needs {
            path: path.into(),
            what: "has requests with tokens but no durations".to_owned(),
            remedy:
                "say how fast a job is with --tokens-per-second N, or take it from a table of LLM-Pilot with \
                     --token-table FILE --serve MODEL,GPU,COUNT"
                    .to_owned(),
        });
    };
    let rate = rate.resolve()?;
    let bundle = options.bundle_requests;
    crate::error::check(|| "the number of requests in a bundle".to_owned(), bundle as f64, 1.0, "1 or more")?;
    let mut read = match format {
        TraceFormat::Mooncake => mooncake(text, path)?,
        TraceFormat::Burstgpt => burstgpt(text, path)?,
        TraceFormat::Vidur => vidur(text, path)?,
        _ => azure(text, path)?,
    };
    read.all.sort_by(|a, b| a.arrival.total_cmp(&b.arrival));
    let mut jobs = Jobs::default();
    for (index, requests) in read.all.chunks(bundle).enumerate() {
        let tokens: f64 = requests.iter().map(|request| request.tokens).sum();
        let submit = requests.last().map_or(0.0, |request| request.arrival);
        let id = JobId::new(format!("bundle-{index}")).map_err(|error| Error::Line {
            path: path.into(),
            line: 1,
            why: error.to_string(),
        })?;
        let mut job =
            TraceJob::new(id, rate.workload.as_str(), rate.gpus, submit, tokens / rate.tokens_per_second);
        job.kind = Some(WorkloadKind::Inference);
        job.device.clone_from(&rate.device);
        jobs.push(job);
    }
    jobs.left_out(read.failed, "requests that failed (no tokens came back)");
    jobs.left_out(read.empty, "requests without tokens");
    if format == TraceFormat::Vidur {
        jobs.assumed("the file has no times: every bundle is there from the start");
    }
    jobs.assumed(format!(
        "bundled {bundle} requests into a job, submitted with the last of them; it takes {}, tokens in and out alike",
        rate.origin
    ));
    jobs.into_trace(path)
}

/// `TIMESTAMP` is a date with 100 ns digits.
fn azure(text: &str, path: &Path) -> Result<Requests, Error> {
    let expects = "Azure's LLM inference traces have the columns TIMESTAMP,ContextTokens,GeneratedTokens";
    let sheet = Sheet::open(text, path, expects)?;
    let (time, tokens_in, tokens_out) =
        (sheet.column("TIMESTAMP")?, sheet.column("ContextTokens")?, sheet.column("GeneratedTokens")?);
    let mut requests = Requests::default();
    sheet.rows(|row| {
        requests.push(row.date(time)?, row.number(tokens_in)?, row.number(tokens_out)?);
        Ok(())
    })?;
    Ok(requests)
}

/// `Timestamp` is in seconds; a request without response tokens failed.
fn burstgpt(text: &str, path: &Path) -> Result<Requests, Error> {
    let expects =
        "BurstGPT has the columns Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type";
    let sheet = Sheet::open(text, path, expects)?;
    let (time, tokens_in, tokens_out) =
        (sheet.column("Timestamp")?, sheet.column("Request tokens")?, sheet.column("Response tokens")?);
    let mut requests = Requests::default();
    sheet.rows(|row| {
        let (time, tokens_in, tokens_out) =
            (row.number(time)?, row.number(tokens_in)?, row.number(tokens_out)?);
        if tokens_out > 0.0 {
            requests.push(time, tokens_in, tokens_out);
        } else {
            requests.failed += 1;
        }
        Ok(())
    })?;
    Ok(requests)
}

fn vidur(text: &str, path: &Path) -> Result<Requests, Error> {
    let expects = "request lengths of Vidur have the columns num_prefill_tokens,num_decode_tokens";
    let sheet = Sheet::open(text, path, expects)?;
    let (tokens_in, tokens_out) = (sheet.column("num_prefill_tokens")?, sheet.column("num_decode_tokens")?);
    let mut requests = Requests::default();
    sheet.rows(|row| {
        requests.push(0.0, row.number(tokens_in)?, row.number(tokens_out)?);
        Ok(())
    })?;
    Ok(requests)
}

/// One line of Mooncake; `hash_ids`, the shared prefixes, are not read.
#[derive(Deserialize)]
struct MooncakeLine {
    /// Milliseconds.
    timestamp: f64,
    input_length: f64,
    output_length: f64,
}

fn mooncake(text: &str, path: &Path) -> Result<Requests, Error> {
    let mut requests = Requests::default();
    for (line, text) in (1..).zip(crate::document::unmarked(text).lines()) {
        if text.trim().is_empty() {
            continue;
        }
        let wrong = |why: String| Error::Line { path: path.into(), line, why };
        let request: MooncakeLine = serde_json::from_str(text)
            .map_err(|error| wrong(error.to_string().replace(" at line 1 column", ", column")))?;
        for (field, value) in [
            ("timestamp", request.timestamp),
            ("input_length", request.input_length),
            ("output_length", request.output_length),
        ] {
            if !(0.0..=super::sheet::MOST).contains(&value) {
                return Err(Error::Value {
                    path: path.into(),
                    line,
                    column: field.to_owned(),
                    why: format!("{} must be finite and 0 or more", crate::error::short(value)),
                });
            }
        }
        requests.push(request.timestamp / 1000.0, request.input_length, request.output_length);
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::super::TokenRate;
    use super::*;

    fn options() -> ReadOptions {
        ReadOptions {
            bundle_requests: 2,
            token_rate: Some(TokenRate::Given { tokens_per_second: 100.0, gpus: 2 }),
            ..ReadOptions::default()
        }
    }

    const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-16 18:17:03.9799600,300,100\n2023-11-16 18:17:04.9799600,500,100\n2023-11-16 18:17:09.9799600,90,10\n";
    const MOONCAKE: &str = r#"{"timestamp": 0, "input_length": 300, "output_length": 100, "hash_ids": [0, 1]}
{"timestamp": 1000, "input_length": 500, "output_length": 100, "hash_ids": [0]}
{"timestamp": 6000, "input_length": 90, "output_length": 10, "hash_ids": []}
"#;
    const BURST: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
        5,ChatGPT,300,100,400,Conversation log\n6,GPT-4,500,100,600,API log\n7,GPT-4,500,0,500,API log\n11,GPT-4,90,10,100,API log\n";

    #[test]
    fn three_formats_make_the_same_bundles() {
        for text in [AZURE, MOONCAKE, BURST] {
            let trace = Trace::parse(text, Path::new("r"), &options()).unwrap();
            let [a, b] = trace.jobs() else { panic!("three requests are two bundles") };
            assert_eq!((a.duration_seconds, b.duration_seconds, a.gpus), (10.0, 1.0, 2));
            assert!((b.submit_seconds - a.submit_seconds - 5.0).abs() < 1e-6);
            assert_eq!(a.kind, Some(WorkloadKind::Inference));
            let last = trace.warnings.last().unwrap().to_string();
            assert!(last.contains("100 tokens per second on 2 GPUs"), "{last}");
        }
        let trace = Trace::parse(BURST, Path::new("r"), &options()).unwrap();
        assert_eq!(trace.warnings[0].left_out(), 1);
    }

    #[test]
    fn a_rate_must_be_named_and_lines_must_hold() {
        let error = Trace::parse(AZURE, Path::new("r.csv"), &ReadOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "r.csv has requests with tokens but no durations");
        let texts: Vec<String> = [
            MOONCAKE.replace("500", "-500"),
            MOONCAKE.replace("500", "\"many\""),
            AZURE.replace("18:17:04", "18.17"),
            BURST.replace("300", "1e99"),
        ]
        .iter()
        .map(|text| Trace::parse(text, Path::new("r"), &options()).unwrap_err().to_string())
        .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }
}
