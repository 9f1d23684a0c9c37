//! All processes of one command: found, stopped, resumed, ended, and never left behind.
//!
//! A command may start others, and those may leave its process group. Each inherits the environment, so a marker in it
//! names them all, together with the group and the children of both. A *guard*, a small shell that waits for the end of
//! its input, kills what carries the marker when the coordinator is gone, however that came about: its end of the pipe
//! closes with it. Stopped processes are killed as well as running ones.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable that marks the processes of a session.
pub(super) const MARKER_VARIABLE: &str = "ELASTICO_EXEC";

/// Reads until its input ends, then kills what carries the marker; twice, for children that were being born.
const GUARD: &str = r#"
trap '' HUP INT TERM
while read -r line; do :; done
for round in 1 2 3; do
    for entry in /proc/[0-9]*; do
        if grep -qsaF "$1" "$entry/environ"; then kill -KILL "${entry#/proc/}" 2>/dev/null; fi
    done
    sleep 0.05
done
"#;

/// Kills the processes of a marker when this process is gone. Dropping it sends it home without that.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    pub(crate) fn start(marker: &str) -> std::io::Result<Self> {
        let child = Command::new("/bin/sh")
            .args(["-c", GUARD, "elastico-guard", &format!("{MARKER_VARIABLE}={marker}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Before its input ends, so that it does not go to work.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes of one side.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    leader: i32,
    /// As it stands in the environment.
    marker: Vec<u8>,
}

/// What `/proc` says of a process.
struct Entry {
    parent: i32,
    group: i32,
    state: u8,
}

impl Tree {
    /// The tree of the process `leader`, which leads a group and carries `marker`.
    pub(super) fn new(leader: u32, marker: &str) -> Self {
        let marker = format!("{MARKER_VARIABLE}={marker}\0").into_bytes();
        Self { leader: i32::try_from(leader).unwrap_or(0), marker }
    }

    /// The living processes, zombies left out.
    pub(super) fn members(&self) -> BTreeSet<i32> {
        let table = table();
        let mut members: BTreeSet<i32> = table
            .iter()
            .filter(|(process, entry)| {
                **process == self.leader || entry.group == self.leader || self.is_marked(**process)
            })
            .map(|(process, _)| *process)
            .collect();
        // Children that cleared their environment and left the group.
        loop {
            let before = members.len();
            let children = table.iter().filter(|(_, entry)| members.contains(&entry.parent));
            let children: Vec<i32> = children.map(|(process, _)| *process).collect();
            members.extend(children);
            if members.len() == before {
                break;
            }
        }
        members.retain(|process| table.get(process).is_some_and(|entry| entry.state != b'Z'));
        members
    }

    fn is_marked(&self, process: i32) -> bool {
        std::fs::read(format!("/proc/{process}/environ")).is_ok_and(|environment| {
            environment.starts_with(&self.marker)
                || environment
                    .windows(self.marker.len() + 1)
                    .any(|part| part[0] == 0 && part[1..] == self.marker)
        })
    }

    /// Stops all; returns when the kernel says that they are.
    pub(super) fn stop(&self) {
        self.until(Signal::STOP, |state| state == b'T' || state == b't', Duration::from_millis(500));
    }

    /// Lets all go on.
    pub(super) fn resume(&self) {
        self.until(Signal::CONT, |state| state != b'T', Duration::from_millis(500));
    }

    /// Ends all at once.
    pub(super) fn kill(&self) {
        self.until(Signal::KILL, |_| false, Duration::from_secs(5));
    }

    /// Asks all to end, gives them a moment, then ends them.
    ///
    /// What is stopped gets the question before it can do anything else.
    pub(super) fn end(&self, patience: Duration) {
        for process in self.members() {
            send(process, Signal::TERM);
        }
        self.resume();
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline && !self.members().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Signals members, also those that are born meanwhile, until all are in a good state or gone.
    fn until(&self, signal: Signal, is_good: impl Fn(u8) -> bool, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        loop {
            let members = self.members();
            let table = table();
            let mut left = false;
            for process in members {
                if table.get(&process).is_some_and(|entry| !is_good(entry.state)) {
                    left = true;
                    send(process, signal);
                }
            }
            if !left || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn send(process: i32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process) {
        // Gone meanwhile is what most signals are for.
        let _ = kill_process(process, signal);
    }
}

/// All processes of this host that can be seen.
fn table() -> BTreeMap<i32, Entry> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|process: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // The command name is in parentheses and may hold blanks.
            let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
            let state = *fields.next()?.as_bytes().first()?;
            Some((
                process,
                Entry { parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()?, state },
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, marker: &str) -> (Child, Tree) {
        let child = Command::new("/bin/sh")
            .args(["-c", script])
            .env(MARKER_VARIABLE, marker)
            .process_group(0)
            .spawn()
            .unwrap();
        let tree = Tree::new(child.id(), marker);
        (child, tree)
    }

    fn wait_for(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !what() {
            assert!(Instant::now() < deadline, "it did not happen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn children_are_stopped_resumed_and_ended_even_outside_the_group() {
        let marker = format!("tree-{}", std::process::id());
        // One child in the group, one in a session of its own whose parent has ended.
        let (mut child, tree) = start("(setsid sleep 300 &) ; sleep 301 & sleep 302; true", &marker);
        wait_for(|| tree.members().len() == 4);
        let states = || {
            let table = table();
            tree.members()
                .iter()
                .filter_map(|process| Some(table.get(process)?.state))
                .collect::<BTreeSet<_>>()
        };
        tree.stop();
        assert_eq!(states(), BTreeSet::from([b'T']));
        tree.resume();
        assert!(!states().contains(&b'T'));
        tree.stop();
        tree.end(Duration::from_millis(200));
        child.wait().unwrap();
        assert!(tree.members().is_empty());
    }

    #[test]
    fn the_guard_kills_when_its_owner_is_gone_and_not_before() {
        let marker = format!("guard-{}", std::process::id());
        let (mut child, tree) = start("setsid sleep 303 & sleep 304", &marker);
        wait_for(|| tree.members().len() == 3);
        let mut guard = Guard::start(&marker).unwrap();
        tree.stop();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(tree.members().len(), 3);
        // What the end of this process would do.
        drop(guard.0.stdin.take());
        wait_for(|| tree.members().is_empty());
        child.wait().unwrap();
        let (mut other, tree) = start("sleep 305", &marker);
        drop(Guard::start(&marker).unwrap());
        assert!(!tree.members().is_empty());
        tree.kill();
        other.wait().unwrap();
    }
}
