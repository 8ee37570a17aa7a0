//! Archives for tests, a block at a time.

/// Bytes of a block.
const BLOCK_LEN: usize = 512;

/// A header with the right sum.
pub(crate) fn header(name: &str, kind: u8, size: u64, link: &str) -> Vec<u8> {
    let mut block = vec![0; BLOCK_LEN];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000640\0");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000001750\0");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    summed(block)
}

/// `block` with its sum.
pub(crate) fn summed(mut block: Vec<u8>) -> Vec<u8> {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// `bytes` in whole blocks.
pub(crate) fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(BLOCK_LEN), 0);
    bytes
}

/// A member with content.
pub(crate) fn member(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    [header(name, kind, content.len() as u64, ""), padded(content)].concat()
}

/// A member without content.
pub(crate) fn entry(name: &str, kind: u8, link: &str) -> Vec<u8> {
    header(name, kind, 0, link)
}

/// A member of pax with these records.
pub(crate) fn pax(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let record = |(key, value): &(&str, &str)| {
        let rest = format!(" {key}={value}\n");
        let len = (1..9).map(|digits| rest.len() + digits).find(|len| len.to_string().len() + rest.len() == *len);
        format!("{}{rest}", len.unwrap_or(0))
    };
    member("./PaxHeaders/x", kind, records.iter().map(record).collect::<String>().as_bytes())
}
