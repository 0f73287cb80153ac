//! Which bar is the job: nested, in parallel, in turn, of several ranks, renamed.

use super::*;
use crate::sources::progress::formats::tqdm;

fn job(frames: &[(&str, usize)]) -> Job {
    let mut bars = Bars::default();
    for (frame, depth) in frames {
        bars.record(&tqdm::parse(frame).unwrap(), *depth, "");
    }
    bars.job().unwrap()
}

#[test]
fn of_nested_bars_the_outer_one() {
    let job = job(&[
        ("epoch:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0),
        ("batch: 100%|█| 40/40 [00:20<00:00, 2.00it/s]", 1),
        ("batch:   2%|█| 1/40 [00:00<00:19, 2.00it/s]", 1),
        ("eval of 3:   2%|█| 1/9 [00:00<00:19, 2.00it/s]", 1),
    ]);
    assert_eq!((job.numbers.done.unwrap(), job.numbers.total), (2.0, Some(5.0)));
}

#[test]
fn of_parallel_bars_the_sum() {
    let job = job(&[
        ("worker 0:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0),
        ("worker 1:  40%|█| 4/5 [00:41<01:00, 10.00s/it]", 0),
        ("worker 0:  40%|█| 3/5 [00:42<01:00, 20.00s/it]", 0),
    ]);
    assert_eq!((job.numbers.done.unwrap(), job.numbers.total, job.numbers.elapsed), (7.0, Some(10.0), Some(42.0)));
    assert_eq!(job.numbers.finished, Some(false));
}

#[test]
fn bars_of_one_name_below_one_another_are_added() {
    let job = job(&[
        ("work:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0),
        ("work:  20%|█| 2/10 [00:40<01:00, 20.00s/it]", 1),
        ("work:  60%|█| 3/5 [00:60<01:00, 20.00s/it]", 0),
        // Below one another in the other order: the upper one closed, and this one came up.
        ("work:  30%|█| 3/10 [00:70<01:00, 20.00s/it]", 0),
    ]);
    assert_eq!((job.numbers.done, job.numbers.total), (Some(6.0), Some(15.0)));
}

#[test]
fn of_bars_one_after_the_other_the_last() {
    let job = job(&[
        ("Epoch 1: 100%|█| 5/5 [00:40<00:00, 20.00s/it]", 0),
        ("Epoch 2:   0%|█| 0/5 [00:00<?, ?it/s]", 0),
        ("Epoch 2:  20%|█| 1/5 [00:20<01:00, 20.00s/it]", 0),
    ]);
    assert_eq!((job.numbers.done.unwrap(), job.numbers.total), (1.0, Some(5.0)));
}

#[test]
fn a_bar_that_goes_back_with_its_clock_is_a_new_run() {
    let mut bars = Bars::default();
    bars.record(&tqdm::parse("a: 50%|█| 2/4 [00:40<00:40, 20.00s/it]").unwrap(), 0, "");
    let old = bars.run().unwrap();
    assert_eq!(old.1, Some((2.0, 40.0)));
    bars.record(&tqdm::parse("a: 25%|█| 1/4 [00:00<?, ?it/s]").unwrap(), 0, "");
    let new = bars.run().unwrap();
    assert_ne!(old.0, new.0);
    assert_eq!(new.1, Some((1.0, 0.0)));
}

#[test]
fn descriptions_that_count_do_not_fill_memory() {
    let mut bars = Bars::default();
    for step in 0..10_000 {
        let frame = format!("step {step}: 50%|█| 2/{} [00:40<00:40, 20.00s/it]", step + 3);
        bars.record(&tqdm::parse(&frame).unwrap(), 0, "");
    }
    assert_eq!(bars.seen.len(), MAX_BARS);
    assert_eq!(bars.job().unwrap().numbers.done, Some(2.0));
}

/// tqdm's `set_description` with a loss or the name of a file: each frame was a bar of its own.
#[test]
fn a_description_that_changes_is_one_bar_renamed() {
    let read = |frames: &[(&str, usize)]| {
        let mut bars = Bars::default();
        let runs: Vec<_> = frames
            .iter()
            .map(|(frame, depth)| {
                bars.record(&tqdm::parse(frame).unwrap(), *depth, "");
                bars.run().unwrap().0
            })
            .collect();
        (bars, runs.windows(2).filter(|pair| pair[0] != pair[1]).count())
    };
    let (bars, changes) = read(&[
        ("  0%|█| 0/100 [00:00<?, ?it/s]", 0),
        ("loss 0.9:   0%|█| 0/100 [00:00<?, ?it/s]", 0),
        ("loss 0.9:   1%|█| 1/100 [00:01<01:39, 1.00it/s]", 0),
        ("loss 0.8:   1%|█| 1/100 [00:01<01:39, 1.00it/s]", 0),
        ("loss 0.9:   3%|█| 3/100 [00:03<01:37, 1.00it/s]", 0),
        ("loss 1e-05: 100%|█| 100/100 [01:40<00:00, 1.00it/s]", 0),
        ("loss 1e-06: 100%|█| 100/100 [01:40<00:00, 1.00it/s]", 0),
    ]);
    assert_eq!((changes, bars.list().len()), (0, 1));
    assert_eq!(bars.run().unwrap().1, Some((0.0, 0.0)));
    assert_eq!(bars.list()[0].description, "loss 1e-06");
    // One that begins again, as in the next epoch, is the same again.
    let (bars, changes) = read(&[
        ("loss 0.9:   1%|█| 1/100 [00:01<01:39, 1.00it/s]", 0),
        ("loss 0.8: 100%|█| 100/100 [01:40<00:00, 1.00it/s]", 0),
        ("loss 0.7:   0%|█| 0/100 [00:00<?, ?it/s]", 0),
        ("loss 0.6:   1%|█| 1/100 [00:01<01:39, 1.00it/s]", 0),
    ]);
    assert_eq!((changes, bars.list().len()), (1, 1));
    assert_eq!(bars.run().unwrap().1, Some((0.0, 0.0)));
    // Whatever the words are; and within another bar, whose total is the same.
    let (bars, changes) = read(&[
        ("epochs:  40%|█| 2/4 [00:40<00:40, 20.00s/it]", 0),
        ("a.txt:   0%|█| 0/4 [00:00<?, ?it/s]", 1),
        ("b.txt:  25%|█| 1/4 [00:05<00:15, 5.00s/it]", 1),
        ("c.txt:  75%|█| 3/4 [00:15<00:05, 5.00s/it]", 1),
    ]);
    assert_eq!((changes, bars.list().len()), (0, 2));
    assert_eq!(bars.job().unwrap().numbers.done, Some(2.0));
    // A bar that begins, and one that follows another, are no new names.
    let (bars, _) = read(&[
        ("train 1:   0%|█| 0/4 [00:00<?, ?it/s]", 0),
        ("train 2:   0%|█| 0/4 [00:00<?, ?it/s]", 0),
        ("train 1:  50%|█| 2/4 [00:02<00:02, 1.00it/s]", 0),
        ("train 2:  50%|█| 2/4 [00:02<00:02, 1.00it/s]", 0),
    ]);
    assert_eq!(bars.job().unwrap().numbers.done, Some(4.0));
    let (bars, changes) =
        read(&[("load: 100%|█| 4/4 [00:04<00:00, 1.00it/s]", 0), ("save: 100%|█| 4/4 [00:05<00:00, 1.00it/s]", 0)]);
    assert_eq!((changes, bars.list().len()), (1, 2));
    // Two whose first frames are lost are one until a number shows that they are not.
    let (bars, _) = read(&[
        ("a:  50%|█| 2/4 [00:02<00:02, 1.00it/s]", 0),
        ("b:  50%|█| 2/4 [00:02<00:02, 1.00it/s]", 0),
        ("b:  75%|█| 3/4 [00:03<00:01, 1.00it/s]", 0),
        ("a:  50%|█| 2/4 [00:04<00:02, 1.00it/s]", 0),
        ("b: 100%|█| 4/4 [00:04<00:00, 1.00it/s]", 0),
        ("a:  75%|█| 3/4 [00:05<00:01, 1.00it/s]", 0),
    ]);
    let done: Vec<_> = bars.list().into_iter().map(|bar| (bar.description, bar.done)).collect();
    assert_eq!(done, [("b".to_owned(), Some(4.0)), ("a".to_owned(), Some(3.0))]);
}

fn ranks(lines: &[(&str, f64, f64)]) -> Bars {
    let mut bars = Bars::default();
    for (rank, done, elapsed) in lines {
        let bar = Bar {
            format: "progress",
            done: Some(*done),
            total: Some(100.0),
            elapsed: Some(*elapsed),
            ..Bar::default()
        };
        bars.record(&bar, 0, rank);
    }
    bars
}

#[test]
fn ranks_that_count_apart_are_added_and_ranks_that_share_a_count_are_not() {
    let apart = ranks(&[("2", 10.0, 5.0), ("0", 10.0, 6.0), ("1", 10.0, 7.0), ("0", 20.0, 12.0)]);
    assert_eq!(apart.job().unwrap().numbers.done, Some(40.0));
    assert_eq!(apart.job().unwrap().numbers.total, Some(300.0));
    let names: Vec<String> = apart.list().into_iter().map(|bar| bar.description).collect();
    assert_eq!(names, ["rank 2", "rank 0", "rank 1"]);
    let shared = ranks(&[("TP0", 10.0, 5.0), ("TP1", 20.0, 9.0), ("TP0", 30.0, 15.0), ("TP1", 30.0, 15.0)]);
    assert_eq!(shared.job().unwrap().numbers.done, Some(30.0));
    assert_eq!(shared.list().len(), 1);
}

#[test]
fn a_configured_name_chooses() {
    let mut bars = Bars::default();
    bars.want("batch:");
    for (frame, depth) in
        [("epoch:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0), ("batch: 3%|█| 1/40 [00:00<00:19, 2.00it/s]", 1)]
    {
        bars.record(&tqdm::parse(frame).unwrap(), depth, "");
    }
    assert_eq!(bars.job().unwrap().numbers.total, Some(40.0));
    bars.want("load");
    assert_eq!(bars.job(), None);
}
