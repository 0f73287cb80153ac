//! The text of the simulated server's `/metrics`, as vLLM's V1 engine prints it through Python's Prometheus client.
//!
//! A sensible part of it, true to the letter: names, help texts and their order, labels in alphabetical order, numbers
//! as Python writes them, `_created` series beside every counter and histogram, and the families whose names mislead
//! (a histogram that ends in `_total`, prompt tokens by source, a maximum of generation tokens). What the real server
//! has and nobody reads here is left out.

use std::fmt::Write as _;

use super::counters::{Counters, Histogram, Reason, real};
use super::model::Metrics;

/// What the server sends along.
pub const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";
/// The value of the label `model_name`.
const MODEL: &str = "acme/longreason-1t";
/// The path that the job posts to.
const HANDLER: &str = "/v1/chat/completions";

/// The whole answer.
pub fn render(metrics: &Metrics) -> String {
    let counters = &metrics.counters;
    // Python makes the families one after the other, some microseconds apart, after a minute of loading.
    let mut page = Page { text: String::with_capacity(48 * 1024), created: counters.started_at };
    process(&mut page, counters);
    gauges(&mut page, metrics);
    token_counters(&mut page, metrics);
    length_histograms(&mut page, counters);
    time_histograms(&mut page, counters);
    cache_config(&mut page);
    http(&mut page, counters);
    page.text
}

fn process(page: &mut Page, counters: &Counters) {
    page.gauge("python_info", "Python platform information", |family| {
        let version = [("implementation", "CPython"), ("major", "3"), ("minor", "12"), ("patchlevel", "1")];
        family.sample("", &[version.as_slice(), &[("version", "3.12.1")]].concat(), 1.0);
    });
    page.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", |family| {
        family.sample("", &[], 4_707_516_416.0);
    });
    page.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", |family| {
        family.sample("", &[], 1_060_773_888.0);
    });
    page.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", |family| {
        // The kernel counts the start of a process in hundredths of a second.
        family.sample("", &[], (counters.started_at * 100.0).floor() / 100.0);
    });
    page.gauge("process_open_fds", "Number of open file descriptors.", |family| family.sample("", &[], 66.0));
    page.gauge("process_max_fds", "Maximum number of open file descriptors.", |family| {
        family.sample("", &[], 20_000.0);
    });
}

fn gauges(page: &mut Page, metrics: &Metrics) {
    let waiting = f64::from(metrics.waiting);
    page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", |family| {
        family.sample("", ENGINE, f64::from(metrics.running));
    });
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", |family| {
        family.sample("", ENGINE, waiting);
    });
    page.gauge(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = \
         deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals \
         vllm:num_requests_waiting.",
        |family| {
            family.sample("", &with("reason", "capacity"), waiting);
            family.sample("", &with("reason", "deferred"), 0.0);
        },
    );
    page.gauge(
        "vllm:engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 \
         means sleep level 1; discard_all = 1 means sleep level 2.",
        |family| {
            for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
                family.sample("", &with("sleep_state", state), value);
            }
        },
    );
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", |family| {
        family.sample("", ENGINE, metrics.kv_cache_usage);
    });
}

fn token_counters(page: &mut Page, metrics: &Metrics) {
    let counters = &metrics.counters;
    let prompt_tokens = real(counters.prompt_tokens);
    let one = |value: f64| vec![(ENGINE.to_vec(), value)];
    page.counter(
        "vllm:prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        &one(prompt_tokens),
    );
    page.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", &one(0.0));
    page.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", &one(0.0));
    page.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", &one(prompt_tokens));
    let sources = [("local_compute", prompt_tokens), ("local_cache_hit", 0.0), ("external_kv_transfer", 0.0)];
    page.counter(
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        &sources.map(|(source, value)| (with("source", source), value)),
    );
    page.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", &one(0.0));
    page.counter(
        "vllm:generation_tokens",
        "Number of generation tokens processed.",
        &one(real(metrics.generation_tokens)),
    );
    let finished: Vec<_> = Reason::LABELS
        .iter()
        .zip(counters.finished)
        .map(|(reason, count)| (with("finished_reason", reason), real(count)))
        .collect();
    page.counter("vllm:request_success", "Count of successfully processed requests.", &finished);
    page.counter(
        "vllm:admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        &["max_num_queued_reqs", "max_num_queued_tokens"]
            .map(|reason| (vec![("model_name", MODEL), ("reason", reason)], 0.0)),
    );
}

fn length_histograms(page: &mut Page, counters: &Counters) {
    for (name, help, histogram) in [
        ("vllm:request_prompt_tokens", "Number of prefill tokens processed.", &counters.request_prompt_tokens),
        (
            "vllm:request_generation_tokens",
            "Number of generation tokens processed.",
            &counters.request_generation_tokens,
        ),
        ("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", &counters.iteration_tokens),
        (
            "vllm:request_max_num_generation_tokens",
            "Histogram of maximum number of requested generation tokens.",
            &counters.request_generation_tokens,
        ),
        ("vllm:request_params_n", "Histogram of the n request parameter.", &counters.request_params_n),
        (
            "vllm:request_params_max_tokens",
            "Histogram of the max_tokens request parameter.",
            &counters.request_params_max_tokens,
        ),
    ] {
        page.histogram(name, help, ENGINE, histogram);
    }
}

