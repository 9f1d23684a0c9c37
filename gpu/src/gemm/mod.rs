//! Matrix products by cuBLASLt, with a row-major face.
//!
//! cuBLASLt counts by columns. A row-major matrix is its own transpose counted by columns, so C = A B is asked for as
//! Cᵀ = Bᵀ Aᵀ: the operands change places and nothing is moved.
//!
//! FP8 before Blackwell, and INT8, are multiplied only where A lies by rows and B by columns (`transpose_b`). Other layouts of these
//! types are brought into that form by a small kernel before each product, into memory that the [`Gemm`] owns.

#![expect(unsafe_code, reason = "calls into cuBLASLt")]

mod api;
mod descriptor;
mod transpose;

pub(crate) use api::Handle;
pub use api::version;

use crate::cubin::CompileError;
use crate::cuda::{Context, CudaError, Memory, Stream};
use crate::libraries::{CUDA_MAJOR, Libraries, LibraryError, LibraryKind};
use api::check;
use descriptor::{Layouts, Operation, Types};
use elastico_core::{Dtype, Hint, Outcome};
use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use transpose::Transposed;

/// `batch` products C\[m,n\] = A\[m,k\] B\[k,n\], row-major and dense, one after the other in memory.
///
/// A transposed operand lies in memory as \[k,m\] or \[n,k\]. Sums are FP32, FP64 for FP64, and 32-bit integers for INT8. C has the
/// type of A and B, except for INT8, where it holds 32-bit integers. FP8 is E4M3 without scales. FP32 does not use the
/// tensor pipe; TF32 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Inner dimension.
    pub k: u64,
    /// Independent products.
    pub batch: u64,
    /// Type of the operands.
    pub dtype: Dtype,
    /// Whether A lies in memory as \[k,m\].
    pub transpose_a: bool,
    /// Whether B lies in memory as \[n,k\].
    pub transpose_b: bool,
}

impl GemmShape {
    /// Bytes of A, B and C.
    ///
    /// # Errors
    /// [`GemmError::Shape`] where a dimension is 0 or a size does not fit 63 bits.
    pub fn bytes(&self) -> Result<[u64; 3], GemmError> {
        let element = self.dtype.bytes() as u64;
        let result = if self.dtype == Dtype::Int8 { 4 } else { element };
        let size = |rows: u64, columns: u64, element: u64| {
            rows.checked_mul(columns)?
                .checked_mul(self.batch)?
                .checked_mul(element)
                .filter(|bytes| (1..=i64::MAX as u64).contains(bytes))
        };
        let sizes =
            (size(self.m, self.k, element), size(self.k, self.n, element), size(self.m, self.n, result));
        match sizes {
            (Some(a), Some(b), Some(c)) => Ok([a, b, c]),
            _ => Err(GemmError::Shape {
                shape: *self,
                reason: "dimensions are at least 1, and a matrix has less than 2^63 bytes",
            }),
        }
    }
}

impl fmt::Display for GemmShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |is_transposed| if is_transposed { "T" } else { "N" };
        write!(
            f,
            "{} x [{},{}]{} [{},{}]{} {}",
            self.batch,
            self.m,
            self.k,
            side(self.transpose_a),
            self.k,
            self.n,
            side(self.transpose_b),
            self.dtype
        )
    }
}

/// Why a product cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GemmError {
    /// cuBLASLt cannot be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// cuBLASLt is of another major version.
    #[error("`{}` is cuBLASLt of major version {major}, not {CUDA_MAJOR}", library.display())]
    Version {
        /// The file.
        library: PathBuf,
        /// What it says it is.
        major: u64,
    },
    /// A call of the driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The kernel that changes a layout does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A call of cuBLASLt failed.
    #[error("{call} failed with cuBLAS status {code} ({})", api::meaning(*code))]
    Call {
        /// The function.
        call: &'static str,
        /// `cublasStatus_t`.
        code: i32,
    },
    /// A shape that is none.
    #[error("the product {shape} cannot be: {reason}")]
    Shape {
        /// The product.
        shape: GemmShape,
        /// Why not.
        reason: &'static str,
    },
    /// cuBLASLt has no way to do it on this device.
    #[error("cuBLASLt has no algorithm for the product {shape} on compute capability {}.{}", compute_capability.0, compute_capability.1)]
    NoAlgorithm {
        /// The product.
        shape: GemmShape,
        /// The device's.
        compute_capability: (i32, i32),
    },
    /// The device has no such arithmetic.
    #[error("{dtype} products need compute capability {}.{}; this device has {}.{}", needed.0, needed.1, found.0, found.1)]
    Unsupported {
        /// The type.
        dtype: Dtype,
        /// What has it.
        needed: (i32, i32),
        /// The device's.
        found: (i32, i32),
    },
    /// An operand does not start where the algorithm needs it.
    #[error("operand {operand} starts at byte {offset}; products need a multiple of {ALIGNMENT}")]
    Alignment {
        /// `A`, `B` or `C`.
        operand: &'static str,
        /// Its offset in its memory.
        offset: u64,
    },
}

