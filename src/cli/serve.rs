//! `fzmfs serve`: the virtual tree over HTTP.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use super::args;
use super::report::{self, Failure, Outcome};
use crate::archive::{Access, Archive, Directory};
use crate::mirror::Layout;
use crate::serve::{Addresses, Admission, Page, ServeOptions, ServedTree, listener, serve};
use crate::source::Location;
use crate::text::escaped;

/// Requests answered at once from a server, which they mostly wait for.
const FAR: usize = 64;
/// Requests answered at once however few threads decode: some only wait for a disk, or for one another.
const LEAST: usize = 8;

pub(super) fn run(args: &args::Serve, out: &mut dyn Write) -> Outcome {
    let system = |e: io::Error| Failure::new(format_args!("{}: {}", args.reach.listen, crate::error::os_explain(&e)));
    // systemd may have passed another one than --listen says.
    let listener = listener(args.reach.listen).map_err(system)?;
    let ip = listener.local_addr().map_err(system)?.ip();
    args.reading.start()?;
    if args.reach.no_token && !args.reach.public && !is_loopback(ip) {
        let why = "--no-token lets everybody read who can connect; on an address that is not loopback say --public";
        return Err(Failure::usage(why));
    }
    if args.reach.nfs.is_some() && !args.reach.public && !is_loopback(ip) {
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
        args.mirroring.report_unused(&args.file, false);
        let archive = Archive::open_with(&args.file, &options, Access::Random, gpu).map_err(refused)?;
        args.reading.report_unused(&args.file, &archive.info().map_err(refused)?);
        ServedTree::one(archive)
    };
    let admission = Admission::new(capability(&args.reach)?, args.reach.host.clone());
    let allow_origin = args.allow_origin.clone();
    let threads = if Location::is_remote(&args.file) { FAR } else { (2 * options.thread_count()).max(LEAST) };
    let page = page(args)?;
    let mut printed = Ok(());
    let (nfs, metrics, until_eof) = (args.reach.nfs, args.metrics, args.until_eof);
    let options = ServeOptions { listener, admission, allow_origin, threads, page, nfs, metrics, until_eof };
    let served = serve(tree, options, |at| printed = announce(&args.file, at, ip, out));
    printed.map_err(|e| report::output(&e))?;
    served.map_err(system)
}

/// The secret path; `None` if everybody may read.
fn capability(reach: &args::Reach) -> Result<Option<String>, Failure> {
    if reach.no_token || reach.public {
        return Ok(None);
    }
    let Some(file) = &reach.token else {
        let random = Admission::random_capability();
        return random.map(Some).map_err(|e| Failure::new(crate::error::os_explain(&e)));
    };
    let failed = |why: &str| Failure::new(format_args!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|e| failed(&crate::error::os_explain(&e)))?;
    let token = text.trim_end();
    if !Admission::is_capability(token) {
        return Err(failed("a token has 22 to 256 letters, digits, - and _, as `openssl rand -hex 16` makes it"));
    }
    Ok(Some(token.to_owned()))
}

fn page(args: &args::Serve) -> Result<Page, Failure> {
    if let Some(frame) = args.frame.iter().find(|frame| !Page::is_origin(frame)) {
        return Err(Failure::usage(format!("--frame: {frame} is not an origin such as http://localhost:8888")));
    }
    if let Some(viewer) = args.viewer.as_ref().filter(|viewer| !viewer.join("index.html").is_file()) {
        return Err(Failure::usage(format!("--viewer: {} has no index.html", viewer.display())));
    }
    Ok(Page { frames: args.frame.clone(), name: name(&args.file), viewer: args.viewer.clone() })
}

/// Says where `file` is served.
fn announce(file: &Path, at: &Addresses, ip: IpAddr, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", escaped(&format!("{} is served at {}", file.display(), at.url)))?;
    if let Some((port, path)) = &at.nfs {
        let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        let options = format!("vers=3,tcp,port={port},mountport={port},nolock,soft,ro");
        writeln!(out, "for NFS: mount -t nfs -o {options} {ip}:{path} DIR")?;
    }
    out.flush()
}

fn check_layout(layout: Layout) -> Outcome {
    match layout {
        Layout::Replace | Layout::Beside => Ok(()),
        Layout::Flat | Layout::Plain => Err(Failure::usage("only a mount has the layouts flat and plain")),
    }
}

/// The name of what is served.
fn name(source: &Path) -> String {
    let whole = std::path::absolute(source).unwrap_or_default();
    whole.file_name().map_or_else(|| "fzmfs".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}
