//! HPACK against a model of RFC 7541 that looks at one bit after the other and keeps its table as a list: the same blocks are
//! accepted, with the same fields, and what is kept of one block counts in the next. A block says the same as its
//! representations one by one. What is written is read by the model, and leaves nothing in its table.

use std::sync::LazyLock;

use docwharf::serve::http2::hpack::{DecodedFields, HpackDecoder, encode};
use http::StatusCode;

use super::recipe::Recipe;
use super::rfc7541::{BITS, CODES, STATIC};

/// More than this of the fields of a block, as RFC 9113, 6.5.2 counts them, is not kept.
const MOST_FIELDS: usize = 64 * 1024;
/// The size of a table that nobody has made smaller (RFC 9113, 6.5.2).
const MOST_TABLE: usize = 4096;
/// What an entry counts beyond its name and value (RFC 7541, 4.1).
const OVERHEAD: usize = 32;
/// A number has no more bytes behind its first: an encoder that writes more only adds zeros (RFC 7541, 5.1).
const MOST_OCTETS: usize = 4;
/// The end of a string, which is never sent whole (RFC 7541, 5.2).
const END: usize = 256;

type Field = (Vec<u8>, Vec<u8>);

/// What a bit leads to.
#[derive(Clone, Copy)]
enum Node {
    Nowhere,
    Inner(usize),
    Symbol(usize),
}

/// The codes of all symbols, bit by bit; it begins with the first.
static TREE: LazyLock<Vec<[Node; 2]>> = LazyLock::new(|| {
    let mut tree = vec![[Node::Nowhere; 2]];
    for (symbol, (code, bits)) in CODES.into_iter().zip(BITS).enumerate() {
        let mut at = 0;
        for place in (1..bits).rev() {
            let side = (code >> place & 1) as usize;
            if let Node::Inner(next) = tree[at][side] {
                at = next;
            } else {
                let next = tree.len();
                tree.push([Node::Nowhere; 2]);
                tree[at][side] = Node::Inner(next);
                at = next;
            }
        }
        tree[at][(code & 1) as usize] = Node::Symbol(symbol);
    }
    tree
});

/// The table of a connection.
struct Model {
    /// The newest first.
    entries: Vec<Field>,
    most: usize,
}

/// A block of which something has been read.
struct Reader<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self, bits: u32) -> Option<usize> {
        let full = (1usize << bits) - 1;
        let mut value = usize::from(self.byte()?) & full;
        if value < full {
            return Some(value);
        }
        for octet in 0..MOST_OCTETS {
            let byte = usize::from(self.byte()?);
            value += (byte % 128) << (7 * octet);
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let is_coded = *self.block.get(self.at)? >= 0x80;
        let len = self.number(7)?;
        let end = self.at.checked_add(len)?;
        let text: &'a [u8] = self.block.get(self.at..end)?;
        self.at = end;
        if is_coded { decoded(text) } else { Some(text.to_vec()) }
    }
}

/// What a text says in the code of appendix B.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut at, mut length, mut is_ones) = (Vec::new(), 0, 0, true);
    for bit in text.iter().flat_map(|&byte| (0..8).rev().map(move |place: u32| usize::from(byte >> place & 1))) {
        match TREE[at][bit] {
            Node::Symbol(END) => return None,
            Node::Symbol(symbol) => {
                out.push(symbol as u8);
                (at, length, is_ones) = (0, 0, true);
            }
            Node::Inner(next) => (at, length, is_ones) = (next, length + 1, is_ones && bit == 1),
            Node::Nowhere => unreachable!("each bit leads somewhere"),
        }
    }
    // What is left is padding: less than a byte, and nothing but ones.
    (length < 8 && is_ones).then_some(out)
}

/// These symbols, coded, without padding.
fn bits_of(symbols: impl Iterator<Item = usize>) -> Vec<bool> {
    let bits = symbols.flat_map(|symbol| (0..BITS[symbol]).rev().map(move |place| CODES[symbol] >> place & 1 == 1));
    bits.collect()
}

/// Bits as bytes, the last of them filled up with `padding`.
fn bytes_of(bits: &[bool], padding: bool) -> Vec<u8> {
    let byte = |bits: &[bool]| (0..8).fold(0, |byte, at| byte << 1 | u8::from(*bits.get(at).unwrap_or(&padding)));
    bits.chunks(8).map(byte).collect()
}

impl Model {
    fn new() -> Model {
        Model { entries: Vec::new(), most: MOST_TABLE }
    }

    fn get(&self, number: usize) -> Option<Field> {
        match number.checked_sub(1)? {
            at if at < STATIC.len() => Some((STATIC[at].0.into(), STATIC[at].1.into())),
            at => self.entries.get(at - STATIC.len()).cloned(),
        }
    }

    /// The number of the first entry that is so.
    fn find(&self, is: impl Fn(&Field) -> bool) -> Option<usize> {
        (1..=STATIC.len() + self.entries.len()).find(|&number| self.get(number).is_some_and(|field| is(&field)))
    }

    /// The oldest go until there is room.
    fn shrink(&mut self) {
        while self.entries.iter().map(size).sum::<usize>() > self.most {
            self.entries.pop();
        }
    }

