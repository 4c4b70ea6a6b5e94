//! The processes that train together.

use super::launcher;
use super::transport::Transport;
use anyhow::{Context, Error, Result};
use hankel_io::terminal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The processes of one training or evaluation: this one alone, or those that `mpirun` started. All of them run the same program in
/// step; process 0 writes files and speaks.
pub struct Group {
    others: Option<Box<dyn Transport>>,
    traffic: Cell<Traffic>,
    /// All processes have met the same end.
    ends_together: Cell<bool>,
}

/// What was moved between processes, from this one's view.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Traffic {
    /// Bytes of gradients that came from other processes.
    pub(crate) bytes: u64,
    /// Seconds in which gradients were exchanged.
    pub(crate) seconds: f64,
    /// Seconds of small messages, in which processes also wait for the slowest one.
    pub(crate) waiting_seconds: f64,
}

impl Traffic {
    /// Adds what was moved in another step.
    pub(crate) fn add(&mut self, other: Traffic) {
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.waiting_seconds += other.waiting_seconds;
    }
}

/// What another process failed with.
#[derive(Debug, thiserror::Error)]
#[error("process {rank} on {host}: {message}")]
struct OfProcess {
    rank: usize,
    host: String,
    message: String,
}

/// A failure as it is told to others.
type Told = (String, String);

static MUTED: AtomicBool = AtomicBool::new(false);

/// Whether another process speaks for this one.
pub fn is_muted() -> bool {
    MUTED.load(Ordering::Relaxed)
}

static LOCAL_RANK: OnceLock<usize> = OnceLock::new();

/// Number of this process among those of its machine, 0 when it is alone: what `{local_rank}` in `device` stands for.
fn local_rank() -> usize {
    LOCAL_RANK.get().copied().unwrap_or(0)
}

/// The name of a device with the number of this process in the place of `{local_rank}`.
pub fn of_this_process(device: &str) -> String {
    device.replace("{local_rank}", &local_rank().to_string())
}

impl Group {
    /// This process alone.
    pub fn alone() -> Self {
        Group { others: None, traffic: Cell::default(), ends_together: Cell::new(false) }
    }

    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "without MPI only tests have others"))]
    pub(super) fn of(others: Box<dyn Transport>) -> Self {
        Group { others: Some(others), ..Self::alone() }
    }

    /// The processes that a launcher of MPI started together with this one. All but the first one are muted ([`crate::tell!`]).
    ///
    /// # Errors
    /// When there are several, and this program was built without the feature `mpi`.
    pub fn world() -> Result<Self> {
        match launcher::processes() {
            None => Ok(Self::alone()),
            Some(size) => Self::launched(size),
        }
    }

    #[cfg(feature = "mpi")]
    fn launched(size: usize) -> Result<Self> {
        let group = Self::of(Box::new(super::mpi::World::join()?));
        anyhow::ensure!(
            group.size() > 1 || size <= 1,
            "{size} processes were started, and this program's MPI sees one: use the launcher of the library that it was built with \
             (under Slurm `srun --mpi=pmix`)"
        );
        if let Some(others) = &group.others {
            let _ = LOCAL_RANK.set(others.local_rank());
        }
        if !group.is_root() {
            MUTED.store(true, Ordering::Relaxed);
        }
        Ok(group)
    }

    #[cfg(not(feature = "mpi"))]
    fn launched(size: usize) -> Result<Self> {
        anyhow::ensure!(
            size <= 1,
            "{size} processes were started, but this program was built without MPI: build it with `cargo build --release \
             --features mpi`, or start one process"
        );
        Ok(Self::alone())
    }

    /// Number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.rank())
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.others.as_ref().map_or(1, |others| others.size())
    }

    /// Number of processes on this machine.
    pub fn local_size(&self) -> usize {
        self.others.as_ref().map_or(1, |others| others.local_size())
    }

    /// Whether this is the process that writes and speaks.
    pub fn is_root(&self) -> bool {
        self.rank() == 0
    }

    /// Whether there are other processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.size() > 1
    }

    /// Which of `count` things are this process's: runs of equal length, or one more.
    pub(crate) fn share(&self, count: u64) -> Range<u64> {
        share_of(self.rank(), self.size(), count)
    }

    /// What every process has, in their order; an error when one of them has one.
    ///
    /// # Errors
    /// This process's own, or the first of another one.
    pub(crate) fn exchange<T: Serialize + DeserializeOwned>(&self, own: Result<T>) -> Result<Vec<T>> {
        let Some(others) = &self.others else { return Ok(vec![own?]) };
        let begun = Instant::now();
        let told: Result<&T, Told> = own.as_ref().map_err(|error| (host(), format!("{error:#}")));
        let bytes = rmp_serde::to_vec_named(&told).context("a message to other processes cannot be made")?;
        let answers = gather(&**others, &bytes)?;
        self.note(|traffic| traffic.waiting_seconds += begun.elapsed().as_secs_f64());
        let mut all = Vec::with_capacity(answers.len());
        let mut failed = None;
        for (rank, answer) in answers.iter().enumerate() {
            let answer: Result<T, Told> = rmp_serde::from_slice(answer)
                .with_context(|| format!("a message of process {rank} cannot be understood"))?;
            match answer {
                Ok(value) => all.push(value),
                Err((host, message)) => drop(failed.get_or_insert(OfProcess { rank, host, message })),
            }
        }
        let Some(failed) = failed else { return Ok(all) };
        self.end_together();
        Err(own.err().unwrap_or_else(|| failed.into()))
    }

    /// `own`, if no process has an error.
    ///
    /// # Errors
    /// As `exchange`.
    pub fn agree<T>(&self, own: Result<T>) -> Result<T> {
        let (value, told) = match own {
            Ok(value) => (Some(value), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.exchange(told)?;
        value.context("a process has failed")
    }

    /// Whether it is so for any process.
    ///
    /// # Errors
    /// When the others cannot be reached.
    pub(crate) fn any(&self, own: bool) -> Result<bool> {
        Ok(self.exchange(Ok(own))?.into_iter().any(|one| one))
    }

    /// What process 0 has.
    ///
    /// # Errors
    /// As `exchange`.
    pub fn of_root<T: Serialize + DeserializeOwned>(&self, own: Result<T>) -> Result<T> {
        self.exchange(own)?.into_iter().next().context("there is no process 0")
    }

    /// Times what takes `taken[i]` bytes of gradients from process `i`.
    pub(super) fn move_gradients(&self, taken: &[usize], f: impl FnOnce(&dyn Transport) -> Result<()>) -> Result<()> {
        let others = self.others.as_ref().context("there are no other processes")?;
        let begun = Instant::now();
        f(&**others)?;
        self.note(|traffic| {
            traffic.seconds += begun.elapsed().as_secs_f64();
            traffic.bytes += (taken.iter().sum::<usize>() - taken[self.rank()]) as u64;
        });
        Ok(())
    }

    fn note(&self, f: impl FnOnce(&mut Traffic)) {
        let mut traffic = self.traffic.get();
        f(&mut traffic);
        self.traffic.set(traffic);
    }

    /// What was moved since the last call.
    pub(crate) fn take_traffic(&self) -> Traffic {
        self.traffic.take()
    }

    /// Every process knows that all of them end here.
    pub fn end_together(&self) {
        self.ends_together.set(true);
    }

    /// Every process knows that all of them go on after an error that all have met.
    pub fn go_on_together(&self) {
        self.ends_together.set(false);
    }

    /// Tells an error that ends the program: once when all processes have met it, else with the name of this one.
    pub fn tell(&self, error: &Error) {
        if !self.is_shared() || self.ends_together.get() {
            crate::tell!("error: {error:#}");
        } else {
            terminal::tell(&format!("error: process {} on {}: {error:#}", self.rank(), host()));
        }
    }

    /// Leaves together with the others; ends them, too, when they do not know of the error behind `code`.
    pub fn leave(self, code: u8) {
        let Some(others) = self.others else { return };
        if code != 0 && !self.ends_together.get() {
            others.abort(i32::from(code));
        }
        others.finish();
    }
}

/// What every process gives, in their order.
fn gather(others: &dyn Transport, own: &[u8]) -> Result<Vec<Vec<u8>>> {
    const WIDTH: usize = size_of::<u64>();
    let mut lengths = vec![0; others.size() * WIDTH];
    others.all_gather(&(own.len() as u64).to_le_bytes(), &mut lengths, &vec![WIDTH; others.size()])?;
    let lengths: Vec<usize> = lengths.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes) as usize).collect();
    let mut all = vec![0; lengths.iter().sum()];
    others.all_gather(own, &mut all, &lengths)?;
    let mut rest = &all[..];
    let message = |&length: &usize| {
        let (message, behind) = rest.split_at(length);
        rest = behind;
        message.to_vec()
    };
    Ok(lengths.iter().map(message).collect())
}

