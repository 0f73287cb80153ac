//! Tables of bodies, each with the sample or the failure that it makes.

use super::*;

/// The only rank of a body that must have one.
fn rank(body: &str) -> RankSample {
    let sample = read(body.as_bytes()).unwrap();
    assert_eq!(sample.models.len(), 1, "{sample:?}");
    *sample.models.values().next().unwrap().ranks.values().next().unwrap()
}

fn warnings(body: &str) -> Vec<String> {
    read(body.as_bytes()).unwrap().warnings
}

#[test]
fn lookalikes_are_not_taken_for_what_they_look_like() {
    let lines = "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 7\n\
        vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 7\n\
        vllm:prompt_tokens_cached_total 7\n\
        vllm:request_max_num_generation_tokens_sum 7\n\
        vllm:request_params_max_tokens_sum 7\n\
        vllm:iteration_tokens_total_sum 7\n\
        vllm:iteration_tokens_total_count 7\n\
        vllm:request_generation_tokens_count 7\n\
        vllm:request_num_preemptions_sum 7\n\
        vllm:prompt_tokens_created 7\n\
        vllm:request_success_created{finished_reason=\"stop\"} 7\n\
        vllm:num_requests_running 1\n";
    assert_eq!(rank(lines), RankSample { running: Some(1.0), ..RankSample::default() });
}

#[test]
fn the_new_name_wins_and_the_old_one_serves_when_alone() {
    let new = "vllm:kv_cache_usage_perc 0.25\n";
    let old = "vllm:gpu_cache_usage_perc 0.5\n";
    for (body, expected) in
        [(new.to_owned(), 0.25), (old.to_owned(), 0.5), (format!("{new}{old}"), 0.25), (format!("{old}{new}"), 0.25)]
    {
        assert_eq!(rank(&body).kv_cache_usage, Some(expected), "{body}");
    }
}

#[test]
fn reasons_are_summed_apart_and_an_unknown_one_is_named() {
    let line = |reason: &str, value: u32| {
        format!("vllm:request_success_total{{finished_reason=\"{reason}\",model_name=\"m\"}} {value}\n")
    };
    let known: String =
        [("stop", 1), ("length", 2), ("abort", 4), ("error", 8), ("repetition", 16)].map(|(r, v)| line(r, v)).concat();
    let found = rank(&known);
    assert_eq!((found.finished, found.unfinished), (Some(19.0), Some(12.0)));
    assert_eq!(warnings(&known), Vec::<String>::new());

    let found = rank(&line("stop", 1));
    assert_eq!((found.finished, found.unfinished), (Some(1.0), None));
    assert_eq!(
        warnings(&format!("{known}{}", line("vanished", 1))),
        ["requests with the finished_reason \"vanished\" are counted neither as finished nor as not"]
    );
}

#[test]
fn copies_by_process_are_not_added() {
    let body = "vllm:kv_cache_usage_perc{pid=\"7\"} 0.5\nvllm:kv_cache_usage_perc{pid=\"8\"} 0.75\n";
    assert_eq!(rank(body).kv_cache_usage, Some(0.75));
}

#[test]
fn a_family_with_an_unusable_sample_is_unknown_as_a_whole() {
    let stop = "vllm:request_success_total{finished_reason=\"stop\"} 995";
    let length = "vllm:request_success_total{finished_reason=\"length\"}";
    for (body, warning) in [
        (format!("up 1\n{stop}\n{length} oops\n"), "line 3: the value is missing or not a number"),
        (format!("up 1\n{stop}\n{length} NaN\n"), "vllm:request_success_total is NaN"),
        (format!("up 1\n{length} +Inf\n{stop}\n"), "vllm:request_success_total is inf"),
        (format!("up 1\n{stop}\n{length} 2"), "line 3, the last one, has no line end"),
        (format!("up 1\n{stop}\n{length} -996\n"), "vllm:request_success_total is -1"),
    ] {
        assert_eq!(rank(&format!("vllm:num_requests_running 3\n{body}")).running, Some(3.0), "{body}");
        assert_eq!(rank(&format!("vllm:num_requests_running 3\n{body}")).finished, None, "{body}");
        assert!(warnings(&body).iter().any(|text| text.starts_with(warning)), "{:?}", warnings(&body));
    }
    assert_eq!(rank("vllm:num_requests_running 3\nvllm:kv_cache_usage_perc 50\n").kv_cache_usage, None);
}

