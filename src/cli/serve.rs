//! `fzmfs serve`: the virtual tree over HTTP.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;

use rustix::process::{Signal, getpid, kill_process};

use super::args;
use super::report::{self, Failure, Outcome};
use crate::archive::{Access, Archive, Directory};
use crate::mirror::Layout;
use crate::serve::{Addresses, Admission, Page, ServeOptions, ServedTree, serve};
use crate::source::Location;
use crate::text::escaped;

/// Requests answered at once from a server, which they mostly wait for.
const FAR: usize = 64;
/// Requests answered at once however few threads decode: some only wait for a disk, or for one another.
const LEAST: usize = 8;

pub(super) fn run(args: &args::Serve, out: &mut dyn Write) -> Outcome {
    args.reading.start()?;
    let is_open = args.reach.no_token || args.reach.public;
    if args.reach.no_token && !args.reach.public && !is_loopback(args.reach.listen) {
        let why = "--no-token lets everybody read who can connect; on an address that is not loopback say --public";
        return Err(Failure::usage(why));
    }
    if args.reach.nfs.is_some() && !args.reach.public && !is_loopback(args.reach.listen) {
        let why = "--nfs sends its secret path unencrypted; on an address that is not loopback say --public";
        return Err(Failure::usage(why));
    }
    let refused = |e| Failure::of(&args.file, &e);
    let (options, gpu) = (args.reading.options(), args.reading.gpu());
    let rules = args.mirroring.rules();
    let directory = Directory::of(&args.file, &options, rules, gpu.clone(), Access::Random).map_err(refused)?;
    let tree = if let Some(directory) = directory {
        check_layout(directory.layout())?;
        args.reading.report_unused_remote(&args.file);
        ServedTree::many(directory)
    } else {
        args.mirroring.report_unused(&args.file);
        let archive = Archive::open_with(&args.file, &options, Access::Random, gpu).map_err(refused)?;
        args.reading.report_unused(&args.file, &archive.info().map_err(refused)?);
        ServedTree::one(archive)
    };
    let system = |e: io::Error| Failure::new(format_args!("{}: {}", args.reach.listen, crate::error::os_explain(&e)));
    let admission = Admission::new(!is_open, args.reach.host.clone()).map_err(system)?;
    let allow_origin = args.allow_origin.clone();
    let threads = if Location::is_remote(&args.file) { FAR } else { (2 * options.thread_count()).max(LEAST) };
    let page = page(args)?;
    if args.until_eof {
        thread::spawn(end_with_input);
    }
    let mut printed = Ok(());
    let options = ServeOptions {
        listen: args.reach.listen,
        admission,
        allow_origin,
        threads,
        page,
        nfs: args.reach.nfs,
        metrics: args.metrics,
    };
    let served = serve(tree, options, |at| printed = announce(&args.file, at, args.reach.listen, out));
    printed.map_err(|e| report::output(&e))?;
    served.map_err(system)
}

fn page(args: &args::Serve) -> Result<Page, Failure> {
    if let Some(frame) = args.frame.iter().find(|frame| !Page::is_origin(frame)) {
        return Err(Failure::usage(format!("--frame: {frame} is no origin such as http://localhost:8888")));
    }
    if let Some(viewer) = args.viewer.as_ref().filter(|viewer| !viewer.join("index.html").is_file()) {
        return Err(Failure::usage(format!("--viewer: {} has no index.html", viewer.display())));
    }
    Ok(Page { frames: args.frame.clone(), name: name(&args.file), viewer: args.viewer.clone() })
}

/// Says where `file` is served.
fn announce(file: &Path, at: &Addresses, listen: SocketAddr, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", escaped(&format!("{} is served at {}", file.display(), at.url)))?;
    if let Some((port, path)) = &at.nfs {
        let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        let options = format!("vers=3,tcp,port={port},mountport={port},nolock,soft,ro");
        writeln!(out, "for NFS: mount -t nfs -o {options} {}:{path} DIR", listen.ip())?;
    }
    out.flush()
}

fn check_layout(layout: Layout) -> Outcome {
    match layout {
        Layout::Replace | Layout::Beside => Ok(()),
        Layout::Flat | Layout::Plain => Err(Failure::usage("only a mount has the layouts flat and plain")),
    }
}

/// Ends this process as a signal does, when nothing holds its standard input any more.
fn end_with_input() {
    io::copy(&mut io::stdin(), &mut io::sink()).ok();
    kill_process(getpid(), Signal::TERM).ok();
}

/// The name of what is served.
fn name(source: &Path) -> String {
    let whole = std::path::absolute(source).unwrap_or_default();
    whole.file_name().map_or_else(|| "fzmfs".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn is_loopback(listen: SocketAddr) -> bool {
    match listen.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}