fn time_histograms(page: &mut Page, counters: &Counters) {
    for (name, help, histogram) in [
        (
            "vllm:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            &counters.time_to_first_token,
        ),
        (
            "vllm:request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            &counters.time_per_output_token,
        ),
        ("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &counters.e2e_latency),
        (
            "vllm:request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            &counters.queue_time,
        ),
        (
            "vllm:request_inference_time_seconds",
            "Histogram of time spent in RUNNING phase for request.",
            &counters.inference_time,
        ),
        (
            "vllm:request_prefill_time_seconds",
            "Histogram of time spent in PREFILL phase for request.",
            &counters.prefill_time,
        ),
        (
            "vllm:request_decode_time_seconds",
            "Histogram of time spent in DECODE phase for request.",
            &counters.decode_time,
        ),
        (
            "vllm:request_num_preemptions",
            "Histogram of the number of times a request was preempted.",
            &counters.request_num_preemptions,
        ),
    ] {
        page.histogram(name, help, ENGINE, histogram);
    }
}

fn cache_config(page: &mut Page) {
    page.gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", |family| {
        let labels = [
            ("block_size", "16"),
            ("cache_dtype", "auto"),
            ("enable_prefix_caching", "True"),
            ("engine", "0"),
            ("gpu_memory_utilization", "0.92"),
            ("kv_cache_memory_bytes", "None"),
            ("num_gpu_blocks", "50000"),
            ("num_gpu_blocks_override", "None"),
            ("sliding_window", "None"),
        ];
        family.sample("", &labels, 1.0);
    });
}

fn http(page: &mut Page, counters: &Counters) {
    let failed = counters.finished.get(Reason::Error.index()).copied().unwrap_or(0);
    let answered: u64 = counters.finished.iter().sum::<u64>() - failed;
    let statuses = [("2xx", answered), ("5xx", failed)];
    let samples: Vec<_> = statuses
        .into_iter()
        .filter(|&(_, count)| count > 0)
        .map(|(status, count)| (vec![("handler", HANDLER), ("method", "POST"), ("status", status)], real(count)))
        .collect();
    page.created = counters.first_answer_at.unwrap_or(page.created);
    page.counter("http_requests", "Total number of requests by method, status and handler.", &samples);
}

type Labels<'a> = [(&'a str, &'a str)];

/// The labels of what an engine counts.
const ENGINE: &Labels<'static> = &[("engine", "0"), ("model_name", MODEL)];

/// The labels of what an engine counts and one more, in alphabetical order.
fn with<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut labels = [ENGINE, &[(name, value)]].concat();
    labels.sort_unstable();
    labels
}

/// The text so far.
struct Page {
    text: String,
    created: f64,
}

/// Writes the samples of one family.
struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Family<'_> {
    fn sample(&mut self, suffix: &str, labels: &Labels<'_>, value: f64) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            let opening = if index == 0 { '{' } else { ',' };
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{opening}{name}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {}", number(value));
    }
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn gauge(&mut self, name: &str, help: &str, samples: impl FnOnce(&mut Family<'_>)) {
        self.head(name, "gauge", help);
        samples(&mut Family { text: &mut self.text, name });
    }

    /// A counter under its exposed name and, when it has samples, its moments of creation.
    fn counter(&mut self, name: &str, help: &str, samples: &[(Vec<(&str, &str)>, f64)]) {
        let total = format!("{name}_total");
        self.head(&total, "counter", help);
        let mut family = Family { text: &mut self.text, name: &total };
        for (labels, value) in samples {
            family.sample("", labels, *value);
        }
        let labels: Vec<&Labels<'_>> = samples.iter().map(|(labels, _)| labels.as_slice()).collect();
        self.creation(name, help, &labels);
    }

    fn histogram(&mut self, name: &str, help: &str, labels: &Labels<'_>, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut family = Family { text: &mut self.text, name };
        let buckets = histogram.cumulative().map(|(bound, count)| (number(bound), count));
        for (bound, count) in buckets.chain([("+Inf".to_owned(), histogram.count())]) {
            let mut labels = [labels, &[("le", bound.as_str())]].concat();
            labels.sort_unstable();
            family.sample("_bucket", &labels, real(count));
        }
        family.sample("_count", labels, real(histogram.count()));
        family.sample("_sum", labels, histogram.sum());
        self.creation(name, help, &[labels]);
    }

    fn creation(&mut self, name: &str, help: &str, samples: &[&Labels<'_>]) {
        if samples.is_empty() {
            return;
        }
        let name = format!("{name}_created");
        self.head(&name, "gauge", help);
        for labels in samples {
            self.created += 11e-6;
            Family { text: &mut self.text, name: &name }.sample("", labels, self.created);
        }
    }
}

/// A number as Python's client writes it: the shortest digits that read back the same, always with a fraction, and an
/// exponent of two digits from a million on (as Go would) and below a ten-thousandth (as Python does).
fn number(value: f64) -> String {
    let plain = format!("{value:?}");
    if let Some((digits, exponent)) = plain.split_once("e-") {
        return format!("{digits}e-{exponent:0>2}");
    }
    if !(1e6..1e16).contains(&value) {
        return plain;
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) => format!("{digits}e+{exponent:0>2}"),
        None => plain,
    }
}

#[cfg(test)]
mod tests;
