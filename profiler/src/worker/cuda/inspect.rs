//! What the driver sees, and whether the GPU works.

use super::super::engine::{Engine, Failure};
use super::super::message::{CudaWork, GpuInventory, GpuReport, Reply};
use super::super::say;
use super::load::Kernels;
use super::steps::CudaEngine;
use elastico_core::{Dtype, Seed};
use elastico_gpu::cubin::Compiler;
use elastico_gpu::cuda::Driver;
use elastico_gpu::cupti::Cupti;
use elastico_gpu::libraries::{Libraries, LibraryKind};
use elastico_workloads::{Memory, Op, StepProgram};

/// Says what the driver sees. Holds no context, so it leaves the GPU as it was.
pub(in crate::worker) fn inventory(libraries: &Libraries) -> Result<(), Failure> {
    let driver = Driver::load(libraries)?;
    let inventory = GpuInventory {
        devices: driver.devices()?,
        cuda: driver.version()?,
        driver: driver.release(),
        nvrtc: Compiler::open(libraries).ok().map(|compiler| {
            let (major, minor) = compiler.version();
            format!("{major}.{minor}")
        }),
        cublas_lt: libraries.open(LibraryKind::CublasLt).ok().and_then(|loaded| loaded.file_version()),
        cupti: Cupti::load(libraries).ok().map(|cupti| cupti.version().to_string()),
    };
    answer(&Reply::Inventory(Box::new(inventory)))
}

/// Runs one small kernel and looks at what it wrote.
pub(in crate::worker) fn probe(work: &CudaWork) -> Result<(), Failure> {
    let context = super::open(work)?;
    let op = Op::Elementwise {
        elements: 1 << 12,
        inputs: 1,
        outputs: 1,
        flops_per_element: 2,
        dtype: Dtype::Fp32,
    };
    let program = StepProgram { ops: vec![op], sections: Vec::new(), memory: Memory::default(), duty: 1.0 };
    let mut kernels = Kernels::new(&context, work);
    let mut engine = CudaEngine::build(&context, context.stream()?, &mut kernels, work, &program, Seed(1))?;
    engine.submit()?;
    engine.complete(&|| ())?;
    engine.check()?;
    let (free_bytes, total_bytes) = context.memory_info()?;
    let report = GpuReport {
        uuid: context.facts().uuid.clone(),
        multiprocessors: vec![engine.multiprocessors()],
        free_bytes,
        total_bytes,
        ..GpuReport::default()
    };
    answer(&Reply::Probed(Box::new(report)))
}

pub(super) fn answer(reply: &Reply) -> Result<(), Failure> {
    say(reply).map_err(|error| Failure::crash(format!("nobody reads the answer: {error}")))
}
