//! Expressions: the documented subset of PromQL, compiled once and evaluated on the present instant.
//!
//! | construct | |
//! | --- | --- |
//! | selectors | `name{label="v", label!="v", label=~"re", label!~"re"}`, `{__name__=~"re"}` |
//! | numbers | `1`, `1.5e9`, `0x1f`, `Inf`, `NaN` |
//! | arithmetic | `+ - * / % ^`, unary `-` and `+` |
//! | comparisons | `== != < <= > >=`, with and without `bool` |
//! | sets | `and`, `or`, `unless` |
//! | matching | `on`, `ignoring`, `group_left`, `group_right` |
//! | aggregations | `sum`, `min`, `max`, `avg`, `count`, with `by` and `without` |
//! | functions | `abs`, `absent`, `scalar`, `time`, `vector` |
//!
//! Values are those of Prometheus 3 to the last digit but one: sums there depend in the last on the order in which its
//! store hands out series.
//!
//! Anything else is an error when the rule is loaded. The reason to compile promql-parser's tree into one of our own is
//! that here scalars and vectors are different types: an expression that loads can fail in the evaluation only where
//! Prometheus' would, on the labels that it meets.

mod compile;
mod data;
mod evaluate;
mod labels;
mod matching;
pub mod pattern;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use regex::Regex;

pub use data::Data;
pub use evaluate::EvaluateError;
pub use labels::{Labels, METRIC_NAME, Series};

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Expression(Root);

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is PromQL, but outside the subset.
    #[error("{construct} at character {position} is not in the subset of PromQL that Longhaul evaluates; {hint}")]
    Unsupported {
        /// What it is, as it stands in the expression.
        construct: String,
        /// Where, from 1.
        position: usize,
        /// What to do instead.
        hint: &'static str,
    },
    /// It is not PromQL.
    #[error("not a PromQL expression ({0})")]
    Syntax(String),
    /// More than an alert can mean.
    #[error("it has more than {limit} {what}; split the rule")]
    TooLong {
        /// How much is allowed.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
}

/// The metrics that an expression looks at, and the labels that it names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Those that it names.
    pub named: BTreeSet<String>,
    /// Some selector names none (`{job_name="a"}`, `{__name__=~".."}`), so every metric can matter.
    pub any: bool,
    /// The labels that it matches, joins or groups by.
    pub labels: BTreeSet<String>,
}

impl Expression {
    /// Compiles a text; all that is outside the subset comes at once.
    pub fn parse(text: &str) -> Result<Self, Vec<CompileError>> {
        compile::compile(text).map(Self)
    }

    /// The vector that it gives; a scalar becomes one element without labels, as in a rule of Prometheus.
    pub fn evaluate<'a>(&self, data: &Data<'a>) -> Result<Vec<Series<'a>>, EvaluateError> {
        evaluate::root(&self.0, data)
    }

    /// What it looks at.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        match &self.0 {
            Root::Scalar(scalar) => scalar.metrics(&mut metrics),
            Root::Vector(vector) => vector.metrics(&mut metrics),
        }
        metrics
    }
}

/// The whole expression.
#[derive(Debug, Clone)]
enum Root {
    Scalar(Scalar),
    Vector(Vector),
}

/// What gives a number.
#[derive(Debug, Clone)]
enum Scalar {
    Number(f64),
    /// `time()`.
    Time,
    Negate(Box<Scalar>),
    Operate {
        operator: Operator,
        left: Box<Scalar>,
        right: Box<Scalar>,
    },
    /// `scalar(v)`.
    OfVector(Box<Vector>),
}

