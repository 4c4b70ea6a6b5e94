//! `train devices`.

use anyhow::Result;
use hankel_core::Precision;
use hankel_core::gpu::{GpuFacts, devices};
use hankel_io::terminal;
use hankel_ops::linear::gpu_precisions;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the facts as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let all = devices();
    if args.json {
        let facts: Vec<serde_json::Value> = all.iter().enumerate().map(|(i, facts)| to_json(i, facts)).collect();
        return Ok(terminal::json(&serde_json::to_string_pretty(&json!({ "cpu_threads": threads, "gpus": facts }))?)?);
    }
    terminal::line(&format!("cpu     {threads} threads\n        precision: f32, f64, bf16"))?;
    if all.is_empty() {
        return Ok(terminal::line("no GPU: no Vulkan, Metal or Direct3D 12 driver was found")?);
    }
    Ok(all.iter().enumerate().try_for_each(|(i, facts)| terminal::line(&describe(i, facts)))?)
}

fn describe(i: usize, facts: &GpuFacts) -> String {
    let GpuFacts { name, backend, driver, kind, max_binding, workgroup_storage, .. } = facts;
    let shapes: Vec<String> = facts.cooperative.iter().map(|[m, n, k]| format!("{m}x{n}x{k}")).collect();
    let shapes = if shapes.is_empty() { "none".to_owned() } else { shapes.join(", ") };
    let lacks = facts.lacks.as_ref().map_or(String::new(), |lack| format!("\n        cannot be used: it lacks {lack}"));
    format!(
        "gpu:{i}   {name} ({kind}, {backend}, {driver})\n        tensors of up to {:.2} GiB, {} KiB of workgroup memory, \
         16-bit floats: {}, cooperative matrices: {shapes}\n        precision: {}{lacks}",
        *max_binding as f64 / f64::from(1 << 30),
        workgroup_storage / 1024,
        if facts.f16 { "yes" } else { "no" },
        precisions(facts).join(", "),
    )
}

fn precisions(facts: &GpuFacts) -> Vec<&'static str> {
    gpu_precisions(facts).into_iter().map(Precision::name).collect()
}

fn to_json(i: usize, facts: &GpuFacts) -> serde_json::Value {
    json!({
        "device": format!("gpu:{i}"),
        "name": facts.name,
        "kind": facts.kind,
        "backend": facts.backend,
        "driver": facts.driver,
        "max_tensor_bytes": facts.max_binding,
        "max_workgroups": facts.max_workgroups,
        "workgroup_storage_bytes": facts.workgroup_storage,
        "f16": facts.f16,
        "cooperative_matrices": facts.cooperative,
        "precisions": precisions(facts),
        "lacks": facts.lacks,
    })
}
