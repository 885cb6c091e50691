//! The time of collective operations, in seconds.
//!
//! ```text
//! n ranks, N bytes, a latency, B bandwidth, S sum_rate; one rank per node:
//! reduce_scatter   (n - 1) a + (n - 1)/n N/B + (n - 1)/n N/S
//! all_gather       (n - 1) a + (n - 1)/n N/B
//! all_reduce       their sum
//! broadcast        ceil(log2 n) (a + N/B)
//! ```
//!
//! With m ranks per node a rank sends m - 1 messages within and n - m between nodes, one after
//! another, while the other m - 1 ranks of its node do the same on the same links. A cluster
//! without ranks counts as one rank.

use super::cluster::{Cluster, Link};

impl Cluster {
    /// Seconds of an all_reduce of `bytes`, as
    /// [`Communicator::all_reduce`](teeny_distributed::Communicator::all_reduce) does it: a
    /// [`Cluster::reduce_scatter`] and an [`Cluster::all_gather`].
    pub fn all_reduce(&self, bytes: f64) -> f64 {
        self.reduce_scatter(bytes) + self.all_gather(bytes)
    }

    /// Seconds of a reduce_scatter of `bytes`: every rank sends each other one its share and adds
    /// what arrives. Source: "pairwise exchange", Thakur, Rabenseifner & Gropp 2005,
    /// doi:10.1177/1094342005051521.
    pub fn reduce_scatter(&self, bytes: f64) -> f64 {
        let n = self.ranks.max(1) as f64;
        self.exchange(bytes / n) + (n - 1.0) / n * bytes / self.sum_rate
    }

    /// Seconds of an all_gather to `bytes`: every rank sends its share to each other one.
    pub fn all_gather(&self, bytes: f64) -> f64 {
        self.exchange(bytes / self.ranks.max(1) as f64)
    }

    /// Seconds of a broadcast of `bytes` along the binomial tree in which rank r has the data from
    /// r without its highest bit, step by step.
    pub fn broadcast(&self, bytes: f64) -> f64 {
        let mut seconds = 0.0;
        let mut distance = 1;
        while distance < self.ranks {
            seconds += self.broadcast_step(distance, bytes);
            distance *= 2;
        }
        seconds
    }

    /// Ranks below `distance` send to those above, at that distance; the busiest node decides.
    fn broadcast_step(&self, distance: usize, bytes: f64) -> f64 {
        let per_node = self.ranks_per_node.max(1);
        let senders = distance.min(self.ranks - distance);
        let mut slowest: f64 = 0.0;
        let mut first = 0;
        while first < senders {
            let end = first.saturating_add(per_node).min(senders);
            // a rank of this node sends within it if its receiver is below the next node's first
            let inside = first.saturating_add(per_node).saturating_sub(distance);
            let within = inside.min(end).saturating_sub(first);
            let between = end - first - within;
            let time = |count: usize, link: &Link| match count {
                0 => 0.0,
                _ => link.latency + count as f64 * bytes / link.bandwidth,
            };
            slowest = slowest.max(time(within, &self.within) + time(between, &self.between));
            first = end;
        }
        slowest
    }

    /// Seconds in which every rank sends each other one `share` bytes.
    fn exchange(&self, share: f64) -> f64 {
        let per_node = self.ranks_per_node.max(1);
        // the last node may have fewer ranks
        let nodes = [per_node.min(self.ranks), self.ranks % per_node];
        let time = |node: usize| {
            let (m, others) = (node as f64, self.ranks as f64 - node as f64);
            let message = |link: &Link| link.latency + m * share / link.bandwidth;
            (m - 1.0) * message(&self.within) + others * message(&self.between)
        };
        nodes.into_iter().filter(|&node| node > 0).map(time).fold(0.0, f64::max)
    }

    /// Bytes that a rank sends in an all_reduce of `bytes`, the least possible: `2 (n - 1)/n`.
    /// A reduce_scatter and an all_gather send half of them.
    pub fn all_reduce_bytes(&self, bytes: f64) -> f64 {
        let n = self.ranks.max(1) as f64;
        2.0 * (n - 1.0) / n * bytes
    }

    /// Seconds of an all_reduce of `bytes` around a ring, which this library does not have:
    /// `2 (n - 1) a + 2 (n - 1)/n N/B + (n - 1)/n N/S`.
    ///
    /// Between nodes only their last ranks send, so the nodes' interfaces are not shared; every
    /// step takes as long as its slowest message. Source: Thakur, Rabenseifner & Gropp
    /// 2005.
    pub fn ring_all_reduce(&self, bytes: f64) -> f64 {
        let n = self.ranks.max(1) as f64;
        let m = self.ranks_per_node.clamp(1, self.ranks.max(1)) as f64;
        // a ring that leaves the node has one message fewer in it
        let (inner, outer) = if n > m { (m - 1.0, 1.0) } else { (m, 0.0) };
        let message = |link: &Link, count: f64| match count {
            0.0 => 0.0,
            _ => link.latency + count * bytes / n / link.bandwidth,
        };
        let step = message(&self.within, inner).max(message(&self.between, outer));
        2.0 * (n - 1.0) * step + (n - 1.0) / n * bytes / self.sum_rate
    }

    /// Seconds of an all_reduce of `bytes` as a reduction along a binomial tree and a broadcast,
    /// which this library does not have: with one rank per node
    /// `ceil(log2 n) (2 a + 2 N/B + N/S)`. Source: Thakur, Rabenseifner & Gropp 2005.
    pub fn tree_all_reduce(&self, bytes: f64) -> f64 {
        let steps = f64::from(self.ranks.max(1).next_power_of_two().ilog2());
        2.0 * self.broadcast(bytes) + steps * bytes / self.sum_rate
    }

    /// Seconds of an all_reduce of `bytes` by recursive halving and doubling, which this library
    /// does not have: `2 ceil(log2 n) a + 2 (n - 1)/n N/B + (n - 1)/n N/S`, with one rank per node
    /// and a power of two of them; `None` otherwise. Source: Thakur, Rabenseifner & Gropp 2005,
    /// "Rabenseifner's algorithm".
    pub fn halving_all_reduce(&self, bytes: f64) -> Option<f64> {
        if !self.ranks.is_power_of_two() || self.ranks_per_node != 1 {
            return None;
        }
        let n = self.ranks as f64;
        let steps = f64::from(self.ranks.ilog2());
        let sent = (n - 1.0) / n * bytes;
        let Link { latency, bandwidth } = self.between;
        Some(2.0 * steps * latency + 2.0 * sent / bandwidth + sent / self.sum_rate)
    }
}