/// What gives series.
#[derive(Debug, Clone)]
enum Vector {
    Select(Selector),
    /// `vector(s)`.
    OfScalar(Box<Scalar>),
    Negate(Box<Vector>),
    WithScalar {
        operator: Operator,
        as_number: bool,
        vector: Box<Vector>,
        scalar: Box<Scalar>,
        scalar_is_left: bool,
    },
    Pairwise {
        operator: Operator,
        as_number: bool,
        left: Box<Vector>,
        right: Box<Vector>,
        matching: Grouping,
        cardinality: Cardinality,
    },
    Set {
        operator: SetOperator,
        left: Box<Vector>,
        right: Box<Vector>,
        matching: Grouping,
    },
    Aggregate {
        aggregation: Aggregation,
        of: Box<Vector>,
        grouping: Grouping,
    },
    Abs(Box<Vector>),
    Absent {
        of: Box<Vector>,
        /// The labels of the result, from the equality matchers of a plain selector.
        labels: Vec<(String, String)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetOperator {
    And,
    Or,
    Unless,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregation {
    Sum,
    Min,
    Max,
    Avg,
    Count,
}

/// `on`, `by`: only these labels; `ignoring`, `without`: all but these and the name of the metric.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Grouping {
    Only(Vec<String>),
    AllBut(Vec<String>),
}

/// Which side may have several series for one of the other; with the labels that are taken over from the other.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cardinality {
    OneToOne,
    ManyToOne(Vec<String>),
    OneToMany(Vec<String>),
}

#[derive(Debug, Clone)]
struct Selector {
    /// The metric, where one name is given.
    name: Option<String>,
    /// All matchers, but not the one for the name.
    matchers: Vec<Matcher>,
}

#[derive(Debug, Clone)]
struct Matcher {
    label: String,
    test: Test,
}

/// A label that does not exist has the empty value for all of these.
#[derive(Debug, Clone)]
enum Test {
    Is(String),
    IsNot(String),
    Matches(Regex),
    MatchesNot(Regex),
}

impl Grouping {
    fn names(&self) -> &[String] {
        match self {
            Self::Only(names) | Self::AllBut(names) => names,
        }
    }
}

impl Selector {
    fn matches(&self, labels: &Labels<'_>) -> bool {
        self.matchers.iter().all(|matcher| {
            let value = labels.get(&matcher.label);
            match &matcher.test {
                Test::Is(wanted) => value == wanted,
                Test::IsNot(unwanted) => value != unwanted,
                Test::Matches(pattern) => pattern.is_match(value),
                Test::MatchesNot(pattern) => !pattern.is_match(value),
            }
        })
    }
}

impl Scalar {
    fn metrics(&self, metrics: &mut Metrics) {
        match self {
            Self::Number(_) | Self::Time => {}
            Self::Negate(of) => of.metrics(metrics),
            Self::Operate { left, right, .. } => {
                left.metrics(metrics);
                right.metrics(metrics);
            }
            Self::OfVector(of) => of.metrics(metrics),
        }
    }
}

impl Vector {
    fn metrics(&self, metrics: &mut Metrics) {
        match self {
            Self::Select(selector) => {
                match &selector.name {
                    Some(name) => drop(metrics.named.insert(name.clone())),
                    None => metrics.any = true,
                }
                metrics.labels.extend(selector.matchers.iter().map(|matcher| matcher.label.clone()));
            }
            Self::OfScalar(of) => of.metrics(metrics),
            Self::Negate(of) | Self::Abs(of) | Self::Absent { of, .. } => of.metrics(metrics),
            Self::Aggregate { of, grouping, .. } => {
                metrics.labels.extend(grouping.names().iter().cloned());
                of.metrics(metrics);
            }
            Self::WithScalar { vector, scalar, .. } => {
                vector.metrics(metrics);
                scalar.metrics(metrics);
            }
            Self::Pairwise { left, right, matching, cardinality, .. } => {
                metrics.labels.extend(matching.names().iter().cloned());
                if let Cardinality::ManyToOne(taken_over) | Cardinality::OneToMany(taken_over) = cardinality {
                    metrics.labels.extend(taken_over.iter().cloned());
                }
                left.metrics(metrics);
                right.metrics(metrics);
            }
            Self::Set { left, right, matching, .. } => {
                metrics.labels.extend(matching.names().iter().cloned());
                left.metrics(metrics);
                right.metrics(metrics);
            }
        }
    }
}
