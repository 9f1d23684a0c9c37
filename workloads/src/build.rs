//! From the form of a file to benchmarks: checks every value and derives the ids.

use crate::axes::{Axes, Axis, Domain, Value};
use crate::benchmark::Benchmark;
use crate::error::{Error, Place};
use crate::form::{AxisForm, AxisTable, FamilyForm, Source};
use crate::program::StepProgram;
use crate::structure::{STRUCTURES, Structure, structure};
use elastico_core::units::{Bytes, Flops};
use elastico_core::{Dtype, FamilyId, WorkloadId, suggest};
use toml::Spanned;

/// A step that holds more memory than this fits no device.
const LARGEST_FOOTPRINT: Bytes = Bytes(1e12);
/// A step of more work than this takes minutes on any device.
const MOST_WORK: Flops = Flops(1e17);
/// A step that moves more than this through L2 takes many seconds on any device.
const MOST_TRAFFIC: Bytes = Bytes(1e14);
/// One table of lists may stand for this many benchmarks.
const MOST_COMBINATIONS: usize = 1_000;

/// A benchmark and the place of its configuration.
pub(crate) struct Built {
    pub(crate) benchmark: Benchmark,
    pub(crate) place: Place,
}

/// What has to agree where a family goes on in another place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FamilySettings {
    structure: &'static str,
    summary: String,
    shared: Vec<(String, AxisForm)>,
}

/// Everything that one `[[family]]` says.
pub(crate) struct BuiltFamily {
    pub(crate) id: FamilyId,
    pub(crate) place: Place,
    pub(crate) settings: FamilySettings,
    pub(crate) benchmarks: Vec<Built>,
}

pub(crate) fn family(source: Source<'_>, form: &Spanned<FamilyForm>) -> Result<BuiltFamily, Error> {
    let place = source.place(form.span());
    let form = form.get_ref();
    let id = family_id(source, &form.id)?;
    let name = form.structure.get_ref();
    let structure = structure(name).ok_or_else(|| Error::UnknownStructure {
        place: source.place(form.structure.span()),
        name: name.clone(),
        suggestion: suggest(name, STRUCTURES.iter().map(|structure| structure.name)).map(str::to_owned),
    })?;
    let summary = form.summary.get_ref().trim();
    if summary.is_empty() || summary.chars().any(char::is_control) {
        return Err(Error::Value {
            place: source.place(form.summary.span()),
            field: "summary".to_owned(),
            why: "has to be one line of text".to_owned(),
        });
    }
    let mut shared = Vec::new();
    for (key, value) in &form.axes {
        let axis = find_axis(source, structure, key)?;
        shared.push((axis, single(source, axis, value)?));
    }
    let mut benchmarks = Vec::new();
    for configuration in &form.configurations {
        let place = source.place(configuration.span());
        for choice in combinations(source, structure, configuration)? {
            let axes = complete(structure, &shared, &choice, &place)?;
            let program = check(source, structure, &axes, &choice, &place)?;
            let text = match axes.id_beside(&shared) {
                text if text.is_empty() => id.to_string(),
                text => format!("{id}.{text}"),
            };
            let workload = WorkloadId::new(text).map_err(|error| Error::Id {
                place: place.clone(),
                field: "id",
                source: error,
            })?;
            let benchmark =
                Benchmark::new(workload, id.clone(), summary.to_owned(), structure, axes, program);
            benchmarks.push(Built { benchmark, place: place.clone() });
        }
    }
    let settings = FamilySettings {
        structure: structure.name,
        summary: summary.to_owned(),
        shared: form
            .axes
            .iter()
            .map(|(key, value)| (key.get_ref().clone(), value.get_ref().clone()))
            .collect(),
    };
    Ok(BuiltFamily { id, place, settings, benchmarks })
}

