//! The stand-in device under the real client: its time, its sharing between processes, its faults, and its arithmetic.
//!
//! The driver is loaded by child processes only, which are this same test binary: a script holds for a whole process.

use crate::support::{scene, stand_ins};
use elastico_core::Dtype;
use elastico_gpu::cubin::compile;
use elastico_gpu::cuda::{Argument, Context, CudaError, Driver, Event, Memory, Stream};
use elastico_gpu::gemm::{Gemm, GemmShape};
use elastico_gpu::libraries::Libraries;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a child does; unset in the parent.
const ROLE: &str = "ELASTICO_TEST_ROLE";
const SOURCE: &str = "extern \"C\" __global__ void work(float *out, unsigned count, double factor) {\n\
    if (threadIdx.x < count) out[threadIdx.x] = (float)factor;\n}\n";

/// Runs as a child only.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let outcome = match role.as_str() {
        "steps" => steps(),
        "idle" => idle(),
        "memory" => memory(),
        "partitions" => partitions(),
        "products" => products(),
        "open" => open().map(|_| ()),
        "after_a_fault" => after_a_fault(),
        "source" => {
            source();
            Ok(())
        }
        other => panic!("no role {other}"),
    };
    if let Err(error) = outcome {
        println!("@error {error}");
        println!("@outcome {}", error.outcome());
    }
    println!("@done 1");
}

fn open() -> Result<Context, CudaError> {
    let driver = Driver::load(&Libraries::from_environment())?;
    let context = Context::new(&driver, 0)?;
    let facts = context.facts();
    println!("@name {}", facts.name);
    println!("@multiprocessors {}", facts.multiprocessors);
    println!("@mps {}", facts.mps_enabled);
    println!("@uuid {}", facts.uuid);
    Ok(context)
}

