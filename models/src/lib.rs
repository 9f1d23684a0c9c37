//! The predictor: features, the ONNX file, and two back ends that read it.
