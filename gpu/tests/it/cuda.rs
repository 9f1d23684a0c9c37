//! The face of the driver against the stand-in libcuda: what works, what is refused, and what survives a fault.

use crate::support::{alone, compile, stand_ins};
use elastico_core::{Hint as _, Outcome};
use elastico_gpu::cuda::{Argument, Context, CudaError, Driver, Module, Stream};
use elastico_gpu::libraries::Libraries;
use std::path::Path;
use std::time::{Duration, Instant};

/// An image as the stand-in NVRTC makes it; the stand-in driver runs its kernels as time without effect.
const IMAGE: &str =
    "ELASTICO-CUBIN sm_90\nextern \"C\" __global__ void add(float *x, const float *y, unsigned count) {}\n";

fn libraries() -> Libraries {
    Libraries::from_environment()
}

fn context() -> Context {
    let driver = Driver::load(&libraries()).expect("the stand-in");
    Context::new(&driver, 0).expect("the stand-in's device")
}

fn module(context: &Context) -> Module {
    context.load_module(IMAGE.as_bytes()).expect("the stand-in takes its own images")
}

#[test]
fn a_device_is_described() {
    alone("cuda::a_device_is_described", "devices 2\nname Stand-in H200\n", || {
        let driver = Driver::load(&libraries()).unwrap();
        assert_eq!(driver.version().unwrap(), (13, 0));
        let devices = driver.devices().unwrap();
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[0].name, "Stand-in H200");
        assert_eq!((devices[0].compute_capability, devices[0].multiprocessors), ((9, 0), 132));
        assert!(devices[0].uuid.starts_with("GPU-") && devices[0].uuid.len() == 40, "{}", devices[0].uuid);
        assert_ne!(devices[0].uuid, devices[1].uuid);
        assert!(!devices[0].mps_enabled);
        let error = Context::new(&driver, 2).unwrap_err();
        assert_eq!(error, CudaError::Device { index: 2, count: 2 });
    });
}

#[test]
fn memory_is_checked_at_its_ends_and_given_back() {
    alone("cuda::memory_is_checked_at_its_ends_and_given_back", "", || {
        let context = context();
        let (free, total) = context.memory_info().unwrap();
        assert!(free <= total);
        let memory = context.allocate(1000).unwrap();
        memory.write(990, &[7; 10]).unwrap();
        let mut back = [0; 10];
        memory.read(990, &mut back).unwrap();
        assert_eq!(back, [7; 10]);
        let error = memory.write(991, &[0; 10]).unwrap_err();
        let expected = CudaError::Bounds { operation: "write", offset: 991, bytes: 10, size: 1000 };
        assert_eq!(error, expected);
        assert!(memory.read(u64::MAX, &mut back).is_err());
        memory.fill(3).unwrap();
        memory.read(0, &mut back).unwrap();
        assert_eq!(back, [3; 10]);

        let pinned = context.allocate_pinned(16).unwrap();
        pinned.read(0, &mut back).unwrap();
        assert_eq!(back, [0; 10], "pinned memory begins with zeros");
        assert!(pinned.write(10, &[0; 7]).is_err());
        assert!(context.allocate(0).unwrap().write(0, &[]).is_ok());

        let large = context.allocate(1 << 30).unwrap();
        assert!(context.memory_info().unwrap().0 + (1 << 30) <= free);
        drop((memory, pinned, large));
        assert_eq!(context.memory_info().unwrap().0, free);
        let error = context.allocate(1 << 50).unwrap_err();
        assert_eq!((error.code(), error.outcome()), (Some(2), Outcome::Oom));
        assert!(!context.is_lost(), "a full device is no lost one");
    });
}

#[test]
fn copies_and_launches_run_in_the_order_of_their_stream() {
    alone(
        "cuda::copies_and_launches_run_in_the_order_of_their_stream",
        "kernel_microseconds add 2000\n",
        || {
            let context = context();
            let function = module(&context).function("add").unwrap();
            let stream = context.stream().unwrap();
            let (from, to) = (context.allocate_pinned(64).unwrap(), context.allocate_pinned(64).unwrap());
            let (x, y) = (context.allocate(64).unwrap(), context.allocate(64).unwrap());
            from.write(0, &[9; 64]).unwrap();
            stream.copy_to_device(&from, &x, 64).unwrap();
            stream.copy_on_device(&x, &y, 64).unwrap();
            let (before, after) = (context.event().unwrap(), context.sleeping_event().unwrap());
            stream.record(&before).unwrap();
            let arguments = [Argument::Memory(&x, 0), Argument::Memory(&y, 0), Argument::U32(16)];
            stream.launch(&function, [1, 1, 1], [16, 1, 1], 0, &arguments).unwrap();
            stream.record(&after).unwrap();
            stream.copy_to_host(&y, &to, 64).unwrap();
            assert!(!after.is_complete().unwrap(), "the kernel takes 2 ms");
            assert_eq!(after.seconds_since(&before).unwrap_err().code(), Some(600));
            stream.synchronize().unwrap();
            assert!(stream.is_idle().unwrap() && after.is_complete().unwrap());
            let seconds = after.seconds_since(&before).unwrap();
            assert!((0.0018..0.01).contains(&seconds), "{seconds}");
            let mut back = [0; 64];
            to.read(0, &mut back).unwrap();
            assert_eq!(back, [9; 64]);
            assert!(stream.copy_to_host(&y, &to, 65).is_err());
        },
    );
}

