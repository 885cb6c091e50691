//! [`SingleRank`]: the communicator of a program with one rank.

use super::Communicator;
use super::collective::{Collective, Group, Pending, run};
use super::message::{Expected, Outgoing, Transport};
use std::sync::Arc;
use teeny_core::{Error, Result};

/// One rank alone: collective operations return their operand.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleRank;

impl Communicator for SingleRank {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn start(&self, collective: Collective) -> Pending {
        let group = Group { id: 0, rank: 0, members: &[0], sequence: 0 };
        Pending::done(run(&mut Vec::new(), &group, collective))
    }

    fn split(&self, _group: usize) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(SingleRank))
    }

    fn abort(&self, _error: &Error) {}
}

/// One rank sends no messages: only the scratch memory is needed.
impl Transport for Vec<u8> {
    fn exchange(&mut self, _: &[Outgoing<'_>], _: &mut [Expected<'_>]) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        self
    }
}
