//! Blocks: what is encoded comes back, and no single wrong bit, salt or place is believed.

use super::*;
use crate::format::checksum;
use crate::format::tests::hex;

const SALT: u64 = 0x1234_5678_9abc_def1;

fn sample(flags: u16) -> BlockHeader {
    let producer = (flags & flag::PRODUCER != 0).then_some(Producer {
        id: 7,
        sequence: u64::MAX,
        span: 3,
        flags: producer_flag::EXPIRING,
    });
    BlockHeader {
        len: (BlockHeader::len_for(flags) + 100) as u32,
        body_crc: 0xdead_beef,
        offset: 77,
        count: 3,
        span: if flags & flag::SPARSE != 0 { 9 } else { 3 },
        time: MAX_RELATIVE_TIME - 1,
        flags,
        topic: if flags & flag::TOPIC != 0 { 42 } else { 0 },
        group_len: if flags & flag::GROUP != 0 { 4096 } else { 0 },
        producer,
        ..BlockHeader::new(Kind::Data)
    }
}

fn encoded(header: &BlockHeader, position: u64) -> (u64, Vec<u8>) {
    let mut out = [0; MAX_HEADER_LEN];
    let (word, len) = header.encode(SALT, checksum::seed(SALT), position, &mut out);
    assert_eq!(&out[..8], [0; 8], "the commit word is stored last, not with the header");
    (word, out[..len].to_vec())
}

fn every_flag_combination() -> impl Iterator<Item = u16> {
    (0..=flag::KNOWN >> 4)
        .map(|bits| bits << 4)
        .filter(|flags| flags & (flag::GROUP | flag::MEMBER) != flag::GROUP | flag::MEMBER)
}

#[test]
fn headers_come_back_with_every_combination_of_extensions() {
    for (flags, body) in every_flag_combination().flat_map(|flags| [(flags, 100), (flags, 0)]) {
        let header =
            BlockHeader { len: (BlockHeader::len_for(flags) + body) as u32, ..sample(flags) };
        let (word, bytes) = encoded(&header, 8192);
        let parsed =
            BlockHeader::parse(CommitWord::parse(word, SALT, 8192).unwrap(), &bytes).unwrap();
        assert_eq!(parsed, header);
        assert!(parsed.verify(word, &bytes, checksum::seed(SALT), 8192));
    }
}

#[test]
fn a_header_is_valid_at_its_own_place_only() {
    let (word, bytes) = encoded(&sample(0), 8192);
    let parsed = BlockHeader::parse(CommitWord::parse(word, SALT, 8192).unwrap(), &bytes).unwrap();
    assert!(!parsed.verify(word, &bytes, checksum::seed(SALT), 8200));
    assert!(!parsed.verify(word, &bytes, checksum::seed(SALT ^ 1), 8192));
    assert!(CommitWord::parse(word, SALT, 8200).is_err());
    assert!(CommitWord::parse(word, SALT ^ 1, 8192).is_err());
}

