//! The calls of ONC RPC (RFC 5531) that a client makes of MOUNT and NFS (RFC 1813), and their replies.
#![forbid(unsafe_code)]

use super::export::{Attributes, Export, Failed, Handle, Status};
use super::xdr::{Writer, XdrReader};
use crate::bytes::to_u64;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const VERSION: u32 = 3;
/// Most bytes of a read and of a list in one reply.
const READ: u32 = 512 << 10;
/// Bytes of a reply besides its entries.
const FRAME: u64 = 256;
/// Access granted to a file (read) and to a directory (read, look up, execute), in the bits of ACCESS3.
const FILE_ACCESS: u32 = 1;
const DIRECTORY_ACCESS: u32 = 1 | 2 | 32;

/// Why a call is not carried out.
enum Refused {
    NoProgram,
    NoVersion,
    NoProcedure,
    Garbage,
}

/// The reply to the call in `record`; `None` if it is none, and the connection is to end.
pub(super) async fn answer(export: &Export, record: &[u8]) -> Option<Vec<u8>> {
    let mut call = XdrReader(record);
    let (xid, kind, rpc) = (call.u32()?, call.u32()?, call.u32()?);
    let (program, version, procedure) = (call.u32()?, call.u32()?, call.u32()?);
    // Skip the credential and the verifier: all clients have the same rights.
    for _ in 0..2 {
        call.u32()?;
        call.opaque()?;
    }
    if kind != 0 {
        return None;
    }
    let mut out = Writer::default();
    if rpc != 2 {
        out.u32s(&[xid, 1, 1, 0, 2, 2]);
        return Some(out.0);
    }
    let result = match (program, version) {
        (NFS, VERSION) => nfs(export, procedure, call).await,
        (MOUNT, VERSION) => mount(export, procedure, call).await,
        (NFS | MOUNT, _) => Err(Refused::NoVersion),
        _ => Err(Refused::NoProgram),
    };
    out.u32s(&[xid, 1, 0, 0, 0]);
    match result {
        Ok(mut result) => out.u32(0).0.append(&mut result.0),
        Err(Refused::NoProgram) => _ = out.u32(1),
        Err(Refused::NoVersion) => _ = out.u32s(&[2, VERSION, VERSION]),
        Err(Refused::NoProcedure) => _ = out.u32(3),
        Err(Refused::Garbage) => _ = out.u32(4),
    }
    Some(out.0)
}

async fn mount(export: &Export, procedure: u32, mut call: XdrReader<'_>) -> Result<Writer, Refused> {
    let mut out = Writer::default();
    match procedure {
        // Nothing, mount, list of mounts, unmount, unmount all, list of exports: there is none to see.
        0 | 3 | 4 => {}
        1 => {
            let path = call.opaque().ok_or(Refused::Garbage)?;
            match export.mounted(path).await {
                Ok(handle) => _ = out.u32(0).opaque(&handle.0).u32s(&[2, 1, 0]),
                Err(_) => _ = out.u32(Status::NoEntry as u32),
            }
        }
        2 | 5 => _ = out.u32(0),
        _ => return Err(Refused::NoProcedure),
    }
    Ok(out)
}

async fn nfs(export: &Export, procedure: u32, mut call: XdrReader<'_>) -> Result<Writer, Refused> {
    let mut out = Writer::default();
    if procedure == 0 {
        return Ok(out);
    }
    // Words of the attributes that follow the status of a failure, all of them absent.
    let absent = match procedure {
        1 => 0,
        3..=6 | 16..=20 => 1,
        2 | 7..=13 | 21 => 2,
        14 => 4,
        15 => 3,
        _ => return Err(Refused::NoProcedure),
    };
    let handle = call.opaque().ok_or(Refused::Garbage)?;
    let done = match Handle::of(handle) {
        None => Err(Status::BadHandle),
        Some(handle) => match procedure {
            1 => export.attributes(&handle).await.map(|attributes| _ = write(out.u32(0), &attributes)),
            3 => lookup(export, &handle, call.opaque().ok_or(Refused::Garbage)?, &mut out).await,
            4 => access(export, &handle, call.u32().ok_or(Refused::Garbage)?, &mut out).await,
            5 => Err(Status::Invalid),
            6 => {
                let (offset, count) = (call.u64().ok_or(Refused::Garbage)?, call.u32().ok_or(Refused::Garbage)?);
                read(export, &handle, offset, count, &mut out).await
            }
            16 | 17 => {
                let (cookie, _verifier) = (call.u64().ok_or(Refused::Garbage)?, call.u64().ok_or(Refused::Garbage)?);
                let (mut count, is_plus) = (call.u32().ok_or(Refused::Garbage)?, procedure == 17);
                if is_plus {
                    count = call.u32().ok_or(Refused::Garbage)?;
                }
                list(export, &handle, cookie, count, is_plus, &mut out).await
            }
            18..=20 => about(export, &handle, procedure, &mut out).await,
            _ => Err(Status::ReadOnly),
        },
    };
    if let Err(status) = done {
        out = Writer::default();
        out.u32(status as u32).u32s(&vec![0; absent]);
    }
    Ok(out)
}

