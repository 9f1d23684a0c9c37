//! The driver's side: probes of CUDA, CUPTI, NVML and MPS, and the shared-memory ring. The only room with unsafe.