/// A family id is part of file names, patterns and features: lower-case letters, digits and `_`.
fn family_id(source: Source<'_>, id: &Spanned<String>) -> Result<FamilyId, Error> {
    let place = source.place(id.span());
    let text = id.get_ref();
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let family = FamilyId::new(text.clone()).map_err(|error| Error::Id {
        place: place.clone(),
        field: "id",
        source: error,
    })?;
    if text.chars().all(plain) && text.len() <= 64 {
        return Ok(family);
    }
    let why =
        format!("has to be at most 64 lower-case letters, digits and `_`, not `{}`", text.escape_debug());
    Err(Error::Value { place, field: "id".to_owned(), why })
}

fn find_axis(
    source: Source<'_>,
    structure: &'static Structure,
    key: &Spanned<String>,
) -> Result<&'static Axis, Error> {
    let name = key.get_ref();
    structure.axes.iter().find(|axis| axis.name == name).ok_or_else(|| Error::UnknownAxis {
        place: source.place(key.span()),
        structure: structure.name,
        axis: name.clone(),
        suggestion: suggest(name, structure.axes.iter().map(|axis| axis.name)).map(str::to_owned),
    })
}

fn single(source: Source<'_>, axis: &'static Axis, form: &Spanned<AxisForm>) -> Result<Value, Error> {
    read(axis, form.get_ref()).map_err(|why| Error::Value {
        place: source.place(form.span()),
        field: axis.name.to_owned(),
        why,
    })
}

/// One value in the domain of its axis, or why not.
fn read(axis: &Axis, form: &AxisForm) -> Result<Value, String> {
    let given = match form {
        AxisForm::Integer(value) => value.to_string(),
        AxisForm::Ratio(value) => value.to_string(),
        AxisForm::Word(word) => format!("`{}`", word.escape_debug()),
        AxisForm::Many(_) => "a list".to_owned(),
    };
    let value = match (axis.domain, form) {
        (Domain::Integer { min, max }, AxisForm::Integer(value)) => {
            u64::try_from(*value).ok().filter(|value| (min..=max).contains(value)).map(Value::Integer)
        }
        (Domain::Ratio { min, max }, AxisForm::Ratio(value)) => hundredths(*value, min, max),
        (Domain::Ratio { min, max }, AxisForm::Integer(value)) => hundredths(*value as f64, min, max),
        (Domain::Dtype(known), AxisForm::Word(word)) => {
            known.iter().copied().find(|dtype: &Dtype| dtype.as_str() == word).map(Value::Dtype)
        }
        (Domain::Choice(known), AxisForm::Word(word)) => {
            known.iter().copied().find(|choice| choice == word).map(Value::Choice)
        }
        _ => None,
    };
    value.ok_or_else(|| format!("has to be {}, not {given}", axis.domain))
}

/// A ratio that has at most two decimals, so that its id is exact.
fn hundredths(value: f64, min: f64, max: f64) -> Option<Value> {
    let rounded = (value * 100.0).round() / 100.0;
    let exact = value.is_finite() && (value - rounded).abs() < 1e-9 && (min..=max).contains(&rounded);
    exact.then_some(Value::Ratio(rounded))
}

