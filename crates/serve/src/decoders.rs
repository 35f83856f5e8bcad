//! Decoders of bodies that are inflated as they are sent. Each takes 76 KiB, and there are so many of them at a time as half of
//! `server.heldBytes` has room for. Beyond that, the body that has waited longest for its reader gives its decoder up to one
//! that is read, and begins anew when its own reader takes bytes again: slow readers pay for it with time, and nobody with memory.
//!
//! A body that begins anew has a piece to send before it can lose its decoder once more ([`Slot::may_lose`]). Otherwise more
//! bodies than there are decoders would take them from each other for ever.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use docwharf_base::codec::inflate::{SMALL_BYTES, SmallInflate};

use super::held::{HELD, HeldBytes, Hold};

/// Part of the bytes that may be held which decoders may take.
const PART: u64 = 2;
/// So many there may always be, whatever else is held.
const FEWEST: usize = 8;
/// A body that has not used its decoder for so long waits for its reader, whether it has sent something or not.
const IDLE: Duration = Duration::from_secs(5);

/// Decoders that bodies have.
#[derive(Debug)]
pub(super) struct DecoderPool {
    held: &'static HeldBytes,
    /// Slots with a decoder in them.
    lent: Mutex<Vec<Arc<Slot>>>,
}

/// The decoders of this process.
static POOL: DecoderPool = DecoderPool::new(&HELD);

/// When the first decoder was used: uses are told in microseconds since then.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// A decoder that was given back. Most bodies are sent whole in one turn, and get this one.
    static SPARE: Cell<Option<Box<SmallInflate>>> = const { Cell::new(None) };
}

#[derive(Debug, Default)]
struct Slot {
    lent: Mutex<Option<Lent>>,
    /// When it was last used; see [`BEGUN`].
    used: AtomicU64,
    /// Whether something was sent that it has decoded.
    has_sent: AtomicBool,
}

#[derive(Debug)]
struct Lent {
    decoder: Box<SmallInflate>,
    _hold: Hold,
}

/// A body's claim on a decoder.
#[derive(Debug)]
pub(super) struct DecoderClaim {
    pool: &'static DecoderPool,
    slot: Option<Arc<Slot>>,
}

fn now() -> u64 {
    u64::try_from(BEGUN.elapsed().as_micros()).unwrap_or(u64::MAX)
}

impl Slot {
    /// Whether its body can lose the decoder without ever getting further.
    fn may_lose(&self, now: u64) -> bool {
        let idle = now.saturating_sub(self.used.load(Ordering::Relaxed));
        self.has_sent.load(Ordering::Relaxed) || u128::from(idle) >= IDLE.as_micros()
    }
}

impl DecoderPool {
    const fn new(held: &'static HeldBytes) -> DecoderPool {
        DecoderPool { held, lent: Mutex::new(Vec::new()) }
    }

    fn lent(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A decoder at the start of a stream, for `slot`; none if all are in use.
    fn obtain(&self, slot: &Arc<Slot>) -> Option<Lent> {
        let mut all = self.lent();
        let bytes = SMALL_BYTES as u64;
        let hold = match self.held.try_hold_below(self.held.limit() / PART, bytes) {
            None if all.len() < FEWEST => Some(self.held.hold(bytes)),
            hold => hold,
        };
        let lent = match hold {
            Some(hold) => Lent { decoder: SPARE.take().unwrap_or_default(), _hold: hold },
            None => take_from_idle(&mut all)?,
        };
        all.push(Arc::clone(slot));
        Some(lent)
    }
}

/// Takes the decoder away from the body that has used its own least recently.
fn take_from_idle(all: &mut Vec<Arc<Slot>>) -> Option<Lent> {
    let now = now();
    let idle = (0..all.len()).filter(|&at| all[at].may_lose(now));
    let at = idle.min_by_key(|&at| all[at].used.load(Ordering::Relaxed))?;
    // A body that uses it now holds its lock; that is not idle.
    let mut lent = all[at].lent.try_lock().ok()?.take()?;
    all.swap_remove(at);
    lent.decoder.reset();
    Some(lent)
}

impl DecoderClaim {
    /// No decoder yet: it is given with the first step.
    pub(super) fn new() -> DecoderClaim {
        DecoderClaim { pool: &POOL, slot: None }
    }

