//! `elastico place --serve`: one event a line on stdin, one answer a line on stdout.

use crate::failure::Ending;
use crate::output::{self, Talk};
use anyhow::Context as _;
use elastico_core::{DeviceKind, Hint as _};
use elastico_models::{Predictor, Profiles};
use elastico_placement::{Allocator, Error, Jobs, PairTable, Session, SessionAnswer as Answer};
use serde::Deserialize;
use serde_json::Value;
use std::io::BufRead as _;
use std::path::Path;

/// How far a job has come.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Progress {
    job: String,
    work_steps_left: f64,
    waited_seconds: f64,
}

/// Answers until stdin ends. A line that cannot be taken is answered with its error and changes nothing.
pub(crate) fn run(
    allocator: &Allocator,
    jobs: &Jobs,
    profiles: &Profiles,
    predictor: Option<&dyn Predictor>,
    talk: Talk,
) -> anyhow::Result<Ending> {
    // Whoever comes later may have any workload that was profiled.
    let workloads = profiles.iter().map(|profile| profile.workload.clone());
    let options = allocator.options();
    let table = predictor
        .map(|predictor| {
            PairTable::predict(workloads, allocator.cluster(), &options.sharing, profiles, predictor)
        })
        .transpose()?;
    let simulated = profiles.iter().any(|profile| profile.device_kind == DeviceKind::Simulated);
    let (mut session, placement) = Session::resume(allocator, profiles, table.as_ref(), jobs)?;
    let mut first = Answer::to(0, "solve");
    first.placement = Some(Box::new(placement));
    first.simulated = simulated;
    say(&first)?;
    talk.say(format!(
        "{} jobs placed; one event a line, for example {{\"finish\": \"JOB\"}}",
        session.jobs()
    ));
    let mut stdin = std::io::stdin().lock();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let count = stdin
            .read_until(b'\n', &mut bytes)
            .with_context(|| format!("cannot read line {line} of stdin"))?;
        if count == 0 {
            break;
        }
        let mut answer = match std::str::from_utf8(&bytes) {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => answer(&mut session, line, text),
            // One bad line must not end a session that holds the state of a cluster.
            Err(_) => refuse(line, "unknown", format!("line {line} of stdin is no UTF-8 text"), None),
        };
        answer.simulated = simulated;
        say(&answer)?;
    }
    Ok(Ending::Done)
}

fn say(answer: &Answer) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(answer).context("cannot write an answer as JSON")?;
    text.push('\n');
    output::print(&text)
}

const FORMS: &str = "{\"submit\": {…a job as in jobs.json…}}, {\"finish\": \"JOB\"}, \
    {\"advance\": {\"job\": \"JOB\", \"work_steps_left\": 1000, \"waited_seconds\": 60}} or {\"solve\": true}";

/// An event that changes nothing; the hint says what is taken where nothing better is known.
fn refuse(line: u64, event: &str, error: String, hint: Option<String>) -> Answer {
    let mut answer = Answer::to(line, event);
    (answer.error, answer.hint) = (Some(cut(error)), Some(hint.unwrap_or_else(|| FORMS.to_owned())));
    answer
}

/// Letters of an error at most: one that repeats what it refuses would be as long as that.
const LONGEST: usize = 400;

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn answer(session: &mut Session<'_>, line: u64, text: &str) -> Answer {
    let refuse = |event: &str, error: String, hint: Option<String>| refuse(line, event, error, hint);
    let event: Value = match serde_json::from_str(text) {
        Ok(event) => event,
        Err(error) => {
            return refuse(
                "unknown",
                format!("line {line} of stdin is no JSON: {error}"),
                Some(FORMS.to_owned()),
            );
        }
    };
    let single = event.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.iter().next());
    let failed = |event, error: Error| refuse(event, format!("line {line} of stdin: {error}"), error.hint());
    match single {
        Some((name, job)) if name == "submit" => {
            let text = format!("{{\"job\": [{job}]}}");
            let parsed = Jobs::from_json(&text, Path::new("stdin")).map(|jobs| jobs.job.into_iter().next());
            let job = match parsed {
                Ok(Some(job)) => job,
                Ok(None) => return refuse("submit", format!("line {line} of stdin has no job"), None),
                // The place within the line means nothing to whoever wrote it.
                Err(error) => {
                    return refuse("submit", format!("line {line} of stdin: {}", bare(&error)), error.hint());
                }
            };
            let id = job.id.to_string();
            match session.submit(job) {
                Ok(decisions) => {
                    let mut answer = Answer::to(line, "submit");
                    (answer.job, answer.decisions) = (Some(id), decisions);
                    answer
                }
                Err(error) => failed("submit", error),
            }
        }
        Some((name, Value::String(job))) if name == "finish" => match session.finish(job) {
            Ok(decisions) => {
                let mut answer = Answer::to(line, "finish");
                (answer.job, answer.decisions) = (Some(job.clone()), decisions);
                answer
            }
            Err(error) => failed("finish", error),
        },
        Some((name, progress)) if name == "advance" => {
            let progress: Progress = match serde_json::from_value(progress.clone()) {
                Ok(progress) => progress,
                Err(error) => {
                    return refuse(
                        "advance",
                        format!("line {line} of stdin: {error}"),
                        Some(FORMS.to_owned()),
                    );
                }
            };
            match session.advance(&progress.job, progress.work_steps_left, progress.waited_seconds) {
                Ok(()) => {
                    let mut answer = Answer::to(line, "advance");
                    answer.job = Some(progress.job);
                    answer
                }
                Err(error) => failed("advance", error),
            }
        }
        Some((name, Value::Bool(true))) if name == "solve" => match session.solve() {
            Ok(placement) => {
                let mut answer = Answer::to(line, "solve");
                answer.placement = Some(Box::new(placement));
                answer
            }
            Err(error) => failed("solve", error),
        },
        _ => refuse("unknown", format!("line {line} of stdin is no event"), Some(FORMS.to_owned())),
    }
}

/// What is wrong, without file and position of the text that was made of the line.
fn bare(error: &Error) -> String {
    let text = error.to_string();
    text.strip_prefix("stdin:").map_or(text.clone(), |rest| {
        rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ':' || letter == ' ')
            .to_owned()
    })
}
