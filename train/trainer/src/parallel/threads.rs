//! Threads in the place of processes, for tests; with the delays of a network, to simulate one.

use super::group::Group;
use super::transport::Transport;
use anyhow::Result;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Latency of a message, and seconds that a byte takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Network {
    pub(crate) latency: Duration,
    pub(crate) seconds_per_byte: f64,
}

struct Hub {
    /// What process i has for process j, at `i * size + j`.
    messages: Mutex<Vec<Vec<u8>>>,
    barrier: Barrier,
    size: usize,
    network: Network,
}

struct Member {
    hub: Arc<Hub>,
    rank: usize,
}

/// Runs `f` on `size` threads that are the processes of a group, and gives what each returned.
pub(crate) fn together<T: Send>(size: usize, network: Network, f: impl Fn(&Group) -> T + Sync) -> Vec<T> {
    let messages = Mutex::new(vec![Vec::new(); size * size]);
    let hub = Arc::new(Hub { messages, barrier: Barrier::new(size), size, network });
    thread::scope(|scope| {
        let member = |rank| {
            let (hub, f) = (hub.clone(), &f);
            scope.spawn(move || f(&Group::of(Box::new(Member { hub, rank }))))
        };
        let members: Vec<_> = (0..size).map(member).collect();
        members.into_iter().map(|member| member.join().expect("a process has panicked")).collect()
    })
}

impl Transport for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.hub.size
    }

    fn local_rank(&self) -> usize {
        self.rank
    }

    fn local_size(&self) -> usize {
        self.hub.size
    }

    fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.all_to_all(&vec![own.to_vec(); self.hub.size])
    }

    fn all_to_all(&self, parts: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let Hub { messages, barrier, size, network } = &*self.hub;
        let locked = || messages.lock().unwrap_or_else(PoisonError::into_inner);
        locked()[self.rank * size..(self.rank + 1) * size].clone_from_slice(parts);
        barrier.wait();
        let taken: Vec<Vec<u8>> = (0..*size).map(|from| locked()[from * size + self.rank].clone()).collect();
        // The next messages may come when all have these.
        barrier.wait();
        let bytes: usize = taken.iter().enumerate().filter(|(from, _)| *from != self.rank).map(|(_, m)| m.len()).sum();
        // A message takes its latency on each level of a tree of processes; bytes come one after the other.
        let levels = size.next_power_of_two().trailing_zeros();
        thread::sleep(network.latency * levels + Duration::from_secs_f64(network.seconds_per_byte * bytes as f64));
        Ok(taken)
    }

    fn finish(self: Box<Self>) {}

    fn abort(&self, code: i32) -> ! {
        panic!("process {} ended all with code {code}", self.rank)
    }
}
