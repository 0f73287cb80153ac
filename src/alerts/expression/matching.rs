//! Two vectors: which element of the one meets which of the other.
//!
//! Elements meet when they have the same values for the labels that are matched. One side may have several for one of
//! the other only where `group_left` or `group_right` says so; anything else is an error of the rule, because a result
//! that depends on the order of series would differ from scrape to scrape. As in Prometheus an empty side gives an
//! empty result before any of that is looked at, and elements that a comparison filters out do not count as several.

use std::collections::{HashMap, HashSet};

use super::evaluate::{EvaluateError, number};
use super::labels::{Labels, METRIC_NAME, Series};
use super::{Cardinality, Grouping, Operator, SetOperator};

/// Arithmetic or comparison, element by element.
pub(super) fn operate<'a>(
    operator: Operator,
    as_number: bool,
    left: Vec<Series<'a>>,
    right: Vec<Series<'a>>,
    matching: &Grouping,
    cardinality: &Cardinality,
) -> Result<Vec<Series<'a>>, EvaluateError> {
    if left.is_empty() || right.is_empty() {
        return Ok(Vec::new());
    }
    let one_is_left = matches!(cardinality, Cardinality::OneToMany(_));
    let (many, one) = if one_is_left { (right, left) } else { (left, right) };
    let ones = index(&one, matching, if one_is_left { "left" } else { "right" })?;

    let mut met = HashSet::new();
    let mut result = Vec::with_capacity(many.len());
    for element in many {
        let key = matching.key(&element.labels);
        let Some(partner) = ones.get(&key) else { continue };
        let (left, right) = if one_is_left { (partner.value, element.value) } else { (element.value, partner.value) };
        let value = match operator.compare(left, right) {
            None => operator.compute(left, right),
            Some(holds) if as_number => number(holds),
            Some(true) => left,
            Some(false) => continue,
        };
        let is_arithmetic = operator.compare(left, right).is_none();
        let mut labels = result_labels(element.labels, &partner.labels, is_arithmetic, matching, cardinality);
        if as_number {
            labels.remove(METRIC_NAME);
        }
        match cardinality {
            Cardinality::OneToOne => {
                let group = key.to_string();
                if !met.insert((key, Labels::new())) {
                    return Err(EvaluateError::ManyToOne(group));
                }
            }
            Cardinality::ManyToOne(_) | Cardinality::OneToMany(_) => {
                if !met.insert((key, labels.clone())) {
                    return Err(EvaluateError::GroupNotUnique(labels.to_string()));
                }
            }
        }
        result.push(Series { labels, value });
    }
    Ok(result)
}

/// The side that must be unique, by what is matched.
fn index<'s, 'a>(
    series: &'s [Series<'a>],
    matching: &Grouping,
    side: &'static str,
) -> Result<HashMap<Labels<'a>, &'s Series<'a>>, EvaluateError> {
    let mut index = HashMap::with_capacity(series.len());
    for one in series {
        let key = matching.key(&one.labels);
        let group = key.clone();
        if index.insert(key, one).is_some() {
            return Err(EvaluateError::ManyToMany { side, group: group.to_string() });
        }
    }
    Ok(index)
}

fn result_labels<'a>(
    mut labels: Labels<'a>,
    one: &Labels<'a>,
    is_arithmetic: bool,
    matching: &Grouping,
    cardinality: &Cardinality,
) -> Labels<'a> {
    if is_arithmetic {
        labels.remove(METRIC_NAME);
    }
    match (cardinality, matching) {
        (Cardinality::OneToOne, Grouping::Only(names)) => labels.keep(names),
        (Cardinality::OneToOne, Grouping::AllBut(names)) => labels.drop_all(names),
        (Cardinality::ManyToOne(taken_over) | Cardinality::OneToMany(taken_over), _) => {
            for name in taken_over {
                labels.set(name.clone(), one.get(name).to_owned());
            }
        }
    }
    labels
}

/// `and`, `or`, `unless`.
pub(super) fn combine<'a>(
    operator: SetOperator,
    mut left: Vec<Series<'a>>,
    right: Vec<Series<'a>>,
    matching: &Grouping,
) -> Vec<Series<'a>> {
    let keys = |side: &[Series<'a>]| side.iter().map(|one| matching.key(&one.labels)).collect::<HashSet<_>>();
    match operator {
        SetOperator::And => {
            let right = keys(&right);
            left.retain(|one| right.contains(&matching.key(&one.labels)));
        }
        SetOperator::Unless => {
            let right = keys(&right);
            left.retain(|one| !right.contains(&matching.key(&one.labels)));
        }
        SetOperator::Or => {
            let known = keys(&left);
            left.extend(right.into_iter().filter(|one| !known.contains(&matching.key(&one.labels))));
        }
    }
    left
}
