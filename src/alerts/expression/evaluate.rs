//! The evaluation of everything but the matching of two vectors, which is [`super::matching`].
//!
//! What is easy to get wrong and is checked against promtool: an operation that gives a new meaning to the value drops
//! the name of the metric, a comparison that filters does not; a comparison keeps the value of the vector's side, even
//! when the scalar is on the left; division by zero is an infinity; nothing compares with NaN; and two elements with
//! the same labels are an error, not the one or the other.

use std::collections::{HashMap, HashSet};

use super::data::Data;
use super::labels::{Labels, Series};
use super::{Aggregation, Grouping, Operator, Root, Scalar, Vector, matching};

/// Why an expression gives nothing this time. It depends on the labels that are there, so it is found at evaluation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    /// Two elements cannot be told apart.
    #[error("two elements of the result have the same labels {0}")]
    SameLabels(String),
    /// Both sides have several series for a group.
    #[error(
        "several series on the {side} side match {group}: matching labels must be unique on one side \
         (many-to-many matching)"
    )]
    ManyToMany {
        /// Which side has to be unique.
        side: &'static str,
        /// The labels that are matched.
        group: String,
    },
    /// The left side has several series for one of the right.
    #[error("several series on the left side match {0}: many-to-one matching needs group_left or group_right")]
    ManyToOne(String),
    /// The labels that are taken over make two elements the same.
    #[error("several elements of the result have the labels {0}: the labels of the many side must keep them apart")]
    GroupNotUnique(String),
}

type Evaluated<'a> = Result<Vec<Series<'a>>, EvaluateError>;

/// Evaluates an expression.
pub(super) fn root<'a>(root: &Root, data: &Data<'a>) -> Evaluated<'a> {
    match root {
        Root::Scalar(of) => Ok(vec![Series { labels: Labels::new(), value: scalar(of, data)? }]),
        Root::Vector(of) => vector(of, data),
    }
}

fn scalar(of: &Scalar, data: &Data<'_>) -> Result<f64, EvaluateError> {
    Ok(match of {
        Scalar::Number(value) => *value,
        Scalar::Time => data.now(),
        Scalar::Negate(of) => -scalar(of, data)?,
        Scalar::Operate { operator, left, right } => {
            let (left, right) = (scalar(left, data)?, scalar(right, data)?);
            operator.compare(left, right).map_or_else(|| operator.compute(left, right), number)
        }
        Scalar::OfVector(of) => match vector(of, data)?.as_slice() {
            [only] => only.value,
            _ => f64::NAN,
        },
    })
}

fn vector<'a>(of: &Vector, data: &Data<'a>) -> Evaluated<'a> {
    match of {
        Vector::Select(selector) => Ok(data.select(selector)),
        Vector::OfScalar(of) => Ok(vec![Series { labels: Labels::new(), value: scalar(of, data)? }]),
        Vector::Negate(of) => unique(each_value(vector(of, data)?, |value| -value)),
        Vector::Abs(of) => unique(each_value(vector(of, data)?, f64::abs)),
        Vector::Absent { of, labels } => Ok(if vector(of, data)?.is_empty() {
            vec![Series { labels: labels.iter().cloned().collect(), value: 1.0 }]
        } else {
            Vec::new()
        }),
        Vector::WithScalar { operator, as_number, vector: of, scalar: with, scalar_is_left } => {
            // In the order of the text, so that of two errors the same one is said as in Prometheus.
            let (of, with) = if *scalar_is_left {
                let with = scalar(with, data)?;
                (vector(of, data)?, with)
            } else {
                (vector(of, data)?, scalar(with, data)?)
            };
            unique(with_scalar(*operator, *as_number, of, with, *scalar_is_left))
        }
        Vector::Pairwise { operator, as_number, left, right, matching, cardinality } => {
            let (left, right) = (vector(left, data)?, vector(right, data)?);
            unique(matching::operate(*operator, *as_number, left, right, matching, cardinality)?)
        }
        Vector::Set { operator, left, right, matching } => {
            unique(matching::combine(*operator, vector(left, data)?, vector(right, data)?, matching))
        }
        Vector::Aggregate { aggregation, of, grouping } => Ok(aggregate(*aggregation, vector(of, data)?, grouping)),
    }
}