#[test]
fn every_flipped_bit_of_a_header_is_noticed() {
    for flags in every_flag_combination() {
        let (word, bytes) = encoded(&sample(flags), 8192);
        for bit in 0..bytes.len() * 8 {
            let (mut word, mut bytes) = (word, bytes.clone());
            if bit < 64 {
                word ^= 1 << bit;
            } else {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let accepted = CommitWord::parse(word, SALT, 8192)
                .and_then(|commit| BlockHeader::parse(commit, &bytes))
                .is_ok_and(|h| {
                    h.header_len() <= bytes.len()
                        && h.verify(word, &bytes, checksum::seed(SALT), 8192)
                });
            assert!(!accepted, "bit {bit} of a header with flags {flags:#x}");
        }
    }
}

/// The pairs lie in what a checksum covers, and in the checksum. No pair is left out.
#[test]
fn every_two_flipped_bits_of_a_header_are_noticed() {
    let seed = checksum::seed(SALT);
    for flags in [0, flag::TOPIC | flag::GROUP | flag::SPARSE | flag::PRODUCER] {
        let (word, sound) = encoded(&sample(flags), 8192);
        let bits = 64..sound.len() * 8;
        let flip = |bytes: &mut [u8], bit: usize| bytes[bit / 8] ^= 1 << (bit % 8);
        let is_accepted = |word: u64, bytes: &[u8]| {
            let parsed = CommitWord::parse(word, SALT, 8192)
                .and_then(|commit| BlockHeader::parse(commit, bytes));
            parsed.is_ok_and(|header| {
                header.header_len() <= bytes.len() && header.verify(word, bytes, seed, 8192)
            })
        };
        let mut bytes = sound.clone();
        for first in bits.clone() {
            flip(&mut bytes, first);
            for second in first + 1..bits.end {
                flip(&mut bytes, second);
                assert!(!is_accepted(word, &bytes), "bits {first} and {second}");
                flip(&mut bytes, second);
            }
            // One of the commit word, the other behind it.
            for of_word in 0..40 {
                assert!(!is_accepted(word ^ 1 << of_word, &bytes), "bits {of_word} and {first}");
            }
            flip(&mut bytes, first);
        }
        for pair in (0..40).flat_map(|first| (0..first).map(move |second| 1 << first | 1 << second))
        {
            assert!(!is_accepted(word ^ pair, &sound), "{pair:#x} of the commit word");
        }
    }
}

#[test]
fn a_producers_unknown_flag_is_of_a_newer_version() {
    let mut header = sample(flag::PRODUCER);
    assert_eq!(header.refuse_newer(), Ok(()), "expiring");
    header.producer = header.producer.map(|of| Producer { flags: 2, ..of });
    let (word, bytes) = encoded(&header, 64);
    let parsed = BlockHeader::parse(CommitWord::parse(word, SALT, 64).unwrap(), &bytes).unwrap();
    assert!(parsed.verify(word, &bytes, checksum::seed(SALT), 64));
    assert!(matches!(parsed.refuse_newer(), Err(DecodeError::Unknown(_))));
}

#[test]
fn a_zero_header_is_no_block() {
    assert!(CommitWord::parse(0, 0, 0).is_err());
}

#[test]
fn what_a_newer_version_writes_is_called_unknown_not_damaged() {
    let word = CommitWord { len: 40, kind: Kind::Data }.pack(SALT, 64);
    let newer_kind = word & !(0xff << 32) | 9 << 32;
    assert_eq!(CommitWord::parse(newer_kind, SALT, 64).unwrap().kind, Kind::Newer);
    let mut header = sample(0);
    header.flags = 1 << 15;
    let (word, bytes) = encoded(&header, 64);
    let parsed = BlockHeader::parse(CommitWord::parse(word, SALT, 64).unwrap(), &bytes).unwrap();
    assert!(parsed.verify(word, &bytes, checksum::seed(SALT), 64));
    assert!(matches!(parsed.refuse_newer(), Err(DecodeError::Unknown(_))));
    assert_eq!(BlockHeader { flags: 0x07ff, ..header }.refuse_newer(), Ok(()));
    for bit in 0..16 {
        let refused = BlockHeader { flags: 1 << bit, ..header }.refuse_newer();
        assert_eq!(refused.is_err(), bit >= 11, "bit {bit}");
    }
}

#[test]
fn a_header_of_any_length_is_laid_out_as_words() {
    let seed = checksum::seed(SALT);
    for flags in every_flag_combination() {
        let header = sample(flags);
        let (word, bytes) = encoded(&header, 8192);
        let laid = header.lay_out(SALT, 8192).seal(seed, || header.body_crc);
        assert_eq!((laid.word(), laid.body_crc()), (word, header.body_crc));
        let stored = laid.fixed().into_iter().chain(laid.rest().iter().copied());
        let mut stored: Vec<u8> = stored.flat_map(u64::to_le_bytes).collect();
        assert!(stored[laid.len() - 8..].iter().all(|byte| *byte == 0), "{flags:#x}");
        assert!(8 + stored.len() <= laid.len().next_multiple_of(8), "{flags:#x}");
        stored.truncate(laid.len() - 8);
        assert_eq!(stored, &bytes[8..], "{flags:#x}");
    }
}

fn words(bytes: &[u8]) -> [u64; 3] {
    std::array::from_fn(|i| u64_at(bytes, 8 * (i + 1)))
}

#[test]
fn the_fast_path_reads_what_the_slow_one_reads_and_leaves_the_rest_to_it() {
    let seed = checksum::seed(SALT);
    for flags in every_flag_combination() {
        let header = sample(flags);
        let (word, bytes) = encoded(&header, 8192);
        assert_eq!(CommitWord::data_len(word, SALT, 8192), Some(header.len));
        let plain = PlainHeader::parse(header.len, words(&bytes));
        assert_eq!(plain.is_some(), flags & !flag::PLAIN == 0);
        let Some(plain) = plain else { continue };
        assert_eq!(BlockHeader::from(plain), header);
        assert!(PlainHeader::is_sound(word, words(&bytes), seed, 8192));
        assert!(!PlainHeader::is_sound(word, words(&bytes), seed, 8200));
    }
    let other = CommitWord { len: 40, kind: Kind::Void }.pack(SALT, 64);
    let short = CommitWord { len: 31, kind: Kind::Data }.pack(SALT, 64);
    for word in [0, other, short] {
        assert_eq!(CommitWord::data_len(word, SALT, 64), None);
    }
}

#[test]
fn the_fast_path_believes_no_flipped_bit() {
    let seed = checksum::seed(SALT);
    let (word, bytes) = encoded(&sample(flag::RICH), 8192);
    for bit in 0..bytes.len() * 8 {
        let (mut word, mut bytes) = (word, bytes.clone());
        if bit < 64 {
            word ^= 1 << bit;
        } else {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let len = CommitWord::data_len(word, SALT, 8192);
        let plain = len.and_then(|len| PlainHeader::parse(len, words(&bytes)));
        let sound = PlainHeader::is_sound(word, words(&bytes), seed, 8192);
        let believed = plain.is_some() && sound;
        assert!(!believed, "bit {bit}");
    }
}

#[test]
fn a_header_that_is_cut_off_anywhere_is_damage() {
    for flags in every_flag_combination() {
        let header = sample(flags);
        let (word, bytes) = encoded(&header, 64);
        let commit = CommitWord::parse(word, SALT, 64).unwrap();
        for cut in 0..bytes.len() {
            let found = BlockHeader::parse(commit, &bytes[..cut]);
            assert!(matches!(found, Err(DecodeError::Damaged(_))), "{flags:#x} cut at {cut}");
        }
        // Also where bytes follow, which are then not this block's.
        let short = CommitWord { len: bytes.len() as u32 - 1, kind: Kind::Data };
        if flags != 0 && bytes.len() > HEADER_LEN {
            assert!(BlockHeader::parse(short, &[&bytes[..], &[0; 40]].concat()).is_err());
        }
    }
}

#[test]
fn a_block_is_as_long_as_its_header_at_least() {
    for (len, sound) in [(0, false), (31, false), (32, true), (33, true)] {
        for kind in [Kind::Data, Kind::Void, Kind::Meta, Kind::Snapshot, Kind::End] {
            let word = CommitWord { len, kind };
            let found = CommitWord::parse(word.pack(SALT, 64), SALT, 64);
            assert_eq!(found.ok(), sound.then_some(word));
        }
        let data = CommitWord { len, kind: Kind::Data }.pack(SALT, 64);
        assert_eq!(CommitWord::data_len(data, SALT, 64), sound.then_some(len));
    }
}

#[test]
fn a_word_of_no_kind_is_damage() {
    let word = CommitWord { len: 40, kind: Kind::Data }.pack(SALT, 64) & !(0xff << 32);
    let found = CommitWord::parse(word, SALT, 64);
    assert_eq!(found, Err(DecodeError::Damaged("a block of no kind")));
}

#[test]
fn a_block_of_a_newer_kind_is_refused_by_name() {
    let newer = BlockHeader { kind: Kind::Newer, ..sample(0) };
    let refused = Err(DecodeError::Unknown("a block kind of a newer version"));
    assert_eq!(newer.refuse_newer(), refused);
}

#[test]
fn lengths_are_those_of_the_parts() {
    for flags in every_flag_combination() {
        let header = sample(flags);
        let (_, bytes) = encoded(&header, 64);
        assert_eq!((header.header_len(), header.body_len()), (bytes.len(), 100));
        let padded = header.padded();
        assert!(padded % 8 == 0 && (0..8).contains(&(padded - u64::from(header.len))));
        assert_eq!(CommitWord { len: header.len, kind: Kind::Data }.padded(), padded);
    }
    assert_eq!(BlockHeader::len_for(flag::KNOWN), MAX_HEADER_LEN);
    assert_eq!(BlockHeader::new(Kind::Void).body_len(), 0);
}

#[test]
fn only_what_a_void_block_covers_is_not_checked() {
    for kind in [Kind::Data, Kind::Meta, Kind::Snapshot, Kind::End, Kind::Newer] {
        assert!(BlockHeader::new(kind).has_checked_body());
    }
    assert!(!BlockHeader::new(Kind::Void).has_checked_body());
}

#[test]
fn codecs_keep_their_numbers_and_others_are_of_a_newer_version() {
    let known = [(Codec::Plain, 0), (Codec::Lz4, 1), (Codec::Zstd, 2), (Codec::KafkaBatch, 8)];
    for (codec, number) in known {
        assert_eq!(codec.number(), number);
    }
    for number in 0..=flag::CODEC {
        let header = BlockHeader { flags: number | flag::RICH, ..sample(0) };
        let codec = known.iter().find(|(_, n)| *n == number).map(|(codec, _)| *codec);
        match header.codec() {
            Ok(found) => assert_eq!(Some(found), codec),
            Err(error) => assert!(codec.is_none() && matches!(error, DecodeError::Unknown(_))),
        }
    }
}

fn parsed(header: &BlockHeader) -> Decoded<BlockHeader> {
    let (word, bytes) = encoded(header, 64);
    BlockHeader::parse(CommitWord::parse(word, SALT, 64).unwrap(), &bytes)
}

#[test]
fn a_group_holds_its_first_block_and_begins_with_it() {
    let head = sample(flag::GROUP);
    let whole = head.padded() as u32;
    for (group_len, sound) in [(whole, true), (whole + 8, true), (whole - 8, false), (0, false)] {
        assert_eq!(parsed(&BlockHeader { group_len, ..head }).is_ok(), sound, "{group_len}");
    }
    for uneven in 1..8 {
        assert!(parsed(&BlockHeader { group_len: whole + uneven, ..head }).is_err());
    }
    for flags in (0..=u16::MAX).filter(|flags| flags & 0x60 == 0x60) {
        let found = parsed(&sample(flags));
        assert!(matches!(found, Err(DecodeError::Damaged(_))), "first and later one: {flags:#x}");
    }
    for bit in 0..16 {
        let header = BlockHeader { flags: 1 << bit, ..sample(0) };
        assert_eq!(header.is_member(), bit == 6, "bit {bit}");
    }
}

#[test]
fn a_block_has_as_many_offsets_as_records_at_least() {
    for (span, sound) in [(2, false), (3, true), (4, true)] {
        let found = parsed(&BlockHeader { span, ..sample(flag::SPARSE) });
        assert_eq!(found.ok().map(|header| header.span), sound.then_some(span));
    }
}

// Where the words and sums below were made, by another program than this one. Salt and position share
// bits, so that it matters how they are put together.
const LAID_SALT: u64 = 0x0123_4567_89ab_cdef;
const LAID_AT: u64 = 0x07_6543_2118;
const LAID_WORD: u64 = 0xf870aa0100030201;

fn laid(flags: u16) -> BlockHeader {
    BlockHeader {
        len: 0x0003_0201,
        body_crc: 0x1413_1211,
        offset: 0x2423_2221,
        count: 0x3433_3231,
        span: 0x3433_3231,
        time: 0x4645_4443_4241,
        flags,
        ..BlockHeader::new(Kind::Data)
    }
}

fn is_laid_out(header: &BlockHeader, bytes: &[u8]) {
    let seed = checksum::seed(LAID_SALT);
    let mut out = [0; MAX_HEADER_LEN];
    let (word, len) = header.encode(LAID_SALT, seed, LAID_AT, &mut out);
    assert_eq!((word, &out[..8], &out[8..len]), (LAID_WORD, &[0; 8][..], bytes));
    let whole = [&[0; 8], bytes].concat();
    let read =
        BlockHeader::parse(CommitWord::parse(word, LAID_SALT, LAID_AT).unwrap(), &whole).unwrap();
    assert_eq!(read, *header);
    assert!(read.verify(word, &whole, seed, LAID_AT));
}

#[test]
fn every_field_of_a_header_stands_where_the_format_says() {
    let producer = Producer {
        id: 0x8887_8685_8483_8281,
        sequence: 0x9897_9695_9493_9291,
        span: 0xa4a3_a2a1,
        flags: 0xb4b3_b2b1,
    };
    let header = BlockHeader {
        topic: 0x5453_5251,
        group_len: 0x6463_6258,
        span: 0x7473_7271,
        producer: Some(producer),
        ..laid(0x03b8)
    };
    let bytes = "11121314 5b0ea37a 21222324 31323334 414243444546 b803
        51525354 58626364 71727374 8182838485868788 9192939495969798
        a1a2a3a4 b1b2b3b4";
    is_laid_out(&header, &hex(bytes));
}

#[test]
fn the_fast_path_has_every_field_where_the_format_says() {
    let header = laid(0x0608);
    let bytes = hex("11121314 f6ccfdb4 21222324 31323334 414243444546 0806");
    is_laid_out(&header, &bytes);
    let BlockHeader { len, body_crc, .. } = header;
    let seed = checksum::seed(LAID_SALT);
    let laid = header.lay_out(LAID_SALT, LAID_AT).seal(seed, || body_crc);
    let (word, rest) = (laid.word(), laid.fixed());
    assert_eq!((word, rest.map(u64::to_le_bytes).as_flattened()), (LAID_WORD, &bytes[..]));
    assert_eq!(CommitWord::data_len(word, LAID_SALT, LAID_AT), Some(len));
    assert_eq!(PlainHeader::parse(len, rest).map(BlockHeader::from), Some(header));
    assert!(PlainHeader::is_sound(word, rest, seed, LAID_AT));
}

#[test]
fn a_commit_word_has_length_kind_and_tag_from_its_lowest_bit_on() {
    let kinds =
        [(Kind::Data, 1), (Kind::Void, 2), (Kind::Meta, 3), (Kind::Snapshot, 4), (Kind::End, 5)];
    for (kind, number) in kinds {
        let commit = CommitWord { len: 0x8483_8281, kind };
        let word = 0xf870aa << 40 | number << 32 | 0x8483_8281;
        assert_eq!(commit.pack(LAID_SALT, LAID_AT), word, "{kind:?}");
        assert_eq!(CommitWord::parse(word, LAID_SALT, LAID_AT), Ok(commit));
    }
}

#[test]
fn a_headers_length_is_that_of_its_extensions_whatever_else_is_set() {
    for flags in 0..=u16::MAX {
        let set = |bit: u32| usize::from(flags >> bit & 1);
        let extensions = 4 * (set(4) + set(5) + set(7)) + 24 * set(8);
        assert_eq!(BlockHeader::len_for(flags), 32 + extensions, "{flags:#x}");
    }
    assert_eq!(MAX_HEADER_LEN, 68);
}

#[test]
fn the_fast_path_is_for_codecs_attributes_and_times_alone() {
    for flags in 0..=u16::MAX {
        let found = PlainHeader::parse(40, [0, 0, u64::from(flags) << 48]);
        assert_eq!(found.is_some(), flags & 0xf9f0 == 0, "{flags:#x}");
    }
}
