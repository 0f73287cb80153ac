//! Gaps between looks: engines that are late, down, unwatched or others than before.
//!
//! Apart from [`super::Eta`], which decides what a forecast is made of.

use std::time::Duration;

use super::Eta;
use super::flight::Flight;
use super::lag::Lag;

impl Eta {
    /// The engines have not answered in time: the next look tells what moved meanwhile, and until then nothing is known to.
    pub const fn engine_late(&mut self) {
        self.standstill.unanswered();
        self.unanswered = true;
    }

    /// The engines did not answer, or nobody asked them: the time until they do again is no time in which anything is known to move.
    pub fn engine_down(&mut self) {
        self.throughput.pause();
        self.standstill.unanswered();
        self.looked_at = None;
    }

    /// Seconds in which the engines stood still or did not answer, once they were seen to move.
    pub fn stood(&self) -> Option<f64> {
        self.standstill.seconds()
    }

    /// Nobody looked for so long: what came meanwhile is no pace, and the silence is not the job's.
    ///
    /// Which requests ended in the gap, and which began, nobody saw, so those in flight are accounted for anew from the
    /// next scrape on. The lengths of finished answers and the engine's speed hold as they were measured.
    pub fn unwatched(&mut self, gap: Duration) {
        self.plain.unwatched(gap);
        self.items.unwatched(gap);
        self.follow_anew();
        self.made = None;
        self.changed = true;
    }

    /// Other engines work for the job: what those had counted that came, or that are gone, is nothing that happened now.
    pub fn engines_changed(&mut self) {
        self.share.skip();
        self.standstill.begin_anew();
        self.scraped_at = None;
        self.follow_anew();
    }

    /// Those in flight are accounted for from the next scrape on.
    fn follow_anew(&mut self) {
        self.followed |= self.flight.last().is_some();
        self.flight = Flight::default();
        if let Some(spare) = &mut self.spare {
            spare.0 = Flight::default();
        }
        self.before = None;
        self.first_look = None;
        (self.told_since, self.lag) = (0.0, Lag::default());
        self.finished_at.clear();
        self.engine_down();
    }
}
