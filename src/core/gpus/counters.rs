//! Counters of a GPU that fall: begun anew with the driver, or one bad reading.
//!
//! Separate because it is a judgement over two readings. A counter that drops to 0 for one poll and returns would be a
//! reset to Prometheus, and all that was ever counted an increase. So one that fell is absent for a poll, as unreadable,
//! and taken when the next reading has not gone back up.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::gpu::{Absence, Errors, GpuReading};

/// What each counter said last.
#[derive(Debug, Default)]
pub(super) struct Counters {
    known: BTreeMap<&'static str, Vec<f64>>,
    fallen: BTreeSet<&'static str>,
}

impl Counters {
    /// Takes those that just fell out of a reading.
    pub(super) fn hold_back(&mut self, reading: &mut GpuReading) {
        let GpuReading { energy, nvlink_receive, nvlink_transmit, ecc, ecc_lifetime, remapped_rows, missing, .. } =
            reading;
        let mut held = Vec::new();
        self.judge("energy", energy, |energy| vec![*energy], &mut held);
        self.judge("nvlink_receive", nvlink_receive, |bytes| vec![float(*bytes)], &mut held);
        self.judge("nvlink_transmit", nvlink_transmit, |bytes| vec![float(*bytes)], &mut held);
        self.judge("ecc", ecc, errors, &mut held);
        self.judge("ecc_lifetime", ecc_lifetime, errors, &mut held);
        self.judge("remapped_rows", remapped_rows, errors, &mut held);
        missing.extend(held.into_iter().map(|name| (name.to_owned(), Absence::Unreadable)));
    }

    fn judge<T>(
        &mut self,
        name: &'static str,
        value: &mut Option<T>,
        numbers: impl Fn(&T) -> Vec<f64>,
        held: &mut Vec<&'static str>,
    ) {
        let Some(new) = value.as_ref().map(numbers) else { return };
        let fell = self.known.get(name).is_some_and(|known| new.iter().zip(known).any(|(new, known)| new < known));
        if fell && self.fallen.insert(name) {
            *value = None;
            held.push(name);
        } else {
            self.fallen.remove(name);
            self.known.insert(name, new);
        }
    }
}

fn errors(errors: &Errors) -> Vec<f64> {
    vec![float(errors.corrected), float(errors.uncorrected)]
}

/// Only compared.
#[allow(clippy::cast_precision_loss)]
const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(energy: f64, uncorrected: u64) -> GpuReading {
        let ecc = Some(Errors { corrected: 7, uncorrected });
        GpuReading { energy: Some(energy), ecc, ..GpuReading::default() }
    }

    #[test]
    fn b19_a_counter_that_falls_for_one_reading_is_absent_and_no_reset() {
        let mut counters = Counters::default();
        let mut take = |energy, uncorrected| {
            let mut reading = reading(energy, uncorrected);
            counters.hold_back(&mut reading);
            (reading.energy, reading.ecc.map(|ecc| ecc.uncorrected), reading.missing.len())
        };
        assert_eq!(take(5e6, 3), (Some(5e6), Some(3), 0));
        assert_eq!(take(0.0, 3), (None, Some(3), 1));
        assert_eq!(take(5.1e6, 0), (Some(5.1e6), None, 1));
        assert_eq!(take(5.2e6, 3), (Some(5.2e6), Some(3), 0));
        // The driver was loaded anew.
        assert_eq!(take(10.0, 0), (None, None, 2));
        assert_eq!(take(20.0, 0), (Some(20.0), Some(0), 0));
        assert_eq!(take(30.0, 1), (Some(30.0), Some(1), 0));
    }
}
