//! `longhaul assets`: nothing that belongs to it is forgotten.

use std::collections::BTreeSet;
use std::path::Path;

use longhaul::cli::assets::ASSETS;

#[test]
fn every_rule_file_and_dashboard_is_embedded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut shipped = BTreeSet::from(["prometheus-scrape.yml".to_owned()]);
    for (folder, ending) in [("alerts", ".yml"), ("dashboards", ".json")] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(ending) {
                shipped.insert(format!("{folder}/{name}"));
            }
        }
    }
    let embedded: BTreeSet<_> = ASSETS.iter().map(|asset| asset.path.to_owned()).collect();
    assert_eq!(embedded, shipped);
}
