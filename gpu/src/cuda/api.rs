//! Every driver function that this program calls.

use crate::libraries::function_table;
use cudarc::driver::sys::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUdevice_attribute,
    CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph, CUgraphExec, CUgraphNode, CUgreenCtx,
    CUmodule, CUresult, CUstream, CUstreamCaptureMode, CUuuid,
};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

function_table! {
    /// What every driver has, and what tells a driver that is too old from one that is broken.
    Opening of cudarc::driver::sys returns CUresult as c_uint {
        fn cuInit(c_uint);
        fn cuDriverGetVersion(*mut c_int);
    }
}

function_table! {
    /// The functions of CUDA 13.0 that workers and the probe call.
    Api of cudarc::driver::sys returns CUresult as c_uint {
        fn cuDeviceGetCount(*mut c_int);
        fn cuDeviceGet(*mut CUdevice, c_int);
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
        fn cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
        fn cuDeviceTotalMem_v2(*mut usize, CUdevice);
        fn cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);

        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        fn cuDevicePrimaryCtxRelease_v2(CUdevice);
        fn cuCtxSetCurrent(CUcontext);
        fn cuCtxSynchronize();
        fn cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);

        fn cuMemGetInfo_v2(*mut usize, *mut usize);
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize);
        fn cuMemFree_v2(CUdeviceptr);
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        fn cuMemFreeHost(*mut c_void);
        fn cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
        fn cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
        fn cuMemsetD8_v2(CUdeviceptr, c_uchar, usize);
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        fn cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);

        fn cuModuleLoadData(*mut CUmodule, *const c_void);
        fn cuModuleUnload(CUmodule);
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        fn cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
        fn cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);
        fn cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize);
        fn cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void,
        );

        fn cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
        fn cuStreamDestroy_v2(CUstream);
        fn cuStreamSynchronize(CUstream);
        fn cuStreamQuery(CUstream);
        fn cuStreamWaitEvent(CUstream, CUevent, c_uint);
        fn cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
        fn cuStreamEndCapture(CUstream, *mut CUgraph);

        fn cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize);
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
        fn cuGraphUpload(CUgraphExec, CUstream);
        fn cuGraphLaunch(CUgraphExec, CUstream);
        fn cuGraphExecDestroy(CUgraphExec);
        fn cuGraphDestroy(CUgraph);

        fn cuEventCreate(*mut CUevent, c_uint);
        fn cuEventDestroy_v2(CUevent);
        fn cuEventRecord(CUevent, CUstream);
        fn cuEventSynchronize(CUevent);
        fn cuEventQuery(CUevent);
        fn cuEventElapsedTime_v2(*mut f32, CUevent, CUevent);

        fn cuDeviceGetDevResource(CUdevice, *mut CUdevResource, CUdevResourceType);
        fn cuDevSmResourceSplitByCount(
            *mut CUdevResource, *mut c_uint, *const CUdevResource, *mut CUdevResource, c_uint, c_uint,
        );
        fn cuDevResourceGenerateDesc(*mut CUdevResourceDesc, *mut CUdevResource, c_uint);
        fn cuGreenCtxCreate(*mut CUgreenCtx, CUdevResourceDesc, CUdevice, c_uint);
        fn cuGreenCtxDestroy(CUgreenCtx);
        fn cuGreenCtxGetDevResource(CUgreenCtx, *mut CUdevResource, CUdevResourceType);
        fn cuGreenCtxStreamCreate(*mut CUstream, CUgreenCtx, c_uint, c_int);
    }
}
