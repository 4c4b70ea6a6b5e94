//! What a launcher of several processes says in the environment.

use std::env;

/// Number of processes that a launcher of MPI (`mpirun`, `srun --mpi`) started together with this one; `None` without one.
pub(super) fn processes() -> Option<usize> {
    of(|name| env::var(name).ok())
}

fn of(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    // Open MPI; then MPICH and what follows it; then a PMIx launcher, where Slurm tells the number.
    let of_mpi = number("OMPI_COMM_WORLD_SIZE").or_else(|| number("PMI_SIZE"));
    of_mpi.or_else(|| number("PMIX_RANK").map(|_| number("SLURM_STEP_NUM_TASKS").unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::of;

    fn among(variables: &[(&str, &str)]) -> Option<usize> {
        of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn launchers() {
        assert_eq!(among(&[("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "2")]), Some(4));
        assert_eq!(among(&[("PMI_SIZE", "3")]), Some(3));
        assert_eq!(among(&[("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(8));
        // A job of Slurm alone is not a launch of MPI.
        assert_eq!(among(&[("SLURM_STEP_NUM_TASKS", "8")]), None);
    }
}
