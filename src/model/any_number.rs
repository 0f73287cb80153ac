//! Any `f64` in JSON. JSON has no infinities and no NaN, which the value of an alert can be (a division by zero), and
//! serde_json writes `null` for them, which it then refuses to read; so those three are written as texts.

use serde::{Deserialize, Deserializer, Serializer};

/// For `#[serde(with = "..")]`.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else if value.is_nan() {
        serializer.serialize_str("NaN")
    } else if *value > 0.0 {
        serializer.serialize_str("+Inf")
    } else {
        serializer.serialize_str("-Inf")
    }
}

/// For `#[serde(with = "..")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Text(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Number(value) => Ok(value),
        Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Holder(#[serde(with = "super")] f64);

    #[test]
    fn every_number_comes_back() {
        for (value, text) in
            [(0.25, "0.25"), (f64::INFINITY, "\"+Inf\""), (f64::NEG_INFINITY, "\"-Inf\""), (f64::NAN, "\"NaN\"")]
        {
            let written = serde_json::to_string(&Holder(value)).unwrap();
            assert_eq!(written, text);
            let Holder(back) = serde_json::from_str(&written).unwrap();
            assert!(back == value || back.is_nan() && value.is_nan(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Holder>("1").unwrap().0, 1.0);
    }
}
