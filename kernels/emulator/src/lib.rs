//! Runs the machine code of an AMDGPU code object on the CPU.
