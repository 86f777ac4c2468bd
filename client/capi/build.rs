//! Gives the library its soname: consumers open and link `libhippihx_v1.so` under this very name.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhippihx_v1.so");
    println!("cargo:rerun-if-changed=build.rs");
}
