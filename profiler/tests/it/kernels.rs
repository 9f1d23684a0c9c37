//! All kernels of the workloads for every generation of GPU since Turing, with what the machine code has to look like.
//! NVRTC and the disassemblers come from NVIDIA's wheels; no GPU and no driver are needed.

#![allow(clippy::print_stdout, reason = "helpers of tests are tests")]

use elastico_gpu::cubin::Cache;
use elastico_gpu::libraries::Libraries;
use elastico_workloads::launch::{KERNEL_FILES, KernelFile, LaunchError, LaunchPlan, Target, checks};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Compute capabilities of T4, A100, A10, L4, H100 and H200, B200, RTX 50.
const TARGETS: [(i32, i32); 7] = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];

/// NVIDIA's wheels: the folder of libraries and that of programs.
struct Wheels {
    libraries: Libraries,
    programs: PathBuf,
}

impl Wheels {
    /// From `ELASTICO_CUDA_WHEELS` or the workspace's virtual environment; `None`, with the reason printed, without them.
    fn find() -> Option<Self> {
        let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/lib");
        let pythons = std::fs::read_dir(environment).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> =
            pythons.map(|entry| entry.path().join("site-packages/nvidia/cu13/lib")).collect();
        folders.sort();
        folders.splice(0..0, std::env::var_os("ELASTICO_CUDA_WHEELS").map(PathBuf::from));
        let is_whole = |folder: &PathBuf| {
            folder.join("libnvrtc.so.13").is_file() && folder.join("../bin/cuobjdump").is_file()
        };
        let Some(folder) = folders.into_iter().find(is_whole) else {
            println!(
                "skipped: no libnvrtc.so.13 with cuobjdump; pip install -r gpu/requirements.txt into .venv"
            );
            return None;
        };
        let libraries = Libraries { nvrtc: Some(folder.join("libnvrtc.so.13")), ..Libraries::default() };
        Some(Self { libraries, programs: folder.join("../bin") })
    }

