//! The sampler's side.

use super::message::{PROTOCOL, Ready, Reply, Request, SamplerRequest};
use crate::cuda::Driver;
use crate::cupti::{Cupti, CuptiError, FittedSet, PmSampler};
use elastico_core::Hint;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often the device's buffer is decoded.
const DRAIN_EVERY: Duration = Duration::from_millis(50);

/// Runs the sampler on stdin and stdout to its end. It dies with its parent.
pub fn main() -> ExitCode {
    // Where the kernel refuses, the closed stdin of a dead parent still ends this process.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    match serve(io::BufReader::new(io::stdin()), io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Serves one coordinator until it says `bye` or closes its side.
///
/// # Errors
/// Where `output` cannot be written.
pub fn serve(input: impl BufRead + Send + 'static, output: impl Write) -> io::Result<()> {
    let (sender, lines) = channel();
    // A thread of its own, so that the device is drained while the coordinator is silent.
    std::thread::spawn(move || {
        for line in input.lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut server = Server { output, lines, prepared: None, sampler: None };
    server.say(&Reply::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() })?;
    server.run()
}

struct Server<W> {
    output: W,
    lines: Receiver<String>,
    prepared: Option<Prepared>,
    sampler: Option<PmSampler>,
}

struct Prepared {
    cupti: Cupti,
    driver: Driver,
    request: SamplerRequest,
}

impl Prepared {
    /// Loads everything and samples for a moment, which shows the set of metrics and every refusal.
    fn new(request: SamplerRequest) -> Result<(Self, FittedSet), CuptiError> {
        let driver = Driver::load(&request.libraries)?;
        let cupti = Cupti::load(&request.libraries)?;
        let prepared = Self { cupti, driver, request };
        let sampler = prepared.start()?;
        let set = sampler.set().clone();
        sampler.finish()?;
        Ok((prepared, set))
    }

    fn start(&self) -> Result<PmSampler, CuptiError> {
        PmSampler::start(&self.cupti, &self.driver, self.request.device, &self.request.options)
    }
}

fn refused(error: &CuptiError) -> Reply {
    Reply::Refused { status: error.status().to_owned(), detail: error.to_string(), hint: error.hint() }
}

fn out_of_turn(what: &str) -> Reply {
    Reply::Refused { status: "protocol".to_owned(), detail: what.to_owned(), hint: None }
}

impl<W: Write> Server<W> {
    fn say(&mut self, reply: &Reply) -> io::Result<()> {
        let line = serde_json::to_string(reply)?;
        writeln!(self.output, "{line}")?;
        self.output.flush()
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let line = match self.lines.recv_timeout(DRAIN_EVERY) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(sampler) = &mut self.sampler {
                        // The report will say that sampling has ended.
                        let _ = sampler.drain();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let reply = match serde_json::from_str(&line) {
                Ok(Request::Bye) => {
                    self.sampler = None;
                    return self.say(&Reply::Bye);
                }
                Ok(request) => self.answer(request),
                Err(error) => out_of_turn(&format!("bad request: {error}")),
            };
            self.say(&reply)?;
        }
    }

    fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Prepare { request } => match Prepared::new(request) {
                Ok((prepared, set)) => {
                    let cupti_version = prepared.cupti.version();
                    self.prepared = Some(prepared);
                    Reply::Ready { ready: describe(&set, cupti_version) }
                }
                Err(error) => refused(&error),
            },
            Request::Start => match (&self.prepared, &self.sampler) {
                (None, _) => out_of_turn("start before prepare"),
                (_, Some(_)) => out_of_turn("start during a window"),
                (Some(prepared), None) => match prepared.start() {
                    Ok(sampler) => {
                        self.sampler = Some(sampler);
                        Reply::Started
                    }
                    Err(error) => refused(&error),
                },
            },
            Request::Stop => match self.sampler.take().map(PmSampler::finish) {
                Some(Ok(report)) => Reply::Report { report: report.into() },
                Some(Err(error)) => refused(&error),
                None => out_of_turn("stop before start"),
            },
            Request::Bye => Reply::Bye,
        }
    }
}

fn describe(set: &FittedSet, cupti_version: u32) -> Ready {
    Ready {
        cupti_version,
        chip: set.chip.clone(),
        base: set.base.to_owned(),
        metrics: set.names().into_iter().map(str::to_owned).collect(),
        absent: set.absent.iter().map(|(name, reason)| ((*name).to_owned(), reason.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn talk(input: &'static str) -> Vec<String> {
        let mut output = Vec::new();
        serve(Cursor::new(input), &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn requests_out_of_turn_are_refused_and_silence_ends_the_talk() {
        let replies = talk("{\"type\":\"start\"}\n{\"type\":\"stop\"}\nnonsense\n");
        assert_eq!(replies.len(), 4);
        assert!(replies[0].contains("\"hello\""));
        assert!(replies[1].contains("start before prepare"));
        assert!(replies[2].contains("stop before start"));
        assert!(replies[3].contains("bad request"));
    }

    #[test]
    fn a_missing_library_is_refused_with_its_remedy() {
        let replies = talk(
            "{\"type\":\"prepare\",\"request\":{\"libraries\":{\"cuda\":\"/nowhere/libcuda.so.1\"},\"device\":0,\
             \"options\":{}}}\n{\"type\":\"bye\"}\n",
        );
        assert!(replies[1].contains("\"refused\"") && replies[1].contains("no_driver"), "{replies:?}");
        assert!(replies[1].contains("hint") && replies[2].contains("\"bye\""), "{replies:?}");
    }
}
