//! The limit that a control group of Linux sets to the memory of a process, as containers do.
//!
//! The kernel ends a process of a group that uses more than its limit. It counts memory when it is
//! written to, so no allocation fails. Large requests are therefore compared with the limit first.
//! systemd, Docker and Kubernetes use version 1 or 2 of control groups; both are read.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a version of control groups has its folders and figures.
struct Version {
    /// How the line of a process in `/proc/self/cgroup` begins, after the number of the hierarchy.
    prefix: &'static str,
    root: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The rows of `memory.stat` that are copies of files, which the kernel drops for new memory.
    files: [&'static str; 2],
}

#[rustfmt::skip]
const VERSIONS: [Version; 2] = [
    Version {
        prefix: "memory:", root: "/sys/fs/cgroup/memory", limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes", files: ["total_inactive_file", "total_active_file"],
    },
    Version {
        prefix: ":", root: "/sys/fs/cgroup", limit: "memory.max", usage: "memory.current",
        files: ["inactive_file", "active_file"],
    },
];

/// A group with a limit that this process is in, by itself or by a group within.
struct Group {
    folder: PathBuf,
    limit: u64,
    version: &'static Version,
}

type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// The limited groups of a process whose `/proc/self/cgroup` is `membership`.
fn groups(membership: &str, read: Read) -> Vec<Group> {
    let mut all = Vec::new();
    for version in &VERSIONS {
        let path = membership
            .lines()
            .find_map(|line| line.split_once(':')?.1.strip_prefix(version.prefix))
            .unwrap_or("/");
        // A container may see the folder of its own group as the root.
        for inner in Path::new(path.trim_start_matches('/')).ancestors() {
            let folder = Path::new(version.root).join(inner);
            let limit = read(&folder.join(version.limit)).and_then(|text| text.trim().parse().ok());
            // Version 1 says "no limit" as the largest number of whole pages.
            if let Some(limit) = limit.filter(|limit| *limit < 1 << 60) {
                all.push(Group { folder, limit, version });
            }
        }
    }
    all
}

/// The limit of the group that has the least free memory, and that memory: a sixteenth of the limit
/// is left for stacks, code and small blocks.
fn least(groups: &[Group], read: Read) -> Option<(u64, u64)> {
    let free = |group: &Group| {
        let number = |file: &str| read(&group.folder.join(file))?.trim().parse::<u64>().ok();
        let stat = read(&group.folder.join("memory.stat")).unwrap_or_default();
        let of_files: u64 = stat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| group.version.files.contains(name))
            .filter_map(|(_, bytes)| bytes.parse::<u64>().ok())
            .sum();
        let used = number(group.version.usage)?.saturating_sub(of_files);
        Some((group.limit, (group.limit - group.limit / 16).saturating_sub(used)))
    };
    groups.iter().filter_map(free).min_by_key(|(_, free)| *free)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn of_this_process() -> &'static [Group] {
    static GROUPS: OnceLock<Vec<Group>> = OnceLock::new();
    GROUPS.get_or_init(|| match cfg!(target_os = "linux") {
        true => groups(&read(Path::new("/proc/self/cgroup")).unwrap_or_default(), &read),
        false => Vec::new(),
    })
}

/// The limit and the free bytes, if a group of this process has a limit.
pub(super) fn limit() -> Option<(u64, u64)> {
    least(of_this_process(), &read)
}

/// Whether a control group limits the memory of this process. The kernel counts memory when it is
/// written to: an allocator that asks [`allowed`] writes to each page of what it gets at once.
pub fn is_limited() -> bool {
    !of_this_process().is_empty()
}

/// Whether this process may take `bytes` more without being ended: by the limit of its control
/// group, if it has one, else always.
///
/// Half of what is free is granted without a look at the files, which takes tens of microseconds.
pub fn allowed(bytes: usize) -> bool {
    static GRANTED: AtomicU64 = AtomicU64::new(0);
    let bytes = bytes as u64;
    if !is_limited() || GRANTED.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(bytes)).is_ok() {
        return true;
    }
    let Some((_, free)) = limit() else { return true };
    let rest = free.checked_sub(bytes);
    GRANTED.store(rest.unwrap_or(0) / 2, Relaxed);
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit and the free bytes by files of these names and contents.
    fn of(membership: &str, files: &[(&str, &str)]) -> Option<(u64, u64)> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(found.1.to_string())
        };
        least(&groups(membership, &read), &read)
    }

    #[test]
    fn both_versions_are_read() {
        let second = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1600\n"),
            ("/sys/fs/cgroup/a/memory.current", "700\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100\nactive_file 50\n"),
        ];
        assert_eq!(of("0::/a/b\n", &second), Some((1600, 950)));
        let first = [
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1600\n"),
            ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1550\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(of("3:cpu:/\n4:memory:/a\n0::/x\n", &first), Some((1600, 0)));
        // the path is that outside of the container, whose own folder is the root
        let rooted = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3200"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000"),
        ];
        assert_eq!(of("4:memory:/docker/0123\n", &rooted), Some((3200, 2000)));
    }

    #[test]
    fn the_fullest_group_decides_and_nonsense_is_no_limit() {
        let nested = [
            ("/sys/fs/cgroup/a/memory.max", "1600"),
            ("/sys/fs/cgroup/a/memory.current", "0"),
            ("/sys/fs/cgroup/memory.max", "3200"),
            ("/sys/fs/cgroup/memory.current", "2900"),
        ];
        assert_eq!(of("0::/a", &nested), Some((3200, 100)));
        assert_eq!(of("", &[]), None);
        assert_eq!(of("0::/a", &[("/sys/fs/cgroup/a/memory.max", "many")]), None);
        assert_eq!(of("::\n:", &[("/sys/fs/cgroup/memory.max", "160")]), None); // no usage
    }
}
