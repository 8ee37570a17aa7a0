//! FZM files of any stages over given segments.

/// A chain of stages of one output, the first of which is the source.
pub(crate) fn chain(stages: &[(u16, Vec<u8>)], stored: &[u8], len: u64) -> Vec<u8> {
    let stage = |(i, (kind, config)): (usize, &(u16, Vec<u8>))| {
        let input = if i == 0 { 100 } else { i as u16 };
        Stage { kind: *kind, inputs: vec![input], outputs: vec![i as u16 + 1], config: config.clone() }
    };
    file(&stages.iter().enumerate().map(stage).collect::<Vec<_>>(), &[stored.to_vec()], len)
}

/// A row of the stage table.
pub(crate) struct Stage {
    pub(crate) kind: u16,
    pub(crate) inputs: Vec<u16>,
    pub(crate) outputs: Vec<u16>,
    pub(crate) config: Vec<u8>,
}

/// A file of version 3.1 with its checksums, whose segments are the outputs of the last stage.
pub(crate) fn file(stages: &[Stage], segments: &[Vec<u8>], len: u64) -> Vec<u8> {
    let last = &stages[stages.len() - 1];
    let slots =
        |ids: &[u16]| (0..8).flat_map(|i| ids.get(i).copied().unwrap_or(u16::MAX).to_le_bytes()).collect::<Vec<_>>();
    let config = |config: &[u8]| {
        let mut field = config.to_vec();
        field.resize(128, 0);
        field.extend((config.len() as u32).to_le_bytes());
        field
    };
    let mut tables = Vec::new();
    for stage in stages {
        let mut row = [stage.kind.to_le_bytes(), 1_u16.to_le_bytes()].concat();
        row.extend([stage.inputs.len() as u8, stage.outputs.len() as u8, 0, 0]);
        row.extend([slots(&stage.inputs), slots(&stage.outputs), config(&stage.config)].concat());
        row.resize(256, 0);
        tables.extend(row);
    }
    let mut at = 0;
    for ((port, id), segment) in (0_u8..).zip(&last.outputs).zip(segments) {
        let size = segment.len() as u64;
        let mut row = [last.kind.to_le_bytes(), 1_u16.to_le_bytes()].concat();
        row.extend([0, port]);
        row.extend(id.to_le_bytes());
        row.extend(format!("port{port}").as_bytes());
        row.resize(8 + 64, 0);
        row.extend([size, size, size, at].iter().flat_map(|n| n.to_le_bytes()));
        row.extend(config(&last.config));
        row.resize(256, 0);
        tables.extend(row);
        at += size;
    }
    let payload = segments.concat();
    let mut core = b"2ZMF\x01\x03".to_vec();
    core.extend((segments.len() as u16).to_le_bytes());
    core.extend([len, payload.len() as u64, 80 + tables.len() as u64].iter().flat_map(|n| n.to_le_bytes()));
    core.extend((stages.len() as u32).to_le_bytes());
    core.extend([1_u16, 3].iter().flat_map(|n| n.to_le_bytes()));
    core.extend([len, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    core.extend([crc32fast::hash(&payload), 0].iter().flat_map(|n| n.to_le_bytes()));
    let crc = crc32fast::hash(&[&core[..], &tables].concat());
    core.truncate(76);
    core.extend(crc.to_le_bytes());
    [core, tables, payload].concat()
}
