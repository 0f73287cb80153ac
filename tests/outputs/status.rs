//! `longhaul status`.

use longhaul::cli::status::render;
use longhaul::model::Snapshot;

use crate::support::{golden, snapshot};

#[test]
fn status_of_everything_wide_and_narrow() {
    golden::check("tests/golden/status-wide.txt", &render(&snapshot::full(), 140));
    golden::check("tests/golden/status-narrow.txt", &render(&snapshot::full(), 80));
}

#[test]
fn status_of_one_job_in_each_state() {
    let mut text = String::new();
    for (title, jobs) in [
        ("no jobs", vec![]),
        ("waiting, everything unknown", vec![snapshot::waiting("hidden_states")]),
        ("running", vec![snapshot::running()]),
        ("running, total unknown", vec![snapshot::without_total()]),
        ("stalled", vec![snapshot::stalled()]),
        ("finished", vec![snapshot::finished()]),
    ] {
        let screen = render(&Snapshot { jobs, ..snapshot::empty() }, 120);
        text.push_str(&format!("=== {title}\n{screen}\n"));
    }
    golden::check("tests/golden/status-states.txt", &text);
}

#[test]
fn no_line_is_wider_than_the_terminal_where_its_figures_fit() {
    for width in [90, 100, 120, 133, 160] {
        for line in render(&snapshot::full(), width).lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}
