//! One mount table, searchable: by path and by device, without the mounts that others hide.
//!
//! A mount is hidden when another one was mounted over it or over a folder above it: a call on its mount point then
//! answers for the other one. The order of the lines does not tell (a root file system that an initramfs moved into
//! place comes after `/proc`), so the tree of parent numbers does.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::mountinfo::Entry;
use crate::model::VolumeId;

/// A table without hidden mounts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    entries: Vec<Entry>,
    by_path: HashMap<PathBuf, usize>,
    by_volume: BTreeMap<VolumeId, Vec<usize>>,
}

impl View {
    /// Sorts a table.
    pub fn new(all: Vec<Entry>) -> Self {
        let tree = Tree::new(&all);
        let mut by_path = HashMap::new();
        let mut entries: Vec<Entry> = Vec::with_capacity(all.len());
        for entry in all.iter().filter(|entry| !tree.hides(entry)) {
            // Of several on one path that the tree leaves, the last one is on top.
            match by_path.get(&entry.mountpoint).and_then(|&index: &usize| entries.get_mut(index)) {
                Some(earlier) => *earlier = entry.clone(),
                None => {
                    by_path.insert(entry.mountpoint.clone(), entries.len());
                    entries.push(entry.clone());
                }
            }
        }
        let mut by_volume: BTreeMap<VolumeId, Vec<usize>> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            by_volume.entry(entry.volume.clone()).or_default().push(index);
        }
        Self { entries, by_path, by_volume }
    }

    /// Every volume with its mounts.
    pub fn volumes(&self) -> impl Iterator<Item = (&VolumeId, Vec<&Entry>)> {
        self.by_volume.iter().map(|(id, indexes)| (id, self.entries_at(indexes)))
    }

    /// The mounts of one volume.
    pub fn volume(&self, id: &VolumeId) -> Option<Vec<&Entry>> {
        self.by_volume.get(id).map(|indexes| self.entries_at(indexes))
    }

    /// What is mounted exactly there.
    pub fn at(&self, path: &Path) -> Option<&Entry> {
        self.by_path.get(path).and_then(|&index| self.entries.get(index))
    }

    /// The mount that a path without symbolic links lies on.
    pub fn lookup(&self, path: &Path) -> Option<&Entry> {
        path.ancestors().find_map(|ancestor| self.at(ancestor))
    }

    fn entries_at(&self, indexes: &[usize]) -> Vec<&Entry> {
        indexes.iter().filter_map(|&index| self.entries.get(index)).collect()
    }
}

/// The tree that the parent numbers make.
struct Tree<'a> {
    by_id: HashMap<u64, &'a Entry>,
    /// By the mount that it is mounted in and where: the last one wins.
    by_place: HashMap<(u64, &'a Path), &'a Entry>,
}

impl<'a> Tree<'a> {
    fn new(all: &'a [Entry]) -> Self {
        Self {
            by_id: all.iter().map(|entry| (entry.id, entry)).collect(),
            by_place: all.iter().map(|entry| ((entry.parent, entry.mountpoint.as_path()), entry)).collect(),
        }
    }

    /// Whether another mount hides `entry`. Numbers that make no tree (a table made by hand) hide nothing.
    fn hides(&self, entry: &Entry) -> bool {
        // Something is mounted on its very root.
        if self.by_place.get(&(entry.id, entry.mountpoint.as_path())).is_some_and(|other| other.id != entry.id) {
            return true;
        }
        let mut child = entry;
        // A table of n lines has no chain longer than n; a loop in a damaged one ends here too.
        for _ in 0..self.by_id.len() {
            let Some(&parent) = self.by_id.get(&child.parent).filter(|parent| parent.id != child.id) else { break };
            if !child.mountpoint.starts_with(&parent.mountpoint) {
                break;
            }
            // On the way from the parent's root to the child, something else is met first.
            let met_first = child
                .mountpoint
                .ancestors()
                .take_while(|path| path.starts_with(&parent.mountpoint))
                .filter_map(|path| self.by_place.get(&(parent.id, path)))
                .any(|other| other.id != child.id && other.id != parent.id);
            if met_first {
                return true;
            }
            child = parent;
        }
        false
    }
}