    fn insert(&mut self, field: Field) {
        self.entries.insert(0, field);
        self.shrink();
    }

    fn resize(&mut self, most: usize) -> bool {
        self.most = most.min(MOST_TABLE);
        self.shrink();
        most <= MOST_TABLE
    }

    /// The fields of a block, and where each of its representations begins; none if there is something wrong with it.
    fn decode(&mut self, block: &[u8]) -> Option<(Vec<Field>, Vec<usize>)> {
        let mut reader = Reader { block, at: 0 };
        let (mut fields, mut begins) = (Vec::new(), Vec::new());
        while let Some(&first) = block.get(reader.at) {
            begins.push(reader.at);
            let prefix = match first {
                0x80.. => {
                    fields.push(self.get(reader.number(7)?)?);
                    continue;
                }
                0x40.. => 6,
                0x20.. => {
                    // At the beginning of a block only (RFC 7541, 4.2).
                    if !fields.is_empty() || !self.resize(reader.number(5)?) {
                        return None;
                    }
                    continue;
                }
                _ => 4,
            };
            let name = match reader.number(prefix)? {
                0 => reader.string()?,
                number => self.get(number)?.0,
            };
            let field = (name, reader.string()?);
            if prefix == 6 {
                self.insert(field.clone());
            }
            fields.push(field);
        }
        Some((fields, begins))
    }
}

fn size((name, value): &Field) -> usize {
    name.len() + value.len() + OVERHEAD
}

/// What a connection has: ours, the model, and ours once more that is given one representation after the other.
struct Connection {
    ours: HpackDecoder,
    model: Model,
    slow: HpackDecoder,
}

impl Connection {
    fn new() -> Connection {
        Connection { ours: HpackDecoder::default(), model: Model::new(), slow: HpackDecoder::default() }
    }

    /// Compares what is made of a block; none if it is malformed, and the connection with it.
    fn decode(&mut self, block: &[u8]) -> Option<Vec<Field>> {
        let mut fields = DecodedFields::default();
        let decoded = self.ours.decode(block, &mut fields);
        let expected = self.model.decode(block);
        assert_eq!(decoded.is_ok(), expected.is_some(), "the model on the right: {block:02x?}");
        let (all, begins) = expected?;
        check_kept(&fields, &all);

        let mut fields = DecodedFields::default();
        let ends = begins.iter().skip(1).copied().chain([block.len()]);
        for (begin, end) in begins.iter().zip(ends) {
            let decoded = self.slow.decode(&block[*begin..end], &mut fields);
            assert!(decoded.is_ok(), "by itself it is malformed: {:02x?}", &block[*begin..end]);
        }
        check_kept(&fields, &all);
        Some(all)
    }
}

/// The first fields are kept, as many as there is room for, and whether there are more is known.
fn check_kept(fields: &DecodedFields, all: &[Field]) {
    let mut sum = 0;
    let room = |field: &&Field| {
        sum += size(field);
        sum <= MOST_FIELDS
    };
    let kept: Vec<&Field> = all.iter().take_while(room).collect();
    assert_eq!(fields.is_too_large(), kept.len() < all.len());
    assert!(fields.iter().eq(kept.iter().map(|(name, value)| (&name[..], &value[..]))), "{kept:02x?}");
    for (name, _) in kept.iter().take(20) {
        let first = kept.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
        assert_eq!(fields.get(name), first);
    }
}

/// Puts a number behind a block, sometimes with zeros that say nothing.
fn number(recipe: &mut Recipe<'_>, value: usize, bits: u32, first: u8, block: &mut Vec<u8>) {
    let full = (1usize << bits) - 1;
    if value < full {
        block.push(first | value as u8);
        return;
    }
    block.push(first | full as u8);
    let mut rest = value - full;
    let mut octets = Vec::new();
    loop {
        octets.push((rest % 128) as u8);
        rest /= 128;
        if rest == 0 {
            break;
        }
    }
    while octets.len() < MOST_OCTETS && recipe.once_in(8) {
        octets.push(0);
    }
    let last = octets.pop().expect("there is one");
    block.extend(octets.iter().map(|&octet| octet | 0x80));
    block.push(last);
}

/// Puts a string behind a block, as it is or coded.
fn string(recipe: &mut Recipe<'_>, text: &[u8], block: &mut Vec<u8>) {
    if recipe.once_in(2) {
        let coded = bytes_of(&bits_of(text.iter().map(|&byte| usize::from(byte))), true);
        number(recipe, coded.len(), 7, 0x80, block);
        block.extend_from_slice(&coded);
    } else {
        number(recipe, text.len(), 7, 0, block);
        block.extend_from_slice(text);
    }
}