impl GemmError {
    /// How a trial ends that met this error.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Cuda(error) => error.outcome(),
            // CUBLAS_STATUS_ALLOC_FAILED
            Self::Call { code: 3, .. } => Outcome::Oom,
            // ARCH_MISMATCH and NOT_SUPPORTED
            Self::Call { code: 8 | 15, .. } | Self::NoAlgorithm { .. } | Self::Unsupported { .. } => {
                Outcome::Unsupported
            }
            Self::Call { .. } | Self::Alignment { .. } | Self::Compile(_) | Self::Shape { .. } => {
                Outcome::WorkerCrash
            }
            Self::Library(_) | Self::Version { .. } => Outcome::DeviceLost,
        }
    }
}

impl Hint for GemmError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Library(error) => error.hint(),
            Self::Cuda(error) => error.hint(),
            Self::Compile(error) => error.hint(),
            Self::Version { .. } => Some(LibraryKind::CublasLt.install().to_owned()),
            Self::NoAlgorithm { shape, .. } => Some(match shape.dtype {
                Dtype::Fp8 => "choose m, n and k as multiples of 16".to_owned(),
                Dtype::Int8 => "choose m, n and k as multiples of 4, better of 16".to_owned(),
                _ => "choose m, n and k as multiples of 8".to_owned(),
            }),
            Self::Unsupported { .. } => Some("choose another dtype, such as bf16".to_owned()),
            Self::Call { .. } | Self::Shape { .. } | Self::Alignment { .. } => None,
        }
    }
}

/// Operands start at multiples of this many bytes; algorithms are chosen for it.
pub const ALIGNMENT: u64 = 256;

/// The most memory that an algorithm may use on the side, as NVIDIA advises: 32 MiB from Hopper on, 4 MiB before.
const fn workspace_limit(compute_capability: (i32, i32)) -> usize {
    if compute_capability.0 >= 9 { 32 << 20 } else { 4 << 20 }
}

/// One product, with its algorithm chosen and its side memory allocated.
#[derive(Debug)]
pub struct Gemm {
    handle: Arc<Handle>,
    operation: Operation,
    layouts: Layouts,
    algorithm: cudarc::cublaslt::sys::cublasLtMatmulAlgo_t,
    workspace: Memory,
    sizes: [u64; 3],
    types: Types,
    a: Option<Transposed>,
    b: Option<Transposed>,
}

impl Gemm {
    /// Chooses the algorithm that cuBLASLt's heuristic holds for the fastest, and allocates what it needs.
    ///
    /// # Errors
    /// [`GemmError`].
    pub fn new(context: &Context, libraries: &Libraries, shape: &GemmShape) -> Result<Self, GemmError> {
        let sizes = shape.bytes()?;
        let compute_capability = context.facts().compute_capability;
        let needed = match shape.dtype {
            Dtype::Fp8 => (8, 9),
            Dtype::Tf32 | Dtype::Bf16 => (8, 0),
            _ => (7, 5),
        };
        if compute_capability < needed {
            return Err(GemmError::Unsupported { dtype: shape.dtype, needed, found: compute_capability });
        }
        let handle = Handle::of(context, libraries)?;
        let types = Types::of(shape.dtype);
        let limit = workspace_limit(compute_capability);
        let plan = |shape: &GemmShape| -> Result<_, GemmError> {
            let operation = Operation::new(&handle, shape, &types)?;
            let layouts = Layouts::new(&handle, shape, &types)?;
            let found = operation.choose(&layouts, limit)?;
            Ok((operation, layouts, found))
        };
        let (mut operation, mut layouts, mut found) = plan(shape)?;
        let (mut a, mut b) = (None, None);
        if found.is_none() && matches!(shape.dtype, Dtype::Fp8 | Dtype::Int8) {
            let (m, n, k) = (shape.m, shape.n, shape.k);
            let other = GemmShape { transpose_a: false, transpose_b: true, ..*shape };
            (operation, layouts, found) = plan(&other)?;
            if found.is_some() {
                if shape.transpose_a {
                    a = Some(Transposed::new(context, libraries, k, m, shape.batch)?);
                }
                if !shape.transpose_b {
                    b = Some(Transposed::new(context, libraries, k, n, shape.batch)?);
                }
            }
        }
        let (algorithm, workspace) =
            found.ok_or(GemmError::NoAlgorithm { shape: *shape, compute_capability })?;
        let workspace = context.allocate(workspace as u64)?;
        let gemm = Self { handle, operation, layouts, algorithm, workspace, sizes, types, a, b };
        gemm.warm_up(context)?;
        Ok(gemm)
    }

