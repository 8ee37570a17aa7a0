//! Symbolic links in a mirrored directory or an archive: which of them cannot lead out of it.
//!
//! Only relative ones that go up at their beginning only, and no further than the directory.
#![forbid(unsafe_code)]

use std::path::{Component, Path};

/// Whether a link in a directory `depth` below the outermost one cannot lead out of that by `target`. Names in the target
/// may be links themselves, which do not lead out either; going up after one of them might.
pub fn stays_inside(target: &Path, depth: usize) -> bool {
    let up = target.components().take_while(|part| matches!(part, Component::ParentDir | Component::CurDir));
    let ups = up.filter(|part| *part == Component::ParentDir).count();
    let all = target.components().filter(|part| *part == Component::ParentDir).count();
    let is_absolute = |part| matches!(part, Component::RootDir | Component::Prefix(_));
    ups == all && ups <= depth && !target.components().any(is_absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_might_lead_out_is_not_followed() {
        for (target, depth, inside) in [
            ("a", 0, true),
            ("a/b", 0, true),
            ("./a", 0, true),
            ("../a", 1, true),
            ("../../a", 2, true),
            ("..", 0, false),
            ("../a", 0, false),
            ("../../a", 1, false),
            ("a/..", 5, false),
            ("a/../../b", 5, false),
            ("/a", 5, false),
            ("/", 0, false),
        ] {
            assert_eq!(stays_inside(Path::new(target), depth), inside, "{target} at {depth}");
        }
    }
}
