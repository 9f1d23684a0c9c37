//! How an error reaches the user: `error:`, `caused by:`, `hint:`, and an exit code.

use elastico_core::Hint;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

/// How a command ended, when it ended in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Done.
    Done,
    /// Done, and the answer is no: infeasible, refused, blocked.
    Negative,
    /// Finished, but some trials failed.
    FailedTrials,
    /// Interrupted, results saved.
    Interrupted,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Done => 0,
            Ending::Negative => 1,
            Ending::FailedTrials => 4,
            Ending::Interrupted => 130,
        })
    }
}

/// An error of ours with a remedy that no library could know.
#[derive(Debug)]
pub(crate) struct WithHint {
    message: String,
    hint: String,
    environment: bool,
}

impl std::fmt::Display for WithHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WithHint {}

/// Bad input, with its remedy.
pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    WithHint { message: message.into(), hint: hint.into(), environment: false }.into()
}

/// Refuses a limit that no slowdown can be held against.
pub(crate) fn check_limit(limit: f64) -> anyhow::Result<()> {
    if (1.0..=1000.0).contains(&limit) {
        return Ok(());
    }
    Err(usage(format!("a limit of {limit} is no slowdown"), "give --limit a number from 1 to 1000"))
}

/// A machine that cannot do what was asked, with its remedy.
pub(crate) fn environment(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    WithHint { message: message.into(), hint: hint.into(), environment: true }.into()
}

/// The whole message: the error, its causes, and the hints that the chain knows, each once.
pub(crate) fn render(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}\n");
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let message = cause.to_string();
        if message != last {
            let _ = writeln!(text, "  caused by: {}", message.trim_end().replace('\n', "\n    "));
        }
        last = message;
    }
    let mut hints: Vec<String> = Vec::new();
    for cause in error.chain() {
        if let Some(hint) = hint_of(cause)
            && !hints.contains(&hint)
        {
            hints.push(hint);
        }
    }
    if hints.is_empty() {
        let of_io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).and_then(hint_of_io);
        hints.push(of_io.unwrap_or_else(|| {
            "correct the place that the error names, and run the command again".to_owned()
        }));
    }
    for hint in hints {
        let _ = writeln!(text, "\nhint: {hint}");
    }
    printable(&text)
}

/// A name that was mistyped on purpose must not steer the terminal.
fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\n' && letter != '\t' {
            safe.extend(letter.escape_default());
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// What helps against the faults of files that are the same for every command.
fn hint_of_io(error: &io::Error) -> Option<String> {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the path; it is taken from the folder that you are in",
        io::ErrorKind::PermissionDenied => "choose a place that you may use, or ask its owner",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or choose a place with --out"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a place that can be written with --out",
        io::ErrorKind::IsADirectory => "name a file, not a folder",
        io::ErrorKind::NotADirectory => "name a folder, not a file",
        io::ErrorKind::InvalidData => "the file must be UTF-8 text",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// 2 for bad input, 3 where the machine is at fault.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    let environment = error.chain().any(|cause| {
        cause.downcast_ref::<WithHint>().is_some_and(|error| error.environment)
            || cause.downcast_ref::<io::Error>().is_some_and(is_environment)
            || cause
                .downcast_ref::<elastico_models::Error>()
                .is_some_and(elastico_models::Error::is_environment)
            || cause
                .downcast_ref::<elastico_profiler::Error>()
                .is_some_and(elastico_profiler::Error::is_environment)
    });
    ExitCode::from(if environment { 3 } else { 2 })
}

fn is_environment(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::StorageFull
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
    )
}

fn hint_of(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    fn of<E: Hint + std::error::Error + 'static>(
        cause: &(dyn std::error::Error + 'static),
    ) -> Option<String> {
        cause.downcast_ref::<E>().and_then(Hint::hint)
    }
    cause
        .downcast_ref::<WithHint>()
        .map(|error| error.hint.clone())
        .or_else(|| of::<elastico_datasets::Error>(cause))
        .or_else(|| of::<elastico_models::Error>(cause))
        .or_else(|| of::<elastico_placement::Error>(cause))
        .or_else(|| of::<elastico_profiler::Error>(cause))
        .or_else(|| of::<elastico_simulator::Error>(cause))
        .or_else(|| of::<elastico_trainer::Error>(cause))
        .or_else(|| of::<elastico_workloads::Error>(cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn causes_follow_and_hints_come_last_once() {
        let error = Err::<(), _>(usage("`x` is no number", "give a number"))
            .context("cannot read `jobs.toml`")
            .unwrap_err();
        assert_eq!(
            render(&error),
            "error: cannot read `jobs.toml`\n  caused by: `x` is no number\n\nhint: give a number\n"
        );
        let missing =
            anyhow::Error::from(io::Error::from(io::ErrorKind::NotFound)).context("cannot read `a`");
        assert!(render(&missing).contains("\nhint: check the path"), "{}", render(&missing));
    }

    #[test]
    fn a_full_disk_is_the_machines_fault() {
        let full = anyhow::Error::from(io::Error::from(io::ErrorKind::StorageFull)).context("cannot write");
        assert_eq!(format!("{:?}", exit_code(&full)), format!("{:?}", ExitCode::from(3)));
        let missing = anyhow::Error::from(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(format!("{:?}", exit_code(&missing)), format!("{:?}", ExitCode::from(2)));
    }
}