#[test]
fn a_wrong_launch_never_reaches_the_driver() {
    alone("cuda::a_wrong_launch_never_reaches_the_driver", "fault cuLaunchKernel 1 always\n", || {
        let context = context();
        let module = module(&context);
        assert_eq!(module.function("subtract").unwrap_err().code(), Some(500));
        let function = module.function("add").unwrap();
        assert_eq!(function.parameter_bytes(), [8, 8, 4]);
        let stream = context.stream().unwrap();
        let x = context.allocate(64).unwrap();
        let memory = Argument::Memory(&x, 0);
        let launch = |grid, block, arguments: &[Argument<'_>]| {
            stream.launch(&function, grid, block, 0, arguments).unwrap_err()
        };
        let error = launch([1, 1, 1], [1, 1, 1], &[memory, memory]);
        assert!(matches!(error, CudaError::Arguments { .. }), "{error}");
        let error = launch([1, 1, 1], [1, 1, 1], &[memory, memory, Argument::U64(1)]);
        assert_eq!(error.to_string(), "kernel `add` takes arguments of [8, 8, 4] bytes, not [8, 8, 8]");
        let good = [memory, memory, Argument::U32(1)];
        assert!(matches!(launch([0, 1, 1], [1, 1, 1], &good), CudaError::Shape { .. }));
        assert!(matches!(launch([1, 1, 1], [1025, 1, 1], &good), CudaError::Shape { .. }));
        assert!(matches!(launch([1, 1, 1], [u32::MAX, 2, 1], &good), CudaError::Shape { .. }));
        let beyond = [Argument::Memory(&x, 65), memory, Argument::U32(1)];
        assert!(matches!(launch([1, 1, 1], [1, 1, 1], &beyond), CudaError::Bounds { .. }));
        // The only one that gets there.
        assert_eq!(launch([1, 1, 1], [1, 1, 1], &good).code(), Some(1));
        assert_eq!(context.load_module(b"\x7fELF and no more").unwrap_err().code(), Some(200));
    });
}

#[test]
fn a_graph_keeps_what_it_uses_and_a_failed_capture_frees_the_stream() {
    let script = "kernel_microseconds add 100\n";
    alone("cuda::a_graph_keeps_what_it_uses_and_a_failed_capture_frees_the_stream", script, || {
        let context = context();
        let (free, _) = context.memory_info().unwrap();
        let function = module(&context).function("add").unwrap();
        let (stream, second) = (context.stream().unwrap(), context.stream().unwrap());
        let (fork, join) = (context.event().unwrap(), context.event().unwrap());
        let to = context.allocate_pinned(1 << 20).unwrap();
        to.write(0, &[5; 8]).unwrap();
        let x = context.allocate(1 << 20).unwrap();
        let graph = stream
            .capture::<CudaError>(|stream| {
                let arguments = [Argument::Memory(&x, 0), Argument::Memory(&x, 0), Argument::U32(1)];
                stream.launch(&function, [4, 1, 1], [32, 1, 1], 0, &arguments)?;
                stream.record(&fork)?;
                second.wait_for(&fork)?;
                second.copy_to_host(&x, &to, 1 << 20)?;
                stream.launch(&function, [4, 1, 1], [32, 1, 1], 0, &arguments)?;
                second.record(&join)?;
                stream.wait_for(&join)
            })
            .unwrap();
        assert_eq!(graph.nodes(), 3);
        // Owners may go: the graph holds the memory and the kernel.
        drop((x, to, function));
        assert!(context.memory_info().unwrap().0 < free);
        for _ in 0..3 {
            stream.launch_graph(&graph).unwrap();
        }
        stream.synchronize().unwrap();
        drop(graph);
        assert_eq!(context.memory_info().unwrap().0, free);

        // An error of the work, and a call that cannot be captured.
        let error = stream.capture::<CudaError>(|_| Err(CudaError::Foreign { what: "a test" })).unwrap_err();
        assert_eq!(error, CudaError::Foreign { what: "a test" });
        let error = stream.capture::<CudaError>(Stream::synchronize).unwrap_err();
        assert!(matches!(error.code(), Some(900..=907)), "{error}");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stream.capture::<CudaError>(|_| panic!("in the work"))
        }));
        assert!(panicked.is_err());
        assert_eq!(stream.capture::<CudaError>(|_| Ok(())).unwrap().nodes(), 0);
        stream.synchronize().unwrap();
    });
}

