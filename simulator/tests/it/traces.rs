//! Every reader against the public traces, and against bytes that are no trace.

use elastico_simulator::{
    Error, Oracle as _, ReadOptions, SpeedTable, TokenRate, Trace, TraceFormat, TraceJob,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How the public traces are read: what they need beside themselves.
fn options(root: &Path, file: &Path) -> ReadOptions {
    let is_gavel = file.components().any(|part| part.as_os_str() == "gavel");
    ReadOptions {
        throughputs: is_gavel.then(|| root.join("gavel/simulation_throughputs.json")),
        profiles: Some(root.join("pollux-profiles")),
        token_rate: Some(TokenRate::Table {
            path: root.join("llm-pilot/llmpilot_aggregated.csv"),
            model: "google/flan-t5-xxl".to_owned(),
            device: "a100".to_owned(),
            gpus: 1,
        }),
        bundle_requests: 100,
        ..ReadOptions::default()
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension != "md") {
            found.push(path);
        }
    }
}

/// Each file under the public traces is read, or refused with what it is.
#[test]
fn every_public_trace_is_inspected_or_refused() {
    let Some(root) = super::published::shared("") else { return };
    let mut all = Vec::new();
    files(&root, &mut all);
    all.sort();
    let mut report = String::new();
    let mut formats: BTreeMap<&str, usize> = BTreeMap::new();
    for path in all {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        match Trace::read(&path, &options(&root, &path)) {
            Ok(trace) => {
                let format = trace.format.map_or("none", TraceFormat::name);
                *formats.entry(format).or_default() += 1;
                let summary = trace.summary(40, None);
                assert_eq!(summary.jobs_total, trace.jobs().len());
                assert!(summary.duration_p50_seconds > 0.0 && summary.gpu_seconds.is_finite(), "{name}");
                let demand: f64 =
                    summary.devices.iter().map(|device| device.demand_gpus.iter().sum::<f64>()).sum();
                assert!(demand * summary.bin_seconds <= summary.gpu_seconds * (1.0 + 1e-9), "{name}");
                writeln!(
                    report,
                    "{name}: {format}, {} jobs, {} left out, {:.3e} GPU s in {:.3e} s",
                    summary.jobs_total, summary.left_out_total, summary.gpu_seconds, summary.span_seconds
                )
                .unwrap();
            }
            Err(error) => {
                let text = error.to_string().replace(&root.display().to_string(), "");
                // Profiles come by the dozen.
                if !name.starts_with("pollux-profiles") || name.contains("bert/placements") {
                    writeln!(report, "{text}").unwrap();
                }
            }
        }
    }
    // Those are whole formats; a missing folder must not pass as success.
    for format in ["tiresias", "gavel", "philly-flat", "openb", "azure-llm", "mooncake", "vidur"] {
        assert!(formats.contains_key(format), "no trace of {format}: {formats:?}");
    }
    insta::assert_snapshot!(report);
}

/// ElasticFlow's tables know its jobs: on more GPUs they run as it measured.
#[test]
fn elasticflow_jobs_have_measured_speeds() {
    let (Some(trace), Some(a100), Some(t4)) = (
        super::published::shared("elasticflow/philly_103959.csv"),
        super::published::shared("elasticflow/throughputs_A100"),
        super::published::shared("elasticflow/throughputs_T4"),
    ) else {
        return;
    };
    let speeds = SpeedTable::read(&a100, "a100").unwrap();
    let on = |gpus| speeds.speed("resnet50 (batch size 64)", Some("a100"), gpus).unwrap();
    assert!((on(4) / on(1) - 18.298_925_886_403_232 / 6.842_977_582_389_685).abs() < 1e-12);
    let trace = Trace::read(&trace, &ReadOptions::default()).unwrap().elastic(&speeds);
    assert!(trace.jobs().iter().all(TraceJob::is_elastic), "every job of the trace is in the table");
    assert!(SpeedTable::read(&t4, "t4").is_ok());
}

/// A sound file of each format, small.
fn samples() -> Vec<(TraceFormat, &'static str)> {
    vec![
        (
            TraceFormat::Elastico,
            r#"{"schema": "elastico.trace/1", "name": "t", "jobs": [{"job": "a", "workload": "w", "gpus": 1, "submit_seconds": 0, "duration_seconds": 9}]}"#,
        ),
        (
            TraceFormat::Tiresias,
            "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n",
        ),
        (
            TraceFormat::Gavel,
            "LM\trun\td\t-n\t1\t600\t4\tgns\t1\t-1\t1418\t0\nLM\trun\td\t-n\t1\t600\t4\tgns\t1\t-1\t1418\t3\n",
        ),
        (
            TraceFormat::Philly,
            r#"[{"vc": "v", "jobid": "a", "submitted_time": "2017-10-09 07:00:00", "attempts": [{"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}]"#,
        ),
        (
            TraceFormat::PhillyFlat,
            "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
        ),
        (TraceFormat::Pollux, "name,time,application,num_replicas,batch_size\na,0,cifar10,1,100\n"),
        (
            TraceFormat::Openb,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\nb,6000,12288,1,460,V100M16|V100M32,BE,Running,130,1130,130\n",
        ),
        (
            TraceFormat::AzureLlm,
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,300,100\n",
        ),
        (
            TraceFormat::Mooncake,
            "{\"timestamp\": 0, \"input_length\": 300, \"output_length\": 100, \"hash_ids\": [0, 1]}\n",
        ),
        (
            TraceFormat::Burstgpt,
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,300,100,400,API log\n",
        ),
        (
            TraceFormat::Vidur,
            "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n",
        ),
        (
            TraceFormat::Mapped,
            "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration\n1,u1,vcA,train,8,32,DONE,2020-09-01 00:10:00,120\n",
        ),
    ]
}

