//! The catalog in Prometheus' text format, and the only place that knows the `prometheus` crate.
//!
//! The crate's registry and its vectors are not used: they remember series, and ours must vanish with what they
//! describe. Families are built anew from the snapshot and given to its encoder, which escapes HELP and label values.

use prometheus::proto;
use prometheus::{TEXT_FORMAT, TextEncoder};

use crate::catalog::{self, Family, Kind, Sample};
use crate::model::Snapshot;

/// What `/metrics` says it is: [`TEXT_FORMAT`] with the encoding, as the Go client writes it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The body of `/metrics`.
pub fn render(snapshot: &Snapshot) -> String {
    debug_assert!(CONTENT_TYPE.starts_with(TEXT_FORMAT));
    let families: Vec<_> =
        catalog::collect(snapshot).into_iter().map(|(family, samples)| encode(family, samples)).collect();
    let mut text = String::new();
    // It fails for a family without a name or samples only, and `collect` gives none.
    if let Err(error) = TextEncoder::new().encode_utf8(&families, &mut text) {
        tracing::error!(%error, "a bug: a family of metrics cannot be written");
    }
    text
}

fn encode(family: &Family, samples: Vec<Sample<'_>>) -> proto::MetricFamily {
    let mut encoded = proto::MetricFamily::default();
    encoded.set_name(family.name.to_owned());
    encoded.set_help(family.help.to_owned());
    encoded.set_field_type(match family.kind {
        Kind::Gauge => proto::MetricType::GAUGE,
        Kind::Counter => proto::MetricType::COUNTER,
    });
    encoded.set_metric(samples.into_iter().map(|sample| metric(family, sample)).collect());
    encoded
}

fn metric(family: &Family, sample: Sample<'_>) -> proto::Metric {
    let labels = family.labels.iter().zip(sample.values).map(|(name, value)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.into_owned());
        pair
    });
    let mut metric = proto::Metric::from_label(labels.collect());
    match family.kind {
        Kind::Gauge => {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(sample.value);
            metric.set_gauge(gauge);
        }
        Kind::Counter => {
            let mut counter = proto::Counter::default();
            counter.set_value(sample.value);
            metric.set_counter(counter);
        }
    }
    metric
}
