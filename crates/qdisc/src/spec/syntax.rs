//! Parser and formatter of queue specifications.

use std::fmt::{self, Display};
use std::str::FromStr;

use ccplane_units::{Bytes, Duration, Packets, Probability, Rate};

use super::{QueueSpec, QueueSpecError, RedSpec, Size};
use crate::setting::{Setting, decimal, did_you_mean, excerpt, number, thousandths};
use crate::{CodelConfig, DualPi2Config, FqCodelConfig, RcpConfig, SfqConfig};

/// Syntax of a kind of queue.
struct QueueSyntax {
    name: &'static str,
    /// Valid specifications for error messages.
    hint: &'static str,
    /// Parser of the settings, the text after the name and a colon.
    parse: fn(&str) -> Result<QueueSpec, String>,
    /// The entries of [`QueueSpec::examples`].
    examples: &'static [&'static str],
}

/// All kinds of queues.
const QUEUES: &[QueueSyntax] = &[
    QueueSyntax {
        name: "droptail",
        hint: "`droptail:1bdp`, `droptail:160p`, `droptail:240kB` or `droptail:inf`",
        parse: parse_droptail,
        examples: &[
            "droptail:10p",
            "droptail:9000B",
            "droptail:1bdp",
            "droptail:0.625bdp",
            "droptail:inf",
        ],
    },
    QueueSyntax {
        name: "prio",
        hint: "`prio:3:1bdp` or `prio:3:shared:1bdp`",
        parse: parse_prio,
        examples: &[
            "prio:3:4p",
            "prio:4:6000B",
            "prio:4:shared:9p",
            "prio:5:shared:12000B",
        ],
    },
    QueueSyntax {
        name: "ecn",
        hint: "`ecn:65p` or `ecn:65p:1bdp`",
        parse: parse_ecn,
        examples: &["ecn:2p:9p", "ecn:4000B"],
    },
    QueueSyntax {
        name: "sfq",
        hint: "`sfq`, `sfq:limit=1000p` or `sfq:limit=1.875MB:depth=1000`",
        parse: parse_sfq,
        examples: &[
            "sfq",
            "sfq:limit=9p:depth=5:flows=3",
            "sfq:limit=12p:divisor=2:quantum=300",
            "sfq:limit=9000B:depth=7:flows=4",
        ],
    },
    QueueSyntax {
        name: "codel",
        hint: "`codel` or `codel:target=5ms:interval=100ms:limit=1000p:ecn`",
        parse: parse_codel,
        examples: &[
            "codel",
            "codel:target=1ms:interval=5ms:limit=30p",
            "codel:target=20ms:interval=1ms:limit=30p",
            "codel:target=1ms:interval=5ms:ecn",
        ],
    },
    QueueSyntax {
        name: "fq_codel",
        hint: "`fq_codel` or `fq_codel:target=5ms:interval=100ms:limit=10240p:flows=1024:noecn`",
        parse: parse_fq_codel,
        examples: &[
            "fq_codel",
            "fq_codel:target=1ms:interval=5ms:limit=20p:flows=4",
            "fq_codel:noecn:limit=9000B:flows=2:quantum=300",
        ],
    },
    QueueSyntax {
        name: "red",
        hint: "`red:min=30p:max=90p` or `red:min=30p:max=90p:limit=300p:probability=2%:ecn`",
        parse: parse_red,
        examples: &[
            "red:min=0.5bdp:max=1bdp",
            "red:min=2p:max=6p:limit=15p:probability=30%:weight=20%",
            "red:min=2000B:max=6000B:weight=50%:ecn",
        ],
    },
    QueueSyntax {
        name: "dualpi2",
        hint: "`dualpi2` or `dualpi2:target=15ms:limit=10000p`",
        parse: parse_dualpi2,
        examples: &[
            "dualpi2",
            "dualpi2:target=1ms:tupdate=1ms:alpha=60:beta=900",
            "dualpi2:limit=9p:step_thresh=1us:range=2ms:classic_protection=50",
            "dualpi2:limit=9p:coupling_factor=3:step_thresh=1us:range=2ms:classic_protection=50",
        ],
    },
    QueueSyntax {
        name: "tbf",
        hint: "`tbf:rate=96mbit:burst=32kB:limit=1bdp`",
        parse: parse_tbf,
        examples: &["tbf:rate=3mbit:burst=3kB:limit=9p"],
    },
    QueueSyntax {
        name: "policer",
        hint: "`policer:rate=50mbit:burst=250kB`",
        parse: parse_policer,
        examples: &[
            "policer:rate=3mbit:burst=3kB",
            "policer:rate=3mbit:burst=3kB:limit=9p",
        ],
    },
    QueueSyntax {
        name: "rcp",
        hint: "`rcp` or `rcp:limit=1bdp:alpha=0.4:beta=0.4`",
        parse: parse_rcp,
        examples: &[
            "rcp",
            "rcp:limit=9000B",
            "rcp:limit=9000B:alpha=0.5:beta=1:init=100",
        ],
    },
];

