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

    fn all_gather(&self, own: &[u8], all: &mut [u8], lengths: &[usize]) -> Result<()> {
        let size = self.hub.size;
        self.all_to_all(&own.repeat(size), &vec![own.len(); size], all, lengths)
    }

    fn all_to_all(&self, outgoing: &[u8], given: &[usize], incoming: &mut [u8], taken: &[usize]) -> Result<()> {
        let Hub { messages, barrier, size, network } = &*self.hub;
        let locked = || messages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = outgoing;
        for (to, &length) in given.iter().enumerate() {
            let (message, behind) = rest.split_at(length);
            rest = behind;
            locked()[self.rank * size + to] = message.to_vec();
        }
        barrier.wait();
        let (mut rest, mut bytes) = (incoming, 0);
        for (from, &length) in taken.iter().enumerate() {
            let message = std::mem::take(&mut locked()[from * size + self.rank]);
            assert_eq!(message.len(), length, "process {from} has another message for process {}", self.rank);
            let (place, behind) = rest.split_at_mut(length);
            rest = behind;
            place.copy_from_slice(&message);
            bytes += if from == self.rank { 0 } else { length };
        }
        // The next messages may come when all have these.
        barrier.wait();
        // A message takes its latency on each level of a tree of processes; bytes come one after the other.
        let levels = size.next_power_of_two().trailing_zeros();
        thread::sleep(network.latency * levels + Duration::from_secs_f64(network.seconds_per_byte * bytes as f64));
        Ok(())
    }

    fn finish(self: Box<Self>) {}

    fn abort(&self, code: i32) -> ! {
        panic!("process {} ended all with code {code}", self.rank)
    }
}
