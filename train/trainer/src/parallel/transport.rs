//! What moves bytes between processes.

use anyhow::Result;

/// The processes of a group, which all call the same methods in the same order.
pub(super) trait Transport {
    /// Number of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Number of this process among those on its machine.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "asked for where a launcher is"))]
    fn local_rank(&self) -> usize;

    /// Number of processes on its machine.
    fn local_size(&self) -> usize;

    /// Puts what every process gives behind one another into `all`, in their order: `lengths[i]` bytes of process `i`.
    ///
    /// # Errors
    /// When the others cannot be reached.
    fn all_gather(&self, own: &[u8], all: &mut [u8], lengths: &[usize]) -> Result<()>;

    /// Gives the next `given[i]` bytes of `outgoing` to process `i`, and puts the `taken[i]` bytes that it has for this one into
    /// `incoming`, in their order.
    ///
    /// # Errors
    /// When the others cannot be reached.
    fn all_to_all(&self, outgoing: &[u8], given: &[usize], incoming: &mut [u8], taken: &[usize]) -> Result<()>;

    /// Leaves in order, together with all others.
    fn finish(self: Box<Self>);

    /// Ends all processes at once.
    fn abort(&self, code: i32) -> !;
}