    /// Does `step` with the decoder; nothing if there is none now. It is told whether the decoder stands at the start of a
    /// stream, because it is the first step or because the decoder was given to another body meanwhile.
    pub(super) fn with<T>(&mut self, step: impl FnOnce(&mut SmallInflate, bool) -> T) -> Option<T> {
        let slot = self.slot.get_or_insert_with(Arc::default);
        let mut guard = slot.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = guard.is_none();
        if is_new {
            slot.has_sent.store(false, Ordering::Relaxed);
            *guard = self.pool.obtain(slot);
        }
        let lent = guard.as_mut()?;
        slot.used.store(now(), Ordering::Relaxed);
        Some(step(&mut lent.decoder, is_new))
    }

    /// Says that something is sent of what the decoder has decoded.
    pub(super) fn has_sent(&self) {
        if let Some(slot) = &self.slot {
            slot.has_sent.store(true, Ordering::Relaxed);
        }
    }

    /// Gives the decoder up.
    pub(super) fn give_up(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let mut all = self.pool.lent();
        if let Some(at) = all.iter().rposition(|known| Arc::ptr_eq(known, &slot)) {
            all.swap_remove(at);
        }
        drop(all);
        let lent = slot.lent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Lent { mut decoder, .. }) = lent {
            decoder.reset();
            SPARE.set(Some(decoder));
        }
    }
}

impl Drop for DecoderClaim {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_new(claim: &mut DecoderClaim) -> bool {
        let is_new = claim.with(|_, is_new| is_new).expect("there is one");
        claim.has_sent();
        is_new
    }

    #[test]
    fn there_are_so_many_decoders_as_may_be_held_and_the_idlest_body_gives_its_own_up() {
        static HELD: HeldBytes = HeldBytes::new(PART * 20 * SMALL_BYTES as u64);
        static POOL: DecoderPool = DecoderPool::new(&HELD);
        let claim = || DecoderClaim { pool: &POOL, slot: None };
        let mut all: Vec<DecoderClaim> = (0..20).map(|_| claim()).collect();
        assert!(all.iter_mut().all(is_new));
        std::thread::sleep(Duration::from_millis(1));
        assert!(all.iter_mut().skip(1).all(|claim| !is_new(claim)), "they are kept");
        let mut more = claim();
        assert!(is_new(&mut more));
        assert!(all.iter_mut().skip(1).all(|claim| !is_new(claim)), "the first was idle for longest");
        assert_eq!((HELD.held(), POOL.lent().len()), (20 * SMALL_BYTES as u64, 20));
        assert!(is_new(&mut all[0]), "it begins anew");
        drop((all, more));
        assert_eq!((HELD.held(), POOL.lent().len()), (0, 0));
    }

    #[test]
    fn a_body_that_has_sent_nothing_since_it_has_its_decoder_does_not_lose_it() {
        static HELD: HeldBytes = HeldBytes::new(0);
        static POOL: DecoderPool = DecoderPool::new(&HELD);
        let claim = || DecoderClaim { pool: &POOL, slot: None };
        let mut all: Vec<DecoderClaim> = (0..FEWEST).map(|_| claim()).collect();
        for claim in &mut all {
            assert_eq!(claim.with(|_, is_new| is_new), Some(true), "some there are whatever is held");
        }
        let mut more = claim();
        assert_eq!(more.with(|_, _| ()), None);
        all[3].has_sent();
        assert_eq!(more.with(|_, is_new| is_new), Some(true));
        assert_eq!(all[3].with(|_, _| ()), None, "now it waits");
        assert_eq!(POOL.lent().len(), FEWEST);
        drop(more);
        assert_eq!(all[3].with(|_, is_new| is_new), Some(true));
    }
}
