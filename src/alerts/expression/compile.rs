//! From promql-parser's tree to ours.
//!
//! The types are checked by promql-parser; what remains to be refused here is what only the tree shows.

use promql_parser::label::{MatchOp, Matcher as ParsedMatcher};
use promql_parser::parser::token::{self, TokenType};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, BinModifier, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality, VectorSelector, parse,
};

use super::labels::METRIC_NAME;
use super::{
    Aggregation, Cardinality, CompileError, Grouping, Matcher, Operator, Root, Scalar, Selector, SetOperator, Test,
    Vector, pattern, scan,
};

type Compiled<T> = Result<T, CompileError>;

/// Compiles a text.
pub(super) fn compile(text: &str) -> Result<Root, Vec<CompileError>> {
    scan::check(text)?;
    let parsed = parse(text).map_err(|error| vec![CompileError::Syntax(error)])?;
    root(&parsed).map_err(|error| vec![error])
}

fn root(parsed: &Expr) -> Compiled<Root> {
    match parsed.value_type() {
        ValueType::Scalar => scalar(parsed).map(Root::Scalar),
        ValueType::Vector => vector(parsed).map(Root::Vector),
        ValueType::Matrix | ValueType::String => Err(unexpected(parsed)),
    }
}

/// What [`scan`] should have refused; it has no position here.
fn unexpected(parsed: &Expr) -> CompileError {
    CompileError::Syntax(format!("{parsed} is not in the subset of PromQL that Longhaul evaluates"))
}

fn scalar(parsed: &Expr) -> Compiled<Scalar> {
    Ok(match parsed {
        Expr::Paren(inner) => scalar(&inner.expr)?,
        Expr::NumberLiteral(number) => Scalar::Number(number.val),
        Expr::Unary(unary) => Scalar::Negate(Box::new(scalar(&unary.expr)?)),
        Expr::Binary(binary) => Scalar::Operate {
            operator: operator(binary.op).ok_or_else(|| unexpected(parsed))?,
            left: Box::new(scalar(&binary.lhs)?),
            right: Box::new(scalar(&binary.rhs)?),
        },
        Expr::Call(call) => match (call.func.name, argument(call)) {
            ("time", None) => Scalar::Time,
            ("scalar", Some(of)) => Scalar::OfVector(Box::new(vector(of)?)),
            _ => return Err(unexpected(parsed)),
        },
        _ => return Err(unexpected(parsed)),
    })
}

fn vector(parsed: &Expr) -> Compiled<Vector> {
    Ok(match parsed {
        Expr::Paren(inner) => vector(&inner.expr)?,
        Expr::VectorSelector(selected) => Vector::Select(selector(selected)?),
        Expr::Unary(unary) => Vector::Negate(Box::new(vector(&unary.expr)?)),
        Expr::Binary(binary) => operation(binary)?,
        Expr::Aggregate(aggregated) => aggregate(aggregated)?,
        Expr::Call(call) => match (call.func.name, argument(call)) {
            ("vector", Some(of)) => Vector::OfScalar(Box::new(scalar(of)?)),
            ("abs", Some(of)) => Vector::Abs(Box::new(vector(of)?)),
            ("absent", Some(of)) => Vector::Absent { labels: labels_of_absent(of), of: Box::new(vector(of)?) },
            _ => return Err(unexpected(parsed)),
        },
        _ => return Err(unexpected(parsed)),
    })
}

