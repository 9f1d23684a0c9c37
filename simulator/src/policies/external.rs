use super::Policy;
use crate::error::short;
use crate::{Error, Round, Shape, Target};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// A program that is asked in every round: one line of JSON to its standard input, one line back.
///
/// The line to it is `elastico.policy-round/1`, the line back `elastico.policy-actions/1`. Its standard error is that of this
/// program. It ends when its standard input does.
#[derive(Debug)]
pub(super) struct External {
    command: String,
    timeout: Duration,
    program: Option<Program>,
    jobs: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Program {
    child: Child,
    questions: Option<SyncSender<String>>,
    lines: Receiver<Result<String, String>>,
}

/// The longest answer, bytes: that of a million jobs. A program that never ends its line must not fill the memory.
const MOST_ANSWER: u64 = 16 << 20;

/// The next line without its end; `None` where there is none.
fn next_line(output: &mut impl BufRead) -> Option<Result<String, String>> {
    let mut line = Vec::new();
    if let Err(error) = output.take(MOST_ANSWER + 1).read_until(b'\n', &mut line) {
        return Some(Err(format!("its answer cannot be read: {error}")));
    }
    let is_ended = line.pop_if(|last| *last == b'\n').is_some();
    if line.is_empty() && !is_ended {
        return None;
    }
    if line.len() as u64 > MOST_ANSWER {
        return Some(Err("its answer has no end of line within 16 MiB".to_owned()));
    }
    Some(String::from_utf8(line).map_err(|_| "its answer is no UTF-8 text".to_owned()))
}

/// Closing its input asks the program to end; one that has not ended by then is killed, so that no run leaves one behind.
impl Drop for Program {
    fn drop(&mut self) {
        drop(self.questions.take());
        for _ in 0..20 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nothing can be done about a process that cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Actions {
    #[serde(rename = "schema")]
    _schema: Schema,
    targets: Vec<Action>,
    #[serde(default)]
    wake_at_seconds: Option<f64>,
}

#[derive(Deserialize)]
enum Schema {
    #[serde(rename = "elastico.policy-actions/1")]
    One,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    job: String,
    #[serde(rename = "do")]
    verb: Verb,
    #[serde(default)]
    pool: Option<String>,
    #[serde(default)]
    gpus: Option<u32>,
    #[serde(default)]
    other: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verb {
    Wait,
    Alone,
    Beside,
}

impl External {
    pub(super) fn new(command: &str, timeout_seconds: f64) -> Result<Self, Error> {
        crate::error::check(|| "timeout_seconds".to_owned(), timeout_seconds, 1e-3, "at least 0.001")?;
        Ok(Self {
            command: command.to_owned(),
            timeout: Duration::try_from_secs_f64(timeout_seconds).unwrap_or(Duration::MAX),
            program: None,
            jobs: BTreeMap::new(),
        })
    }

    fn wrong(&self, why: impl Into<String>) -> Error {
        Error::External { command: self.command.clone(), at_seconds: None, why: why.into() }
    }

    fn spawn(&self) -> Result<Program, Error> {
        let mut words = self.command.split_whitespace();
        let program = words.next().ok_or_else(|| self.wrong("the command is empty"))?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.wrong(format!("it cannot be started: {error}")))?;
        // A write has no time limit of its own either, where the program reads nothing.
        let (questions, asked) = sync_channel::<String>(1);
        if let Some(mut input) = child.stdin.take() {
            std::thread::spawn(move || {
                for question in asked {
                    if input.write_all(question.as_bytes()).and_then(|()| input.flush()).is_err() {
                        return;
                    }
                }
            });
        }
        // One answer at most waits to be taken: a program that talks without being asked must not fill the memory either.
        let (sender, lines) = sync_channel(1);
        if let Some(output) = child.stdout.take() {
            // A read has no time limit of its own; the thread ends with the program's output, or with its first fault.
            std::thread::spawn(move || {
                let mut output = BufReader::new(output);
                while let Some(line) = next_line(&mut output) {
                    let is_last = line.is_err();
                    if sender.send(line).is_err() || is_last {
                        return;
                    }
                }
            });
        }
        Ok(Program { child, questions: Some(questions), lines })
    }

    fn ask(&mut self, state: &Value) -> Result<Actions, Error> {
        if self.program.is_none() {
            self.program = Some(self.spawn()?);
        }
        let command = &self.command;
        let wrong = |why: String| Error::External { command: command.clone(), at_seconds: None, why };
        let Some(program) = self.program.as_mut() else { return Err(wrong("it is not running".to_owned())) };
        let mut line = state.to_string();
        line.push('\n');
        let is_sent = match program.questions.as_ref().map(|questions| questions.try_send(line)) {
            Some(Err(TrySendError::Full(_))) => {
                return Err(wrong("it answers without reading what it is asked".to_owned()));
            }
            sent => sent.is_some_and(|sent| sent.is_ok()),
        };
        let answer = match program.lines.recv_timeout(self.timeout) {
            Ok(answer) => answer.map_err(wrong)?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(wrong(format!("no answer within {} s", self.timeout.as_secs_f64())));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status =
                    program.child.wait().map_or_else(|_| String::new(), |status| format!(": {status}"));
                let when = if is_sent { "before it answered" } else { "before it was asked" };
                return Err(wrong(format!("it ended {when}{status}")));
            }
        };
        serde_json::from_str(&answer).map_err(|error| {
            let start: String = answer.chars().take(80).collect();
            wrong(format!("its answer is no elastico.policy-actions/1: {error}; it begins with `{start}`"))
        })
    }

    fn job(&self, name: &str) -> Result<usize, Error> {
        self.jobs.get(name).copied().ok_or_else(|| {
            let near = elastico_core::suggest(name, self.jobs.keys().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
            self.wrong(format!("its answer names the job `{name}`, which is not here{near}"))
        })
    }

    fn targets(&self, round: &Round<'_, '_>, actions: &[Action]) -> Result<Vec<(usize, Target)>, Error> {
        let mut targets: BTreeMap<usize, Target> = BTreeMap::new();
        let mut guests = Vec::new();
        for action in actions {
            let job = self.job(&action.job)?;
            let fields = (&action.pool, action.gpus, &action.other);
            let target = match (action.verb, fields) {
                (Verb::Wait, (None, None, None)) => Target::Wait,
                (Verb::Alone, (pool, gpus, None)) => {
                    let shape = self.shape(round, job, pool.as_deref(), gpus)?;
                    if round.rate(job, shape).is_none() {
                        let (name, gpus) = (&action.job, shape.gpus);
                        return Err(self.wrong(format!("job `{name}` cannot run on {gpus} GPUs there")));
                    }
                    Target::Alone(shape)
                }
                (Verb::Beside, (None, None, Some(other))) => {
                    guests.push((job, self.job(other)?));
                    continue;
                }
                _ => {
                    let name = &action.job;
                    return Err(self.wrong(format!(
                        "its action for `{name}` has fields that do not go together: wait has none, alone has pool and gpus, beside has other"
                    )));
                }
            };
            targets.insert(job, target);
        }
        for (guest, host) in guests {
            let shape = match targets.get(&host) {
                Some(Target::Alone(shape)) => Some(*shape),
                Some(_) => None,
                None => round.shape_of(host),
            };
            let host_name = &round.job(host).job;
            let shape = shape.ok_or_else(|| {
                self.wrong(format!("a job shall run beside `{host_name}`, which does not run"))
            })?;
            targets.insert(guest, Target::Beside(host, shape));
        }
        Ok(targets.into_iter().collect())
    }

    fn shape(
        &self,
        round: &Round<'_, '_>,
        job: usize,
        pool: Option<&str>,
        gpus: Option<u32>,
    ) -> Result<Shape, Error> {
        let gpus = gpus.unwrap_or(round.job(job).gpus);
        let pools = round.cluster().pools();
        let pool = match pool {
            Some(name) => pools.iter().position(|pool| pool.id.as_str() == name),
            // Where it is, else where it is fastest.
            None => {
                round.shape_of(job).or_else(|| round.requested(job).first().copied()).map(|shape| shape.pool)
            }
        };
        let pool = pool.ok_or_else(|| self.wrong("its answer names a pool that is not there"))?;
        Ok(Shape { pool, gpus })
    }
}

/// A thousand times the latest submission.
const LATEST_WAKE: f64 = 1e15;

impl Policy for External {
    fn decide(&mut self, round: &mut Round<'_, '_>) {
        for job in round.arrived() {
            self.jobs.insert(round.job(*job).job.to_string(), *job);
        }
        self.jobs.retain(|_, job| round.is_waiting(*job) || round.is_running(*job));
        if self.jobs.is_empty() {
            return;
        }
        let is_first = self.program.is_none();
        let state = describe(round, is_first, self.jobs.values().copied().collect());
        let done = self.ask(&state).and_then(|actions| {
            let targets = self.targets(round, &actions.targets)?;
            if let Some(time) = actions.wake_at_seconds.filter(|time| time.abs() > LATEST_WAKE) {
                return Err(
                    self.wrong(format!("wake_at_seconds is {}, it must be at most 1e15", short(time)))
                );
            }
            Ok((targets, actions.wake_at_seconds))
        });
        match done {
            Ok((targets, wake)) => {
                round.apply(&targets);
                if let Some(time) = wake {
                    round.wake_at(time);
                }
            }
            Err(mut error) => {
                if let Error::External { at_seconds, .. } = &mut error {
                    *at_seconds = Some(round.now());
                }
                round.abort(error);
            }
        }
    }
}

/// The state of a round, jobs in order of submission. The slowdowns that the planner expects come with the first round.
fn describe(round: &Round<'_, '_>, is_first: bool, jobs: BTreeSet<usize>) -> Value {
    let pools = round.cluster().pools();
    let pool_name = |pool: usize| pools[pool].id.as_str();
    let name = |job: usize| round.job(job).job.as_str();
    let described: Vec<Value> = jobs
        .into_iter()
        .map(|job| {
            let record = round.job(job);
            let shapes: Vec<Value> = round
                .shapes(job)
                .iter()
                .map(|known| json!({"pool": pool_name(known.shape.pool), "gpus": known.shape.gpus, "rate": known.rate}))
                .collect();
            let shape = round.shape_of(job);
            json!({
                "job": name(job),
                "state": if shape.is_some() { "running" } else { "waiting" },
                "workload": record.workload,
                "kind": record.kind,
                "gpus": record.gpus,
                "submit_seconds": record.submit_seconds,
                "weight": record.weight,
                "tenant": record.tenant,
                "memory_bytes": record.memory_bytes,
                "attained_gpu_seconds": round.attained_gpu_seconds(job),
                "done_seconds": round.done_seconds(job),
                "shapes": shapes,
                "pool": shape.map(|shape| pool_name(shape.pool)),
                "held_gpus": shape.map_or(0, |shape| shape.gpus),
                "beside": round.partner_of(job).map(name),
            })
        })
        .collect();
    let pools: Vec<Value> = pools
        .iter()
        .enumerate()
        .map(|(index, pool)| {
            json!({
                "pool": pool.id,
                "device": pool.device,
                "nodes": pool.nodes,
                "gpus_per_node": pool.gpus_per_node,
                "free_gpus": round.free_gpus_of(index),
                "memory_bytes": pool.memory_bytes,
            })
        })
        .collect();
    let mut state = json!({
        "schema": "elastico.policy-round/1",
        "now_seconds": round.now(),
        "restart_seconds": round.options().restart_seconds,
        "pools": pools,
        "jobs": described,
    });
    if is_first {
        let slowdowns: Vec<Value> = round
            .expected_slowdowns()
            .into_iter()
            .map(|(subject, co_runner, pool, pair)| {
                json!({
                    "subject": subject,
                    "co_runner": co_runner,
                    "pool": pool_name(pool),
                    "slowdown": pair.slowdown,
                    "upper": pair.upper,
                })
            })
            .collect();
        state["slowdowns"] = slowdowns.into();
    }
    state
}
