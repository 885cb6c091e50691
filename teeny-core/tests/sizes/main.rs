//! Sizes at which arithmetic overflows and memory ends: an error, in builds with and without
//! checks.

mod directed;
mod sweep;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sweep::Sweep;
use teeny_core::{DeviceRef, Reference, Result};

/// Runs the test `name` of this program again, alone in a process that may use `kib` of addresses.
fn alone(name: &str, kib: usize) -> bool {
    if std::env::var_os("TEENY_ALONE").is_some() {
        return false;
    }
    if cfg!(not(unix)) {
        eprintln!("skipped: this system has no limit of addresses");
        return true;
    }
    let program = std::env::current_exe().expect("a path");
    let script = format!("ulimit -v {kib} && exec \"$0\" --exact {name} --nocapture");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .arg(program)
        .env("TEENY_ALONE", "1")
        .stdin(Stdio::null())
        .spawn()
        .expect("a shell");
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if start.elapsed() > Duration::from_secs(1200) => {
                child.kill().expect("a child");
                panic!("{name} hangs: TEENY_SWEEP_LOG=1 prints each call");
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(status.success(), "{name} ends with {status}: TEENY_SWEEP_LOG=1 prints each call");
    true
}

#[test]
fn no_size_makes_a_method_panic_abort_or_hang() -> Result<()> {
    if alone("no_size_makes_a_method_panic_abort_or_hang", 2_000_000) {
        return Ok(());
    }
    std::panic::set_hook(Box::new(|_| {}));
    let device: DeviceRef = Reference::new();
    let sweep = sweep::sweep(&device, true)?;
    let _ = std::panic::take_hook();
    let Sweep { cases, every, digest, ref faults, .. } = sweep;
    println!("every {every}th of {cases} calls, digest {digest:016x}, {} faults", faults.len());
    // One fault of each method.
    let mut shown: Vec<&String> = Vec::new();
    for fault in &sweep.faults {
        if !shown.iter().any(|other| other.split(" of ").next() == fault.split(" of ").next()) {
            shown.push(fault);
        }
    }
    assert!(shown.is_empty(), "{shown:#?}");
    Ok(())
}