/// Default limits as in Linux; for RCP, as in its authors' simulations.
const SFQ_LIMIT_DEFAULT: Size = Size::Packets(127);
const CODEL_LIMIT_DEFAULT: Size = Size::Packets(1_000);
const FQ_CODEL_LIMIT_DEFAULT: Size = Size::Packets(10_240);
const DUALPI2_LIMIT_DEFAULT: Size = Size::Packets(10_000);
const POLICER_LIMIT_DEFAULT: Size = Size::Packets(1_000);
const RCP_LIMIT_DEFAULT: Size = Size::MilliBdp(1_000);

/// 2 % and 0.002.
const RED_PROBABILITY_DEFAULT: Probability = Probability::from_parts((1 << 32) / 50);
const RED_WEIGHT_DEFAULT: Probability = Probability::from_parts((1 << 32) / 500);

impl FromStr for QueueSpec {
    type Err = QueueSpecError;

    fn from_str(text: &str) -> Result<QueueSpec, QueueSpecError> {
        parse_queue(text).map_err(|reason| QueueSpecError::Syntax {
            text: excerpt(text),
            reason,
        })
    }
}

impl QueueSpec {
    /// Returns specifications of every kind of queue with each of its settings, for tests over all
    /// queues. All are valid on a link of at least 8 Mbit/s with packets of at most 1500 bytes on a
    /// path of at least 10 ms. The limits are small, so that few packets reach every code path. The
    /// texts are in the form that [`Display`] prints.
    pub fn examples() -> impl Iterator<Item = &'static str> {
        QUEUES.iter().flat_map(|queue| queue.examples).copied()
    }

    /// Returns the names of the kinds of queues that suit a link whose rate changes continuously
    /// (see [`has_fixed_rate`](Self::has_fixed_rate)).
    pub fn variable_rate_names() -> impl Iterator<Item = &'static str> {
        QUEUES
            .iter()
            .filter(|queue| {
                let example = queue.examples[0].parse::<QueueSpec>();
                example.is_ok_and(|example| !example.has_fixed_rate())
            })
            .map(|queue| queue.name)
    }
}

fn parse_queue(text: &str) -> Result<QueueSpec, String> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let Some(queue) = QUEUES.iter().find(|queue| queue.name == name) else {
        let names: Vec<_> = QUEUES.iter().map(|queue| queue.name).collect();
        return Err(format!(
            "unknown queue `{}`{}",
            excerpt(name),
            did_you_mean(name, &names)
        ));
    };
    (queue.parse)(settings).map_err(|reason| format!("{reason}; write {}", queue.hint))
}

fn parse_droptail(settings: &str) -> Result<QueueSpec, String> {
    parse_size(settings).map(QueueSpec::DropTail)
}

fn parse_prio(settings: &str) -> Result<QueueSpec, String> {
    let parts: Vec<&str> = settings.split(':').collect();
    let (bands, shared, limit) = match *parts {
        [bands, limit] => (bands, false, limit),
        [bands, "shared", limit] => (bands, true, limit),
        _ => return Err("its settings are invalid".into()),
    };
    Ok(QueueSpec::Prio {
        bands: number(bands, 1, 255)? as u8,
        shared,
        limit: parse_size(limit)?,
    })
}

