//! libhippihx_v1.so: the V1 C ABI, revision 4.
