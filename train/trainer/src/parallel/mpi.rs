//! The processes that an MPI launcher started.

use super::transport::Transport;
use anyhow::{Context, Result};
use mpi::Count;
use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};
use std::mem::ManuallyDrop;

/// All processes of the job. The library ends the job when one of them cannot be reached.
pub(super) struct World {
    /// Dropping it waits for all other processes, which after an error is for ever.
    universe: ManuallyDrop<Universe>,
    all: SimpleCommunicator,
    local_rank: usize,
    local_size: usize,
}

impl World {
    /// Joins the others.
    ///
    /// # Errors
    /// When this process has joined before.
    pub(super) fn join() -> Result<Self> {
        // All calls come from the main thread.
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled).context("MPI was begun before")?;
        let world = universe.world();
        let local = world.split_shared(world.rank());
        let (local_rank, local_size) = (local.rank() as usize, local.size() as usize);
        Ok(World { universe: ManuallyDrop::new(universe), all: world, local_rank, local_size })
    }
}

/// The bytes, and for none of them an address of their own: that of an empty vector of bytes is 1, which is MPI_IN_PLACE in Open MPI.
fn at_an_address(bytes: &[u8]) -> &[u8] {
    static NOTHING: [u8; 1] = [0];
    if bytes.is_empty() { &NOTHING[..0] } else { bytes }
}

/// Where parts of these lengths begin in a buffer, and its length.
fn offsets(lengths: &[Count]) -> Result<(Vec<Count>, usize)> {
    let mut end: Count = 0;
    let starts = lengths.iter().map(|&length| {
        let start = end;
        end = end.checked_add(length).context("a message of MPI has at most 2 GiB")?;
        Ok(start)
    });
    Ok((starts.collect::<Result<_>>()?, end as usize))
}

/// The parts of a buffer.
fn split(buffer: &[u8], lengths: &[Count]) -> Vec<Vec<u8>> {
    let mut rest = buffer;
    let part = |&length: &Count| {
        let (part, behind) = rest.split_at(length as usize);
        rest = behind;
        part.to_vec()
    };
    lengths.iter().map(part).collect()
}

fn length(part: &[u8]) -> Result<Count> {
    Count::try_from(part.len()).context("a message of MPI has at most 2 GiB")
}

impl Transport for World {
    fn rank(&self) -> usize {
        self.all.rank() as usize
    }

    fn size(&self) -> usize {
        self.all.size() as usize
    }

    fn local_rank(&self) -> usize {
        self.local_rank
    }

    fn local_size(&self) -> usize {
        self.local_size
    }

    fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let own = at_an_address(own);
        let mut lengths: Vec<Count> = vec![0; self.size()];
        self.all.all_gather_into(&length(own)?, &mut lengths[..]);
        let (starts, total) = offsets(&lengths)?;
        let mut buffer = vec![0; total.max(1)];
        self.all.all_gather_varcount_into(own, &mut PartitionMut::new(&mut buffer[..], &lengths[..], &starts[..]));
        Ok(split(&buffer, &lengths))
    }

    fn all_to_all(&self, parts: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let given: Vec<Count> = parts.iter().map(|part| length(part)).collect::<Result<_>>()?;
        let mut taken: Vec<Count> = vec![0; self.size()];
        self.all.all_to_all_into(&given[..], &mut taken[..]);
        let (given_starts, _) = offsets(&given)?;
        let (taken_starts, total) = offsets(&taken)?;
        let (outgoing, mut incoming) = (parts.concat(), vec![0; total.max(1)]);
        self.all.all_to_all_varcount_into(
            &Partition::new(at_an_address(&outgoing), &given[..], &given_starts[..]),
            &mut PartitionMut::new(&mut incoming[..], &taken[..], &taken_starts[..]),
        );
        Ok(split(&incoming, &taken))
    }

    fn finish(self: Box<Self>) {
        drop(ManuallyDrop::into_inner(self.universe));
    }

    fn abort(&self, code: i32) -> ! {
        self.all.abort(code)
    }
}
