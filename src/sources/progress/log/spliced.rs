//! A log read in pieces is the same as read whole, whatever two writers made of each other's frames.
//!
//! Separate from the other tests because the texts are drawn: frames of several bars, of which each is whole, cut off, or
//! runs on in the rest of another, with damaged digits here and there. What depends on where a piece ended shows here.

use proptest::prelude::*;

use super::*;

/// A few names, totals and places, so that the same bar comes again and again, and others that are nearly it.
fn frame() -> impl Strategy<Value = String> {
    let head = prop_oneof![
        6 => prop_oneof![Just("gen: "), Just("batch: "), Just(""), Just("worker 1: "), Just("worker 2: ")].boxed(),
        2 => prop_oneof![Just("loss 0.31: "), Just("loss 0.29: "), Just("[rank0]: gen: "), Just("[rank1]: gen: ")].boxed(),
    ];
    let total = prop_oneof![8 => Just(200_u32), 2 => Just(40), 1 => Just(400), 1 => Just(2)];
    let clock = prop_oneof![
        12 => (0_u32..60).prop_map(|seconds| format!("00:{seconds:02}")),
        1 => (0_u32..60).prop_map(|seconds| format!("1:00:{seconds:02}")),
        1 => (0_u32..100).prop_map(|seconds| format!("0:{seconds:02}")),
    ];
    let rest =
        prop_oneof![8 => Just("<00:02, 74.63it/s]"), 1 => Just("<?, ?it/s]"), 1 => Just("<00:02, 74.63it/s, x=1.5]")];
    let end = prop_oneof![8 => Just(""), 2 => Just("\x1b[A"), 1 => Just("\n"), 1 => Just("\x1b[A\n"), 1 => Just("\na line\n")];
    (head, 0_u32..=200, total, clock, rest, end, 0_u32..12).prop_map(|(head, done, total, clock, rest, end, kind)| {
        if kind == 0 {
            return format!("\r{head}{done}it [{clock}, 50.00it/s]{end}");
        }
        let done = done * total / 200;
        format!("\r{head}{:3}%|▍  | {done}/{total} [{clock}{rest}{end}", done * 100 / total)
    })
}

/// What became of a frame in the file.
#[derive(Debug, Clone)]
enum Fate {
    Whole,
    /// So much of it, and then the next one without an end in between.
    Torn(prop::sample::Index),
    /// Another byte in a place.
    Damaged(prop::sample::Index, u8),
}

fn fate() -> impl Strategy<Value = Fate> {
    let byte = prop::sample::select(b"0123456789:/ |%[]<,.\x1b\n\r\xff".to_vec());
    prop_oneof![
        10 => Just(Fate::Whole),
        2 => any::<prop::sample::Index>().prop_map(Fate::Torn),
        2 => (any::<prop::sample::Index>(), byte).prop_map(|(at, byte)| Fate::Damaged(at, byte)),
    ]
}

/// The frames as they stand in the file. They come in order of their clocks mostly, as those of bars that go on do.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop::collection::vec((frame(), fate(), any::<prop::sample::Index>()), 1..24);
    (frames, 0_u8..4).prop_map(|(mut frames, order)| {
        if order > 0 {
            frames.sort_by(|(one, ..), (other, ..)| clock(one).cmp(clock(other)));
        }
        let mut all = Vec::new();
        for (frame, fate, back) in frames {
            let mut bytes = frame.into_bytes();
            match fate {
                Fate::Whole => {}
                Fate::Torn(at) => {
                    bytes.truncate(at.index(bytes.len()));
                    // The next one goes on somewhere in its middle.
                    all.extend_from_slice(&bytes);
                    bytes.drain(..back.index(bytes.len().max(1)).min(bytes.len()));
                }
                Fate::Damaged(at, byte) => {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            all.extend_from_slice(&bytes);
        }
        all
    })
}

fn clock(frame: &str) -> &str {
    frame.rsplit_once('[').map_or("", |(_, clock)| clock.split(['<', ',']).next().unwrap_or_default())
}

/// All that is to be seen of a log.
fn seen(pieces: &[&[u8]]) -> (Reading, Vec<ListedBar>, Option<&'static str>, Option<f64>) {
    let mut text = Text::new(&LogFormat::Auto, 4096);
    pieces.iter().for_each(|piece| text.push(piece));
    text.settle();
    text.settle();
    (text.reading(), text.bars(), text.format(), text.total_grew_from())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 3, ..ProptestConfig::default() })]
    #[test]
    fn pieces_are_the_same_as_the_whole(text in text(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for cut in cuts {
            pieces.push(&text[from..cut]);
            from = cut;
        }
        pieces.push(&text[from..]);
        let whole = seen(&[&text]);
        prop_assert_eq!(&whole, &seen(&pieces), "{:?}", String::from_utf8_lossy(&text));
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        prop_assert_eq!(&whole, &seen(&bytes), "{:?}", String::from_utf8_lossy(&text));
    }
}
