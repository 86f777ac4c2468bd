//! The plan cache: the same question gets the same plan under the same id, and is computed once.
//!
//! Entries are weak; what keeps a plan is the cache's own bounded list of the recent ones, or a session's lease. So a plan
//! that a session still holds keeps its id however many others came after it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;
use hippihx_kernels::catalogue::Op;
use hippihx_kernels::plan::{Target, complete, resolve};
use hippihx_kernels::{Caps, Fabric, MAX_PARAMS, ParamValue, Plan, Refusal};

/// A plan with its id. Ids start at 1 and never come twice.
#[derive(Debug)]
pub struct CachedPlan {
    pub id: u64,
    pub plan: Plan,
}

/// The whole question: slot and wave resolved, params bit for bit. The ABI revision is the daemon's own and one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    op: i32,
    slot: i32,
    wave: i32,
    dtype: i32,
    fabric: Option<Fabric>,
    count: usize,
    params: [ParamValue; MAX_PARAMS],
}

impl Key {
    fn new(target: &Target, fabric: Option<Fabric>, given: &[ParamValue]) -> Option<Key> {
        let mut params = [ParamValue::default(); MAX_PARAMS];
        params.get_mut(..given.len())?.copy_from_slice(given);
        let (op, slot, dtype) = (target.op.id, target.slot.id, target.dtype.code());
        Some(Key { op, slot, wave: target.wave, dtype, fabric, count: given.len(), params })
    }
}

/// Counts since start, and what is held now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanCacheStats {
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub entries: u64,
    pub capacity: u64,
}

#[derive(Debug)]
pub struct PlanCache {
    plans: DashMap<Key, Weak<CachedPlan>, RandomState>,
    recent: Mutex<VecDeque<(Key, Arc<CachedPlan>)>>,
    capacity: usize,
    next: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

impl PlanCache {
    /// A cache that keeps the `capacity` newest plans.
    pub fn new(capacity: usize) -> PlanCache {
        PlanCache {
            plans: DashMap::with_hasher(RandomState::default()),
            recent: Mutex::new(VecDeque::new()),
            capacity,
            next: AtomicU64::new(1),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The plan for a question, and whether it was there.
    ///
    /// # Errors
    /// The contract's refusals; they are not cached.
    pub fn plan(
        &self,
        op: &'static Op,
        caps: &Caps<'_>,
        params: &[ParamValue],
    ) -> Result<(Arc<CachedPlan>, bool), Refusal> {
        let target = resolve(op, Some(caps.arch.as_bytes()), caps.wave, caps.dtype)?;
        let fabric = if op.needs_fabric { caps.fabric } else { None };
        let compute = || complete(&target, params, fabric.as_ref());
        // More params than any op takes: complete says so.
        let Some(key) = Key::new(&target, fabric, params) else {
            let plan = compute()?;
            return Ok((Arc::new(CachedPlan { id: self.next.fetch_add(1, Ordering::Relaxed), plan }), false));
        };
        if let Some(found) = self.plans.get(&key).and_then(|entry| entry.upgrade()) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok((found, true));
        }
        // The entry's lock is held while the plan is computed: concurrent first plans of one key compute once.
        let mut entry = self.plans.entry(key);
        if let Entry::Occupied(occupied) = &mut entry
            && let Some(found) = occupied.get().upgrade()
        {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok((found, true));
        }
        let made = Arc::new(CachedPlan { id: self.next.fetch_add(1, Ordering::Relaxed), plan: compute()? });
        self.misses.fetch_add(1, Ordering::Relaxed);
        match entry {
            Entry::Occupied(mut occupied) => drop(occupied.insert(Arc::downgrade(&made))),
            Entry::Vacant(vacant) => drop(vacant.insert(Arc::downgrade(&made))),
        }
        self.keep(key, &made);
        Ok((made, false))
    }

    pub fn stats(&self) -> PlanCacheStats {
        PlanCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            entries: self.recent.lock().unwrap_or_else(PoisonError::into_inner).len() as u64,
            capacity: self.capacity as u64,
        }
    }

