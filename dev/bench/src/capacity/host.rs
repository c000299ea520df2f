//! Simulated hosts that stop or slow down the client or the server at random.

use std::fmt::{self, Display, Formatter};

use super::servers::Random;

/// Length of a disturbance in seconds.
const STOP_S: f64 = 0.2;

/// Speed of a server whose CPUs are slow, as a share of its usual speed.
const SLOW_SPEED: f64 = 0.7;

/// What a disturbance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    /// Neither the client nor the server runs.
    HostStop,
    /// The client does not run.
    ClientStop,
    /// The server does not run.
    Steal,
    /// The server's CPUs are slower.
    SlowCpus,
}

/// A host with disturbances of 200 ms at random times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedHost {
    disturbance: Disturbance,
    /// Share of the time with a disturbance.
    share: f64,
}

impl SimulatedHost {
    /// A host without disturbances.
    pub const QUIET: SimulatedHost = SimulatedHost {
        disturbance: Disturbance::HostStop,
        share: 0.0,
    };

    /// Returns the disturbed hosts of the table.
    pub fn disturbed() -> impl Iterator<Item = Self> {
        [
            (Disturbance::HostStop, 0.05),
            (Disturbance::HostStop, 0.1),
            (Disturbance::HostStop, 0.2),
            (Disturbance::HostStop, 0.4),
            (Disturbance::ClientStop, 0.1),
            (Disturbance::Steal, 0.1),
            (Disturbance::SlowCpus, 0.2),
        ]
        .into_iter()
        .map(|(disturbance, share)| SimulatedHost { disturbance, share })
    }

    /// Returns the disturbances during a load of `length_s` seconds and its drain.
    pub fn stops(self, length_s: f64, random: &mut Random) -> Stops {
        let mut stops = Stops {
            disturbance: Some(self.disturbance),
            periods: Vec::new(),
        };
        if self.share == 0.0 {
            return Stops::default();
        }
        let mean_gap_s = STOP_S * (1.0 - self.share) / self.share;
        let mut from_s = mean_gap_s * random.exponential();
        while from_s < 2.0 * length_s + 1.0 {
            stops.periods.push((from_s, from_s + STOP_S));
            from_s += STOP_S + mean_gap_s * random.exponential();
        }
        stops
    }
}

impl Display for SimulatedHost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = match self.disturbance {
            Disturbance::HostStop => "host stops",
            Disturbance::ClientStop => "client stops",
            Disturbance::Steal => "steal",
            Disturbance::SlowCpus => "slow CPUs",
        };
        write!(f, "{what} {:.0} %", 100.0 * self.share)
    }
}

/// The disturbances of a load.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    disturbance: Option<Disturbance>,
    /// Start and end of each disturbance in seconds, in order.
    periods: Vec<(f64, f64)>,
}

impl Stops {
    /// Returns the time, in seconds, at which the client runs again.
    pub fn client_resumes_s(&self, at_s: f64) -> f64 {
        match self.disturbance {
            Some(Disturbance::HostStop | Disturbance::ClientStop) => {
                let mut periods = self.periods.iter();
                let stop = periods.find(|of| (of.0..of.1).contains(&at_s));
                stop.map_or(at_s, |of| of.1)
            }
            _ => at_s,
        }
    }

    /// Returns the speed of the server during a disturbance.
    fn speed(&self) -> f64 {
        match self.disturbance {
            Some(Disturbance::HostStop | Disturbance::Steal) => 0.0,
            Some(Disturbance::SlowCpus) => SLOW_SPEED,
            Some(Disturbance::ClientStop) | None => 1.0,
        }
    }

    /// Returns the time for which the server has run at full speed until `at_s`, in seconds.
    pub fn server_time_s(&self, at_s: f64) -> f64 {
        at_s - (1.0 - self.speed()) * self.covered_s(0.0, at_s)
    }

    /// Returns the time at which the server has run at full speed for `server_s` seconds.
    pub fn time_s(&self, server_s: f64) -> f64 {
        let mut left_s = server_s;
        let mut at_s = 0.0;
        for (from_s, to_s) in &self.periods {
            if at_s + left_s <= *from_s {
                break;
            }
            left_s -= from_s - at_s;
            let ran_s = self.speed() * (to_s - from_s);
            if left_s <= ran_s && self.speed() > 0.0 {
                return from_s + left_s / self.speed();
            }
            left_s -= ran_s;
            at_s = *to_s;
        }
        at_s + left_s
    }

    /// Returns the share of a load in which the server's CPUs were slow; `None` if they never are.
    pub fn slow_share(&self, length_s: f64) -> Option<f64> {
        let is_slow = self.disturbance == Some(Disturbance::SlowCpus);
        is_slow.then(|| self.covered_s(0.0, length_s) / length_s)
    }

    /// Returns the total length of the disturbances between two times, in seconds.
    fn covered_s(&self, from_s: f64, to_s: f64) -> f64 {
        let overlap = |of: &(f64, f64)| (of.1.min(to_s) - of.0.max(from_s)).max(0.0);
        self.periods.iter().map(overlap).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_time_and_time_are_inverse() {
        for host in SimulatedHost::disturbed() {
            let stops = host.stops(5.0, &mut Random::new(3));
            for step in 0..500 {
                let server_s = 0.01 * f64::from(step);
                let again_s = stops.server_time_s(stops.time_s(server_s));
                assert!(
                    (again_s - server_s).abs() < 1e-9,
                    "{host}: {server_s} {again_s}"
                );
            }
        }
    }

    #[test]
    fn disturbances_have_their_share_of_the_time() {
        for host in SimulatedHost::disturbed() {
            let stops = host.stops(2_000.0, &mut Random::new(5));
            let share = stops.covered_s(0.0, 2_000.0) / 2_000.0;
            assert!((share / host.share - 1.0).abs() < 0.1, "{host}: {share}");
        }
    }
}
