//! The dashboards against the catalog: a metric or label that was renamed must not leave an empty panel behind.

use std::path::Path;

use longhaul::catalog::{self, Family};
use longhaul::model::snapshot as states;
use promql_parser::label::{METRIC_NAME, Matchers};
use promql_parser::parser::{Expr, LabelModifier, VectorMatchCardinality, parse};
use serde_json::Value;

/// What every scraped series has besides the labels of the catalog.
const SCRAPE: &[&str] = &["job", "instance"];
/// Panels that show no data of their own.
const WITHOUT_QUERIES: &[&str] = &["row", "text", "dashlist"];

fn dashboards() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains("__inputs") && !text.contains("${DS_"),
            "{}: only import resolves those",
            path.display()
        );
        all.push((path.file_name().unwrap().to_str().unwrap().to_owned(), serde_json::from_str(&text).unwrap()));
    }
    assert!(!all.is_empty());
    all
}

/// Panels in the order of the file, those inside collapsed rows too.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        all.push(panel);
        all.extend(panel["panels"].as_array().into_iter().flatten());
    }
    all
}

#[test]
fn every_dashboard_can_be_provisioned() {
    for (file, dashboard) in dashboards() {
        assert!(dashboard["uid"].as_str().is_some_and(|uid| uid.starts_with("longhaul-") && uid.len() <= 40), "{file}");
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39, "{file}");
        assert!(dashboard["tags"].as_array().unwrap().contains(&Value::from("longhaul")), "{file}");
        assert!(dashboard.get("id").is_none(), "{file}: the id is the server's");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        assert_eq!(
            (&variables[0]["type"], &variables[0]["query"]),
            (&"datasource".into(), &"prometheus".into()),
            "{file}"
        );
        assert_eq!(variables[0]["name"], "datasource", "{file}");
    }
}

#[test]
fn every_panel_has_a_unit_a_description_and_the_data_source_variable() {
    for (file, dashboard) in dashboards() {
        let mut ids = Vec::new();
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap();
            ids.push(panel["id"].as_u64().unwrap());
            if WITHOUT_QUERIES.contains(&panel["type"].as_str().unwrap()) {
                continue;
            }
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{file}: {title}: unit");
            assert!(
                panel["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{file}: {title}: description"
            );
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{file}: {title}");
            for source in std::iter::once(panel).chain(targets).map(|owner| &owner["datasource"]) {
                assert_eq!(source["type"], "prometheus", "{file}: {title}");
                assert_eq!(source["uid"], "${datasource}", "{file}: {title}");
            }
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "{file}: two panels share an id");
    }
}

#[test]
fn every_query_names_only_metrics_and_labels_of_the_catalog() {
    for (file, dashboard) in dashboards() {
        let mut queries = Vec::new();
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().into_iter().flatten() {
                queries.push((panel["title"].as_str().unwrap(), target["expr"].as_str().unwrap().to_owned()));
            }
        }
        for annotation in dashboard["annotations"]["list"].as_array().into_iter().flatten() {
            queries.extend(annotation["expr"].as_str().map(|expr| ("annotation", expr.to_owned())));
        }
        for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
            let query = variable["query"]["query"].as_str();
            // label_values(selector, label) is Grafana's, not PromQL.
            if let Some((selector, label)) =
                query.and_then(|q| q.strip_prefix("label_values(")?.strip_suffix(')')?.rsplit_once(", "))
            {
                queries.push(("variable", format!("group by ({label}) ({selector})")));
            }
        }
        assert!(queries.len() > 10, "{file}");
        for (panel, query) in queries {
            let place = format!("{file}: {panel}: {query}");
            let query = query.replace("$__range", "1h").replace("$__rate_interval", "1m").replace("$__interval", "1m");
            let expression = parse(&query).unwrap_or_else(|error| panic!("{place}: {error}"));
            check(&expression, &place);
        }
    }
}

