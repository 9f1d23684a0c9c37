//! The kernels on the CPU: the same sources behind a header of threads and blocks, every check against the reference.

use elastico_workloads::launch::{
    Action, Argument, Check, Fill, KernelCall, LaunchPlan, Target, checks, checksum,
};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const H200: Target = Target { compute_capability: (9, 0), multiprocessors: 132, l2_bytes: 50 << 20 };

/// The runner and the kernels; `None`, with the reason printed, where there is no compiler.
fn runner() -> Option<(PathBuf, PathBuf)> {
    static BUILT: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Option<(PathBuf, PathBuf)> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-kernels");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mock = here.join("../gpu/mock");
    let built = Command::new("sh").arg(mock.join("build.sh")).arg(&folder).output().expect("a shell");
    let kernels = folder.join("libhost_kernels.so");
    if built.status.code() == Some(77) || (built.status.success() && !kernels.exists()) {
        println!("skipped: {}", String::from_utf8_lossy(&built.stderr).trim());
        return None;
    }
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let runner = folder.join("runner");
    let compiled = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-w"])
        .arg(format!("-I{}", mock.display()))
        .arg(format!("-I{}", here.join("kernels").display()))
        .arg("-o")
        .arg(&runner)
        .arg(here.join("tests/host/runner.cpp"))
        .arg("-ldl")
        .output()
        .expect("the compiler that build.sh found");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some((runner, kernels))
}

fn kernel_line(job: &mut String, call: &KernelCall) {
    let [gx, gy, gz] = call.grid;
    let [bx, by, bz] = call.block;
    let (name, shared, count) = (call.function, call.shared_bytes, call.arguments.len());
    write!(job, "kernel {name} {gx} {gy} {gz} {bx} {by} {bz} {shared} {count}").unwrap();
    for argument in &call.arguments {
        match *argument {
            Argument::Buffer { index, offset } => write!(job, " b {index} {offset}"),
            Argument::U32(value) => write!(job, " 4 {value}"),
            Argument::I32(value) => write!(job, " 4 {}", value.cast_unsigned()),
            Argument::F32(value) => write!(job, " 4 {}", value.to_bits()),
            Argument::U64(value) => write!(job, " 8 {value}"),
            Argument::F64(value) => write!(job, " 8 {}", value.to_bits()),
        }
        .unwrap();
    }
    job.push('\n');
}

fn action_line(job: &mut String, action: &Action) {
    match action {
        Action::Kernel(call) => kernel_line(job, call),
        Action::Gemm(g) => {
            let (ta, tb) = (u8::from(g.transpose_a), u8::from(g.transpose_b));
            write!(job, "gemm {} {} {} {} {} {ta} {tb}", g.m, g.n, g.k, g.batch, g.dtype).unwrap();
            for operand in [g.a, g.b, g.c] {
                write!(job, " {} {}", operand.buffer, operand.offset).unwrap();
            }
            job.push('\n');
        }
        Action::Copy(copy) => writeln!(job, "copy {} {} {}", copy.from, copy.to, copy.bytes).unwrap(),
        Action::HostGap { .. } => {}
    }
}

/// The contents of a plan's buffers after its setup kernels and `steps` steps on the CPU. What no fill writes holds bytes
/// that are no number in any float format.
fn run(job: &mut String, folder: &Path, plan: &LaunchPlan, steps: u32) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let paths: Vec<_> = (0..plan.buffers.len()).map(|index| folder.join(index.to_string())).collect();
    for (path, buffer) in paths.iter().zip(&plan.buffers) {
        fs::write(path, vec![0xff; buffer.bytes as usize]).unwrap();
        writeln!(job, "buffer {} {}", buffer.bytes, path.display()).unwrap();
    }
    for index in plan.host_filled() {
        let mut bytes = vec![0; plan.buffers[index].bytes as usize];
        plan.contents(index, &mut bytes, 0);
        fs::write(&paths[index], bytes).unwrap();
    }
    // Activations keep the bytes that are no numbers: whoever reads what nobody wrote shows it.
    for action in &plan.setup {
        let Action::Kernel(call) = action else { panic!("setup is kernels alone") };
        let is_activations =
            call.touches.iter().any(|touch| plan.buffers[touch.buffer].label == "activations");
        if steps == 0 || !is_activations {
            action_line(job, action);
        }
    }
    for _ in 0..steps {
        plan.actions.iter().for_each(|action| action_line(job, action));
    }
    job.push_str("end\n");
    paths
}

fn execute(runner: &Path, kernels: &Path, job: &str) {
    let mut child = Command::new(runner).arg(kernels).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(job.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "the runner ended with {status}");
}

fn read(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn kernels_compute_what_the_reference_says() {
    let Some((runner, kernels)) = runner() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checks");
    let mut job = String::new();
    let planned: Vec<(Check, LaunchPlan, Vec<PathBuf>)> = checks()
        .into_iter()
        .enumerate()
        .map(|(index, check)| {
            let plan = check.plan(&H200).unwrap();
            let paths = run(&mut job, &folder.join(index.to_string()), &plan, check.steps);
            (check, plan, paths)
        })
        .collect();
    execute(&runner, &kernels, &job);
    let mut wrong = Vec::new();
    for (check, plan, paths) in &planned {
        match check.compare(plan, &read(paths)) {
            Ok(error) => println!("{:32} {error:.1e} of {:.0e}", check.name, check.tolerance),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    fs::remove_dir_all(folder).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fill_kernels_write_what_the_host_would() {
    let Some((runner, kernels)) = runner() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fills");
    let names = [
        "gemm 1 fp32",
        "gemm 1 fp16",
        "gemm 1 bf16",
        "gemm 1 fp8",
        "gemm 1 int8",
        "optimiser bf16",
        "atomic 300",
    ];
    let mut job = String::new();
    let planned: Vec<_> = checks()
        .into_iter()
        .filter(|check| names.contains(&check.name.as_str()))
        .map(|check| {
            let plan = check.plan(&H200).unwrap();
            let paths = run(&mut job, &folder.join(check.name.replace(' ', "-")), &plan, 0);
            (check, plan, paths)
        })
        .collect();
    assert_eq!(planned.len(), names.len());
    execute(&runner, &kernels, &job);
    for (check, plan, paths) in &planned {
        for (index, (found, buffer)) in read(paths).into_iter().zip(&plan.buffers).enumerate() {
            if buffer.fill == Fill::Held {
                continue;
            }
            let mut wanted = vec![0; found.len()];
            plan.contents(index, &mut wanted, 0);
            assert!(found == wanted, "{}: {} ({:?})", check.name, buffer.label, buffer.fill);
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_checksum_kernel_agrees_with_the_host() {
    let Some((runner, kernels)) = runner() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checksum");
    fs::create_dir_all(&folder).unwrap();
    let contents: Vec<u8> = (0..40_000_u32).map(|i| (i * 2_654_435) as u8).collect();
    fs::write(folder.join("data"), &contents).unwrap();
    fs::write(folder.join("sum"), [0; 16]).unwrap();
    let mut job = format!(
        "buffer 40000 {}\nbuffer 16 {}\n",
        folder.join("data").display(),
        folder.join("sum").display()
    );
    kernel_line(&mut job, &elastico_workloads::launch::checksum_call(0, 10_000, 1));
    job.push_str("end\n");
    execute(&runner, &kernels, &job);
    let sum = fs::read(folder.join("sum")).unwrap();
    assert_eq!(u64::from_le_bytes(sum[..8].try_into().unwrap()), checksum(&contents));
    fs::remove_dir_all(folder).unwrap();
}
