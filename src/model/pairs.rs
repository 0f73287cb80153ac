//! Maps whose keys are no texts, in JSON: a list of pairs. JSON has texts as keys and nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For `#[serde(with = "..")]`.
pub fn serialize<K, V, S>(map: &BTreeMap<K, V>, serializer: S) -> Result<S::Ok, S::Error>
where
    K: Serialize,
    V: Serialize,
    S: Serializer,
{
    serializer.collect_seq(map)
}

/// For `#[serde(with = "..")]`.
pub fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Ranks(#[serde(with = "super")] BTreeMap<(String, String), u8>);

    #[test]
    fn a_map_by_two_names_comes_back() {
        let ranks = Ranks(BTreeMap::from([(("m".into(), "0".into()), 1), (("m".into(), "1".into()), 2)]));
        let text = serde_json::to_string(&ranks).unwrap();
        assert_eq!(text, r#"[[["m","0"],1],[["m","1"],2]]"#);
        assert_eq!(serde_json::from_str::<Ranks>(&text).unwrap(), ranks);
    }
}