/// The only argument of a call, if it has one.
fn argument(call: &Call) -> Option<&Expr> {
    match call.args.args.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

fn operation(binary: &BinaryExpr) -> Compiled<Vector> {
    let is_scalar = |side: &Expr| side.value_type() == ValueType::Scalar;
    let modifier = binary.modifier.as_ref();
    if modifier.is_some_and(|modifier| modifier.fill_values.lhs.or(modifier.fill_values.rhs).is_some()) {
        return Err(CompileError::Syntax("fill is not in the subset of PromQL that Longhaul evaluates".to_owned()));
    }
    let as_number = modifier.is_some_and(|modifier| modifier.return_bool);
    if let Some(operator) = set_operator(binary.op) {
        return Ok(Vector::Set {
            operator,
            left: Box::new(vector(&binary.lhs)?),
            right: Box::new(vector(&binary.rhs)?),
            matching: matching(modifier),
        });
    }
    let Some(operator) = operator(binary.op) else {
        return Err(CompileError::Syntax(format!("the operator {} is not supported", binary.op)));
    };
    Ok(match (is_scalar(&binary.lhs), is_scalar(&binary.rhs)) {
        (false, false) => Vector::Pairwise {
            operator,
            as_number,
            left: Box::new(vector(&binary.lhs)?),
            right: Box::new(vector(&binary.rhs)?),
            matching: matching(modifier),
            cardinality: cardinality(modifier),
        },
        (scalar_is_left, _) => {
            let (one, other) = if scalar_is_left { (&binary.lhs, &binary.rhs) } else { (&binary.rhs, &binary.lhs) };
            Vector::WithScalar {
                operator,
                as_number,
                vector: Box::new(vector(other)?),
                scalar: Box::new(scalar(one)?),
                scalar_is_left,
            }
        }
    })
}

fn operator(parsed: TokenType) -> Option<Operator> {
    Some(match parsed.id() {
        token::T_ADD => Operator::Add,
        token::T_SUB => Operator::Subtract,
        token::T_MUL => Operator::Multiply,
        token::T_DIV => Operator::Divide,
        token::T_MOD => Operator::Remainder,
        token::T_POW => Operator::Power,
        token::T_EQLC => Operator::Equal,
        token::T_NEQ => Operator::NotEqual,
        token::T_LSS => Operator::Less,
        token::T_LTE => Operator::LessOrEqual,
        token::T_GTR => Operator::Greater,
        token::T_GTE => Operator::GreaterOrEqual,
        _ => return None,
    })
}

fn set_operator(parsed: TokenType) -> Option<SetOperator> {
    Some(match parsed.id() {
        token::T_LAND => SetOperator::And,
        token::T_LOR => SetOperator::Or,
        token::T_LUNLESS => SetOperator::Unless,
        _ => return None,
    })
}

/// `on` or `ignoring`; without either, all labels count.
fn matching(modifier: Option<&BinModifier>) -> Grouping {
    match modifier.and_then(|modifier| modifier.matching.as_ref()) {
        Some(LabelModifier::Include(labels)) => Grouping::Only(labels.labels.clone()),
        Some(LabelModifier::Exclude(labels)) => Grouping::AllBut(labels.labels.clone()),
        None => Grouping::AllBut(Vec::new()),
    }
}

fn cardinality(modifier: Option<&BinModifier>) -> Cardinality {
    match modifier.map(|modifier| &modifier.card) {
        Some(VectorMatchCardinality::ManyToOne(labels)) => Cardinality::ManyToOne(labels.labels.clone()),
        Some(VectorMatchCardinality::OneToMany(labels)) => Cardinality::OneToMany(labels.labels.clone()),
        Some(VectorMatchCardinality::OneToOne | VectorMatchCardinality::ManyToMany) | None => Cardinality::OneToOne,
    }
}

fn aggregate(parsed: &AggregateExpr) -> Compiled<Vector> {
    let aggregation = match parsed.op.id() {
        token::T_SUM => Aggregation::Sum,
        token::T_MIN => Aggregation::Min,
        token::T_MAX => Aggregation::Max,
        token::T_AVG => Aggregation::Avg,
        token::T_COUNT => Aggregation::Count,
        _ => return Err(CompileError::Syntax(format!("the aggregation {} is not supported", parsed.op))),
    };
    let grouping = match &parsed.modifier {
        Some(LabelModifier::Include(labels)) => Grouping::Only(labels.labels.clone()),
        Some(LabelModifier::Exclude(labels)) => Grouping::AllBut(labels.labels.clone()),
        None => Grouping::Only(Vec::new()),
    };
    Ok(Vector::Aggregate { aggregation, of: Box::new(vector(&parsed.expr)?), grouping })
}

fn selector(parsed: &VectorSelector) -> Compiled<Selector> {
    if !parsed.matchers.or_matchers.is_empty() {
        return Err(CompileError::Syntax("`or` between matchers is not PromQL".to_owned()));
    }
    let mut selector = Selector { name: parsed.name.clone(), matchers: Vec::new() };
    for matcher in &parsed.matchers.matchers {
        match matcher.op {
            MatchOp::Equal if matcher.name == METRIC_NAME && selector.name.is_none() => {
                selector.name = Some(matcher.value.clone());
            }
            _ => selector.matchers.push(compile_matcher(matcher)?),
        }
    }
    Ok(selector)
}

fn compile_matcher(parsed: &ParsedMatcher) -> Compiled<Matcher> {
    let pattern = || pattern::compile(&parsed.value).map_err(CompileError::Syntax);
    let test = match parsed.op {
        MatchOp::Equal => Test::Is(parsed.value.clone()),
        MatchOp::NotEqual => Test::IsNot(parsed.value.clone()),
        MatchOp::Re(_) => Test::Matches(pattern()?),
        MatchOp::NotRe(_) => Test::MatchesNot(pattern()?),
    };
    Ok(Matcher { label: parsed.name.clone(), test })
}

/// `absent(x{a="b"})` is `{a="b"}`: the labels that are matched by equality, each once; a label with a second matcher
/// is left out.
fn labels_of_absent(parsed: &Expr) -> Vec<(String, String)> {
    match parsed {
        Expr::Paren(inner) => labels_of_absent(&inner.expr),
        Expr::VectorSelector(selected) => {
            let mut seen = Vec::new();
            let mut labels = Vec::<(String, String)>::new();
            for matcher in selected.matchers.matchers.iter().filter(|matcher| matcher.name != METRIC_NAME) {
                let is_equality = matches!(matcher.op, MatchOp::Equal);
                if is_equality && !seen.contains(&&matcher.name) {
                    seen.push(&matcher.name);
                    labels.push((matcher.name.clone(), matcher.value.clone()));
                } else {
                    labels.retain(|(name, _)| *name != matcher.name);
                }
            }
            labels
        }
        _ => Vec::new(),
    }
}