fn parse_ecn(settings: &str) -> Result<QueueSpec, String> {
    let (threshold, limit) = match settings.split_once(':') {
        Some((threshold, limit)) => (threshold, parse_size(limit)?),
        None => (settings, Size::Unlimited),
    };
    Ok(QueueSpec::Ecn {
        threshold: parse_size(threshold)?,
        limit,
    })
}

fn parse_sfq(settings: &str) -> Result<QueueSpec, String> {
    let (mut config, mut limit) = (SfqConfig::DEFAULT, SFQ_LIMIT_DEFAULT);
    for setting in Setting::parse_all(settings)? {
        match setting.name {
            "limit" => limit = setting.parse_with(parse_sfq_limit)?,
            "depth" => config.depth = setting.parse_with(|text| number(text, 1, 65_535))? as u32,
            "flows" => config.flows = setting.parse_with(|text| number(text, 1, 65_535))? as u32,
            "divisor" => {
                config.divisor = setting.parse_with(|text| number(text, 1, 65_536))? as u32
            }
            "quantum" => config.quantum = Some(setting.parse_with(parse_quantum)?),
            _ => {
                return Err(setting
                    .unknown_setting_error(&["limit", "depth", "flows", "divisor", "quantum"]));
            }
        }
    }
    Ok(QueueSpec::Sfq { config, limit })
}

/// Parses a size or a bare number of packets, the unit of `tc`'s `sfq limit`.
fn parse_sfq_limit(text: &str) -> Result<Size, String> {
    match number(text, 1, u64::from(u32::MAX)) {
        Ok(packets) => Ok(Size::Packets(packets)),
        Err(_) => parse_size(text),
    }
}

fn parse_codel(settings: &str) -> Result<QueueSpec, String> {
    let (mut config, mut limit) = (CodelConfig::DEFAULT, CODEL_LIMIT_DEFAULT);
    for setting in Setting::parse_all(settings)? {
        match setting.name {
            "limit" => limit = setting.parse_with(parse_size)?,
            _ if apply_codel_setting(&mut config, &setting)? => {}
            _ => {
                return Err(
                    setting.unknown_setting_error(&["target", "interval", "limit", "ecn", "noecn"])
                );
            }
        }
    }
    check_codel(&config)?;
    Ok(QueueSpec::Codel { config, limit })
}

fn parse_fq_codel(settings: &str) -> Result<QueueSpec, String> {
    let (mut config, mut limit) = (FqCodelConfig::DEFAULT, FQ_CODEL_LIMIT_DEFAULT);
    for setting in Setting::parse_all(settings)? {
        match setting.name {
            "limit" => limit = setting.parse_with(parse_size)?,
            "flows" => config.flows = setting.parse_with(|text| number(text, 1, 65_536))? as u32,
            "quantum" => config.quantum = setting.parse_with(parse_quantum)?,
            _ if apply_codel_setting(&mut config.codel, &setting)? => {}
            _ => {
                let names = [
                    "target", "interval", "limit", "flows", "quantum", "ecn", "noecn",
                ];
                return Err(setting.unknown_setting_error(&names));
            }
        }
    }
    check_codel(&config.codel)?;
    Ok(QueueSpec::FqCodel { config, limit })
}

