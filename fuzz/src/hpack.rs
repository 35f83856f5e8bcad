//! HPACK compared with a simple model of RFC 7541, which reads bit by bit and stores its dynamic table as a list. Both
//! accept the same field blocks with the same fields, also with table entries of earlier blocks. Decoding a block at
//! once or one representation at a time returns the same fields. The model can read encoded fields, which add no table
//! entries.

use std::sync::LazyLock;

use docwharf::serve::http2::hpack::{DecodedFields, HpackDecoder, encode};
use http::StatusCode;

use super::fuzz_input::FuzzInput;
use super::rfc7541::{HUFFMAN_CODE_BITS, HUFFMAN_CODES, STATIC_TABLE};

/// The most bytes of a block's fields that are stored, counted as in RFC 9113, 6.5.2.
const MAX_FIELD_LIST_BYTES: usize = 64 * 1024;
/// The default size of the dynamic table (RFC 9113, 6.5.2).
const MAX_TABLE_BYTES: usize = 4096;
/// The overhead of a table entry in addition to its name and value (RFC 7541, 4.1).
const ENTRY_OVERHEAD_BYTES: usize = 32;
/// The most bytes of an integer after its prefix. More could only be zeros (RFC 7541, 5.1).
const MAX_INTEGER_OCTETS: usize = 4;
/// The EOS symbol. A string that contains it is an error (RFC 7541, 5.2).
const EOS: usize = 256;

type Field = (Vec<u8>, Vec<u8>);

/// A node of the Huffman tree.
#[derive(Clone, Copy)]
enum Node {
    Empty,
    Inner(usize),
    Symbol(usize),
}

/// The Huffman codes as a binary tree. The first element is the root.
static HUFFMAN_TREE: LazyLock<Vec<[Node; 2]>> = LazyLock::new(|| {
    let mut tree = vec![[Node::Empty; 2]];
    for (symbol, (code, bits)) in HUFFMAN_CODES.into_iter().zip(HUFFMAN_CODE_BITS).enumerate() {
        let mut node = 0;
        for shift in (1..bits).rev() {
            let bit = (code >> shift & 1) as usize;
            if let Node::Inner(child) = tree[node][bit] {
                node = child;
            } else {
                let child = tree.len();
                tree.push([Node::Empty; 2]);
                tree[node][bit] = Node::Inner(child);
                node = child;
            }
        }
        tree[node][(code & 1) as usize] = Node::Symbol(symbol);
    }
    tree
});

/// The dynamic table of a connection.
struct TableModel {
    /// The newest first.
    entries: Vec<Field>,
    max_size: usize,
}

/// A reader of a field block.
struct BlockReader<'a> {
    block: &'a [u8],
    position: usize,
}

impl<'a> BlockReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn integer(&mut self, prefix_bits: u32) -> Option<usize> {
        let max_prefix = (1usize << prefix_bits) - 1;
        let mut value = usize::from(self.byte()?) & max_prefix;
        if value < max_prefix {
            return Some(value);
        }
        for octet in 0..MAX_INTEGER_OCTETS {
            let byte = usize::from(self.byte()?);
            value += (byte % 128) << (7 * octet);
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let is_huffman = *self.block.get(self.position)? >= 0x80;
        let len = self.integer(7)?;
        let end = self.position.checked_add(len)?;
        let text: &'a [u8] = self.block.get(self.position..end)?;
        self.position = end;
        if is_huffman { huffman_decode(text) } else { Some(text.to_vec()) }
    }
}

/// Decodes a Huffman-coded string (RFC 7541, appendix B).
fn huffman_decode(text: &[u8]) -> Option<Vec<u8>> {
    let (mut output, mut node, mut code_bits, mut is_all_ones) = (Vec::new(), 0, 0, true);
    for bit in text.iter().flat_map(|&byte| (0..8).rev().map(move |shift: u32| usize::from(byte >> shift & 1))) {
        match HUFFMAN_TREE[node][bit] {
            Node::Symbol(EOS) => return None,
            Node::Symbol(symbol) => {
                output.push(symbol as u8);
                (node, code_bits, is_all_ones) = (0, 0, true);
            }
            Node::Inner(child) => (node, code_bits, is_all_ones) = (child, code_bits + 1, is_all_ones && bit == 1),
            Node::Empty => unreachable!("the tree is complete"),
        }
    }
    // The remaining bits are padding: fewer than eight, and all ones.
    (code_bits < 8 && is_all_ones).then_some(output)
}

