//! Tables of bodies, each with the sample or the failure that it makes.

use super::*;
use crate::model::engine::Lengths;

/// The only rank of a body that must have one.
fn rank(body: &str) -> RankSample {
    let sample = read(body.as_bytes()).unwrap();
    assert_eq!(sample.models.len(), 1, "{sample:?}");
    sample.models.values().next().unwrap().ranks.values().next().unwrap().clone()
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
        ("process_start_time_seconds 1.5e+09\nup 1\n", 2, Some(1.5e9), "answers, but exposes neither vllm: nor"),
        ("# vllm: is not here\n", 0, None, "answers, but exposes neither vllm: nor sglang: metrics: is it vLLM with"),
        ("", 0, None, "answers with an empty body"),
        ("sgl_router_requests_total 3\n", 1, None, "answers, but exposes neither vllm: nor sglang: metrics"),
        ("process_start_time_seconds NaN\n", 1, None, "answers, but exposes neither vllm: nor sglang: metrics"),
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

#[test]
fn counters_are_read_with_and_without_the_ending_and_never_added() {
    for name in ["generation_tokens", "prompt_tokens", "num_preemptions"] {
        for body in [
            format!("vllm:{name} 5\n"),
            format!("vllm:{name}_total 5\n"),
            format!("vllm:{name} 5\nvllm:{name}_total 5\n"),
        ] {
            let found = rank(&body);
            let values = [found.generation_tokens, found.prompt_tokens, found.preemptions];
            assert_eq!(values.into_iter().flatten().collect::<Vec<_>>(), [5.0], "{body}");
        }
    }
}

#[test]
fn lengths_of_several_label_sets_are_summed_and_damaged_ones_are_unknown() {
    let bucket = |le: &str, extra: &str, value: &str| {
        format!("vllm:request_generation_tokens_bucket{{le=\"{le}\",model_name=\"m\"{extra}}} {value}\n")
    };
    let whole = [("100.0", "2.0"), ("1000.0", "5.0"), ("+Inf", "6.0")];
    let set = |extra: &str| whole.map(|(le, value)| bucket(le, extra, value)).concat();
    let expected = |factor: f64| {
        Some(Lengths { buckets: vec![(100.0, 2.0 * factor), (1000.0, 5.0 * factor)], count: 6.0 * factor })
    };
    assert_eq!(rank(&set("")).finished_lengths, expected(1.0));
    let several = format!("{}{}", set(",pid=\"1\""), set(",pid=\"2\""));
    assert_eq!(rank(&several).finished_lengths, expected(2.0));
    // Sum first, buckets, count: the order of a server with several processes.
    let other_order = format!("vllm:request_generation_tokens_sum{{model_name=\"m\"}} 900\n{}", set(""));
    assert_eq!((rank(&other_order).finished_lengths, rank(&other_order).finished_tokens), (expected(1.0), Some(900.0)));
    let running = "vllm:num_requests_running{model_name=\"m\"} 1\n";
    for damaged in [
        bucket("100.0", "", "2.0"),
        format!("{}{}", bucket("100.0", "", "9.0"), bucket("+Inf", "", "3.0")),
        format!("{several}{}", bucket("10.0", ",pid=\"2\"", "1.0")),
        format!("{}{}", set(""), bucket("x", "", "1.0")),
        format!("{}{}", set(""), bucket("50.0", "", "NaN")),
        format!("{}{}", set(""), bucket("50.0", "", "oops")),
        set("").trim_end().to_owned(),
    ] {
        let body = format!("{running}{damaged}");
        assert_eq!(rank(&body).finished_lengths, None, "{damaged}");
        assert_eq!(rank(&body).running, Some(1.0));
        assert_eq!(warnings(&body).len(), 1, "{:?}", warnings(&body));
    }
    assert_eq!(rank(running).finished_lengths, None);
    assert_eq!(warnings(running), Vec::<String>::new());
}

#[test]
fn odd_model_names_are_what_they_are() {
    for (raw, name) in [
        (r#"we\"ird"#, "we\"ird"),
        (r"na\\me", "na\\me"),
        (r"two\nlines", "two\nlines"),
        ("ünï 模型 🦀", "ünï 模型 🦀"),
        (r#"{x=\"1\"},le=\"2\"} 3"#, "{x=\"1\"},le=\"2\"} 3"),
        ("/models/Kimi-K2,v1", "/models/Kimi-K2,v1"),
        ("", ""),
    ] {
        let body = format!(
            "vllm:num_requests_running{{engine=\"0\",model_name=\"{raw}\"}} 3\n\
             vllm:lora_requests_info{{max_lora=\"4\",running_lora_adapters=\"sql,chat\",waiting_lora_adapters=\"\"}} 1.7e9\n"
        );
        let sample = read(body.as_bytes()).unwrap();
        assert_eq!(sample.models.keys().collect::<Vec<_>>(), [name]);
        assert_eq!((sample.models[name].ranks["0"].running, sample.warnings.len()), (Some(3.0), 0));
    }
}

/// After SGLang's own source: two data-parallel schedulers of two tensor-parallel ranks each with
/// --enable-metrics-for-all-schedulers and priority scheduling, and one API process.
const SGLANG: &str = r#"# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 4.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="5",tp_rank="0"} 1.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="9",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="1"} 4.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="2"} 6.0
sglang:num_running_reqs_offline_batch{dp_rank="0",engine_type="unified",model_name="m",tp_rank="0"} 99.0
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 2.0
sglang:num_queue_reqs{dp_rank="1",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="2"} 0.0
sglang:num_grammar_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 1.0
sglang:token_usage{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 0.28
sglang:token_usage{dp_rank="1",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="2"} 0.5
sglang:gen_throughput{dp_rank="0",engine_type="unified",model_name="m",tp_rank="0"} 777.0
sglang:num_retracted_reqs{dp_rank="0",engine_type="unified",model_name="m",tp_rank="0"} 55.0
sglang:num_retracted_requests_total{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 3.0
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="decode",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 5000.0
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="decode",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="1"} 5000.0
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="prefill_compute",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 700.0
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="prefill_cache",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 300.0
sglang:realtime_tokens_total{dp_rank="1",engine_type="unified",mode="decode",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="2"} 6000.0
sglang:realtime_tokens_total{dp_rank="1",engine_type="unified",mode="prefill_compute",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="2"} 1200.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{is_streaming="true",model_name="m"} 3000.0
sglang:generation_tokens_total{is_streaming="false",model_name="m"} 1000.0
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 900.0
sglang:num_requests_total{is_streaming="true",model_name="m"} 5.0
sglang:num_requests_total{is_streaming="false",model_name="m"} 3.0
sglang:num_so_requests_total{model_name="m"} 44.0
sglang:num_aborted_requests_total{model_name="m"} 2.0
sglang:generation_tokens_histogram_sum{model_name="m"} 4000.0
sglang:generation_tokens_histogram_bucket{le="100.0",model_name="m"} 1.0
sglang:generation_tokens_histogram_bucket{le="1000.0",model_name="m"} 7.0
sglang:generation_tokens_histogram_bucket{le="+Inf",model_name="m"} 8.0
sglang:generation_tokens_histogram_count{model_name="m"} 8.0
"#;

#[test]
fn sglang_is_recognised_by_itself_and_read_by_its_own_table() {
    let sample = read(SGLANG.as_bytes()).unwrap();
    assert_eq!((sample.dialect, sample.process_start, sample.warnings.as_slice()), (Dialect::Sglang, None, &[][..]));
    let ranks = &sample.models["m"].ranks;
    assert_eq!(ranks.keys().collect::<Vec<_>>(), ["", "0", "1"]);
    let whole = RankSample {
        prompt_tokens: Some(900.0),
        finished: Some(8.0),
        unfinished: Some(2.0),
        finished_tokens: Some(4000.0),
        finished_lengths: Some(Lengths { buckets: vec![(100.0, 1.0), (1000.0, 7.0)], count: 8.0 }),
        ..RankSample::default()
    };
    assert_eq!(ranks[""], whole);
    let first = RankSample {
        running: Some(4.0),
        waiting: Some(3.0),
        kv_cache_usage: Some(0.28),
        generation_tokens: Some(5000.0),
        prompt_tokens: Some(1000.0),
        preemptions: Some(3.0),
        ..RankSample::default()
    };
    assert_eq!(ranks["0"], first);
    let model = &sample.models["m"];
    assert_eq!(model.sum(|rank| rank.running), Some(10.0));
    assert_eq!(model.sum(|rank| rank.generation_tokens), Some(11_000.0));
    assert_eq!(model.sum(|rank| rank.prompt_tokens), Some(2200.0), "the live ones, not those of finished requests too");
    assert_eq!(model.sum(|rank| rank.finished), Some(8.0));
    assert_eq!(model.sum(|rank| rank.preemptions), None, "the other rank does not say");
}

#[test]
fn sglang_without_ranks_and_without_live_counters() {
    let body = "sglang:num_running_reqs{model_name=\"m\"} 3\nsglang:num_queue_reqs{model_name=\"m\"} 0\n\
        sglang:generation_tokens_total{model_name=\"m\"} 500\nsglang:prompt_tokens_total{model_name=\"m\"} 90\n";
    let found = rank(body);
    assert_eq!((found.running, found.waiting, found.generation_tokens), (Some(3.0), Some(0.0), None));
    assert_eq!((found.finished_tokens, found.prompt_tokens), (Some(500.0), Some(90.0)));
    let declared = read(b"# TYPE sglang:num_running_reqs gauge\n").unwrap();
    assert_eq!((declared.dialect, declared.models.len()), (Dialect::Sglang, 0));
}

#[test]
fn openmetrics_with_exemplars_and_an_end_is_read_too() {
    let body = "# TYPE vllm:generation_tokens counter\n# UNIT vllm:generation_tokens tokens\n\
        vllm:generation_tokens_total{model_name=\"m\"} 5 1796022733.5 # {trace=\"x\"} 1.0 1796022733.0\n\
        vllm:generation_tokens_created{model_name=\"m\"} 1.796e+09\n# EOF\n";
    let found = rank(body);
    assert_eq!((found.generation_tokens, found.created), (Some(5.0), Some(1.796e9)));
}