    /// Runs it once on scratch memory: its kernel is loaded now, not in a capture or in a measurement.
    fn warm_up(&self, context: &Context) -> Result<(), GemmError> {
        let size = self.sizes.into_iter().max().unwrap_or(0);
        let scratch = match context.allocate(size) {
            Ok(scratch) => scratch,
            // Where there is no room, it is loaded when it is first needed.
            Err(error) if error.outcome() == Outcome::Oom => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        scratch.fill(0)?;
        let stream = context.stream()?;
        // What comes out is of no interest, so all three may be one.
        self.run(&stream, (&scratch, 0), (&scratch, 0), (&scratch, 0))?;
        Ok(stream.synchronize()?)
    }

    /// Queues the product of the matrices that start at these offsets in bytes. May be captured.
    ///
    /// # Errors
    /// [`GemmError::Alignment`], [`CudaError::Bounds`] where memory is too small, [`GemmError::Call`].
    pub fn run(
        &self,
        stream: &Stream,
        a: (&Memory, u64),
        b: (&Memory, u64),
        c: (&Memory, u64),
    ) -> Result<(), GemmError> {
        let mut addresses = [std::ptr::null_mut::<c_void>(); 3];
        for (index, ((memory, offset), operand)) in [(a, "A"), (b, "B"), (c, "C")].into_iter().enumerate() {
            if offset % ALIGNMENT != 0 {
                return Err(GemmError::Alignment { operand, offset });
            }
            if !memory.context().is_same(stream.context()) {
                return Err(CudaError::Foreign { what: "an operand of the product" }.into());
            }
            addresses[index] = memory.range("product", offset, self.sizes[index])? as *mut c_void;
            memory.keep();
        }
        if let Some(transposed) = &self.a {
            addresses[0] = transposed.run(stream, a)?;
        }
        if let Some(transposed) = &self.b {
            addresses[1] = transposed.run(stream, b)?;
        }
        let workspace = self.workspace.range("workspace", 0, self.workspace.bytes())?;
        self.workspace.keep();
        stream.context().bind()?;
        let [a, b, c] = addresses;
        let scalars = self.types.scalars();
        // FP8 wants its C, which is not read because beta is 0, in another type than the result: there is none.
        let unread = if self.types.has_c() { c } else { std::ptr::null_mut() };
        // SAFETY: descriptors, algorithm and handle live; the ranges of all operands were checked against the sizes that
        // the layouts describe; the scalars have the scale type and are read before the call returns.
        let code = unsafe {
            (self.handle.api().cublasLtMatmul)(
                self.handle.raw(),
                self.operation.raw(),
                scalars.one().cast(),
                // By columns: B takes the first place.
                b,
                self.layouts.first(),
                a,
                self.layouts.second(),
                scalars.zero().cast(),
                unread,
                self.layouts.unread(),
                c,
                self.layouts.result(),
                &raw const self.algorithm,
                workspace as *mut c_void,
                self.workspace.bytes() as usize,
                stream.handle().cast(),
            )
        };
        check("cublasLtMatmul", code)
    }

    /// Memory beside the operands: the algorithm's, and that of changed layouts.
    pub fn workspace_bytes(&self) -> u64 {
        let transposed = |side: &Option<Transposed>| side.as_ref().map_or(0, Transposed::bytes);
        self.workspace.bytes() + transposed(&self.a) + transposed(&self.b)
    }

    /// Whether an operand is brought into another layout before each product.
    pub const fn changes_layout(&self) -> bool {
        self.a.is_some() || self.b.is_some()
    }
}