/// The Huffman codes of the symbols, without padding.
fn huffman_bits(symbols: impl Iterator<Item = usize>) -> Vec<bool> {
    let bits = symbols.flat_map(|symbol| {
        (0..HUFFMAN_CODE_BITS[symbol]).rev().map(move |shift| HUFFMAN_CODES[symbol] >> shift & 1 == 1)
    });
    bits.collect()
}

/// Packs bits into bytes. The last byte is filled with `padding`.
fn pack_bits(bits: &[bool], padding: bool) -> Vec<u8> {
    let byte = |bits: &[bool]| (0..8).fold(0, |byte, at| byte << 1 | u8::from(*bits.get(at).unwrap_or(&padding)));
    bits.chunks(8).map(byte).collect()
}

impl TableModel {
    fn new() -> TableModel {
        TableModel { entries: Vec::new(), max_size: MAX_TABLE_BYTES }
    }

    fn get(&self, index: usize) -> Option<Field> {
        match index.checked_sub(1)? {
            i if i < STATIC_TABLE.len() => Some((STATIC_TABLE[i].0.into(), STATIC_TABLE[i].1.into())),
            i => self.entries.get(i - STATIC_TABLE.len()).cloned(),
        }
    }

    /// The index of the first entry that `is_match` accepts.
    fn find(&self, is_match: impl Fn(&Field) -> bool) -> Option<usize> {
        (1..=STATIC_TABLE.len() + self.entries.len())
            .find(|&index| self.get(index).is_some_and(|field| is_match(&field)))
    }

    /// Removes the oldest entries until the table has its maximum size.
    fn evict(&mut self) {
        while self.entries.iter().map(entry_size).sum::<usize>() > self.max_size {
            self.entries.pop();
        }
    }

    fn insert(&mut self, field: Field) {
        self.entries.insert(0, field);
        self.evict();
    }

    fn resize(&mut self, max_size: usize) -> bool {
        self.max_size = max_size.min(MAX_TABLE_BYTES);
        self.evict();
        max_size <= MAX_TABLE_BYTES
    }

    /// Decodes a block. Returns its fields and the offsets of its representations; `None` if it is malformed.
    fn decode(&mut self, block: &[u8]) -> Option<(Vec<Field>, Vec<usize>)> {
        let mut reader = BlockReader { block, position: 0 };
        let (mut fields, mut offsets) = (Vec::new(), Vec::new());
        while let Some(&first) = block.get(reader.position) {
            offsets.push(reader.position);
            let prefix = match first {
                0x80.. => {
                    fields.push(self.get(reader.integer(7)?)?);
                    continue;
                }
                0x40.. => 6,
                0x20.. => {
                    // At the beginning of a block only (RFC 7541, 4.2).
                    if !fields.is_empty() || !self.resize(reader.integer(5)?) {
                        return None;
                    }
                    continue;
                }
                _ => 4,
            };
            let name = match reader.integer(prefix)? {
                0 => reader.string()?,
                index => self.get(index)?.0,
            };
            let field = (name, reader.string()?);
            if prefix == 6 {
                self.insert(field.clone());
            }
            fields.push(field);
        }
        Some((fields, offsets))
    }
}

fn entry_size((name, value): &Field) -> usize {
    name.len() + value.len() + ENTRY_OVERHEAD_BYTES
}

/// The decoders of a connection.
struct Connection {
    /// docwharf's decoder.
    decoder: HpackDecoder,
    model: TableModel,
    /// docwharf's decoder again. It gets one representation at a time.
    piecewise_decoder: HpackDecoder,
}

impl Connection {
    fn new() -> Connection {
        Connection {
            decoder: HpackDecoder::default(),
            model: TableModel::new(),
            piecewise_decoder: HpackDecoder::default(),
        }
    }

