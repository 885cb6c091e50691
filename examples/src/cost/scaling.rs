//! Efficiency by the number of ranks, and where it ends.

use super::cluster::Cluster;
use super::step::{SimulatedStep, TrainingPlan, simulate};
use super::workload::Workload;
use teeny_core::Result;

/// The number of items that is constant while ranks are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// The items of each rank, [`Workload::items_per_rank`].
    Weak,
    /// The items of all ranks, [`Workload::joint_items`]. There are at most as many ranks.
    Strong,
}

impl Scaling {
    /// `workload` with the items of each of `ranks` ranks; `None` if some would have none.
    fn divide(self, workload: &Workload, ranks: usize) -> Option<Workload> {
        match self {
            Scaling::Weak => Some(workload.clone()),
            Scaling::Strong => {
                let items_per_rank = workload.joint_items / ranks as f64;
                let enough = items_per_rank >= 1.0;
                enough.then(|| Workload { items_per_rank, ..workload.clone() })
            }
        }
    }
}

/// A number of ranks and its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalingRow {
    /// The number of ranks.
    pub ranks: usize,
    /// The step of each of them.
    pub step: SimulatedStep,
    /// Items per second and rank, compared with one rank: `T(1) / T(n)` in weak scaling,
    /// `T(1) / (n T(n))` in strong scaling. With a sharded optimizer it may be above 1.
    pub efficiency: f64,
}

/// Steps of 1, 2, 4 .. 4,096 ranks of a cluster; in strong scaling only while each has an item.
/// `cluster.ranks` is ignored.
///
/// # Errors
/// As [`simulate`].
pub fn sweep(
    workload: &Workload,
    cluster: &Cluster,
    plan: &TrainingPlan,
    scaling: Scaling,
) -> Result<Vec<ScalingRow>> {
    let mut rows: Vec<ScalingRow> = Vec::new();
    for ranks in (0..=12).map(|power| 1 << power) {
        let Some(workload) = scaling.divide(workload, ranks) else { break };
        let step = simulate(&workload, &cluster.with_ranks(ranks), plan)?;
        let one = rows.first().map_or(step.seconds, |row| row.step.seconds);
        let ideal = match scaling {
            Scaling::Weak => one,
            Scaling::Strong => one / ranks as f64,
        };
        rows.push(ScalingRow { ranks, step, efficiency: ideal / step.seconds });
    }
    Ok(rows)
}

/// The number of ranks, a power of two up to 4,096, beyond which efficiency falls below
/// `efficiency`, a fraction of 1; 4,096 if it does not. In strong scaling it is at most the number
/// of items.
///
/// # Errors
/// As [`simulate`].
pub fn limit(
    workload: &Workload,
    cluster: &Cluster,
    plan: &TrainingPlan,
    scaling: Scaling,
    efficiency: f64,
) -> Result<usize> {
    let rows = sweep(workload, cluster, plan, scaling)?;
    let enough = rows.iter().take_while(|row| row.efficiency >= efficiency);
    // one rank is always there
    Ok(enough.last().map_or(1, |row| row.ranks))
}
