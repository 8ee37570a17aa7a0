//! A store of python-blosc2: members of an archive or files of a directory that are frames, those in the embedded
//! store, and the tables among all of them.
//!
//! Shows as: a directory for each leaf, named after its key; other members as they are. Members of an archive that is
//! no store have their own names.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::about::Attributes;
use crate::format::{Arrays, Check, Entry, File, Found, Node, Options};
use crate::source::Source;

use super::embed_store::{self, EmbedStore};
use super::frames::OpenFrame;
use super::info;
use super::table::{Leaves, Tables};

/// The member with the small leaves, and the usual extensions of the others. No extension of a leaf is part of its key.
pub(super) const EMBEDDED: &[u8] = b"embed.b2e";
pub(super) const LEAVES: [&[u8]; 3] = [b".b2nd", b".b2f", b".b2b"];

/// A member of an archive, or a file of a directory.
pub(super) trait StoreMember: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &[u8];

    /// Whether it is a frame.
    ///
    /// # Errors
    /// As [`StoreMember::open_frame`].
    fn is_frame(&self) -> Result<bool>;

    /// Opens the frame that it is; `None` if it is something else.
    ///
    /// # Errors
    /// Fails if it is corrupt, or cannot be read now.
    fn open_frame(&self) -> Result<Option<Arc<OpenFrame>>>;

    /// The file or directory that it is shown as. A corrupt one becomes a file that fails on every use.
    ///
    /// # Errors
    /// Fails if it cannot be read now.
    fn node(self: &Arc<Self>) -> Result<Node>;
}

/// A store, or an archive that is none.
pub(super) struct Store<M> {
    members: Arc<Members<M>>,
    tables: Arc<Tables>,
}

/// The members, and those in the embedded store.
struct Members<M> {
    source: Arc<Source>,
    all: Vec<Arc<M>>,
    /// For each leaf of a store, the length of its key, which its name begins with.
    keys: Option<Vec<usize>>,
    /// The members with the attributes of a group, by its name.
    groups: HashMap<Vec<u8>, usize>,
    /// `None` also if it is broken: then it is shown as it is.
    embedded: Option<Arc<EmbedStore>>,
}

/// The length of the key of `member`, which is that of its name if it is not a leaf.
fn key_len(member: &impl StoreMember) -> Result<usize> {
    let name = member.name();
    if let Some(key) = LEAVES.iter().find_map(|suffix| name.strip_suffix(*suffix)) {
        return Ok(key.len());
    }
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    // A leading dot begins no extension.
    let dot = last.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0);
    let Some(dot) = dot.filter(|_| name != EMBEDDED) else { return Ok(name.len()) };
    match member.is_frame() {
        Err(e) if !e.is_lasting() => Err(e),
        Ok(true) => Ok(name.len().saturating_sub(last.len().saturating_sub(dot))),
        _ => Ok(name.len()),
    }
}

impl<M: StoreMember> Store<M> {
    /// The members `all` in the file `source`, or in the directory of that file.
    ///
    /// # Errors
    /// Fails if a member cannot be read now.
    pub(super) fn new(source: &Arc<Source>, all: Vec<Arc<M>>, is_store: bool, options: &Options) -> Result<Self> {
        let members = Arc::new(Members::new(source, all, is_store, options)?);
        let leaves: Arc<dyn Leaves> = members.clone();
        let tables = Arc::new(Tables::find(&members.keys(), &leaves, options)?);
        Ok(Self { members, tables })
    }

    /// The members.
    pub(super) fn members(&self) -> &[Arc<M>] {
        &self.members.all
    }

    /// Adds what `info.json` says of its root and its tables.
    pub(super) fn add_info(&self, details: &mut Map<String, Value>) {
        self.tables.add_info(details);
        info::with_attributes(details, self.tables.attributes(b"").or_else(|| self.members.attributes(b"")));
    }

    /// Its entries.
    ///
    /// # Errors
    /// Fails if a member cannot be read now.
    pub(super) fn entries(&self) -> Result<Vec<Entry>> {
        let shown = self.members.all.iter().zip(0..).filter(|(m, _)| !m.name().ends_with(b"/"));
        let named = shown.filter_map(|(m, index)| Some((self.members.name(index)?, m)));
        let entry = |(name, m): (&[u8], &Arc<M>)| Ok(Entry { nested: true, ..Entry::named(name, "", m.node()?) });
        let embedded = self.members.embedded.iter().flat_map(EmbedStore::entries).map(Ok);
        self.tables.with_entries(named.map(entry).chain(embedded))
    }

    /// Its arrays.
    ///
    /// # Errors
    /// Fails if a table cannot be read now.
    pub(super) fn arrays(&self) -> Result<Arc<dyn Arrays>> {
        self.tables.with_arrays(self.members.clone())
    }