    /// Decodes a block with all decoders and compares the fields. `None` if the block is malformed: a connection error.
    fn decode(&mut self, block: &[u8]) -> Option<Vec<Field>> {
        let mut fields = DecodedFields::default();
        let decoded = self.decoder.decode(block, &mut fields);
        let expected = self.model.decode(block);
        assert_eq!(decoded.is_ok(), expected.is_some(), "right: the model; {block:02x?}");
        let (expected_fields, offsets) = expected?;
        check_stored_fields(&fields, &expected_fields);

        let mut fields = DecodedFields::default();
        let ends = offsets.iter().skip(1).copied().chain([block.len()]);
        for (start, end) in offsets.iter().zip(ends) {
            let decoded = self.piecewise_decoder.decode(&block[*start..end], &mut fields);
            assert!(decoded.is_ok(), "malformed if alone: {:02x?}", &block[*start..end]);
        }
        check_stored_fields(&fields, &expected_fields);
        Some(expected_fields)
    }
}

/// Checks that the first fields up to the limit are stored, and that more fields are reported as too large.
fn check_stored_fields(fields: &DecodedFields, all: &[Field]) {
    let mut sum = 0;
    let fits = |field: &&Field| {
        sum += entry_size(field);
        sum <= MAX_FIELD_LIST_BYTES
    };
    let stored: Vec<&Field> = all.iter().take_while(fits).collect();
    assert_eq!(fields.is_too_large(), stored.len() < all.len());
    assert!(fields.iter().eq(stored.iter().map(|(name, value)| (&name[..], &value[..]))), "{stored:02x?}");
    for (name, _) in stored.iter().take(20) {
        let first = stored.iter().find(|(stored_name, _)| stored_name == name).map(|(_, value)| &value[..]);
        assert_eq!(fields.get(name), first);
    }
}

/// Appends an integer to a block, sometimes with unnecessary zeros. `flags` are the bits before the prefix.
fn append_integer(input: &mut FuzzInput<'_>, value: usize, prefix_bits: u32, flags: u8, block: &mut Vec<u8>) {
    let max_prefix = (1usize << prefix_bits) - 1;
    if value < max_prefix {
        block.push(flags | value as u8);
        return;
    }
    block.push(flags | max_prefix as u8);
    let mut rest = value - max_prefix;
    let mut octets = Vec::new();
    loop {
        octets.push((rest % 128) as u8);
        rest /= 128;
        if rest == 0 {
            break;
        }
    }
    while octets.len() < MAX_INTEGER_OCTETS && input.once_in(8) {
        octets.push(0);
    }
    let last = octets.pop().expect("there is an octet");
    block.extend(octets.iter().map(|&octet| octet | 0x80));
    block.push(last);
}

/// Appends a string to a block, literal or Huffman-coded.
fn append_string(input: &mut FuzzInput<'_>, text: &[u8], block: &mut Vec<u8>) {
    if input.once_in(2) {
        let encoded = pack_bits(&huffman_bits(text.iter().map(|&byte| usize::from(byte))), true);
        append_integer(input, encoded.len(), 7, 0x80, block);
        block.extend_from_slice(&encoded);
    } else {
        append_integer(input, text.len(), 7, 0, block);
        block.extend_from_slice(text);
    }
}

/// Appends a field to a block in one of its representations. `model` is the dynamic table that the decoder will have.
fn append_field(input: &mut FuzzInput<'_>, field: &Field, model: &mut TableModel, block: &mut Vec<u8>) {
    let kind = input.below(4);
    if kind == 3
        && let Some(index) = model.find(|entry| entry == field)
    {
        return append_integer(input, index, 7, 0x80, block);
    }
    // With incremental indexing, without indexing, and never indexed.
    let (prefix_bits, flags) = [(6, 0x40), (4, 0), (4, 0x10)][kind % 3];
    let name_index = model.find(|(name, _)| *name == field.0).filter(|_| input.once_in(2));
    append_integer(input, name_index.unwrap_or(0), prefix_bits, flags, block);
    if name_index.is_none() {
        append_string(input, &field.0, block);
    }
    append_string(input, &field.1, block);
    if prefix_bits == 6 {
        model.insert(field.clone());
    }
}

