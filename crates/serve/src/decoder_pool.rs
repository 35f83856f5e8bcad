//! A pool of decoders for bodies that are inflated while they are sent.
//!
//! Each decoder takes 76 KiB. A new one is allowed while all held bytes, with it, stay within half of
//! `server.heldBytes`. Beyond that, the body whose client has not read for the longest time loses its decoder to
//! another body, and starts again from its beginning when its client reads again. Slow clients therefore cost time, not
//! memory.
//!
//! A body that starts again sends a piece before it can lose its decoder once more ([`DecoderSlot::can_be_taken`]).
//! Otherwise more bodies than there are decoders would take them from each other forever.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use docwharf_base::codec::inflate::{SMALL_INFLATER_BYTES, SmallInflater};
use docwharf_base::locks::{Mutex, MutexGuard};

use super::held_bytes::{HELD, HeldBytes, HeldBytesGuard};

/// A new decoder is allowed while all held bytes, with it, stay within `server.heldBytes` divided by this number.
const HELD_LIMIT_DIVISOR: u64 = 2;
/// The number of decoders that are always allowed, even if responses hold more memory than the limit.
const MIN_DECODERS: usize = 8;
/// The time after which a body that has not used its decoder may lose it, whether it has sent something or not.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The decoders that bodies use.
#[derive(Debug)]
pub(super) struct DecoderPool {
    held: &'static HeldBytes,
    /// The slots that hold a decoder.
    slots: Mutex<Vec<Arc<DecoderSlot>>>,
}

/// The decoders of this process.
static POOL: DecoderPool = DecoderPool::new(&HELD);

/// The time at which the first decoder was used; later uses are in microseconds since then.
static FIRST_USE: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// A decoder that was returned. Most bodies are sent in one turn and use this one.
    static SPARE: Cell<Option<Box<SmallInflater>>> = const { Cell::new(None) };
}

#[derive(Debug, Default)]
struct DecoderSlot {
    lent: Mutex<Option<LentDecoder>>,
    /// The last use of the decoder, in microseconds since [`FIRST_USE`].
    used_at: AtomicU64,
    /// Whether bytes that this decoder has decoded were sent.
    has_sent: AtomicBool,
}

#[derive(Debug)]
struct LentDecoder {
    decoder: Box<SmallInflater>,
    _hold: HeldBytesGuard,
}

/// The handle of a body to its decoder. Another body may take the decoder.
#[derive(Debug)]
pub(super) struct DecoderClaim {
    pool: &'static DecoderPool,
    slot: Option<Arc<DecoderSlot>>,
}

fn now() -> u64 {
    u64::try_from(FIRST_USE.elapsed().as_micros()).unwrap_or(u64::MAX)
}

impl DecoderSlot {
    /// Returns whether the body may lose its decoder: it has sent something since it got it, or it has been idle for
    /// long.
    fn can_be_taken(&self, now: u64) -> bool {
        let idle = now.saturating_sub(self.used_at.load(Ordering::Relaxed));
        self.has_sent.load(Ordering::Relaxed) || u128::from(idle) >= IDLE_TIMEOUT.as_micros()
    }
}

impl DecoderPool {
    const fn new(held: &'static HeldBytes) -> DecoderPool {
        DecoderPool { held, slots: Mutex::new(Vec::new()) }
    }

    fn lock_slots(&self) -> MutexGuard<'_, Vec<Arc<DecoderSlot>>> {
        self.slots.lock()
    }

    /// Returns a decoder at the start of a stream for `slot`; `None` if all are in use.
    fn obtain_decoder(&self, slot: &Arc<DecoderSlot>) -> Option<LentDecoder> {
        let mut slots = self.lock_slots();
        let bytes = SMALL_INFLATER_BYTES as u64;
        let hold = match self.held.try_hold_up_to(self.held.limit() / HELD_LIMIT_DIVISOR, bytes) {
            None if slots.len() < MIN_DECODERS => Some(self.held.hold(bytes)),
            hold => hold,
        };
        let lent = match hold {
            Some(hold) => LentDecoder { decoder: SPARE.take().unwrap_or_default(), _hold: hold },
            None => take_least_recently_used(&mut slots)?,
        };
        slots.push(Arc::clone(slot));
        Some(lent)
    }
}

/// Takes the decoder from the body that has used its own least recently.
fn take_least_recently_used(slots: &mut Vec<Arc<DecoderSlot>>) -> Option<LentDecoder> {
    let now = now();
    let takeable = (0..slots.len()).filter(|&index| slots[index].can_be_taken(now));
    let index = takeable.min_by_key(|&index| slots[index].used_at.load(Ordering::Relaxed))?;
    // A body that is using its decoder holds the lock, and its decoder is not taken.
    let mut lent = slots[index].lent.try_lock()?.take()?;
    slots.swap_remove(index);
    lent.decoder.reset();
    Some(lent)
}

