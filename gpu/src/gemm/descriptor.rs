//! What cuBLASLt is told about a product.

use super::api::check;
use super::{GemmError, GemmShape, Handle};
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as DescAttribute, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute,
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cudaDataType_t as DataType,
};
use elastico_core::Dtype;
use std::ffi::c_void;
use std::sync::Arc;

/// The types of operands, sums and result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Types {
    operand: DataType,
    unread: DataType,
    result: DataType,
    scale: DataType,
    compute: Compute,
}

impl Types {
    pub(super) fn of(dtype: Dtype) -> Self {
        use Compute::{
            CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_64F,
        };
        use DataType::{
            CUDA_R_8F_E4M3, CUDA_R_8I, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_32I, CUDA_R_64F,
        };
        let same = |data, scale, compute| Self { operand: data, unread: data, result: data, scale, compute };
        match dtype {
            Dtype::Fp64 => same(CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F),
            Dtype::Fp32 => same(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            Dtype::Tf32 => same(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
            Dtype::Fp16 => same(CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            Dtype::Bf16 => same(CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            Dtype::Fp8 => Self {
                operand: CUDA_R_8F_E4M3,
                unread: CUDA_R_16BF,
                result: CUDA_R_8F_E4M3,
                scale: CUDA_R_32F,
                compute: CUBLAS_COMPUTE_32F,
            },
            Dtype::Int8 => Self {
                operand: CUDA_R_8I,
                unread: CUDA_R_32I,
                result: CUDA_R_32I,
                scale: CUDA_R_32I,
                compute: CUBLAS_COMPUTE_32I,
            },
        }
    }

    /// Whether C may be given in the type of the result.
    pub(super) const fn has_c(&self) -> bool {
        self.unread as u32 == self.result as u32
    }

    pub(super) const fn scalars(&self) -> Scalars {
        match self.scale {
            DataType::CUDA_R_64F => Scalars { one: 1.0_f64.to_bits().to_ne_bytes() },
            DataType::CUDA_R_32I => Scalars { one: wide(1_i32.to_ne_bytes()) },
            _ => Scalars { one: wide(1.0_f32.to_ne_bytes()) },
        }
    }
}

const fn wide(bytes: [u8; 4]) -> [u8; 8] {
    [bytes[0], bytes[1], bytes[2], bytes[3], 0, 0, 0, 0]
}

/// 1 and 0 in the scale type; eight bytes hold any of them.
#[repr(align(8))]
pub(super) struct Scalars {
    one: [u8; 8],
}

impl Scalars {
    pub(super) const fn one(&self) -> *const u8 {
        self.one.as_ptr()
    }

    #[expect(clippy::unused_self, reason = "the two are one pair")]
    pub(super) const fn zero(&self) -> *const u8 {
        // All bytes 0 are 0 in every type.
        static ZERO: u64 = 0;
        (&raw const ZERO).cast()
    }
}

/// What is done with the operands.
#[derive(Debug)]
pub(super) struct Operation {
    handle: Arc<Handle>,
    raw: cublasLtMatmulDesc_t,
}

impl Operation {
    pub(super) fn new(handle: &Arc<Handle>, shape: &GemmShape, types: &Types) -> Result<Self, GemmError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for the write.
        let code =
            unsafe { (handle.api().cublasLtMatmulDescCreate)(&raw mut raw, types.compute, types.scale) };
        check("cublasLtMatmulDescCreate", code)?;
        let operation = Self { handle: handle.clone(), raw };
        // The first operand by columns is B.
        operation.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(shape.transpose_b))?;
        operation.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(shape.transpose_a))?;
        Ok(operation)
    }

    fn set(&self, attribute: DescAttribute, value: i32) -> Result<(), GemmError> {
        let value = (&raw const value).cast::<c_void>();
        // SAFETY: the attributes set here are 32-bit enums, of which 0 is N and 1 is T.
        let code =
            unsafe { (self.handle.api().cublasLtMatmulDescSetAttribute)(self.raw, attribute, value, 4) };
        check("cublasLtMatmulDescSetAttribute", code)
    }

    pub(super) const fn raw(&self) -> cublasLtMatmulDesc_t {
        self.raw
    }

    /// The first algorithm of the heuristic, with the bytes that it needs on the side; `None` where there is none.
    pub(super) fn choose(
        &self,
        layouts: &Layouts,
        workspace: usize,
    ) -> Result<Option<(cublasLtMatmulAlgo_t, usize)>, GemmError> {
        const INVALID_VALUE: u32 = 7;
        const NOT_SUPPORTED: u32 = 15;
        let api = self.handle.api();
        let preference = Preference::new(&self.handle, workspace)?;
        // SAFETY: plain data, of which status 0 is success.
        let mut result: cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = 0;
        // SAFETY: all descriptors live; there is room for the one result that is asked for.
        let code = unsafe {
            (api.cublasLtMatmulAlgoGetHeuristic)(
                self.handle.raw(),
                self.raw,
                layouts.first(),
                layouts.second(),
                layouts.unread(),
                layouts.result(),
                preference.raw,
                1,
                &raw mut result,
                &raw mut found,
            )
        };
        if matches!(code, NOT_SUPPORTED | INVALID_VALUE) {
            return Ok(None);
        }
        check("cublasLtMatmulAlgoGetHeuristic", code)?;
        Ok((found > 0 && result.state as u32 == 0).then_some((result.algo, result.workspaceSize)))
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made for this value; host memory only.
        unsafe { (self.handle.api().cublasLtMatmulDescDestroy)(self.raw) };
    }
}

struct Preference<'a> {
    handle: &'a Handle,
    raw: cublasLtMatmulPreference_t,
}

