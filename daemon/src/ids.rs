//! Ids of what a session owns: an index plus a reuse counter, so that an id of something released names nothing.

/// A table of `T` under ids that are never 0 and never come twice.
#[derive(Debug)]
pub struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Entry<T> {
    /// How often the index was given out before.
    reuse: u32,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { entries: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Table<T> {
    /// Keeps a value and names it. `None` when all 2^32 - 1 indices are in use.
    pub fn insert(&mut self, value: T) -> Option<u64> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.entries.len()).ok().filter(|index| *index < u32::MAX)?;
                self.entries.push(Entry { reuse: 0, value: None });
                index
            }
        };
        let entry = self.entries.get_mut(index as usize)?;
        entry.value = Some(value);
        self.len += 1;
        Some(id(index, entry.reuse))
    }

    pub fn get(&self, id: u64) -> Option<&T> {
        let (index, reuse) = parts(id)?;
        let entry = self.entries.get(index as usize)?;
        if entry.reuse == reuse { entry.value.as_ref() } else { None }
    }

    /// Takes a value out; its id names nothing from now on.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let (index, reuse) = parts(id)?;
        let entry = self.entries.get_mut(index as usize)?;
        if entry.reuse != reuse {
            return None;
        }
        let value = entry.value.take()?;
        self.len -= 1;
        // An index whose counter would wrap is retired: its first id must not come again.
        if let Some(next) = entry.reuse.checked_add(1) {
            entry.reuse = next;
            self.free.push(index);
        }
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }
}

fn id(index: u32, reuse: u32) -> u64 {
    u64::from(reuse) << 32 | u64::from(index + 1)
}

fn parts(id: u64) -> Option<(u32, u32)> {
    Some(((id as u32).checked_sub(1)?, (id >> 32) as u32))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a map that never forgets which ids were given out.
        #[test]
        fn ids_never_come_twice_and_released_ones_name_nothing(steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let (mut table, mut live, mut seen) = (Table::default(), HashMap::new(), HashSet::new());
            for (step, (insert, pick)) in steps.into_iter().enumerate() {
                if insert || live.is_empty() {
                    let id = table.insert(step).unwrap();
                    prop_assert!(id != 0 && seen.insert(id));
                    live.insert(id, step);
                } else {
                    let ids: Vec<u64> = live.keys().copied().collect();
                    let id = ids[pick.index(ids.len())];
                    prop_assert_eq!(table.remove(id), live.remove(&id));
                    prop_assert_eq!(table.remove(id), None);
                }
                prop_assert_eq!(table.len(), live.len());
                for id in &seen {
                    prop_assert_eq!(table.get(*id), live.get(id));
                }
            }
        }

        #[test]
        fn no_id_from_outside_panics(id: u64) {
            let mut table = Table::default();
            table.insert(1);
            if id != 1 {
                prop_assert_eq!(table.get(id), None);
                prop_assert_eq!(table.remove(id), None);
            }
        }
    }

    #[test]
    fn an_index_is_retired_before_its_counter_wraps() {
        let mut table = Table::default();
        table.insert(());
        table.entries[0].reuse = u32::MAX;
        let last = u64::from(u32::MAX) << 32 | 1;
        assert_eq!(table.remove(last), Some(()));
        assert_eq!(table.insert(()), Some(2));
    }
}