#[test]
fn a_family_without_a_sample_is_unknown() {
    let declared = "# HELP vllm:num_requests_running Running.\n# TYPE vllm:num_requests_running gauge\n";
    assert_eq!(rank(&format!("{declared}vllm:generation_tokens_total 0\n")).running, None);

    let alone = read(declared.as_bytes()).unwrap();
    assert_eq!((alone.dialect, alone.models.len(), alone.series), (Dialect::Vllm, 0, 0));
    assert_eq!(alone.warnings, ["exposes vllm: metrics, but no sample of those that are read here"]);
}

#[test]
fn an_exposition_without_vllm_is_an_answer() {
    for (body, series, start, warning) in [
        ("process_start_time_seconds 1.5e+09\nup 1\n", 2, Some(1.5e9), "answers, but exposes no vllm: metrics"),
        ("# vllm: is not here\n", 0, None, "answers, but exposes no vllm: metrics"),
        ("", 0, None, "answers with an empty body"),
        ("sglang:num_running_reqs 3\n", 1, None, "answers with the metrics of SGLang"),
        ("process_start_time_seconds NaN\n", 1, None, "answers, but exposes no vllm: metrics"),
    ] {
        let sample = read(body.as_bytes()).unwrap();
        assert_eq!((sample.dialect, sample.series, sample.process_start), (Dialect::None, series, start), "{body}");
        assert_eq!(sample.models.len(), 0);
        assert!(sample.warnings[0].starts_with(warning), "{:?}", sample.warnings);
    }
}

#[test]
fn what_is_no_exposition_is_named() {
    for (body, what) in [
        ("\n<!DOCTYPE html><html><body>vllm:x</body></html>".as_bytes(), "is a page of HTML or XML, not metrics"),
        (b"{\"status\": \"ok\"}", "is JSON, not metrics (\"{\\\"status\\\": \\\"ok\\\"}\")"),
        (b"[]", "is JSON, not metrics"),
        (b"\x1f\x8b\x08\0\0", "is gzip-compressed bytes"),
        (b"\x7fELF\x02\0\0\0", "is binary data"),
        (b"up 1\n\xff\xfe\n", "is binary data"),
        (b"ok", "is not in the Prometheus text format (line 1: the value is missing or not a number: \"ok\")"),
    ] {
        let failure = read(body).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Parse);
        assert!(failure.message.starts_with(what), "{}", failure.message);
        assert!(failure.message.ends_with("does the url point at /metrics of the engine?"), "{}", failure.message);
    }
}

#[test]
fn models_and_ranks_are_kept_apart_and_bounded() {
    use std::fmt::Write as _;
    let mut body = String::new();
    for rank in 0..MAX_RANKS + 5 {
        writeln!(body, "vllm:num_requests_running{{engine=\"{rank}\",model_name=\"m{}\"}} 1", rank % 2).unwrap();
    }
    writeln!(body, "vllm:num_requests_waiting{{model_name=\"{}\"}} 1", "m".repeat(MAX_NAME_BYTES + 1)).unwrap();
    let sample = read(body.as_bytes()).unwrap();
    assert_eq!(sample.models.keys().collect::<Vec<_>>(), ["m0", "m1"]);
    assert_eq!(sample.models.values().map(|model| model.ranks.len()).sum::<usize>(), MAX_RANKS);
    assert_eq!(sample.warnings.len(), 2, "{:?}", sample.warnings);
}

#[test]
fn warnings_are_bounded() {
    let body: String = (0..100).map(|line| format!("vllm:num_requests_running x{line}\n")).collect();
    assert_eq!(warnings(&body).len(), MAX_WARNINGS);
}