/// Makes a block malformed.
fn append_malformed(input: &mut FuzzInput<'_>, model: &TableModel, block: &mut Vec<u8>) {
    let bits = |symbols: &[usize]| huffman_bits(symbols.iter().copied());
    let a = usize::from(b'a');
    let encoded = match input.below(10) {
        // EOS alone, EOS in the middle, and padding of eight bits.
        0 => pack_bits(&bits(&[EOS]), true),
        1 => pack_bits(&bits(&[a, EOS, a]), true),
        2 => [pack_bits(&bits(&[a]), true), vec![0xff]].concat(),
        // Padding with zeros. The code of `a` has five bits.
        3 => pack_bits(&bits(&[a]), false),
        4 => vec![0xff],
        // An index beyond the table, and index 0.
        5 => return append_integer(input, STATIC_TABLE.len() + model.entries.len() + 1, 7, 0x80, block),
        6 => return block.push(0x80),
        // An integer that is too long.
        7 => return block.extend_from_slice(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00]),
        // A table size update after a field, and one that is too large.
        8 => return block.extend_from_slice(&[0x82, 0x20]),
        _ => {
            block.clear();
            let beyond = MAX_TABLE_BYTES + 1 + input.below(100);
            return append_integer(input, beyond, 5, 0x20, block);
        }
    };
    block.extend_from_slice(&[0x00, 0x01, b'x', 0x80 | encoded.len() as u8]);
    block.extend_from_slice(&encoded);
}

/// Makes a field.
fn make_field(input: &mut FuzzInput<'_>) -> Field {
    let name =
        input.one_of(&["x", ":method", ":path", "cookie", "x-a-name-of-some-length", "", "accept", "content-type"]);
    let name = if input.once_in(8) { input.bytes(12) } else { name.as_bytes() };
    let value = match input.below(8) {
        0 => Vec::new(),
        1 => b"GET".to_vec(),
        2 => b"/index.html".to_vec(),
        // The table has capacity for a few of these, for one, or for none.
        3 => vec![b'v'; input.one_of(&[1000, 1300, 2000])],
        4 => vec![b'0'; input.one_of(&[4062, 4063, 4064, 5000])],
        _ => {
            let max_len = input.below(40);
            input.bytes(max_len).to_vec()
        }
    };
    (name.to_vec(), value)
}

/// Checks that the model reads an encoded field and adds no table entry.
fn check_encoded((name, value): &Field) {
    let name = String::from_utf8_lossy(name);
    let mut block = Vec::new();
    encode::append_field(&name, value, &mut block);
    let mut model = TableModel::new();
    let (fields, _) = model.decode(&block).unwrap_or_else(|| panic!("{name:?} cannot be decoded: {block:02x?}"));
    assert_eq!(fields, [(name.as_bytes().to_vec(), value.clone())]);
    assert!(model.entries.is_empty(), "{name:?} is in the table");
}

/// The fuzz target (see the module documentation): blocks of any bytes, each after its length, or generated blocks.
pub fn hpack(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let mut connection = Connection::new();
    if input.once_in(2) {
        while !input.is_empty() {
            let max_len = usize::from(input.u16()) % 5000;
            let Some(fields) = connection.decode(input.bytes(max_len)) else { return };
            fields.iter().take(20).for_each(check_encoded);
        }
        return;
    }
    let status = StatusCode::from_u16(100 + input.u16() % 900).expect("a status");
    let mut block = Vec::new();
    encode::append_status(status, &mut block);
    let decoded = TableModel::new().decode(&block).map(|(fields, _)| fields);
    assert_eq!(decoded, Some(vec![(b":status".to_vec(), status.as_str().as_bytes().to_vec())]));

    let mut model = TableModel::new();
    for _ in 0..20 {
        if input.is_empty() {
            break;
        }
        let (mut block, mut fields) = (Vec::new(), Vec::new());
        for _ in 0..input.below(6).saturating_sub(3) {
            let max_size = input.one_of(&[0, 31, 32, 33, 100, 1000, 4095, 4096]);
            append_integer(&mut input, max_size, 5, 0x20, &mut block);
            assert!(model.resize(max_size), "the size is allowed");
        }
        for _ in 0..input.below(12) {
            let field = make_field(&mut input);
            check_encoded(&field);
            // A repeated field may need one byte only.
            let times = if input.once_in(8) { input.below(40) } else { 1 };
            for _ in 0..times {
                append_field(&mut input, &field, &mut model, &mut block);
                fields.push(field.clone());
            }
        }
        if input.once_in(16) {
            append_malformed(&mut input, &model, &mut block);
            assert_eq!(connection.decode(&block), None, "a malformed block is accepted: {block:02x?}");
            return;
        }
        assert_eq!(connection.decode(&block).as_ref(), Some(&fields), "{block:02x?}");
    }
}