async fn lookup(export: &Export, dir: &Handle, name: &[u8], out: &mut Writer) -> Result<(), Failed> {
    let found = export.lookup(dir, name).await?;
    let attributes = export.attributes(&found).await?;
    write(out.u32(0).opaque(&found.0).u32(1), &attributes).u32(0);
    Ok(())
}

async fn access(export: &Export, handle: &Handle, asked: u32, out: &mut Writer) -> Result<(), Failed> {
    let attributes = export.attributes(handle).await?;
    let may = if attributes.is_directory { DIRECTORY_ACCESS } else { FILE_ACCESS };
    write(out.u32s(&[0, 1]), &attributes).u32(may & asked);
    Ok(())
}

async fn read(export: &Export, handle: &Handle, offset: u64, count: u32, out: &mut Writer) -> Result<(), Failed> {
    let attributes = export.attributes(handle).await?;
    let bytes = export.read(handle, offset, count.min(READ)).await?;
    let len = to_u64(bytes.len());
    let is_last = offset.saturating_add(len) >= attributes.size;
    write(out.u32s(&[0, 1]), &attributes).u32(len as u32).u32(is_last.into()).opaque(&bytes);
    Ok(())
}

/// Entries without their attributes: a client that wants them looks each up, so that a list decodes nothing.
async fn list(
    export: &Export,
    dir: &Handle,
    cookie: u64,
    count: u32,
    is_plus: bool,
    out: &mut Writer,
) -> Result<(), Failed> {
    let attributes = export.attributes(dir).await?;
    let entries = export.entries(dir, cookie).await?;
    write(out.u32s(&[0, 1]), &attributes).u64(0);
    let (mut at, start) = (cookie, out.len());
    let room = u64::from(count.min(READ)).saturating_sub(FRAME);
    while let Some((id, name)) = entries.get(at) {
        if out.len() - start + to_u64(name.len()) + 40 > room {
            break;
        }
        at += 1;
        out.u32(1).u64(id).opaque(name.as_bytes()).u64(at);
        if is_plus {
            out.u32s(&[0, 0]);
        }
    }
    let is_last = entries.get(at).is_none();
    if at == cookie && !is_last {
        return Err(Status::TooSmall);
    }
    out.u32s(&[0, is_last.into()]);
    Ok(())
}

/// FSSTAT, FSINFO and PATHCONF.
async fn about(export: &Export, handle: &Handle, procedure: u32, out: &mut Writer) -> Result<(), Failed> {
    let attributes = export.attributes(handle).await?;
    let out = write(out.u32s(&[0, 1]), &attributes);
    match procedure {
        // Sizes and free space, of bytes and of files: none is said, for ever.
        18 => (0..6).for_each(|_| _ = out.u64(0)),
        // Sizes of reads, writes and lists; the largest file; whole seconds; a tree of one kind.
        19 => _ = out.u32s(&[READ, READ, 4096, READ, READ, 4096, 64 << 10]).u64(i64::MAX as u64).u32s(&[1, 0, 8]),
        // No links, long names, which are never cut; case matters.
        _ => _ = out.u32s(&[1, 255, 1, 1, 0, 1]),
    }
    if procedure == 18 {
        out.u32(u32::MAX);
    }
    Ok(())
}

fn write<'a>(out: &'a mut Writer, attributes: &Attributes) -> &'a mut Writer {
    let Attributes { is_directory, id, size, seconds, user, group } = *attributes;
    let (kind, mode, links) = if is_directory { (2, 0o555, 2) } else { (1, 0o444, 1) };
    out.u32s(&[kind, mode, links, user, group]).u64(size).u64(size).u32s(&[0, 0]).u64(0).u64(id);
    out.u32s(&[seconds, 0, seconds, 0, seconds, 0])
}