/// Applies a CoDel setting; returns false if it is not one.
fn apply_codel_setting(config: &mut CodelConfig, setting: &Setting) -> Result<bool, String> {
    match setting.name {
        "target" => config.target = setting.value()?,
        "interval" => config.interval = setting.value()?,
        "ecn" | "noecn" => {
            setting.expect_flag()?;
            config.ecn = setting.name == "ecn";
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Rejects zero times. An interval below the target is valid and in use (Bundler's bottleneck: 5 ms
/// and 100 ms): CoDel then starts to drop soon after the sojourn time exceeds the target.
fn check_codel(config: &CodelConfig) -> Result<(), String> {
    let CodelConfig {
        target, interval, ..
    } = config;
    if *target == Duration::ZERO || *interval == Duration::ZERO {
        return Err(format!(
            "the target ({target}) and the interval ({interval}) must be above zero"
        ));
    }
    Ok(())
}

fn parse_red(settings: &str) -> Result<QueueSpec, String> {
    let (mut min, mut max) = (None, None);
    let mut spec = RedSpec {
        min: Size::Unlimited,
        max: Size::Unlimited,
        limit: Size::Unlimited,
        probability: RED_PROBABILITY_DEFAULT,
        weight: RED_WEIGHT_DEFAULT,
        ecn: false,
    };
    for setting in Setting::parse_all(settings)? {
        match setting.name {
            "min" => min = Some(setting.parse_with(parse_size)?),
            "max" => max = Some(setting.parse_with(parse_size)?),
            "limit" => spec.limit = setting.parse_with(parse_size)?,
            "probability" => spec.probability = setting.value()?,
            "weight" => spec.weight = setting.value()?,
            "ecn" | "noecn" => {
                setting.expect_flag()?;
                spec.ecn = setting.name == "ecn";
            }
            _ => {
                let names = [
                    "min",
                    "max",
                    "limit",
                    "probability",
                    "weight",
                    "ecn",
                    "noecn",
                ];
                return Err(setting.unknown_setting_error(&names));
            }
        }
    }
    let (Some(min), Some(max)) = (min, max) else {
        return Err("it needs min and max".into());
    };
    if spec.probability == Probability::NEVER || spec.weight == Probability::NEVER {
        return Err("neither probability nor weight may be zero".into());
    }
    Ok(QueueSpec::Red(RedSpec { min, max, ..spec }))
}

fn parse_dualpi2(settings: &str) -> Result<QueueSpec, String> {
    let (mut config, mut limit) = (DualPi2Config::DEFAULT, DUALPI2_LIMIT_DEFAULT);
    for setting in Setting::parse_all(settings)? {
        match setting.name {
            "limit" => limit = setting.parse_with(parse_size)?,
            "target" => config.target = setting.parse_with(parse_positive_duration)?,
            "tupdate" => config.tupdate = setting.parse_with(parse_positive_duration)?,
            "alpha" => config.alpha = setting.parse_with(parse_gain)?,
            "beta" => config.beta = setting.parse_with(parse_gain)?,
            "coupling_factor" => {
                config.coupling_factor = setting.parse_with(|text| number(text, 1, 255))?
            }
            "step_thresh" => config.step_thresh = setting.parse_with(parse_positive_duration)?,
            "range" => config.range = setting.value()?,
            "classic_protection" => {
                config.classic_protection = setting.parse_with(|text| number(text, 0, 100))?
            }
            _ => {
                return Err(setting.unknown_setting_error(&[
                    "limit",
                    "target",
                    "tupdate",
                    "alpha",
                    "beta",
                    "coupling_factor",
                    "step_thresh",
                    "range",
                    "classic_protection",
                ]));
            }
        }
    }
    if config.tupdate < Duration::from_micros(1) {
        return Err(format!(
            "tupdate is {}, but must be at least 1us",
            config.tupdate
        ));
    }
    Ok(QueueSpec::DualPi2 { config, limit })
}

fn parse_tbf(settings: &str) -> Result<QueueSpec, String> {
    match parse_token_bucket(settings)? {
        (Some(rate), Some(burst), Some(limit)) => Ok(QueueSpec::Tbf { rate, burst, limit }),
        _ => Err("it needs rate, burst and limit".into()),
    }
}

fn parse_policer(settings: &str) -> Result<QueueSpec, String> {
    match parse_token_bucket(settings)? {
        (Some(rate), Some(burst), limit) => {
            let limit = limit.unwrap_or(POLICER_LIMIT_DEFAULT);
            Ok(QueueSpec::Policer { rate, burst, limit })
        }
        _ => Err("it needs rate and burst".into()),
    }
}

type TokenBucketSettings = (Option<Rate>, Option<Bytes>, Option<Size>);

fn parse_token_bucket(settings: &str) -> Result<TokenBucketSettings, String> {
    let (mut rate, mut burst, mut limit) = (None, None, None);
    for setting in Setting::parse_all(settings)? {
        match setting.name {
            "rate" => rate = Some(setting.value()?),
            "burst" => burst = Some(setting.value()?),
            "limit" => limit = Some(setting.parse_with(parse_size)?),
            _ => return Err(setting.unknown_setting_error(&["rate", "burst", "limit"])),
        }
    }
    Ok((rate, burst, limit))
}

fn parse_rcp(settings: &str) -> Result<QueueSpec, String> {
    let (mut config, mut limit) = (RcpConfig::DEFAULT, RCP_LIMIT_DEFAULT);
    for setting in Setting::parse_all(settings)? {
        match setting.name {
            "limit" => limit = setting.parse_with(parse_size)?,
            "alpha" => config.alpha = setting.parse_with(parse_gain)?,
            "beta" => config.beta = setting.parse_with(parse_gain)?,
            "init" => config.init = setting.parse_with(|text| number(text, 1, 100))?,
            _ => return Err(setting.unknown_setting_error(&["limit", "alpha", "beta", "init"])),
        }
    }
    Ok(QueueSpec::Rcp { config, limit })
}

impl fmt::Display for QueueSpec {
    /// Omits settings that have their default value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            QueueSpec::DropTail(size) => write!(f, "droptail:{size}"),
            QueueSpec::Prio {
                bands,
                shared,
                limit,
            } => {
                write!(
                    f,
                    "prio:{bands}:{}{limit}",
                    if shared { "shared:" } else { "" }
                )
            }
            QueueSpec::Ecn { threshold, limit } => {
                write!(f, "ecn:{threshold}")?;
                match limit {
                    Size::Unlimited => Ok(()),
                    limit => write!(f, ":{limit}"),
                }
            }
            QueueSpec::Sfq { config, limit } => {
                let default = SfqConfig::DEFAULT;
                f.write_str("sfq")?;
                write_if_not_default(f, "limit", limit, SFQ_LIMIT_DEFAULT)?;
                write_if_not_default(f, "depth", config.depth, default.depth)?;
                write_if_not_default(f, "flows", config.flows, default.flows)?;
                write_if_not_default(f, "divisor", config.divisor, default.divisor)?;
                config
                    .quantum
                    .map_or(Ok(()), |quantum| write!(f, ":quantum={quantum}"))
            }
            QueueSpec::Codel { config, limit } => {
                f.write_str("codel")?;
                write_codel_settings(f, config, CodelConfig::DEFAULT)?;
                write_if_not_default(f, "limit", limit, CODEL_LIMIT_DEFAULT)
            }
            QueueSpec::FqCodel { config, limit } => {
                let default = FqCodelConfig::DEFAULT;
                f.write_str("fq_codel")?;
                write_codel_settings(f, config.codel, default.codel)?;
                write_if_not_default(f, "limit", limit, FQ_CODEL_LIMIT_DEFAULT)?;
                write_if_not_default(f, "flows", config.flows, default.flows)?;
                write_if_not_default(f, "quantum", config.quantum, default.quantum)
            }
            QueueSpec::Red(spec) => {
                write!(f, "red:min={}:max={}", spec.min, spec.max)?;
                write_if_not_default(f, "limit", spec.limit, Size::Unlimited)?;
                write_if_not_default(f, "probability", spec.probability, RED_PROBABILITY_DEFAULT)?;
                write_if_not_default(f, "weight", spec.weight, RED_WEIGHT_DEFAULT)?;
                f.write_str(if spec.ecn { ":ecn" } else { "" })
            }
            QueueSpec::DualPi2 { config, limit } => {
                let default = DualPi2Config::DEFAULT;
                f.write_str("dualpi2")?;
                write_if_not_default(f, "limit", limit, DUALPI2_LIMIT_DEFAULT)?;
                write_if_not_default(f, "target", config.target, default.target)?;
                write_if_not_default(f, "tupdate", config.tupdate, default.tupdate)?;
                write_if_not_default(f, "alpha", decimal(config.alpha), decimal(default.alpha))?;
                write_if_not_default(f, "beta", decimal(config.beta), decimal(default.beta))?;
                write_if_not_default(
                    f,
                    "coupling_factor",
                    config.coupling_factor,
                    default.coupling_factor,
                )?;
                write_if_not_default(f, "step_thresh", config.step_thresh, default.step_thresh)?;
                write_if_not_default(f, "range", config.range, default.range)?;
                write_if_not_default(
                    f,
                    "classic_protection",
                    config.classic_protection,
                    default.classic_protection,
                )
            }
            QueueSpec::Tbf { rate, burst, limit } => {
                write!(f, "tbf:rate={rate}:burst={burst}:limit={limit}")
            }
            QueueSpec::Policer { rate, burst, limit } => {
                write!(f, "policer:rate={rate}:burst={burst}")?;
                write_if_not_default(f, "limit", limit, POLICER_LIMIT_DEFAULT)
            }
            QueueSpec::Rcp { config, limit } => {
                let default = RcpConfig::DEFAULT;
                f.write_str("rcp")?;
                write_if_not_default(f, "limit", limit, RCP_LIMIT_DEFAULT)?;
                write_if_not_default(f, "alpha", decimal(config.alpha), decimal(default.alpha))?;
                write_if_not_default(f, "beta", decimal(config.beta), decimal(default.beta))?;
                write_if_not_default(f, "init", config.init, default.init)
            }
        }
    }
}

fn write_if_not_default<T: PartialEq + Display>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    value: T,
    default: T,
) -> fmt::Result {
    if value == default {
        Ok(())
    } else {
        write!(f, ":{name}={value}")
    }
}

fn write_codel_settings(
    f: &mut fmt::Formatter<'_>,
    config: CodelConfig,
    default: CodelConfig,
) -> fmt::Result {
    write_if_not_default(f, "target", config.target, default.target)?;
    write_if_not_default(f, "interval", config.interval, default.interval)?;
    match (config.ecn, default.ecn) {
        (true, false) => f.write_str(":ecn"),
        (false, true) => f.write_str(":noecn"),
        _ => Ok(()),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Packets(packets) => write!(f, "{packets}p"),
            Size::Bytes(bytes) => write!(f, "{bytes}B"),
            Size::MilliBdp(milli) => write!(f, "{}bdp", decimal(*milli)),
            Size::Unlimited => f.write_str("inf"),
        }
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    let text_shown = excerpt(text);
    if text.is_empty() {
        return Err("the size is missing".into());
    }
    if text == "inf" {
        return Ok(Size::Unlimited);
    }
    if let Some(times) = text.strip_suffix("bdp") {
        return thousandths(times).map(Size::MilliBdp).ok_or_else(|| {
            format!(
                "`{text_shown}` is not a number of BDPs up to a million with at most three decimals"
            )
        });
    }
    // A bare number would be ambiguous.
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "`{text_shown}` needs a unit: `p` for packets, or `B`, `kB` or `k` for bytes"
        ));
    }
    let packets = || {
        text.parse::<Packets>()
            .ok()
            .map(|packets| Size::Packets(packets.get()))
    };
    let bytes = || {
        text.parse::<Bytes>()
            .ok()
            .map(|bytes| Size::Bytes(bytes.get()))
    };
    packets()
        .or_else(bytes)
        .ok_or_else(|| format!("`{text_shown}` is not a size"))
}

fn parse_quantum(text: &str) -> Result<u32, String> {
    number(text, 1, 1 << 20).map(|bytes| bytes as u32)
}

fn parse_gain(text: &str) -> Result<u64, String> {
    let gain = thousandths(text).filter(|&gain| gain > 0);
    gain.ok_or_else(|| {
        "not a number above zero and up to a million with at most three decimals".into()
    })
}

fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    let duration: Duration = text.parse().map_err(|error| format!("{error}"))?;
    if duration == Duration::ZERO {
        return Err("it must be above zero".into());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests;
