//! The landing page.

use longhaul::web::page;

use crate::support::{golden, snapshot};

#[test]
fn page_of_everything() {
    golden::check("tests/golden/page.html", &page::render(&snapshot::full(), "/metrics"));
}

#[test]
fn page_of_nothing_says_what_to_do() {
    let html = page::render(&snapshot::empty(), "/metrics");
    assert!(html.contains("no jobs yet") && html.contains("<code>jobs_dir</code>"), "{html}");
    assert!(html.contains("all 0 sources answer"), "{html}");
}

/// Nothing that a job, a server or a rule says becomes markup, an attribute or a link that runs.
#[test]
fn everything_is_escaped() {
    let evil = "\"'><script>alert(1)</script>";
    let mut sample = snapshot::full();
    sample.instance = evil.into();
    for job in &mut sample.jobs {
        job.message = evil.into();
        job.last_line = Some(evil.into());
        job.phase = Some(evil.into());
        job.pipeline = Some(evil.into());
    }
    for engine in &mut sample.engines {
        engine.reason = Some(evil.into());
        engine.url = evil.into();
    }
    for volume in &mut sample.volumes {
        volume.device = evil.into();
        volume.mountpoint = evil.into();
        volume.reason = Some(evil.into());
    }
    for source in &mut sample.sources {
        source.reason = Some(evil.into());
    }
    for alert in &mut sample.alerts {
        alert.name = evil.into();
        alert.labels.insert("x".into(), evil.into());
        alert.annotations.insert("summary".into(), evil.into());
        alert.annotations.insert("runbook_url".into(), "javascript:alert(1)".into());
    }
    let html = page::render(&sample, "/metrics");
    assert!(!html.contains("<script") && !html.contains("javascript:"), "{html}");
    assert!(!html.contains("\"'>"), "{html}");
    // It needs nothing from elsewhere and runs nothing.
    assert!(!html.contains(" src=") && !html.contains("<link") && !html.contains("url("));
}

/// Bytes of all jobs on a volume, and its `min_avail`, count against what is available there.
#[test]
fn what_does_not_fit_is_said_by_the_page_and_the_terminal() {
    let mut full = snapshot::full();
    let place = |snapshot: &longhaul::model::Snapshot| snapshot.jobs[0].outputs[0].volume.clone();
    let id = place(&full);
    let volume = full.volumes.iter_mut().find(|volume| Some(&volume.id) == id.as_ref()).unwrap();
    let avail = volume.avail.get().unwrap();
    volume.min_avail = avail - 100.0 * 1024.0 * 1024.0 * 1024.0;
    // 182.8 GiB in all, 61.5 of them written, 100 left above min_avail.
    let (left, _) = full.room_at_end(&full.jobs[0]).unwrap();
    assert!((left.mid / 1024.0_f64.powi(3) + 21.3).abs() < 0.01, "{left:?}");
    let page = page::render(&full, "/metrics");
    assert!(page.contains(r#"<dd class="bad">no: 21.3 GiB too little"#), "{page}");
    let status = longhaul::cli::status::render(&full, 100);
    assert!(status.contains("synth_25k: does NOT fit: 21.3 GiB too little on /data"), "{status}");
}

#[test]
fn a_job_that_is_the_only_one_is_named_in_the_title() {
    let mut one = snapshot::empty();
    one.jobs = vec![snapshot::running()];
    let page = page::render(&one, "/metrics");
    assert!(page.contains("<title>synth_25k running, 5 h 41 min left – Longhaul</title>"), "{page}");
    // Failed items need no more work: 8,412 done and 3 failed of 25,000.
    assert_eq!(one.jobs[0].settled_share(), Some(0.3366));
}