    /// Puts a plan on the list of the recent ones, and drops the oldest when that is full.
    fn keep(&self, key: Key, made: &Arc<CachedPlan>) {
        let evicted = {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.push_back((key, Arc::clone(made)));
            if recent.len() > self.capacity { recent.pop_front() } else { None }
        };
        let Some((key, plan)) = evicted else { return };
        self.evictions.fetch_add(1, Ordering::Relaxed);
        drop(plan);
        self.forget(&key);
    }

    /// Removes the entry of a plan that nobody holds any more; called when a lease ends, too.
    fn forget(&self, key: &Key) {
        self.plans.remove_if(key, |_, plan| plan.strong_count() == 0);
    }

    /// Gives a session's lease back.
    pub fn release(&self, plan: Arc<CachedPlan>) {
        let (target, params) = (target_of(&plan.plan), plan.plan.params().to_vec());
        let fabric = plan.plan.fabric;
        drop(plan);
        if let Some(key) = Key::new(&target, fabric, &params) {
            self.forget(&key);
        }
    }
}

fn target_of(plan: &Plan) -> Target {
    Target { op: plan.op, slot: plan.slot, wave: plan.wave, dtype: plan.dtype }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use hippihx_kernels::op_by_id;

    use super::*;

    fn params(max_tokens: i64) -> Vec<ParamValue> {
        let mut params: Vec<_> = [0, 128, 32, 8, 16, 4, 0, 0, max_tokens].map(ParamValue::from_i64).to_vec();
        params.push(ParamValue::from_f64(0.1));
        params
    }

    fn ask(cache: &PlanCache, arch: &str, max_tokens: i64) -> (Arc<CachedPlan>, bool) {
        cache.plan(op_by_id(0).unwrap(), &Caps { arch, ..Caps::default() }, &params(max_tokens)).unwrap()
    }

    #[test]
    fn the_same_question_gets_the_same_id_and_another_slot_does_not() {
        let cache = PlanCache::new(8);
        let (first, cached) = ask(&cache, "gfx1030", 8);
        assert!(!cached);
        let (again, cached) = ask(&cache, "gfx1030", 8);
        assert!(cached && again.id == first.id);
        assert_ne!(ask(&cache, "gfx1032", 8).0.id, first.id);
        assert_ne!(ask(&cache, "gfx1030", 9).0.id, first.id);
        // wave 0 and the slot's default are one question.
        let caps = Caps { arch: "gfx1030", wave: 32, ..Caps::default() };
        assert_eq!(cache.plan(op_by_id(0).unwrap(), &caps, &params(8)).unwrap().0.id, first.id);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.evictions), (2, 3, 0));
    }

    #[test]
    fn concurrent_first_plans_compute_once() {
        let (cache, start) = (PlanCache::new(64), Barrier::new(8));
        let ids: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        ask(&cache, "gfx1030", 8).0.id
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
        let stats = cache.stats();
        assert_eq!((stats.misses, stats.hits), (1, 7));
    }

    #[test]
    fn the_cache_is_bounded_and_a_lease_keeps_its_id() {
        let cache = PlanCache::new(2);
        let (leased, _) = ask(&cache, "gfx1030", 1);
        let gone = ask(&cache, "gfx1030", 2).0.id;
        for max_tokens in 3..10 {
            ask(&cache, "gfx1030", max_tokens);
        }
        assert_eq!((cache.stats().entries, cache.stats().evictions), (2, 7));
        assert_eq!(ask(&cache, "gfx1030", 1).0.id, leased.id);
        assert_ne!(ask(&cache, "gfx1030", 2).0.id, gone);
        let id = leased.id;
        cache.release(leased);
        assert_ne!(ask(&cache, "gfx1030", 1).0.id, id);
        assert!(cache.plans.len() <= 4);
    }

    #[test]
    fn refusals_are_not_kept() {
        let cache = PlanCache::new(2);
        let caps = Caps { arch: "gfx1030", ..Caps::default() };
        for given in [&params(0)[..], &[ParamValue::default(); 17]] {
            assert!(cache.plan(op_by_id(0).unwrap(), &caps, given).is_err());
        }
        assert_eq!((cache.stats().misses, cache.plans.len()), (0, 0));
    }
}
