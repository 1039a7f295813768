//! Random program source from a seed: well formed, well typed, and of about the requested size.

use ccplane_units::splitmix::SplitMix64;

/// Pseudo-random numbers from a seed.
pub struct Random(pub SplitMix64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }

    pub fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}

const NUMBERS: &[&str] = &[
    "Report.a",
    "Report.v",
    "control",
    "reset_me",
    "mine",
    "yours",
    "Ack.bytes_acked",
    "Ack.lost_pkts_sample",
    "Flow.rtt_sample_us",
    "Flow.mss",
    "Ack.now",
    "Cwnd",
    "Rate",
    "Ssthresh",
    "Micros",
];
const CONSTANTS: &[&str] = &["0", "1", "2", "3", "1000", "+infinity"];
const RATIOS: &[&str] = &["1.25", "0.5", "7/8", "1/3"];
const FLAGS: &[&str] = &["Report.f", "flag", "Flow.was_timeout", "true", "false"];
const TARGETS: &[&str] = &[
    "Report.a", "Report.v", "control", "reset_me", "mine", "yours", "Cwnd", "Rate", "Ssthresh",
    "Micros",
];
const WEIGHTS: &[&str] = &["7", "0.875", "1.0", "0", "1/3", "weight"];

/// Returns a program of about `size` operators, over a fixed set of variables.
pub fn program(random: &mut Random, size: usize) -> String {
    let def = "(def (Report (a 5) (volatile v 3) (f false)) (control 9) (volatile reset_me 4) \
               (flag true) (weight 3))";
    let mut text = format!(
        "{def}\n(when true (:= mine (+ mine 1)) (:= yours (max yours mine)) (fallthrough))\n"
    );
    let clauses = 1 + random.below(4);
    for _ in 0..clauses {
        let room = size / clauses;
        let guard = condition(random, room / 4);
        text.push_str(&format!("(when {guard}"));
        for _ in 0..1 + random.below(3) {
            text.push(' ');
            text.push_str(&statement(random, room / 3));
        }
        text.push_str(")\n");
    }
    text
}

fn statement(random: &mut Random, room: usize) -> String {
    let target = random.pick(TARGETS);
    match random.below(if room > 3 { 12 } else { 9 }) {
        0..3 => format!("(:= {target} {})", number(random, room)),
        3 => format!(
            "(:= {target} (if {} {}))",
            condition(random, room / 2),
            number(random, room / 2)
        ),
        4 => format!(
            "(:= {target} (!if {} {}))",
            condition(random, room / 2),
            number(random, room / 2)
        ),
        5 => format!(
            "(:= {target} (ewma {} {}))",
            random.pick(WEIGHTS),
            number(random, room)
        ),
        6 => format!(
            "(:= {} {})",
            random.pick(&["Report.f", "flag"]),
            condition(random, room)
        ),
        7 | 8 => random
            .pick(&["(report)", "(fallthrough)", "(reset)"])
            .to_owned(),
        9 => format!(
            "(if {} {})",
            condition(random, room / 2),
            statement(random, room / 2)
        ),
        10 => {
            let cond = condition(random, room / 3);
            format!(
                "(if {cond} {} {})",
                statement(random, room / 3),
                statement(random, room / 3)
            )
        }
        _ => format!(
            "(do {} {})",
            statement(random, room / 2),
            statement(random, room / 2)
        ),
    }
}

fn number(random: &mut Random, room: usize) -> String {
    if room == 0 {
        let from = if random.below(5) == 0 {
            CONSTANTS
        } else {
            NUMBERS
        };
        return random.pick(from).to_owned();
    }
    let room = room - 1;
    match random.below(8) {
        0..3 => chain(random, room, &["+", "*", "min", "max"], number),
        3 => format!(
            "({} {} {})",
            random.pick(&["-", "/"]),
            number(random, room / 2),
            number(random, room / 2)
        ),
        4 | 5 => format!(
            "(diff {} {})",
            number(random, room / 2),
            number(random, room / 2)
        ),
        // Includes a factor that is not constant: constants alone stay exact instead of being
        // rounded down.
        6 => format!(
            "(* {} {} {})",
            number(random, room),
            random.pick(NUMBERS),
            random.pick(RATIOS)
        ),
        _ => {
            let cond = condition(random, room / 3);
            format!(
                "(if {cond} {} {})",
                number(random, room / 3),
                number(random, room / 3)
            )
        }
    }
}

fn condition(random: &mut Random, room: usize) -> String {
    if room == 0 {
        return random.pick(FLAGS).to_owned();
    }
    let room = room - 1;
    match random.below(6) {
        0 => chain(random, room, &["&&", "||"], condition),
        1 => format!("(! {})", condition(random, room)),
        2 => format!(
            "({} Micros {})",
            random.pick(&[">", ">="]),
            number(random, room)
        ),
        _ => {
            let compare = random.pick(&[">", "<", ">=", "<=", "==", "!="]);
            format!(
                "({compare} {} {})",
                number(random, room / 2),
                number(random, room / 2)
            )
        }
    }
}

fn chain(
    random: &mut Random,
    room: usize,
    operators: &[&str],
    operand: fn(&mut Random, usize) -> String,
) -> String {
    let count = 2 + random.below(3);
    let mut text = format!("({}", random.pick(operators));
    for _ in 0..count {
        text.push(' ');
        text.push_str(&operand(random, room / count));
    }
    text.push(')');
    text
}
