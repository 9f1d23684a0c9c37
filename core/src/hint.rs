//! What a user can do about an error.

/// An error that may know its remedy: a command to run or a setting to change.
///
/// The command line prints it after the chain of causes as `hint: …`.
pub trait Hint {
    /// The remedy, without a full stop, or `None` when there is nothing a user could do.
    fn hint(&self) -> Option<String>;
}

/// The entry of `known` nearest to a mistyped `name`, if it is near enough to be meant.
///
/// ```
/// assert_eq!(elastico_core::suggest("time_slise", ["mps", "time_slice"]), Some("time_slice"));
/// assert_eq!(elastico_core::suggest("zebra", ["mps", "time_slice"]), None);
/// ```
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, candidate)| candidate)
}
