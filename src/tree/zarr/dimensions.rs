//! Names of dimensions: the array's own, or names made of sizes.
//!
//! In a group, xarray wants one size for each name; names made of sizes always satisfy that. In an array, names are
//! unique.
#![forbid(unsafe_code)]

/// Prefix of names made of sizes, and of no others.
const SIZE: &str = "size_";

/// Names made of the sizes in `shape`: `size_3`, `size_512`, and `size_512_2` if one is repeated.
pub(super) fn by_size(shape: &[u64]) -> Vec<String> {
    let each = |(d, size): (usize, &u64)| {
        let before = shape.iter().take(d).filter(|other| *other == size).count();
        if before == 0 { format!("{SIZE}{size}") } else { format!("{SIZE}{size}_{}", before + 1) }
    };
    shape.iter().enumerate().map(each).collect()
}

/// Whether `names` can be the names of `rank` dimensions.
pub(super) fn are_usable(names: &[String], rank: usize) -> bool {
    let usable = |(d, name): (usize, &String)| {
        !name.is_empty() && !name.starts_with(SIZE) && !names.iter().take(d).any(|other| other == name)
    };
    names.len() == rank && names.iter().enumerate().all(usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_one_name_in_all_arrays_and_no_name_comes_twice_in_one() {
        assert_eq!(by_size(&[3, 512, 512, 3]), ["size_3", "size_512", "size_512_2", "size_3_2"]);
        assert!(by_size(&[]).is_empty());
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(are_usable(&names("time lat lon"), 3));
        for (text, rank) in [("x x", 2), ("x y", 3), ("size_4 y", 2), (" y", 2)] {
            assert!(!are_usable(&names(text), rank), "{text}");
        }
    }
}