    /// The checks of its frames and tables.
    pub(super) fn checks(&self) -> Vec<Check> {
        let mut checks = self.tables.checks();
        for member in &self.members.all {
            let name = String::from_utf8_lossy(member.name()).into_owned();
            let embedded = self.members.embedded.as_ref().filter(|_| member.name() == EMBEDDED);
            match (member.open_frame(), embedded) {
                (Ok(Some(_)), Some(store)) => checks.extend(store.checks(&format!("{name}: "))),
                (Ok(Some(frame)), None) => checks.extend(frame.checks(&format!("{name}: "))),
                (Ok(None), _) => {}
                (Err(e), _) => checks.push(Check::Run { name, bytes: 0, run: Box::new(move || Err(e.clone())) }),
            }
        }
        checks
    }
}

impl<M: StoreMember> Members<M> {
    fn new(source: &Arc<Source>, all: Vec<Arc<M>>, is_store: bool, options: &Options) -> Result<Self> {
        let source = Arc::clone(source);
        let Some(member) = all.iter().find(|member| is_store && member.name() == EMBEDDED) else {
            let keys = is_store.then(|| all.iter().map(|member| key_len(&**member)).collect()).transpose()?;
            return Ok(Self { source, all, keys, groups: HashMap::new(), embedded: None });
        };
        let frame = match member.open_frame() {
            Err(e) if e.is_lasting() => None,
            frame => frame?.filter(|frame| embed_store::is_store(&frame.frame)),
        };
        let embedded = match frame.map(|frame| EmbedStore::open_in(frame, options)).transpose() {
            Err(e) if e.is_lasting() => None,
            store => store?,
        };
        let keys: Vec<_> = all.iter().map(|member| key_len(&**member)).collect::<Result<_>>()?;
        let named = all.iter().zip(&keys).map(|(member, &len)| member.name().get(..len).unwrap_or_default());
        let groups = embed_store::by_group(named);
        Ok(Self { source, all, keys: Some(keys), groups, embedded })
    }

    /// The keys of the leaves of a store, with their numbers.
    fn keys(&self) -> Vec<(&[u8], u64)> {
        let count = self.keys.as_ref().map_or(0, Vec::len);
        let own = (0..to_u64(count)).filter_map(|index| Some((self.name(index)?, index)));
        let embedded = self.embedded.iter().flat_map(|store| store.keys());
        let from = to_u64(self.all.len());
        own.chain(embedded.map(|(key, index)| (key, from.saturating_add(index)))).collect()
    }

    fn member(&self, index: u64) -> Result<&Arc<M>> {
        self.all.get(to_usize(index, "member")?).ok_or_else(|| Error::new(Kind::NotFound, "member"))
    }

    /// The number of `index` in the embedded store, if it is one there.
    fn embedded(&self, index: u64) -> Option<(&Arc<EmbedStore>, u64)> {
        Some((self.embedded.as_ref()?, index.checked_sub(to_u64(self.all.len()))?))
    }

    /// The name to show member `index` by; `None` if it is not shown.
    fn name(&self, index: u64) -> Option<&[u8]> {
        let index = usize::try_from(index).ok()?;
        let name = self.all.get(index)?.name();
        let Some(keys) = &self.keys else { return Some(name) };
        let key = name.get(..*keys.get(index)?)?;
        let is_helper = embed_store::is_vlmeta(key) || (self.embedded.is_some() && name == EMBEDDED);
        (!is_helper).then_some(key)
    }

    /// The attributes of the group `name` of a store, which is empty for the root.
    fn attributes(&self, name: &[u8]) -> Option<Result<Attributes>> {
        match self.groups.get(name).and_then(|&index| self.all.get(index)) {
            Some(member) => Some(member.open_frame().transpose()?.and_then(|frame| frame.data()?.attributes())),
            None => self.embedded.as_ref()?.attributes(name),
        }
    }
}

impl<M: StoreMember> Leaves for Members<M> {
    fn open(&self, index: u64) -> Result<Arc<OpenFrame>> {
        match self.embedded(index) {
            Some((store, index)) => store.open(index),
            None => self.member(index)?.open_frame()?.ok_or_else(|| Error::corrupt("not a frame", "member")),
        }
    }

    fn source(&self) -> &Arc<Source> {
        &self.source
    }
}

/// The arrays of the members that are frames, opened on first use.
impl<M: StoreMember> Arrays for Members<M> {
    fn count(&self) -> u64 {
        to_u64(self.all.len()).saturating_add(self.embedded.as_ref().map_or(0, |store| store.count()))
    }

    fn find(&self, index: u64) -> Result<Found> {
        if let Some((store, index)) = self.embedded(index) {
            return store.find(index);
        }
        let member = self.member(index)?;
        let Some(name) = self.name(index) else { return Ok(Found::Nothing) };
        match member.open_frame().and_then(|frame| frame.map(|frame| frame.found(name)).transpose()) {
            Ok(found) => Ok(found.unwrap_or(Found::Nothing)),
            Err(e) if e.is_lasting() => Ok(Found::LeftOut(name.to_vec(), e.to_string().into())),
            Err(e) => Err(e),
        }
    }

    fn file(&self, index: u64) -> Result<File> {
        self.open(index)?.data()
    }

    fn group(&self, name: &[u8]) -> Result<Attributes> {
        self.attributes(name).unwrap_or_else(|| Ok(Attributes::new()))
    }
}
