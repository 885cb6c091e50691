//! How many threads each of several ranks on one machine should use, and whether ranks have too few
//! processors.

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

/// A warning if a rank of `ranks` has one processor for its two threads, computation and
/// communication, or the `local` ranks of this machine have fewer processors than they are.
/// `allowed` are the processors that this process may run on, `machine` those that there are.
#[cfg(any(feature = "mpi", test))]
fn warning(allowed: &[usize], machine: usize, ranks: usize, local: usize) -> Option<String> {
    let slow = "steps can take several times as long";
    match *allowed {
        [only] if ranks > 1 && machine > 1 => Some(format!(
            "a rank is bound to processor {only} alone, which its computation and its communication \
             share: {slow}\n  help: mpirun --bind-to none"
        )),
        _ if local > allowed.len().max(1) => Some(format!(
            "{local} ranks share {} processors: {slow}\n  help: start at most one rank for each \
             processor",
            allowed.len()
        )),
        _ => None,
    }
}

/// Prints the [`warning`] on the standard error output, on one rank of each machine. What `mpirun`
/// says of this machine is in environment variables of Open MPI, MPICH or Slurm.
#[cfg(feature = "mpi")]
pub(super) fn warn(rank: usize, ranks: usize) {
    let number = |names: [&str; 3]| {
        names.iter().find_map(|name| std::env::var(name).ok()?.parse::<usize>().ok())
    };
    let first = number(["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"]);
    if first.unwrap_or(rank) != 0 {
        return;
    }
    let local = number(["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"]);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let allowed = parse(&allowed());
    if let Some(text) = warning(&allowed, parse(&online).len(), ranks, local.unwrap_or(1)) {
        // which may be closed
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("teeny: {text}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_with_one_processor_for_two_threads_is_noticed() {
        let bound = warning(&[3], 4, 2, 2).unwrap();
        assert!(bound.contains("bound to processor 3 alone") && bound.contains("--bind-to none"));
        let shared = warning(&[0, 1], 2, 4, 4).unwrap();
        assert!(shared.contains("4 ranks share 2 processors"), "{shared}");
        assert!(warning(&[0], 1, 2, 2).unwrap().contains("2 ranks share 1 processors"));
        assert_eq!(warning(&[0, 1], 2, 2, 2), None, "unbound");
        assert_eq!(warning(&[3], 4, 1, 1), None, "one rank communicates with none");
        assert_eq!(warning(&[0], 1, 2, 1), None, "one on each of two small machines");
        assert_eq!(warning(&[], 0, 2, 1), None, "unknown");
    }

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