fn sample_options(format: Option<TraceFormat>) -> ReadOptions {
    ReadOptions {
        format,
        mapping: (format == Some(TraceFormat::Mapped)).then(|| "lucid".to_owned()),
        token_rate: Some(TokenRate::Given { tokens_per_second: 100.0, gpus: 1 }),
        ..ReadOptions::default()
    }
}

#[test]
fn every_format_is_recognised_and_survives_our_own() {
    for (format, text) in samples() {
        let path = Path::new("sample");
        let named = Trace::parse(text, path, &sample_options(Some(format)));
        if format == TraceFormat::Pollux {
            assert!(matches!(named, Err(Error::Needs { .. })), "{named:?}");
            continue;
        }
        let named = named.unwrap();
        let found = Trace::parse(text, path, &sample_options(None)).unwrap();
        assert_eq!(found.format, Some(format));
        assert_eq!(found.jobs(), named.jobs());
        let again = Trace::parse_json(&found.to_json().unwrap(), path).unwrap();
        assert_eq!(again.jobs(), found.jobs());
    }
    assert_eq!(samples().len(), TraceFormat::ALL.len());
}

/// One change of a text.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize),
    Drop(usize),
    Put(usize, String),
    Double(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let put = prop_oneof![
        Just("-1".to_owned()),
        Just("1e999".to_owned()),
        Just("NaN".to_owned()),
        Just("4294967296".to_owned()),
        Just("0".to_owned()),
        Just("\u{0}".to_owned()),
        Just("é\"".to_owned()),
        Just("\n".to_owned()),
        Just("\t,".to_owned()),
        "[ -~]{1,6}",
    ];
    prop_oneof![
        any::<usize>().prop_map(Change::Cut),
        any::<usize>().prop_map(Change::Drop),
        (any::<usize>(), put).prop_map(|(at, text)| Change::Put(at, text)),
        any::<usize>().prop_map(Change::Double),
    ]
}

fn apply(text: &str, change: &Change) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    let place = |at: usize| at % (letters.len() + 1);
    match change {
        Change::Cut(at) => letters.truncate(place(*at)),
        Change::Drop(at) if !letters.is_empty() => {
            let at = at % letters.len();
            letters.remove(at);
        }
        Change::Drop(_) => {}
        Change::Put(at, new) => {
            let at = place(*at);
            letters.splice(at..at, new.chars());
        }
        Change::Double(at) => {
            let at = place(*at);
            let rest = letters[at..].to_vec();
            letters.extend(rest);
        }
    }
    letters.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A damaged file is read or refused; what is read holds, and what is refused is told in one line.
    #[test]
    fn damaged_files_never_panic(which in 0..12_usize, named in any::<bool>(), changes in prop::collection::vec(change(), 1..5)) {
        let (format, sample) = samples()[which];
        let text = changes.iter().fold(sample.to_owned(), |text, change| apply(&text, change));
        let options = sample_options(named.then_some(format));
        match Trace::parse(&text, Path::new("damaged"), &options) {
            Ok(trace) => {
                let summary = trace.summary(10, Some(&BTreeMap::from([("any".to_owned(), 4)])));
                prop_assert!(summary.gpu_seconds.is_finite());
                prop_assert!(trace.jobs().iter().all(|job| job.gpus > 0 && job.submit_seconds >= 0.0));
                let again = Trace::parse_json(&trace.to_json().unwrap(), Path::new("again")).unwrap();
                prop_assert_eq!(again.jobs(), trace.jobs());
            }
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    /// Bytes that are no text at all are refused too, from a file as it lies on a disk.
    #[test]
    fn bytes_never_panic(which in 0..12_usize, named in any::<bool>(), bytes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let (format, sample) = samples()[which];
        let mut damaged = sample.as_bytes().to_vec();
        for (at, byte) in bytes {
            let at = at % damaged.len();
            damaged[at] = byte;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged");
        std::fs::write(&path, &damaged).unwrap();
        match Trace::read(&path, &sample_options(named.then_some(format))) {
            Ok(trace) => prop_assert!(!trace.jobs().is_empty()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
