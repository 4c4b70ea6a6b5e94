//! Gradients summed over processes.
//!
//! Each process is responsible for an equal part of the values: it takes that part of every process's partial sums, adds them up in
//! the order of the tree, and gives the result to all. Where the share of each process is one node of the tree, a process receives less
//! than twice the size of the gradient, whatever the number of processes; shares of several nodes need more. No bit of the result
//! depends on the number of processes. (A ready-made all-reduce adds in an order of its own.)

use super::group::{Group, share_of};
use super::tree::{Node, cover, sum};
use anyhow::{Context, Result, ensure};
use hankel_core::{Device, Float, Gradients, Tensor};
use std::ops::Range;

/// Values that are exchanged at once: messages stay small, whatever is trained.
const BLOCK: usize = 4 << 20;

/// The gradient of `parameters` over all `leaves` micro-batches from the partial sums of this process: those of the nodes that cover
/// its share. A parameter without a gradient in any of them has none.
///
/// # Errors
/// When the others cannot be reached, and those of the device.
pub(crate) fn sum_gradients(
    group: &Group,
    leaves: u64,
    partial: &[Gradients],
    parameters: &[Tensor],
) -> Result<Gradients> {
    let has = |parameter: &Tensor| partial.iter().any(|gradients| gradients.get(parameter).is_some());
    let own = parameters.iter().map(|parameter| (parameter.elements(), has(parameter))).collect::<Vec<(usize, bool)>>();
    let known = group.exchange(Ok(own))?;
    // What is sent has lengths that all know: it comes without them.
    let sizes = |of_process: &Vec<(usize, bool)>| of_process.iter().map(|(size, _)| *size).collect::<Vec<usize>>();
    ensure!(known.iter().all(|of_process| sizes(of_process) == sizes(&known[0])), "processes train other parameters");
    let wanted = |index: &usize| known.iter().any(|of_process| of_process[*index].1);
    let wanted: Vec<&Tensor> = (0..parameters.len()).filter(wanted).map(|index| &parameters[index]).collect();
    let mut total = Gradients::default();
    reduce::<f32>(group, leaves, partial, &wanted, &mut total)?;
    reduce::<f64>(group, leaves, partial, &wanted, &mut total)?;
    Ok(total)
}

/// The part of [`sum_gradients`] for parameters of one element type.
fn reduce<T: Float>(
    group: &Group,
    leaves: u64,
    partial: &[Gradients],
    parameters: &[&Tensor],
    total: &mut Gradients,
) -> Result<()> {
    let own: Vec<&&Tensor> = parameters.iter().filter(|parameter| parameter.dtype() == T::ELEMENT).collect();
    let length: usize = own.iter().map(|parameter| parameter.elements()).sum();
    if length == 0 {
        return Ok(());
    }
    let flat = |gradients: &Gradients| -> Result<Vec<T>> {
        let mut values = Vec::with_capacity(length);
        for parameter in &own {
            match gradients.get(parameter) {
                Some(gradient) => values.extend_from_slice(gradient.to_device(Device::Cpu)?.data::<T>()?),
                // Adding it may turn a -0 into a 0, which no update of a parameter and no moment can tell apart.
                None => values.resize(values.len() + parameter.elements(), T::zero()),
            }
        }
        Ok(values)
    };
    let flat: Vec<Vec<T>> = partial.iter().map(flat).collect::<Result<_>>()?;
    let nodes: Vec<Vec<Node>> =
        (0..group.size()).map(|rank| cover(share_of(rank, group.size(), leaves), leaves)).collect();
    ensure!(nodes[group.rank()].len() == flat.len(), "this process has the partial sums of another share");
    let mut sums: Vec<T> = vec![T::zero(); length];
    for (number, sums) in sums.chunks_mut(BLOCK).enumerate() {
        sum_block(group, leaves, &nodes, &flat, number * BLOCK, sums)?;
    }
    let mut rest = &sums[..];
    for parameter in own {
        let (values, behind) = rest.split_at(parameter.elements());
        rest = behind;
        let gradient = Tensor::from_vec(values.to_vec(), parameter.shape())?;
        // The gradient of a leaf with respect to itself is what is put in.
        total.accumulate(parameter.backward_with(gradient.to_device(parameter.device())?)?)?;
    }
    Ok(())
}

/// The sums of the values from `start` on, as many as `sums` has places.
fn sum_block<T: Float>(
    group: &Group,
    leaves: u64,
    nodes: &[Vec<Node>],
    flat: &[Vec<T>],
    start: usize,
    sums: &mut [T],
) -> Result<()> {
    // What each process is responsible for.
    let part = |rank: usize| share_of(rank, group.size(), sums.len() as u64);
    let parts: Vec<Range<usize>> =
        (0..group.size()).map(part).map(|part| start + part.start as usize..start + part.end as usize).collect();
    let bytes = |values: usize| values * size_of::<T>();
    let given: Vec<usize> = parts.iter().map(|part| bytes(flat.len() * part.len())).collect();
    let outgoing: Vec<T> =
        parts.iter().flat_map(|part| flat.iter().map(|values| &values[part.clone()])).collect::<Vec<_>>().concat();
    let width = parts[group.rank()].len();
    let taken: Vec<usize> = nodes.iter().map(|nodes| bytes(nodes.len() * width)).collect();
    let nodes: Vec<Node> = nodes.concat();
    let mut incoming: Vec<T> = vec![T::zero(); nodes.len() * width];
    group.move_gradients(&taken, |others| {
        others.all_to_all(bytemuck::cast_slice(&outgoing), &given, bytemuck::cast_slice_mut(&mut incoming), &taken)
    })?;
    let mut known = |node: Node| {
        let found = nodes.iter().position(|known| *known == node)?;
        anyhow::Ok(incoming[found * width..(found + 1) * width].to_vec()).into()
    };
    let mut add = |mut left: Vec<T>, right: Vec<T>| {
        left.iter_mut().zip(right).for_each(|(a, b)| *a += b);
        Ok(left)
    };
    let own = sum(Node::root(leaves), leaves, &mut known, &mut add).context("gradients of other processes")?;
    let lengths: Vec<usize> = parts.iter().map(|part| bytes(part.len())).collect();
    group.move_gradients(&lengths, |others| {
        others.all_gather(bytemuck::cast_slice(&own), bytemuck::cast_slice_mut(sums), &lengths)
    })
}