impl<'a> Preference<'a> {
    fn new(handle: &'a Handle, workspace: usize) -> Result<Self, GemmError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for the write.
        let code = unsafe { (handle.api().cublasLtMatmulPreferenceCreate)(&raw mut raw) };
        check("cublasLtMatmulPreferenceCreate", code)?;
        let preference = Self { handle, raw };
        let attribute = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let value = (&raw const workspace).cast();
        // SAFETY: the attribute is a 64-bit number.
        let code = unsafe { (handle.api().cublasLtMatmulPreferenceSetAttribute)(raw, attribute, value, 8) };
        check("cublasLtMatmulPreferenceSetAttribute", code)?;
        Ok(preference)
    }
}

impl Drop for Preference<'_> {
    fn drop(&mut self) {
        // SAFETY: made for this value; host memory only.
        unsafe { (self.handle.api().cublasLtMatmulPreferenceDestroy)(self.raw) };
    }
}

/// How the matrices lie in memory, by columns: Cᵀ\[n,m\] = Bᵀ\[n,k\] Aᵀ\[k,m\].
#[derive(Debug)]
pub(super) struct Layouts {
    first: Layout,
    second: Layout,
    unread: Layout,
    result: Layout,
}

impl Layouts {
    pub(super) fn new(handle: &Arc<Handle>, shape: &GemmShape, types: &Types) -> Result<Self, GemmError> {
        let &GemmShape { m, n, k, batch, transpose_a, transpose_b, .. } = shape;
        let layout = |data, rows, columns| Layout::new(handle, data, rows, columns, batch);
        Ok(Self {
            first: if transpose_b { layout(types.operand, k, n)? } else { layout(types.operand, n, k)? },
            second: if transpose_a { layout(types.operand, m, k)? } else { layout(types.operand, k, m)? },
            unread: layout(types.unread, n, m)?,
            result: layout(types.result, n, m)?,
        })
    }

    pub(super) const fn first(&self) -> cublasLtMatrixLayout_t {
        self.first.raw
    }

    pub(super) const fn second(&self) -> cublasLtMatrixLayout_t {
        self.second.raw
    }

    pub(super) const fn unread(&self) -> cublasLtMatrixLayout_t {
        self.unread.raw
    }

    pub(super) const fn result(&self) -> cublasLtMatrixLayout_t {
        self.result.raw
    }
}

#[derive(Debug)]
struct Layout {
    handle: Arc<Handle>,
    raw: cublasLtMatrixLayout_t,
}

impl Layout {
    fn new(
        handle: &Arc<Handle>,
        data: DataType,
        rows: u64,
        columns: u64,
        batch: u64,
    ) -> Result<Self, GemmError> {
        let mut raw = std::ptr::null_mut();
        // Sizes were checked to fit 63 bits.
        let (leading, stride) = (rows.cast_signed(), (rows * columns).cast_signed());
        // SAFETY: `raw` is valid for the write.
        let code =
            unsafe { (handle.api().cublasLtMatrixLayoutCreate)(&raw mut raw, data, rows, columns, leading) };
        check("cublasLtMatrixLayoutCreate", code)?;
        let layout = Self { handle: handle.clone(), raw };
        if batch > 1 {
            let count = i32::try_from(batch)
                .map_err(|_| GemmError::Call { call: "cublasLtMatrixLayoutSetAttribute", code: 7 })?;
            layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count.to_ne_bytes())?;
            layout
                .set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride.to_ne_bytes())?;
        }
        Ok(layout)
    }

    fn set(&self, attribute: LayoutAttribute, value: &[u8]) -> Result<(), GemmError> {
        // SAFETY: the bytes are a number of the attribute's size, and are copied.
        let code = unsafe {
            (self.handle.api().cublasLtMatrixLayoutSetAttribute)(
                self.raw,
                attribute,
                value.as_ptr().cast(),
                value.len(),
            )
        };
        check("cublasLtMatrixLayoutSetAttribute", code)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made for this value; host memory only.
        unsafe { (self.handle.api().cublasLtMatrixLayoutDestroy)(self.raw) };
    }
}

// SAFETY: descriptors are host memory that calls only read after they are made.
unsafe impl Send for Operation {}
// SAFETY: as above.
unsafe impl Sync for Operation {}
// SAFETY: as above.
unsafe impl Send for Layout {}
// SAFETY: as above.
unsafe impl Sync for Layout {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_in_every_scale_type() {
        let bytes = |dtype| {
            let scalars = Types::of(dtype).scalars();
            scalars.one
        };
        assert_eq!(f64::from_ne_bytes(bytes(Dtype::Fp64)).to_bits(), 1.0_f64.to_bits());
        assert_eq!(bytes(Dtype::Int8)[..4], 1_i32.to_ne_bytes());
        for dtype in [Dtype::Fp32, Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Fp8] {
            assert_eq!(bytes(dtype)[..4], 1.0_f32.to_ne_bytes(), "{dtype}");
        }
        assert!(!Types::of(Dtype::Fp8).has_c() && Types::of(Dtype::Int8).has_c());
    }
}
