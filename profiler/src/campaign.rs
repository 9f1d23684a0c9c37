//! The campaign: what is measured, on what, how often and how exactly.

use crate::Error;
use crate::protocol::{Protocol, ProtocolSettings};
use elastico_core::{DeviceName, Digest, Seed, SharingMode, suggest};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};

/// What a user wants measured; the content of `campaign.toml`.
///
/// | key | default | meaning |
/// |---|---|---|
/// | `schema` | required | 1 |
/// | `name` | required | a name for people |
/// | `seed` | 0 | everything random follows from it |
/// | `device` | required | `"sim:h100"`, `"cpu"`, or a list |
/// | `at_once` | false | measure several GPUs at the same time, each with its part of the host's cores |
/// | `sharing` | required | sharing modes, for example `["time_slice", "mps(0.5,0.5)"]` |
/// | `isolated_shares` | `[]` | more SM shares to measure each workload at, beside 1 and the shares of `sharing` |
/// | `max_pairs` | all | pairs drawn at random from all; each family appears as long as the number allows |
/// | `wave` | all at once | so many pairs and modes are measured to their end, in the order of the list, before the next begin |
/// | `sentinel` | first pair | the pair that is measured again and again to see the device drift |
/// | `[workloads]` | | [`Workloads`] |
/// | `[budget]` | none | [`Budget`] |
/// | `[stopping]` | | [`Stopping`] |
/// | `[protocol]` | by device | [`ProtocolSettings`] |
///
/// Beside the pairs asked for, each campaign measures a *null pair* (a workload beside an idle context, whose
/// interference must be 1) under each sharing mode.
///
/// ```
/// use elastico_profiler::Campaign;
/// use std::path::Path;
///
/// let text = r#"
/// schema = 1
/// name = "first look"
/// device = "sim:h100"
/// sharing = ["mps"]
/// [workloads]
/// subjects = ["training"]
/// co_runners = ["inference"]
/// "#;
/// let campaign = Campaign::parse(text, Path::new("campaign.toml"))?;
/// assert_eq!(campaign.stopping.min_repeats, 3);
///
/// let error = Campaign::parse("schema = 1\nnmae = \"x\"", Path::new("campaign.toml")).unwrap_err();
/// assert!(error.to_string().starts_with("campaign.toml:2:1: unknown field `nmae`"));
/// # Ok::<(), elastico_profiler::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// Version of the file format: 1.
    #[serde(deserialize_with = "schema")]
    pub schema: u32,
    /// A name for people.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Everything random follows from it.
    #[serde(default = "no_seed")]
    pub seed: Seed,
    /// Where to measure. Data of several devices are measured one device after the other.
    #[serde(deserialize_with = "one_or_more")]
    pub device: Vec<DeviceName>,
    /// Measure all devices at the same time instead of one after the other: for GPUs of one host, whose cores are dealt
    /// out among them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_once: bool,
    /// How pairs share the device.
    #[serde(deserialize_with = "shared_modes")]
    pub sharing: Vec<SharingMode>,
    /// More SM shares at which each workload is measured alone, above 0 and up to 1.
    #[serde(default, deserialize_with = "shares", skip_serializing_if = "Vec::is_empty")]
    pub isolated_shares: Vec<f64>,
    /// The most pairs of workloads to draw; each is measured under each sharing mode.
    #[serde(default, deserialize_with = "optional_count", skip_serializing_if = "Option::is_none")]
    pub max_pairs: Option<u32>,
    /// Measure in waves of so many pair cells, each wave to its end before the next: the pairs by name in their order,
    /// under the first sharing mode, then under the next. A campaign that its budget ends then has its most wanted
    /// cells whole; the price is that the device's drift over the campaign is no longer spread over all cells alike.
    #[serde(default, deserialize_with = "optional_count", skip_serializing_if = "Option::is_none")]
    pub wave: Option<u32>,
    /// The sentinel pair, two workload ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentinel: Option<[String; 2]>,
    /// What is paired with what.
    pub workloads: Workloads,
    /// When to stop for cost.
    #[serde(default)]
    pub budget: Budget,
    /// When a cell is measured well enough.
    #[serde(default)]
    pub stopping: Stopping,
    /// How a trial is measured; absent values depend on the kind of device.
    #[serde(default)]
    pub protocol: ProtocolSettings,
    #[serde(skip)]
    origin: Origin,
}

