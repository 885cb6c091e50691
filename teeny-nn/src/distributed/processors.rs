//! How many threads each of several ranks on one machine should use.

use super::Communicator;
use teeny_core::context::enter;
use teeny_core::{Error, Result};

/// The number of threads with which the ranks of one machine use its processors once: this rank's
/// share of the processors that it may run on, at least 1.
///
/// A rank that `mpirun` has bound to certain processors gets as many threads as those. Ranks
/// that may run anywhere divide the machine.
///
/// # Errors
/// If a rank fails.
#[track_caller]
pub fn threads_per_rank(comm: &dyn Communicator) -> Result<usize> {
    let _op = enter("threads_per_rank");
    let mine = format!("{}\n{}\n{}", host(), quota(), allowed());
    let all = comm.gather_bytes(mine.clone().into_bytes())?;
    let all: Vec<String> =
        all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    share(&mine, &all).ok_or_else(|| Error::internal("a rank sent no list of processors"))
}

/// The share of the rank with the host, quota and list of processors in `mine`, among `all`.
fn share(mine: &str, all: &[String]) -> Option<usize> {
    let fields = |text: &'_ str| -> Option<(String, f64, Vec<usize>)> {
        let mut lines = text.lines();
        let (host, quota) = (lines.next()?.to_string(), lines.next()?.parse().ok()?);
        Some((host, quota, parse(lines.next()?)))
    };
    let (host, quota, list) = fields(mine)?;
    let others: Vec<Vec<usize>> = all
        .iter()
        .filter_map(|text| fields(text))
        .filter(|(theirs, ..)| *theirs == host)
        .map(|(_, _, list)| list)
        .collect();
    let sharers = |cpu: &usize| others.iter().filter(|list| list.contains(cpu)).count().max(1);
    let mut share: f64 = list.iter().map(|cpu| 1.0 / sharers(cpu) as f64).sum();
    if quota < list.len() as f64 {
        share = share.min(quota / others.len().max(1) as f64);
    }
    // a third of three processors is a little less than one
    Some(((share + 1e-6) as usize).max(1))
}

/// The processors whose time this process may use: a container may have fewer than it sees.
fn quota() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name of this machine.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| String::new(), |name| name.trim().to_string())
}

/// The processors that this process may run on, as Linux writes them: `0-3,8`.
fn allowed() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(|| format!("0-{}", quota() - 1), |list| list.trim().to_string())
}

/// The numbers in a list such as `0-3,8`.
fn parse(list: &str) -> Vec<usize> {
    let mut all = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<usize>()) {
            all.extend(first..=last.min(1 << 16));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_divide_the_processors_that_they_share() {
        let with_quota = |quota: usize, hosts: &[(&str, &str)]| -> Vec<usize> {
            let all: Vec<String> =
                hosts.iter().map(|(host, list)| format!("{host}\n{quota}\n{list}")).collect();
            all.iter().map(|mine| share(mine, &all).unwrap()).collect()
        };
        let lists = |hosts: &[(&str, &str)]| with_quota(64, hosts);
        assert_eq!(with_quota(4, &[("a", "0-63"), ("a", "0-63")]), [2, 2]);
        assert_eq!(with_quota(3, &[("a", "0-63"); 4]), [1; 4]);
        assert_eq!(lists(&[("a", "0-7")]), [8]);
        assert_eq!(lists(&[("a", "0-1"), ("a", "0-1")]), [1, 1]);
        assert_eq!(lists(&[("a", "0"), ("a", "1")]), [1, 1]);
        assert_eq!(lists(&[("a", "0-3"), ("a", "0-3"), ("b", "0-3")]), [2, 2, 4]);
        assert_eq!(lists(&[("a", "0-1"); 4]), [1; 4]);
        assert_eq!(lists(&[("a", "0-2"); 3]), [1; 3]);
        assert_eq!(lists(&[("a", "0-3,8-11"), ("a", "4-7,12-15")]), [8, 8]);
        assert_eq!(parse("0-3,8"), [0, 1, 2, 3, 8]);
    }
}