/// Checks an expression and gives the families that its selectors name.
fn check(expression: &Expr, place: &str) -> Vec<&'static Family> {
    match expression {
        Expr::VectorSelector(selector) => vec![select(selector.name.as_deref(), &selector.matchers, place)],
        Expr::MatrixSelector(range) => vec![select(range.vs.name.as_deref(), &range.vs.matchers, place)],
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => vec![],
        Expr::Paren(paren) => check(&paren.expr, place),
        Expr::Unary(unary) => check(&unary.expr, place),
        Expr::Subquery(subquery) => check(&subquery.expr, place),
        Expr::Call(call) => call.args.args.iter().flat_map(|argument| check(argument, place)).collect(),
        Expr::Aggregate(aggregate) => {
            let families = check(&aggregate.expr, place);
            if let Some(LabelModifier::Include(labels) | LabelModifier::Exclude(labels)) = &aggregate.modifier {
                known(&labels.labels, &families, place);
            }
            families
        }
        Expr::Binary(binary) => {
            let (mut left, right) = (check(&binary.lhs, place), check(&binary.rhs, place));
            let vectors = !left.is_empty() && !right.is_empty();
            left.extend(right);
            let matching = binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref());
            let is_set_or = binary.op.to_string() == "or";
            match matching {
                Some(LabelModifier::Include(labels)) => {
                    assert!(labels.labels.iter().any(|label| label == "instance"), "joins across instances: {place}");
                    known(&labels.labels, &left, place);
                }
                Some(LabelModifier::Exclude(_)) => panic!("a join names the labels that it is on: {place}"),
                None => assert!(!vectors || is_set_or, "a join says `on (instance, …)`: {place}"),
            }
            let cardinality = binary.modifier.as_ref().map(|modifier| &modifier.card);
            if let Some(VectorMatchCardinality::ManyToOne(labels) | VectorMatchCardinality::OneToMany(labels)) =
                cardinality
            {
                known(&labels.labels, &left, place);
            }
            left
        }
        Expr::Extension(_) => panic!("{place}"),
    }
}

fn select(name: Option<&str>, matchers: &Matchers, place: &str) -> &'static Family {
    let name = name.unwrap_or_else(|| panic!("a selector without a metric: {place}"));
    let family = catalog::family(name).unwrap_or_else(|| panic!("no metric {name}: {place}"));
    assert!(matchers.or_matchers.is_empty(), "{place}");
    for matcher in matchers.matchers.iter().filter(|matcher| matcher.name != METRIC_NAME) {
        known(std::slice::from_ref(&matcher.name), &[family], place);
        // A value of a closed set must be one of it, or the selector is empty for ever.
        let closed: Option<Vec<&str>> = match (name, matcher.name.as_str()) {
            ("longhaul_job_state", "state") => Some(states::JobState::ALL.iter().map(|state| state.as_str()).collect()),
            ("longhaul_job_stall_cause", "cause") => {
                Some(states::StallCause::ALL.iter().map(|cause| cause.as_str()).collect())
            }
            ("longhaul_engine_state", "state") => {
                Some(states::EngineState::ALL.iter().map(|state| state.as_str()).collect())
            }
            ("longhaul_job_process_state", "state") => {
                Some(states::ProcessState::ALL.iter().map(|state| state.as_str()).collect())
            }
            ("longhaul_alerts", "state") => Some(states::AlertState::ALL.iter().map(|state| state.as_str()).collect()),
            (_, "bound") => Some(vec!["low", "mid", "high"]),
            _ => None,
        };
        if let Some(closed) = closed {
            assert!(closed.contains(&matcher.value.as_str()), "{} is no {}: {place}", matcher.value, matcher.name);
        }
    }
    family
}

/// Each label is one of a scrape or of one of the families.
fn known(labels: &[String], families: &[&'static Family], place: &str) {
    for label in labels {
        let found =
            SCRAPE.contains(&label.as_str()) || families.iter().any(|family| family.labels.contains(&label.as_str()));
        assert!(found, "no label {label}: {place}");
    }
}

/// A panel that spells a state set out must have all of it.
#[test]
fn state_sets_are_spelled_out_completely() {
    for (file, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let query = target["expr"].as_str().unwrap();
                if query.contains("longhaul_job_state{") {
                    for state in states::JobState::ALL {
                        assert!(query.contains(&format!("state=\"{}\"", state.as_str())), "{file}: {query}");
                    }
                }
                if query.contains("longhaul_engine_state{") {
                    for state in states::EngineState::ALL {
                        assert!(query.contains(&format!("state=\"{}\"", state.as_str())), "{file}: {query}");
                    }
                }
                if query.contains("longhaul_job_process_state{") {
                    for state in states::ProcessState::ALL {
                        assert!(query.contains(&format!("state=\"{}\"", state.as_str())), "{file}: {query}");
                    }
                }
                if query.contains("longhaul_job_stall_cause{") {
                    for cause in states::StallCause::ALL {
                        assert!(query.contains(&format!("cause=\"{}\"", cause.as_str())), "{file}: {query}");
                    }
                }
            }
        }
    }
}