#[cfg(test)]
mod tests {
    use super::super::threads::{Network, together};
    use super::*;
    use hankel_core::Random;

    /// Gradients of one micro-batch: of the second parameter only in every third one, of the last one never.
    fn gradients(parameters: &[Tensor], leaf: u64) -> Gradients {
        let mut gradients = Gradients::default();
        for (index, parameter) in parameters.iter().enumerate().take(3) {
            if index == 1 && leaf % 3 != 1 {
                continue;
            }
            let random = Random::new(leaf, "gradient", index as u64);
            let values: Vec<f64> = (0..parameter.elements() as u64).map(|place| random.normal(place)).collect();
            let gradient = Tensor::from_vec(values, parameter.shape()).unwrap();
            let gradient = gradient.to_dtype(parameter.dtype()).unwrap();
            gradients.accumulate(parameter.backward_with(gradient).unwrap()).unwrap();
        }
        gradients
    }

    fn bits(parameters: &[Tensor], gradients: &Gradients) -> Vec<Option<Vec<u64>>> {
        let bits = |gradient: &Tensor| gradient.to_f64_vec().iter().map(|x| x.to_bits()).collect();
        parameters.iter().map(|parameter| gradients.get(parameter).map(bits)).collect()
    }

    #[test]
    fn the_sum_has_the_same_bits_on_any_number_of_processes() {
        let parameter = |tensor: Tensor| tensor.parameter().unwrap();
        let parameters = [
            parameter(Tensor::zeros::<f32>([3, 5])),
            parameter(Tensor::zeros::<f32>([7])),
            parameter(Tensor::zeros::<f64>([2, 2])),
            parameter(Tensor::zeros::<f32>([4])),
        ];
        for leaves in [1, 2, 5, 8, 13] {
            let local = |node: Node| {
                let mut leaf = |node: Node| node.leaf().map(|leaf| anyhow::Ok(gradients(&parameters, leaf)));
                let mut add = |mut left: Gradients, right| left.accumulate(right).map(|()| left).map_err(Into::into);
                sum(node, leaves, &mut leaf, &mut add).unwrap()
            };
            let whole = bits(&parameters, &local(Node::root(leaves)));
            assert!(whole[0].is_some() && whole[3].is_none());
            for size in 1..6 {
                let found = together(size, Network::default(), |group| {
                    let partial: Vec<Gradients> = cover(group.share(leaves), leaves).into_iter().map(local).collect();
                    let total = sum_gradients(group, leaves, &partial, &parameters).unwrap();
                    assert!(size == 1 || group.take_traffic().bytes > 0);
                    bits(&parameters, &total)
                });
                assert!(found.iter().all(|found| *found == whole), "{leaves} micro-batches, {size} processes");
            }
        }
    }

    /// The figures of `docs/cluster.md` about networks, a line of JSON each:
    /// `cargo test -p hankel-trainer --lib networks -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn exchanges_on_simulated_networks() {
        use std::time::{Duration, Instant};
        let parameters = [Tensor::zeros::<f32>([8_400_000]).parameter().unwrap()];
        // Twice the small messages of a step beside the one that is part of the sum.
        let small = |group: &Group| (0..2).for_each(|_| assert!(!group.any(false).unwrap()));
        for size in [2, 4, 8, 16, 32] {
            let seconds = |network: Network| {
                let all = together(size, network, |group| {
                    let gradient = Tensor::full([8_400_000], 1.0_f32);
                    let partial = [parameters[0].backward_with(gradient).unwrap()];
                    group.any(false).unwrap();
                    group.take_traffic();
                    let begun = Instant::now();
                    small(group);
                    sum_gradients(group, size as u64, &partial, &parameters).unwrap();
                    (begun.elapsed().as_secs_f64(), group.take_traffic().bytes)
                });
                (all.iter().map(|(seconds, _)| *seconds).fold(0.0, f64::max), all[0].1)
            };
            let best = |network: Network| (0..5).map(|_| seconds(network).0).fold(f64::INFINITY, f64::min);
            let (without, bytes) = (best(Network::default()), seconds(Network::default()).1);
            for (microseconds, gigabits) in [(1, 200.0), (50, 10.0), (200, 1.0)] {
                let latency = Duration::from_micros(microseconds);
                let with = best(Network { latency, seconds_per_byte: 8.0 / (gigabits * 1e9) });
                let line = serde_json::json!({
                    "processes": size, "values": 8_400_000, "bytes": bytes, "latency_us": microseconds, "gigabits": gigabits,
                    "seconds": with, "seconds_without_network": without,
                });
                println!("{line}");
            }
        }
    }
}
