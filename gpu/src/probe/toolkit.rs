//! NVRTC and cuBLASLt: found where, of which version, and whether they work.

use super::{Area, Check, ProbeOptions, Status};
use crate::cubin::{CompileError, Compiler};
use crate::gemm::{self, GemmError};
use crate::libraries::LibraryError;
use elastico_core::Hint as _;
use std::time::Instant;

/// Small, and with the parts that need the builtins library.
const SOURCE: &str =
    "extern \"C\" __global__ void probe(float *x) { x[threadIdx.x] = __expf(x[blockIdx.x]); }\n";

const fn status_of(error: &LibraryError) -> Status {
    if matches!(error, LibraryError::Absent { .. }) { Status::Absent } else { Status::Blocked }
}

pub(super) fn nvrtc(options: &ProbeOptions) -> Check {
    let check = |status, finding: String| Check::new("nvrtc.library", Area::Nvrtc, status, finding);
    let refusal = |error: &CompileError| {
        let status = match error {
            CompileError::Library(error) => status_of(error),
            _ => Status::Blocked,
        };
        Check { fix: error.hint(), ..check(status, error.to_string()) }
    };
    let compiler = match Compiler::open(&options.libraries) {
        Ok(compiler) => compiler,
        Err(error) => return refusal(&error),
    };
    let (major, minor) = compiler.version();
    let place = compiler.path().display();
    let targets: &[(i32, i32)] = match options.compute_capabilities.as_slice() {
        [] => &[(9, 0)],
        targets => targets,
    };
    let mut names = Vec::new();
    let start = Instant::now();
    for target in targets {
        if let Err(error) = compiler.compile(SOURCE, "probe.cu", *target) {
            return refusal(&error);
        }
        names.push(format!("{}.{}", target.0, target.1));
    }
    let milliseconds = start.elapsed().as_millis();
    check(
        Status::Ok,
        format!("NVRTC {major}.{minor}, compiles for {} in {milliseconds} ms, {place}", names.join(" and ")),
    )
}

pub(super) fn cublas_lt(options: &ProbeOptions) -> Check {
    let check = |status, finding: String| Check::new("cublas_lt.library", Area::CublasLt, status, finding);
    match gemm::version(&options.libraries) {
        Ok((version, path)) => check(
            Status::Ok,
            format!(
                "cuBLASLt {}.{}.{}, {}",
                version / 10_000,
                version / 100 % 100,
                version % 100,
                path.display()
            ),
        ),
        Err(error) => {
            let status = match &error {
                GemmError::Library(error) => status_of(error),
                _ => Status::Blocked,
            };
            Check { fix: error.hint(), ..check(status, error.to_string()) }
        }
    }
}