/// Puts a field behind a block in one of its spellings; `model` knows what the other side will have in its table.
fn spell(recipe: &mut Recipe<'_>, field: &Field, model: &mut Model, block: &mut Vec<u8>) {
    let kind = recipe.below(4);
    if kind == 3
        && let Some(known) = model.find(|known| known == field)
    {
        return number(recipe, known, 7, 0x80, block);
    }
    // Kept, not kept, and never to be kept.
    let (bits, first) = [(6, 0x40), (4, 0), (4, 0x10)][kind % 3];
    let known = model.find(|(name, _)| *name == field.0).filter(|_| recipe.once_in(2));
    number(recipe, known.unwrap_or(0), bits, first, block);
    if known.is_none() {
        string(recipe, &field.0, block);
    }
    string(recipe, &field.1, block);
    if bits == 6 {
        model.insert(field.clone());
    }
}

/// Something that makes a block malformed.
fn malformed(recipe: &mut Recipe<'_>, model: &Model, block: &mut Vec<u8>) {
    let bits = |symbols: &[usize]| bits_of(symbols.iter().copied());
    let a = usize::from(b'a');
    let coded = match recipe.below(10) {
        // The end of a string, alone, in the middle, and begun in the padding.
        0 => bytes_of(&bits(&[END]), true),
        1 => bytes_of(&bits(&[a, END, a]), true),
        2 => [bytes_of(&bits(&[a]), true), vec![0xff]].concat(),
        // Padding that is not ones. The code of `a` has five bits.
        3 => bytes_of(&bits(&[a]), false),
        4 => vec![0xff],
        // A number that nothing has.
        5 => return number(recipe, STATIC.len() + model.entries.len() + 1, 7, 0x80, block),
        6 => return block.push(0x80),
        // A number that does not end.
        7 => return block.extend_from_slice(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00]),
        // A size behind a field, and one that is too large.
        8 => return block.extend_from_slice(&[0x82, 0x20]),
        _ => {
            block.clear();
            let beyond = MOST_TABLE + 1 + recipe.below(100);
            return number(recipe, beyond, 5, 0x20, block);
        }
    };
    block.extend_from_slice(&[0x00, 0x01, b'x', 0x80 | coded.len() as u8]);
    block.extend_from_slice(&coded);
}

/// Fields by a recipe.
fn field(recipe: &mut Recipe<'_>) -> Field {
    let name =
        recipe.one_of(&["x", ":method", ":path", "cookie", "x-a-name-of-some-length", "", "accept", "content-type"]);
    let name = if recipe.once_in(8) { recipe.bytes(12) } else { name.as_bytes() };
    let value = match recipe.below(8) {
        0 => Vec::new(),
        1 => b"GET".to_vec(),
        2 => b"/index.html".to_vec(),
        // Of these the table holds a few, one, or none.
        3 => vec![b'v'; recipe.one_of(&[1000, 1300, 2000])],
        4 => vec![b'0'; recipe.one_of(&[4062, 4063, 4064, 5000])],
        _ => {
            let most = recipe.below(40);
            recipe.bytes(most).to_vec()
        }
    };
    (name.to_vec(), value)
}

/// What is written is read by the model, and nothing of it is kept.
fn check_written((name, value): &Field) {
    let name = String::from_utf8_lossy(name);
    let mut block = Vec::new();
    encode::append_field(&name, value, &mut block);
    let mut model = Model::new();
    let (read, _) = model.decode(&block).unwrap_or_else(|| panic!("{name:?} is not read: {block:02x?}"));
    assert_eq!(read, [(name.as_bytes().to_vec(), value.clone())]);
    assert!(model.entries.is_empty(), "{name:?} is kept");
}

/// See the head of this file: blocks as they come, each behind its length, or blocks by a recipe.
pub fn hpack(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let mut connection = Connection::new();
    if recipe.once_in(2) {
        while !recipe.is_empty() {
            let most = usize::from(recipe.short()) % 5000;
            let Some(fields) = connection.decode(recipe.bytes(most)) else { return };
            fields.iter().take(20).for_each(check_written);
        }
        return;
    }
    let status = StatusCode::from_u16(100 + recipe.short() % 900).expect("a status");
    let mut block = Vec::new();
    encode::append_status(status, &mut block);
    let written = Model::new().decode(&block).map(|(fields, _)| fields);
    assert_eq!(written, Some(vec![(b":status".to_vec(), status.as_str().as_bytes().to_vec())]));

    let mut model = Model::new();
    for _ in 0..20 {
        if recipe.is_empty() {
            break;
        }
        let (mut block, mut fields) = (Vec::new(), Vec::new());
        for _ in 0..recipe.below(6).saturating_sub(3) {
            let most = recipe.one_of(&[0, 31, 32, 33, 100, 1000, 4095, 4096]);
            number(&mut recipe, most, 5, 0x20, &mut block);
            assert!(model.resize(most), "it may have that");
        }
        for _ in 0..recipe.below(12) {
            let field = field(&mut recipe);
            check_written(&field);
            // One byte may stand for many.
            let times = if recipe.once_in(8) { recipe.below(40) } else { 1 };
            for _ in 0..times {
                spell(&mut recipe, &field, &mut model, &mut block);
                fields.push(field.clone());
            }
        }
        if recipe.once_in(16) {
            malformed(&mut recipe, &model, &mut block);
            assert_eq!(connection.decode(&block), None, "it is malformed: {block:02x?}");
            return;
        }
        assert_eq!(connection.decode(&block).as_ref(), Some(&fields), "{block:02x?}");
    }
}
