//! What the papers say about the configuration and about progress, against the code that they are about.

use std::path::Path;

use longhaul::config::log_format::GROUPS;
use longhaul::config::{self, JsonFields, LogFormat, keys};
use longhaul::model::Time;
use longhaul::sources::progress::document::{self, Fields};
use longhaul::sources::progress::items::Items;
use longhaul::sources::progress::log::Text;

use crate::support::golden;

const LINE: usize = 1 << 20;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned() + "\n").collect()
}

/// The head is written by hand, the tables are the program's.
#[test]
fn the_documentation_has_every_key() {
    let text = read("docs/configuration.md");
    let tables = "## All keys\n";
    let end = text.find(tables).expect("the head ends with the section of all keys") + tables.len();
    let (head, rest) = text.split_at(end);
    let introduction = rest.split("### ").next().unwrap();
    golden::check("docs/configuration.md", &format!("{head}{introduction}{}\n", keys::reference().trim_end()));
}

/// What people copy works, and does all that it says.
#[test]
fn every_example_of_a_configuration_is_good() {
    for file in ["README.md", "docs/configuration.md"] {
        let text = read(file);
        let examples: Vec<String> = blocks(&text, "yaml")
            .into_iter()
            .filter(|block| !["scrape_configs", "inhibit_rules"].iter().any(|other| block.starts_with(other)))
            .collect();
        assert!(!examples.is_empty(), "{file}");
        for example in examples {
            let loaded = config::parse(&example, file);
            assert!(loaded.config.is_some(), "{}", loaded.problem_listing());
            assert!(loaded.warnings.is_empty(), "{}", config::listing(&loaded.warnings));
        }
    }
}

#[test]
fn every_example_of_progress_is_read() {
    let text = read("docs/progress.md");
    let json = blocks(&text, "json");
    let [ours, item] = json.as_slice() else { panic!("{json:?}") };
    let reading = document::parse(ours.as_bytes(), &Fields::from(&JsonFields::default())).unwrap();
    assert_eq!((reading.done, reading.total, reading.failed), (Some(300.0), Some(25_000.0), Some(2.0)));
    assert_eq!((reading.tokens, reading.phase.as_deref()), (Some(319_800.0), Some("generating")));
    assert_eq!(reading.finished, Some(false));
    assert_eq!(reading.updated_at, Some(Time::from_seconds(1_796_022_164.0)));
    // A field that the reader knows stands in the table, and none besides.
    let fields: Vec<&str> = ours.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect();
    let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(fields, rows);

    let mut items = Items::new(Some("/usage/completion_tokens"), Some("/error"), LINE);
    items.push(item.as_bytes());
    let counts = items.counts();
    assert_eq!((counts.good, counts.failed, counts.tokens, counts.unread), (1, 0, 1066.0, 0));

    let logs = blocks(&text, "text");
    let [lines] = logs.as_slice() else { panic!("{logs:?}") };
    for (line, done) in lines.lines().zip([300.0, 300.0, 3000.0, 4.0, 857.0]) {
        let mut log = Text::new(&LogFormat::Auto, LINE);
        log.push(format!("{line}\n").as_bytes());
        log.settle();
        assert_eq!(log.reading().done, Some(done), "{line}");
    }
    assert_eq!(lines.lines().count(), 5);
    let (section, _) = text.split_once("## `log`").unwrap().1.split_once("\n## ").unwrap();
    for name in LogFormat::NAMED.iter().map(|(name, _)| name).chain(&GROUPS) {
        assert!(section.contains(&format!("`{name}`")), "{name} is explained");
    }
}
