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

/// The bytes; if there are none, an empty slice at a real address. An empty `Vec<u8>` has the address 1, which is MPI_IN_PLACE in Open MPI.
fn at_an_address(bytes: &[u8]) -> &[u8] {
    static NOTHING: [u8; 1] = [0];
    if bytes.is_empty() { &NOTHING[..0] } else { bytes }
}

/// Lengths of the parts of a buffer as MPI has them, and where each begins.
fn parts(lengths: &[usize]) -> Result<(Vec<Count>, Vec<Count>)> {
    let mut end: Count = 0;
    let part = |&length: &usize| {
        let (start, length) = (end, Count::try_from(length).ok()?);
        end = end.checked_add(length)?;
        Some((length, start))
    };
    lengths.iter().map(part).collect::<Option<_>>().context("a message of MPI has at most 2 GiB")
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

    fn all_gather(&self, own: &[u8], all: &mut [u8], lengths: &[usize]) -> Result<()> {
        let (lengths, starts) = parts(lengths)?;
        let mut nothing = [0];
        let all = if all.is_empty() { &mut nothing[..0] } else { all };
        let all = &mut PartitionMut::new(all, &lengths[..], &starts[..]);
        self.all.all_gather_varcount_into(at_an_address(own), all);
        Ok(())
    }

    fn all_to_all(&self, outgoing: &[u8], given: &[usize], incoming: &mut [u8], taken: &[usize]) -> Result<()> {
        let ((given, given_starts), (taken, taken_starts)) = (parts(given)?, parts(taken)?);
        let mut nothing = [0];
        let incoming = if incoming.is_empty() { &mut nothing[..0] } else { incoming };
        self.all.all_to_all_varcount_into(
            &Partition::new(at_an_address(outgoing), &given[..], &given_starts[..]),
            &mut PartitionMut::new(incoming, &taken[..], &taken_starts[..]),
        );
        Ok(())
    }

    fn finish(self: Box<Self>) {
        drop(ManuallyDrop::into_inner(self.universe));
    }

    fn abort(&self, code: i32) -> ! {
        self.all.abort(code)
    }
}