#[test]
fn multiprocessors_are_split_as_the_chip_allows() {
    alone("cuda::multiprocessors_are_split_as_the_chip_allows", "", || {
        let context = context();
        let [first, second] = context.split(50, 50).unwrap();
        assert_eq!(first.multiprocessors() + second.multiprocessors(), 132);
        let stream = second.stream().unwrap();
        assert_eq!(stream.multiprocessors(), second.multiprocessors());
        drop((first, second));
        let function = module(&context).function("add").unwrap();
        let x = context.allocate(64).unwrap();
        let arguments = [Argument::Memory(&x, 0), Argument::Memory(&x, 0), Argument::U32(1)];
        stream.launch(&function, [1, 1, 1], [32, 1, 1], 0, &arguments).unwrap();
        stream.synchronize().unwrap();
        drop(stream);
        let [first, second] = context.split(30, 60).unwrap();
        assert!(first.multiprocessors() + second.multiprocessors() <= 132);
        assert!(first.multiprocessors() >= 32 && second.multiprocessors() >= 72, "{first:?} {second:?}");
        for (first, second) in [(0, 50), (60, 50), (100, 1)] {
            let error = context.split(first, second).unwrap_err();
            assert!(matches!(error, CudaError::Split { .. }), "{error}");
            assert_eq!(error.outcome(), Outcome::Unsupported);
        }
    });
}

#[test]
fn after_a_fault_nothing_panics_or_hangs() {
    let script = "fault cuStreamSynchronize 700\nkernel_microseconds add 100\n";
    alone("cuda::after_a_fault_nothing_panics_or_hangs", script, || {
        let start = Instant::now();
        let context = context();
        let function = module(&context).function("add").unwrap();
        let stream = context.stream().unwrap();
        let event = context.event().unwrap();
        let (x, pinned) = (context.allocate(64).unwrap(), context.allocate_pinned(64).unwrap());
        let arguments = [Argument::Memory(&x, 0), Argument::Memory(&x, 0), Argument::U32(1)];
        let graph = stream
            .capture::<CudaError>(|stream| stream.launch(&function, [1, 1, 1], [1, 1, 1], 0, &arguments))
            .unwrap();
        stream.launch_graph(&graph).unwrap();
        let error = stream.synchronize().unwrap_err();
        assert_eq!((error.code(), error.outcome()), (Some(700), Outcome::WorkerCrash));
        assert_eq!(error.to_string(), "cuStreamSynchronize failed with CUDA error 700 (illegal address)");
        assert!(context.is_lost());
        assert_eq!(context.memory_info().unwrap_err().code(), Some(700), "the fault stays");
        drop((graph, x, pinned, event, stream, function, context));
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn faults_of_opening_say_what_to_do() {
    // The child finds what is expected of it in a comment of its script.
    for script in [
        "init_result 100 # device_lost: CUDA_VISIBLE_DEVICES",
        "init_result 803 # device_lost: reboot",
        "init_result 999 # device_lost: dmesg",
        "driver_version 12080 # device_lost: r580",
        "fault cuDevicePrimaryCtxRetain 46 # unsupported: nvidia-smi -c DEFAULT",
        "fault cuDevicePrimaryCtxRetain 805 # mps_fault: MPS daemon's log",
        "fault cuDevicePrimaryCtxRetain 999 # device_lost: dmesg",
        "fault cuDevicePrimaryCtxRetain 2 # oom: free device memory",
    ] {
        let mut is_child = false;
        alone("cuda::faults_of_opening_say_what_to_do", script, || {
            is_child = true;
            let folder = std::env::var_os("ELASTICO_MOCK").unwrap();
            let script = std::fs::read_to_string(Path::new(&folder).join("script")).unwrap();
            let (outcome, hint) = script.split_once("# ").unwrap().1.split_once(": ").unwrap();
            let opened = Driver::load(&libraries()).and_then(|driver| Context::new(&driver, 0));
            let Err(error) = opened else { panic!("no fault by `{script}`") };
            assert_eq!(error.outcome().as_str(), outcome, "{error}");
            assert!(error.hint().unwrap().contains(hint), "{error}: {:?}", error.hint());
        });
        if is_child {
            return;
        }
    }
}

#[test]
fn a_function_that_a_driver_lacks_is_named() {
    if stand_ins().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "cuda.c", "libcuda.so.1", &["-DWITHOUT_cuGreenCtxCreate"]);
    let libraries = Libraries { cuda: Some(folder.path().join("libcuda.so.1")), ..Libraries::default() };
    let error = Driver::load(&libraries).unwrap_err();
    let CudaError::Symbol { symbol, version, .. } = &error else { panic!("{error}") };
    assert_eq!((*symbol, *version), ("cuGreenCtxCreate", Some((13, 0))));
    assert!(error.to_string().ends_with("(it serves CUDA 13.0)"), "{error}");
}
