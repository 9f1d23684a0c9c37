//! The functions of cuBLASLt, and one handle of it per context.

use super::GemmError;
use crate::cuda::Context;
use crate::libraries::{CUDA_MAJOR, Libraries, LibraryKind, Loaded, function_table};
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
    cublasStatus_t, cudaDataType, cudaDataType_t, cudaStream_t,
};
use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::sync::Arc;

function_table! {
    Opening of cudarc::cublaslt::sys returns usize as usize {
        fn cublasLtGetVersion();
    }
}

function_table! {
    Api of cudarc::cublaslt::sys returns cublasStatus_t as c_uint {
        fn cublasLtCreate(*mut cublasLtHandle_t);
        fn cublasLtDestroy(cublasLtHandle_t);
        fn cublasLtMatmulDescCreate(*mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType_t);
        fn cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
        fn cublasLtMatmulDescSetAttribute(
            cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, *const c_void, usize,
        );
        fn cublasLtMatrixLayoutCreate(*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64);
        fn cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t);
        fn cublasLtMatrixLayoutSetAttribute(
            cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, *const c_void, usize,
        );
        fn cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t);
        fn cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t);
        fn cublasLtMatmulPreferenceSetAttribute(
            cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, *const c_void, usize,
        );
        fn cublasLtMatmulAlgoGetHeuristic(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int,
            *mut cublasLtMatmulHeuristicResult_t, *mut c_int,
        );
        fn cublasLtMatmul(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void, cublasLtMatrixLayout_t,
            *const c_void, cublasLtMatrixLayout_t, *const c_void, *const c_void, cublasLtMatrixLayout_t,
            *mut c_void, cublasLtMatrixLayout_t, *const cublasLtMatmulAlgo_t, *mut c_void, usize, cudaStream_t,
        );
    }
}

/// An open cuBLASLt in one context.
#[derive(Debug)]
pub(crate) struct Handle {
    context: Context,
    api: Api,
    raw: cublasLtHandle_t,
}

// SAFETY: NVIDIA documents the handle as usable from several threads at once; it holds no state of a call.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Opens cuBLASLt and reads its version.
fn open(libraries: &Libraries) -> Result<(Loaded, u64), GemmError> {
    let loaded = libraries.open(LibraryKind::CublasLt)?;
    let opening = Opening::load(&loaded)?;
    // SAFETY: takes nothing and returns a number.
    let version = unsafe { (opening.cublasLtGetVersion)() } as u64;
    if version / 10_000 != u64::from(CUDA_MAJOR) {
        let library = loaded.path().to_owned();
        return Err(GemmError::Version { library, major: version / 10_000 });
    }
    Ok((loaded, version))
}

/// The version of cuBLASLt, 130000 for 13.0.0, and its file. No driver is needed.
///
/// # Errors
/// [`GemmError::Library`] and [`GemmError::Version`].
pub fn version(libraries: &Libraries) -> Result<(u64, &'static Path), GemmError> {
    let (loaded, version) = open(libraries)?;
    Ok((version, loaded.path()))
}

impl Handle {
    /// The handle of this context, made at its first product: making one costs milliseconds and memory.
    pub(super) fn of(context: &Context, libraries: &Libraries) -> Result<Arc<Self>, GemmError> {
        context.gemm_handle(|| {
            let (loaded, _) = open(libraries)?;
            let api = Api::load(&loaded)?;
            context.bind()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: `handle` is valid for the write; the context is current.
            check("cublasLtCreate", unsafe { (api.cublasLtCreate)(&raw mut handle) })?;
            Ok(Self { context: context.clone(), api, raw: handle })
        })
    }

    pub(super) const fn api(&self) -> &Api {
        &self.api
    }

    pub(super) const fn raw(&self) -> cublasLtHandle_t {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.context.bind_for_drop().is_some() {
            // SAFETY: made by cublasLtCreate for this value.
            unsafe { (self.api.cublasLtDestroy)(self.raw) };
        }
    }
}

pub(super) const fn check(call: &'static str, code: c_uint) -> Result<(), GemmError> {
    if code == 0 { Ok(()) } else { Err(GemmError::Call { call, code: code.cast_signed() }) }
}

pub(super) const fn meaning(code: i32) -> &'static str {
    match code {
        1 => "not initialized",
        3 => "allocation failed",
        7 => "invalid value",
        8 => "not for this GPU",
        11 => "mapping error",
        13 => "execution failed",
        14 => "internal error",
        15 => "not supported",
        16 => "licence error",
        _ => "see cublasStatus_t in cublas_api.h",
    }
}