/// Which of `count` things are process `rank`'s of `size`.
pub(super) fn share_of(rank: usize, size: usize, count: u64) -> Range<u64> {
    let border = |rank: usize| (u128::from(count) * rank as u128 / size as u128) as u64;
    border(rank)..border(rank + 1)
}

/// The name of this machine.
pub fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.or_else(|| ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok()));
    told.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "this machine".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::threads::{Network, together};
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn shares_are_even_and_complete() {
        for (size, count) in [(1, 5), (4, 4), (4, 10), (3, 2), (7, 0)] {
            let shares: Vec<Range<u64>> = (0..size).map(|rank| share_of(rank, size, count)).collect();
            assert_eq!((shares[0].start, shares[size - 1].end), (0, count));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            let lengths = shares.iter().map(|share| share.end - share.start);
            assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
        }
    }

    #[test]
    fn an_error_of_one_is_one_of_all() {
        let said = together(3, Network::default(), |group| {
            assert_eq!(group.exchange(Ok(group.rank() as f64 / 0.0)).unwrap()[1], f64::INFINITY);
            assert!(group.any(group.rank() == 2).unwrap() && !group.any(false).unwrap());
            assert_eq!(group.of_root(Ok(group.rank())).unwrap(), 0);
            let own = if group.rank() == 1 { Err(anyhow!("no room")) } else { Ok(group.rank()) };
            let error = group.agree(own).unwrap_err();
            assert!(group.ends_together.get());
            error.to_string()
        });
        assert!(said[0].starts_with("process 1 on ") && said[0].ends_with(": no room"), "{}", said[0]);
        assert_eq!((&said[0], &said[1][..]), (&said[2], "no room"));
    }

    #[test]
    fn one_process_needs_nobody() {
        let group = Group::alone();
        assert_eq!(group.agree(Ok(3)).unwrap(), 3);
        assert_eq!(group.agree::<()>(Err(anyhow!("own"))).unwrap_err().to_string(), "own");
        assert_eq!((group.share(9), group.size(), group.is_root()), (0..9, 1, true));
    }
}
