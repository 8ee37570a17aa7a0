//! HMAC-SHA256.
//!
//! Reference: RFC 2104.
#![forbid(unsafe_code)]

use sha2::{Digest, Sha256};

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// The code of the concatenation of `parts` under `key`.
pub(super) fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let pad = |byte: u8| {
        let mut block = [byte; BLOCK];
        block.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
        block
    };
    let inner = parts.iter().fold(Sha256::new_with_prefix(pad(0x36)), Sha256::chain_update);
    Sha256::new_with_prefix(pad(0x5C)).chain_update(inner.finalize()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_rfc_4231() {
        let hex = |code: [u8; 32]| code.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let key = |bytes: &[u8]| {
            let mut key = [0; 32];
            key.iter_mut().zip(bytes).for_each(|(key, byte)| *key = *byte);
            key
        };
        // Keys of fewer bytes are padded with zeros.
        assert_eq!(
            hex(hmac(&key(&[0x0B; 20]), &[b"Hi ", b"There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(hmac(&key(b"Jefe"), &[b"what do ya want for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
