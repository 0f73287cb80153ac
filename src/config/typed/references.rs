//! What must hold between sections: names that are defined, and an order of jobs that can be worked off.
//!
//! Without recursion, since the number of jobs in a file is bounded only by its size.

use std::collections::{HashMap, HashSet};

use super::super::keys;
use super::super::problem::{Problems, quote};
use super::engines::Named;
use super::jobs::{Reference, Typed};
use crate::model::JobName;

/// Checks all references, and leaves in each job the engines that can be scraped.
pub fn check(engines: &[Named], jobs: &mut [Typed], problems: &mut Problems) {
    let engine_names: HashSet<&str> = engines.iter().map(|named| named.name.as_str()).collect();
    let job_names: HashSet<String> = jobs.iter().map(|typed| typed.job.name.as_str().to_owned()).collect();
    for typed in jobs.iter() {
        for reference in &typed.engines {
            if !engine_names.contains(reference.name.as_str()) {
                undefined("engine", "engines", reference, engines.iter().map(|named| named.name.as_str()), problems);
            }
        }
        for reference in &typed.jobs {
            if reference.name == typed.job.name.as_str() {
                problems.problem(reference.place, &reference.path, "names the job itself: remove it");
            } else if !job_names.contains(&reference.name) {
                undefined("job", "pipelines or jobs", reference, job_names.iter().map(String::as_str), problems);
            }
        }
    }
    cycles(jobs, problems);
    let scraped: HashSet<&str> =
        engines.iter().filter(|named| named.source.is_some()).map(|named| named.name.as_str()).collect();
    for typed in jobs {
        typed.job.engines.retain(|name| scraped.contains(name.as_str()));
    }
}

fn undefined<'a>(
    what: &str,
    section: &str,
    reference: &Reference,
    names: impl Iterator<Item = &'a str>,
    problems: &mut Problems,
) {
    // A hint costs a comparison with every name, so it stops where a file has thousands of wrong ones.
    const COMPARED: usize = 1000;
    let hint = keys::nearest(&reference.name, names.take(COMPARED))
        .map_or_else(|| format!("define it in {section}, or remove it"), |near| format!("did you mean `{near}`?"));
    let message = format!("there is no {what} `{}`; {hint}", quote(&reference.name));
    problems.problem(reference.place, &reference.path, message);
}

/// Takes jobs away as long as one waits for nothing; what is left waits for itself.
fn cycles(jobs: &[Typed], problems: &mut Problems) {
    let index_of: HashMap<&JobName, usize> =
        jobs.iter().enumerate().map(|(index, typed)| (&typed.job.name, index)).collect();
    let before = |index: usize| {
        let after = jobs.get(index).map(|typed| typed.job.after.as_slice()).unwrap_or_default();
        after.iter().filter_map(|name| index_of.get(name).copied()).filter(move |other| *other != index)
    };
    let mut waits: Vec<usize> = (0..jobs.len()).map(|index| before(index).count()).collect();
    let mut followers: HashMap<usize, Vec<usize>> = HashMap::new();
    for index in 0..jobs.len() {
        for other in before(index) {
            followers.entry(other).or_default().push(index);
        }
    }
    let mut left: HashSet<usize> = (0..jobs.len()).collect();
    let mut ready: Vec<usize> = (0..jobs.len()).filter(|index| waits.get(*index) == Some(&0)).collect();
    let mut start = 0;
    loop {
        while let Some(index) = ready.pop() {
            // A job that was cut out of a cycle comes by again when the one it waited for is done.
            if !left.remove(&index) {
                continue;
            }
            for follower in followers.get(&index).into_iter().flatten() {
                if let Some(count) = waits.get_mut(*follower) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        ready.push(*follower);
                    }
                }
            }
        }
        // Every job that is left waits for another that is left, so following `after` from any of them ends in a cycle.
        let Some(first) = (start..jobs.len()).find(|index| left.contains(index)) else { return };
        start = first;
        let mut path = vec![first];
        let mut position: HashMap<usize, usize> = HashMap::from([(first, 0)]);
        let begin = loop {
            let last = path.last().copied().unwrap_or(first);
            let Some(next) = before(last).find(|index| left.contains(index)) else { return };
            if let Some(begin) = position.get(&next) {
                break *begin;
            }
            position.insert(next, path.len());
            path.push(next);
        };
        let cycle = path.split_off(begin);
        report(jobs, &cycle, problems);
        // Cut it here and look for others.
        ready.extend(cycle.first());
    }
}

fn report(jobs: &[Typed], cycle: &[usize], problems: &mut Problems) {
    const SHOWN: usize = 8;
    let earliest = cycle.iter().filter_map(|index| jobs.get(*index)).min_by_key(|typed| typed.place);
    let Some(typed) = earliest else { return };
    let start = cycle.iter().position(|index| jobs.get(*index).is_some_and(|other| other.place == typed.place));
    let in_order = cycle.iter().cycle().skip(start.unwrap_or(0)).take(cycle.len() + 1);
    let names: Vec<String> = in_order
        .filter_map(|index| jobs.get(*index))
        .map(|typed| quote(typed.job.name.as_str()).into_owned())
        .collect();
    let mut shown = names.get(..names.len().min(SHOWN)).unwrap_or_default().join(" after ");
    if names.len() > SHOWN {
        shown.push_str(" after …");
    }
    problems.problem(typed.place, &format!("{}.after", typed.path), format!("these jobs wait for each other: {shown}"));
}
