//! Tables of real and broken lines, and the laws: what is rendered reads back, and no bytes panic.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// Name, labels and value of a sample.
type Parts = (String, Vec<(String, String)>, f64);

/// A line with the same three.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)], f64);

/// Every line of a body that must be readable.
fn read(body: &str) -> Vec<Parts> {
    samples(body.as_bytes(), |_| true)
        .map(|sample| {
            let sample = sample.unwrap();
            let labels = sample.labels.iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
            (sample.name.into_owned(), labels, sample.value)
        })
        .collect()
}

#[test]
fn lines_that_are_samples() {
    let labels = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let cases: &[Case] = &[
        ("up 1", "up", &[], 1.0),
        ("up\t1", "up", &[], 1.0),
        ("  up   1  ", "up", &[], 1.0),
        ("up{} 1", "up", &[], 1.0),
        ("up { } 1", "up", &[], 1.0),
        ("up{a=\"b\"}1", "up", &[("a", "b")], 1.0),
        ("up{a=\"b\",} 1", "up", &[("a", "b")], 1.0),
        ("up { a = \"b\" , c = \"d\" } 1", "up", &[("a", "b"), ("c", "d")], 1.0),
        (
            "vllm:x{engine=\"0\",m=\"acme/tiny-r1\"} 1.000327e+06",
            "vllm:x",
            &[("engine", "0"), ("m", "acme/tiny-r1")],
            1_000_327.0,
        ),
        (r#"x{m="we\"ird\\na/me ünï {x=\"1\"}"} 1"#, "x", &[("m", r#"we"ird\na/me ünï {x="1"}"#)], 1.0),
        (r#"x{m="a\nb\\",n="},=\t# \é"} 1"#, "x", &[("m", "a\nb\\"), ("n", "},=\\t# \\é")], 1.0),
        ("x{m=\"\"} -0.5", "x", &[("m", "")], -0.5),
        ("x +Inf", "x", &[], f64::INFINITY),
        ("x -Inf", "x", &[], f64::NEG_INFINITY),
        ("x 1.7960228191128664e+09 1796022819112", "x", &[], 1.796_022_819_112_866_4e9),
        ("x 1 -5", "x", &[], 1.0),
        ("x_bucket{le=\"1\"} 17 # {trace_id=\"a } b\"} 0.67", "x_bucket", &[("le", "1")], 17.0),
        ("x_bucket{le=\"1\"} 17 1520879607.789 # {} 0.67 1520879607.789", "x_bucket", &[("le", "1")], 17.0),
        ("{\"my.metric\"} 1", "my.metric", &[], 1.0),
        ("{ \"my \\\"metric\\\"\" , \"a.b\"=\"c\", d=\"e\" } 1", "my \"metric\"", &[("a.b", "c"), ("d", "e")], 1.0),
        ("x{\"ü\"=\"1\"} 1\r", "x", &[("ü", "1")], 1.0),
    ];
    for (line, name, pairs, value) in cases {
        for end in ["", "\n", "\r\n"] {
            let expected = vec![((*name).to_owned(), labels(pairs), *value)];
            assert_eq!(read(&format!("{}{end}", line.trim_end_matches('\r'))), expected, "{line}");
        }
    }
}

#[test]
fn not_a_number_is_a_value() {
    let found: Vec<_> = samples(b"x NaN\n", |_| true).map(|sample| sample.unwrap().value.is_nan()).collect();
    assert_eq!(found, [true]);
}

#[test]
fn lines_that_are_not_samples_say_what_is_wrong() {
    use Problem::*;
    let cases: &[(&[u8], Problem)] = &[
        (b"<!DOCTYPE html>", Name),
        (b"<html> 1", Name),
        (br#"{"status":"ok"}"#, Name),
        (br#"{"label"="value"} 1"#, Name),
        (b"[1, 2]", Name),
        (b"{} 1", Name),
        (b"{\"\"} 1", Name),
        (b"9lives 1", Name),
        (b"no-dashes 1", Name),
        (b"\xff\xfe 1", NotUtf8),
        (b"x{a=\"\xff\"} 1", NotUtf8),
        (b"x", Value),
        (b"x ", Value),
        (b"x{}", Value),
        (b"x{a=\"b\"} ", Value),
        (b"x abc", Value),
        (b"x 1,5", Value),
        (b"x 0x10", Value),
        (b"x 1 2 3", Trailing),
        (b"x 1 abc", Trailing),
        (b"x 1 # comment", Trailing),
        (b"x 1 # {a=\"b\"}", Trailing),
        (b"x 1 # {a=\"b\"} 1 2 3", Trailing),
        (b"x{a=\"b} 1", Quote),
        (b"x{a=\"b\\\"} 1", Quote),
        (b"x{a=\"b\\", Quote),
        (b"x{a=b} 1", LabelValue),
        (b"x{a} 1", LabelValue),
        (b"x{=\"b\"} 1", LabelName),
        (b"x{,a=\"b\"} 1", LabelName),
        (b"x{9=\"b\"} 1", LabelName),
        (b"x{a=\"b\"c=\"d\"} 1", LabelEnd),
        (b"x{a=\"b\" 1", LabelEnd),
        (b"x{a=\"b\"", LabelEnd),
    ];
    for (line, problem) in cases {
        let body = [b"# a comment\n\n".as_slice(), line, b"\nup 1\n"].concat();
        let found: Vec<_> = samples(&body, |_| true).collect();
        let text = String::from_utf8_lossy(line);
        assert_eq!(found.len(), 2, "{text}");
        let error = found[0].as_ref().expect_err(&text);
        assert_eq!((error.line, error.problem), (3, *problem), "{text}");
        assert_eq!(found[1].as_ref().map(|sample| sample.value), Ok(1.0), "the line after {text} is still read");
    }
}

#[test]
fn a_message_names_the_line_and_is_bounded() {
    let body = format!("up 1\nx{{a=\"{}", "ü".repeat(10_000));
    let error = samples(body.as_bytes(), |_| true).find_map(Result::err).unwrap();
    let expected = format!("line 2: a quote is not closed: \"x{{a=\\\"{}\" …", "ü".repeat(37));
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.name(), b"x");
}

#[test]
fn only_wanted_lines_are_looked_at_and_all_are_counted() {
    let body = b"# TYPE a counter\na 1\n\nb{x=\"\xff\"} oops\na_total 3\n{\"a\",x=\"y\"} 4\n a 5\n";
    let mut reader = samples(body, |name| name == b"a");
    let found: Vec<_> = reader.by_ref().map(|sample| sample.map(|sample| (sample.line, sample.value))).collect();
    assert_eq!(found, [Ok((2, 1.0)), Ok((6, 4.0)), Ok((7, 5.0))]);
    assert_eq!(reader.series(), 5);
}

#[test]
fn a_last_line_without_its_end_says_so() {
    let ends =
        |body: &[u8]| -> Vec<bool> { samples(body, |_| true).map(|sample| sample.unwrap().terminated).collect() };
    assert_eq!(ends(b"a 1\nb 1.0003"), [true, false]);
    assert_eq!(ends(b"a 1\nb 1.0003\n# EOF"), [true, true]);
}

#[test]
fn what_has_no_escape_is_borrowed() {
    let sample = samples(b"x{a=\"b\",c=\"\\n\"} 1\n", |_| true).next().unwrap().unwrap();
    assert!(matches!(sample.name, Cow::Borrowed("x")));
    assert!(matches!(sample.labels.get("a"), Some(Cow::Borrowed("b"))));
    assert!(matches!(sample.labels.get("c"), Some(Cow::Owned(text)) if text == "\n"));
    assert_eq!(sample.labels.get("d"), None);
}

/// Writes a text as the format wants it between quotes.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes a sample; the name in quotes where it is not a plain one or `quoted` asks for it.
fn render(body: &mut String, name: &str, labels: &[(String, String)], value: f64, quoted: bool) {
    let mut items: Vec<String> =
        labels.iter().map(|(name, value)| format!("\"{}\"=\"{}\"", escape(name), escape(value))).collect();
    if quoted {
        items.insert(0, format!("\"{}\"", escape(name)));
    } else {
        body.push_str(name);
    }
    writeln!(body, "{{{}}} {value:?}", items.join(",")).unwrap();
}

proptest! {
    #[test]
    fn what_is_rendered_reads_back(
        written in prop::collection::vec(
            (
                prop_oneof![("[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", Just(false)), ("\\PC{1,12}", Just(true))],
                prop::collection::vec(("[^\r0-9][^\r]{0,7}", "[^\r]{0,20}"), 0..5),
                any::<f64>().prop_filter("NaN is not equal to itself", |value| !value.is_nan()),
            ),
            0..8,
        ),
    ) {
        let mut body = String::new();
        for ((name, quoted), labels, value) in &written {
            render(&mut body, name, labels, *value, *quoted);
        }
        let expected: Vec<_> =
            written.into_iter().map(|((name, _), labels, value)| (name, labels, value)).collect();
        prop_assert_eq!(read(&body), expected);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_lines_are_all_accounted_for(
        body in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"{}\"\\=, \n\t#x1".to_vec())], 0..200),
    ) {
        let mut reader = samples(&body, |_| true);
        let mut count = 0;
        for sample in reader.by_ref() {
            count += 1;
            match sample {
                Ok(sample) => prop_assert!(sample.labels.iter().count() <= body.len()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
        prop_assert_eq!(count, reader.series());
    }

    /// A broken line, bytes that are no text among them, is the fault of that line alone.
    #[test]
    fn a_line_reads_alike_wherever_it_stands(
        before in prop::collection::vec(prop_oneof![Just(0xff_u8), Just(b'\n'), any::<u8>()], 0..40),
        line in prop_oneof![
            "[ a]{0,2}x\\{(é|a)=\"[^\n]{0,40}\" ?[,}] 1(\r)?".prop_map(String::into_bytes),
            prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"{}\"\\=, \r\t#x1".to_vec())], 0..40),
        ].prop_map(|mut line| { line.retain(|byte| *byte != b'\n'); line }),
        after in prop::collection::vec(prop_oneof![Just(0xff_u8), any::<u8>()], 0..40),
    ) {
        let told = |body: &[u8]| -> Vec<(u64, String)> {
            samples(body, |_| true).map(|sample| match sample {
                Ok(sample) => (sample.line, format!("{:?} {:?} {:?} {}", sample.name, sample.labels, sample.value, sample.terminated)),
                Err(error) => (error.line, format!("{:?} {:?}", error.problem, error.text)),
            }).collect()
        };
        let alone = told(&[&*line, b"\n"].concat());
        let body = [&*before, b"\n", &*line, b"\n", &*after].concat();
        let place = u64::try_from(before.iter().filter(|byte| **byte == b'\n').count()).unwrap() + 2;
        let among: Vec<_> = told(&body).into_iter().filter(|(number, _)| *number == place).collect();
        prop_assert_eq!(among.into_iter().map(|(_, told)| told).next(), alone.into_iter().map(|(_, told)| told).next());
    }
}
