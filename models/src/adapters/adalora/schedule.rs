//! The budget: the sum of the ranks over all projections, step by step (equation 12 of the paper).

use crate::settings::settings;

settings! {
    /// When the rank is reduced. Steps are optimizer steps, from 0.
    pub struct Schedule {
        /// Last step with the full rank.
        pub tinit: usize = "a tenth of the steps",
        /// Steps at the end in which the ranks stay as they are.
        pub tfinal: usize = "a third of the steps",
        /// Steps between two allocations.
        pub delta_t: usize = "10",
        /// Length of the training.
        pub total_steps: usize
    }
}

impl Copy for Schedule {}

/// What happens after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The sensitivities are updated; with `allocate`, the ranks are allocated anew.
    Reduce { allocate: bool },
    /// The last allocation.
    Fix,
    /// What was pruned is kept at 0.
    Keep,
}

impl Schedule {
    pub(super) fn check(self) -> Result<(), String> {
        let Schedule { tinit, tfinal, delta_t, total_steps } = self;
        if delta_t == 0 {
            return Err("delta_t must be at least 1".to_owned());
        }
        // Nothing is trained, and so nothing reduced.
        if total_steps == 0 {
            return Ok(());
        }
        if tinit.saturating_add(tfinal) >= total_steps {
            return Err(format!(
                "tinit = {tinit} and tfinal = {tfinal} leave none of the {total_steps} steps for the reduction: train for more, or make them smaller"
            ));
        }
        Ok(())
    }

    /// The last step of the reduction.
    fn last(self) -> usize {
        self.total_steps.saturating_sub(self.tfinal)
    }

    /// As files have it: PEFT refuses a training of no steps, and has one step in its place.
    pub(super) fn in_files(self) -> Self {
        if self.total_steps == 0 { self.of_no_steps() } else { self }
    }

    /// What stands in files for a training of no steps.
    pub(super) fn of_no_steps(self) -> Self {
        Schedule { tinit: 0, tfinal: 0, total_steps: 1, ..self }
    }

    pub(super) fn phase(self, step: usize) -> Phase {
        // No schedule: ranks stay.
        if self.total_steps == 0 {
            return Phase::Keep;
        }
        match step.cmp(&self.last()) {
            std::cmp::Ordering::Less => {
                Phase::Reduce { allocate: step > self.tinit && step.is_multiple_of(self.delta_t) }
            }
            std::cmp::Ordering::Equal => Phase::Fix,
            std::cmp::Ordering::Greater => Phase::Keep,
        }
    }

    /// Sum of the ranks after `step`, between `initial` and `target`, on a cubic between them.
    pub fn budget(self, step: usize, initial: usize, target: usize) -> usize {
        if step <= self.tinit {
            initial
        } else if step >= self.last() {
            target
        } else {
            let rest = 1.0 - (step - self.tinit) as f64 / (self.last() - self.tinit) as f64;
            ((initial - target) as f64 * rest.powi(3) + target as f64) as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_from_the_first_rank_to_the_last() {
        let schedule = Schedule { tinit: 4, tfinal: 6, delta_t: 2, total_steps: 20 };
        let budget: Vec<usize> = (0..20).map(|step| schedule.budget(step, 36, 18)).collect();
        assert!(budget.windows(2).all(|w| w[0] >= w[1]), "{budget:?}");
        assert_eq!((budget[4], budget[5], budget[9], budget[14], budget[19]), (36, 31, 20, 18, 18));
        assert_eq!(schedule.phase(4), Phase::Reduce { allocate: false });
        assert_eq!(schedule.phase(5), Phase::Reduce { allocate: false });
        assert_eq!(schedule.phase(6), Phase::Reduce { allocate: true });
        assert_eq!((schedule.phase(14), schedule.phase(15)), (Phase::Fix, Phase::Keep));
    }

    #[test]
    fn a_schedule_without_a_reduction_is_refused() {
        let schedule = Schedule { tinit: 4, tfinal: 16, delta_t: 2, total_steps: 20 };
        assert!(schedule.check().unwrap_err().contains("leave none"));
        assert!(Schedule { tfinal: 15, ..schedule }.check().is_ok());
        assert!(Schedule { tfinal: 15, delta_t: 0, ..schedule }.check().is_err());
        assert!(Schedule { tinit: usize::MAX, ..schedule }.check().is_err());
        // That of a training of no steps is never followed.
        let none = Schedule { total_steps: 0, ..schedule };
        assert!(none.check().is_ok() && Schedule { delta_t: 0, ..none }.check().is_err());
        assert_eq!(none.in_files(), Schedule { tinit: 0, tfinal: 0, delta_t: 2, total_steps: 1 });
        assert!(none.in_files().check().is_ok() && schedule.in_files() == schedule);
        assert_eq!((none.phase(0), none.phase(1)), (Phase::Keep, Phase::Keep));
    }
}
