//! A command's output: kept in files, counted by a pattern, quoted in messages.

use elastico_gpu::ring::monotonic_nanoseconds;
use regex::bytes::Regex;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a log that are looked at and quoted.
const TAIL: u64 = 2000;

/// When lines that match came, in nanoseconds of `CLOCK_MONOTONIC`.
pub(super) type Ticks = Arc<Mutex<Vec<u64>>>;

/// Copies a pipe to a file and notes when a line matched. Ends with the pipe.
pub(super) fn follow(
    pipe: impl Read + Send + 'static,
    mut log: File,
    pattern: Regex,
    ticks: Ticks,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut line) {
            if pattern.is_match(&line) {
                ticks.lock().unwrap_or_else(PoisonError::into_inner).push(monotonic_nanoseconds());
            }
            // A full disk must not stop the program that is measured.
            let _ = log.write_all(&line);
            line.clear();
        }
    })
}

/// The end of a log, without what a terminal would hide.
pub(super) fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    text.trim().chars().filter(|letter| !letter.is_control() || *letter == '\n').collect()
}

/// Whether a log tells of device memory that ran out, in the words of the driver and of the frameworks.
pub(super) fn tells_of_memory(log: &str) -> bool {
    let lower = log.to_lowercase();
    ["out of memory", "cuda_error_out_of_memory", "cudaerrormemoryallocation", "resource_exhausted"]
        .iter()
        .any(|words| lower.contains(words))
}

/// The files that a side's output goes to.
#[derive(Debug, Clone)]
pub(super) struct Logs {
    pub(super) output: PathBuf,
    pub(super) errors: PathBuf,
}

impl Logs {
    /// The last words of both, errors first.
    pub(super) fn last_words(&self) -> String {
        let part = |name: &str, path: &Path| {
            let text = tail(path);
            (!text.is_empty()).then(|| format!("{name}: {text}"))
        };
        let parts: Vec<String> =
            [part("stderr", &self.errors), part("stdout", &self.output)].into_iter().flatten().collect();
        parts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matching_lines_are_counted_and_all_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.log");
        let ticks = Ticks::default();
        let text = b"start\nstep 1 loss \xff\nnoise\nstep 2\nstep 3".as_slice();
        let pattern = Regex::new(r"^step \d+").unwrap();
        follow(text, File::create(&path).unwrap(), pattern, Arc::clone(&ticks)).join().unwrap();
        let ticks = ticks.lock().unwrap();
        assert_eq!(ticks.len(), 3);
        assert!(ticks.is_sorted());
        assert_eq!(std::fs::read(&path).unwrap(), text);
        assert!(tail(&path).ends_with("step 3"));
    }

    #[test]
    fn the_words_for_no_memory_are_known() {
        for log in [
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate",
            "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY",
            "RESOURCE_EXHAUSTED: Failed to allocate",
        ] {
            assert!(tells_of_memory(log), "{log}");
        }
        assert!(!tells_of_memory("memory is fine"));
        assert_eq!(tail(Path::new("/nonexistent")), "");
    }
}