impl DecoderClaim {
    /// Creates a handle without a decoder; the first step obtains one.
    pub(super) fn new() -> DecoderClaim {
        DecoderClaim { pool: &POOL, slot: None }
    }

    /// Runs `step` with the decoder; `None` if no decoder is free now. The second argument of `step` is whether the
    /// decoder is at the start of a stream, because this is the first step or because another body took the decoder
    /// meanwhile.
    pub(super) fn with_decoder<T>(&mut self, step: impl FnOnce(&mut SmallInflater, bool) -> T) -> Option<T> {
        let slot = self.slot.get_or_insert_with(Arc::default);
        let mut guard = slot.lent.lock();
        let is_new = guard.is_none();
        if is_new {
            slot.has_sent.store(false, Ordering::Relaxed);
            *guard = self.pool.obtain_decoder(slot);
        }
        let lent = guard.as_mut()?;
        slot.used_at.store(now(), Ordering::Relaxed);
        Some(step(&mut lent.decoder, is_new))
    }

    /// Records that bytes from this decoder are being sent.
    pub(super) fn mark_sent(&self) {
        if let Some(slot) = &self.slot {
            slot.has_sent.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the decoder to the pool.
    pub(super) fn release(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let mut slots = self.pool.lock_slots();
        if let Some(index) = slots.iter().rposition(|other| Arc::ptr_eq(other, &slot)) {
            slots.swap_remove(index);
        }
        drop(slots);
        let lent = slot.lent.lock().take();
        if let Some(LentDecoder { mut decoder, .. }) = lent {
            decoder.reset();
            SPARE.set(Some(decoder));
        }
    }
}

impl Drop for DecoderClaim {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_new(claim: &mut DecoderClaim) -> bool {
        let is_new = claim.with_decoder(|_, is_new| is_new).expect("a decoder is free");
        claim.mark_sent();
        is_new
    }

    #[test]
    fn a_full_decoder_pool_takes_the_decoder_of_the_longest_idle_body() {
        static HELD: HeldBytes = HeldBytes::new(HELD_LIMIT_DIVISOR * 20 * SMALL_INFLATER_BYTES as u64);
        static POOL: DecoderPool = DecoderPool::new(&HELD);
        let claim = || DecoderClaim { pool: &POOL, slot: None };
        let mut all: Vec<DecoderClaim> = (0..20).map(|_| claim()).collect();
        assert!(all.iter_mut().all(is_new));
        std::thread::sleep(Duration::from_millis(1));
        assert!(all.iter_mut().skip(1).all(|claim| !is_new(claim)), "they have their decoders");
        let mut more = claim();
        assert!(is_new(&mut more));
        assert!(all.iter_mut().skip(1).all(|claim| !is_new(claim)), "only the first one lost its decoder");
        assert_eq!((HELD.held(), POOL.lock_slots().len()), (20 * SMALL_INFLATER_BYTES as u64, 20));
        assert!(is_new(&mut all[0]), "it starts again");
        drop((all, more));
        assert_eq!((HELD.held(), POOL.lock_slots().len()), (0, 0));
    }

    #[test]
    fn a_decoder_can_be_taken_from_a_body_that_has_sent_data_or_was_idle_too_long() {
        let timeout = IDLE_TIMEOUT.as_micros() as u64;
        for (used_at, now, has_sent, expected) in [
            (1000, 1000, false, false),
            (1000, 1000, true, true),
            (1000, 999 + timeout, false, false),
            (1000, 1000 + timeout, false, true),
            // Another thread may have used it since.
            (1000, 0, false, false),
        ] {
            let slot = DecoderSlot::default();
            slot.used_at.store(used_at, Ordering::Relaxed);
            slot.has_sent.store(has_sent, Ordering::Relaxed);
            assert_eq!(slot.can_be_taken(now), expected, "{used_at} {now} {has_sent}");
        }
    }

    #[test]
    fn a_body_that_has_not_sent_data_yet_does_not_lose_its_decoder() {
        static HELD: HeldBytes = HeldBytes::new(0);
        static POOL: DecoderPool = DecoderPool::new(&HELD);
        let claim = || DecoderClaim { pool: &POOL, slot: None };
        let mut all: Vec<DecoderClaim> = (0..MIN_DECODERS).map(|_| claim()).collect();
        for claim in &mut all {
            assert_eq!(claim.with_decoder(|_, is_new| is_new), Some(true), "a few decoders are always allowed");
        }
        let mut more = claim();
        assert_eq!(more.with_decoder(|_, _| ()), None);
        all[3].mark_sent();
        assert_eq!(more.with_decoder(|_, is_new| is_new), Some(true));
        assert_eq!(all[3].with_decoder(|_, _| ()), None, "its decoder was taken");
        assert_eq!(POOL.lock_slots().len(), MIN_DECODERS);
        drop(more);
        assert_eq!(all[3].with_decoder(|_, is_new| is_new), Some(true));
    }
}
