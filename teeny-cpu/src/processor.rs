//! The processor that a thread runs on, and its caches.
//!
//! Linux often wakes a thread on the processor of the thread that wakes it, or on the one where it
//! ran last. A worker that shares its caller's processor sees no job while it runs, because the
//! caller waits for it, and it leaves before the scheduler has moved it: for milliseconds, again
//! and again, an operation has one processor. So a worker asks for another one. Independent of
//! jobs.

use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The sizes of caches, in bytes. They choose how memory is written, never which numbers are added
/// in which order: a result has the same bits on every processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caches {
    /// The second level of one core.
    pub second_level: usize,
    /// The last level, which cores share.
    pub last_level: usize,
}

impl Caches {
    /// The caches of a processor that does not report them.
    const USUAL: Caches = Caches { second_level: 1 << 20, last_level: 32 << 20 };

    /// The caches of this machine.
    pub fn of_machine() -> Caches {
        static CACHES: OnceLock<Caches> = OnceLock::new();
        *CACHES.get_or_init(|| {
            Caches::of_folders(|index, file| {
                let folder = "/sys/devices/system/cpu/cpu0/cache";
                std::fs::read_to_string(format!("{folder}/index{index}/{file}")).ok()
            })
        })
    }

    /// Those in the folders that Linux has for the caches of a core, of which `read` returns files.
    fn of_folders(read: impl Fn(usize, &str) -> Option<String>) -> Caches {
        let mut found: Vec<(u32, usize)> = (0..16)
            .map_while(|index| Some((read(index, "level")?, read(index, "size")?)))
            .filter_map(|(level, size)| Some((level.trim().parse().ok()?, bytes(size.trim())?)))
            .filter(|&(level, size)| level > 1 && size > 0)
            .collect();
        found.sort_unstable();
        let second = found.iter().find(|(level, _)| *level == 2);
        Caches {
            second_level: second.map_or(Caches::USUAL.second_level, |&(_, size)| size),
            last_level: found.last().map_or(Caches::USUAL.last_level, |&(_, size)| size),
        }
    }

    /// Bytes of an output from which it bypasses the caches: it would be evicted before it is read.
    /// That is the size of the last level: with a quarter of it, operations on outputs that it
    /// holds take up to 2.2 times as long, with four times it larger ones up to 1.15 times (Zen 5,
    /// 32 MiB). A process gets a part of a level that a whole server shares.
    fn min_streamed(self) -> usize {
        self.last_level.clamp(MIN_STREAMED_BYTES, 64 << 20)
    }
}

/// The least bytes of an output that bypasses the caches, on any processor.
const MIN_STREAMED_BYTES: usize = 4 << 20;

/// Whether an output of this many bytes bypasses the caches of this machine.
#[inline]
pub(crate) fn streams(bytes: usize) -> bool {
    bytes >= MIN_STREAMED_BYTES && bytes >= Caches::of_machine().min_streamed()
}

/// `text`, such as `1024K`, in bytes.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(['K', 'M']);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// The number of the current processor, from 1 on; 0 if the system does not tell.
#[inline]
pub(crate) fn current() -> u32 {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: reads the number of a processor.
        (unsafe { libc::sched_getcpu() } + 1) as u32
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Moves this thread to another processor that it may run on, if it runs on `other`.
pub(crate) fn leave(other: u32) {
    if other == 0 || current() != other {
        return;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the set has the length that is passed, and a set of all zeros is the empty set; the
    // number of the processor is below the number of bits, or the system would have refused to
    // write the set.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if (other - 1) as usize >= 8 * size || libc::sched_getaffinity(0, size, &mut allowed) != 0 {
            return;
        }
        let mut others = allowed;
        libc::CPU_CLR((other - 1) as usize, &mut others);
        // The thread has moved when the first call returns; then it may run where it could before.
        if libc::CPU_COUNT(&others) > 0 && libc::sched_setaffinity(0, size, &others) == 0 {
            libc::sched_setaffinity(0, size, &allowed);
        }
    }
}

/// The cores of the processors that this process may use, at most `processors`. Two threads of one
/// core share its vector units, so products are not faster with both; a single core keeps its
/// threads, which loops that wait for memory profit from.
pub(crate) fn cores(processors: usize) -> usize {
    #[cfg(target_os = "linux")]
    {
        let folder = std::path::Path::new("/sys/devices/system/cpu");
        let siblings = |cpu: usize| {
            std::fs::read_to_string(folder.join(format!("cpu{cpu}/topology/thread_siblings_list")))
        };
        match cores_of(&allowed(), |cpu| siblings(cpu).ok()) {
            Some(cores) if cores > 1 => return cores.min(processors),
            _ => {}
        }
    }
    processors
}

