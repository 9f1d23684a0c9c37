//! Policies that decide at fixed times only.

use crate::Round;

/// Rounds of one length, from the start of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    seconds: f64,
    decided: Option<f64>,
}

impl Rounds {
    pub(super) const fn new(seconds: f64) -> Self {
        Self { seconds, decided: None }
    }

    /// Whether a round begins now. If not, and something has changed since the last one, it asks for the next beginning.
    pub(super) fn begins(&mut self, round: &mut Round<'_, '_>) -> bool {
        let now = round.now();
        // Give or take the rounding of a division.
        let beginning = (now / self.seconds).round() * self.seconds;
        let is_beginning = (now - beginning).abs() <= 1e-9 * (1.0 + now);
        if is_beginning && self.decided.is_none_or(|last| now > last) {
            self.decided = Some(now);
            return true;
        }
        self.ask_again(round);
        false
    }

    /// Asks for the next beginning.
    pub(super) fn ask_again(self, round: &mut Round<'_, '_>) {
        let now = round.now();
        let mut next = ((now / self.seconds).floor() + 1.0) * self.seconds;
        if next - now <= 1e-9 * (1.0 + now) {
            next += self.seconds;
        }
        round.wake_at(next);
    }
}