/// A function of each value, which takes the name of the metric away.
fn each_value(series: Vec<Series<'_>>, f: impl Fn(f64) -> f64) -> Vec<Series<'_>> {
    series.into_iter().map(|one| Series { labels: one.labels.without_name(), value: f(one.value) }).collect()
}

fn with_scalar(
    operator: Operator,
    as_number: bool,
    series: Vec<Series<'_>>,
    scalar: f64,
    scalar_is_left: bool,
) -> Vec<Series<'_>> {
    series
        .into_iter()
        .filter_map(|one| {
            let (left, right) = if scalar_is_left { (scalar, one.value) } else { (one.value, scalar) };
            match operator.compare(left, right) {
                None => Some(Series { value: operator.compute(left, right), labels: one.labels.without_name() }),
                Some(holds) if as_number => Some(Series { value: number(holds), labels: one.labels.without_name() }),
                Some(holds) => holds.then_some(one),
            }
        })
        .collect()
}

/// No two elements may have the same labels.
fn unique(series: Vec<Series<'_>>) -> Evaluated<'_> {
    let mut seen = HashSet::with_capacity(series.len());
    match series.iter().find(|one| !seen.insert(&one.labels)) {
        Some(twin) => Err(EvaluateError::SameLabels(twin.labels.to_string())),
        None => Ok(series),
    }
}

pub(super) fn number(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

impl Operator {
    /// Whether a comparison holds; `None` for arithmetic.
    pub(super) fn compare(self, left: f64, right: f64) -> Option<bool> {
        Some(match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            _ => return None,
        })
    }

    /// The result of arithmetic; of a comparison, its left side.
    pub(super) fn compute(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Remainder => left % right,
            Self::Power => left.powf(right),
            _ => left,
        }
    }
}

impl Grouping {
    /// The labels of a group: `by`, `without`, and what `on` and `ignoring` match.
    pub(super) fn key<'a>(&self, labels: &Labels<'a>) -> Labels<'a> {
        let mut key = labels.clone();
        match self {
            Self::Only(names) => key.keep(names),
            Self::AllBut(names) => {
                key.drop_all(names);
                key = key.without_name();
            }
        }
        key
    }
}

fn aggregate<'a>(aggregation: Aggregation, series: Vec<Series<'a>>, grouping: &Grouping) -> Vec<Series<'a>> {
    // In the order in which the groups appear, so that the same snapshot always gives the same order.
    let mut places = HashMap::new();
    let mut groups = Vec::<(Labels<'a>, Vec<f64>)>::new();
    for one in series {
        let key = grouping.key(&one.labels);
        let place = *places.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, values)) = groups.get_mut(place) {
            values.push(one.value);
        }
    }
    groups.into_iter().map(|(labels, values)| Series { labels, value: aggregation.of(&values) }).collect()
}

impl Aggregation {
    /// Of at least one value.
    fn of(self, values: &[f64]) -> f64 {
        // NaN gives way to any number, as in Prometheus.
        let extreme = |better: fn(f64, f64) -> bool| {
            values.iter().copied().reduce(|best, value| if best.is_nan() || better(value, best) { value } else { best })
        };
        match self {
            Self::Sum => sum(values),
            Self::Avg => average(values),
            Self::Count => count(values),
            Self::Min => extreme(|value, best| value < best).unwrap_or(f64::NAN),
            Self::Max => extreme(|value, best| value > best).unwrap_or(f64::NAN),
        }
    }
}

/// A group has far fewer elements than an `f64` counts exactly.
#[allow(clippy::cast_precision_loss)]
fn count(values: &[f64]) -> f64 {
    values.len() as f64
}

/// One step of a compensated sum (Kahan's, with Neumaier's improvement): sum and what was lost so far.
fn add(value: f64, (sum, lost): (f64, f64)) -> (f64, f64) {
    let total = sum + value;
    let lost = if total.is_infinite() {
        0.0
    } else if sum.abs() >= value.abs() {
        lost + ((sum - total) + value)
    } else {
        lost + ((value - total) + sum)
    };
    (total, lost)
}

fn sum(values: &[f64]) -> f64 {
    let Some((first, rest)) = values.split_first() else { return 0.0 };
    let (sum, lost) = rest.iter().fold((*first, 0.0), |so_far, value| add(*value, so_far));
    sum + lost
}

/// The sum over the number, or, where the sum would overflow, the mean carried along.
fn average(values: &[f64]) -> f64 {
    let Some((first, rest)) = values.split_first() else { return f64::NAN };
    let mut so_far = (*first, 0.0);
    let mut seen = 1.0;
    let mut carries_mean = false;
    for value in rest {
        seen += 1.0;
        if !carries_mean {
            let next = add(*value, so_far);
            if !next.0.is_infinite() {
                so_far = next;
                continue;
            }
            carries_mean = true;
            so_far = (so_far.0 / (seen - 1.0), so_far.1 / (seen - 1.0));
        }
        let share = (seen - 1.0) / seen;
        so_far = add(value / seen, (share * so_far.0, share * so_far.1));
    }
    if carries_mean { so_far.0 + so_far.1 } else { so_far.0 / seen + so_far.1 / seen }
}
