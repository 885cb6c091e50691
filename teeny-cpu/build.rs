//! Sets `unoptimized` where the crate is built without optimisation, as a dependency is in a debug
//! build. There every function that is inlined leaves its variables in the frame of its caller, and
//! the loops over vectors would need more stack than a thread has.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(unoptimized)");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level == "0") {
        println!("cargo::rustc-cfg=unoptimized");
    }
}