/// The numbers of the processors that this process may use.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: the set has the length that is passed, and a set of all zeros is the empty set.
    let (set, failed) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let failed = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0;
        (set, failed)
    };
    let bits = if failed { 0 } else { 8 * size_of::<libc::cpu_set_t>() };
    // SAFETY: the numbers are below the number of bits.
    (0..bits).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// The number of cores that have these processors, if `siblings` says for each which ones are
/// threads of its core.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn cores_of(allowed: &[usize], siblings: impl Fn(usize) -> Option<String>) -> Option<usize> {
    let cores = allowed.iter().map(|&cpu| siblings(cpu)).collect::<Option<BTreeSet<_>>>()?;
    Some(cores.len())
}

/// Processors that people have, with the caches of one core: the choices that depend on sizes of
/// caches are tested for each.
#[cfg(test)]
pub(crate) const PROCESSORS: [(&str, Caches); 7] = [
    ("Zen 3", Caches { second_level: 512 << 10, last_level: 32 << 20 }),
    ("Zen 4 and 5", Caches { second_level: 1 << 20, last_level: 32 << 20 }),
    ("Emerald Rapids", Caches { second_level: 2 << 20, last_level: 260 << 20 }),
    ("a client Intel with AVX2", Caches { second_level: 1280 << 10, last_level: 12 << 20 }),
    ("Apple M1, a part of the second level", Caches { second_level: 3 << 20, last_level: 8 << 20 }),
    ("Graviton 3", Caches { second_level: 1 << 20, last_level: 32 << 20 }),
    (
        "Cortex-A76 of a single-board computer",
        Caches { second_level: 512 << 10, last_level: 2 << 20 },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_read_from_the_folders_of_linux() {
        let tables: [(&[(&str, &str)], Caches); 5] = [
            (
                &[("1", "48K"), ("1", "32K"), ("2", "1024K"), ("3", "32768K")],
                Caches { second_level: 1 << 20, last_level: 32 << 20 },
            ),
            (
                &[("1", "32K"), ("2", "2M"), ("3", "260M")],
                Caches { second_level: 2 << 20, last_level: 260 << 20 },
            ),
            // no third level: the second is the last
            (
                &[("1", "64K"), ("2", "12M")],
                Caches { second_level: 12 << 20, last_level: 12 << 20 },
            ),
            (&[("?", "1G"), ("2", "0K"), ("3", "99999999999999999999M")], Caches::USUAL),
            (&[], Caches::USUAL),
        ];
        for (files, want) in tables {
            let read = |index: usize, file: &str| {
                let &(level, size) = files.get(index)?;
                Some(format!("{}\n", if file == "level" { level } else { size }))
            };
            assert_eq!(Caches::of_folders(read), want, "{files:?}");
        }
    }

    #[test]
    fn outputs_that_the_last_level_holds_stay_in_it() {
        for (name, caches) in PROCESSORS {
            let bytes = caches.min_streamed();
            assert!(bytes >= caches.last_level.min(64 << 20), "{name}");
            assert!(
                bytes > caches.second_level && bytes <= caches.last_level.max(4 << 20),
                "{name}"
            );
        }
    }

    #[test]
    fn threads_of_one_core_are_one_core() {
        // eight processors of four cores: i and i + 4 are threads of one core
        let siblings = |cpu: usize| Some(format!("{},{}", cpu % 4, cpu % 4 + 4));
        for (allowed, cores) in [
            (vec![0, 1, 2, 3, 4, 5, 6, 7], 4),
            (vec![0, 4], 1),
            (vec![0, 1, 5], 2),
            (vec![3, 6, 7], 2),
        ] {
            assert_eq!(cores_of(&allowed, siblings), Some(cores), "{allowed:?}");
        }
        assert_eq!(cores_of(&[0, 1], |_| None), None, "the system does not tell");
        assert!((1..=8).contains(&cores(8)));
        assert_eq!(cores(1), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_leaves_runs_elsewhere_and_keeps_its_processors() {
        let allowed = || {
            // SAFETY: as in `leave`.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), 0);
                set
            }
        };
        let before = allowed();
        for _ in 0..100 {
            leave(current());
        }
        leave(0);
        leave(u32::MAX);
        let after = allowed();
        // SAFETY: reads two sets.
        assert!(unsafe { libc::CPU_EQUAL(&before, &after) });
    }
}
