//! The limits of a container, which are those of the control group of a process. Each case runs as
//! a separate process in a new group. A case ends with a message if the user may not make a group,
//! as without root and in most containers. Core tests how the files of a group are read.
#![cfg(target_os = "linux")]

mod common;

use common::alone;
use std::path::{Path, PathBuf};
use teeny_core::{DType, ErrorKind, Tensor, memory};
use teeny_cpu::Cpu;

const MIB: usize = 1 << 20;

/// Runs `case` in a new control group whose file `first` (version 1, of the controller) or `second`
/// (version 2) has this content.
fn limited(controller: &str, first: (&str, &str), second: (&str, &str), case: impl FnOnce()) {
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let folder = |root: &str, start: &str| -> Option<PathBuf> {
        let line = membership.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(start));
        Some(Path::new(root).join(line?.trim_start_matches('/')))
    };
    let versions = [
        (folder(&format!("/sys/fs/cgroup/{controller}"), &format!("{controller}:")), first),
        (folder("/sys/fs/cgroup", ":"), second),
    ];
    for (outer, (file, limit)) in versions {
        let Some(outer) = outer.filter(|folder| folder.join("cgroup.procs").exists()) else {
            continue;
        };
        let group = outer.join(format!("teeny-test-{}", std::process::id()));
        let enter = |folder: &Path| std::fs::write(folder.join("cgroup.procs"), "0");
        if std::fs::create_dir(&group).is_ok()
            && std::fs::write(group.join(file), limit).is_ok()
            && enter(&group).is_ok()
        {
            case();
            enter(&outer).unwrap();
            return std::fs::remove_dir(&group).unwrap();
        }
        let _ = std::fs::remove_dir(&group);
    }
    eprintln!("skipped: no control group of {controller} can be made here");
}

#[test]
fn beyond_the_limit_of_memory_is_an_error_and_not_the_end_of_the_process() {
    alone("beyond_the_limit_of_memory_is_an_error_and_not_the_end_of_the_process", || {
        let limit = (256 * MIB).to_string();
        let files = (("memory.limit_in_bytes", limit.as_str()), ("memory.max", limit.as_str()));
        limited("memory", files.0, files.1, || {
            let cpu = Cpu::new();
            let mut kept = Vec::new();
            let error = loop {
                match Tensor::ones(16 * MIB, DType::U8, &cpu) {
                    Ok(x) if kept.len() < 64 => kept.push(x),
                    Ok(_) => panic!("a gigabyte in a group of 256 MiB"),
                    Err(error) => break error,
                }
            };
            let on_the_host = memory::filled(1u8, 64 * MIB).unwrap_err();
            assert!((10..16).contains(&kept.len()), "{} blocks of 16 MiB fitted", kept.len());
            for error in [error, on_the_host] {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory);
                assert!(error.to_string().contains("may have 268435456 bytes"), "{error}");
            }
            let part = kept[0].slice(0, 0..9).unwrap().cast(DType::F32).unwrap();
            assert_eq!(part.sum_all().unwrap().item::<f32>().unwrap(), 9.0);
            drop(kept);
            let again = Tensor::ones(100 * MIB, DType::U8, &cpu).unwrap();
            assert_eq!(again.sum_all().unwrap().item::<i64>().unwrap(), 100 << 20);
        });
    });
}

#[test]
fn half_a_processor_is_one_thread() {
    alone("half_a_processor_is_one_thread", || {
        let quota = ("cpu.cfs_quota_us", "50000");
        limited("cpu", quota, ("cpu.max", "50000 100000"), || {
            assert_eq!(teeny_cpu::threads(), 1);
        });
    });
}
