//! AVX-512 kernels of [`range_ans`](super::range_ans) for x86-64: 16 states per vector.
//!
//! A [`Kernels`] value exists only if the processor has the features that they are compiled for, which makes the calls
//! sound. Loads and stores go through arrays of vector size; indices of the gathers are masked to the table.
#![expect(unsafe_code, reason = "calls code compiled for AVX-512 once the processor is known to have it")]
#![expect(clippy::unused_self, reason = "the receiver is the proof")]

use std::arch::x86_64::{
    __m512i, _mm_storeu_si128, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512, _mm512_cmplt_epu32_mask,
    _mm512_cvtepi32_epi8, _mm512_cvtepu16_epi32, _mm512_i32gather_epi32, _mm512_loadu_si512, _mm512_mask_or_epi32,
    _mm512_maskz_expand_epi32, _mm512_mullo_epi32, _mm512_set1_epi32, _mm512_slli_epi32, _mm512_srli_epi32,
    _mm512_storeu_si512,
};

use super::ans_lanes::{LANES, Lanes, PAD, SLOTS, START, Slots};

/// States per vector.
const HALF: usize = LANES / 2;

/// Proof that the processor has AVX-512 F and POPCNT.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(());

impl Kernels {
    /// The kernels, if the processor has these features.
    pub(super) fn get() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt")).then_some(Self(()))
    }

    /// Decodes the rows of `N` blocks, all with the same number of rows. Stops early if the words of one run out.
    pub(super) fn rows<const N: usize>(self, slots: &Slots, blocks: [&mut Lanes; N]) {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { rows(slots, blocks) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(states: &[u32; HALF]) -> __m512i {
    // SAFETY: 64 bytes are readable; the load needs no alignment.
    unsafe { _mm512_loadu_si512(states.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(states: &mut [u32; HALF], v: __m512i) {
    // SAFETY: 64 bytes are writable; the store needs no alignment.
    unsafe { _mm512_storeu_si512(states.as_mut_ptr().cast(), v) }
}

/// The low byte of every number.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_bytes(bytes: &mut [u8; HALF], v: __m512i) {
    let low = _mm512_cvtepi32_epi8(v);
    // SAFETY: 16 bytes are writable; the store needs no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), low) }
}

/// The slots of the states.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather(slots: &[u32; SLOTS], states: __m512i) -> __m512i {
    let places = _mm512_and_si512(states, _mm512_set1_epi32(SLOTS as i32 - 1));
    // SAFETY: all indices are below the length of the table.
    unsafe { _mm512_i32gather_epi32::<4>(places, slots.as_ptr().cast()) }
}

/// The next states before they take words.
#[inline]
#[target_feature(enable = "avx512f")]
fn step(slots: __m512i, states: __m512i) -> __m512i {
    let inner = _mm512_and_si512(_mm512_srli_epi32::<8>(slots), _mm512_set1_epi32(SLOTS as i32 - 1));
    let scaled = _mm512_mullo_epi32(_mm512_srli_epi32::<18>(slots), _mm512_srli_epi32::<10>(states));
    _mm512_add_epi32(scaled, inner)
}

/// Lets the small states take the words before `left`, in order.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn refill(states: __m512i, words: &[u8], left: &mut usize) -> Option<__m512i> {
    let small = _mm512_cmplt_epu32_mask(states, _mm512_set1_epi32(START as i32));
    *left = left.checked_sub(2 * small.count_ones() as usize)?;
    let own = words.get(*left..)?.first_chunk::<{ 2 * HALF }>()?;
    // SAFETY: 32 bytes are readable; the load needs no alignment.
    let own = unsafe { _mm256_loadu_si256(own.as_ptr().cast()) };
    let own = _mm512_maskz_expand_epi32(small, _mm512_cvtepu16_epi32(own));
    Some(_mm512_mask_or_epi32(states, small, _mm512_slli_epi32::<16>(states), own))
}

/// Decodes one row: the upper lanes take the later words.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn row(slots: &Slots, [a, b]: &mut [__m512i; 2], words: &[u8], left: &mut usize, out: &mut [u8; LANES]) -> Option<()> {
    let (low, high) = (gather(&slots.0, *a), gather(&slots.0, *b));
    store_bytes(out.first_chunk_mut()?, low);
    store_bytes(out.last_chunk_mut()?, high);
    *b = refill(step(high, *b), words, left)?;
    *a = refill(step(low, *a), words, left)?;
    (*left >= PAD).then_some(())
}

#[target_feature(enable = "avx512f,popcnt")]
fn rows<const N: usize>(slots: &Slots, mut blocks: [&mut Lanes; N]) {
    let mut states = [[_mm512_set1_epi32(0); 2]; N];
    for (own, block) in states.iter_mut().zip(&blocks) {
        if let (Some(low), Some(high)) = (block.states.first_chunk(), block.states.last_chunk()) {
            *own = [load(low), load(high)];
        }
    }
    let count = blocks.iter().map(|block| block.rows.len() / LANES).min().unwrap_or(0);
    for i in (0..count).rev() {
        for (own, block) in states.iter_mut().zip(&mut blocks) {
            let out = block.rows.get_mut(i * LANES..).and_then(<[u8]>::first_chunk_mut);
            let Some(out) = out else { return };
            if row(slots, own, block.words, &mut block.left, out).is_none() {
                return;
            }
        }
    }
    for (own, block) in states.iter().zip(&mut blocks) {
        if let Some(low) = block.states.first_chunk_mut() {
            store(low, own[0]);
        }
        if let Some(high) = block.states.last_chunk_mut() {
            store(high, own[1]);
        }
    }
}