/// Where the campaign was read, for messages; two campaigns of one content are equal wherever they stand.
#[derive(Clone, Debug, Default)]
struct Origin {
    file: PathBuf,
    text: String,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// What is paired with what, by patterns of the catalogue: an id, a family, a kind, or a glob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workloads {
    /// One side; default none.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// The other side; default the subjects.
    ///
    /// A pair yields an observation for either side, so its order matters under uneven shares alone: the subject gets
    /// the first one, and both orders are measured where both are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub co_runners: Vec<String>,
    /// Pairs by name, measured in any case, before `max_pairs` draws others; default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<[String; 2]>,
}

/// When to stop for cost; what is measured until then is kept and the run can be resumed with a larger budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most trials, with those of earlier runs in the folder; default no limit.
    #[serde(default, deserialize_with = "optional_count", skip_serializing_if = "Option::is_none")]
    pub max_trials: Option<u32>,
    /// The most seconds of device time; simulated seconds on a simulated device; default no limit.
    #[serde(default, deserialize_with = "optional_positive", skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<f64>,
}

/// When a cell is measured well enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stopping {
    /// Repeats in fresh processes that each cell gets; default 3.
    #[serde(deserialize_with = "repeats")]
    pub min_repeats: u32,
    /// Repeats after which a cell is given up as inconclusive; default 10.
    #[serde(deserialize_with = "repeats")]
    pub max_repeats: u32,
    /// Half-width of the interval across repeats, relative to the point, that is narrow enough; default 0.02.
    #[serde(deserialize_with = "positive")]
    pub half_width: f64,
    /// Coverage of the intervals, within 0..1; default 0.95.
    #[serde(deserialize_with = "level")]
    pub level: f64,
}

impl Default for Stopping {
    fn default() -> Self {
        Self { min_repeats: 3, max_repeats: 10, half_width: 0.02, level: 0.95 }
    }
}

impl Campaign {
    /// Reads a campaign file.
    ///
    /// # Errors
    /// [`Error::Read`], or [`Error::Campaign`] with line and column.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file).map_err(|source| Error::read(file, source))?;
        Self::parse(&text, file)
    }

    /// Parses the text of a campaign; `file` is named in messages.
    ///
    /// # Errors
    /// [`Error::Campaign`] with line, column, reason and, for a mistyped name, a suggestion.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Error> {
        let mut campaign: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(text.len(), |span| span.start);
            refuse(text, file, at, error.message().to_owned())
        })?;
        campaign.origin = Origin { file: file.to_owned(), text: text.to_owned() };
        campaign.check()?;
        Ok(campaign)
    }

    /// Rules between fields.
    fn check(&self) -> Result<(), Error> {
        if self.stopping.max_repeats < self.stopping.min_repeats {
            let message = format!(
                "max_repeats is {}, it must be at least min_repeats = {}",
                self.stopping.max_repeats, self.stopping.min_repeats
            );
            return Err(self.refuse_at("max_repeats", message));
        }
        if self.workloads.subjects.is_empty() && self.workloads.pairs.is_empty() {
            let message = "there is nothing to measure: name `subjects` or `pairs`".to_owned();
            return Err(self.refuse_at("[workloads]", message));
        }
        if let (Some(min), Some(max)) = (self.protocol.min_seconds, self.protocol.max_seconds)
            && max < min
        {
            let message = format!("max_seconds is {max}, it must be at least min_seconds = {min}");
            return Err(self.refuse_at("max_seconds", message));
        }
        if self.at_once && self.device.iter().any(|device| !matches!(device, DeviceName::Cuda(_))) {
            let message =
                "only GPUs can be measured at once: other devices take the same host cores".to_owned();
            return Err(self.refuse_at("at_once", message));
        }
        Ok(())
    }

    /// The campaign on other devices; several are measured at once.
    ///
    /// # Errors
    /// [`Error::Campaign`] where they cannot be.
    pub fn on(&self, devices: Vec<DeviceName>) -> Result<Self, Error> {
        let origin = Origin { file: self.origin.file.clone(), text: String::new() };
        let campaign = Self { at_once: devices.len() > 1, device: devices, origin, ..self.clone() };
        campaign.check()?;
        Ok(campaign)
    }

    /// An error at the first line that holds `needle`.
    pub(crate) fn refuse_at(&self, needle: &str, message: String) -> Error {
        let at = self.origin.text.find(needle).unwrap_or(0);
        refuse(&self.origin.text, &self.origin.file, at, message)
    }

    /// The file and the line of a quoted text; line 0 where the campaign was not read from text.
    pub(crate) fn place_of(&self, quoted: &str) -> (PathBuf, usize) {
        let text = &self.origin.text;
        let line = text.find(&format!("\"{quoted}\"")).map_or(0, |at| line_and_column(text, at).0);
        (self.origin.file.clone(), line)
    }

    /// The campaign as a file: the text it was read from, or else all its values.
    pub fn to_toml(&self) -> String {
        if self.origin.text.is_empty() {
            toml::to_string(self).expect("a campaign has only tables, strings and numbers")
        } else {
            self.origin.text.clone()
        }
    }

    /// Digest of everything that the numbers depend on: all but the budget, which may grow between runs.
    pub fn digest(&self) -> Digest {
        let unlimited = Self { budget: Budget::default(), ..self.clone() };
        let canonical = serde_json::to_string(&unlimited).expect("a campaign is plain data");
        Digest::of(["elastico.campaign/1", &canonical])
    }

    /// The protocol's settings for the campaign's device, defaults filled in.
    pub fn protocol(&self, kind: elastico_core::DeviceKind) -> Protocol {
        Protocol::resolve(&self.protocol, kind)
    }

    /// One campaign per device, in the order of the file.
    pub fn per_device(&self) -> Vec<Self> {
        let part =
            |device: &DeviceName| Self { device: vec![device.clone()], at_once: false, ..self.detached() };
        self.device.iter().map(part).collect()
    }

    /// Without the text it was read from, when content and text part.
    fn detached(&self) -> Self {
        let text = if self.device.len() > 1 { String::new() } else { self.origin.text.clone() };
        Self { origin: Origin { file: self.origin.file.clone(), text }, ..self.clone() }
    }
}

fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

fn refuse(text: &str, file: &Path, at: usize, message: String) -> Error {
    let (line, column) = line_and_column(text, at);
    // serde names the unknown word first and then all that it knows, each in backticks.
    let mut quoted = message.split('`').skip(1).step_by(2);
    let suggestion = match (message.starts_with("unknown "), quoted.next()) {
        (true, Some(unknown)) => suggest(unknown, quoted).map(str::to_owned),
        _ => None,
    };
    Error::Campaign { file: file.to_owned(), line, column, message, suggestion }
}

const fn no_seed() -> Seed {
    Seed(0)
}

fn schema<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        1 => Ok(1),
        other => Err(D::Error::custom(format!("schema {other} is not known, this version reads schema 1"))),
    }
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.trim().is_empty() || text.len() > 100 || text.chars().any(char::is_control) {
        return Err(D::Error::custom("a name has 1 to 100 printable characters"));
    }
    Ok(text)
}

fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<DeviceName>, D::Error> {
    struct Devices;
    impl<'de> serde::de::Visitor<'de> for Devices {
        type Value = Vec<DeviceName>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a device or a list of devices")
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map(|device| vec![device]).map_err(E::custom)
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut devices = Vec::new();
            while let Some(device) = list.next_element()? {
                if devices.contains(&device) {
                    return Err(A::Error::custom(format!("the device {device} is named twice")));
                }
                devices.push(device);
            }
            Ok(devices)
        }
    }
    let devices = from.deserialize_any(Devices)?;
    if devices.is_empty() { Err(D::Error::custom("name at least one device")) } else { Ok(devices) }
}

fn shared_modes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SharingMode>, D::Error> {
    let modes = Vec::<SharingMode>::deserialize(from)?;
    if modes.is_empty() {
        return Err(D::Error::custom("name at least one sharing mode"));
    }
    for (index, mode) in modes.iter().enumerate() {
        if *mode == SharingMode::Exclusive {
            return Err(D::Error::custom("a pair cannot run `exclusive`; isolated runs are measured anyway"));
        }
        if modes[..index].contains(mode) {
            return Err(D::Error::custom(format!("the sharing mode {mode} is named twice")));
        }
    }
    Ok(modes)
}

fn shares<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let shares = Vec::<f64>::deserialize(from)?;
    match shares.iter().find(|share| !(0.01..=1.0).contains(*share)) {
        Some(bad) => Err(D::Error::custom(format!("a share is at least 0.01 and at most 1, not {bad}"))),
        None => Ok(shares),
    }
}

fn repeats<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let count = u32::deserialize(from)?;
    if (2..=1000).contains(&count) {
        Ok(count)
    } else {
        Err(D::Error::custom(format!("an interval needs 2 to 1000 repeats, not {count}")))
    }
}

fn optional_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom("the number must be at least 1")),
        count => Ok(Some(count)),
    }
}

pub(crate) fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    if number.is_finite() && number > 0.0 {
        Ok(number)
    } else {
        Err(D::Error::custom(format!("the number must be finite and above 0, not {number}")))
    }
}

pub(crate) fn optional_positive<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    positive(from).map(Some)
}

fn level<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    if number > 0.0 && number < 1.0 {
        Ok(number)
    } else {
        Err(D::Error::custom(format!("a level lies between 0 and 1, not {number}")))
    }
}