/// One axis of a configuration, its value, and where that stands.
type Chosen = (&'static Axis, Value, std::ops::Range<usize>);

/// The cross product of all lists of a configuration.
fn combinations(
    source: Source<'_>,
    structure: &'static Structure,
    configuration: &Spanned<AxisTable>,
) -> Result<Vec<Vec<Chosen>>, Error> {
    let mut rows: Vec<Vec<Chosen>> = vec![Vec::new()];
    for (key, form) in configuration.get_ref() {
        let axis = find_axis(source, structure, key)?;
        let refuse =
            |why: String| Error::Value { place: source.place(form.span()), field: axis.name.to_owned(), why };
        let values = match form.get_ref() {
            AxisForm::Many(forms) if forms.is_empty() => return Err(refuse("is an empty list".to_owned())),
            AxisForm::Many(forms) => {
                forms.iter().map(|form| read(axis, form)).collect::<Result<_, _>>().map_err(refuse)?
            }
            _ => vec![single(source, axis, form)?],
        };
        if rows.len().saturating_mul(values.len()) > MOST_COMBINATIONS {
            return Err(refuse(format!("brings the configuration over {MOST_COMBINATIONS} combinations")));
        }
        rows = rows
            .into_iter()
            .flat_map(|row| {
                values.iter().map(move |value| {
                    let mut longer = row.clone();
                    longer.push((axis, *value, form.span()));
                    longer
                })
            })
            .collect();
    }
    Ok(rows)
}

/// A value for each axis: the configuration's, else the family's, else the structure's default.
fn complete(
    structure: &'static Structure,
    shared: &[(&'static Axis, Value)],
    choice: &[Chosen],
    place: &Place,
) -> Result<Axes, Error> {
    let find = |axis: &'static Axis| {
        let own = choice.iter().find(|(known, ..)| known.name == axis.name).map(|(_, value, _)| *value);
        let family = || shared.iter().find(|(known, _)| known.name == axis.name).map(|(_, value)| *value);
        own.or_else(family).or(axis.default)
    };
    let values = structure.axes.iter().map(|axis| {
        find(axis).map(|value| (axis, value)).ok_or_else(|| Error::MissingAxis {
            place: place.clone(),
            axis: axis.name,
            meaning: axis.meaning,
        })
    });
    Ok(Axes::new(values.collect::<Result<_, _>>()?))
}

/// Builds the step and refuses what no device could hold or finish, naming the axis to change.
fn check(
    source: Source<'_>,
    structure: &'static Structure,
    axes: &Axes,
    choice: &[Chosen],
    place: &Place,
) -> Result<StepProgram, Error> {
    let at = |axis: &str| {
        choice
            .iter()
            .find(|(known, ..)| known.name == axis)
            .map_or_else(|| place.clone(), |(_, _, span)| source.place(span.clone()))
    };
    (structure.check)(axes).map_err(|refusal| Error::Value {
        place: at(refusal.axis),
        field: refusal.axis.to_owned(),
        why: refusal.why,
    })?;
    let program = (structure.build)(axes);
    let footprint = |program: &StepProgram| program.footprint().get();
    let flops = |program: &StepProgram| program.demand().flops().get();
    let too_large = |measure: &dyn Fn(&StepProgram) -> f64, why: String| {
        let axis = heaviest(structure, axes, measure);
        Error::Value { place: at(axis), field: axis.to_owned(), why }
    };
    if footprint(&program) > LARGEST_FOOTPRINT.get() {
        let why =
            format!("makes a step that holds {}, the limit is {LARGEST_FOOTPRINT:.0}", program.footprint());
        return Err(too_large(&footprint, why));
    }
    if flops(&program) > MOST_WORK.get() {
        let why = format!("makes a step of {}, the limit is {MOST_WORK:.0}", program.demand().flops());
        return Err(too_large(&flops, why));
    }
    let traffic = |program: &StepProgram| {
        let demand = program.demand();
        (demand.l2_bytes + demand.shared_bytes).get()
    };
    if traffic(&program) > MOST_TRAFFIC.get() {
        let why =
            format!("makes a step that moves {}, the limit is {MOST_TRAFFIC:.0}", Bytes(traffic(&program)));
        return Err(too_large(&traffic, why));
    }
    Ok(program)
}

/// The axis whose halving reduces `measure` most.
fn heaviest(structure: &Structure, axes: &Axes, measure: &dyn Fn(&StepProgram) -> f64) -> &'static str {
    let halved = axes.iter().filter_map(|(axis, value)| {
        let Value::Integer(value) = value else { return None };
        let smaller = axes.with(axis.name, Value::Integer(value / 2));
        ((value > 1) && (structure.check)(&smaller).is_ok())
            .then(|| (measure(&(structure.build)(&smaller)), axis.name))
    });
    let lightest = halved.min_by(|a, b| a.0.total_cmp(&b.0));
    lightest.map_or(structure.axes.first().map_or("axes", |axis| axis.name), |(_, name)| name)
}
