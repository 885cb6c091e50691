//! The processor that a thread runs on.
//!
//! Linux often wakes a thread on the processor of the thread that wakes it, or on the one where it
//! ran last. A worker that shares its caller's processor sees no job while it runs, because the
//! caller waits for it, and it leaves before the scheduler has moved it: for milliseconds, again and
//! again, an operation has one processor. So a worker asks for another one. Knows nothing of jobs.

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
    // SAFETY: the set is as long as is said, and a set of all zeros is the empty set; the number of
    // the processor is below that of bits, or the system would have refused to write the set.
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

#[cfg(test)]
mod tests {
    use super::*;

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
