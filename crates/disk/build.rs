//! Sets the cfg `can_trace` if this host allows ptrace. Tests that need it are ignored otherwise.

mod can_trace;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    can_trace::detect();
}