    /// What `cuobjdump` says about a CUBIN.
    fn dump(&self, cubin: &[u8], option: &str) -> String {
        let file = tempfile::Builder::new().suffix(".cubin").tempfile().unwrap();
        std::fs::write(file.path(), cubin).unwrap();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(self.programs.clone()).chain(std::env::split_paths(&paths)))
                .unwrap();
        let output = Command::new(self.programs.join("cuobjdump"))
            .arg(option)
            .arg(file.path())
            // cuobjdump starts nvdisasm.
            .env("PATH", path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// One file for one target. Kept in the target folder, so that only what changed is compiled again.
struct Compiled {
    file: KernelFile,
    target: (i32, i32),
    cubin: Vec<u8>,
    /// How long it took, or how long reading it from the cache did.
    time: Duration,
    /// Stack and local memory of each function, in bytes.
    usage: BTreeMap<String, (u32, u32)>,
}

fn compile_all(wheels: &Wheels) -> Vec<Compiled> {
    let cache = Cache::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cubins"));
    let jobs: Vec<_> =
        TARGETS.iter().flat_map(|target| KERNEL_FILES.iter().map(move |file| (*file, *target))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((file, target)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            let start = Instant::now();
            let cubin = cache.get_or_compile(&wheels.libraries, file.source, file.name, target);
            let cubin = cubin.unwrap_or_else(|error| panic!("{} for {target:?}: {error}", file.name));
            let time = start.elapsed();
            let usage = usage(&wheels.dump(&cubin, "-res-usage"));
            done.push(Compiled { file, target, cubin, time, usage });
        }
        done
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Stack and local memory of each function, in bytes, from `cuobjdump -res-usage`.
fn usage(dump: &str) -> BTreeMap<String, (u32, u32)> {
    let mut all = BTreeMap::new();
    let mut function = None;
    for line in dump.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("Function ") {
            function = Some(name.trim_end_matches(':').to_owned());
        } else if let Some(name) = function.take_if(|_| line.starts_with("REG:")) {
            let number = |key: &str| -> u32 {
                line.split_whitespace().find_map(|word| word.strip_prefix(key)).unwrap().parse().unwrap()
            };
            all.insert(name, (number("STACK:"), number("LOCAL:")));
        }
    }
    all
}

/// Instructions of each function in order: address, name, and the address that a branch goes to.
fn instructions(dump: &str) -> BTreeMap<String, Vec<(u64, String, Option<u64>)>> {
    let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let mut function = String::new();
    for line in dump.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("Function : ") {
            name.clone_into(&mut function);
            continue;
        }
        let Some((address, rest)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) else {
            continue;
        };
        let (Ok(address), Some((text, _))) = (u64::from_str_radix(address, 16), rest.split_once(';')) else {
            continue;
        };
        let mut words = text.split_whitespace().skip_while(|word| word.starts_with('@'));
        let name = words.next().unwrap_or_default().to_owned();
        let to = words
            .last()
            .filter(|_| name.starts_with("BRA"))
            .and_then(|to| u64::from_str_radix(to.trim_start_matches("0x"), 16).ok());
        all.entry(function.clone()).or_default().push((address, name, to));
    }
    all
}

/// The names in the innermost loop with most instructions that begin with `wanted`.
fn busiest_loop(code: &[(u64, String, Option<u64>)], wanted: &[&str]) -> Vec<String> {
    let is_wanted = |name: &str| wanted.iter().any(|prefix| name.starts_with(prefix));
    let bodies = code.iter().filter_map(|(address, _, to)| {
        let to = (*to)?;
        (to <= *address).then(|| {
            let body = code.iter().filter(|(at, ..)| (to..=*address).contains(at));
            body.map(|(_, name, _)| name.clone()).collect::<Vec<_>>()
        })
    });
    // A jump to itself ends the code of every function and is no loop.
    bodies
        .filter(|body| body.len() > 1)
        .max_by_key(|body| body.iter().filter(|name| is_wanted(name)).count())
        .unwrap_or_default()
}

/// Instructions that reach memory.
const MEMORY: [&str; 8] = ["LD.", "LDG", "LDL", "STL", "ST.", "STG", "LDS", "ATOM"];
/// Products on tensor cores: of 16-bit floats and TF32, integers, 8-bit floats.
const TENSOR: [&str; 4] = ["HMMA", "IMMA", "QMMA", "OMMA"];

#[test]
fn kernels_compile_for_every_target_and_keep_to_registers() {
    let Some(wheels) = Wheels::find() else { return };
    let start = Instant::now();
    let compiled = compile_all(&wheels);
    println!("{} files x {} targets: {:.1?}", KERNEL_FILES.len(), TARGETS.len(), start.elapsed());
    for target in TARGETS {
        let of_target = || compiled.iter().filter(|one| one.target == target);
        let slowest = of_target().max_by_key(|one| one.time).unwrap();
        let sum: Duration = of_target().map(|one| one.time).sum();
        println!("  {target:?}: {sum:.1?} in all, {} {:.1?}", slowest.file.name, slowest.time);
    }

    let mut functions: BTreeMap<(i32, i32), BTreeSet<String>> = BTreeMap::new();
    for one in &compiled {
        for (function, used) in &one.usage {
            assert_eq!(*used, (0, 0), "{function} for {:?} spills", one.target);
            functions.entry(one.target).or_default().insert(function.clone());
        }
    }
    // What plans name has to be there.
    for (capability, known) in &functions {
        let target = Target { compute_capability: *capability, multiprocessors: 132, l2_bytes: 50 << 20 };
        for check in checks() {
            let plan: Result<LaunchPlan, _> = check.plan(&target);
            match plan {
                Ok(plan) => {
                    for (_, function) in plan.functions() {
                        assert!(known.contains(function), "{}: {function} for {capability:?}", check.name);
                    }
                }
                Err(LaunchError::Capability { needs, .. }) => assert!(needs > *capability),
                Err(error) => panic!("{}: {error}", check.name),
            }
        }
    }

    let of = |name: &str, target| compiled.iter().find(|one| one.file.name == name && one.target == target);
    for target in TARGETS {
        let stress = of("stress", target).unwrap();
        let code = instructions(&wheels.dump(&stress.cubin, "-sass"));
        let clean = |function: &str, wanted: &[&str], least: usize| {
            let body = busiest_loop(&code[function], wanted);
            let count =
                body.iter().filter(|name| wanted.iter().any(|prefix| name.starts_with(prefix))).count();
            assert!(count >= least, "{function} for {target:?}: {count} {wanted:?} in {body:?}");
            let touched = body.iter().find(|name| MEMORY.iter().any(|prefix| name.starts_with(prefix)));
            assert_eq!(touched, None, "{function} for {target:?} touches memory in its loop");
            (count, body.len())
        };
        // Eight pairs of two in each of eight unrolled rounds; nearly nothing else.
        let (count, all) = clean("fma_fp32", &["FFMA"], 128);
        assert!(all <= count + 8, "{count} of {all} instructions for {target:?} are FFMA");
        clean("fma_fp64", &["DFMA"], 128);
        for function in code.keys().filter(|name| name.starts_with("tensor_")) {
            clean(function, &TENSOR, 16);
        }
    }
    for target in TARGETS.into_iter().filter(|target| *target >= (8, 0)) {
        for file in ["attention_fp16", "attention_bf16"] {
            let code = instructions(&wheels.dump(&of(file, target).unwrap().cubin, "-sass"));
            for width in ["64", "128"] {
                let function = file.replacen("attention", &format!("attention_{width}"), 1);
                let body = busiest_loop(&code[&function], &TENSOR);
                let count = body.iter().filter(|name| name.starts_with("HMMA")).count();
                // 64 keys x (query products + value products) of a warp's 16 rows.
                let least = if width == "64" { 64 } else { 128 };
                assert!(count >= least, "{function} for {target:?}: {count} HMMA");
            }
        }
    }
}
