//! The containers of a directory in the two orders in which programs go through them: that of the directory, and by name.
#![forbid(unsafe_code)]

use std::ffi::OsStr;

use crate::limits::Charge;

/// The largest step from one container to the next: programs may leave some out.
const STEP: usize = 8;

/// The names of the containers of a directory.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// As the directory lists them.
    listed: Vec<Box<OsStr>>,
    /// Positions in `listed`, by name.
    sorted: Vec<u32>,
    _charge: Option<Charge>,
}

/// A step from one container to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    ByName(usize),
    Listed(usize),
}

impl Order {
    /// The order of `listed`, which are charged.
    pub(super) fn new(listed: Vec<Box<OsStr>>, charge: Charge) -> Self {
        let mut sorted: Vec<u32> = (0..).take(listed.len()).collect();
        sorted.sort_unstable_by_key(|&at| listed.get(at as usize));
        Self { listed, sorted, _charge: Some(charge) }
    }

    /// Whether `name` is one of them.
    pub(super) fn contains(&self, name: &OsStr) -> bool {
        self.positions(name).is_some()
    }

    /// The step that leads from `from` to `to`; `None` if that is too far.
    pub(super) fn step(&self, from: &OsStr, to: &OsStr) -> Option<Step> {
        let (from, to) = (self.positions(from)?, self.positions(to)?);
        let step = |from: usize, to: usize| to.checked_sub(from).filter(|step| (1..=STEP).contains(step));
        step(from.0, to.0).map(Step::ByName).or_else(|| step(from.1, to.1).map(Step::Listed))
    }

    /// At most `count` names, one `step` after the other from `name`.
    pub(super) fn after(&self, name: &OsStr, step: Step, count: usize) -> impl Iterator<Item = &OsStr> {
        let at = self.positions(name).unwrap_or((usize::MAX, usize::MAX));
        (1..=count).map_while(move |i| match step {
            Step::ByName(step) => self.by_name(at.0.checked_add(i.checked_mul(step)?)?),
            Step::Listed(step) => self.listed.get(at.1.checked_add(i.checked_mul(step)?)?).map(AsRef::as_ref),
        })
    }

    fn by_name(&self, position: usize) -> Option<&OsStr> {
        self.listed.get(*self.sorted.get(position)? as usize).map(AsRef::as_ref)
    }

    /// The position of `name` by name, and in the directory.
    fn positions(&self, name: &OsStr) -> Option<(usize, usize)> {
        let found =
            self.sorted.binary_search_by_key(&Some(name), |&at| self.listed.get(at as usize).map(AsRef::as_ref));
        let sorted = found.ok()?;
        Some((sorted, *self.sorted.get(sorted)? as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;

    fn order(names: &[&str]) -> Order {
        let names = names.iter().map(|&name| OsStr::new(name).into()).collect();
        Order::new(names, Account::new(1 << 20, 0).charge_list(100, "names").unwrap())
    }

    fn after(order: &Order, from: &str, to: &str) -> Vec<String> {
        let Some(step) = order.step(OsStr::new(from), OsStr::new(to)) else { return Vec::new() };
        order.after(OsStr::new(to), step, 2).map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_containers_that_follow_are_those_by_name_or_in_the_directory() {
        let order = order(&["c", "a", "e", "b", "d", "f"]);
        assert_eq!(after(&order, "a", "b"), ["c", "d"]);
        assert_eq!(after(&order, "d", "f"), Vec::<String>::new(), "the last one");
        assert_eq!(after(&order, "a", "c"), ["e"], "every second one");
        assert_eq!(after(&order, "c", "a"), ["e", "b"], "as the directory lists them");
        assert_eq!((after(&order, "f", "a"), after(&order, "a", "a")), (vec![], vec![]), "backwards, or again");
        assert!(order.contains(OsStr::new("d")) && !order.contains(OsStr::new("x")));
        assert!(after(&order, "a", "x").is_empty() && after(&Order::default(), "a", "b").is_empty());
    }
}