pub(crate) fn optional_ratio<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let number = f64::deserialize(from)?;
    if (0.0..=1.0).contains(&number) {
        Ok(Some(number))
    } else {
        Err(D::Error::custom(format!("a ratio lies within 0..1, not {number}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastico_core::Hint;

    const GOOD: &str = "schema = 1\nname = \"t\"\ndevice = \"sim:h100\"\nsharing = [\"mps\"]\n[workloads]\nsubjects = [\"*\"]\n";

    fn parse(text: &str) -> Result<Campaign, Error> {
        Campaign::parse(text, Path::new("c.toml"))
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let campaign = parse(GOOD).unwrap();
        assert_eq!(
            campaign.stopping,
            Stopping { min_repeats: 3, max_repeats: 10, half_width: 0.02, level: 0.95 }
        );
        assert_eq!(campaign.budget, Budget::default());
        assert_eq!(campaign.seed, Seed(0));
        let reread = parse(&toml::to_string(&campaign).unwrap()).unwrap();
        assert_eq!(reread, campaign);
        assert_eq!(reread.digest(), campaign.digest());
    }

    #[test]
    fn the_budget_may_grow_but_nothing_else_changes_unseen() {
        let campaign = parse(GOOD).unwrap();
        let larger = parse(&format!("{GOOD}[budget]\nmax_trials = 5\n")).unwrap();
        assert_eq!(campaign.digest(), larger.digest());
        let other = parse(&format!("{GOOD}[stopping]\nlevel = 0.9\n")).unwrap();
        assert_ne!(campaign.digest(), other.digest());
    }

    /// Each bad file, the place of its fault, and a word of the message.
    #[test]
    fn bad_campaigns_are_refused_with_the_place() {
        let with = |line: &str| GOOD.replace("schema = 1\n", &format!("schema = 1\n{line}\n"));
        let below = |lines: &str| format!("{GOOD}{lines}\n");
        for (text, line, word) in [
            (String::new(), 1, "missing field"),
            (GOOD.replace("schema = 1", "schema = 2"), 1, "schema 2"),
            (GOOD.replace("sim:h100", "sim:h10"), 3, "did you mean `h100`"),
            (GOOD.replace("\"sim:h100\"", "[]"), 3, "at least one device"),
            (GOOD.replace("\"sim:h100\"", "[\"cpu\", \"cpu\"]"), 3, "named twice"),
            (GOOD.replace("\"mps\"", "\"mpss\""), 4, "no sharing mode"),
            (GOOD.replace("\"mps\"", "\"exclusive\""), 4, "cannot run `exclusive`"),
            (GOOD.replace("\"mps\"", "\"mps\", \"mps(1,1)\""), 4, "named twice"),
            (GOOD.replace("[\"*\"]", "[]"), 5, "nothing to measure"),
            (with("isolated_shares = [0.5, 1.5]"), 2, "at most 1, not 1.5"),
            (with("isolated_shares = [nan]"), 2, "not NaN"),
            (with("max_pairs = 0"), 2, "at least 1"),
            (with("max_pairs = -3"), 2, "invalid value"),
            (with("sentinel = [\"a\"]"), 2, "invalid length"),
            (below("[budget]\nmax_seconds = inf"), 8, "finite"),
            (below("[stopping]\nmin_repeats = 1"), 8, "2 to 1000"),
            (below("[stopping]\nmax_repeats = 2"), 8, "at least min_repeats"),
            (below("[stopping]\nlevel = 1.0"), 8, "between 0 and 1"),
            (below("[protocol]\noverlap = 98"), 8, "within 0..1"),
            (below("[protocol]\nmin_seconds = 3\nmax_seconds = 2"), 9, "at least min_seconds"),
            (below("not toml"), 7, ""),
        ] {
            match parse(&text) {
                Err(Error::Campaign { line: at, message, .. }) => {
                    assert_eq!(at, line, "{text}: {message}");
                    assert!(message.contains(word), "{message}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_mistyped_field_gets_a_suggestion() {
        let error = parse(&GOOD.replace("[workloads]", "max_pair = 3\n[workloads]")).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("did you mean `max_pairs`?"));
    }

    #[test]
    fn several_devices_are_one_campaign_each() {
        let campaign = parse(&GOOD.replace("\"sim:h100\"", "[\"sim:h100\", \"cpu\"]")).unwrap();
        let parts = campaign.per_device();
        assert_eq!(parts.len(), 2);
        assert_ne!(parts[0].digest(), parts[1].digest());
        assert_eq!(parse(&parts[1].to_toml()).unwrap(), parts[1]);
    }
}