/// Tells the parent that this child is ready, and waits for the others.
fn meet() {
    let folder = std::env::var("ELASTICO_MOCK").expect("set by the parent");
    std::fs::write(Path::new(&folder).join(format!("ready-{}", std::process::id())), b"")
        .expect("its own folder");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !Path::new(&folder).join("go").exists() {
        assert!(Instant::now() < deadline, "the parent never said go");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Steps of four launches in a graph, two ahead; prints the median of their times.
fn run(context: &Context, stream: &Stream, seconds: f64) -> Result<(), CudaError> {
    let module = context.load_module(
        &compile(&Libraries::from_environment(), SOURCE, "work.cu", (9, 0)).expect("the stand-in compiles"),
    )?;
    let function = module.function("work")?;
    assert_eq!(function.parameter_bytes(), [8, 4, 8]);
    let out = context.allocate(4096)?;
    let arguments = [Argument::Memory(&out, 0), Argument::U32(32), Argument::F64(2.0)];
    let graph = stream.capture(|stream| {
        (0..4).try_for_each(|_| stream.launch(&function, [132, 1, 1], [128, 1, 1], 0, &arguments))
    })?;
    let events: Vec<Event> = (0..4).map(|_| context.event()).collect::<Result<_, _>>()?;
    meet();
    let begin = Instant::now();
    let mut times = Vec::new();
    stream.record(&events[0])?;
    for step in 1.. {
        stream.launch_graph(&graph)?;
        stream.record(&events[step % 4])?;
        if step >= 2 {
            let done = &events[(step - 1) % 4];
            done.synchronize()?;
            times.push(done.seconds_since(&events[(step - 2) % 4])?);
        }
        if begin.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    stream.synchronize()?;
    times.sort_by(f64::total_cmp);
    println!("@milliseconds {}", times[times.len() / 2] * 1e3);
    println!("@steps {}", times.len());
    Ok(())
}

fn steps() -> Result<(), CudaError> {
    let context = open()?;
    let seconds = std::env::var("ELASTICO_TEST_SECONDS").map_or(0.5, |text| text.parse().expect("a number"));
    run(&context, &context.stream()?, seconds)
}

/// A context with memory and nothing to do: the null co-runner.
fn idle() -> Result<(), CudaError> {
    let context = open()?;
    let _memory = context.allocate(1 << 30)?;
    meet();
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

fn memory() -> Result<(), CudaError> {
    let context = open()?;
    let (free, total) = context.memory_info()?;
    println!("@total {total}");
    println!("@free {free}");
    let taken = context.allocate(6_000_000_000)?;
    let small = context.allocate(1000)?;
    small.write(10, b"kept")?;
    let mut bytes = [0; 4];
    small.read(10, &mut bytes)?;
    assert_eq!(&bytes, b"kept");
    println!("@taken {}", free - context.memory_info()?.0);
    meet();
    // Until the other has tried.
    std::thread::sleep(Duration::from_millis(300));
    println!("@size {}", taken.bytes());
    Ok(())
}

fn partitions() -> Result<(), CudaError> {
    let context = open()?;
    let parts = context.split(30, 70)?;
    println!("@first {}", parts[0].multiprocessors());
    println!("@second {}", parts[1].multiprocessors());
    run(&context, &parts[0].stream()?, 0.3)
}

/// A fault of one call, and what the next ones say.
fn after_a_fault() -> Result<(), CudaError> {
    let context = open()?;
    let stream = context.stream()?;
    let first = stream.synchronize().expect_err("the script has it fail");
    println!("@first {}", first.code().expect("the driver's code"));
    if let Err(next) = context.memory_info() {
        println!("@next {}", next.code().expect("the driver's code"));
    }
    let again = Driver::load(&Libraries::from_environment())?.devices();
    println!("@devices {}", again.map_or_else(|error| error.to_string(), |found| found.len().to_string()));
    Ok(())
}

fn source() {
    let error = compile(&Libraries::from_environment(), SOURCE, "work.cu", (9, 0)).expect_err("as scripted");
    println!("@error {error}");
    println!("@outcome none");
    let other = compile(&Libraries::from_environment(), SOURCE, "other.cu", (9, 0)).expect("another file");
    println!("@image {}", String::from_utf8_lossy(&other).lines().next().unwrap_or_default());
}

struct Running {
    child: Child,
}

impl Running {
    /// Starts a child with the stand-ins in `folder`.
    fn start(libraries: &Path, mock: &Path, role: &str, environment: &[(&str, &str)]) -> Self {
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "device::child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("ELASTICO_MOCK", mock)
            .env("LD_LIBRARY_PATH", libraries)
            .env("ELASTICO_CUDA", libraries.join("libcuda.so.1"))
            .env("ELASTICO_NVRTC", libraries.join("libnvrtc.so.13"))
            .env("ELASTICO_CUBLASLT", libraries.join("libcublasLt.so.13"))
            .env("CUDA_MPS_PIPE_DIRECTORY", mock.join("none"))
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this test");
        Self { child }
    }

    /// What it printed behind `@`.
    fn finish(self) -> BTreeMap<String, String> {
        let output = self.child.wait_with_output().expect("it ran");
        let text = String::from_utf8_lossy(&output.stdout);
        let said: BTreeMap<String, String> = text
            .lines()
            // The harness writes in front of the first line.
            .filter_map(|line| line.split_once('@')?.1.split_once(' '))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        assert!(said.contains_key("done"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        said
    }
}

fn say_go(mock: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let ready = || {
        let names = std::fs::read_dir(mock).expect("it is there").flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("ready-")).count()
    };
    while ready() < count {
        assert!(Instant::now() < deadline, "only {} of {count} children are ready", ready());
        std::thread::sleep(Duration::from_millis(2));
    }
    std::fs::write(mock.join("go"), b"").expect("it is there");
}

/// Runs children together, each a role and its environment.
fn together(lines: &str, children: &[(&str, &[(&str, &str)])]) -> Option<Vec<BTreeMap<String, String>>> {
    let libraries = stand_ins()?;
    let mock = scene(lines);
    let running: Vec<_> = children
        .iter()
        .map(|(role, environment)| Running::start(libraries, mock.path(), role, environment))
        .collect();
    say_go(mock.path(), children.len());
    Some(running.into_iter().map(Running::finish).collect())
}

fn number(said: &BTreeMap<String, String>, key: &str) -> f64 {
    said.get(key).unwrap_or_else(|| panic!("no {key} in {said:?}")).parse().expect("a number")
}

fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() < tolerance, "{value} is not {expected} within {tolerance}");
}

const FIVE_MILLISECONDS: &str = "kernel_microseconds * 1250\n";

#[test]
fn two_processes_halve_each_other_and_an_idle_one_does_nothing() {
    let Some(alone) = together(FIVE_MILLISECONDS, &[("steps", &[])]) else { return };
    assert_near(number(&alone[0], "milliseconds"), 5.0, 0.02);
    assert!(alone[0]["name"].starts_with("Stand-in"));
    let null = together(FIVE_MILLISECONDS, &[("steps", &[]), ("idle", &[])]).unwrap();
    assert_near(number(&null[0], "milliseconds"), 5.0, 0.01);
    let pair = together(FIVE_MILLISECONDS, &[("steps", &[]), ("steps", &[])]).unwrap();
    for side in &pair {
        assert_near(number(side, "milliseconds"), 10.0, 0.05);
    }
    let mild = "kernel_microseconds * 1250\ncontention 0.5\n";
    let pair = together(mild, &[("steps", &[]), ("steps", &[])]).unwrap();
    assert_near(number(&pair[0], "milliseconds"), 7.5, 0.05);
}

#[test]
fn mps_shares_limit_and_do_not_add_up_to_more_than_the_device() {
    let Some(_) = stand_ins() else { return };
    let pipes = tempfile::tempdir().unwrap();
    std::fs::write(pipes.path().join("control"), b"").unwrap();
    let pipes = pipes.path().to_str().unwrap();
    let client =
        |percent| [("CUDA_MPS_PIPE_DIRECTORY", pipes), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent)];
    let (small, large) = (client("30"), client("70"));
    let alone = together(FIVE_MILLISECONDS, &[("steps", &small)]).unwrap();
    assert_eq!(alone[0]["multiprocessors"], "40", "39.6 SMs are 20 whole TPCs");
    assert_eq!(alone[0]["mps"], "true");
    assert_near(number(&alone[0], "milliseconds"), 5.0 * 132.0 / 40.0, 0.02);
    let pair = together(FIVE_MILLISECONDS, &[("steps", &small), ("steps", &large)]).unwrap();
    assert_near(number(&pair[0], "milliseconds"), 5.0 * 134.0 / 40.0, 0.05);
    assert_near(number(&pair[1], "milliseconds"), 5.0 * 134.0 / 94.0, 0.05);
    let ignored = together("ignore_percentage 1\n", &[("steps", &small)]).unwrap();
    assert_eq!(ignored[0]["multiprocessors"], "132");
    let disabled = together("mps_disabled 1\n", &[("steps", &small)]).unwrap();
    assert_eq!((disabled[0]["mps"].as_str(), disabled[0]["multiprocessors"].as_str()), ("false", "132"));
}

#[test]
fn a_killed_process_is_forgotten() {
    let Some(libraries) = stand_ins() else { return };
    let mock = scene("kernel_microseconds * 1250\nmemory 10000000000\n");
    let mut victim = Running::start(libraries, mock.path(), "steps", &[("ELASTICO_TEST_SECONDS", "60")]);
    let survivor = Running::start(libraries, mock.path(), "steps", &[("ELASTICO_TEST_SECONDS", "0.8")]);
    say_go(mock.path(), 2);
    std::thread::sleep(Duration::from_millis(150));
    victim.child.kill().unwrap();
    victim.child.wait().unwrap();
    assert_near(number(&survivor.finish(), "milliseconds"), 5.0, 0.02);
    let later = Running::start(libraries, mock.path(), "memory", &[]).finish();
    assert_near(number(&later, "free"), 9.6e9, 1e-6);
}

#[test]
fn memory_is_one_for_all_processes() {
    let Some(libraries) = stand_ins() else { return };
    let mock = scene("memory 10000000000\n");
    let first = Running::start(libraries, mock.path(), "memory", &[]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_dir(mock.path())
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("ready-"))
    {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
    let second = Running::start(libraries, mock.path(), "memory", &[]).finish();
    assert_eq!(second["outcome"], "oom", "{second:?}");
    assert!(number(&second, "free") < 3.3e9);
    std::fs::write(mock.path().join("go"), b"").unwrap();
    let first = first.finish();
    assert_near(number(&first, "taken"), 6e9, 0.001);
    assert!(!first.contains_key("error"), "{first:?}");
}

#[test]
fn scripted_faults_come_where_and_when_they_are_scripted() {
    let cases = [
        ("init_result 100\n", "device_lost", "no device"),
        ("driver_version 12040\n", "device_lost", "12.4"),
        ("fault cuMemAlloc 2 after 1\n", "oom", "cuMemAlloc"),
        ("fault cuGraphLaunch 719 after 3\n", "worker_crash", "719"),
        ("fault cuEventSynchronize 700 after 2\n", "worker_crash", "700"),
        ("fault cuDevicePrimaryCtxRetain 999\n", "device_lost", "999"),
        ("fault cuDevicePrimaryCtxRetain 805\n", "mps_fault", "805"),
    ];
    for (lines, outcome, part) in cases {
        let Some(libraries) = stand_ins() else { return };
        let mock = scene(lines);
        std::fs::write(mock.path().join("go"), b"").unwrap();
        let said = Running::start(libraries, mock.path(), "steps", &[]).finish();
        assert_eq!(said.get("outcome").map(String::as_str), Some(outcome), "{lines}: {said:?}");
        assert!(said["error"].contains(part), "{lines}: {said:?}");
    }
}

#[test]
fn faults_of_the_context_stay_and_others_pass() {
    let Some(libraries) = stand_ins() else { return };
    for code in ["700", "719", "46", "999", "214"] {
        let mock = scene(&format!("fault cuStreamSynchronize {code}\n"));
        let said = Running::start(libraries, mock.path(), "after_a_fault", &[]).finish();
        assert_eq!((said["first"].as_str(), said["next"].as_str()), (code, code), "{said:?}");
        assert_ne!(said["devices"], "1", "{said:?}");
    }
    let mock = scene("fault cuStreamSynchronize 2\n");
    let said = Running::start(libraries, mock.path(), "after_a_fault", &[]).finish();
    assert_eq!((said["first"].as_str(), said.get("next")), ("2", None));
    assert_eq!(said["devices"], "1");
}

#[test]
fn the_stand_in_compiler_fails_where_it_is_told_to() {
    let Some(libraries) = stand_ins() else { return };
    let mock = scene("nvrtc_error work.cu 7 identifier \"y\" is undefined\n");
    let said = Running::start(libraries, mock.path(), "source", &[]).finish();
    assert!(said["error"].contains("work.cu:7: identifier \"y\" is undefined"), "{said:?}");
    assert_eq!(said["image"], "ELASTICO-CUBIN sm_90");
}

#[test]
fn a_fault_for_one_side_or_once_spares_the_others() {
    let lines = "fault cuStreamSynchronize 719 process co_runner\n";
    let sides = [("ELASTICO_SIDE", "subject")];
    let other = [("ELASTICO_SIDE", "co_runner")];
    let Some(said) = together(lines, &[("steps", &sides), ("steps", &other)]) else { return };
    assert!(!said[0].contains_key("error"), "{said:?}");
    assert_eq!(said[1]["outcome"], "worker_crash");

    let said = together("fault cuStreamSynchronize 719 once\n", &[("steps", &[]), ("steps", &[])]).unwrap();
    assert_eq!(said.iter().filter(|said| said.contains_key("error")).count(), 1, "{said:?}");
}

#[test]
fn work_can_hang_and_a_context_can_take_its_time() {
    let Some(libraries) = stand_ins() else { return };
    let mock = scene("fault cuGraphLaunch hang after 5\n");
    std::fs::write(mock.path().join("go"), b"").unwrap();
    let mut stuck = Running::start(libraries, mock.path(), "steps", &[]);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(stuck.child.try_wait().unwrap().is_none(), "it waits for an event that never completes");
    stuck.child.kill().unwrap();
    stuck.child.wait().unwrap();

    let mock = scene("context_milliseconds 400\n");
    let begin = Instant::now();
    Running::start(libraries, mock.path(), "open", &[]).finish();
    assert!(begin.elapsed() >= Duration::from_millis(400));
}

#[test]
fn visible_devices_are_chosen_by_index_and_uuid() {
    let Some(libraries) = stand_ins() else { return };
    let lines = "devices 2\nmig MIG-57a1d100-0000-0000-0000-000000000001 3g.71gb 60 71000000000 1\n";
    let seen = |visible: &str| {
        let mock = scene(lines);
        Running::start(libraries, mock.path(), "open", &[("CUDA_VISIBLE_DEVICES", visible)]).finish()
    };
    let first = seen("0");
    assert_eq!(first["uuid"], "GPU-57a1d100-e1a5-4c00-8000-000000000000");
    assert_eq!(seen(&first["uuid"])["uuid"], first["uuid"]);
    let instance = seen("MIG-57a1d100-0000-0000-0000-000000000001");
    assert_eq!(instance["multiprocessors"], "60");
    assert!(instance["name"].ends_with("MIG 3g.71gb"), "{instance:?}");
    assert!(seen("")["error"].contains("no device"));
    assert!(seen("GPU-00000000-0000-0000-0000-000000000000")["error"].contains("no device"));
}

#[test]
fn partitions_of_the_multiprocessors_have_their_share_of_the_rate() {
    let Some(said) = together(FIVE_MILLISECONDS, &[("partitions", &[])]) else { return };
    let (first, second) = (number(&said[0], "first"), number(&said[0], "second"));
    assert!(first % 8.0 == 0.0 && first + second <= 132.0, "{said:?}");
    assert_near(number(&said[0], "milliseconds"), 5.0 * 132.0 / first, 0.02);
}

#[test]
fn a_driver_without_a_function_is_refused_by_its_name() {
    let Some(_) = stand_ins() else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("mock/cuda.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-DWITHOUT_cuGreenCtxStreamCreate", "-o"])
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(built.success());
    let mock = scene("");
    let cuda = [("ELASTICO_CUDA", library.to_str().unwrap())];
    let said = Running::start(folder.path(), mock.path(), "open", &cuda).finish();
    assert!(said["error"].contains("cuGreenCtxStreamCreate"), "{said:?}");
}

/// A number of a format, and what it is worth: multiples of 1/8 up to 2, which all formats but INT8 hold exactly.
fn encode(dtype: Dtype, value: i32) -> Vec<u8> {
    let number = value as f32 / 8.0;
    match dtype {
        Dtype::Fp64 => f64::from(number).to_ne_bytes().to_vec(),
        Dtype::Fp32 | Dtype::Tf32 => number.to_ne_bytes().to_vec(),
        Dtype::Bf16 => ((number.to_bits() >> 16) as u16).to_ne_bytes().to_vec(),
        Dtype::Fp16 => small(value, 5, 10).to_ne_bytes().to_vec(),
        Dtype::Fp8 => vec![small(value, 4, 3) as u8],
        Dtype::Int8 => vec![(value as i8).cast_unsigned()],
    }
}

/// value / 8 in a format of these bits; exact for the values used.
fn small(value: i32, exponent: u32, mantissa: u32) -> u16 {
    if value == 0 {
        return 0;
    }
    let magnitude = value.unsigned_abs();
    let power = magnitude.ilog2();
    let fraction = (magnitude << mantissa >> power) & ((1 << mantissa) - 1);
    let bias = (1 << (exponent - 1)) - 1;
    let sign = u32::from(value < 0) << (exponent + mantissa);
    (sign | ((power + bias - 3) << mantissa) | fraction) as u16
}

fn decode(dtype: Dtype, bytes: &[u8]) -> f64 {
    let half = || u16::from_ne_bytes([bytes[0], bytes[1]]);
    let wide = |bits: u16, exponent: u32, mantissa: u32| {
        let power = i32::from(bits >> mantissa) & ((1 << exponent) - 1);
        let fraction = f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
        let sign = if bits >> (exponent + mantissa) & 1 == 1 { -1.0 } else { 1.0 };
        let bias = (1 << (exponent - 1)) - 1;
        if power == 0 {
            sign * fraction * 2_f64.powi(1 - bias)
        } else {
            sign * (1.0 + fraction) * 2_f64.powi(power - bias)
        }
    };
    match dtype {
        Dtype::Fp64 => f64::from_ne_bytes(bytes[..8].try_into().expect("eight")),
        Dtype::Fp32 | Dtype::Tf32 => f64::from(f32::from_ne_bytes(bytes[..4].try_into().expect("four"))),
        Dtype::Bf16 => f64::from(f32::from_bits(u32::from(half()) << 16)),
        Dtype::Fp16 => wide(half(), 5, 10),
        Dtype::Fp8 => wide(u16::from(bytes[0]), 4, 3),
        Dtype::Int8 => f64::from(i32::from_ne_bytes(bytes[..4].try_into().expect("four"))),
    }
}

/// Products of all formats and layouts on the stand-in against plain loops; prints the largest relative error.
fn products() -> Result<(), CudaError> {
    let context = open()?;
    let stream = context.stream()?;
    let libraries = Libraries::from_environment();
    let (m, n, k, batch) = (16_u64, 48_u64, 32_u64, 2_u64);
    let value =
        |seed: u64, index: u64| i32::try_from((index * 2_654_435_761 + seed * 97) % 23).expect("small") - 11;
    for dtype in [Dtype::Fp64, Dtype::Fp32, Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Fp8, Dtype::Int8] {
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let shape = GemmShape { m, n, k, batch, dtype, transpose_a, transpose_b };
            let gemm = Gemm::new(&context, &libraries, &shape).expect("the stand-in serves it");
            let sizes = shape.bytes().expect("it is small");
            let buffers: Vec<Memory> =
                sizes.iter().map(|bytes| context.allocate(*bytes)).collect::<Result<_, _>>()?;
            for (seed, (buffer, count)) in (0..2).zip(buffers.iter().zip([m * k, k * n])) {
                let bytes: Vec<u8> =
                    (0..count * batch).flat_map(|index| encode(dtype, value(seed, index))).collect();
                buffer.write(0, &bytes)?;
            }
            let graph = stream.capture(|stream| -> Result<(), CudaError> {
                gemm.run(stream, (&buffers[0], 0), (&buffers[1], 0), (&buffers[2], 0))
                    .expect("it can be captured");
                Ok(())
            })?;
            stream.launch_graph(&graph)?;
            stream.synchronize()?;
            let mut bytes = vec![0; usize::try_from(sizes[2]).expect("it is small")];
            buffers[2].read(0, &mut bytes)?;
            let element = bytes.len() / usize::try_from(m * n * batch).expect("it is small");
            let unit = if dtype == Dtype::Int8 { 1.0 } else { 1.0 / 8.0 };
            let rounding = match dtype {
                Dtype::Fp8 => 1.0 / 16.0,
                Dtype::Bf16 => 1.0 / 256.0,
                Dtype::Fp16 => 1.0 / 2048.0,
                _ => 1e-7,
            };
            for (index, found) in (0..m * n * batch).zip(bytes.chunks(element)) {
                let (matrix, i, j) = (index / (m * n), index / n % m, index % n);
                let sum: i32 = (0..k)
                    .map(|l| {
                        let a = if transpose_a { l * m + i } else { i * k + l };
                        let b = if transpose_b { j * k + l } else { l * n + j };
                        value(0, matrix * m * k + a) * value(1, matrix * k * n + b)
                    })
                    .sum();
                let (found, expected) = (decode(dtype, found), f64::from(sum) * unit * unit);
                assert!(
                    (found - expected).abs() <= rounding * expected.abs() + 2e-3,
                    "{shape} at {index}: {found} is not {expected}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn products_of_all_formats_are_right_in_functional_mode() {
    let Some(libraries) = stand_ins() else { return };
    let mock = scene("functional 1\n");
    let said = Running::start(libraries, mock.path(), "products", &[]).finish();
    assert!(!said.contains_key("error"), "{said:?}");
}
