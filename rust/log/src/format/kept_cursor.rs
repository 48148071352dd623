//! A cursor that a log keeps: its state, and the metadata that was committed with it.

use super::{DecodeError, Decoded, u32_at, u64_at};

/// Longest name of a cursor, bytes.
pub const MAX_CURSOR_NAME: usize = 512;
/// Most bytes of metadata beside a committed offset.
pub const MAX_METADATA: usize = 384;
/// Longest entry of a cursor.
pub(super) const CURSOR_LEN_MAX: usize = 18 + MAX_CURSOR_NAME + MAX_METADATA;

/// Bytes before the payload of an entry.
const ENTRY_HEAD: usize = 4;
const WRONG_LENGTH: DecodeError = DecodeError::Damaged("a log fact of the wrong length");

/// A consumer group's position, kept in the log that the group's members write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorState {
    /// Offset of the next record to be delivered.
    pub offset: u64,
    /// A checksum of what lies before it, which would differ for another input.
    pub crc: u32,
    /// Rises by one when a member takes or moves the cursor, so that no state of it comes twice.
    pub turn: u32,
}

impl CursorState {
    /// No cursor: to move one to this is to forget it.
    pub const NONE: Self = Self { offset: u64::MAX, crc: 0, turn: 0 };
}

/// A cursor with what the committing process left beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptCursor {
    pub(super) state: CursorState,
    pub(super) metadata: Box<[u8]>,
}

/// Return the bytes of a cursor's entry in a snapshot.
pub fn cursor_len(name: &[u8], metadata: &[u8]) -> u64 {
    (ENTRY_HEAD + 18 + name.len() + metadata.len()) as u64
}

/// Encode the payload of a cursor's entry.
pub(super) fn encode_cursor(name: &[u8], cursor: CursorState, metadata: &[u8]) -> Vec<u8> {
    let mut payload = cursor.offset.to_le_bytes().to_vec();
    payload.extend(cursor.crc.to_le_bytes());
    payload.extend(cursor.turn.to_le_bytes());
    payload.extend((name.len() as u16).to_le_bytes());
    payload.extend_from_slice(name);
    payload.extend_from_slice(metadata);
    payload
}

/// Decode a cursor's name, state and metadata.
pub(super) fn decode_cursor(payload: &[u8]) -> Decoded<(&[u8], CursorState, &[u8])> {
    let (offset, crc, turn) = (u64_at(payload, 0), u32_at(payload, 8), u32_at(payload, 12));
    let len = usize::from(u16::from_le_bytes([payload[16], payload[17]]));
    let (name, metadata) = payload[18..].split_at_checked(len).ok_or(WRONG_LENGTH)?;
    if name.is_empty() || len > MAX_CURSOR_NAME || metadata.len() > MAX_METADATA {
        return Err(WRONG_LENGTH);
    }
    Ok((name, CursorState { offset, crc, turn }, metadata))
}
