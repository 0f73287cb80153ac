//! The pictures of docs/eta.md, from one simulated run that the estimator watches: `--pictures docs/pictures`.
//!
//! Nothing in them is drawn by hand, so they stay true when the estimator changes. Colours are readable on white and on
//! dark pages.

use std::fmt::Write as _;
use std::path::Path;

use crate::Mode;
use crate::run::{Random, simulate, standing};
use crate::spine::{EarlierRuns, Said, Spine};

/// A point of a line, from what is said at a share of the time.
type Read<'a> = &'a dyn Fn(f64, &Said) -> Option<(f64, f64)>;

const SLOTS: usize = 100;
const ITEMS: usize = 3000;
const POLL: f64 = 5.0;

/// A page of these units, with room for the numbers at the left and below.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 44.0;

const BLUE: &str = "#3b82f6";
const RED: &str = "#e05252";
const GREEN: &str = "#2f9e5b";

/// A chart of what lies in these ranges.
struct Chart {
    x: (f64, f64),
    y: (f64, f64),
    body: String,
    legend: f64,
}

impl Chart {
    fn new(x: (f64, f64), y: (f64, f64), below: &str, marks: impl Fn(f64) -> String) -> Self {
        let mut chart = Self { x, y, body: String::new(), legend: LEFT };
        for step in 0..=4 {
            let value = y.0 + (y.1 - y.0) * f64::from(step) / 4.0;
            let at = chart.at((x.0, value)).1;
            let _ = writeln!(
                chart.body,
                r#"<path class="grid" d="M{LEFT} {at:.1}H{}"/><text x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                marks(value)
            );
        }
        for step in 0..=5 {
            let value = x.0 + (x.1 - x.0) * f64::from(step) / 5.0;
            let at = chart.at((value, y.0)).0;
            let _ = writeln!(
                chart.body,
                r#"<text x="{at:.1}" y="{}" text-anchor="middle">{}</text>"#,
                HEIGHT - BOTTOM + 17.0,
                (100.0 * value).round()
            );
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        let _ = writeln!(chart.body, r#"<text x="{middle}" y="{}" text-anchor="middle">{below}</text>"#, HEIGHT - 8.0);
        chart
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let across = (x - self.x.0) / (self.x.1 - self.x.0);
        let up = ((y - self.y.0) / (self.y.1 - self.y.0)).clamp(0.0, 1.0);
        (LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM))
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for point in points {
            let (x, y) = self.at(point);
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        path
    }

    fn named(&mut self, name: &str, colour: &str, wide: bool) {
        let (x, width) = (self.legend, if wide { 10.0 } else { 2.5 });
        let _ = writeln!(
            self.body,
            r#"<path d="M{x} 20h18" stroke="{colour}" stroke-width="{width}" stroke-opacity="{}"/><text x="{}" y="24">{name}</text>"#,
            if wide { 0.3 } else { 1.0 },
            x + 24.0
        );
        self.legend += 44.0 + 6.4 * name.len() as f64;
    }

    fn line(&mut self, name: &str, colour: &str, points: &[(f64, f64)]) {
        let path = self.path(points.iter().copied());
        let _ = writeln!(self.body, r#"<path fill="none" stroke="{colour}" stroke-width="2.5" d="{path}"/>"#);
        self.named(name, colour, false);
    }

    fn band(&mut self, name: &str, colour: &str, low: &[(f64, f64)], high: &[(f64, f64)]) {
        let path = self.path(low.iter().copied().chain(high.iter().rev().copied()));
        let _ = writeln!(self.body, r#"<path fill="{colour}" fill-opacity="0.3" d="{path}Z"/>"#);
        self.named(name, colour, true);
    }

    fn save(self, folder: &Path, name: &str, title: &str) -> std::io::Result<()> {
        let text = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">
<title>{title}</title>
<style>text{{font:13px system-ui,sans-serif;fill:#7a828e}}.grid{{stroke:#7a828e;stroke-opacity:.35}}</style>
{}</svg>
"##,
            self.body
        );
        longhaul::state::save(folder, name, text.as_bytes())
    }
}

/// Draws all of them.
pub fn draw(folder: &Path) -> std::io::Result<()> {
    let mut random = Random(7);
    let length = |random: &mut Random| (600.0 * (0.95 * random.normal()).exp()).round().clamp(1.0, 16_384.0);
    let attempts: Vec<(f64, bool)> = (0..ITEMS).map(|_| (length(&mut random), false)).collect();
    let truth = attempts.iter().map(|attempt| attempt.0).sum::<f64>() / ITEMS as f64;
    let run = simulate(&attempts, SLOTS, 0.7 * SLOTS as f64);
    let end = run.last().map_or(0.0, |last| last.seconds);

    // What is said at each four-hundredth of the time, and how it stands then.
    let mut spine = Spine::new(&run, ITEMS, Mode::Full, POLL, &[], EarlierRuns::default());
    let (mut polled, mut said, mut finished, mut ratio, mut running, mut done) =
        (0.0, Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for step in 1..400 {
        let share = f64::from(step) / 400.0;
        let now = share * end;
        while polled <= now {
            spine.poll(polled);
            polled += POLL;
        }
        let is = standing(&run, now);
        said.extend(spine.said(now).map(|said| (share, said)));
        if is.done > 0 {
            finished.push((share, is.finished_tokens / is.done as f64));
            ratio.push((share, ITEMS as f64 * share / is.done as f64));
        }
        running.push((share, is.running as f64));
        done.push((share, 100.0 * is.done as f64 / ITEMS as f64));
    }
    running.push((1.0, 0.0));
    done.push((1.0, 100.0));

    let of = |read: Read<'_>, until: f64| -> Vec<(f64, f64)> {
        said.iter().filter(|(share, _)| *share <= until).filter_map(|(share, said)| read(*share, said)).collect()
    };
    let until = |points: &[(f64, f64)], share: f64| -> Vec<(f64, f64)> {
        points.iter().copied().filter(|point| point.0 <= share).collect()
    };

    let early = 0.25;
    let mut chart = Chart::new((0.0, early), (0.0, 1600.0), "% of the run's time", |value| format!("{value}"));
    let low = of(&|share, said| Some((share, said.per_item?.least())), early);
    let high = of(&|share, said| Some((share, said.per_item?.most())), early);
    chart.band("10 to 90 %", BLUE, &low, &high);
    chart.line("Longhaul", BLUE, &of(&|share, said| Some((share, said.per_item?.mid)), early));
    chart.line("average of the finished", RED, &until(&finished, early));
    chart.line("average of all, known at the end", GREEN, &[(0.0, truth), (early, truth)]);
    chart.save(folder, "finished-mean.svg", "Tokens per item: the finished answers are the short ones")?;

    let mut chart = Chart::new((0.0, 1.0), (0.5, 1.5), "% of the run's time", |value| format!("{value:.2}"));
    // The whole run as forecast, in whole runs as they were.
    let low = of(&|share, said| Some((share, share + said.left.least() / end)), 1.0);
    let high = of(&|share, said| Some((share, share + said.left.most() / end)), 1.0);
    chart.band("10 to 90 %", BLUE, &low, &high);
    chart.line("Longhaul", BLUE, &of(&|share, said| Some((share, share + said.left.mid / end)), 1.0));
    chart.line("elapsed / done", RED, &ratio);
    chart.line("the end as it was", GREEN, &[(0.0, 1.0), (1.0, 1.0)]);
    chart.save(folder, "forecast.svg", "When the end is expected, over a run")?;

    let late = |points: &[(f64, f64)]| points.iter().copied().filter(|point| point.0 >= 0.75).collect::<Vec<_>>();
    let mut chart = Chart::new((0.75, 1.0), (0.0, 100.0), "% of the run's time", |value| format!("{value}"));
    chart.line("requests that run", BLUE, &late(&running));
    chart.line("% of the items done: what a bar shows", RED, &late(&done));
    chart.save(folder, "drain.svg", "The drain: at the end a few long answers decide")
}
