//! A libamdhip64.so over the CUDA driver, for tests on an NVIDIA GPU.
