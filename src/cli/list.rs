//! `fzmfs list`: the mounts of this user, for root those of all users, as a table or JSON.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use serde_json::{Value, json};

use super::args::List;
use super::report::{self, Outcome};
use super::size;
use crate::fs::{self, DaemonState, Listed, Listing};
use crate::text::{self, escaped};

/// The columns of the table.
const COLUMNS: [&str; 6] = ["MOUNTPOINT", "SOURCE", "PID", "CACHE", "HITS", "DECODED"];

pub(super) fn run(args: &List, out: &mut dyn Write) -> Outcome {
    if let (Some(id), [point]) = (args.ask, &*args.points) {
        return out.write_all(&fs::answer(id, point)).map_err(|e| report::output(&e));
    }
    let listing = fs::list(&args.points)?;
    let printed = if args.json {
        let objects = listing.mounts.iter().map(to_json).collect();
        writeln!(out, "{}", text::json(&Value::Array(objects)))
    } else {
        table(&listing, out)
    };
    printed.map_err(|e| report::output(&e))
}

fn to_json(mount: &Listed) -> Value {
    json!({
        "mountpoint": mount.point.to_string_lossy(),
        "source": mount.source.to_string_lossy(),
        "state": word(&mount.state),
        "pid": mount.pid,
        "stats": mount.stats,
    })
}

fn word(state: &DaemonState) -> &'static str {
    match state {
        DaemonState::Serving => "serving",
        DaemonState::Changed => "changed",
        DaemonState::Dead => "dead",
        DaemonState::Silent => "silent",
        DaemonState::Covered => "covered",
        DaemonState::Refused(_) => "refused",
    }
}

/// Prints aligned columns; each mount is followed by its problem, if it has one.
fn table(listing: &Listing, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = vec![(COLUMNS.map(str::to_owned), None)];
    rows.extend(listing.mounts.iter().map(|mount| (columns(mount), problem(mount))));
    let width = |column: usize| rows.iter().map(|(cells, _)| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for (cells, problem) in rows.iter().filter(|_| !listing.mounts.is_empty()) {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
        writeln!(out, "{}", padded.join("  ").trim_end())?;
        if let Some(problem) = problem {
            writeln!(out, "    {problem}")?;
        }
    }
    match listing.others {
        0 if listing.mounts.is_empty() => writeln!(out, "no mounts"),
        0 => Ok(()),
        1 => writeln!(out, "1 mount of another user is not shown"),
        others => writeln!(out, "{others} mounts of other users are not shown"),
    }
}

fn columns(mount: &Listed) -> [String; 6] {
    let count = |name: &str| mount.stats.as_ref().and_then(|stats| stats.get(name)?.as_u64());
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let cache = count("cache_bytes").zip(count("cache_limit"));
    let hits = count("hits").zip(count("misses")).map(|(hits, misses)| match hits.saturating_add(misses) {
        0 => "0".to_owned(),
        all => format!("{hits} ({:.0} %)", 100.0 * hits as f64 / all as f64),
    });
    [
        escaped(&mount.point.to_string_lossy()).into_owned(),
        escaped(&mount.source.to_string_lossy()).into_owned(),
        known(mount.pid.map(|pid| pid.to_string())),
        known(cache.map(|(held, limit)| format!("{} of {}", size::short(held), size::short(limit)))),
        known(hits),
        known(count("decoded_bytes").map(size::short)),
    ]
}

/// The problem of a mount, and its remedy.
fn problem(mount: &Listed) -> Option<String> {
    let point = mount.point.to_string_lossy();
    let point = escaped(&point);
    match &mount.state {
        DaemonState::Serving => None,
        DaemonState::Changed => {
            Some(format!("its source has changed, so reads fail: fzmfs umount {point}, and mount it again"))
        }
        DaemonState::Dead => Some(format!("dead: its daemon is gone; detach it with: fzmfs umount {point}")),
        DaemonState::Silent => Some("its daemon does not answer".to_owned()),
        DaemonState::Covered => Some("something else is mounted over it".to_owned()),
        DaemonState::Refused(why) => Some(format!("its daemon cannot be asked: {}", escaped(why))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str, state: DaemonState, stats: Option<Value>) -> Listed {
        let pid = stats.is_some().then_some(4711);
        Listed { source: "/data/a.fzm".into(), point: point.into(), state, pid, stats }
    }

    #[test]
    fn the_table_is_aligned_and_names_what_is_wrong() {
        let stats =
            json!({"cache_bytes": 3 << 20, "cache_limit": 1 << 30, "hits": 3, "misses": 1, "decoded_bytes": 5000});
        let mounts = vec![
            mount("/mnt/x", DaemonState::Serving, Some(stats)),
            mount("/mnt/new\nline", DaemonState::Dead, None),
            mount("/m", DaemonState::Serving, Some(json!({"hits": 0, "misses": 0, "decoded_bytes": "?"}))),
        ];
        let mut out = Vec::new();
        table(&Listing { mounts, others: 2 }, &mut out).unwrap();
        let want = "\
MOUNTPOINT      SOURCE       PID   CACHE               HITS      DECODED
/mnt/x          /data/a.fzm  4711  3.0 MiB of 1.0 GiB  3 (75 %)  4.9 KiB
/mnt/new\\nline  /data/a.fzm  -     -                   -         -
    dead: its daemon is gone; detach it with: fzmfs umount /mnt/new\\nline
/m              /data/a.fzm  4711  -                   0         -
2 mounts of other users are not shown
";
        assert_eq!(String::from_utf8(out).unwrap(), want);
        let mut out = Vec::new();
        table(&Listing { mounts: Vec::new(), others: 0 }, &mut out).unwrap();
        assert_eq!(out, b"no mounts\n");
    }
}
